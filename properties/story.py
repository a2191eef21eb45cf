"""A schedule is data: a list of steps, each a call of somebody or a deed of somebody else. Whoever draws it
(Hypothesis, a seed, a person who replays it) the same `Story` plays it, judges every call and watches what must always
hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from random import Random
from typing import Any

from dispatch_kubeflow.backend.embedded.kubelet import Script
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from dispatch_kubeflow.machine.record import Recorded, record_start
from dispatch_kubeflow.machine.values import ObjectRef

from . import sockets, truth
from .expect import Disagreement, expected, forget_created, hold_of, remember_copy, remember_created
from .wire import Exchange, Fault
from .world import CALL_BOUND, NAMESPACE, PREFIX, Outcome, World, annotation, job_spec, label

Step = dict[str, Any]
Key = tuple[str, int]
CALLS = ("start", "open", "hold", "release", "stop", "stop_job", "find", "output", "ceased", "watch", "capabilities")
JOBS_NAMED = ("alpha", "beta")
WRITES = frozenset({"start", "open", "hold", "release", "stop", "stop_job"})
LIVE_PARTS = {"JobSet": JOB_SETS, "Job": JOBS, "Pod": PODS, "TrainingRuntime": TRAINING_RUNTIMES}


class Broken(AssertionError):
    """Something that must always hold did not."""


class Story:
    """One schedule as it is played. `obedient`: its supervisors keep the contract's section 11."""

    def __init__(self, seed: int = 0, on: sockets.Sockets | None = None) -> None:
        forget_created()
        self.world = World(seed, on)
        self.world.wire.after = self._after
        self.world.wire.before = self._before
        self.world.wire.plan = self._plan
        self._there("a")
        self.refs: dict[Key, list[ObjectRef]] = {}
        self.meddled: set[str] = set()
        self.edited: set[Key] = set()
        self.lagging = False
        self.forced = False
        self.closed: set[str] = set()
        self.steps: list[Step] = []
        self.started: dict[Key, list[Outcome]] = {}
        self.matrix = truth.Matrix()
        self._faults: dict[tuple[str, int], Fault] = {}
        self._deeds: dict[tuple[str, int], Step] = {}
        self._places: dict[str, int] = {}
        self._seen_version = self.world.cluster.store.resource_version
        self._seen_starts = 0
        self._records: dict[str, tuple[str | None, tuple[int, str] | None]] = {}

    # Playing.

    def do(self, step: Step) -> Any:
        """Play one step; judges, and raises what is wrong."""
        self.steps.append(step)
        try:
            return self._play(step)
        finally:
            if step["do"] != "race":
                self._watch_over()

    def play(self, steps: Iterable[Step]) -> None:
        """Play a whole schedule, and its end."""
        for step in steps:
            self.do(step)
        self.end()

    def _play(self, step: Step) -> Any:
        if step["do"] == "race":
            return self._race(step)
        if step["do"] in CALLS:
            return self._call(step)
        self.world.tell(" ".join(str(value) for value in step.values()))
        getattr(self, "_" + step["do"])(**{key: value for key, value in step.items() if key != "do"})
        if self.world.pace == "settle":
            self.world.cluster.settle()
        return None

    def _call(self, step: Step) -> Outcome | None:
        by, what = step["by"], step["do"]
        if self.world.sockets is not None and what in sockets.CALLS_LEFT_OUT:
            return None
        made = self._made(step)
        if made is None:
            return None
        arguments, act = made
        self._there(by)
        self._places[by] = 0
        for place, fault in (step.get("faults") or {}).items():
            if self.world.sockets is None or fault["kind"] in sockets.FAULTS:
                self._faults[by, int(place)] = Fault(**fault)
        for place, deed in (step.get("deeds") or {}).items():
            self._deeds[by, int(place)] = deed
        before = self.world.backends[by]
        outcome = self.world.call(
            by, what, *arguments, timeout=step.get("timeout", 120.0), act=act, cancelled="cancelled" in step
        )
        self._faults = {key: fault for key, fault in self._faults.items() if key[0] != by}
        self._deeds = {key: deed for key, deed in self._deeds.items() if key[0] != by}
        if before is not self.world.backends[by] and by in ("r", "o"):
            self.world.backend(by, read_only=by == "r", lacking=by == "o")
        self._learn(step, outcome)
        self._judge(outcome)
        return outcome

    def _there(self, actor: str) -> None:
        """Every process has its Backend, made when it is first asked for."""
        if actor not in self.world.backends:
            self.world.backend(actor, read_only=actor == "r", lacking=actor == "o")

    def _made(self, step: Step) -> tuple[tuple[Any, ...], Any] | None:
        """The arguments of a call; None where it speaks of what nobody knows."""
        what, job = step["do"], step.get("job", "")
        match what:
            case "start":
                return (job, step["attempt"], job_spec(step.get("nodes", 1), step.get("deadline"))), None
            case "find" | "stop_job":
                return (job,), None
            case "output":
                return (job,), lambda backend, ctx: list(backend.output(job, ctx=ctx))
            case "watch":
                return (job,), lambda backend, ctx: self._watched(backend, ctx, job, step.get("views", 1))
            case "capabilities":
                return (), lambda backend, ctx: backend.capabilities(ctx=ctx)
        ref = self._ref(step)
        if ref is None:
            return None
        return ((ref, step["n"]) if what in ("hold", "release") else (ref,)), None

    def _ref(self, step: Step) -> ObjectRef | None:
        key = (step["job"], step["attempt"])
        if "kind" in step:
            parts = self._parts(LIVE_PARTS[step["kind"]], key)
            return self.world.ref(parts[0]) if parts else None
        known = self.refs.get(key)
        return known[max(0, len(known) - 1 - step.get("old", 0))] if known else None

    def _parts(self, resource: Any, key: Key) -> list[dict[str, Any]]:
        return [each for each in self.world.of_job(resource, key[0]) if label(each, "attempt") == str(key[1])]

    def _watched(self, backend: Any, ctx: Any, job: str, views: int) -> list[Any]:
        """So many views of a job, each not older than the one before."""
        seen: list[Any] = []
        iterator = backend.watch(job, ctx=ctx)
        try:
            for view in iterator:
                if seen:
                    not_back(seen[-1], view)
                seen.append(view)
                if len(seen) >= views:
                    break
        finally:
            iterator.close()
        return seen

    def _race(self, step: Step) -> None:
        """Calls of several callers, their requests in an order that a seed decides."""
        chance = Random(step["order"])
        calls = [each for each in step["calls"] if self._made(each) is not None]
        self.world.tell("at once: " + ", ".join(f"{each['by']} {each['do']}" for each in calls))
        tasks = self.world.concurrently([(each["by"], self._one(each)) for each in calls], chance.choice)
        self._watch_over()
        for task in tasks:
            if task.error is not None:
                raise task.error

    def _one(self, step: Step) -> Callable[[], Any]:
        return lambda: self._call(step)

    # On the wire.

    def _plan(self, exchange: Exchange) -> Fault | None:
        place = self._places.get(exchange.actor, 0)
        self._places[exchange.actor] = place + 1
        return self._faults.get((exchange.actor, place))

    def _before(self, exchange: Exchange) -> None:
        place = (exchange.actor, self._places.get(exchange.actor, 0))
        deed = self._deeds.pop(place, None) if exchange.call > 0 else None
        if deed is not None:
            self._play(deed)
        elif self.world.pace == "settle":
            self.world.cluster.settle()

    def _after(self, exchange: Exchange) -> None:
        if exchange.what == "POST trainjobs" and exchange.committed:
            made = self.world.get(TRAIN_JOBS, exchange.name)
            if made is not None:
                remember_created(made)
        if exchange.what == "POST trainingruntimes" and exchange.committed:
            copy = self.world.get(TRAINING_RUNTIMES, exchange.name)
            if copy is not None:
                remember_copy(copy)

    # Judging.

    def _learn(self, step: Step, outcome: Outcome) -> None:
        if outcome.operation == "start":
            key = (step["job"], step["attempt"])
            self.started.setdefault(key, []).append(outcome)
            if isinstance(outcome.value, ObjectRef):
                self.refs.setdefault(key, []).append(outcome.value)
        if outcome.operation == "find" and outcome.value is not None:
            for each in outcome.value.objects:
                if each.ref.kind == "TrainJob" and each.attempt is not None:
                    known = self.refs.setdefault((step["job"], each.attempt), [])
                    if each.ref not in known:
                        known.append(each.ref)

    def _judge(self, outcome: Outcome) -> None:
        with truth.judging():
            self._judge_call(outcome)

    def _judge_call(self, outcome: Outcome) -> None:
        truth.note(self.world, outcome, self.matrix)
        lying = any(each.fault is not None and each.fault.status == 404 for each in outcome.exchanges)
        if outcome.actor in self.closed:
            if outcome.row != "backend.closed":
                raise Disagreement(f"backend.closed was expected, and it was {outcome}")
        elif outcome.actor in ("r", "o") and outcome.operation in WRITES:
            self._judge_standing(outcome)
        elif lying:
            truth.judge_said(outcome)
        else:
            truth.judge(self.world, outcome)

    def _judge_standing(self, outcome: Outcome) -> None:
        if outcome.actor == "r":
            wanted = "backend.read-only"
        elif outcome.exchanges:
            # It had a look at its gates, which this user has: it is a Backend that may write by now.
            return
        else:
            wanted = "backend.observe-only-start" if outcome.operation == "start" else "backend.observe-only-write"
        if outcome.row != wanted:
            raise Disagreement(f"{wanted} was expected of {outcome.actor}, and it was {outcome}")

    # What must always hold.

    def _watch_over(self) -> None:
        self._watch_records()
        self._watch_starts()

    def _watch_records(self) -> None:
        """The register moves as its lifecycle says, a gate opens once and for all, and `suspend` is what they say."""
        store = self.world.cluster.store
        for event in store.events(TRAIN_JOBS, self._seen_version):
            job = event.state.obj
            uid, key = job["metadata"]["uid"], key_of(job)
            record = (annotation(job, "gate"), hold_of(job))
            before = self._records.get(uid)
            self._records[uid] = record
            if key is None or key in self.edited or event.type == "DELETED":
                continue
            if before is not None:
                _moved(job, before, record)
            _enforced(job, record)
        self._seen_version = store.resource_version

    def _watch_starts(self) -> None:
        starts = self.world.kubelet.starts
        for start in starts[self._seen_starts :]:
            job = start.job
            if job in self.meddled or self.forced or not start.attempt:
                continue
            same = [of for of in start.beside if of[0] == start.attempt and of[1] == start.index]
            if same:
                raise Broken(f"two generations at once: {start}")
            others = [of for of in start.beside if of[0] != start.attempt]
            if others and not self.lagging:
                raise Broken(f"two attempts of {job} at once: {start}")
            self._started_rightly(start)
        self._seen_starts = len(starts)

    def _started_rightly(self, start: Any) -> None:
        found = self.world.get(TRAIN_JOBS, f"{start.job}-{start.attempt}")
        if (
            found is not None
            and annotation(found, "gate") == "closed"
            and (found["metadata"]["uid"] in truth.owners_of(self.world, start.jobset))
        ):
            raise Broken(f"a gated job has a pod that runs: {start}")
        outcomes = self.started.get((start.job, int(start.attempt)), [])
        refused = [each for each in outcomes if each.error is not None and record_start(each.error) is Recorded.REFUSED]
        if outcomes and len(refused) == len(outcomes):
            raise Broken(f"a refused attempt runs: {start}, {refused[-1]}")

    # The end of a schedule.

    def end(self, *, way_out: bool = True) -> None:
        """Controllers catch up, late requests arrive, held and gated jobs rest, and a way out leads to nothing."""
        world = self.world
        self._mend()
        self.world.tell("everything is mended, and late requests arrive")
        world.advance(CALL_BOUND)
        self._watch_over()
        for job in world.cluster.list(TRAIN_JOBS, NAMESPACE):
            key = key_of(job)
            held = hold_of(job)
            stopped = annotation(job, "gate") == "closed" or (held is not None and held[1] == "held")
            if key and key not in self.edited and key[0] not in self.meddled and stopped and not self.forced:
                live = world.kubelet.live(key[0], str(key[1]))
                if live:
                    raise Broken(f"{job['metadata']['name']} is gated or held, and {live} run")
        for outcome in world.outcomes:
            truth.settled(world, outcome)
        if way_out:
            self._way_out()

    def _mend(self) -> None:
        world = self.world
        for program in ("trainer", "jobset", "kube-controller-manager", "kube-scheduler", "kubelet"):
            world.cluster.bring_up(program)
        for controller in world.cluster.controllers.values():
            controller.lag = 0.0
        world.cluster.trainer_webhooks.blind = False
        for node in ("node-0", "node-1"):
            if world.cluster.get(NODES, node) is not None:
                world.cluster.return_node(node)
            else:
                world.cluster.add_node(node)
        world.pace = "settle"
        world.cluster.settle()

    def _way_out(self) -> None:
        world = self.world
        world.backend("z")
        for job in JOBS_NAMED:
            if job not in {each[0] for each in self.started}:
                continue
            stopped = world.call("z", "stop_job", job, timeout=1200.0)
            truth.judge(world, stopped)
            if stopped.row == "stop.left-kept" and world.relabelled:
                world.tell("labels are put right")
                world.put_right()
                stopped = world.call("z", "stop_job", job, timeout=1200.0)
                truth.judge(world, stopped)
            if stopped.error is not None:
                raise Broken(f"a dead end: {stopped}")
            left = world.call("z", "find", job)
            if left.value.objects:
                raise Broken(f"stop_job left {left.value.objects}")

    def close(self) -> None:
        self.world.close()

    # Deeds of others.

    def _advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    def _lag(self, controller: str, seconds: float) -> None:
        self.lagging = True
        self.world.cluster.controllers[controller].lag = seconds

    def _down(self, program: str) -> None:
        self.lagging = True
        self.world.cluster.take_down(program)

    def _up(self, program: str) -> None:
        self.world.cluster.bring_up(program)

    def _pace(self, pace: str) -> None:
        """Whether controllers get anything done between two requests."""
        self.lagging = self.lagging or pace != "settle"
        self.world.pace = pace

    def _blind(self, on: bool) -> None:
        self.world.cluster.trainer_webhooks.blind = on

    def _compact(self) -> None:
        # Ground truth is read from the history, so only as much is forgotten as no judgement needs: nothing of it.
        return

    def _finish(self, job: str, code: int) -> None:
        """The containers of a job end by themselves."""
        for pod in self.world.of_job(PODS, job):
            self.world.kubelet.end(pod["metadata"]["uid"], code)

    def _stubborn(self, seconds: float) -> None:
        """Containers that start from here on take so long to end."""
        self.world.kubelet.plan = Script(stop_after=seconds)

    def _node(self, node: str, deed: str) -> None:
        if self.world.cluster.get(NODES, node) is None:
            return
        if deed in ("lose", "delete"):
            # Its containers run on and nobody hears of them: what follows is the operator's word.
            self.forced = True
        match deed:
            case "lose":
                self.world.cluster.lose_node(node)
            case "return":
                self.world.cluster.return_node(node)
            case "reboot":
                self.world.cluster.reboot_node(node)
            case _:
                self.world.cluster.delete_node(node)

    def _kubectl(self, deed: str, job: str, attempt: int) -> None:
        """A user with kubectl."""
        key, name = (job, attempt), f"{job}-{attempt}"
        cluster = self.world.cluster
        found = cluster.get(TRAIN_JOBS, name, NAMESPACE)
        match deed:
            case "delete" | "foreground" | "orphan" if found is not None:
                how: Any = {"delete": "Background", "foreground": "Foreground", "orphan": "Orphan"}[deed]
                # Trainer does not look at a deletion: in the foreground it makes pods anew beside those that stop.
                self.meddled |= {job} if deed != "delete" else set()
                cluster.delete(TRAIN_JOBS, name, NAMESPACE, propagation=how)
            case "suspend" | "resume" if found is not None:
                self._edit(key, {"spec": {"suspend": deed == "suspend"}})
            case "junk" if found is not None:
                self._edit(key, {"metadata": {"annotations": {PREFIX + "hold": "seven/held"}}})
            case "ajar" if found is not None:
                self._edit(key, {"metadata": {"annotations": {PREFIX + "gate": "ajar"}}})
            case "mode" if found is not None:
                self._edit(key, {"metadata": {"annotations": {PREFIX + "mode": "kueue"}}})
            case "backend" | "nobody" if found is not None:
                self.edited.add(key)
                self._relabel(job, TRAIN_JOBS, name, "another" if deed == "backend" else None)
            case "unlabel" if cluster.get(JOB_SETS, name, NAMESPACE) is not None:
                self._relabel(job, JOB_SETS, name, None)
            case "again" if found is not None:
                self._again(key, found)
            case "queue" if found is not None:
                self._edit(key, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "mine"}}})
            case "copy" if cluster.get(TRAINING_RUNTIMES, name, NAMESPACE) is not None:
                self.meddled.add(job)
                cluster.delete(TRAINING_RUNTIMES, name, NAMESPACE)
            case "recopy" if cluster.get(TRAINING_RUNTIMES, name, NAMESPACE) is not None:
                self.meddled.add(job)
                change = {"metadata": {"labels": {PREFIX + "attempt": "999"}}}
                self._tried(lambda: cluster.patch(TRAINING_RUNTIMES, name, change, NAMESPACE))
            case "disown" if cluster.get(TRAINING_RUNTIMES, name, NAMESPACE) is not None:
                cluster.patch(TRAINING_RUNTIMES, name, {"metadata": {"ownerReferences": None}}, NAMESPACE)
            case "jobset" | "jobset-foreground" if cluster.get(JOB_SETS, name, NAMESPACE) is not None:
                self.meddled.add(job)
                policy: Any = "Background" if deed == "jobset" else "Foreground"
                cluster.delete(JOB_SETS, name, NAMESPACE, propagation=policy)
            case "unsuspend" if cluster.get(JOB_SETS, name, NAMESPACE) is not None:
                self.meddled.add(job)
                self._tried(lambda: cluster.patch(JOB_SETS, name, {"spec": {"suspend": False}}, NAMESPACE))
            case "snapshot" if cluster.get(CONFIG_MAPS, f"{name}-runtime-snapshot", NAMESPACE) is not None:
                cluster.delete(CONFIG_MAPS, f"{name}-runtime-snapshot", NAMESPACE)
            case "evict":
                for pod in self._parts(PODS, key)[:1]:
                    cluster.evict(pod["metadata"]["name"], NAMESPACE)
            case "kill":
                self.meddled.add(job)
                for pod in self._parts(PODS, key)[:1]:
                    cluster.delete(PODS, pod["metadata"]["name"], NAMESPACE, grace=0)
            case "limit" if found is not None:
                # Trainer deletes the JobSet at such a deadline: who sets it has seen to a second gang himself.
                self._edit(key, {"spec": {"activeDeadlineSeconds": 2}})
            case "touch" if found is not None:
                cluster.patch(TRAIN_JOBS, name, {"metadata": {"annotations": {"note": self._stamp()}}}, NAMESPACE)
            case _:
                return

    def _relabel(self, job: str, resource: Any, name: str, backend: str | None) -> None:
        self.meddled.add(job)
        self._tried(lambda: self.world.relabel(resource, name, backend=backend))

    def _again(self, key: Key, found: dict[str, Any]) -> None:
        """Somebody deletes a TrainJob and makes it anew by the same name."""
        self.edited.add(key)
        self.meddled.add(key[0])
        cluster = self.world.cluster
        cluster.delete(TRAIN_JOBS, found["metadata"]["name"], NAMESPACE, propagation="Orphan")
        cluster.settle()
        meta = {each: found["metadata"][each] for each in ("name", "namespace", "labels", "annotations")}
        if cluster.get(TRAIN_JOBS, meta["name"], NAMESPACE) is None:
            self._tried(lambda: cluster.create(TRAIN_JOBS, {"metadata": meta, "spec": found["spec"]}, NAMESPACE))

    def _tried(self, deed: Callable[[], Any]) -> None:
        try:
            deed()
        except Exception as error:
            # Trainer's webhook may refuse a user as it refuses anybody.
            if type(error).__name__ != "ApiError":
                raise
            self.world.tell(f"refused: {error}")

    def _stamp(self) -> str:
        return str(self.world.cluster.store.resource_version)

    def _edit(self, key: Key, patch: Mapping[str, Any]) -> None:
        self.edited.add(key)
        self.meddled.add(key[0])
        name = f"{key[0]}-{key[1]}"
        self._tried(lambda: self.world.cluster.patch(TRAIN_JOBS, name, patch, NAMESPACE))

    def _rbac(self, by: str, lacks: list[list[str]]) -> None:
        """The user of a Backend loses or regains permissions."""
        world = self.world
        rules: list[Mapping[str, Any]] = [
            {"apiGroups": ["*"], "resources": [plural], "verbs": [v for v in VERBS if [v, plural] not in lacks]}
            for plural in PLURALS
        ]
        self._there(by)
        world.actors[by].token = world.cluster.user(f"user-{by}", rules) if lacks else world.admin

    def _close(self, by: str) -> None:
        """A Backend is closed; its owner calls it all the same."""
        self._there(by)
        self.world.backends[by].close()
        self.closed.add(by)

    def _new(self, by: str) -> None:
        """The process died between two calls, and another one takes its place."""
        self.closed.discard(by)
        self.world.backend(by)


