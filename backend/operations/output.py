"""Output: the lines of rank 0. A job may have had several pods of rank 0, in several attempts; it is the newest one's
log that is given, and a log that was cut is never given as if it had ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import PODS, TRAIN_JOBS

from .call import Call

RANK_0 = f"{names.REPLICATED_JOB}={names.NODE},{names.JOB_INDEX}=0,{names.COMPLETION_INDEX}=0"
"""The labels of every rank 0 pod."""


def output(call: Call, job_id: str, *, tail: int | None, follow: bool) -> Iterator[bytes]:
    """The lines of the highest attempt's newest rank 0 pod, without their line ends.

    Not scheduled yet: no lines. Errors: ErrNotFound without such a pod (C36), what table `request` says of pods/log
    (A13), ErrUnreachable after the lines that were given, where the stream was cut.
    """
    pod = _rank0(call, job_id)
    if pod is None:
        call.settle("read", finding="no-rank-0")
        raise AssertionError("a job without a rank 0 pod has no output")
    reply = call.adapter.door.log(
        call.namespace, pod.metadata.name, names.NODE, call.ctx, operation=call.operation, tail=tail, follow=follow
    )
    if reply.failure is not None:
        call.refuse(reply.failure)
    for line in reply.lines:
        if isinstance(line, Failure):
            call.settle("read", finding="cut", details=line.details, cause=line.cause)
        else:
            yield line


def _rank0(call: Call, job_id: str) -> seen.Pod | None:
    """The newest rank 0 pod of the highest attempt. An attempt without pods is higher still: hence its TrainJobs."""
    ours = names.job_selector(call.adapter.settings.name, job_id)
    trainjobs = call.list(TRAIN_JOBS, ours, seen.TrainJob)
    pods = call.list(PODS, f"{ours},{RANK_0}", seen.Pod)
    every = [each.metadata for each in trainjobs] + [each.metadata for each in pods]
    highest = max((_attempt(each) for each in every), default=0)
    of_highest = [pod for pod in pods if _attempt(pod.metadata) == highest]
    return max(of_highest, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.uid), default=None)


def _attempt(metadata: seen.Metadata) -> int:
    return names.parse_attempt(metadata.labels.attempt) or 0
