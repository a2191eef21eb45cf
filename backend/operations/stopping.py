"""A Start that refuses what it created has to prove that nothing of it runs, or say that it does not know (S0, C31).

Two proofs are accepted. The delete carried the uid and the resourceVersion of a read that showed generation 1, suspend
true and the gate closed: then no controller ever saw it otherwise. Or its JobSet, its Jobs and its pods were all seen
gone. A delete that is answered 404 proves nothing by itself, for somebody else's delete may have come after a start.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS, TRAINING_RUNTIMES

from . import ownership
from .call import TRIES, Call, Got, outcome
from .stop import never_opened


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of a TrainJob that was to be stopped."""

    proved: bool
    cause: BaseException | None = None
    copy_left: str | None = None


def stop_refused(
    call: Call, created: seen.Metadata, found: Got[seen.TrainJob] | None, *, copy_name: str, copy_uid: str
) -> Stopped:
    """Delete the TrainJob that this call created, and its copy; whether that is proved to have left nothing.

    `found`: the TrainJob as it was just read, where it was.
    """
    never_ran = _delete(call, created, found)
    if never_ran is None:
        return Stopped(False)
    if isinstance(never_ran, Failure):
        return Stopped(False, never_ran.cause)
    if not never_ran:
        gone = _see_gone(call, created)
        if gone is not None:
            return Stopped(False, gone.cause)
    return Stopped(True, copy_left=_delete_copy(call, copy_name, copy_uid))


def _delete(call: Call, created: seen.Metadata, found: Got[seen.TrainJob] | None) -> bool | Failure | None:
    """Delete the TrainJob: True if the delete itself proves that it never ran, False if it is gone without that.

    None where its name is another's by now: what is left of it could not be told from the other's.
    """
    last: Failure | None = None
    for _ in range(TRIES):
        if found is None:
            read = call.try_get(TRAIN_JOBS, created.name, seen.TrainJob)
            if isinstance(read, Failure):
                match outcome(call.judge(read)):
                    case "absent":
                        return False
                    case "wrong-kind":
                        return _delete_blindly(call, created)
                return read
            found = read
        metadata = found.seen.metadata
        if metadata.uid != created.uid:
            return None
        reply = call.delete(TRAIN_JOBS, created.name, uid=created.uid, resource_version=metadata.resource_version)
        if reply.failure is None:
            return never_opened(found.seen)
        last = reply.failure
        result = outcome(call.judge(last))
        if result == "absent":
            return False
        if result not in ("conflict", "lost"):
            return last
        # After a conflict or no answer the next read shows whether it is still there, and as what.
        found = None
    return last if last is not None else False


def _delete_blindly(call: Call, created: seen.Metadata) -> bool | Failure:
    """Delete by uid alone an object whose form can't be read; that it never ran has to be seen otherwise."""
    reply = call.delete(TRAIN_JOBS, created.name, uid=created.uid)
    if reply.failure is None or outcome(call.judge(reply.failure)) == "absent":
        return False
    return reply.failure


def _see_gone(call: Call, created: seen.Metadata) -> Failure | None:
    """Wait until JobSet, Jobs and pods of the TrainJob are seen gone, the pods last; why that was not seen."""
    while True:
        left = _left(call, created)
        if left is None or isinstance(left, Failure):
            return left
        call.ctx.wait(call.adapter.settings.stop_poll)


def _left(call: Call, created: seen.Metadata) -> bool | Failure | None:
    """True while something is left; None when nothing is; the failure where that could not be seen."""
    for resource in (TRAIN_JOBS, JOB_SETS):
        found = call.try_get(resource, created.name, seen.Runtime)
        if isinstance(found, Got):
            return True
        match outcome(call.judge(found)):
            case "wrong-kind":
                return True
            case "absent":
                continue
        return found
    selector = f"{names.JOBSET_NAME}={created.name}"
    for resource in (JOBS, PODS):
        listed = call.try_list(resource, selector, seen.Runtime)
        if isinstance(listed, Failure):
            return listed
        if listed:
            return True
    return None


def _delete_copy(call: Call, name: str, uid: str) -> str | None:
    """The copy goes with its owner; one that has none yet is deleted here. Why it is left, where it is."""
    found = call.try_get(TRAINING_RUNTIMES, name, seen.Runtime)
    if isinstance(found, Failure):
        return ownership.why_left(call, found)
    metadata = found.seen.metadata
    if metadata.uid != uid or metadata.owner_references or metadata.deleting:
        return None
    return ownership.delete_copy(call, name, uid, metadata.resource_version)
