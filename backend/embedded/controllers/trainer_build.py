"""What Trainer makes of a TrainJob and its runtime is the ground on which the adapter's expectations stand; it is
built here, purely.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.quantities import value
from dispatch_kubeflow.backend.embedded.copying import copied
from dispatch_kubeflow.backend.embedded.patches import strategic

Object = dict[str, Any]

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER = "trainer"
NODE = "node"
LAUNCHER = "launcher"
INITIALIZERS = {"dataset-initializer": "dataset", "model-initializer": "model"}
MASTER_PORT = 29500
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
TORCH_TUNE = ["tune", "run"]


def owner_reference(owner: Object) -> Object:
    """The controlling ownerReference that a controller writes."""
    return {
        "apiVersion": owner["apiVersion"],
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def build_jobset(train_job: Object, runtime_spec: Object) -> Object:
    """The JobSet Trainer 2.3.0 applies for `train_job` under a runtime's spec (the snapshot's)."""
    template = copied(runtime_spec.get("template") or {})
    spec = template.get("spec") or {}
    for patch in _template_patches(train_job):
        _merge_jobs(spec, patch)
    policy = runtime_spec.get("mlPolicy")
    for job in spec.get("replicatedJobs") or ():
        _complete(job)
        _initializer(job, train_job)
        _trainer(job, train_job, policy)
    spec["suspend"] = bool(train_job["spec"].get("suspend", False))
    metadata: Object = {
        "name": train_job["metadata"]["name"],
        "namespace": train_job["metadata"]["namespace"],
        "ownerReferences": [owner_reference(train_job)],
    }
    for field in ("labels", "annotations"):
        merged = dict((template.get("metadata") or {}).get(field) or {})
        for patch in _template_patches(train_job):
            merged.update((patch.get("metadata") or {}).get(field) or {})
        if merged:
            metadata[field] = merged
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def ancestor(job: Object) -> str | None:
    """Which step of a TrainJob a replicatedJob is, by its Job template's label."""
    labels = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
    step: str | None = labels.get(ANCESTOR)
    return step


def containers(job: Object) -> list[Object]:
    """The containers of a replicatedJob's pod template."""
    found: list[Object] = job["template"]["spec"]["template"]["spec"].get("containers") or []
    return found


def _template_patches(train_job: Object) -> Iterator[Object]:
    for patch in train_job["spec"].get("runtimePatches") or ():
        template = (patch.get("trainingRuntimeSpec") or {}).get("template")
        if template:
            yield template


def _merge_jobs(spec: Object, patch: Object) -> None:
    for job_patch in (patch.get("spec") or {}).get("replicatedJobs") or ():
        wanted = job_patch.get("template") or {}
        for job in spec.get("replicatedJobs") or ():
            if job["name"] == job_patch["name"]:
                job["template"] = strategic(job["template"], wanted, "jobs")
                break
        else:
            # Trainer adds it; what it lacks is JobSet's to refuse.
            spec.setdefault("replicatedJobs", []).append(
                {"name": job_patch["name"], "template": strategic({}, wanted, "jobs")}
            )


def _complete(job: Object) -> None:
    job.setdefault("groupName", "default")
    job.setdefault("replicas", 1)
    job["template"].setdefault("metadata", {})
    pods = job["template"].setdefault("spec", {}).setdefault("template", {})
    pods.setdefault("metadata", {})
    pods.setdefault("spec", {}).setdefault("containers", [])
    for container in pods.setdefault("spec", {}).get("containers") or ():
        container.setdefault("resources", {})


def _initializer(job: Object, train_job: Object) -> None:
    step = INITIALIZERS.get(ancestor(job) or "")
    if step is None:
        return
    job["replicas"] = 1
    wanted = (train_job["spec"].get("initializer") or {}).get(step)
    if wanted is None:
        return
    for container in containers(job):
        if container["name"] == ancestor(job):
            if wanted.get("storageUri") is not None:
                _put_env(container, [{"name": "STORAGE_URI", "value": wanted["storageUri"]}])
            _put_env(container, wanted.get("env") or [])
            if wanted.get("secretRef"):
                container.setdefault("envFrom", []).append({"secretRef": dict(wanted["secretRef"])})


def _trainer(job: Object, train_job: Object, policy: Object | None) -> None:
    if ancestor(job) != TRAINER:
        return
    wanted = train_job["spec"].get("trainer")
    nodes = _nodes(job, wanted, policy)
    job["replicas"] = 1
    job["template"]["spec"]["parallelism"] = nodes
    job["template"]["spec"]["completions"] = nodes
    for container in containers(job):
        if container["name"] != NODE:
            continue
        before = container.get("resources") or {}
        if wanted is not None:
            _override(container, wanted)
        if wanted is not None and policy is not None and policy.get("torch") is not None:
            _torch(container, train_job, wanted, nodes, before)


def _nodes(job: Object, wanted: Object | None, policy: Object | None) -> int:
    given = (wanted or {}).get("numNodes")
    if policy is None:
        return int(job["template"]["spec"].get("parallelism", 1))
    return int(given if given is not None else policy.get("numNodes", 1))


def _override(container: Object, wanted: Object) -> None:
    for field in ("image", "command", "args"):
        if wanted.get(field) is not None:
            container[field] = copied(wanted[field])
    resources = wanted.get("resourcesPerNode")
    if resources is not None:
        merged = dict(container.get("resources") or {})
        for side in ("limits", "requests"):
            if resources.get(side) is not None:
                merged[side] = {**(merged.get(side) or {}), **resources[side]}
        container["resources"] = merged
    _put_env(container, wanted.get("env") or [])


def _torch(container: Object, train_job: Object, wanted: Object, nodes: int, before: Object) -> None:
    name = train_job["metadata"]["name"]
    resources = before if wanted.get("resourcesPerNode") is None else wanted["resourcesPerNode"]
    variables: list[Object] = [
        {"name": "PET_NNODES", "value": str(nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": processes_per_node(wanted, resources)},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}},
    ]
    if wanted.get("command") != TORCH_TUNE:
        variables.append({"name": "PET_MASTER_ADDR", "value": f"{name}-{NODE}-0-0.{name}"})
        variables.append({"name": "PET_MASTER_PORT", "value": str(MASTER_PORT)})
    _put_env(container, variables)
    ports = list(container.get("ports") or [])
    _put(ports, {"containerPort": MASTER_PORT, "protocol": "TCP"}, "containerPort")
    container["ports"] = ports


def processes_per_node(wanted: Object, resources: Object) -> str:
    """Trainer's rule for `PET_NPROC_PER_NODE`: what is given, else `auto` beside any GPU, else the CPUs, at least 1."""
    given = wanted.get("numProcPerNode")
    if given is not None:
        return str(int(given)) if isinstance(given, int | float) else str(given)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if _gpus(requests) or _gpus(limits):
        return "auto"
    cpus = value(requests.get("cpu", "0")) or value(limits.get("cpu", "0"))
    return str(max(1, math.ceil(cpus)))


def _gpus(amounts: Object) -> int:
    """The first resource that has `gpu` in its name counts, and none after it."""
    counted = [math.ceil(value(amount)) for name, amount in sorted(amounts.items()) if "gpu" in name.lower()]
    return counted[0] if counted else 0


def _put_env(container: Object, variables: list[Object]) -> None:
    env = list(container.get("env") or [])
    for variable in variables:
        _put(env, copied(variable), "name")
    if env:
        container["env"] = env


def _put(items: list[Object], item: Object, key: str) -> None:
    for index, old in enumerate(items):
        if old.get(key) == item.get(key):
            items[index] = item
            return
    items.append(item)
