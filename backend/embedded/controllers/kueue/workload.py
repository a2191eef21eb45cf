"""What can be said of a Workload and done to its status; pure, for quota, checks and eviction all turn on it.

Functions that change a status are given a copy of it and say whether they changed anything, as Kueue's do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.kueue import names

Object = dict[str, Any]

# The order in which Kueue applies conditions, and in which they then stand.
_ORDER = (
    "QuotaReserved",
    "BlockedOnPreemptionGates",
    "Evicted",
    "Admitted",
    "Preempted",
    "Requeued",
    "DeactivationTarget",
    "Finished",
    "PodsReady",
)
LONGEST_MESSAGE = 32768


def status_of(workload: Mapping[str, Any]) -> Object:
    """Its status, empty where there is none."""
    found: Object = workload.get("status") or {}
    return found


def is_active(workload: Mapping[str, Any]) -> bool:
    """Whether nobody deactivated it."""
    return bool(workload["spec"].get("active", True))


def gate(obj: Mapping[str, Any]) -> str:
    """The gates an object's annotation names; empty for none."""
    return str((obj["metadata"].get("annotations") or {}).get(names.GATED_BY) or "")


def has(workload: Mapping[str, Any], condition: str) -> bool:
    """Whether a condition is True."""
    return conditions.is_true(status_of(workload), condition)


def has_quota(workload: Mapping[str, Any]) -> bool:
    """Whether quota is reserved for it."""
    return has(workload, "QuotaReserved")


def is_admissible(workload: Mapping[str, Any]) -> bool:
    """Whether it may stand in a queue."""
    return not gate(workload) and is_active(workload) and not has(workload, "Finished") and not has_quota(workload)


def phase(workload: Mapping[str, Any]) -> str:
    """`finished`, `admitted`, `quotaReserved` or `pending`."""
    for condition, name in (("Finished", "finished"), ("Admitted", "admitted"), ("QuotaReserved", "quotaReserved")):
        if has(workload, condition):
            return name
    return "pending"


def priority(workload: Mapping[str, Any]) -> int:
    """Its priority; 0 where none is given."""
    return int(workload["spec"].get("priority") or 0)


def checks_in(workload: Mapping[str, Any], state: str) -> list[Object]:
    """Its admission checks in a state, by name."""
    found = [check for check in status_of(workload).get("admissionChecks") or () if check["state"] == state]
    return sorted(found, key=lambda check: str(check["name"]))


def all_checks_ready(status: Mapping[str, Any]) -> bool:
    """Whether every check it has is Ready."""
    return all(check["state"] == "Ready" for check in status.get("admissionChecks") or ())


class Editor:
    """The next status of a Workload; `changed` once it differs from the one it has."""

    def __init__(self, workload: Object, now: str) -> None:
        self.workload = workload
        self.now = now
        self.status: Object = {**status_of(workload)}
        self._generation = workload["metadata"].get("generation")

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.status != status_of(self.workload)

    def edited(self) -> Object:
        """The Workload with that status, its conditions in Kueue's order."""
        status = {key: given for key, given in self.status.items() if given not in (None, [])}
        found = status.get("conditions")
        if found:
            status["conditions"] = _ordered(found)
        return {**self.workload, "status": status}

    # Conditions.

    def put(self, kind: str, value: str, reason: str, message: str, *, observed: bool = True) -> bool:
        """Set a condition; its time moves only with its status."""
        new: Object = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
            "lastTransitionTime": self.now,
        }
        if observed and self._generation is not None:
            new["observedGeneration"] = self._generation
        old = conditions.find(self.status, kind)
        if old is not None and old["status"] == value:
            new["lastTransitionTime"] = old["lastTransitionTime"]
        if old == new:
            return False
        conditions.replace(self.status, new)
        return True

    def requeued(self, reason: str, message: str, *, value: bool) -> bool:
        """Say whether it may stand in the queue again."""
        return self.put("Requeued", "True" if value else "False", reason, message)

    # Quota.

    def reserve(self, admission: Object) -> None:
        """Quota is reserved; what evicted it before is past."""
        self.status["admission"] = admission
        self.status.pop("resourceRequests", None)
        self.put(
            "QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {admission['clusterQueue']}"
        )
        for kind in ("Evicted", "Preempted"):
            before = conditions.find(self.status, kind)
            if before is not None and before["status"] == "True":
                self.put(kind, "False", "QuotaReserved", f"Previously: {before['message']}")

    def unreserve(self, reason: str, message: str) -> bool:
        """It has no quota, and why; True when that is news."""
        changed = self.put("QuotaReserved", "False", reason, message)
        if self.status.pop("admission", None) is not None:
            changed = True
        return self.sync_admitted() or changed

    def sync_admitted(self) -> bool:
        """Admitted is: quota and every check Ready. True when it changed."""
        reserved, ready = conditions.is_true(self.status, "QuotaReserved"), all_checks_ready(self.status)
        admitted = conditions.find(self.status, "Admitted")
        was = admitted is not None and admitted["status"] == "True"
        if was == (reserved and ready):
            return False
        if not was:
            return self.put("Admitted", "True", "Admitted", "The workload is admitted")
        if not reserved and not ready:
            reason = "NoReservationUnsatisfiedChecks"
            message = "The workload has no reservation and not all checks ready"
        elif not reserved:
            reason, message = "NoReservation", "The workload has no reservation"
        else:
            reason, message = "UnsatisfiedChecks", "The workload has not all checks ready"
        began = conditions.parse_stamp((admitted or {})["lastTransitionTime"])
        ran = int((conditions.parse_stamp(self.now) - began).total_seconds())
        past = self.status.get("accumulatedPastExecutionTimeSeconds", 0)
        self.status["accumulatedPastExecutionTimeSeconds"] = past + ran
        return self.put("Admitted", "False", reason, message)

    # Eviction.

    def evict(self, reason: str, message: str, cause: str = "") -> None:
        """It has to stop: the condition, its checks back to Pending, and one more in the count of evictions."""
        full = f"{reason}DueTo{cause}" if reason == "Deactivated" and cause else reason
        self.put("Evicted", "True", full, message)
        checks = self.status.get("admissionChecks")
        if checks:
            self.status["admissionChecks"] = [self._reset(check) for check in checks]
        self._count(reason, cause)

    def _reset(self, check: Object) -> Object:
        if check["state"] == "Pending":
            return check
        new: Object = {
            "name": check["name"],
            "state": "Pending",
            "message": f"Reset to Pending after eviction. Previously: {check['state']}",
            "lastTransitionTime": self.now,
        }
        if "requeueAfterSeconds" in check:
            new["requeueAfterSeconds"] = check["requeueAfterSeconds"]
        if check["state"] == "Retry":
            new["retryCount"] = check.get("retryCount", 0) + 1
        return new

    def _count(self, reason: str, cause: str) -> None:
        stats = self.status.get("schedulingStats") or {}
        evictions = [dict(each) for each in stats.get("evictions") or ()]
        for each in evictions:
            if (each["reason"], each["underlyingCause"]) == (reason, cause):
                each["count"] += 1
                break
        else:
            evictions.append({"reason": reason, "underlyingCause": cause, "count": 1})
        self.status["schedulingStats"] = {**stats, "evictions": evictions}


def _ordered(found: Iterable[Object]) -> list[Object]:
    known = {name: place for place, name in enumerate(_ORDER)}
    return sorted(found, key=lambda condition: known.get(condition["type"], len(_ORDER)))
