"""Bugs that drivers really have, planted one by one: each must be found, and within so many examples.

A property that finds nothing has shown nothing until it was seen to find something.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from dispatch_kubeflow.backend.objects import describe, record, resting, runtime_copy, seen, state, trainjob
from dispatch_kubeflow.backend.operations import (
    adapter,
    backend,
    ceased,
    find,
    hold_family,
    listed,
    ownership,
    start,
    stop,
    stop_job,
    stopping,
)
from dispatch_kubeflow.backend.operations import call as calls
from dispatch_kubeflow.backend.requests import Failure, Request, answers, door, lists, logs, refuse, sender, watches
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS, TRAINING_RUNTIMES
from dispatch_kubeflow.machine.record import Recorded

from . import exhaustive, runner, story, truth
from .fence import Fence
from .watchers import Watched
from .wire import Fault

Example = Callable[[], None]
Set = Callable[[Any, str, Any], None]
BY_NAME = {scene.name: scene for scene in exhaustive.SCENES}


@dataclass(frozen=True, slots=True)
class Planted:
    """A defect: what it is, the thread where somebody had it, how it is planted, and where it must be found.

    `within`: the largest number of examples after which it has to be found.
    """

    name: str
    thread: str
    plant: Callable[[Set], None]
    hunt: Callable[[], Iterator[Example]]
    within: int


def found_after(bug: Planted) -> tuple[int, BaseException] | None:
    """How many examples it took to find it, and what was then said; None where it was not found."""
    with ExitStack() as stack:

        def put(where: Any, name: str, what: Any) -> None:
            stack.enter_context(patch.object(where, name, what))

        bug.plant(put)
        for number, example in enumerate(bug.hunt(), 1):
            if number > bug.within:
                return None
            try:
                example()
            except AssertionError as error:
                # Everything that a property finds is one of these; a bug that merely breaks the program is no find.
                beneath = _deepest(error)
                if not isinstance(beneath, TypeError | AttributeError | NameError):
                    return number, error
                raise beneath from None
    return None


def _deepest(error: BaseException) -> BaseException:
    """What lies beneath all that was raised from it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


# Where bugs are looked for.


def scenes(*names: str, faults: tuple[Fault, ...] = ()) -> Callable[[], Iterator[Example]]:
    """These scenes, undisturbed first, then with each fault at each request."""

    def examples() -> Iterator[Example]:
        for name in names:
            yield partial(_check, name, {})
        for name in names:
            for place in range(8):
                for each in faults:
                    yield partial(_check, name, {place: each})

    return examples


def _check(name: str, faults: dict[int, Fault]) -> None:
    exhaustive.check(BY_NAME[name], faults, truth.Matrix())


def schedules() -> Iterator[Example]:
    """Schedules from seed 0 on."""
    for seed in range(100_000):
        yield partial(_one, seed)


def _one(seed: int) -> None:
    played, error = runner.one(seed)
    played.close()
    if error is not None:
        raise error


def steps(*given: dict[str, Any]) -> Callable[[], Iterator[Example]]:
    """One schedule that somebody thought of."""

    def examples() -> Iterator[Example]:
        yield lambda: _steps(list(given))

    return examples


def _steps(given: list[dict[str, Any]]) -> None:
    played, error = runner.play(0, given)
    played.close()
    if error is not None:
        raise error


def fences() -> Iterator[Example]:
    """Schedules of holders."""
    for seed in range(10_000):
        yield partial(_fence, seed)


def _fence(seed: int) -> None:
    fence = Fence(seed)
    try:
        fence.run()
    finally:
        fence.close()


def watchers() -> Iterator[Example]:
    """Schedules of a watcher."""
    for seed in range(10_000):
        yield partial(_watched, seed)


def _watched(seed: int) -> None:
    watched = Watched(seed)
    try:
        watched.run()
    finally:
        watched.close()


# The bugs.

_MINE: dict[str, Any] = {"by": "a", "job": "alpha", "attempt": 1}
_STARTED = ({"do": "start", **_MINE}, {"do": "open", **_MINE}, {"do": "advance", "seconds": 2.0})


def _retry_on_timeout(put: Set) -> None:
    send = door.Door.send

    def again(self: Any, request: Any, ctx: Any, *, operation: str) -> Any:
        reply = send(self, request, ctx, operation=operation)
        lost = reply.failure is not None and reply.failure.result == "lost"
        return send(self, request, ctx, operation=operation) if lost else reply

    put(door.Door, "send", again)


