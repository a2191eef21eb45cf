"""Names and keys are the only thing that ties what runs in the cluster to a caller's job; they are written and read
in one place, so that what one call writes every other finds.

Labels are what Find selects by; annotations are the record. The prefix `dispatch-kubeflow.io/` is ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .seen import Labels, Metadata

PREFIX: Final = "dispatch-kubeflow.io"

# Labels, on the TrainJob and the runtime copy, and through the copy on the JobSet, its Jobs and their pods.
BACKEND: Final = f"{PREFIX}/backend"
JOB: Final = f"{PREFIX}/job"
ATTEMPT: Final = f"{PREFIX}/attempt"

# Annotations of the TrainJob; nonce and digest on the copy as well.
MODE: Final = f"{PREFIX}/mode"
NONCE: Final = f"{PREFIX}/nonce"
DIGEST: Final = f"{PREFIX}/digest"
GATE: Final = f"{PREFIX}/gate"
HOLD: Final = f"{PREFIX}/hold"

# Annotation of a Workload that a hold has made inactive: the hold's instance.
HELD: Final = f"{PREFIX}/held"

# Annotations of the runtime copy: what it was copied from.
SOURCE_KIND: Final = f"{PREFIX}/source-kind"
SOURCE_NAME: Final = f"{PREFIX}/source-name"
SOURCE_UID: Final = f"{PREFIX}/source-uid"
SOURCE_RESOURCE_VERSION: Final = f"{PREFIX}/source-resource-version"

# The manager of our entry in a TrainJob's runtimePatches, and the field manager of our writes to a Workload's check.
CHECKPOINT_MANAGER: Final = f"{PREFIX}/checkpoint"
FIELD_MANAGER: Final = f"{PREFIX}/admission"
# The controller name that our AdmissionChecks carry.
CHECK_CONTROLLER: Final = f"{PREFIX}/admission"

# Others' keys.
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
ADMISSION_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
KUEUE_GATE: Final = f"{PREFIX}/gate"
KUEUE_MANAGER: Final = "kueue.x-k8s.io/manager"
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
TRAINER_GROUP: Final = "trainer.kubeflow.org"
TRAINER_VERSION: Final = f"{TRAINER_GROUP}/v1alpha1"
TRAINJOB_CONTROLLER: Final = f"{TRAINER_GROUP}/trainjob-controller"
ANCESTOR: Final = f"{TRAINER_GROUP}/trainjob-ancestor-step"
VALIDATION_SWITCH: Final = f"{TRAINER_GROUP}/webhook-validation"
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"

# The replicated job and the container that train.
NODE: Final = "node"

# Environment of the job's containers, set in the runtime copy.
ENV_JOB: Final = "DISPATCH_JOB_ID"
ENV_ATTEMPT: Final = "DISPATCH_ATTEMPT"
ENV_BACKEND: Final = "DISPATCH_BACKEND"
ENV_CHECKPOINT: Final = "DISPATCH_CHECKPOINT"

_JOB_ID = re.compile(r"[a-z](?:[-a-z0-9]{0,37}[a-z0-9])?")
_ATTEMPT = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which attempt of which job, by which backend, an object belongs to."""

    backend: str
    job: str
    attempt: int

    @property
    def name(self) -> str:
        """The name of the attempt's TrainJob, runtime copy and JobSet."""
        return object_name(self.job, self.attempt)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that say so."""
        return {BACKEND: self.backend, JOB: self.job, ATTEMPT: str(self.attempt)}


def object_name(job: str, attempt: int) -> str:
    """The name of an attempt's TrainJob, runtime copy and JobSet."""
    return f"{job}-{attempt}"


def snapshot_name(name: str) -> str:
    """The ConfigMap in which Trainer keeps the runtime that a TrainJob of this name started with."""
    return f"{name}-runtime-snapshot"


def notes_name(name: str) -> str:
    """The ConfigMap in which watch keeps its notes on the pods of a TrainJob of this name."""
    return f"{name}-notes"


def parse_name(name: str) -> tuple[str, int] | None:
    """Job and attempt from an object's name, or None where we would not have given that name."""
    job, dash, attempt = name.rpartition("-")
    if not dash or not _JOB_ID.fullmatch(job) or not _ATTEMPT.fullmatch(attempt):
        return None
    return job, int(attempt)


def parse_attempt(text: str | None) -> int | None:
    """An attempt's number as a label carries it, or None where it is absent or not as we write it."""
    return int(text) if text is not None and _ATTEMPT.fullmatch(text) else None


def identity(labels: Labels) -> Identity | None:
    """Backend, job and attempt from our labels, or None where one is absent or not as we write it."""
    attempt = parse_attempt(labels.attempt)
    if attempt is None or not labels.backend or labels.job is None or not _JOB_ID.fullmatch(labels.job):
        return None
    return Identity(labels.backend, labels.job, attempt)


def named_identity(metadata: Metadata) -> Identity | None:
    """As `identity`, for an object that carries the attempt's own name: labels and name must agree."""
    found = identity(metadata.labels)
    return found if found is not None and found.name == metadata.name else None


def job_selector(backend: str, job: str) -> str:
    """The label selector of everything of one job, of whatever attempt."""
    return f"{BACKEND}={backend},{JOB}={job}"


def backend_selector(backend: str) -> str:
    """The label selector of everything of one backend."""
    return f"{BACKEND}={backend},{JOB}"


def workload_selector(uid: str) -> str:
    """The label selector of the Workload of one TrainJob."""
    return f"{JOB_UID}={uid}"


def rank0_selector(name: str) -> str:
    """The label selector of the rank 0 pods of a TrainJob of this name; there may be several in its life."""
    return f"{JOBSET_NAME}={name},{REPLICATED_JOB}={NODE},{JOB_INDEX}=0,{COMPLETION_INDEX}=0"
