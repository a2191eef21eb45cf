"""The part of Kueue's own configuration that changes what a caller sees."""

from __future__ import annotations

from dataclasses import dataclass

UNMANAGED = frozenset({"kube-system", "kueue-system"})


@dataclass(frozen=True)
class KueueConfiguration:
    """How the cluster's Kueue is configured, with Kueue's own defaults.

    `manage_jobs_without_queue_name`: whether a TrainJob without a queue label is suspended, and given a Workload that
    waits for ever. `requeue_seconds`: how long after room was made those that found none are looked at again.
    """

    manage_jobs_without_queue_name: bool = False
    requeue_seconds: float = 1.0

    def manages(self, namespace: str) -> bool:
        """Whether `managedJobsNamespaceSelector` selects the namespace: by default all but Kubernetes' and its own."""
        return namespace not in UNMANAGED