def _type_for_marker(put: Set) -> None:
    told = sender.unanswered

    def by_type(request: Any, call: Any, error: Exception, host: str) -> Any:
        if isinstance(error, ConnectionError):
            return answers.failed(request, "unsent", sent=False, cause=error, details={"message": "reset"})
        return told(request, call, error, host)

    put(sender, "unanswered", by_type)


def _timeout_is_unsent(put: Set) -> None:
    told = sender.unanswered

    def by_type(request: Any, call: Any, error: Exception, host: str) -> Any:
        if isinstance(error, TimeoutError):
            return answers.failed(request, "unsent", sent=False, cause=error, details={"message": "timed out"})
        return told(request, call, error, host)

    put(sender, "unanswered", by_type)


def _release_without_fence(put: Set) -> None:
    put(record.Hold, "compare", lambda self, instance: "same")


def _only_newer_holds(put: Set) -> None:
    def compare(self: record.Hold, instance: int) -> str:
        return "newer" if instance >= self.instance else "older"

    put(record.Hold, "compare", compare)


def _pods_not_listed(put: Set) -> None:
    remains = resting.remains
    put(resting, "remains", lambda attempt, *, pods, **more: remains(attempt, pods=(), **more))


def _pods_by_jobset_uid(put: Set) -> None:
    remains = resting.remains

    def by_uid(attempt: int, *, jobset: Any, pods: Any, **more: Any) -> Any:
        kept = () if jobset is None else [each for each in pods if _of_jobs(each, more["jobs"], jobset)]
        return remains(attempt, jobset=jobset, pods=kept, **more)

    put(resting, "remains", by_uid)


def _of_jobs(pod: Any, jobs: Any, jobset: Any) -> bool:
    owner = pod.metadata.owner("Job")
    uids = {job.metadata.uid for job in jobs if (of := job.metadata.owner("JobSet")) and of.uid == jobset.metadata.uid}
    return owner is not None and owner.uid in uids


def _terminal_pod_runs(put: Set) -> None:
    put(resting, "why_not", lambda pod: "pod-runs")


def _phase_is_rest(put: Set) -> None:
    def by_phase(pod: seen.Pod) -> str | None:
        return None if pod.status.phase in resting.TERMINAL_PHASES or pod.metadata.deleting else "pod-runs"

    put(resting, "why_not", by_phase)


def _other_attempts_unseen(put: Set) -> None:
    put(hold_family, "may_run", lambda other: False)
    remains = resting.remains

    def own(attempt: int, *, pods: Any, **more: Any) -> Any:
        mine = [each for each in pods if each.metadata.labels.attempt == str(attempt)]
        return remains(attempt, pods=mine, **{**more, "others": (), "jobs": ()})

    put(resting, "remains", own)


def _replacement_policy_forgotten(put: Set) -> None:
    hardened = runtime_copy.hardened

    def softer(*given: Any) -> Any:
        spec = hardened(*given)
        for replicated in spec["template"]["spec"]["replicatedJobs"]:
            del replicated["template"]["spec"]["podReplacementPolicy"]
            replicated["template"]["spec"]["backoffLimit"] = 6
        return spec

    put(runtime_copy, "hardened", softer)


def _deadline_of_the_trainjob(put: Set) -> None:
    written = trainjob._spec

    def limited(name: str, spec: Any) -> Any:
        return {**written(name, spec), "activeDeadlineSeconds": spec.deadline_seconds}

    put(trainjob, "_spec", limited)
    put(runtime_copy, "_bound", lambda *_: None)


def _labels_forgotten(put: Set) -> None:
    put(runtime_copy, "_label", lambda template, identity: None)


def _foreign_end_believed(put: Set) -> None:
    put(state, "jobset_fact", lambda trainjob, jobset: "this")


def _twin_by_stale_owner(put: Set) -> None:
    def by_name(metadata: seen.Metadata, uid: str) -> bool:
        return any(owner.name == metadata.name for owner in metadata.owner_references)

    put(ownership, "is_owner", by_name)


