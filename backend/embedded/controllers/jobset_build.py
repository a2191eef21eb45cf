"""The Jobs of a JobSet carry the labels by which a job's pods are found; they are built here, purely."""

from __future__ import annotations

import hashlib
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.trainer_build import owner_reference
from dispatch_kubeflow.backend.embedded.copying import copied

Object = dict[str, Any]

PREFIX = "jobset.sigs.k8s.io/"
JOBSET_NAME = PREFIX + "jobset-name"
RESTART_ATTEMPT = PREFIX + "restart-attempt"
REPLICATED_JOB = PREFIX + "replicatedjob-name"


def job_name(jobset: Object, replicated: Object, index: int) -> str:
    """The name of one child Job."""
    return f"{jobset['metadata']['name']}-{replicated['name']}-{index}"


def subdomain(jobset: Object) -> str:
    """The headless Service's name, and so the pods' subdomain."""
    name: str = (jobset["spec"].get("network") or {}).get("subdomain") or jobset["metadata"]["name"]
    return name


def marks(jobset: Object, replicated: Object, index: int) -> dict[str, str]:
    """The labels, and annotations, that JobSet puts on a Job and its pods."""
    metadata = jobset["metadata"]
    jobs = jobset["spec"]["replicatedJobs"]
    group = replicated.get("groupName", "default")
    before = _replicas_before(jobs, replicated["name"])
    group_jobs = [job for job in jobs if job.get("groupName", "default") == group]
    name = job_name(jobset, replicated, index)
    return {
        JOBSET_NAME: metadata["name"],
        PREFIX + "jobset-uid": metadata["uid"],
        REPLICATED_JOB: replicated["name"],
        PREFIX + "replicatedjob-replicas": str(replicated.get("replicas", 1)),
        PREFIX + "global-replicas": str(sum(job.get("replicas", 1) for job in jobs)),
        RESTART_ATTEMPT: str((jobset.get("status") or {}).get("restarts", 0)),
        PREFIX + "job-index": str(index),
        PREFIX + "job-key": hashlib.sha1(f"{metadata['namespace']}/{name}".encode(), usedforsecurity=False).hexdigest(),
        PREFIX + "job-global-index": str(before + index),
        PREFIX + "group-name": group,
        PREFIX + "group-replicas": str(sum(job.get("replicas", 1) for job in group_jobs)),
        PREFIX + "job-group-index": str(_replicas_before(group_jobs, replicated["name"]) + index),
    }


def _replicas_before(jobs: list[Object], name: str) -> int:
    total = 0
    for job in jobs:
        if job["name"] == name:
            break
        total += int(job.get("replicas", 1))
    return total


def build_job(jobset: Object, replicated: Object, index: int) -> Object:
    """One child Job as JobSet creates it, suspended if the JobSet is."""
    labels = marks(jobset, replicated, index)
    template = copied(replicated["template"])
    spec = template["spec"]
    pods = spec["template"]
    pods["metadata"] = _marked(pods.get("metadata") or {}, labels)
    if (jobset["spec"].get("network") or {}).get("enableDNSHostnames", True):
        pods["spec"]["subdomain"] = subdomain(jobset)
    spec["suspend"] = bool(jobset["spec"].get("suspend", False))
    metadata = _marked(template.get("metadata") or {}, labels)
    metadata["name"] = job_name(jobset, replicated, index)
    metadata["namespace"] = jobset["metadata"]["namespace"]
    metadata["ownerReferences"] = [owner_reference(jobset)]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _marked(metadata: Object, labels: dict[str, str]) -> Object:
    return {
        **metadata,
        "labels": {**(metadata.get("labels") or {}), **labels},
        "annotations": {**(metadata.get("annotations") or {}), **labels},
    }


def build_service(jobset: Object) -> Object:
    """The headless Service that makes the pods' names resolve."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": subdomain(jobset),
            "namespace": jobset["metadata"]["namespace"],
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": {
            "clusterIP": "None",
            "clusterIPs": ["None"],
            "publishNotReadyAddresses": (jobset["spec"].get("network") or {}).get("publishNotReadyAddresses", True),
            "selector": {JOBSET_NAME: jobset["metadata"]["name"]},
        },
    }
