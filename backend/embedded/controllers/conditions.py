"""TrainJob, JobSet, Job, pod and Node conditions differ in small ways that a reader of them relies on; they are set
here, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

Object = dict[str, Any]


def stamp(moment: datetime) -> str:
    """RFC 3339 with whole seconds, as Kubernetes writes times."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_stamp(text: str) -> datetime:
    """The moment a Kubernetes time stands for."""
    return datetime.fromisoformat(text)


def left(seconds: int, since: str, now: datetime) -> float:
    """Seconds until so many have passed since a stamp. They are a Go duration, nanoseconds in 64 bits: one of more than
    292 years comes out as something else, and may have passed long ago.
    """
    duration = ((seconds * 10**9 + 2**63) % 2**64 - 2**63) / 10**9
    return duration - (now - parse_stamp(since)).total_seconds()


def find(status: Mapping[str, Any] | None, kind: str) -> Object | None:
    """The condition of that type, or None."""
    for condition in (status or {}).get("conditions") or ():
        if condition["type"] == kind:
            found: Object = condition
            return found
    return None


def need(status: Mapping[str, Any], kind: str) -> Object:
    """The condition of that type, which is known to be there."""
    return next(condition for condition in status["conditions"] if condition["type"] == kind)


def is_true(status: Mapping[str, Any] | None, kind: str) -> bool:
    """Whether the condition of that type is True."""
    condition = find(status, kind)
    return condition is not None and condition["status"] == "True"


def put(status: Object, kind: str, value: str, reason: str, message: str, moment: str) -> bool:
    """Set a condition as apimachinery's SetStatusCondition does: the time moves only with the status. True when
    anything changed.
    """
    old = find(status, kind)
    new = {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": moment}
    if old is not None and old["status"] == value:
        new["lastTransitionTime"] = old["lastTransitionTime"]
    if old == new:
        return False
    replace(status, new)
    return True


def put_pod(status: Object, kind: str, value: str, moment: str, reason: str = "", message: str = "") -> bool:
    """Set a pod condition (it has `lastProbeTime`, and no reason or message where there is none). True when anything
    changed.
    """
    old = find(status, kind)
    new: Object = {"lastProbeTime": None, "lastTransitionTime": moment, "status": value, "type": kind}
    if reason:
        new["reason"] = reason
    if message:
        new["message"] = message
    if old is not None and old["status"] == value:
        new["lastTransitionTime"] = old["lastTransitionTime"]
    if old == new:
        return False
    replace(status, new)
    return True


def drop(status: Object, kind: str) -> None:
    """Take a condition away."""
    status["conditions"] = [condition for condition in status.get("conditions") or () if condition["type"] != kind]


def replace(status: Object, new: Object) -> None:
    """Put a condition in the place of the one of its type, or last; the list is a new one."""
    conditions = list(status.get("conditions") or ())
    for index, condition in enumerate(conditions):
        if condition["type"] == new["type"]:
            conditions[index] = new
            break
    else:
        conditions.append(new)
    status["conditions"] = conditions
