"""Which pods of a Job count as active, ending, failed or done decides everything the Job controller does; the tests
of it stand here.
"""

from __future__ import annotations

from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.trainer_build import owner_reference
from dispatch_kubeflow.backend.embedded.copying import copied

Object = dict[str, Any]

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
ENDED = ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    """The pod's phase."""
    found: str = pod["status"].get("phase", "Pending")
    return found


def deleting(pod: Object) -> bool:
    """Whether the pod's deletion has begun."""
    return "deletionTimestamp" in pod["metadata"]


def active(pod: Object) -> bool:
    """Neither ended nor being deleted."""
    return phase(pod) not in ENDED and not deleting(pod)


def terminating(pod: Object) -> bool:
    """Being deleted, and not ended yet."""
    return phase(pod) not in ENDED and deleting(pod)


def ready(pod: Object) -> bool:
    """Active, and `Ready`."""
    return active(pod) and any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions") or ()
    )


def tracked(pod: Object) -> bool:
    """Whether the Job has not yet counted the pod, or let it go."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def index(pod: Object) -> int:
    """The pod's completion index; -1 if it has none."""
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def only_replaces_failed(job: Object) -> bool:
    """Whether the Job waits for a pod's end before it makes another (`podReplacementPolicy: Failed`)."""
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def failed(pod: Object, job: Object) -> bool:
    """Whether the pod counts as failed: at its deletion already, unless the Job only replaces failed pods."""
    if phase(pod) == "Failed":
        return True
    return not only_replaces_failed(job) and terminating(pod)


def restarts(pod: Object) -> int:
    """How often the pod's containers were restarted in place."""
    if phase(pod) not in ("Running", "Pending"):
        return 0
    status = pod["status"]
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return sum(container.get("restartCount", 0) for container in containers)


def released(pod: Object) -> Object:
    """The pod without the Job's finalizer."""
    metadata = dict(pod["metadata"])
    finalizers = [name for name in metadata.get("finalizers") or () if name != TRACKING]
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    return {**pod, "metadata": metadata}


def build_pod(job: Object, number: int) -> Object:
    """The pod of one completion index, as the Job controller creates it (the name is the apiserver's to make)."""
    template = copied(job["spec"]["template"])
    name = f"{job['metadata']['name']}-{number}"
    metadata = template.get("metadata") or {}
    metadata["generateName"] = f"{name}-"
    metadata["namespace"] = job["metadata"]["namespace"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), INDEX: str(number)}
    metadata["labels"] = {**(metadata.get("labels") or {}), INDEX: str(number)}
    metadata["finalizers"] = [TRACKING]
    metadata["ownerReferences"] = [owner_reference(job)]
    spec = template["spec"]
    spec["hostname"] = name
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            env = container.setdefault("env", [])
            if all(variable["name"] != "JOB_COMPLETION_INDEX" for variable in env):
                env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
