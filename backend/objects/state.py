"""What a job's objects show of its state, as facts for the table `states`, and the flags that stand beside a state.

The state is always read from the cluster. `gated` and `held` are claims that nothing runs, so they rest on what
enforces them, not on what was asked; where the two differ, that is `drift`. All of it is asked of one listing, whose
order makes absence mean something: TrainJobs come last, so that a job being started never looks orphaned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from . import workload as workloads
from .record import GateFact, HoldFact, Record, read_record
from .seen import Job, JobSet, Pod, TrainJob, Workload, condition, is_true
from .trainjob import Mode
from .workload import Waiting

EnforcedFact = Literal["yes", "no"]
TerminalFact = Literal["none", "complete", "failed", "deadline"]
JobSetFact = Literal["this", "other", "gone"]
PodsFact = Literal["none", "some"]

DEADLINE_EXCEEDED = "DeadlineExceeded"
IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
QUOTING_REASONS = frozenset({"CreateContainerError", "RunContainerError"})
"""Reasons whose messages quote the command, and what secrets it has."""
CONFIGURATION_REASONS = frozenset({"CreateContainerConfigError"}) | QUOTING_REASONS


@dataclass(frozen=True, slots=True)
class Drift:
    """A field that is not as the record wants it."""

    path: str
    wanted: str
    seen: str

    def __str__(self) -> str:
        return f"{self.path} is {self.seen}, the record wants {self.wanted}"


@dataclass(frozen=True, slots=True)
class PodCounts:
    """The pods of an attempt by phase; `terminating` are those being deleted, whatever their phase."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    terminating: int = 0

    @property
    def total(self) -> int:
        return self.pending + self.running + self.succeeded + self.failed + self.unknown + self.terminating


NO_PODS = PodCounts()


@dataclass(frozen=True, slots=True)
class StateFacts:
    """The inputs of table `states`, and whether deletion has begun."""

    gate: GateFact
    hold: HoldFact
    enforced: EnforcedFact
    terminal: TerminalFact
    jobset: JobSetFact
    pods: PodsFact
    deleting: Literal["yes", "no"]

    @property
    def facts(self) -> dict[str, str]:
        """The facts that table `states` asks for."""
        return {
            "gate": self.gate,
            "hold": self.hold,
            "enforced": self.enforced,
            "terminal": self.terminal,
            "jobset": self.jobset,
            "pods": self.pods,
        }


@dataclass(frozen=True, slots=True)
class View:
    """One TrainJob with all that was listed of it."""

    trainjob: TrainJob
    jobset: JobSet | None = None
    jobs: Sequence[Job] = ()
    pods: Sequence[Pod] = ()
    workloads: Sequence[Workload] = ()

    @property
    def record(self) -> Record:
        return read_record(self.trainjob.metadata.annotations)


def facts(view: View, *, mode: Mode, check_name: str | None = None) -> StateFacts:
    """What a TrainJob's objects show, for table `states`. `check_name` names our AdmissionCheck, in kueue mode."""
    record = view.record
    return StateFacts(
        gate=record.gate_fact,
        hold=record.hold_fact,
        enforced="yes" if enforced(view, mode=mode, check_name=check_name) else "no",
        terminal=terminal(view.trainjob),
        jobset=jobset_fact(view.trainjob, view.jobset),
        pods="some" if view.pods else "none",
        deleting="yes" if view.trainjob.metadata.deleting else "no",
    )


def enforced(view: View, *, mode: Mode, check_name: str | None = None) -> bool:
    """Whether the cluster keeps the job from running.

    Plain: `suspend: true`. Kueue: its Workload does so, each of them should there be several; or there is none, and
    `suspend: true`.
    """
    if mode == "plain" or not view.workloads:
        return view.trainjob.spec.suspend
    return all(workloads.enforces(each, check_name or "") for each in view.workloads)


def terminal(trainjob: TrainJob) -> TerminalFact:
    """The terminal condition a TrainJob shows; with both, the failure, for success needs to be shown."""
    failed = condition(trainjob.status.conditions, "Failed")
    if failed is not None and failed.status == "True":
        return "deadline" if failed.reason == DEADLINE_EXCEEDED else "failed"
    return "complete" if is_true(trainjob.status.conditions, "Complete") else "none"


