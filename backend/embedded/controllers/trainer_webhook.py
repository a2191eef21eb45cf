"""A TrainJob is changed and judged by Trainer's webhooks at every write; their 400s and 403s are what a caller meets
first.

Pure functions: the caller gives the runtime and the JobSet as Trainer's cache holds them.
"""

from __future__ import annotations

import json
import re
from typing import Any

from dispatch_kubeflow.backend.embedded.admission import Denial, undecodable
from dispatch_kubeflow.backend.embedded.controllers.decode import TRAIN_JOB, DecodeError, check, quantities
from dispatch_kubeflow.backend.embedded.controllers.quantities import canonical
from dispatch_kubeflow.backend.embedded.controllers.trainer_build import (
    ANCESTOR,
    INITIALIZERS,
    NODE,
    TRAINER,
    containers,
)

Object = dict[str, Any]

DEFAULTER = "defaulter.trainjob.trainer.kubeflow.org"
VALIDATOR = "validator.trainjob.trainer.kubeflow.org"
RUNTIME_VALIDATORS = {
    "TrainingRuntime": "validator.trainingruntime.trainer.kubeflow.org",
    "ClusterTrainingRuntime": "validator.clustertrainingruntime.trainer.kubeflow.org",
}
_PREFIXED = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[^/\s][^\s]*")
EXEMPTION = "trainer.kubeflow.org/webhook-validation"
GROUP = "trainer.kubeflow.org"
TORCH_RESERVED = ("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
MPI_RESERVED = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)
XGBOOST_RESERVED = ("DMLC_NUM_WORKER", "DMLC_TASK_ID", "DMLC_TRACKER_PORT", "DMLC_TRACKER_URI")


def default_train_job(new: Object, old: Object | None, now: str) -> Object | Denial | None:
    """Stamp `runtimePatches` with `time`; if that changed anything, all quantities come back in canonical form.

    None where nothing changes; a 400 `Denial` where the object does not fit its Go type.
    """
    try:
        check(TRAIN_JOB, new)
    except DecodeError as error:
        return undecodable(str(error))
    spec = new.get("spec") or {}
    patches = spec.get("runtimePatches") or []
    stamped = [_stamped(patch, old, now) for patch in patches]
    if stamped == patches:
        return None
    spec["runtimePatches"] = stamped
    for place, key in list(quantities(TRAIN_JOB, new)):
        place[key] = canonical(place[key])
    return new


def _stamped(patch: Object, old: Object | None, now: str) -> Object:
    earlier = (old or {}).get("spec", {}).get("runtimePatches") or []
    for entry in earlier:
        if entry["manager"] == patch.get("manager"):
            if _timeless(entry) != _timeless(patch):
                return {**patch, "time": now}
            return {**patch, "time": entry["time"]} if "time" in entry else _timeless(patch)
    return patch if patch.get("time") else {**patch, "time": now}


def _timeless(patch: Object) -> Object:
    return {field: given for field, given in patch.items() if field != "time"}


def validate_train_job(new: Object, old: Object | None, runtime: Object | None, jobset: Object | None) -> Denial | None:
    """Trainer's validator at create (`old` None) and update.

    What a patch names and the runtime has not is no fault: Trainer looks for it where it has already laid the patch.
    """
    reference = (new.get("spec") or {}).get("runtimeRef") or {}
    group, kind = reference.get("apiGroup", ""), reference.get("kind", "")
    if group != GROUP or kind not in RUNTIME_VALIDATORS:
        return Denial(f"unsupported runtime: {kind}{'.' if group else ''}{group}")
    if runtime is None:
        return Denial(_runtime_missing(reference, kind))
    faults = [*_reserved(new, runtime), *_initializers(new, runtime), *_immutability(new, old, jobset)]
    faults += _patches(new)
    return Denial(aggregate(faults)) if faults else None


def aggregate(faults: list[str]) -> str:
    """Several faults in one text, as Go's aggregate writes them."""
    unique = list(dict.fromkeys(faults))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def _runtime_missing(reference: Object, kind: str) -> str:
    # The two paths are spelt differently in Trainer too.
    path, words = "RuntimeRef", "clusterTrainingRuntime"
    if kind == "TrainingRuntime":
        path, words = "runtimeRef", "trainingRuntime"
    absent = f"{kind}.{GROUP} {json.dumps(reference['name'])} not found"
    return (
        f"spec.{path}: Invalid value: {_shown(reference)}: {absent}: "
        f"specified {words} must be created before the TrainJob is created"
    )


def _shown(reference: Object) -> str:
    return compact({field: reference[field] for field in ("name", "apiGroup", "kind") if field in reference})


def compact(given: Any) -> str:
    """JSON as Go's error messages show a value."""
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False)


def _reserved(new: Object, runtime: Object) -> list[str]:
    trainer = new["spec"].get("trainer") or {}
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    reserved: tuple[str, ...] = ()
    if policy.get("torch") is not None:
        reserved = TORCH_RESERVED
    elif policy.get("mpi") is not None:
        reserved = MPI_RESERVED
    elif policy.get("xgboost") is not None:
        reserved = XGBOOST_RESERVED
    env = trainer.get("env") or []
    used = sorted({variable["name"] for variable in env} & set(reserved))
    if not used:
        return []
    what = f"must not have reserved envs, invalid envs configured: [{' '.join(used)}]"
    return [f"spec.trainer.env: Invalid value: {compact(env)}: {what}"]