VERBS = ("get", "list", "watch", "create", "patch", "delete")
PLURALS = (
    "trainjobs",
    "trainingruntimes",
    "clustertrainingruntimes",
    "jobsets",
    "jobs",
    "pods",
    "pods/log",
    "configmaps",
    "nodes",
    "selfsubjectaccessreviews",
)


def key_of(job: Mapping[str, Any]) -> Key | None:
    """Job and attempt of one of our TrainJobs."""
    labels = job["metadata"].get("labels") or {}
    name, attempt = labels.get(PREFIX + "job"), labels.get(PREFIX + "attempt", "")
    return (name, int(attempt)) if name and attempt.isdigit() else None


def _moved(job: Mapping[str, Any], before: Any, after: Any) -> None:
    name = job["metadata"]["name"]
    if before[0] == "lifted" and after[0] != "lifted":
        raise Broken(f"the gate of {name} was lifted and is {after[0]}")
    was, now = before[1], after[1]
    if was == now or was is None or now is None:
        return
    held = now[1] == "held" and was[1] in ("none", "released") and now[0] > was[0]
    released = was[1] == "held" and now == (was[0], "released")
    if not (held or released):
        raise Broken(f"the hold register of {name} went from {was} to {now}")


def _enforced(job: Mapping[str, Any], record: Any) -> None:
    gate, held = record
    if gate is None or held is None:
        raise Broken(f"the record of {job['metadata']['name']} cannot be read: {record}")
    stopped = gate == "closed" or held[1] == "held"
    ended = "deletionTimestamp" in job["metadata"] or any(
        each["type"] in ("Complete", "Failed") and each["status"] == "True"
        for each in (job.get("status") or {}).get("conditions") or ()
    )
    if bool(job["spec"].get("suspend")) != stopped and not ended:
        raise Broken(f"{job['metadata']['name']}: suspend is {job['spec'].get('suspend')} on a record of {record}")


def not_back(before: Any, after: Any) -> None:
    """A later view is not older than an earlier one: an object's record only moves on, a deletion is not taken back."""
    olds = {each.ref.uid: each for each in before.objects}
    for new in after.objects:
        old = olds.get(new.ref.uid)
        if old is None:
            continue
        if old.gate_lifted and not new.gate_lifted and new.state != "orphaned":
            raise Broken(f"a view went back: {old} then {new}")
        if old.stopping and not new.stopping and new.state != "orphaned":
            raise Broken(f"a view took a deletion back: {old} then {new}")
        was, now = old.hold_register, new.hold_register
        if was is not None and now is not None and now.instance < was.instance:
            raise Broken(f"a view went back: {old} then {new}")


def text(steps: Iterable[Step]) -> str:
    """Steps as one line, for a person to paste."""
    return json.dumps(list(steps), separators=(",", ":"))


def fault(given: Fault) -> dict[str, Any]:
    """A fault as data."""
    return {key: value for key, value in asdict(given).items() if value != _CALM[key]}


_CALM = {**asdict(Fault("")), "kind": None}
__all__ = ["Broken", "Story", "expected"]
