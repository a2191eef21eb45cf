"""The extensions of a job specification that this adapter knows, by the page's names; any other is row C10."""

from __future__ import annotations

from dataclasses import dataclass

IMAGE = "dispatch/Image"
RUNTIME_REF = "kubeflow/RuntimeRef"
SHARED_CHECKPOINT = "dispatch/SharedCheckpoint"
EXTENSIONS = (IMAGE, RUNTIME_REF, SHARED_CHECKPOINT)
RUNTIME_KINDS = ("TrainingRuntime", "ClusterTrainingRuntime")


@dataclass(frozen=True, slots=True, order=True)
class RuntimeRef:
    """Names a runtime: `ClusterTrainingRuntime/torch-distributed`, or a `TrainingRuntime` of the namespace."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class SharedCheckpoint:
    """A PersistentVolumeClaim of the namespace, mounted into every node at this absolute path."""

    claim: str
    path: str
