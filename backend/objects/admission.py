"""In kueue mode nothing but the controller makes a job run, so what it concludes from objects is kept apart from how it
comes by them: here are the facts for table `admission`, and the bodies of its writes.

The same facts are taken of what was watched and of what was read for the purpose; only the latter lead to a write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import names, resting, state
from . import workload as workloads
from .record import gates, precondition, read_record
from .resting import RestFact
from .seen import AdmissionCheck, Job, JobSet, OwnerReference, Pod, TrainJob, Workload, condition, is_true

TrainJobFact = Literal["not-ours", "absent", "unreadable", "ours"]
CheckFact = Literal["absent", "pending", "ready", "refused"]
AdmissionFact = Literal["no-quota", "quota", "admitted", "evicted"]
ACTIVE = "Active"
"""The condition of an AdmissionCheck without which Kueue admits nothing by it."""
_CHECK_FACTS: Mapping[str, CheckFact] = {"pending": "pending", "ready": "ready"}


@dataclass(frozen=True, slots=True)
class Rest:
    """Whether anything of a job can still run: the input `rest` of table `admission`, and what it is."""

    fact: RestFact | Literal["unread"]
    left: tuple[str, ...] = ()


def owner(workload: Workload) -> OwnerReference | None:
    """The TrainJob that controls a Workload, as the Workload names it."""
    found = workload.metadata.owner("TrainJob")
    if found is None or found.controller is not True:
        return None
    return found if found.api_version.partition("/")[0] == names.TRAINER_GROUP else None


def checks_of(workload: Workload, ours: Collection[str]) -> tuple[str, ...]:
    """Which AdmissionChecks of ours a Workload carries."""
    return tuple(each.name for each in workload.status.admission_checks if each.name in ours)


def facts(workload: Workload, trainjob: TrainJob | None, ours: Collection[str]) -> dict[str, str]:
    """The inputs of table `admission`, but for `rest`.

    `trainjob` is what was found under the name of the Workload's owner; `ours` are the names of our AdmissionChecks.
    """
    found = {
        "workload": "over" if is_over(workload) else "live",
        "check": check_fact(workload, ours),
        "trainjob": trainjob_fact(workload, trainjob),
        "active": "yes" if workload.spec.active else "no",
        "mark": "none" if workload.metadata.annotations.held is None else "ours",
        "admission": admission_fact(workload),
    }
    if trainjob is not None and found["trainjob"] == "ours":
        record = read_record(trainjob.metadata.annotations)
        found |= {"gate": record.gate_fact, "hold": record.hold_fact, "ending": "yes" if ending(trainjob) else "no"}
    return found


def is_over(workload: Workload) -> bool:
    """Whether a Workload is never admitted again: finished, or being deleted."""
    return workload.metadata.deleting or is_true(workload.status.conditions, "Finished")


def check_fact(workload: Workload, ours: Collection[str]) -> CheckFact:
    """The state of our check on a Workload; of several, that which keeps it longest from running."""
    states = {_CHECK_FACTS.get(workloads.check(workload, name), "refused") for name in checks_of(workload, ours)}
    return next((fact for fact in ("refused", "pending", "ready") if fact in states), "absent")


def admission_fact(workload: Workload) -> AdmissionFact:
    """How far Kueue has come. It says `Evicted` first, and takes the rest back one by one while pods still stop."""
    conditions = workload.status.conditions
    if is_true(conditions, "Evicted"):
        return "evicted"
    if is_true(conditions, "Admitted"):
        return "admitted"
    return "quota" if is_true(conditions, "QuotaReserved") else "no-quota"


def trainjob_fact(workload: Workload, trainjob: TrainJob | None) -> TrainJobFact:
    """Whose a Workload is, by the TrainJob found under its owner's name."""
    named = owner(workload)
    if named is None:
        return "not-ours"
    if trainjob is None or trainjob.metadata.uid != named.uid:
        return "absent"
    if not bears_ours(trainjob):
        return "not-ours"
    metadata = trainjob.metadata
    readable = metadata.annotations.mode == "kueue" and read_record(metadata.annotations).readable
    return "ours" if readable and names.named_identity(metadata) is not None else "unreadable"


def bears_ours(trainjob: TrainJob) -> bool:
    """Whether a TrainJob bears anything that only this library writes."""
    labels, annotations = trainjob.metadata.labels, trainjob.metadata.annotations
    written = (
        labels.backend,
        labels.job,
        labels.attempt,
        annotations.gate,
        annotations.hold,
        annotations.mode,
        annotations.nonce,
        annotations.digest,
    )
    return any(each is not None for each in written) or names.KUEUE_GATE in gates(annotations.gated_by)


def ending(trainjob: TrainJob) -> bool:
    """Whether a TrainJob is being deleted or shows a terminal condition, which is taken at its word here: to start
    nothing is safe.
    """
    return trainjob.metadata.deleting or state.terminal(trainjob) != "none"