def _hold_lost_at_open(put: Set) -> None:
    plan = hold_family._plan_open
    put(
        hold_family,
        "_plan_open",
        lambda call, ref, target: dataclasses.replace(plan(call, ref, target), suspend=False),
    )


def _hold_not_enforced(put: Set) -> None:
    body = record.record_patch
    put(hold_family, "record_patch", lambda uid, version, **parts: body(uid, version, **{**parts, "suspend": None}))


def _gate_closed_again(put: Set) -> None:
    body = record.record_patch

    def closing(uid: str, version: str, **parts: Any) -> Any:
        return body(uid, version, **{**parts, "gate": parts.get("gate") or "closed"})

    put(hold_family, "record_patch", closing)


def _trains_again(put: Set) -> None:
    read = hold_family._read

    def running(*given: Any) -> Any:
        target = read(*given)
        return dataclasses.replace(target, ended=False)

    put(hold_family, "_read", running)


def _patch_without_version(put: Set) -> None:
    put(record, "precondition", lambda uid, version: {"uid": uid})


def _foreground_delete(put: Set) -> None:
    def delete(self: Any, resource: Any, name: str, *, uid: str, resource_version: str | None = None) -> Any:
        preconditions = {"uid": uid} | ({} if resource_version is None else {"resourceVersion": resource_version})
        body = {"propagationPolicy": "Foreground", "preconditions": preconditions}
        return _deleted(self, resource, name, body)

    put(calls.Call, "delete", delete)


def _delete_by_name(put: Set) -> None:
    def delete(self: Any, resource: Any, name: str, *, uid: str, resource_version: str | None = None) -> Any:
        return _deleted(self, resource, name, {"propagationPolicy": "Background"})

    put(calls.Call, "delete", delete)


def _delete_without_version(put: Set) -> None:
    delete = calls.Call.delete

    def blind(self: Any, resource: Any, name: str, *, uid: str, resource_version: str | None = None) -> Any:
        return delete(self, resource, name, uid=uid)

    put(calls.Call, "delete", blind)


def _deleted(call: Any, resource: Any, name: str, body: dict[str, Any]) -> Any:
    body = {"apiVersion": "v1", "kind": "DeleteOptions", **body}
    where = call.namespace if resource.namespaced else None
    return call.send(
        Request("DELETE", resource, namespace=where, name=name, body=body, intent="write", expect="delete")
    )


def _in_flight_forgotten(put: Set) -> None:
    put(adapter.InFlight, "give_up", adapter.InFlight.answered)


def _stop_job_ends_early(put: Set) -> None:
    put(stop_job, "in_flight", lambda *_: frozenset())


def _leftovers_unseen(put: Set) -> None:
    put(start, "_look_for_leftovers", lambda call, identity: None)


def _read_back_skipped(put: Set) -> None:
    put(start, "_read_back", lambda *_: None)
    put(start, "_compare", lambda *_: None)


def _exists_is_mine(put: Set) -> None:
    """409 AlreadyExists is taken for the first try's success."""
    post = start._post_marked

    def adopting(call: Any, identity: Any, written: Any, nonce: str) -> Any:
        reply = post(call, identity, written, nonce)
        if reply.failure is not None and calls.outcome(call.judge(reply.failure)) == "exists":
            found = call.try_get(TRAIN_JOBS, identity.name, seen.TrainJob)
            if isinstance(found, calls.Got):
                return dataclasses.replace(reply, failure=None, object=found.body)
        return reply

    put(start, "_post_marked", adopting)


def _refused_without_proof(put: Set) -> None:
    stopped = stopping.stop_refused
    put(start, "stop_refused", lambda *given, **more: dataclasses.replace(stopped(*given, **more), proved=True))


def _trainjobs_first(put: Set) -> None:
    kinds = listed.listed_kinds
    put(listed, "listed_kinds", lambda mode: tuple(reversed(kinds(mode))))


def _failed_list_is_empty(put: Set) -> None:
    tried = calls.Call.try_list

    def swallowed(self: Any, *given: Any) -> Any:
        found = tried(self, *given)
        return () if isinstance(found, Failure) else found

    put(calls.Call, "try_list", swallowed)


def _any_404_is_absence(put: Set) -> None:
    put(answers, "_names", lambda said, request: True)


def _kind_not_looked_at(put: Set) -> None:
    put(answers, "require_kind", lambda *_: None)
    put(lists, "require_kind", lambda *_: None)


