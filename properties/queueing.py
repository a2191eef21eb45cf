"""Kueue mode under schedules: calls with faults, Kueue, controllers that lag, crash and come in twos, and meddlers.

What plain mode's oracle foretells request by request is not foretold here. Here is what must be true whatever happens:
no generation of a job's pods starts beside another, a call that succeeded did what it is for, one that refused did not,
nobody but Kueue writes `suspend`, and what is called gated or held does not start.
"""

from __future__ import annotations

import functools
import random
from typing import Any

from dispatch_kubeflow.backend.admission.asking import Asker
from dispatch_kubeflow.backend.admission.leading import Elector
from dispatch_kubeflow.backend.admission.queue import WorkQueue
from dispatch_kubeflow.backend.admission.settling import Settler
from dispatch_kubeflow.backend.admission.watched import Watched
from dispatch_kubeflow.backend.embedded import KueueConfiguration
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.backend.requests import Door, Listed
from dispatch_kubeflow.backend.requests.resources import ADMISSION_CHECKS, TRAIN_JOBS, WORKLOADS, Resource
from dispatch_kubeflow.machine import Context
from dispatch_kubeflow.machine.rules import rulebook
from dispatch_kubeflow.machine.values import JobSpec, ObjectRef, Settings

from .turns import Crash
from .wire import Access, Actor, Fault
from .world import CALL_BOUND, NAMESPACE, RUNTIME, Object, Outcome, World

QUEUE, CHECK = "lq", "dispatch-hold"
KUEUE = KueueConfiguration()
FAULTS = (
    Fault("lost"),
    Fault("drop"),
    Fault("reset-first"),
    Fault("answer", status=403, reason="Forbidden"),
    Fault("answer", status=409, reason="Conflict"),
    Fault("answer", status=500, reason="InternalError"),
    Fault("crash-before"),
    Fault("crash-after"),
    Fault("crash-lost"),
)
REFUSALS = frozenset({"not-applied", "nothing-written", "nothing-sent", "refused"})
_SEEN: tuple[tuple[Resource, Any], ...] = (
    (WORKLOADS, seen.Workload),
    (TRAIN_JOBS, seen.TrainJob),
    (ADMISSION_CHECKS, seen.AdmissionCheck),
)


class Broken(AssertionError):
    """Something that must be true whatever happens is not."""


@functools.cache
def queue_settings(name: str, read_only: bool) -> Settings:
    """The settings of a Backend in kueue mode."""
    given = {"name": name, "namespace": NAMESPACE, "runtimes": [RUNTIME], "read_only": read_only, "mode": "kueue"}
    given |= {"queue": QUEUE, "admission_check": CHECK, "workload_wait": 10.0}
    return Settings.parse({**given, "call_bound": CALL_BOUND, "stop_poll": 1.0, "request_timeout": 30.0})


@functools.cache
def queued_spec() -> JobSpec:
    """Two nodes that ask for all that the queue has."""
    kind, name = RUNTIME.split("/")
    return JobSpec.parse(
        {
            "nodes": 2,
            "command": ["train"],
            "resources": {"requests": {"cpu": "2"}},
            "extensions": {"dispatch/Image": "pytorch:2", "kubeflow/RuntimeRef": {"kind": kind, "name": name}},
        }
    )


class Unheard:
    """An observer who wants to know nothing."""

    def requested(self, verb: str, resource: str, outcome: str) -> None:
        return

    def decided(self, rule: str) -> None:
        return

    def wrote(self, does: str, outcome: str) -> None:
        return


class Governor:
    """One process of the admission controller, which sees and acts when the schedule says."""

    def __init__(self, world: QueueWorld, number: int) -> None:
        self._world = world
        self._actor = Actor(f"controller-{number}", world.admin, number)
        door = Door(Access(world.wire, self._actor), request_timeout=10.0, clock=world.clock)  # type: ignore[arg-type] # as much of it as a Sender uses
        asker = Asker(door, rulebook(), Unheard())
        self._watched = Watched()
        self._queue = WorkQueue(world.clock)
        self._elector = Elector(
            asker, world.clock, namespace=NAMESPACE, name="admission", identity=f"controller-{number}"
        )
        self._settler = Settler(asker, self._watched, self._elector, Unheard(), world.clock)
        self._ctx = Context.background(clock=world.clock)

    def see(self) -> None:
        """All that its watches would have brought by now."""
        takes: tuple[Any, ...] = (self._watched.take_workloads, self._watched.take_trainjobs, self._watched.take_checks)
        for (resource, kind), take in zip(_SEEN, takes, strict=True):
            items = tuple(seen.read(each, kind) for each in self._world.cluster.list(resource))
            self._queue.add(take(Listed(items, "1")))

    def act(self) -> None:
        """Campaign, and look at all that is due."""
        self._actor.ctx = self._ctx
        self._actor.operation = "release"
        self._elector.campaign(self._ctx)
        if not self._elector.leading:
            return
        self._queue.add(self._watched.everything())
        while (key := self._queue.take(0)) is not None:
            match self._settler.look(key, self._ctx, waiting=self._queue.is_waiting(key)):
                case "settled":
                    self._queue.settled(key)
                case "waits":
                    self._queue.waits(key)
                case "failed":
                    self._queue.failed(key)