def may_run(trainjob: TrainJob) -> bool:
    """Whether a TrainJob may start pods at any moment: neither suspended nor ended.

    An end is taken at its word, for its JobSet is looked at as well, and an ended one makes no pods.
    """
    return not trainjob.spec.suspend and state.terminal(trainjob) == "none"


def may_be_started(workload: Workload, ours: Collection[str]) -> bool:
    """Whether Kueue may start a Workload without another word of ours."""
    if is_over(workload):
        return False
    carried = checks_of(workload, ours)
    return not any(workloads.enforces(workload, name) for name in carried or ("",))


def rest(
    trainjob: TrainJob,
    ours: Collection[str],
    *,
    others: Sequence[TrainJob],
    other_workloads: Iterable[Workload],
    jobset: JobSet | None,
    jobsets: Iterable[JobSet],
    jobs: Iterable[Job],
    pods: Iterable[Pod],
) -> Rest:
    """Whether anything of a TrainJob's job can still run (C25); the pods must have been listed last.

    `others` are the other TrainJobs of the job, `other_workloads` theirs; `jobset` is that of the TrainJob's name;
    `jobsets`, `jobs` and `pods` are all those with the job's label.
    """
    found = [f"TrainJob {each.metadata.name}" for each in others if may_run(each)]
    uids = {each.metadata.uid for each in others}
    for each in other_workloads:
        named = owner(each)
        if named is not None and named.uid in uids and may_be_started(each, ours):
            found.append(f"Workload {each.metadata.name}")
    if found:
        return Rest("other-attempt", tuple(found))
    name = trainjob.metadata.name
    remains = resting.remains(
        names.parse_attempt(trainjob.metadata.labels.attempt) or 0,
        jobset=jobset,
        jobs=jobs,
        pods=pods,
        others=[each for each in jobsets if each.metadata.name != name],
    )
    if not remains and may_run(trainjob):
        return Rest("controller-active", (f"TrainJob {name}",))
    return Rest(remains.fact, tuple(map(str, remains.items)))


def pods_rest(pods: Iterable[Pod]) -> Rest:
    """What pods alone show; that none is left of them shows nothing of what could still make one."""
    found = tuple(f"Pod {each.metadata.name} ({why})" for each in pods if (why := resting.why_not(each)) is not None)
    return Rest("pods-remain" if found else "unread", found)


def is_active(check: AdmissionCheck) -> bool:
    """Whether an AdmissionCheck shows, of its present generation, that its controller is there."""
    found = condition(check.status.conditions, ACTIVE)
    return (
        found is not None
        and found.status == "True"
        and found.observed_generation == (check.metadata.generation or found.observed_generation)
    )


# Bodies. A uid protects a patch of the object, and is void on its /status, where resourceVersion alone does.


def ready_apply(
    workload: Workload, ours: Collection[str], *, message: str, at: str, api_version: str
) -> dict[str, Any]:
    """The forced server-side apply, to `/status`, that makes our checks Ready and touches no other controller's.

    All of ours that the Workload carries are in it, for what an apply leaves out it takes away. `at` is the time as
    Kubernetes writes it.
    """
    entries = [
        {"name": name, "state": "Ready", "message": message, "lastTransitionTime": at}
        for name in checks_of(workload, ours)
    ]
    return _status_apply(workload.metadata.name, workload.metadata.namespace, workload.metadata.resource_version) | {
        "apiVersion": api_version,
        "kind": "Workload",
        "status": {"admissionChecks": entries},
    }


def activate_patch(workload: Workload) -> dict[str, Any]:
    """The merge patch that ends what a hold of ours wrote on a Workload."""
    return forget_patch(workload) | {"spec": {"active": True}}


def forget_patch(workload: Workload) -> dict[str, Any]:
    """The merge patch that takes away the annotation of a hold that is over."""
    metadata = precondition(workload.metadata.uid, workload.metadata.resource_version)
    return {"metadata": {**metadata, "annotations": {names.HELD: None}}}


def active_apply(check: AdmissionCheck, *, at: str, api_version: str) -> dict[str, Any]:
    """The forced server-side apply, to `/status`, that says of an AdmissionCheck that its controller is there."""
    metadata = check.metadata
    said = {
        "type": ACTIVE,
        "status": "True",
        "reason": ACTIVE,
        "message": "The admission check is served",
        "lastTransitionTime": at,
        "observedGeneration": metadata.generation or 1,
    }
    return _status_apply(metadata.name, "", metadata.resource_version) | {
        "apiVersion": api_version,
        "kind": "AdmissionCheck",
        "status": {"conditions": [said]},
    }


def _status_apply(name: str, namespace: str, version: str) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": version}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}
