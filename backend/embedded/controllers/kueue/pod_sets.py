"""The pods a TrainJob would have are what quota is reserved for, and what its Workload must match; both are worked out
from the live runtime, as Kueue does.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.kueue import names
from dispatch_kubeflow.backend.embedded.controllers.quantities import canonical, value
from dispatch_kubeflow.backend.embedded.controllers.trainer_build import build_jobset
from dispatch_kubeflow.backend.embedded.copying import copied

Object = dict[str, Any]
Amounts = dict[str, Decimal]

_WORKLOAD_NAME_LIMIT = 253
_HASH_LENGTH = 5


def pod_sets(job: Object, runtime: Object) -> list[Object]:
    """One pod set a replicatedJob: its pod template and how many pods."""
    spec = build_jobset(job, runtime["spec"])["spec"]
    found: list[Object] = []
    for replicated in spec.get("replicatedJobs") or ():
        template = replicated["template"]["spec"]
        pods = template.get("parallelism", 1)
        pods = min(pods, template.get("completions", pods))
        found.append(
            {
                "name": replicated["name"],
                "count": replicated.get("replicas", 1) * pods,
                "template": _canonical(copied(template["template"])),
                "topologyRequest": {
                    "podIndexLabel": "batch.kubernetes.io/job-completion-index",
                    "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
                    "subGroupCount": replicated.get("replicas", 1),
                },
            }
        )
    return found


def _canonical(template: Object) -> Object:
    for container in _containers(template["spec"]):
        for amounts in (container.get("resources") or {}).values():
            if isinstance(amounts, dict):
                for name in amounts:
                    amounts[name] = canonical(amounts[name])
    return template


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def same(ours: list[Object], theirs: list[Object], *, tolerations: bool) -> bool:
    """Whether two lists of pod sets are the same to Kueue: counts, containers and, unless admitted, tolerations."""
    return [_compared(each, tolerations=tolerations) for each in ours] == [
        _compared(each, tolerations=tolerations) for each in theirs
    ]


def _compared(pod_set: Object, *, tolerations: bool) -> Object:
    spec = pod_set["template"]["spec"]
    found = {"count": pod_set["count"]} | {field: spec.get(field) or [] for field in ("initContainers", "containers")}
    return found | ({"tolerations": spec.get("tolerations") or []} if tolerations else {})


def pod_requests(spec: Object) -> Amounts:
    """What one pod asks for: its containers together or its greediest init container; a limit stands for a request
    that is not there.
    """
    total: Amounts = {}
    for container in spec.get("containers") or ():
        for name, amount in _asked(container).items():
            total[name] = total.get(name, Decimal(0)) + amount
    for container in spec.get("initContainers") or ():
        for name, amount in _asked(container).items():
            total[name] = max(total.get(name, Decimal(0)), amount)
    return total


def _asked(container: Object) -> Amounts:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: value(amount) for name, amount in asked.items()}


def total_requests(workload: Object) -> list[tuple[str, int, Amounts]]:
    """Name, number of pods and what they ask for together, of each pod set."""
    done = {each["name"]: each["count"] for each in (workload.get("status") or {}).get("reclaimablePods") or ()}
    found: list[tuple[str, int, Amounts]] = []
    for each in workload["spec"]["podSets"]:
        count = each["count"] - min(done.get(each["name"], 0), each["count"])
        asked = pod_requests(each["template"]["spec"])
        found.append((each["name"], count, {name: max(Decimal(0), amount) * count for name, amount in asked.items()}))
    return found


def shape(workload: Object) -> str:
    """What two Workloads share if the same answer of the scheduler is true of both."""
    sets = [
        {"name": each["name"], "count": count, "spec": each["template"]["spec"]}
        for each, (_, count, _) in zip(workload["spec"]["podSets"], total_requests(workload), strict=True)
    ]
    said = json.dumps([sets, workload["spec"].get("priority") or 0], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()


def workload_name(job: Object) -> str:
    """`trainjob-<name>-<5 hex digits of kind, group, name and UID>`."""
    metadata = job["metadata"]
    said = "\n".join(("TrainJob", "trainer.kubeflow.org", metadata["name"], metadata["uid"]))
    digest = hashlib.sha1(said.encode(), usedforsecurity=False).hexdigest()
    prefix = f"trainjob-{metadata['name']}"[: _WORKLOAD_NAME_LIMIT - 1 - _HASH_LENGTH]
    return f"{prefix}-{digest[:_HASH_LENGTH]}"


def own_patch(job: Object) -> Object | None:
    """Kueue's own entry of `runtimePatches`, or None."""
    for patch in job["spec"].get("runtimePatches") or ():
        if patch.get("manager") == names.PATCH_MANAGER:
            found: Object = patch
            return found
    return None


def patched(job: Object, replicated_jobs: list[Object] | None) -> Object | None:
    """The TrainJob with these patches of its replicatedJobs in Kueue's own entry (None: with none there); None where
    there is no such entry.
    """
    if own_patch(job) is None:
        return None
    patches = copied(job["spec"]["runtimePatches"])
    for patch in patches:
        if patch.get("manager") == names.PATCH_MANAGER:
            spec = patch["trainingRuntimeSpec"]["template"]["spec"]
            spec.pop("replicatedJobs", None)
            if replicated_jobs is not None:
                spec["replicatedJobs"] = replicated_jobs
    return {**job, "spec": {**job["spec"], "runtimePatches": patches}}


def as_kueue_sends(job: Object) -> Object:
    """The TrainJob as Kueue's client writes it back: without lists, maps and values of variables that are empty.

    Of `trainer` nothing may change, so a job that has any of these is never started.
    """
    trainer = job["spec"].get("trainer")
    if trainer is None:
        return job
    sent = {field: given for field, given in trainer.items() if field not in ("command", "args", "env") or given}
    if "env" in sent:
        sent["env"] = [
            {field: given for field, given in each.items() if field != "value" or given} for each in sent["env"]
        ]
    if "resourcesPerNode" in sent:
        sent["resourcesPerNode"] = {field: given for field, given in sent["resourcesPerNode"].items() if given}
    return {**job, "spec": {**job["spec"], "trainer": sent}}


def start_patches(workload: Object, flavors: dict[str, Object]) -> list[Object]:
    """What Kueue adds to the pods of an admitted job: its labels, and its flavors' node labels and tolerations."""
    found: list[Object] = []
    admission = workload["status"]["admission"]
    for assigned in admission.get("podSetAssignments") or ():
        spec: Object = {}
        for flavor in dict.fromkeys((assigned.get("flavors") or {}).values()):
            given = flavors[flavor].get("spec") or {}
            if given.get("nodeLabels"):
                spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **given["nodeLabels"]}
            if given.get("tolerations"):
                spec["tolerations"] = [*spec.get("tolerations", []), *given["tolerations"]]
        labels = {
            names.POD_CLUSTER_QUEUE: admission["clusterQueue"],
            names.POD_LOCAL_QUEUE: workload["spec"]["queueName"],
            names.POD_SET: assigned["name"],
        }
        metadata = {"annotations": {names.WORKLOAD: workload["metadata"]["name"]}, "labels": labels}
        found.append(
            {"name": assigned["name"], "template": {"spec": {"template": {"metadata": metadata, "spec": spec}}}}
        )
    return found
