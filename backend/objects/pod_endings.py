"""Why a pod ended is written in it in a dozen ways, by five components, and each of them can be mistaken for another:
so each pod is given one name for what it shows, and the moment at which that began.

The names are those of the input `pod` of table `causes`, which says what each means. A deletionTimestamp
lies ahead by the grace period; a DisruptionTarget is written before the deletion it announces; exit codes 137 and 143
say only that a signal came, and 137 is also what a kubelet invents for a container it lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from . import names
from .seen import ContainerStatus, Pod, Terminated, condition, moment
from .state import CONFIGURATION_REASONS, IMAGE_REASONS

PodFact = Literal[
    "none",
    "running",
    "succeeded",
    "unschedulable",
    "image",
    "configuration",
    "exit-nonzero",
    "exit-137-error",
    "exit-143-error",
    "oom-killed",
    "evicted-by-kubelet",
    "evicted-by-api",
    "evicted-storage",
    "preempted-by-scheduler",
    "preempted-by-kubelet",
    "taint-manager",
    "pod-gc",
    "kueue-recovery",
    "node-shutdown",
    "pod-deadline",
    "rejected-by-kubelet",
    "status-unknown",
    "deleted",
    "conflicting",
]
STUCK: Final[tuple[PodFact, ...]] = ("configuration", "image", "unschedulable")
CALM: Final[tuple[PodFact, ...]] = ("running", "succeeded")

_DISRUPTIONS: Final[dict[str, PodFact]] = {
    "PreemptionByScheduler": "preempted-by-scheduler",
    "EvictionByEvictionAPI": "evicted-by-api",
    "DeletionByTaintManager": "taint-manager",
    "DeletionByPodGC": "pod-gc",
}
_KUBELET_REASONS: Final[dict[str, PodFact]] = {
    "Evicted": "evicted-by-kubelet",
    "Preempting": "preempted-by-kubelet",
    "Terminated": "node-shutdown",
    "NodeShutdown": "node-shutdown",
}
_POD_REASONS: Final[dict[str, PodFact]] = {
    "Evicted": "evicted-storage",
    "Preempting": "preempted-by-kubelet",
    "NodeShutdown": "node-shutdown",
    "DeadlineExceeded": "pod-deadline",
}
_SIGNALS: Final[dict[int, PodFact]] = {137: "exit-137-error", 143: "exit-143-error"}


@dataclass(frozen=True, slots=True)
class Ending:
    """What one pod shows, since when (None where no time is known), and with which exit code."""

    pod: Pod
    fact: PodFact
    at: datetime | None = None
    exit_code: int | None = None
    text: str = ""

    @property
    def failed(self) -> bool:
        """Whether the pod failed or was taken away, rather than being calm or stuck."""
        return self.fact not in STUCK and self.fact not in CALM

    def __str__(self) -> str:
        when = "" if self.at is None else f" at {self.at:%Y-%m-%dT%H:%M:%SZ}"
        return f"pod {self.pod.metadata.name}: {self.fact}{when}{f' ({self.text})' if self.text else ''}"


def ending(pod: Pod) -> Ending:
    """What a pod shows."""
    if pod.status.phase == "Succeeded":
        return Ending(pod, "succeeded", _last_end(pod))
    return _disrupted(pod) or _by_pod_reason(pod) or _by_containers(pod) or _without_containers(pod)


def _disrupted(pod: Pod) -> Ending | None:
    """A condition by which a component announced that it takes the pod away."""
    for kind in ("TerminatedByKueue", "KueueFailureRecovery"):
        kueue = condition(pod.status.conditions, kind)
        if kueue is not None and kueue.status == "True":
            return Ending(pod, "kueue-recovery", moment(kueue.last_transition_time), text=kueue.reason or kind)
    target = condition(pod.status.conditions, "DisruptionTarget")
    if target is None or target.status != "True":
        return None
    reason = target.reason or ""
    if reason == "TerminationByKubelet":
        fact = _KUBELET_REASONS.get(pod.status.reason or "", "status-unknown")
        reason = f"{reason}, {pod.status.reason or 'no reason'}"
    else:
        fact = _DISRUPTIONS.get(reason, "status-unknown")
    return Ending(pod, fact, moment(target.last_transition_time), text=reason)


def _by_pod_reason(pod: Pod) -> Ending | None:
    """A reason on the pod itself, written by its kubelet."""
    fact = _POD_REASONS.get(pod.status.reason or "")
    if fact is None or pod.status.phase != "Failed":
        return None
    return Ending(pod, fact, _last_end(pod) or _failed_at(pod), text=pod.status.reason or "")


def _by_containers(pod: Pod) -> Ending | None:
    """The first container that ended otherwise than with 0, unless the pod was being deleted by then."""
    found = _first_failure(pod)
    if found is None:
        return None
    status, ended = found
    at = moment(ended.finished_at)
    asked = pod.metadata.deletion_asked
    if pod.metadata.deleting and not _ended_before(pod, at, asked):
        return Ending(pod, "deleted", _earlier(asked, at), ended.exit_code, "deletion asked for, then ended")
    text = f"container {status.name} ended with {ended.exit_code}, {ended.reason or 'no reason'}"
    return Ending(pod, _container_fact(ended), at or asked, ended.exit_code, text)


def _container_fact(ended: Terminated) -> PodFact:
    if ended.reason == "OOMKilled":
        return "oom-killed"
    if ended.exit_code is None or ended.reason == "ContainerStatusUnknown":
        return "status-unknown"
    if ended.exit_code == 255 and ended.reason == "Unknown":
        return "status-unknown"
    return _SIGNALS.get(ended.exit_code, "exit-nonzero")


def _ended_before(pod: Pod, at: datetime | None, asked: datetime | None) -> bool:
    """Whether a container's end is known to lie before the deletion.

    The kubelet's last delete overwrites the time with its own and the grace period with 0: what was asked for first
    can then no longer be told, and the exit code may be the answer to a SIGTERM.
    """
    if at is None or asked is None:
        return False
    return bool(pod.metadata.deletion_grace_period_seconds) and at < asked


def _without_containers(pod: Pod) -> Ending:
    """What is left: a pod taken away before any container ended, one that is stuck, one that is calm."""
    phase = pod.status.phase
    if pod.metadata.deleting:
        return Ending(pod, "deleted", pod.metadata.deletion_asked, text="deletion asked for")
    if phase == "Failed":
        fact: PodFact = "rejected-by-kubelet" if pod.status.reason and not _ever_ran(pod) else "status-unknown"
        return Ending(pod, fact, _failed_at(pod), text=pod.status.reason or "Failed, and nothing says why")
    return _stuck(pod) or Ending(pod, "running")


def _stuck(pod: Pod) -> Ending | None:
    for status in pod.container_statuses:
        reason = status.state.waiting.reason if status.state.waiting is not None else None
        if reason in IMAGE_REASONS:
            return Ending(pod, "image", text=f"container {status.name} waits: {reason}")
        if reason in CONFIGURATION_REASONS:
            return Ending(pod, "configuration", text=f"container {status.name} waits: {reason}")
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable":
        return Ending(pod, "unschedulable", text=scheduled.message or "Unschedulable")
    return None


def _first_failure(pod: Pod) -> tuple[ContainerStatus, Terminated] | None:
    """The container that ended first otherwise than with 0; in one second, the one that trains.

    An init container counts only once the pod has failed: before that it may be one that is restarted.
    """
    statuses = pod.container_statuses if pod.status.phase == "Failed" else pod.status.container_statuses
    failed = [
        (status, ended)
        for status in statuses
        if (ended := status.state.terminated) is not None and ended.exit_code != 0
    ]
    if not failed:
        return None
    return min(failed, key=lambda each: (each[1].finished_at or "9", each[0].name != names.NODE))


def _last_end(pod: Pod) -> datetime | None:
    return max(_times(status.state.terminated for status in pod.container_statuses), default=None)


def _times(ends: Iterable[Terminated | None]) -> list[datetime]:
    return [at for each in ends if each is not None and (at := moment(each.finished_at)) is not None]


def _failed_at(pod: Pod) -> datetime | None:
    """When its Ready condition fell: as near as can be told where no container's end is."""
    ready = condition(pod.status.conditions, "Ready")
    return None if ready is None or ready.status == "True" else moment(ready.last_transition_time)


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _ever_ran(pod: Pod) -> bool:
    return any(
        status.state.terminated is not None or status.state.running is not None for status in pod.container_statuses
    )


def decisive(endings: Iterable[Ending]) -> Ending | None:
    """The pod that tells why a job ended or waits: the first failure in time, else one that is stuck, else a calm
    one.

    In one second a plain deletion yields to what failed by itself, for a Job deletes the other pods at once. Two
    different failures in one second, or one without a time beside another, are `conflicting`: which was first is not
    known.
    """
    found = list(endings)
    failures = [each for each in found if each.failed]
    if failures:
        return _first(failures)
    for fact in (*STUCK, *CALM):
        chosen = next((each for each in found if each.fact == fact), None)
        if chosen is not None:
            return chosen
    return None


def _first(failures: list[Ending]) -> Ending:
    timed = [each for each in failures if each.at is not None]
    earliest = min((each.at.replace(microsecond=0) for each in timed if each.at is not None), default=None)
    first = [each for each in failures if each.at is None or each.at.replace(microsecond=0) == earliest]
    active = [each for each in first if each.fact != "deleted"] or first
    facts = sorted({each.fact for each in active})
    if len(facts) == 1:
        return min(active, key=lambda each: each.pod.metadata.name)
    chosen = active[0]
    return Ending(chosen.pod, "conflicting", chosen.at, text="in the same second: " + ", ".join(facts))
