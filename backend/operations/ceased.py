"""Ceased: whether everything of an object has provably stopped. A 404, an empty list, `Suspended` and phase `Failed`
prove nothing; so each pod needs evidence of its own, and the pods must be known completely.

What could still make a pod is read first and the pods last, so that none can come unseen in between. And as the next
instance of a name may be anything, nothing is proved of an object whose TrainJob is not known by UID.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from dispatch_kubeflow.backend.objects import evidence, names, notes, seen, state, workload
from dispatch_kubeflow.backend.objects.describe import conclude
from dispatch_kubeflow.backend.objects.found import Cessation
from dispatch_kubeflow.backend.objects.notes import Notes
from dispatch_kubeflow.backend.objects.resting import remains
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
    Resource,
)
from dispatch_kubeflow.machine.values import ObjectRef

from .call import Call, Got, outcome
from .describing import gives
from .note_store import with_pods_of

T = TypeVar("T", bound=msgspec.Struct)
_BY_KIND: dict[str, Resource] = {each.kind: each for each in (TRAIN_JOBS, TRAINING_RUNTIMES, JOB_SETS, JOBS, PODS)}


class _Owned(msgspec.Struct, frozen=True, gc=False):
    """An object of any kind, as far as it says whose it is."""

    metadata: seen.Metadata = seen.Metadata()


@dataclass(frozen=True, slots=True)
class _Asked:
    """The TrainJob an object belongs to. `uid` is None where no owner that was seen names it: the name alone may be
    another instance's.
    """

    name: str
    uid: str | None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What was read of an attempt, in this order. `complete`: whether the notes know every pod it ever had."""

    trainjob: seen.TrainJob | None
    workloads: tuple[seen.Workload, ...]
    jobset: seen.JobSet | None
    jobs: tuple[seen.Job, ...]
    notes: Notes | None
    complete: bool
    pods: tuple[seen.Pod, ...]


def ceased(call: Call, ref: ObjectRef) -> Cessation:
    """Whether everything of an object has stopped, by evidence for each pod.

    ErrNotFound where its name is another's (C20), ErrUnsupported where a Node may not be read (C37), otherwise what
    table `request` says.
    """
    if ref.kind == PODS.kind:
        return _ceased_pod(call, ref)
    asked = _Asked(ref.name, ref.uid) if ref.kind == TRAIN_JOBS.kind else _above(call, ref)
    trainjob = _seen(call.look(TRAIN_JOBS, asked.name, seen.TrainJob))
    if trainjob is not None and trainjob.metadata.uid != asked.uid:
        if ref.kind == TRAIN_JOBS.kind:
            _refuse_other(call, ref, trainjob.metadata)
        asked = _Asked(asked.name, None)
    found = _read(call, asked, trainjob)
    facts = _pod_facts(call, found.pods, found.notes)
    return conclude(
        facts,
        decide=gives(call),
        never_opened=asked.uid is not None and _never_opened(call, asked.uid, found, any_pods=bool(facts)),
        complete=asked.uid is not None and found.complete,
        may_make=_may_make(call, asked.name, found),
    )


def _never_opened(call: Call, uid: str, found: _Attempt, *, any_pods: bool) -> bool:
    return evidence.never_opened(found.trainjob, found.notes, found.pods) or (
        found.trainjob is None and not any_pods and call.adapter.hub.was_unopened(uid)
    )


def _ceased_pod(call: Call, ref: ObjectRef) -> Cessation:
    """One pod: as it is now, and what was noted of this very one."""
    found = call.look(PODS, ref.name, seen.Pod)
    if found is not None and found.seen.metadata.uid != ref.uid:
        _refuse_other(call, ref, found.seen.metadata)
    pods = () if found is None else (found.seen,)
    of = None if found is None else found.seen.metadata.labels.jobset_name
    kept = _together(_notes_with(call, ref, of or _guessed_name(ref)))
    facts = _pod_facts(call, pods, kept)
    return conclude(facts, decide=gives(call), never_opened=False, complete=bool(facts), may_make=())


def _notes_with(call: Call, ref: ObjectRef, name: str) -> list[Notes]:
    """The notes on one pod. Whose TrainJob's they are does not matter: a pod is told by its own UID."""
    found = []
    for each in (call.adapter.hub.notes_on_pod(ref.uid), _stored_notes(call, name)):
        noted = None if each is None else each.pod(ref.uid)
        if each is not None and noted is not None:
            found.append(msgspec.structs.replace(each, pods=(noted,)))
    return found


# Which TrainJob is meant.


def _above(call: Call, ref: ObjectRef) -> _Asked:
    """The TrainJob above an object, by the object's own labels and owners."""
    found = call.look(_BY_KIND[ref.kind], ref.name, _Owned)
    if found is None:
        return _Asked(_guessed_name(ref), None)
    metadata = found.seen.metadata
    if metadata.uid != ref.uid:
        _refuse_other(call, ref, metadata)
    identity = names.identity(metadata.labels)
    name = metadata.labels.jobset_name or (_guessed_name(ref) if identity is None else identity.name)
    return _Asked(name, _trainjob_uid(call, metadata))