def _every_4xx_and_5xx_is_definite(put: Set) -> None:
    refusal = answers.refusal

    def definite(request: Any, status: int, *more: Any) -> Any:
        return refusal(request, 422 if status >= 500 else status, *more)

    put(answers, "refusal", definite)


def _cut_is_end(put: Set) -> None:
    def lenient(request: Any, stream: Any) -> Iterator[Any]:
        rest = b""
        try:
            for piece in stream.pieces:
                rest += piece
        except watches.Broken:
            pass
        finally:
            stream.close()
        yield from rest.splitlines()

    put(logs, "_lines", lenient)


def _conflict_not_read_again(put: Set) -> None:
    tried = hold_family._read
    kept: dict[int, Any] = {}

    def once(call: Any, ref: Any, instance: Any) -> Any:
        found = kept.get(id(call))
        if found is None:
            found = kept[id(call)] = tried(call, ref, instance)
        return found

    put(hold_family, "_read", once)


def _watch_goes_on_after_410(put: Set) -> None:
    follow = watches.Watcher._follow

    def never_anew(self: Any, at: Any) -> Any:
        ended = yield from follow(self, at)
        while ended is None:
            reply = self._listed()
            if reply.failure is not None:
                return reply.failure
            at.version = reply.resource_version
            ended = yield from follow(self, at)
        return ended

    put(watches.Watcher, "_follow", never_anew)


def _ceased_by_absence(put: Set) -> None:
    concluded = describe.conclude

    def trusting(facts: Any, **more: Any) -> Any:
        kept = [each for each in facts if each.facts.get("end") not in ("not-shown", "unknown")]
        found = concluded(kept, **{**more, "complete": True, "may_make": ()})
        return dataclasses.replace(found, ceased=True)

    put(ceased, "conclude", trusting)


def _unknown_recorded_as_refused(put: Set) -> None:
    put(story, "record_start", lambda error: Recorded.REFUSED)


def _owner_not_looked_for(put: Set) -> None:
    put(stop_job, "living_owner", lambda *_: None)


def _foreground_left_alone(put: Set) -> None:
    put(stop_job, "COLLECTORS", frozenset())


def _read_only_writes(put: Set) -> None:
    put(backend.Backend, "_settle_standing", lambda *_: None)
    put(backend.Backend, "_stands", lambda *_: True)


def _cause_dropped(put: Set) -> None:
    refused = refuse
    put(calls, "refuse", lambda failure, **more: refused(dataclasses.replace(failure, cause=None), **more))


def _orphans_left_out(put: Set) -> None:
    found = describe.Describer.found

    def known(self: Any, *given: Any, **more: Any) -> Any:
        view = found(self, *given, **more)
        return dataclasses.replace(view, objects=tuple(e for e in view.objects if e.state != "orphaned"))

    put(describe.Describer, "found", known)


def _find_remembers(put: Set) -> None:
    """The state is remembered, not read."""
    asked = listed.list_job
    kept: dict[str, Any] = {}

    def remembered(call: Any, job_id: str) -> Any:
        found = asked(call, job_id)
        return copy.copy(kept.setdefault(f"{id(call.adapter)} {job_id}", found))

    put(find, "list_job", remembered)


def _copy_deleted_after_unknown(put: Set) -> None:
    post = start._post_marked

    def cleaning(call: Any, identity: Any, written: Any, nonce: str) -> Any:
        reply = post(call, identity, written, nonce)
        if reply.failure is not None:
            made = call.try_get(TRAINING_RUNTIMES, identity.name, seen.Runtime)
            if isinstance(made, calls.Got):
                call.delete(TRAINING_RUNTIMES, identity.name, uid=made.seen.metadata.uid)
        return reply

    put(start, "_post_marked", cleaning)


def _parts_stopped_under_a_living_owner(put: Set) -> None:
    put(stop, "living_owner", lambda *_: None)


