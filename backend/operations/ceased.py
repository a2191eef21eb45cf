"""Ceased: whether everything of an object has provably stopped. A 404, an empty list, `Suspended` and phase `Failed`
prove nothing; so each pod needs evidence of its own, and the pods must be known completely.

What could still make a pod is read first and the pods last, so that none can come unseen in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from dispatch_kubeflow.backend.objects import evidence, names, notes, seen, state
from dispatch_kubeflow.backend.objects.describe import conclude
from dispatch_kubeflow.backend.objects.found import Cessation
from dispatch_kubeflow.backend.objects.notes import Notes
from dispatch_kubeflow.backend.objects.resting import remains
from dispatch_kubeflow.backend.requests.resources import CONFIG_MAPS, JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS
from dispatch_kubeflow.machine.values import ObjectRef

from .call import Call, Got, outcome
from .describing import gives
from .note_store import with_pods_of

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What was read of an attempt, in this order. `complete`: whether the notes know every pod it ever had."""

    trainjob: seen.TrainJob | None
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
    name = _trainjob_name(ref)
    found = _read(call, ref, name)
    if ref.kind == "Pod":
        found = _only(found, ref.uid)
    nodes = {each: _node(call, each) for each in evidence.nodes_needed(found.pods, found.notes)}
    facts = evidence.pod_facts(found.pods, found.notes, nodes)
    decide = gives(call)
    if ref.kind == "Pod":
        return conclude(facts, decide=decide, never_opened=False, complete=bool(facts), may_make=())
    unopened = evidence.never_opened(found.trainjob, found.notes, found.pods) or (
        found.trainjob is None and not facts and call.adapter.hub.was_unopened(ref.uid)
    )
    return conclude(
        facts, decide=decide, never_opened=unopened, complete=found.complete, may_make=_may_make(call, name, found)
    )


def _trainjob_name(ref: ObjectRef) -> str:
    """The name of the attempt's TrainJob, by the name that a controller gave the object.

    A Job's ends with its replicated job and an index, a pod's with one index and five letters more. The replicated
    job may have dashes of its own.
    """
    name = {"Job": ref.name.rsplit("-", 2)[0], "Pod": ref.name.rsplit("-", 4)[0]}.get(ref.kind, ref.name)
    shorter = name
    while names.parse_name(shorter) is None and "-" in shorter:
        shorter = shorter.rpartition("-")[0]
    return name if names.parse_name(shorter) is None else shorter


def _read(call: Call, ref: ObjectRef, name: str) -> _Attempt:
    ours = f"{names.JOBSET_NAME}={name}"
    trainjob = _seen(call.look(TRAIN_JOBS, name, seen.TrainJob))
    _same(call, ref, TRAIN_JOBS.kind, trainjob)
    jobset = _seen(call.look(JOB_SETS, name, seen.JobSet))
    _same(call, ref, JOB_SETS.kind, jobset)
    jobs = call.list(JOBS, ours, seen.Job)
    for job in jobs:
        _same(call, ref, JOBS.kind, job)
    generation = None if trainjob is None else trainjob.metadata.generation
    kept = _notes(call, name, _trainjob_uid(ref, trainjob, jobset))
    known: Notes | None = None
    for each in kept:
        known = each if known is None else with_pods_of(known, each)
    complete = any(each.complete_at(generation) for each in kept)
    return _Attempt(trainjob, jobset, jobs, known, complete, call.list(PODS, ours, seen.Pod))


def _seen(found: Got[T] | None) -> T | None:
    return None if found is None else found.seen


def _same(call: Call, ref: ObjectRef, kind: str, found: seen.TrainJob | seen.JobSet | seen.Job | None) -> None:
    """Row C20: the object of that kind and name must be the one referred to."""
    if found is None or ref.kind != kind or found.metadata.name != ref.name or found.metadata.uid == ref.uid:
        return
    call.settle("read", finding="other-uid", details={"seen": f"{kind} {ref.name} of uid {found.metadata.uid}"})


def _trainjob_uid(ref: ObjectRef, trainjob: seen.TrainJob | None, jobset: seen.JobSet | None) -> str | None:
    """Whose notes are wanted; None where no UID is known, and any of that name are."""
    if ref.kind == TRAIN_JOBS.kind:
        return ref.uid
    if trainjob is not None:
        return trainjob.metadata.uid
    owner = None if jobset is None else jobset.metadata.owner(TRAIN_JOBS.kind)
    return None if owner is None else owner.uid


def _notes(call: Call, name: str, trainjob_uid: str | None) -> list[Notes]:
    """The notes that watches kept: those of this Backend's own, and those in the ConfigMap.

    Best effort: where they can't be had there are none, and less is shown.
    """
    found = []
    own = None if trainjob_uid is None else call.adapter.hub.notes(trainjob_uid)
    if own is not None:
        found.append(own)
    stored = call.try_get(CONFIG_MAPS, names.notes_name(name), seen.ConfigMap)
    if isinstance(stored, Got):
        read = notes.decode(stored.seen.data)
        if isinstance(read, Notes) and trainjob_uid in {None, read.trainjob}:
            found.append(read)
    return found


def _only(found: _Attempt, uid: str) -> _Attempt:
    """What is known of one pod."""
    noted = None if found.notes is None else found.notes.pod(uid)
    kept = None if found.notes is None or noted is None else msgspec.structs.replace(found.notes, pods=(noted,))
    return replace(found, notes=kept, pods=tuple(pod for pod in found.pods if pod.metadata.uid == uid))


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
    return evidence.may_make_pods(found.trainjob, jobset=jobset, remains=left, mode=call.adapter.settings.mode)
