"""Why a job ended, is evicted or waits, as facts for the table `causes`, with what was seen and what was not.

With `backoffLimit: 0` every lost pod ends a TrainJob in the same words, and the Job deletes the other pods within a
second. So only pods tell causes apart, and where one is missing it may have been the first to fail: that is a fact of
its own (`missing`), and never guessed away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from .pod_endings import Ending, PodFact, decisive, ending
from .record import LIFTED, Record, read_record
from .resting import end_known
from .seen import Condition, Job, JobSet, Pod, TrainJob, Workload, condition, is_true, moment
from .state import DEADLINE_EXCEEDED, owns, terminal

EndingFact = Literal["running", "succeeded", "complete-unshown", "failed", "deadline", "gone"]
StoppingFact = Literal["no", "held", "deleting"]
WorkloadFact = Literal[
    "quiet",
    "waiting",
    "inadmissible",
    "preempted",
    "evicted",
    "node-failures",
    "execution-time",
    "pods-ready-timeout",
    "deactivated",
]
YesNo = Literal["no", "yes"]


@dataclass(frozen=True, slots=True)
class CauseFacts:
    """The inputs of table `causes`, and what a person should read beside its answer."""

    ending: EndingFact
    stopping: StoppingFact
    job_deadline: YesNo
    pod: PodFact
    missing: YesNo
    workload: WorkloadFact
    evidence: tuple[str, ...] = ()
    not_looked_at: tuple[str, ...] = ()
    exit_code: int | None = None
    pod_name: str | None = None
    at: datetime | None = None

    @property
    def facts(self) -> dict[str, str]:
        """The facts that table `causes` asks for."""
        return {
            "ending": self.ending,
            "stopping": self.stopping,
            "job_deadline": self.job_deadline,
            "pod": self.pod,
            "missing": self.missing,
            "workload": self.workload,
        }


def facts(
    trainjob: TrainJob | None,
    *,
    jobset: JobSet | None = None,
    jobs: Sequence[Job] = (),
    pods: Sequence[Pod] = (),
    workloads: Sequence[Workload] = (),
    gone: Sequence[Pod] = (),
) -> CauseFacts:
    """What the objects of one attempt show. `gone`: the last states of pods that a watch saw deleted.

    Without its TrainJob an attempt's cause is looked for in what is left of it.
    """
    listed = {pod.metadata.uid for pod in pods}
    seen = [*pods, *(pod for pod in gone if pod.metadata.uid not in listed)]
    resumed = _resumed(trainjob)
    endings = [each for each in map(ending, seen) if not _stopped_before(each, resumed)]
    known = [each.pod for each in endings]
    first = decisive(endings)
    missing = (*missing_pods(trainjob, jobs, known), *unreported_ends(first, known))
    by_deadline = _by_deadline(jobs)
    workload, workload_text = _workload(workloads)
    return CauseFacts(
        ending=_ending(trainjob, jobset),
        stopping=_stopping(trainjob),
        job_deadline="yes" if by_deadline == {True} else "no",
        pod="conflicting" if len(by_deadline) > 1 else "none" if first is None else first.fact,
        missing="yes" if missing else "no",
        workload=workload,
        evidence=tuple(_evidence(trainjob, jobs, first, workload_text)),
        not_looked_at=_not_looked_at(missing, first),
        exit_code=None if first is None else first.exit_code,
        pod_name=None if first is None else first.pod.metadata.name,
        at=None if first is None else first.at,
    )


def _resumed(trainjob: TrainJob | None) -> datetime | None:
    """When the TrainJob last went on after it had been suspended."""
    suspended = None if trainjob is None else condition(trainjob.status.conditions, "Suspended")
    return moment(suspended.last_transition_time) if suspended is not None and suspended.status == "False" else None


def _stopped_before(ending: Ending, resumed: datetime | None) -> bool:
    """Whether a pod was taken away by a hold that has been released since: it is no part of what runs now."""
    asked = ending.pod.metadata.deletion_asked
    return ending.fact == "deleted" and resumed is not None and asked is not None and asked <= resumed


def _ending(trainjob: TrainJob | None, jobset: JobSet | None) -> EndingFact:
    if trainjob is None:
        return "gone"
    found = terminal(trainjob)
    if found == "none":
        return "running"
    if found != "complete":
        return found
    record = read_record(trainjob.metadata.annotations)
    shown = jobset is not None and owns(trainjob, jobset) and is_true(jobset.status.conditions, "Completed")
    return "succeeded" if shown and record.gate == LIFTED else "complete-unshown"


def unproven(trainjob: TrainJob, jobset: JobSet | None) -> bool:
    """Whether a TrainJob that was opened shows success, and its JobSet does not yet."""
    return _ending(trainjob, jobset) == "complete-unshown" and read_record(trainjob.metadata.annotations).gate == LIFTED


def unexplained(trainjob: TrainJob, jobs: Iterable[Job]) -> bool:
    """Whether a TrainJob shows that a Job of it failed, and no Job does yet."""
    return terminal(trainjob) == "failed" and not any(is_true(job.status.conditions, "Failed") for job in jobs)


def _stopping(trainjob: TrainJob | None) -> StoppingFact:
    if trainjob is None:
        return "no"
    if trainjob.metadata.deleting:
        return "deleting"
    record: Record = read_record(trainjob.metadata.annotations)
    return "held" if record.hold is not None and record.hold.held else "no"


def _by_deadline(jobs: Iterable[Job]) -> set[bool]:
    """Whether the Job that failed first did so by its deadline: nothing where none failed, and both where two Jobs
    failed in one second, or one without a time beside another.
    """
    failures = [found for job in jobs if (found := job_failure(job)) is not None]
    times = [(moment(each.last_transition_time), each.reason == DEADLINE_EXCEEDED) for each in failures]
    earliest = min((at for at, _ in times if at is not None), default=None)
    return {past for at, past in times if at is None or at == earliest}


def job_failure(job: Job) -> Condition | None:
    """The condition by which a Job says that it fails: it comes before its pods have ended."""
    for kind in ("FailureTarget", "Failed"):
        found = condition(job.status.conditions, kind)
        if found is not None and found.status == "True":
            return found
    return None


def missing_pods(trainjob: TrainJob | None, jobs: Sequence[Job], known: Iterable[Pod]) -> tuple[str, ...]:
    """What is not known of pods that may have failed first, as sentences; empty where all were seen.

    A Job counts every pod that failed or is being deleted, so it counts more than are known where one is gone. Once
    the Jobs themselves are gone nothing counts any more.
    """
    if not jobs:
        if trainjob is not None and terminal(trainjob) == "none" and not trainjob.metadata.deleting:
            return ()
        return ("the Jobs are gone, and with them the number of pods that failed",)
    found = []
    for job in jobs:
        lost = job.status.failed - len(_counted_pods_of(job, known))
        if lost > 0:
            found.append(f"{lost} of the {job.status.failed} failed pods of Job {job.metadata.name} are gone")
    return tuple(found)


def unreported_ends(first: Ending | None, known: Iterable[Pod]) -> tuple[str, ...]:
    """Once a pod has failed: the pods whose own end no kubelet has reported, as a sentence.

    The pod of a node that went silent shows its containers running while its peers abort: what they show came second.
    """
    if first is None or not first.failed:
        return ()
    silent = sorted(pod.metadata.name for pod in known if pod is not first.pod and not end_known(pod))
    return (f"how and when these pods ended is not reported: {', '.join(silent)}",) if silent else ()


def _counted_pods_of(job: Job, pods: Iterable[Pod]) -> list[Pod]:
    """Known pods that the Job counts as failed: a failing Job counts those it deletes, a suspended one does not."""
    failing = is_true(job.status.conditions, "FailureTarget")
    owned = [pod for pod in pods if any(owner.uid == job.metadata.uid for owner in pod.metadata.owner_references)]
    return [pod for pod in owned if pod.status.phase == "Failed" or (failing and pod.metadata.deleting)]


def _workload(workloads: Sequence[Workload]) -> tuple[WorkloadFact, str]:
    """What a Workload shows that its pods do not; of several, the first that is not quiet."""
    for each in workloads:
        fact, text = workload_fact(each)
        if fact != "quiet":
            return fact, f"Workload {each.metadata.name}: {text}"
    return "quiet", ""


def workload_fact(workload: Workload) -> tuple[WorkloadFact, str]:
    """What one Workload shows, and in which words. Held by us, gated, admitted or finished, it is quiet."""
    conditions = workload.status.conditions
    if is_true(conditions, "Finished"):
        return "quiet", ""
    evicted = condition(conditions, "Evicted")
    if evicted is not None and evicted.status == "True":
        fact = _eviction(evicted.reason or "")
        if fact == "deactivated" and workload.metadata.annotations.held is not None:
            return "quiet", ""
        return fact, f"Evicted, {evicted.reason}: {evicted.message or ''}"
    if not workload.spec.active:
        if workload.metadata.annotations.held is not None:
            return "quiet", ""
        return "deactivated", "spec.active is false"
    return _admission(workload)


def _eviction(reason: str) -> WorkloadFact:
    known: dict[str, WorkloadFact] = {
        "Preempted": "preempted",
        "NodeFailures": "node-failures",
        "PodsReadyTimeout": "pods-ready-timeout",
        "DeactivatedDueToRequeuingLimitExceeded": "pods-ready-timeout",
        "DeactivatedDueToMaximumExecutionTimeExceeded": "execution-time",
    }
    if reason in known:
        return known[reason]
    return "deactivated" if reason.startswith("Deactivated") else "evicted"


def _admission(workload: Workload) -> tuple[WorkloadFact, str]:
    conditions = workload.status.conditions
    quota = condition(conditions, "QuotaReserved")
    if is_true(conditions, "Admitted") or quota is None or quota.status == "True" or quota.reason == "AdmissionGated":
        return "quiet", ""
    text = f"QuotaReserved False, {quota.reason}: {quota.message or ''}"
    return ("inadmissible" if quota.reason == "Inadmissible" else "waiting"), text


def _evidence(trainjob: TrainJob | None, jobs: Sequence[Job], first: Ending | None, workload: str) -> Iterable[str]:
    if trainjob is None:
        yield "the TrainJob is gone"
    else:
        for each in trainjob.status.conditions:
            if each.type in {"Complete", "Failed"} and each.status == "True":
                yield f"TrainJob {each.type}, {each.reason}: {each.message or ''}".rstrip(": ")
    for job in jobs:
        failed = condition(job.status.conditions, "Failed") or condition(job.status.conditions, "FailureTarget")
        if failed is not None and failed.status == "True":
            yield f"Job {job.metadata.name} {failed.type}, {failed.reason}"
    if first is not None and first.fact not in {"running", "none"}:
        yield str(first)
    if workload:
        yield workload


def _not_looked_at(missing: tuple[str, ...], first: Ending | None) -> tuple[str, ...]:
    """What was not seen, or lies where Find does not look."""
    found = list(missing)
    if first is not None and first.fact == "taint-manager":
        found.append("the Node was not read: any NoExecute taint has its pods deleted")
    return tuple(found)
