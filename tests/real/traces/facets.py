"""The facets of each object that a trace follows, and what of their values is chance and therefore left out."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.real.api import Object

Trace = dict[str, list[Any]]
KINDS = ("trainjobs", "jobsets", "jobs", "pods")
QUEUE_KINDS = (*KINDS, "workloads")
"""What is watched where there is a Kueue."""
CHANCE = {"deadline_of_the_trainjob": ("#2", "trainjobs t #1: active")}
"""By scenario: what names objects that come by chance. A busy Trainer 2.3.0 deletes the JobSet at the deadline, makes
it again before it has seen its own `DeadlineExceeded`, and deletes it once more: its pods may even run for a moment.
"""
_INDEX = "batch.kubernetes.io/job-completion-index"
_TERMINAL = ("Failed", "Complete", "Completed")


def _conditions(obj: Object, types: Iterable[str]) -> dict[str, Any]:
    found = {each["type"]: each for each in obj.get("status", {}).get("conditions") or []}
    return {
        name: f"{found[name]['status']} {found[name].get('reason', '')}" if name in found else None for name in types
    }


def _numbers(status: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: status.get(name) or 0 for name in names}


def _train_job(obj: Object) -> dict[str, Any]:
    counts = {each["name"]: each for each in obj.get("status", {}).get("jobsStatus") or []}.get("node", {})
    return {
        "suspend": obj["spec"].get("suspend", False),
        **_conditions(obj, ("Suspended", "Complete", "Failed")),
        **_numbers(counts, ("active", "succeeded", "failed", "suspended")),
    }


def _job_set(obj: Object) -> dict[str, Any]:
    status = obj.get("status", {})
    counts = {each["name"]: each for each in status.get("replicatedJobsStatus") or []}.get("node", {})
    return {
        "suspend": obj["spec"].get("suspend", False),
        "terminalState": status.get("terminalState"),
        **_conditions(obj, ("Suspended", "Completed", "Failed")),
        **_numbers(counts, ("active", "succeeded", "failed", "suspended")),
        **_numbers(status, ("restarts",)),
    }


def _job(obj: Object) -> dict[str, Any]:
    status = obj.get("status", {})
    return {
        "suspend": obj["spec"].get("suspend", False),
        **_conditions(obj, ("Suspended", "SuccessCriteriaMet", "FailureTarget", "Complete", "Failed")),
        **_numbers(status, ("active", "succeeded", "failed", "terminating")),
        "completedIndexes": status.get("completedIndexes") or "",
        "failedIndexes": status.get("failedIndexes") or "",
    }


def _container(obj: Object) -> str:
    states = [each.get("state", {}) for each in obj.get("status", {}).get("containerStatuses") or []]
    state = states[0] if states else {}
    if "terminated" in state:
        return f"terminated {state['terminated']['exitCode']} {state['terminated'].get('reason', '')}"
    return "running" if "running" in state else "none"


def _pod(obj: Object) -> dict[str, Any]:
    disruption = _conditions(obj, ("DisruptionTarget",))
    return {
        "bound": bool(obj["spec"].get("nodeName")),
        "phase": obj.get("status", {}).get("phase"),
        "container": _container(obj),
        "tracked": "batch.kubernetes.io/job-tracking" in (obj["metadata"].get("finalizers") or []),
        **disruption,
    }


_SOMEBODY = re.compile(r"\(UID: [^)]*\)")


def _why(obj: Object, kind: str) -> str | None:
    """A condition's message, without whom it names."""
    found = [each for each in obj.get("status", {}).get("conditions") or [] if each["type"] == kind]
    return _SOMEBODY.sub("(somebody)", found[0]["message"]) if found else None


def _workload(obj: Object) -> dict[str, Any]:
    status = obj.get("status", {})
    evictions = status.get("schedulingStats", {}).get("evictions") or []
    return {
        "active": obj["spec"].get("active"),
        "gated": "kueue.x-k8s.io/admission-gated-by" in (obj["metadata"].get("annotations") or {}),
        "kept": bool(obj["metadata"].get("finalizers")),
        **_conditions(obj, ("QuotaReserved", "Admitted", "Evicted", "Preempted", "Requeued", "Finished")),
        **_conditions(obj, ("DeactivationTarget", "PodsReady")),
        "why": _why(obj, "QuotaReserved"),
        "evicted because": _why(obj, "Evicted"),
        "finished because": _why(obj, "Finished"),
        "checks": ", ".join(f"{each['state']} ({each['message']})" for each in status.get("admissionChecks") or []),
        "admission": status.get("admission", {}).get("podSetAssignments"),
        "evictions": ", ".join(f"{each['count']} {each['reason']} {each['underlyingCause']}" for each in evictions),
        "requests": status.get("resourceRequests"),
    }