_EVICTED = (
    {"do": "stubborn", "seconds": 25.0},
    *_STARTED,
    {"do": "kubectl", "deed": "evict", "job": "alpha", "attempt": 1},
    {"do": "advance", "seconds": 20.0},
)
_LIMITED = (
    {"do": "stubborn", "seconds": 25.0},
    {"do": "start", **_MINE, "deadline": 3},
    {"do": "open", **_MINE},
    {"do": "advance", "seconds": 1.0},
    {"do": "lag", "controller": "trainer", "seconds": 3.0},
    {"do": "advance", "seconds": 45.0},
)
_FOUND = (
    {"do": "start", **_MINE, "faults": {"4": {"kind": "lost"}}},
    {"do": "find", **_MINE},
    {"do": "open", **_MINE},
    {"do": "advance", "seconds": 2.0},
)
_AMBIGUOUS = (Fault("lost"), Fault("reset-first"), Fault("reset-half"), Fault("drop"), Fault("slow", seconds=31.0))
PLANTED: tuple[Planted, ...] = (
    Planted(
        "retry on timeout", "fabric8io/kubernetes-client#1748", _retry_on_timeout, scenes("hold", faults=_AMBIGUOUS), 20
    ),
    Planted(
        "exception type instead of marker",
        "kubernetes/kubernetes#55860",
        _type_for_marker,
        scenes("hold", faults=_AMBIGUOUS),
        20,
    ),
    Planted(
        "a timeout counts as unsent",
        "lyft/flinkk8soperator#217",
        _timeout_is_unsent,
        scenes("hold", faults=_AMBIGUOUS),
        20,
    ),
    Planted("release without fence", "the page's row C24", _release_without_fence, scenes("release stale"), 1),
    Planted("a hold may be taken over", "the page's row C24", _only_newer_holds, fences, 20),
    Planted("pods not listed", "kubernetes-sigs/jobset#1021", _pods_not_listed, scenes("release beside old pods"), 1),
    Planted(
        "pods looked for by JobSet UID",
        "kubeflow/trainer#3737",
        _pods_by_jobset_uid,
        scenes("release beside old pods"),
        1,
    ),
    Planted(
        "a terminal pod taken for one that runs",
        "volcano-sh/volcano#3875",
        _terminal_pod_runs,
        scenes("open beside an ended attempt"),
        1,
    ),
    Planted(
        "a pod that dies taken for one that rests",
        "kubernetes-sigs/jobset#1021",
        _phase_is_rest,
        scenes("release beside old pods"),
        1,
    ),
    Planted(
        "other attempts not looked at",
        "apache/airflow#10544",
        _other_attempts_unseen,
        scenes("open beside a running attempt"),
        1,
    ),
    Planted(
        "podReplacementPolicy forgotten",
        "kubernetes-sigs/jobset#1021",
        _replacement_policy_forgotten,
        steps(*_EVICTED),
        1,
    ),
    Planted(
        "the deadline left to the TrainJob", "kubeflow/trainer#3833", _deadline_of_the_trainjob, steps(*_LIMITED), 1
    ),
    Planted("orphan missed by label", "apache/airflow#37263", _labels_forgotten, scenes("find an orphan"), 1),
    Planted("orphans left out of Find", "Netflix/metaflow#1631", _orphans_left_out, scenes("find an orphan"), 1),
    Planted(
        "terminal condition of another JobSet believed",
        "kubeflow/trainer#3737",
        _foreign_end_believed,
        scenes("hold beside a foreign end"),
        1,
    ),
    Planted("twin by stale owner", "apache/airflow#12111", _twin_by_stale_owner, scenes("open with a stale owner"), 1),
    Planted("hold lost at resume", "kubernetes-sigs/kueue#8387", _hold_lost_at_open, schedules, 300),
    Planted("a hold that only writes its record", "kubernetes-sigs/kueue#1091", _hold_not_enforced, scenes("hold"), 1),
    Planted("the gate closes again", "kubernetes-sigs/kueue#6719", _gate_closed_again, scenes("hold"), 1),
    Planted(
        "a released job that has ended trains again", "kubeflow/trainer#3737", _trains_again, scenes("release ended"), 1
    ),
    Planted("patch without resourceVersion", "kubernetes/kubernetes#55860", _patch_without_version, scenes("hold"), 1),
    Planted("foreground delete", "kubernetes-sigs/jobset#576", _foreground_delete, scenes("stop"), 1),
    Planted("delete by name alone", "skypilot-org/skypilot#4410", _delete_by_name, scenes("stop"), 1),
    Planted(
        "delete of what was meanwhile opened",
        "dagster-io/dagster#13154",
        _delete_without_version,
        scenes("stop gated"),
        1,
    ),
    Planted(
        "in flight forgotten",
        "swiss-ai/model-launch#211",
        _in_flight_forgotten,
        scenes("start", faults=(Fault("drop"),)),
        9,
    ),
    Planted(
        "StopJob ends while a create is on its way",
        "dagster-io/dagster#13154",
        _stop_job_ends_early,
        steps(
            {"do": "start", **_MINE, "faults": {"4": {"kind": "late", "seconds": 59.0}}}, {"do": "stop_job", **_MINE}
        ),
        1,
    ),
    Planted(
        "StopJob deletes what is made anew",
        "kubernetes-sigs/jobset#576",
        _owner_not_looked_for,
        scenes("stop_job of a relabelled TrainJob"),
        1,
    ),
    Planted(
        "StopJob waits for a deletion that cannot end",
        "the track record's entry 6",
        _foreground_left_alone,
        scenes("stop_job of a foreground deletion"),
        1,
    ),
    Planted(
        "what is left of a name not looked for",
        "dagster-io/dagster#33755",
        _leftovers_unseen,
        scenes("start over an orphan"),
        1,
    ),
    Planted("read-back skipped", "kubernetes-sigs/jobset#1208", _read_back_skipped, scenes("start"), 1),
    Planted(
        "AlreadyExists taken for one's own",
        "kubernetes/kubernetes#55860",
        _exists_is_mine,
        scenes("start", faults=(Fault("answer", 409, "AlreadyExists"),)),
        9,
    ),
    Planted("refused without a proof that it stopped", "kubeflow/trainer#3994", _refused_without_proof, schedules, 600),
    Planted("TrainJobs listed first", "kubernetes-sigs/kueue#12820", _trainjobs_first, scenes("find"), 1),
    Planted(
        "a failed list taken for an empty one",
        "dstackai/dstack#1551",
        _failed_list_is_empty,
        scenes("find", faults=(Fault("answer", 500),)),
        3,
    ),
    Planted(
        "every 404 taken for an absence",
        "galaxyproject/galaxy#2403",
        _any_404_is_absence,
        scenes("stop", faults=(Fault("answer", 404, named=False),)),
        3,
    ),
    Planted(
        "the kind of an answer not looked at",
        "the page's row C17",
        _kind_not_looked_at,
        scenes("stop", faults=(Fault("kind"),)),
        3,
    ),
    Planted(
        "a 500 taken for a definite answer",
        "apache/airflow#15097",
        _every_4xx_and_5xx_is_definite,
        scenes("hold", faults=(Fault("answer", 504),)),
        4,
    ),
    Planted(
        "a cut log taken for a whole one",
        "kubeflow/mcp-server#42",
        _cut_is_end,
        scenes("output", faults=(Fault("cut", share=0.9),)),
        5,
    ),
    Planted(
        "a conflict tried again without reading",
        "kubernetes-sigs/kueue#8387",
        _conflict_not_read_again,
        scenes("hold", faults=(Fault("answer", 409, "Conflict"),)),
        4,
    ),
    Planted("watch losing an event at 410", "kubernetes-client/python#2223", _watch_goes_on_after_410, watchers, 40),
    Planted("absence taken for cessation", "kubeflow/trainer#3994", _ceased_by_absence, scenes("ceased"), 1),
    Planted(
        "an unknown start recorded as refused",
        "lyft/flinkk8soperator#217",
        _unknown_recorded_as_refused,
        steps(*_FOUND),
        1,
    ),
    Planted("a read-only Backend that writes", "the page's row C2", _read_only_writes, schedules, 200),
    Planted(
        "the cause beneath dropped",
        "kubeflow/katib#2199",
        _cause_dropped,
        scenes("find", faults=(Fault("refused"),)),
        3,
    ),
    Planted("a state remembered instead of read", "Netflix/metaflow#1631", _find_remembers, schedules, 600),
    Planted(
        "the copy deleted after an unanswered create",
        "apache/airflow#52885",
        _copy_deleted_after_unknown,
        scenes("start", faults=(Fault("lost"),)),
        9,
    ),
    Planted(
        "a part stopped under a living owner",
        "kubeflow/trainer#3994",
        _parts_stopped_under_a_living_owner,
        schedules,
        600,
    ),
)
