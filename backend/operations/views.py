"""The state of a TrainJob is read from what was fetched and decided by table `states`, the same for every call."""

from __future__ import annotations

from collections.abc import Sequence

from dispatch_kubeflow.backend.objects import seen, state

from .call import Call, never


def state_of_view(call: Call, view: state.View) -> str:
    """gated, held, opened or ended, of a TrainJob with what was listed of it."""
    settings = call.adapter.settings
    facts = state.facts(view, mode=settings.mode, check_name=settings.admission_check)
    gives = call.decide("states", **facts.facts).gives
    if gives is None:
        never("table states gives a state")
    return gives


def state_of(
    call: Call,
    trainjob: seen.TrainJob,
    jobset: seen.JobSet | None,
    pods: Sequence[seen.Pod] = (),
    workloads: Sequence[seen.Workload] = (),
) -> str:
    """The same, of a TrainJob and the JobSet of its name, with what else was fetched."""
    return state_of_view(call, state.View(trainjob, jobset, pods=pods, workloads=workloads))