_READ: dict[str, Callable[[Object], dict[str, Any]]] = {
    "trainjobs": _train_job,
    "jobsets": _job_set,
    "jobs": _job,
    "pods": _pod,
    "workloads": _workload,
}


class Watched:
    """Gathers the events of every kind into a trace. Objects are told apart by name and the order they came in."""

    def __init__(self, hidden: str = "") -> None:
        """`hidden`: a name of this run's own, which the trace calls `<own>`."""
        self._hidden = hidden
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._values: dict[str, dict[str, list[Any]]] = {}

    def see(self, kind: str, event: str, obj: Object) -> None:
        """One event of a watch."""
        name = self._name(kind, obj)
        facets = _READ[kind](obj)
        owners = obj["metadata"].get("ownerReferences") or []
        facets["owned"] = bool(owners)
        facets["life"] = (
            "gone" if event == "DELETED" else "deleting" if "deletionTimestamp" in obj["metadata"] else "there"
        )
        if self._hidden:
            facets = json.loads(json.dumps(facets).replace(self._hidden, "<own>"))
        kept = self._values.setdefault(name, {})
        for facet, value in facets.items():
            values = kept.setdefault(facet, [])
            if not values or values[-1] != value:
                values.append(value)

    def _name(self, kind: str, obj: Object) -> str:
        uid = obj["metadata"]["uid"]
        if uid not in self._names:
            name = obj["metadata"]["name"]
            if kind == "pods":
                job = obj["metadata"]["labels"]["batch.kubernetes.io/job-name"]
                name = f"{job}/{obj['metadata']['annotations'][_INDEX]}"
            if kind == "workloads":
                name = name.removeprefix("trainjob-").rpartition("-")[0]
            place = f"{kind} {name}"
            self._counts[place] = self._counts.get(place, 0) + 1
            self._names[uid] = f"{place} #{self._counts[place]}"
        return self._names[uid]

    def trace(self) -> Trace:
        """Every facet's values so far, by object; facets that never were anything are left out."""
        found = {
            f"{name}: {facet}": turns(values)
            for name, facets in self._values.items()
            for facet, values in facets.items()
        }
        seen = {key: _settled_at_last(values) for key, values in found.items()}
        return {key: values for key, values in sorted(seen.items()) if values not in ([None], [0], [""])}


_GATE_JUST_LIFTED = ("False Pending", "AdmissionGatedBy cleared, waiting for quota reservation")


def _settled_at_last(values: list[Any]) -> list[Any]:
    """Without what is said between a gate and a reservation: whether that comes first is chance."""
    first = next((place for place, value in enumerate(values) if value in _GATE_JUST_LIFTED), None)
    before = "" if not first else str(values[first - 1])
    if first is None or first + 1 == len(values) or not before.endswith(("AdmissionGated", "/gate")):
        return values
    return values[:first] + values[first + 1 :]


def turns(values: list[Any]) -> list[Any]:
    """Of numbers only the turning points: whether a count of 2 was reached by way of 1 is chance."""
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in values) or len(values) < 3:
        return list(values)
    inner = [
        here for before, here, after in zip(values, values[1:], values[2:], strict=False)
        if (here > before) != (after > here)
    ]  # fmt: skip
    return [values[0], *inner, values[-1]]


def differences(recorded: Mapping[str, list[list[Any]]], trace: Trace) -> list[str]:
    """Where a trace shows what none of the recorded ones did. `recorded` has for each facet what was seen of it."""
    found = []
    for key in sorted({*recorded, *trace}):
        seen = recorded.get(key, [None])
        if trace.get(key) not in seen:
            found.append(f"{key}: recorded {' or '.join(map(str, seen))}, here {trace.get(key)}")
    return found


def settled(name: str, trace: Trace) -> Trace:
    """A scenario's trace without the objects that are there by chance alone."""
    return {key: values for key, values in trace.items() if not any(part in key for part in CHANCE.get(name, ()))}


def merged(traces: Iterable[Trace]) -> dict[str, list[Any]]:
    """For each facet what several traces of a scenario showed: nearly always the same."""
    every = list(traces)
    result: dict[str, list[Any]] = {}
    for key in sorted(set(itertools.chain.from_iterable(every))):
        variants: list[Any] = []
        for trace in every:
            if trace.get(key) not in variants:
                variants.append(trace.get(key))
        result[key] = variants
    return result