def _trainjob_uid(call: Call, metadata: seen.Metadata) -> str | None:
    """UID of the TrainJob above an object, from owner to owner; None where one of them is not there any more."""
    jobset = metadata.owner(JOB_SETS.kind)
    if jobset is not None:
        found = call.look(JOB_SETS, jobset.name, seen.JobSet)
        if found is None or found.seen.metadata.uid != jobset.uid:
            return None
        metadata = found.seen.metadata
    trainjob = metadata.owner(TRAIN_JOBS.kind)
    return None if trainjob is None else trainjob.uid or None


def _refuse_other(call: Call, ref: ObjectRef, found: seen.Metadata) -> None:
    """Row C20: the object of that kind and name is not the one referred to."""
    call.settle("read", finding="other-uid", details={"seen": f"{ref.kind} {ref.name} of uid {found.uid}"})


def _guessed_name(ref: ObjectRef) -> str:
    """The name of the attempt's TrainJob, as far as a name that a controller gave tells it.

    A Job's ends with its replicated job and an index, a pod's with one index and five letters more. The replicated
    job may have dashes of its own, and digits: it tells where to look, and proves nothing.
    """
    name = {"Job": ref.name.rsplit("-", 2)[0], "Pod": ref.name.rsplit("-", 4)[0]}.get(ref.kind, ref.name)
    shorter = name
    while names.parse_name(shorter) is None and "-" in shorter:
        shorter = shorter.rpartition("-")[0]
    return name if names.parse_name(shorter) is None else shorter


# Reading.


def _read(call: Call, asked: _Asked, trainjob: seen.TrainJob | None) -> _Attempt:
    ours = f"{names.JOBSET_NAME}={asked.name}"
    workloads = _workloads(call, trainjob)
    jobset = _seen(call.look(JOB_SETS, asked.name, seen.JobSet))
    jobs = call.list(JOBS, ours, seen.Job)
    generation = None if trainjob is None else trainjob.metadata.generation
    kept = [] if asked.uid is None else _notes(call, asked.name, asked.uid)
    complete = any(each.complete_at(generation) for each in kept)
    return _Attempt(trainjob, workloads, jobset, jobs, _together(kept), complete, call.list(PODS, ours, seen.Pod))


def _workloads(call: Call, trainjob: seen.TrainJob | None) -> tuple[seen.Workload, ...]:
    """In kueue mode, what keeps the TrainJob from running."""
    if trainjob is None or call.mode == "plain":
        return ()
    uid = trainjob.metadata.uid
    return workload.of(uid, call.list(WORKLOADS, names.workload_selector(uid), seen.Workload))


def _seen(found: Got[T] | None) -> T | None:
    return None if found is None else found.seen


def _notes(call: Call, name: str, trainjob_uid: str) -> list[Notes]:
    """The notes that watches kept: those of this Backend's own, and those in the ConfigMap."""
    found = [call.adapter.hub.notes(trainjob_uid), _stored_notes(call, name)]
    return [each for each in found if each is not None and each.trainjob == trainjob_uid]


def _stored_notes(call: Call, name: str) -> Notes | None:
    """The notes in the ConfigMap. Best effort: where they can't be had there are none, and less is shown."""
    stored = call.try_get(CONFIG_MAPS, names.notes_name(name), seen.ConfigMap)
    read = notes.decode(stored.seen.data) if isinstance(stored, Got) else None
    return read if isinstance(read, Notes) else None


def _together(kept: list[Notes]) -> Notes | None:
    known: Notes | None = None
    for each in kept:
        known = each if known is None else with_pods_of(known, each)
    return known


def _pod_facts(call: Call, pods: tuple[seen.Pod, ...], kept: Notes | None) -> tuple[evidence.PodFacts, ...]:
    """What is known of each pod, after the Nodes that may say more were read."""
    nodes = {each: _node(call, each) for each in evidence.nodes_needed(pods, kept)}
    return evidence.pod_facts(pods, kept, nodes)


def _node(call: Call, name: str) -> seen.Node | None:
    """A Node as it is now; None where it is absent, which shows nothing."""
    found = call.try_get(NODES, name, seen.Node)
    if isinstance(found, Got):
        return found.seen
    rule = call.judge(found)
    if outcome(rule) == "absent":
        return None
    if rule.id == "request.forbidden":
        details = {**found.details, "name": name}
        call.settle("read", finding="nodes-denied", details=details, cause=found.cause)
    return call.refuse(found)


def _may_make(call: Call, name: str, found: _Attempt) -> tuple[str, ...]:
    """What could still make a pod of the attempt, in words."""
    parsed = names.parse_name(name)
    left = remains(0 if parsed is None else parsed[1], jobset=found.jobset, jobs=found.jobs, pods=())
    jobset: state.JobSetFact = "gone"
    if found.trainjob is not None:
        jobset = state.jobset_fact(found.trainjob, found.jobset)
    settings = call.adapter.settings
    queued = evidence.Queued(found.workloads, settings.admission_check or "")
    return evidence.may_make_pods(found.trainjob, jobset=jobset, remains=left, mode=settings.mode, queued=queued)
