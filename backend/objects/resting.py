"""Two generations of a job's pods must never run at once, so before pods would start it is asked whether anything of
the job can still run: a pod that does not rest, or a controller that could still make one (C25, C41).

A pod rests only when a kubelet has said that every container of it ended. Phase `Failed` alone proves nothing: PodGC
writes it of pods that may run on. It is the polite refusal; `podReplacementPolicy: Failed` is what holds when
controllers lag.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from . import names
from .seen import Job, JobSet, Metadata, Pod, Terminated, is_true

Why = Literal[
    "pod-runs",
    "pod-terminating",
    "pod-end-not-reported",
    "jobset-not-suspended",
    "jobset-not-yet-suspended",
    "job-not-suspended",
    "job-not-yet-suspended",
    "job-has-pods",
]
Whose = Literal["this", "other"]
TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
RestFact = Literal["rests", "pods-remain", "other-attempt", "controller-active"]


@dataclass(frozen=True, slots=True)
class Remaining:
    """One object because of which something of the job can still run."""

    kind: Literal["Pod", "JobSet", "Job"]
    name: str
    uid: str
    whose: Whose
    attempt: int | None
    why: Why

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.why})"


@dataclass(frozen=True, slots=True)
class Remains:
    """All that can still run of a job; empty, and then false, when nothing can."""

    items: tuple[Remaining, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.items)

    @property
    def fact(self) -> RestFact:
        """The input `rest` of table `open`: the attempt's own pods first, then another attempt's, then controllers."""
        if not self.items:
            return "rests"
        pods = [each for each in self.items if each.kind == "Pod"]
        if any(each.whose == "this" for each in pods):
            return "pods-remain"
        return "other-attempt" if pods else "controller-active"

    @property
    def controllers(self) -> tuple[Remaining, ...]:
        """What of this attempt could still make a pod."""
        return tuple(each for each in self.items if each.kind != "Pod" and each.whose == "this")

    def __str__(self) -> str:
        return ", ".join(str(each) for each in self.items)


def rests(pod: Pod) -> bool:
    """Whether a pod is known to run no more: ended, not being deleted, every container's end seen by a kubelet."""
    return why_not(pod) is None


def why_not(pod: Pod) -> Why | None:
    """Why a pod does not rest; None if it does."""
    if pod.metadata.deleting:
        return "pod-terminating"
    if pod.status.phase not in TERMINAL_PHASES:
        return "pod-runs"
    return None if end_known(pod) else "pod-end-not-reported"


def end_known(pod: Pod) -> bool:
    """Whether a kubelet has reported a pod's end, whoever deletes it since."""
    return pod.status.phase in TERMINAL_PHASES and all_terminated(pod)


def all_terminated(pod: Pod) -> bool:
    """Whether every container of a pod is reported as terminated, by its id: what only a kubelet writes.

    Of a pod without containers, or with one that is not reported at all, it is not.
    """
    reported = {status.name: status for status in pod.container_statuses}
    expected = set(pod.container_names) | set(reported)
    return bool(expected) and all(
        (status := reported.get(name)) is not None and end_reported(status.state.terminated) for name in expected
    )


def end_reported(terminated: Terminated | None) -> bool:
    """Whether this is the end of a container that a kubelet saw; of one it lost track of, it invents an exit code."""
    return terminated is not None and bool(terminated.container_id) and terminated.reason != "ContainerStatusUnknown"


def remains(
    attempt: int,
    *,
    jobset: JobSet | None,
    jobs: Iterable[Job],
    pods: Iterable[Pod],
    others: Iterable[JobSet] = (),
) -> Remains:
    """What of a job can still run. `jobset` is that of the attempt's name, `others` are those of the job's other
    attempts; jobs and pods are those with the job's label, of whatever attempt, JobSet or JobSet UID. The pods must
    have been listed last.
    """
    found = [
        _remaining("JobSet", each.metadata, attempt, why)
        for each in others
        if (why := _jobset_makes_pods(each)) is not None
    ]
    if jobset is not None and (why := _jobset_makes_pods(jobset)) is not None:
        found.append(_remaining("JobSet", jobset.metadata, attempt, why))
    found += [
        _remaining("Job", job.metadata, attempt, why) for job in jobs if (why := _job_makes_pods(job)) is not None
    ]
    found += [_remaining("Pod", pod.metadata, attempt, why) for pod in pods if (why := why_not(pod)) is not None]
    return Remains(tuple(found))


def _remaining(kind: Literal["Pod", "JobSet", "Job"], metadata: Metadata, attempt: int, why: Why) -> Remaining:
    of = names.parse_attempt(metadata.labels.attempt)
    whose: Whose = "other" if of is not None and of != attempt else "this"
    return Remaining(kind, metadata.name, metadata.uid, whose, of, why)


def _jobset_makes_pods(jobset: JobSet) -> Why | None:
    """A JobSet that has ended makes no Job any more; a suspended one neither, once its controller says so itself, or
    if it never was anything else.
    """
    conditions = jobset.status.conditions
    if is_true(conditions, "Completed") or is_true(conditions, "Failed"):
        return None
    if not jobset.spec.suspend:
        return "jobset-not-suspended"
    stopped = is_true(conditions, "Suspended") or _never_changed(jobset.metadata)
    return None if stopped else "jobset-not-yet-suspended"


def _job_makes_pods(job: Job) -> Why | None:
    status = job.status
    uncounted = status.uncounted_terminated_pods
    if status.active or status.terminating or (uncounted is not None and (uncounted.succeeded or uncounted.failed)):
        return "job-has-pods"
    if is_true(status.conditions, "Complete") or is_true(status.conditions, "Failed"):
        return None
    if not job.spec.suspend:
        return "job-not-suspended"
    stopped = is_true(status.conditions, "Suspended") or _never_changed(job.metadata)
    return None if stopped else "job-not-yet-suspended"


def _never_changed(metadata: Metadata) -> bool:
    """Whether the spec is what the object was created with: no controller, however late, has seen another."""
    return metadata.generation == 1
