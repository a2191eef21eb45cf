"""Find and Watch must see the same kinds in the same order, or one could call an orphan what the other knows to be
starting: so what is listed of a job is said once.

Owners come after what they own. An owner that is missing from a later list is gone; TrainJobs come last of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.backend.objects.listing import Listing
from dispatch_kubeflow.backend.requests.resources import (
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
    Resource,
)

from .call import Call


@dataclass(frozen=True, slots=True)
class ListedKind:
    """One list of Find: where its items stand in a `Listing`, what is asked for, and what is kept of each item."""

    field: str
    resource: Resource
    type: type[Struct]


WORKLOAD_KIND = ListedKind("workloads", WORKLOADS, seen.Workload)
_BELOW = (
    ListedKind("runtimes", TRAINING_RUNTIMES, seen.Runtime),
    ListedKind("pods", PODS, seen.Pod),
    ListedKind("jobs", JOBS, seen.Job),
    ListedKind("jobsets", JOB_SETS, seen.JobSet),
)
_LAST = ListedKind("trainjobs", TRAIN_JOBS, seen.TrainJob)


def listed_kinds(mode: str) -> tuple[ListedKind, ...]:
    """What is listed of a job, in order."""
    workloads = (WORKLOAD_KIND,) if mode == "kueue" else ()
    return (*_BELOW, *workloads, _LAST)


def selector(kind: ListedKind, ours: str) -> str:
    """The label selector of one list. Workloads carry no label of ours: all are taken, and matched afterwards."""
    return names.JOB_UID if kind is WORKLOAD_KIND else ours


def list_job(call: Call, job_id: str) -> Listing:
    """All that carries the labels of one job, in five lists, six in kueue mode; or what table `request` says."""
    ours = names.job_selector(call.adapter.settings.name, job_id)
    kinds = listed_kinds(call.mode)
    return listing_of({kind.field: call.list(kind.resource, selector(kind, ours), kind.type) for kind in kinds})


def listing_of(items: Mapping[str, Sequence[Any]]) -> Listing:
    """A listing from the items of each kind."""
    return Listing(**items)
