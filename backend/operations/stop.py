"""Stop: one object is deleted, by its UID, and nothing else by mistake. What a controller would make anew, beside
pods that are still dying, is not deleted: the error names what to stop instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from dispatch_kubeflow.backend.objects import evidence, names, seen
from dispatch_kubeflow.backend.objects.listing import is_young
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.machine.values import ObjectRef

from .call import TRIES, Call, Got, outcome
from .owners import living_owner


@dataclass(frozen=True, slots=True)
class _Kind:
    resource: Resource
    type: type[Struct]


_KINDS = {
    "TrainingRuntime": _Kind(TRAINING_RUNTIMES, seen.Runtime),
    "JobSet": _Kind(JOB_SETS, seen.JobSet),
    "Job": _Kind(JOBS, seen.Job),
    "Pod": _Kind(PODS, seen.Pod),
}


def stop(call: Call, ref: ObjectRef) -> None:
    """Delete one object. One that is gone, or whose name another has, is a success (C38).

    ErrRejected where its owner lives, or it kept changing (A4); ErrUnauthorized for an orphan this user may not
    delete (C39); otherwise what table `request` says.
    """
    if ref.kind == TRAIN_JOBS.kind:
        _stop_trainjob(call, ref)
    else:
        _stop_other(call, ref)


def _stop_trainjob(call: Call, ref: ObjectRef) -> None:
    """By UID; one that was never opened also by resourceVersion, so that what was deleted provably never ran."""
    tries = 0
    while True:
        found = call.look(TRAIN_JOBS, ref.name, seen.TrainJob)
        if found is None:
            _delete_forgotten_copy(call, ref.name)
            _settle_gone(call, other_uid=False)
            return
        if found.seen.metadata.uid != ref.uid:
            _settle_gone(call, other_uid=True)
            return
        _check_ours(call, ref, found.seen.metadata)
        unopened = never_opened(found.seen)
        version = found.seen.metadata.resource_version if unopened else None
        failure = call.delete(TRAIN_JOBS, ref.name, uid=ref.uid, resource_version=version).failure
        if failure is None:
            if unopened:
                call.adapter.hub.stopped_unopened(ref.uid)
            _delete_unowned_copy(call, ref.name)
            call.settle("stop", finding="deleted")
            return
        tries += 1
        if tries < TRIES and unopened and outcome(call.judge(failure)) == "conflict":
            continue
        _settle_failed_delete(call, ref, TRAIN_JOBS, seen.TrainJob, failure, orphan=False)
        return


def _check_ours(call: Call, ref: ObjectRef, metadata: seen.Metadata) -> None:
    """What a reference that names this Backend leads to has to say so itself before it is deleted (C18)."""
    backend = metadata.labels.backend
    if backend != call.adapter.settings.name:
        details = {"target": f"{ref.kind} {ref.namespace}/{ref.name}", "seen": f"backend {backend}"}
        call.settle("stop", finding="other-backend", details=details)


def never_opened(trainjob: seen.TrainJob) -> bool:
    """Whether a TrainJob provably never ran, and is not being deleted already."""
    return evidence.shows_never_opened(trainjob) and not trainjob.metadata.deleting


def _delete_unowned_copy(call: Call, name: str) -> None:
    """The copy goes with its owner; one that has none goes here."""
    copy = call.look(TRAINING_RUNTIMES, name, seen.Runtime)
    if copy is not None:
        _delete_if_unowned(call, copy.seen.metadata)


def _delete_forgotten_copy(call: Call, name: str) -> None:
    """The same for a TrainJob that is gone: a Stop that could not delete its copy may have come before.

    Not a young one, for it may be that of a Start under way; nor one that is not this attempt's by its labels.
    """
    copy = call.look(TRAINING_RUNTIMES, name, seen.Runtime)
    if copy is None:
        return
    metadata, settings = copy.seen.metadata, call.adapter.settings
    identity = names.identity(metadata.labels)
    if identity is None or identity.backend != settings.name or identity.name != name:
        return
    if not is_young(metadata, now=call.adapter.clock.now(), call_bound=settings.call_bound):
        _delete_if_unowned(call, metadata)


def _delete_if_unowned(call: Call, metadata: seen.Metadata) -> None:
    if metadata.owner_references or metadata.deleting:
        return
    name, version = metadata.name, metadata.resource_version
    failure = call.delete(TRAINING_RUNTIMES, name, uid=metadata.uid, resource_version=version).failure
    # A conflict says that somebody uses it anew, or owns it by now; then it is theirs.
    if failure is not None and outcome(call.judge(failure)) not in ("absent", "conflict"):
        call.refuse(failure)


def _stop_other(call: Call, ref: ObjectRef) -> None:
    """By uid and resourceVersion, once it was read, and seen to have no owner that lives."""
    kind = _KINDS[ref.kind]
    found = call.look(kind.resource, ref.name, kind.type)
    metadata: seen.Metadata | None = None if found is None else found.seen.metadata  # type: ignore[attr-defined] # every kind has it
    if metadata is None or metadata.uid != ref.uid:
        _settle_gone(call, metadata is not None)
        return
    _check_ours(call, ref, metadata)
    owner = living_owner(call.look, ref.kind, ref.name, metadata)
    if owner is not None:
        target, instead = f"{ref.kind} {ref.namespace}/{ref.name}", _ref(call, owner.resource, owner.metadata)
        call.settle("stop", finding="owner-lives", details={"target": target, "instead": instead})
    version = metadata.resource_version
    failure = call.delete(kind.resource, ref.name, uid=ref.uid, resource_version=version).failure
    if failure is not None:
        _settle_failed_delete(call, ref, kind.resource, kind.type, failure, orphan=True)
        return
    if ref.kind in {"JobSet", "TrainingRuntime"}:
        _delete_snapshot(call, ref.name)
    call.settle("stop", finding="deleted")


def _ref(call: Call, resource: Resource, metadata: seen.Metadata) -> str:
    return str(ObjectRef(call.adapter.settings.name, call.namespace, resource.kind, metadata.name, metadata.uid))


def _delete_snapshot(call: Call, name: str) -> None:
    """What Trainer kept of the runtime goes too: left there, no job of that name could ever run.

    A user who may not see or delete ConfigMaps has still stopped the orphan, and that was the call.
    """
    snapshot = names.snapshot_name(name)
    found = call.try_get(CONFIG_MAPS, snapshot, seen.ConfigMap)
    failure: Failure | None
    if isinstance(found, Got):
        metadata = found.seen.metadata
        version = metadata.resource_version
        failure = call.delete(CONFIG_MAPS, snapshot, uid=metadata.uid, resource_version=version).failure
    else:
        failure = found
    if failure is not None and outcome(call.judge(failure)) not in ("absent", "conflict", "denied"):
        call.refuse(failure)


def _settle_gone(call: Call, other_uid: bool) -> None:
    call.settle("stop", finding="other-uid" if other_uid else "gone")


def _settle_failed_delete(
    call: Call, ref: ObjectRef, resource: Resource, kind: type[Struct], failure: Failure, *, orphan: bool
) -> None:
    """What a delete's failure means: absence is a success, and a conflict is looked at once."""
    rule = call.judge(failure)
    match outcome(rule):
        case "absent":
            call.settle("stop", finding="gone")
        case "conflict":
            found = call.look(resource, ref.name, kind)
            if found is None or found.seen.metadata.uid != ref.uid:  # type: ignore[attr-defined] # every kind has it
                _settle_gone(call, found is not None)
            else:
                _refuse_conflict(call, failure)
        case _ if orphan and rule.id == "request.forbidden":
            call.settle("stop", finding="orphan-denied", details=failure.details, cause=failure.cause)
        case _:
            call.refuse(failure)


def _refuse_conflict(call: Call, failure: Failure) -> None:
    call.settle("stop", finding="same-uid-conflict", details=failure.details, cause=failure.cause)
