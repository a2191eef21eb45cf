"""What Start does more in kueue mode: nothing is created for an AdmissionCheck that nobody answers for, and nothing is
called started before its Workload carries the gate and the check that keep it from running.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from dispatch_kubeflow.backend.objects import names, queues, seen, workload
from dispatch_kubeflow.backend.requests import Event, Failure, Listed
from dispatch_kubeflow.backend.requests.resources import ADMISSION_CHECKS, WORKLOADS

from .call import Call, never


@dataclass(frozen=True, slots=True)
class Incomplete:
    """What of a Workload has not come in time: the result in the words of table `start`, and what was seen."""

    result: str
    seen: str


_INCOMPLETE: Mapping[workload.Shown, Incomplete] = {
    "none": Incomplete("timeout", "none"),
    "no-gate": Incomplete("ungated", f"{names.KUEUE_GATE} is not on it"),
    "no-check": Incomplete("unchecked", "its list of checks is without ours"),
}


def look_at_check(call: Call) -> None:
    """Between steps 2 and 3: our AdmissionCheck, without whose controller no job would be admitted."""
    name = call.adapter.settings.admission_check or ""
    found = call.look(ADMISSION_CHECKS, name, seen.AdmissionCheck)
    if found is None:
        result, details = "check-inactive", {"state": "absent"}
    elif queues.shown(found.seen) == "not-ours":
        result, details = "check-not-ours", {"seen": found.seen.spec.controller_name}
    elif queues.shown(found.seen) == "inactive":
        result, details = "check-inactive", {"state": queues.said(found.seen)}
    else:
        return
    call.settle("start", step="check", result=result, stopped="not-tried", details={"name": name, **details})


def workloads_of(call: Call, uid: str) -> tuple[seen.Workload, ...]:
    """The Workloads of a TrainJob, as far as they can be had: what they show is for a person to read."""
    found = call.try_list(WORKLOADS, names.workload_selector(uid), seen.Workload)
    return () if isinstance(found, Failure) else workload.of(uid, found)


def await_workload(call: Call, uid: str) -> Incomplete | Failure | None:
    """Step 7: None once the Workload of a TrainJob has come with gate and check, which come one after the other.

    Else what is missing when `workload_wait` is over, or the failure that ended the wait: that of the call's context
    too.
    """
    settings = call.adapter.settings
    ctx = call.ctx.child(timeout=settings.workload_wait)
    known: dict[str, seen.Workload] = {}
    shown: workload.Shown = "none"
    watch = call.adapter.door.watch(
        WORKLOADS,
        ctx,
        operation=call.operation,
        namespace=call.namespace,
        selector=names.workload_selector(uid),
        type=seen.Workload,
    )
    with closing(watch):
        for happening in watch:
            _keep(known, happening)
            shown = workload.shows(workload.of(uid, known.values()), settings.admission_check or "")
            if shown == "complete":
                return None
    if watch.failure is None:
        never("a watch ends by a failure")
    if call.ctx.ended is not None or ctx.ended is None:
        return watch.failure
    found = _INCOMPLETE[shown]
    return Incomplete(found.result, f"{found.seen} after {settings.workload_wait:g} s")


def _keep(known: dict[str, seen.Workload], happening: Listed[seen.Workload] | Event[seen.Workload]) -> None:
    """Keep what the watch brought, by UID."""
    if isinstance(happening, Listed):
        known.clear()
        known.update({each.metadata.uid: each for each in happening.items})
    elif happening.type == "DELETED":
        known.pop(happening.item.metadata.uid, None)
    else:
        known[happening.item.metadata.uid] = happening.item
