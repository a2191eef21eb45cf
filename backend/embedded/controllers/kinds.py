"""The controllers touch kinds that the adapter never asks for; they are named here, beside the adapter's own."""

from __future__ import annotations

from dispatch_kubeflow.backend.requests.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    EVENTS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)

SERVICES = Resource("", "v1", "services", "Service")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

__all__ = [
    "CLUSTER_TRAINING_RUNTIMES",
    "CONFIG_MAPS",
    "EVENTS",
    "JOBS",
    "JOB_SETS",
    "NAMESPACES",
    "NODES",
    "PODS",
    "SERVICES",
    "TRAINING_RUNTIMES",
    "TRAIN_JOBS",
    "Resource",
]
