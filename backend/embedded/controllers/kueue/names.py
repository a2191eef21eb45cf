"""Kueue's vocabulary, in one place: the labels and annotations it reads, the kinds, and the words of its conditions."""

from __future__ import annotations

from dispatch_kubeflow.backend.requests.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    WORKLOADS,
    Resource,
)

__all__ = [
    "ADMISSION_CHECKS",
    "CLUSTER_QUEUES",
    "LOCAL_QUEUES",
    "PRIORITY_CLASSES",
    "RESOURCE_FLAVORS",
    "WORKLOADS",
    "WORKLOAD_PRIORITY_CLASSES",
]

RELEASE = "kueue-v0.19.2"
RESOURCE_FLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
WORKLOAD_PRIORITY_CLASSES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
MAX_EXEC_TIME = "kueue.x-k8s.io/max-exec-time-seconds"
JOB_UID = "kueue.x-k8s.io/job-uid"
GATED_BY = "kueue.x-k8s.io/admission-gated-by"
FINALIZER = "kueue.x-k8s.io/resource-in-use"
WORKLOAD = "kueue.x-k8s.io/workload"
POD_SET = "kueue.x-k8s.io/podset"
POD_LOCAL_QUEUE = "kueue.x-k8s.io/local-queue-name"
POD_CLUSTER_QUEUE = "kueue.x-k8s.io/cluster-queue-name"
PATCH_MANAGER = "kueue.x-k8s.io/manager"
DEFAULT_QUEUE = "default"

MANAGER = "kueue"
ADMISSION_MANAGER = "kueue-admission"
