"""What a controller would make anew, beside pods that are still dying, must not be deleted; so whoever deletes what
has an owner first reads whether somebody above it lives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from dispatch_kubeflow.backend.objects import seen
from dispatch_kubeflow.backend.requests.resources import JOB_SETS, JOBS, TRAIN_JOBS, Resource

Look = Callable[[Resource, str, type[Struct]], Any]
"""Reads one object: `Got`, or None where its absence is believed."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The topmost object that would make another anew."""

    resource: Resource
    metadata: seen.Metadata


def living_owner(look: Look, kind: str, name: str, metadata: seen.Metadata) -> Owner | None:
    """What to stop instead of an object; None where nothing is left that would make it anew.

    `name`: for a JobSet, a copy and a snapshot that of their attempt, by which Trainer goes and not by UID.
    """
    if kind == "Pod":
        job = metadata.owner("Job")
        found = None if job is None else look(JOBS, job.name, seen.Job)
        if job is None or found is None or found.seen.metadata.uid != job.uid:
            return None
        above = _above(look, found.seen.metadata)
        return above or Owner(JOBS, found.seen.metadata)
    return _above(look, metadata, itself=name if kind != "Job" else None)


def _above(look: Look, metadata: seen.Metadata, *, itself: str | None = None) -> Owner | None:
    """The TrainJob of an object's name; for a Job without one, its JobSet."""
    jobset = metadata.owner("JobSet")
    name = itself or metadata.labels.jobset_name or (jobset.name if jobset is not None else None)
    if name is None:
        return None
    trainjob = look(TRAIN_JOBS, name, seen.TrainJob)
    if trainjob is not None:
        return Owner(TRAIN_JOBS, trainjob.seen.metadata)
    if jobset is None:
        return None
    found = look(JOB_SETS, jobset.name, seen.JobSet)
    if found is None or found.seen.metadata.uid != jobset.uid:
        return None
    return Owner(JOB_SETS, found.seen.metadata)
