"""The TrainJob is written whole and once: with every field that a server would otherwise fill in, and nothing that it
would drop, so that what is read back can be compared exactly with what was meant.

It is born gated: suspended, its record closed, and in kueue mode with our admission gate as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from dispatch_kubeflow.machine.values import JobSpec, SharedCheckpoint

from . import names
from .digest import digest
from .names import Identity
from .record import new_record

Mode = Literal["plain", "kueue"]

CHECKPOINT_VOLUME: Final = "dispatch-checkpoint"


def build(
    identity: Identity, spec: JobSpec, *, namespace: str, mode: Mode, nonce: str, queue: str | None = None
) -> dict[str, Any]:
    """The TrainJob of an attempt, as Start posts it. `queue` is the LocalQueue, in kueue mode only."""
    labels = identity.labels
    annotations = {names.MODE: mode, names.NONCE: nonce, **new_record()}
    if mode == "kueue":
        if not queue:
            raise ValueError("kueue mode needs a LocalQueue")
        labels[names.QUEUE_NAME] = queue
        annotations[names.ADMISSION_GATED_BY] = names.KUEUE_GATE
    body: dict[str, Any] = {
        "apiVersion": names.TRAINER_VERSION,
        "kind": "TrainJob",
        "metadata": {"name": identity.name, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": _spec(identity.name, spec),
    }
    annotations[names.DIGEST] = written_digest(body)
    return body


def _spec(name: str, spec: JobSpec) -> dict[str, Any]:
    body: dict[str, Any] = {
        "managedBy": names.TRAINJOB_CONTROLLER,
        "runtimeRef": {"apiGroup": names.TRAINER_GROUP, "kind": "TrainingRuntime", "name": name},
        "suspend": True,
        "trainer": _trainer(spec),
    }
    if spec.checkpoint is not None:
        body["runtimePatches"] = [_checkpoint_patch(spec.checkpoint)]
    return body


def _trainer(spec: JobSpec) -> dict[str, Any]:
    """What of the trainer is not the runtime's. Nothing empty stands in it: Kueue's client would leave that out when it
    starts the job, and Trainer refuse a change of what must not change, so the job would never start.
    """
    trainer: dict[str, Any] = {
        "image": spec.image,
        "command": list(spec.command),
        "numNodes": spec.nodes,
    }
    if spec.args:
        trainer["args"] = list(spec.args)
    if spec.env:
        trainer["env"] = [{"name": name} | ({"value": value} if value else {}) for name, value in spec.env.items()]
    if spec.procs_per_node is not None:
        trainer["numProcPerNode"] = spec.procs_per_node
    asked = {block: quantities for block, quantities in spec.resources.items() if quantities}
    if asked:
        trainer["resourcesPerNode"] = {
            block: {name: _quantity(each) for name, each in quantities.items()} for block, quantities in asked.items()
        }
    return trainer


def _quantity(given: str | float) -> str:
    """A quantity as text: the apiserver refuses a fraction that comes as a number."""
    return given if isinstance(given, str) else repr(given)


def _checkpoint_patch(checkpoint: SharedCheckpoint) -> dict[str, Any]:
    mount = {"name": CHECKPOINT_VOLUME, "mountPath": checkpoint.path}
    volume = {"name": CHECKPOINT_VOLUME, "persistentVolumeClaim": {"claimName": checkpoint.claim}}
    pod = {"containers": [{"name": names.NODE, "volumeMounts": [mount]}], "volumes": [volume]}
    job = {"name": names.NODE, "template": {"spec": {"template": {"spec": pod}}}}
    return {
        "manager": names.CHECKPOINT_MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }


def written_digest(trainjob: Mapping[str, Any]) -> str:
    """The digest of a TrainJob, written or read: what we said of it, whatever Trainer and Kueue added since.

    The spec without `suspend`, without the `time` stamps and Kueue's own entry of `runtimePatches`, and with our
    labels and the queue's name. Never raises for an object of another form; its digest then differs.
    """
    metadata = trainjob.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    kept = (names.BACKEND, names.JOB, names.ATTEMPT, names.QUEUE_NAME)
    ours = {key: labels[key] for key in kept if key in labels} if isinstance(labels, Mapping) else {}
    return digest({"labels": ours, "spec": our_spec(trainjob.get("spec"), keep_suspend=False)})


def our_spec(spec: object, *, keep_suspend: bool) -> object:
    """A TrainJob's spec without what Trainer and Kueue are allowed to add to it."""
    if not isinstance(spec, Mapping):
        return spec
    kept = {key: value for key, value in spec.items() if key != "suspend" or keep_suspend}
    patches = kept.get("runtimePatches")
    if isinstance(patches, list | tuple):
        entries = [_without_time(entry) for entry in patches if not _is_kueues(entry)]
        kept["runtimePatches"] = entries
        if not entries:
            del kept["runtimePatches"]
    return kept


def _is_kueues(entry: object) -> bool:
    return isinstance(entry, Mapping) and entry.get("manager") == names.KUEUE_MANAGER


def _without_time(entry: object) -> object:
    return {key: value for key, value in entry.items() if key != "time"} if isinstance(entry, Mapping) else entry


def owner_patch(copy_uid: str, copy_version: str, trainjob_name: str, trainjob_uid: str) -> dict[str, Any]:
    """The merge patch that gives an unowned runtime copy its TrainJob as owner.

    Neither `controller` nor `blockOwnerDeletion`: the latter makes a foreground deletion stick for ever.
    """
    owner = {"apiVersion": names.TRAINER_VERSION, "kind": "TrainJob", "name": trainjob_name, "uid": trainjob_uid}
    return {"metadata": {"uid": copy_uid, "resourceVersion": copy_version, "ownerReferences": [owner]}}