def _initializers(new: Object, runtime: Object) -> list[str]:
    faults: list[str] = []
    reference = _shown(new["spec"]["runtimeRef"])
    for name, step in INITIALIZERS.items():
        if (new["spec"].get("initializer") or {}).get(step) is None:
            continue
        what = _initializer_fault(runtime, name, step)
        if what is not None:
            faults.append(f"spec.runtimeRef: Invalid value: {reference}: {what}")
    return faults


def _initializer_fault(runtime: Object, name: str, step: str) -> str | None:
    names = _container_names(runtime)
    if name not in names:
        return f"must have {name} job when trainJob is configured with input {step}Config"
    if name not in names[name]:
        return f"must have container with name - {name} in the {name} job"
    [job] = [job for job in runtime["spec"]["template"]["spec"]["replicatedJobs"] if job["name"] == name]
    mounts = [
        mount["name"]
        for container in containers(job)
        if container["name"] == name
        for mount in container.get("volumeMounts") or ()
    ]
    if "initializer" not in mounts:
        return f"must have volumeMount with name - initializer in container {name} of the {name} job"
    return None


def _container_names(runtime: Object) -> dict[str, set[str]]:
    jobs = (((runtime.get("spec") or {}).get("template") or {}).get("spec") or {}).get("replicatedJobs") or []
    names: dict[str, set[str]] = {}
    for job in jobs:
        pod = job["template"]["spec"]["template"]["spec"]
        names[job["name"]] = {
            container["name"] for field in ("initContainers", "containers") for container in pod.get(field) or ()
        }
    return names


def _immutability(new: Object, old: Object | None, jobset: Object | None) -> list[str]:
    before = (old or {}).get("spec") or {}
    if old is None or (new["spec"].get("runtimePatches") or []) == (before.get("runtimePatches") or []):
        return []
    if not new["spec"].get("suspend") and not before.get("suspend"):
        what = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
        return [f"spec.runtimePatches: Forbidden: {what}"]
    statuses = ((jobset or {}).get("status") or {}).get("replicatedJobsStatus") or []
    return [
        "spec.runtimePatches: Forbidden: RuntimePatches cannot be modified when the JobSet's "
        f"ReplicatedJob {status['name']} is still active"
        for status in statuses
        if status.get("active", 0) > 0
    ]


def _patches(new: Object) -> list[str]:
    patches = new["spec"].get("runtimePatches") or []
    order = ("manager", "time", "trainingRuntimeSpec")
    shown = compact([{field: patch[field] for field in order if field in patch} for patch in patches])
    faults: list[str] = []
    for patch in patches:
        if not _PREFIXED.fullmatch(patch["manager"]):
            what = 'must be a domain-prefixed path (such as "acme.io/foo")'
            faults.append(f"spec.runtimePatches.manager: Invalid value: {compact(patch['manager'])}: {what}")
        template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
        for job in (template.get("spec") or {}).get("replicatedJobs") or ():
            if _sets_reserved_environment(job):
                what = "must not have envs for the dataset-initializer, model-initializer, node containers"
                faults.append(f"spec.runtimePatches: Invalid value: {shown}: {what}")
    return faults


def _sets_reserved_environment(job: Object) -> bool:
    pod = ((((job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec")) or {}
    return any(
        container.get("env") and container["name"] in (*INITIALIZERS, NODE) for container in pod.get("containers") or ()
    )


def deprecation(runtime: Object) -> list[str]:
    """What is said of a new ClusterTrainingRuntime whose label says that it will go."""
    if (runtime["metadata"].get("labels") or {}).get("trainer.kubeflow.org/support") != "deprecated":
        return []
    text = (
        f'ClusterTrainingRuntime "{runtime["metadata"]["name"]}" is deprecated and will be removed in a future release '
        "of Kubeflow Trainer. See runtime deprecation policy: "
        "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"
    )
    return [text]


def validate_runtime(new: Object, old: Object | None) -> Denial | None:
    """The validator of TrainingRuntimes (create) and ClusterTrainingRuntimes (create, update)."""
    if (new["metadata"].get("labels") or {}).get(EXEMPTION) == "disabled":
        return None
    if new["kind"] == "TrainingRuntime" and old is not None:
        return None
    jobs = (((new.get("spec") or {}).get("template") or {}).get("spec") or {}).get("replicatedJobs") or []
    faults: list[str] = []
    for index, job in enumerate(jobs):
        step = ((job["template"].get("metadata") or {}).get("labels") or {}).get(ANCESTOR)
        path = f"spec.template.spec.replicatedJobs[{index}]"
        if step not in (TRAINER, *INITIALIZERS):
            continue
        if job.get("replicas", 1) != 1:
            faults.append(f"{path}.replicas: Invalid value: {job['replicas']}: always must be 1")
        wanted = NODE if step == TRAINER else step
        if wanted not in [container["name"] for container in containers(job)]:
            shown = compact(
                [{**container, "resources": container.get("resources", {})} for container in containers(job)]
            )
            faults.append(
                f"{path}.template.spec.template.spec.containers: Invalid value: {shown}: "
                f"must contain the required container for the ancestor: {step}"
            )
    return Denial(aggregate(faults)) if faults else None
