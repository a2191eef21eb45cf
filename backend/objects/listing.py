"""Find sees a job through five or six lists, and must not call anything an orphan that is only being started, nor
lose sight of what outlived its TrainJob: here the lists are put together.

They were taken in this order: runtime copies, pods, Jobs, JobSets, Workloads, and TrainJobs last. So an owner that is
missing from a later list is gone, whereas a dependent that is missing from an earlier one may have been made since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from . import names
from . import workload as workloads
from .seen import Job, JobSet, Metadata, Pod, Runtime, TrainJob, Workload
from .state import View

OrphanKind = Literal["TrainingRuntime", "JobSet", "Job", "Pod"]
OrphanState = Literal["orphaned", "starting"]


@dataclass(frozen=True, slots=True)
class Listing:
    """All that carries the labels of one job."""

    runtimes: Sequence[Runtime] = ()
    pods: Sequence[Pod] = ()
    jobs: Sequence[Job] = ()
    jobsets: Sequence[JobSet] = ()
    workloads: Sequence[Workload] = ()
    trainjobs: Sequence[TrainJob] = ()


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something of the job without a TrainJob. `collecting`: it had an owner, and garbage collection is at it.

    `starting`: a runtime copy so young that its TrainJob may be on the way.
    """

    kind: OrphanKind
    metadata: Metadata
    state: OrphanState
    collecting: bool

    @property
    def attempt(self) -> int | None:
        return names.parse_attempt(self.metadata.labels.attempt)


def views(listing: Listing) -> tuple[View, ...]:
    """Each TrainJob with what was listed of it, the lowest attempt first."""
    found = [_view(listing, trainjob) for trainjob in listing.trainjobs]
    return tuple(sorted(found, key=lambda view: (attempt_of(view.trainjob) or 0, view.trainjob.metadata.name)))


def attempt_of(trainjob: TrainJob) -> int | None:
    """The attempt a TrainJob is, by its label."""
    return names.parse_attempt(trainjob.metadata.labels.attempt)


def _view(listing: Listing, trainjob: TrainJob) -> View:
    metadata = trainjob.metadata
    jobset = next((each for each in listing.jobsets if each.metadata.name == metadata.name), None)
    return View(
        trainjob=trainjob,
        jobset=jobset,
        jobs=[each for each in listing.jobs if _of_attempt(each.metadata, metadata)],
        pods=[each for each in listing.pods if _of_attempt(each.metadata, metadata)],
        workloads=workloads.of(metadata.uid, listing.workloads),
    )


def _of_attempt(one: Metadata, trainjob: Metadata) -> bool:
    return one.labels.attempt is not None and one.labels.attempt == trainjob.labels.attempt


def orphans(listing: Listing, *, now: datetime, call_bound: float) -> tuple[Orphan, ...]:
    """What is left without a TrainJob, in the order in which it is stopped: JobSets, Jobs, pods, copies.

    Only the topmost is named: what has a living owner goes with it. `call_bound` in seconds.
    """
    trainjobs = {each.metadata.name: each.metadata.uid for each in listing.trainjobs}
    jobsets = {each.metadata.uid for each in listing.jobsets}
    jobs = {each.metadata.uid for each in listing.jobs}
    found: list[Orphan] = []
    found += _without(listing.jobsets, "JobSet", trainjobs, set(trainjobs.values()))
    found += _without(listing.jobs, "Job", trainjobs, jobsets)
    found += _without(listing.pods, "Pod", trainjobs, jobs, pods=True)
    for runtime in listing.runtimes:
        copy = _copy(runtime.metadata, trainjobs, now=now, call_bound=call_bound)
        if copy is not None:
            found.append(copy)
    return tuple(found)


def _without(
    objects: Iterable[JobSet | Job | Pod],
    kind: OrphanKind,
    trainjobs: dict[str, str],
    owners: set[str],
    *,
    pods: bool = False,
) -> list[Orphan]:
    found = []
    for each in objects:
        metadata = each.metadata
        owned = bool(metadata.owner_references)
        if any(owner.uid in owners for owner in metadata.owner_references):
            continue
        named = _trainjob_name(metadata)
        # A pod whose Job is gone is its TrainJob's as long as that is there; so is anything that nobody owns.
        if named in trainjobs and (pods or not owned):
            continue
        found.append(Orphan(kind, metadata, "orphaned", collecting=owned))
    return found


def _trainjob_name(metadata: Metadata) -> str:
    """The name its TrainJob has, by its labels; its own name where they can't be read."""
    identity = names.identity(metadata.labels)
    return metadata.name if identity is None else identity.name


def _copy(metadata: Metadata, trainjobs: dict[str, str], *, now: datetime, call_bound: float) -> Orphan | None:
    if metadata.owner_references:
        if any(owner.uid in trainjobs.values() for owner in metadata.owner_references):
            return None
        return Orphan("TrainingRuntime", metadata, "orphaned", collecting=True)
    if metadata.name in trainjobs:
        return None
    young = is_young(metadata, now=now, call_bound=call_bound)
    return Orphan("TrainingRuntime", metadata, "starting" if young else "orphaned", collecting=False)


def is_young(copy: Metadata, *, now: datetime, call_bound: float) -> bool:
    """Whether the TrainJob of a runtime copy without an owner may still be on the way. `call_bound` in seconds."""
    created = copy.created
    return created is not None and (now - created).total_seconds() < call_bound
