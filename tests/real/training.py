"""The objects of a training job, written by hand: a judge must not build them with the code it judges."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from .api import Object
from .cluster import Cluster

SOURCE = "torch-distributed"
_VERSION = "trainer.kubeflow.org/v1alpha1"
_CLUSTER_RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"


def hardened_copy(
    cluster: Cluster,
    name: str,
    pods: Mapping[str, str],
    *,
    policy: str | None = "Failed",
    selector: Mapping[str, str] | None = None,
    deadline: int | None = None,
) -> Object:
    """A copy of the torch runtime as the cluster has it; see `hardened`."""
    source = cluster.api.get(f"{_CLUSTER_RUNTIMES}/{SOURCE}")
    return hardened(source, name, pods, policy=policy, selector=selector, deadline=deadline)


def hardened(
    source: Object,
    name: str,
    pods: Mapping[str, str],
    *,
    policy: str | None = "Failed",
    selector: Mapping[str, str] | None = None,
    deadline: int | None = None,
) -> Object:
    """A copy of a runtime in which a pod runs once and is replaced only when it has ended.

    `pods` are annotations of the pod template: what their kubelets do with them (see stages/pods.yaml); `selector` is
    its nodeSelector. With `policy` None a pod is replaced as soon as it terminates, as is Kubernetes' default.
    `deadline` is each Job's, in seconds.
    """
    spec = copy.deepcopy(source["spec"])
    for replicated in spec["template"]["spec"]["replicatedJobs"]:
        job = replicated["template"]["spec"]
        job["backoffLimit"] = 0
        if policy is not None:
            job["podReplacementPolicy"] = policy
        if deadline is not None:
            job["activeDeadlineSeconds"] = deadline
        job["template"]["spec"]["restartPolicy"] = "Never"
        if selector is not None:
            job["template"]["spec"]["nodeSelector"] = dict(selector)
        job["template"].setdefault("metadata", {}).setdefault("annotations", {}).update(pods)
    return {"apiVersion": _VERSION, "kind": "TrainingRuntime", "metadata": {"name": name}, "spec": spec}


def train_job(name: str, *, nodes: int = 2, suspend: bool = True) -> Object:
    """A TrainJob on the copy of its own name."""
    return {
        "apiVersion": _VERSION,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "suspend": suspend,
            "runtimeRef": {"kind": "TrainingRuntime", "name": name},
            "trainer": {"image": "example.invalid/train:1", "command": ["train"], "numNodes": nodes},
        },
    }


def start(cluster: Cluster, namespace: str, name: str, pods: Mapping[str, str], *, nodes: int = 2) -> Object:
    """Creates a gated job: its copy, then the TrainJob, suspended. Returns the TrainJob."""
    cluster.api.post(cluster.runtimes(namespace), hardened_copy(cluster, name, pods))
    return cluster.api.post(cluster.train_jobs(namespace), train_job(name, nodes=nodes))


def suspend(cluster: Cluster, namespace: str, name: str, value: bool) -> Object:
    """Opens or releases (False), or holds (True)."""
    return cluster.api.merge(f"{cluster.train_jobs(namespace)}/{name}", {"spec": {"suspend": value}})
