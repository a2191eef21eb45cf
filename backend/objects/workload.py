"""In kueue mode a hold is enforced on the Workload, not on the TrainJob: what a Workload shows of it, and the body that
writes it, are here, so that the operations and the controller mean the same by "held".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import names
from .record import gates, precondition
from .seen import Workload, condition, is_true

CheckFact = Literal["absent", "pending", "ready", "retry", "rejected"]
Shown = Literal["none", "no-gate", "no-check", "complete"]
_CHECK_FACTS: dict[str, CheckFact] = {"Pending": "pending", "Ready": "ready", "Retry": "retry", "Rejected": "rejected"}


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why Kueue does not run a job: the condition's reason and its message."""

    reason: str
    message: str


def of(uid: str, workloads: Iterable[Workload]) -> tuple[Workload, ...]:
    """The Workloads that a TrainJob of this UID controls; the label alone proves nothing."""
    return tuple(
        each
        for each in workloads
        if (owner := each.metadata.owner("TrainJob")) is not None and owner.uid == uid and owner.controller is True
    )


def gated(workload: Workload) -> bool:
    """Whether our gate is on it."""
    return names.KUEUE_GATE in gates(workload.metadata.annotations.gated_by)


def check(workload: Workload, name: str) -> CheckFact:
    """The state of our check on it; an unknown state is not Ready, and so pending."""
    found = next((each for each in workload.status.admission_checks if each.name == name), None)
    return "absent" if found is None else _CHECK_FACTS.get(found.state, "pending")


def enforces(workload: Workload, check_name: str) -> bool:
    """Whether it keeps its job from running: made inactive, or not admitted and gated or without our check's Ready.

    A gate or a check can't stop what is admitted already: a check put back on the queue is Pending beside a running
    job.
    """
    if not workload.spec.active:
        return True
    if is_true(workload.status.conditions, "Admitted"):
        return False
    return bool(gates(workload.metadata.annotations.gated_by)) or check(workload, check_name) not in {"absent", "ready"}


def waiting(workload: Workload) -> Waiting | None:
    """Why it is not admitted; None where it is, or has finished."""
    conditions = workload.status.conditions
    if is_true(conditions, "Finished"):
        return None
    if not workload.spec.active:
        held = workload.metadata.annotations.held
        if held is not None:
            return Waiting("Held", f"hold {held} keeps the Workload inactive")
        return Waiting("Deactivated", "somebody else made the Workload inactive")
    if is_true(conditions, "Admitted"):
        return None
    evicted = condition(conditions, "Evicted")
    quota = condition(conditions, "QuotaReserved")
    if evicted is not None and evicted.status == "True":
        return Waiting(evicted.reason or "Evicted", evicted.message or "")
    if quota is None:
        return Waiting("Pending", "Kueue has not looked at the Workload yet")
    if quota.status == "True":
        left = [f"{each.name} is {each.state}" for each in workload.status.admission_checks if each.state != "Ready"]
        return Waiting("AdmissionChecks", "quota is reserved; " + (", ".join(left) or "every admission check is Ready"))
    return Waiting(quota.reason or "Pending", quota.message or "")


def must_hold(workload: Workload, instance: int) -> bool:
    """Whether a hold of this instance has to be written on it.

    Also where an older one still keeps it inactive, for the controller may be about to end that. One that somebody else
    made inactive is left as it is: it does not run, and to mark it would have a release undo what was never ours.
    """
    if workload.spec.active:
        return True
    held = workload.metadata.annotations.held
    return held is not None and held != str(instance)


def hold_patch(workload: Workload, instance: int) -> dict[str, Any]:
    """The merge patch that makes a Workload inactive for this instance of a hold."""
    metadata = precondition(workload.metadata.uid, workload.metadata.resource_version)
    return {"metadata": {**metadata, "annotations": {names.HELD: str(instance)}}, "spec": {"active": False}}


def shows(workloads: Sequence[Workload], check_name: str) -> Shown:
    """Whether a new TrainJob's Workload has come with both gate and check (C29); they come up to 0.1 s apart."""
    if not workloads:
        return "none"
    if not all(gated(each) for each in workloads):
        return "no-gate"
    return "complete" if all(check(each, check_name) != "absent" for each in workloads) else "no-check"
