"""In kueue mode a job's gate and hold stand on three objects that an administrator makes: the LocalQueue leads to a
ClusterQueue, which has to list our AdmissionCheck, which has to be served. What they show of it is told here.
"""

from __future__ import annotations

from typing import Literal

from . import names
from .admission import ACTIVE, is_active
from .seen import AdmissionCheck, ClusterQueue, condition

Listed = Literal["no", "some-flavors", "every-flavor"]
CheckShown = Literal["active", "inactive", "not-ours"]


def lists(queue: ClusterQueue, check: str) -> Listed:
    """Whether a ClusterQueue asks for a check; on some flavors only, it vanishes from a job that gets another."""
    found = [each for each in queue.spec.admission_checks_strategy.admission_checks if each.name == check]
    if not found:
        return "no"
    return "some-flavors" if any(each.on_flavors for each in found) else "every-flavor"


def shown(check: AdmissionCheck) -> CheckShown:
    """Whether a check is ours, and whether its controller says that it is there."""
    if check.spec.controller_name != names.CHECK_CONTROLLER:
        return "not-ours"
    return "active" if is_active(check) and not check.metadata.deleting else "inactive"


def said(check: AdmissionCheck) -> str:
    """What a check that is not active says of itself, in words."""
    if check.metadata.deleting:
        return "being deleted"
    active = condition(check.status.conditions, ACTIVE)
    if active is None:
        return "its controller has not said that it is there"
    return f"Active {active.status}, {active.reason or 'without a reason'}: {active.message or ''}".rstrip(": ")
