"""In kueue mode a hold is two writes: the record on the TrainJob, then its Workload made inactive. The call's success
means that the second stands, whether or not the admission controller runs; so a conflict there is tried again.

By then somebody may have released the hold. So before each further try the record is read anew, and a Workload that was
let go again is not stopped by a hold that is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.backend.objects import workload as workloads
from dispatch_kubeflow.backend.objects.record import Hold, read_record
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS, WORKLOADS

from .call import TRIES, Call, Got, never, outcome


def enforce(call: Call, trainjob: seen.Metadata, instance: int, found: tuple[seen.Workload, ...]) -> None:
    """Make every Workload of a TrainJob inactive whose record holds it under this instance.

    `found`: its Workloads, listed before the record was written. Every failure is a row of table `hold`.
    """
    last: Failure | None = None
    for tries in range(TRIES):
        if tries:
            _check_record(call, trainjob, instance)
            before, found = found, _list(call, trainjob)
            if last is not None and not _worth_a_try(call, last, before, found):
                break
        last = _write(call, found, instance)
        if last is None:
            call.settle("hold", second_write="done")
            return
    if last is None:
        never("the first try succeeds or fails")
    _failed(call, last)


def _write(call: Call, found: tuple[seen.Workload, ...], instance: int) -> Failure | None:
    """Write the hold on each Workload that lacks it; the first failure."""
    for each in found:
        if not workloads.must_hold(each, instance):
            continue
        reply = call.patch(WORKLOADS, each.metadata.name, workloads.hold_patch(each, instance))
        if reply.failure is not None:
            return reply.failure
        _check_written(call, reply.object or {}, instance)
    return None


def _check_written(call: Call, answer: Mapping[str, Any], instance: int) -> None:
    """The answer has to show what was written, for a webhook may change it on the way."""
    stands = seen.read(answer, seen.Workload)
    if isinstance(stands, seen.Unreadable):
        _settle_failed(call, f"its Workload was answered in a form that can't be read: {stands.problem}")
    held = stands.metadata.annotations.held
    if stands.spec.active or held != str(instance):
        _settle_failed(call, f"its Workload was answered as active {_json(stands.spec.active)}, held {held}")


def _worth_a_try(
    call: Call, failure: Failure, before: tuple[seen.Workload, ...], found: tuple[seen.Workload, ...]
) -> bool:
    """Whether the Workloads as they are now might take what was refused of them as they were."""
    if not found:
        return False
    return outcome(call.judge(failure)) == "conflict" or _uids(before) != _uids(found)


def _uids(found: tuple[seen.Workload, ...]) -> set[str]:
    return {each.metadata.uid for each in found}


def _check_record(call: Call, trainjob: seen.Metadata, instance: int) -> None:
    """The TrainJob's record has to hold it still, under the same instance."""
    found = call.try_get(TRAIN_JOBS, trainjob.name, seen.TrainJob)
    if not isinstance(found, Got):
        _failed(call, found)
    metadata = found.seen.metadata
    hold = read_record(metadata.annotations).hold
    if metadata.uid == trainjob.uid and hold == Hold(instance, held=True):
        return
    now = f"uid {metadata.uid}" if metadata.uid != trainjob.uid else f"{names.HOLD} is {metadata.annotations.hold}"
    call.settle("hold", second_write="overtaken", details={"applied": "record", "seen": now})


def _list(call: Call, trainjob: seen.Metadata) -> tuple[seen.Workload, ...]:
    found = call.try_list(WORKLOADS, names.workload_selector(trainjob.uid), seen.Workload)
    return _failed(call, found) if isinstance(found, Failure) else workloads.of(trainjob.uid, found)


def _failed(call: Call, failure: Failure) -> NoReturn:
    rule = call.judge(failure)
    _settle_failed(call, f"{rule.id}: {failure.message}", failure)


def _settle_failed(call: Call, why: str, failure: Failure | None = None) -> NoReturn:
    details: dict[str, Any] = {} if failure is None else dict(failure.details)
    details |= {"applied": "record", "seen": why}
    cause = None if failure is None else failure.cause
    call.settle("hold", second_write="failed", details=details, cause=cause)
    never("a second write that failed is refused")


def _json(value: bool) -> str:
    return "true" if value else "false"