def jobset_fact(trainjob: TrainJob, jobset: JobSet | None) -> JobSetFact:
    """Whose the JobSet of the TrainJob's name is; one being deleted stands behind nothing any more."""
    if jobset is None or jobset.metadata.deleting:
        return "gone"
    return "this" if owns(trainjob, jobset) else "other"


def owns(trainjob: TrainJob, jobset: JobSet) -> bool:
    """Whether a JobSet belongs to this very TrainJob, by UID."""
    owner = jobset.metadata.owner("TrainJob")
    return owner is not None and bool(owner.uid) and owner.uid == trainjob.metadata.uid


def drift(view: View, *, mode: Mode, ended: bool, check_name: str | None = None) -> tuple[Drift, ...]:
    """What of a TrainJob that has not ended is not as its record wants it."""
    stopped = view.record.stopped
    if ended or stopped is None or view.trainjob.metadata.deleting:
        return ()
    found = [Drift("pods", "0", str(len(view.pods)))] if belied(view) else []
    if mode == "kueue":
        found += _kueue_drift(view, stopped=stopped, check_name=check_name or "")
    elif view.trainjob.spec.suspend is not stopped:
        found.append(Drift("spec.suspend", _json(stopped), _json(view.trainjob.spec.suspend)))
    return tuple(found)


def belied(view: View) -> bool:
    """Whether pods stand beside a gate that is on record as closed: of a job that was held, some may still stop."""
    return view.record.gate_fact == "closed" and view.record.hold_fact != "held" and bool(view.pods)


def _kueue_drift(view: View, *, stopped: bool, check_name: str) -> Iterable[Drift]:
    """In kueue mode only what should be stopped and is not is drift: to run is for Kueue to decide."""
    for each in view.workloads:
        if stopped and not workloads.enforces(each, check_name):
            yield Drift(f"Workload {each.metadata.name}", "kept from running", "free to run")
        elif view.record.hold_fact == "held" and each.spec.active:
            yield Drift(f"Workload {each.metadata.name} spec.active", "false", "true")
        elif not stopped and not each.spec.active and each.metadata.annotations.held is None:
            yield Drift(f"Workload {each.metadata.name} spec.active", "true", "false, by somebody else")
    if stopped and not view.trainjob.spec.suspend:
        yield Drift("spec.suspend", "true", "false")


def _json(value: bool) -> str:
    return "true" if value else "false"


def failing(jobs: Iterable[Job]) -> bool:
    """Whether a Job has failed and waits for its pods to end; a silent node keeps it there for ever."""
    return any(
        is_true(job.status.conditions, "FailureTarget") and not is_true(job.status.conditions, "Failed") for job in jobs
    )


def waiting(view: View) -> Waiting | None:
    """Why a job that may run does not: its Workload, a pod no node takes, an image or a container that can't be had."""
    for each in view.workloads:
        found = workloads.waiting(each)
        if found is not None:
            return found
    for pod in view.pods:
        found = pod_waiting(pod)
        if found is not None:
            return found
    return None


def pod_waiting(pod: Pod) -> Waiting | None:
    """Why a pod does not start; None if it does, or is only slow."""
    if pod.metadata.deleting or pod.status.phase in {"Succeeded", "Failed"}:
        return None
    for status in pod.container_statuses:
        state = status.state.waiting
        if state is not None and state.reason in IMAGE_REASONS | CONFIGURATION_REASONS:
            message = "" if state.reason in QUOTING_REASONS else state.message or ""
            return Waiting(state.reason or "", f"container {status.name}: {message}".rstrip(": "))
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return Waiting(scheduled.reason or "Unschedulable", scheduled.message or "")
    return None


def count(pods: Iterable[Pod]) -> PodCounts:
    """How many pods are in which phase."""
    found = {"pending": 0, "running": 0, "succeeded": 0, "failed": 0, "unknown": 0, "terminating": 0}
    for pod in pods:
        phase = "terminating" if pod.metadata.deleting else pod.status.phase.lower()
        found[phase if phase in found else "unknown"] += 1
    return PodCounts(**found)