class QueueWorld(World):
    """A queue with room for one job, and our check on it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed, kueue=KUEUE)
        self.cluster.add_queue(QUEUE, NAMESPACE, quota={"cpu": "4"}, check=CHECK, preempts=True)
        self.governors = [Governor(self, 1), Governor(self, 2)]
        self.backend("a")
        self.governors[0].see()
        self.governors[0].act()
        self.cluster.settle()

    def settings(self, of: str, *, read_only: bool) -> Settings:
        return queue_settings(of, read_only)

    def workloads(self, uid: str) -> list[Object]:
        return [
            each
            for each in self.cluster.list(WORKLOADS, NAMESPACE)
            if each["metadata"]["labels"].get(names.JOB_UID) == uid
        ]


class QueueStory:
    """One schedule, decided by its seed."""

    ATTEMPTS = (("alpha", 1), ("alpha", 2), ("beta", 1))

    def __init__(self, seed: int) -> None:
        self.world = QueueWorld(seed)
        self.chance = random.Random(seed)
        self.refs: dict[tuple[str, int], ObjectRef] = {}
        self.instances = dict.fromkeys(self.ATTEMPTS, 0)
        self.generations = 0
        self._judged = 0
        self._down = False

    def play(self, steps: int = 40) -> None:
        """Draw so many steps and hold each against the truth."""
        world = self.world
        try:
            for _ in range(steps):
                self._step()
                self._no_overlap()
        finally:
            world.close()

    def _step(self) -> None:
        chance, of = self.chance, self.chance.choice(self.ATTEMPTS)
        ways = ["call"] * 8 + ["govern"] * 8 + ["advance"] * 4 + ["meddle"] * (8 if self._down else 2)
        match chance.choice(ways):
            case "call":
                self._call(of)
            case "govern":
                self._govern()
            case "advance":
                self.world.cluster.advance(chance.choice([0.1, 1.0, 5.0, 20.0]))
            case "meddle":
                self._meddle(of)

    def _govern(self) -> None:
        chance = self.chance
        which = chance.randrange(2)
        if chance.random() < 0.1:
            self.world.tell(f"controller {which} dies, and another takes its place")
            self.world.governors[which] = Governor(self.world, len(self.world.outcomes) + 10 + which)
        governor = self.world.governors[which]
        if chance.random() < 0.8:
            governor.see()
        if chance.random() < 0.2:
            # Something happens between what it saw and what it does.
            self.world.cluster.advance(0.2)
        self._faults(0.2)
        try:
            governor.act()
        except Crash:
            self.world.governors[which] = Governor(self.world, len(self.world.outcomes) + 50 + which)
        finally:
            self.world.faultless()
        self.world.cluster.settle()

    def _faults(self, share: float) -> None:
        if self.chance.random() < share:
            self.world.faulty({self.chance.randrange(8): self.chance.choice(FAULTS)})

    def _call(self, of: tuple[str, int]) -> None:
        chance, world = self.chance, self.world
        ref = self.refs.get(of)
        if ref is None:
            self._faults(0.2)
            outcome = world.call("a", "start", *of, queued_spec())
            world.faultless()
            self._started(of, outcome)
            return
        operation = self._wanted(ref)
        if operation == "hold":
            self.instances[of] += chance.choice([0, 1, 1, 1])
        given: tuple[Any, ...] = (ref,) if operation == "open" else (of[0],)
        if operation in ("hold", "release"):
            given = (ref, max(1, self.instances[of] - chance.choice([0, 0, 0, 0, 1])))
        before = self._record(ref)
        self._faults(0.3)
        outcome = world.call("a", operation, *given)
        world.faultless()
        if operation == "stop_job":
            if outcome.error is None and not outcome.crashed:
                self.refs = {each: kept for each, kept in self.refs.items() if each[0] != of[0]}
            return
        self._judge(ref, outcome, before)
        world.cluster.settle()

    def _wanted(self, ref: ObjectRef) -> str:
        """As a rule the call that brings the job further; now and then another."""
        record = self._record(ref)
        if record is None or self.chance.random() < 0.3:
            return self.chance.choice(["open", "hold", "release", "find", "stop_job"])
        gate, hold = record
        if hold.endswith("/held"):
            return "release"
        return "open" if gate == "closed" else self.chance.choice(["hold", "find"])

    def _started(self, of: tuple[str, int], outcome: Outcome) -> None:
        trainjob = self.world.get(TRAIN_JOBS, names.object_name(*of))
        if outcome.strange is not None:
            raise Broken(f"start raised what is not ours: {outcome.strange!r}") from outcome.strange
        if isinstance(outcome.value, ObjectRef):
            if trainjob is None or not trainjob["spec"]["suspend"]:
                raise Broken(f"start gave {outcome.value}, and it does not stand gated")
            for each in self.world.workloads(outcome.value.uid):
                checks = [check["name"] for check in each["status"]["admissionChecks"]]
                gates = (each["metadata"].get("annotations") or {}).get(names.ADMISSION_GATED_BY)
                if CHECK not in checks or gates != names.KUEUE_GATE:
                    raise Broken(f"start gave {outcome.value}, and its Workload has checks {checks}, gates {gates}")
        if trainjob is not None:
            self.refs[of] = self.world.ref(trainjob)
            self.instances[of] = 0

    def _record(self, ref: ObjectRef) -> tuple[str, str] | None:
        trainjob = self.world.get(TRAIN_JOBS, ref.name)
        if trainjob is None or trainjob["metadata"]["uid"] != ref.uid:
            return None
        annotations = trainjob["metadata"]["annotations"]
        return annotations[names.GATE], annotations[names.HOLD]

    def _judge(self, ref: ObjectRef, outcome: Outcome, before: tuple[str, str] | None) -> None:
        if outcome.strange is not None:
            raise Broken(f"{outcome.operation} raised what is not ours: {outcome.strange!r}") from outcome.strange
        for each in outcome.exchanges:
            patch = each.body if (each.method, each.plural) == ("PATCH", "trainjobs") else None
            if isinstance(patch, dict) and "spec" in patch:
                raise Broken(f"{outcome.operation} wrote {patch['spec']} on a TrainJob")
        now = self._record(ref)
        if outcome.error is not None:
            rule = rulebook().tables.rule(outcome.error.row)
            if rule.concludes in REFUSALS and now != before:
                raise Broken(f"{outcome} says {rule.concludes}, and the record went from {before} to {now}")
        elif not outcome.crashed:
            self._success(ref, outcome, now)

    def _success(self, ref: ObjectRef, outcome: Outcome, now: tuple[str, str] | None) -> None:
        if now is None:
            if outcome.operation == "find":
                return
            raise Broken(f"{outcome.operation} succeeded on what is gone")
        gate, hold = now
        match outcome.operation:
            case "open":
                annotations = self.world.get(TRAIN_JOBS, ref.name) or {}
                gated = names.ADMISSION_GATED_BY in annotations["metadata"]["annotations"]
                if gate != "lifted" or gated:
                    raise Broken(f"open succeeded, and the gate is {gate}, Kueue's there: {gated}")
            case "hold":
                active = [each["spec"]["active"] for each in self.world.workloads(ref.uid)]
                if hold != f"{outcome.arguments[1]}/held" or any(active):
                    raise Broken(f"hold {outcome.arguments[1]} succeeded: {hold}, Workloads active {active}")
            case "release":
                if hold != f"{outcome.arguments[1]}/released":
                    raise Broken(f"release {outcome.arguments[1]} succeeded: {hold}")
            case "find":
                self._found(outcome.value)

    def _found(self, found: Any) -> None:
        for each in found.objects:
            live = self.world.kubelet.live(found.job, str(each.attempt))
            if each.state == "gated" and live:
                raise Broken(f"find says that {each.ref} is gated, and {live} run")

    def _meddle(self, of: tuple[str, int]) -> None:
        chance, world = self.chance, self.world
        ref = self.refs.get(of)
        if self._down or chance.random() < 0.2:
            self._down = not self._down
            world.tell(f"kueue goes {'down' if self._down else 'up'}")
            (world.cluster.take_down if self._down else world.cluster.bring_up)("kueue")
            world.cluster.settle()
            return
        for each in world.workloads(ref.uid) if ref is not None else ():
            name = each["metadata"]["name"]
            try:
                match chance.choice(["delete", "ungate", "deactivate", "priority"]):
                    case "delete":
                        world.tell(f"{name} is deleted by hand")
                        world.cluster.delete(WORKLOADS, name, NAMESPACE)
                    case "ungate":
                        world.tell(f"the gate is taken off {name} alone")
                        bare = {"metadata": {"annotations": {names.ADMISSION_GATED_BY: None}}}
                        world.cluster.patch(WORKLOADS, name, bare, NAMESPACE)
                    case "deactivate":
                        world.tell(f"somebody makes {name} inactive")
                        world.cluster.patch(WORKLOADS, name, {"spec": {"active": False}}, NAMESPACE)
                    case "priority":
                        world.tell(f"{name} gets another priority")
                        other = {"spec": {"priority": chance.randrange(100)}}
                        world.cluster.patch(WORKLOADS, name, other, NAMESPACE)
            except ApiError as error:
                world.tell(f"refused: {error.message}")
        world.cluster.settle()

    def _no_overlap(self) -> None:
        """No container started beside one that was told to stop, of the same place, or of another attempt."""
        starts = self.world.kubelet.starts
        for start in starts[self._judged :]:
            self.generations += 1
            twice = [
                pod
                for attempt, index, pod in start.beside
                if pod in start.stopping or index == start.index or attempt != start.attempt
            ]
            if twice:
                raise Broken(f"{start.pod} started beside {twice}")
        self._judged = len(starts)
