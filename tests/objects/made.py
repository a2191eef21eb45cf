"""Small objects made for one test: only what the test speaks of differs from the calm case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dispatch_kubeflow.backend.objects import names, seen
from tests.objects.samples import label, read

NODE_UID = "node-uid"
BOOT = "boot-a"


def at(second: int) -> str:
    return f"2026-11-29T21:{second // 60:02d}:{second % 60:02d}Z"


def condition(type_: str, status: str = "True", reason: str = "", second: int = 0) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at(second)}


def ended(code: int | None, reason: str = "Error", second: int = 10, **changes: Any) -> dict[str, Any]:
    found = {"reason": reason, "containerID": "containerd://1", "finishedAt": at(second)} | changes
    return found if code is None else {"exitCode": code, **found}


def pod(
    name: str = "p0",
    phase: str = "Running",
    *,
    container: Mapping[str, Any] | None = None,
    attempt: int = 1,
    job: str | None = "job-uid",
    node: str | None = "node-0",
    deleted_at: int | None = None,
    grace: int = 30,
    asked_before_all_time: bool = False,
    conditions: Sequence[Mapping[str, Any]] = (),
    reason: str | None = None,
) -> seen.Pod:
    """A pod with one container `node`; `container` is its state, running unless given."""
    state = {"running": {"startedAt": at(0)}} if container is None else container
    metadata: dict[str, Any] = {"name": name, "uid": f"{name}-uid"}
    if job is not None:
        metadata["ownerReferences"] = [{"kind": "Job", "uid": job, "controller": True}]
    if deleted_at is not None:
        metadata |= {"deletionTimestamp": at(deleted_at + grace), "deletionGracePeriodSeconds": grace}
    if asked_before_all_time:
        metadata["deletionGracePeriodSeconds"] = 10**12
    obj = {
        "metadata": metadata,
        "spec": {"containers": [{"name": "node"}], **({"nodeName": node} if node else {})},
        "status": {
            "phase": phase,
            "conditions": list(conditions),
            "containerStatuses": [{"name": "node", "state": state}] if state else [],
            **({"reason": reason} if reason else {}),
        },
    }
    return read(label(obj, attempt=attempt), seen.Pod)


def failed(name: str = "p0", code: int | None = 1, second: int = 10, **changes: Any) -> seen.Pod:
    reason = changes.pop("ended_reason", "Error")
    return pod(name, "Failed", container={"terminated": ended(code, reason, second)}, **changes)


def succeeded(name: str = "p0", **changes: Any) -> seen.Pod:
    return pod(name, "Succeeded", container={"terminated": ended(0, "Completed")}, **changes)


def job(
    *conditions: Mapping[str, Any],
    suspend: bool = False,
    attempt: int = 1,
    name: str = "resnet-1-node-0",
    uid: str = "job-uid",
    owner: str | None = "jobset-uid",
    generation: int | None = None,
    **status: Any,
) -> seen.Job:
    metadata: dict[str, Any] = {"name": name, "uid": uid, "generation": generation}
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": "JobSet", "uid": owner, "controller": True}]
    obj = {
        "metadata": metadata,
        "spec": {"suspend": suspend},
        "status": {"conditions": list(conditions), **status},
    }
    return read(label(obj, attempt=attempt), seen.Job)


def jobset(
    *conditions: Mapping[str, Any],
    suspend: bool = False,
    attempt: int = 1,
    owner: str | None = "trainjob-uid",
    uid: str = "jobset-uid",
    **metadata: Any,
) -> seen.JobSet:
    obj: dict[str, Any] = {
        "metadata": {"name": f"resnet-{attempt}", "uid": uid, **metadata},
        "spec": {"suspend": suspend},
        "status": {"conditions": list(conditions)},
    }
    if owner is not None:
        obj["metadata"]["ownerReferences"] = [{"kind": "TrainJob", "uid": owner, "controller": True}]
    return read(label(obj, attempt=attempt), seen.JobSet)


def trainjob(
    *conditions: Mapping[str, Any],
    gate: str | None = "lifted",
    hold: str | None = "none",
    suspend: bool = False,
    attempt: int = 1,
    uid: str = "trainjob-uid",
    **metadata: Any,
) -> seen.TrainJob:
    annotations = {key: value for key, value in {names.GATE: gate, names.HOLD: hold}.items() if value is not None}
    obj = {
        "metadata": {"name": f"resnet-{attempt}", "uid": uid, "generation": 1, **metadata},
        "spec": {"suspend": suspend},
        "status": {"conditions": list(conditions)},
    }
    return read(label(obj, attempt=attempt, annotations=annotations), seen.TrainJob)


def workload(
    *conditions: Mapping[str, Any],
    active: bool = True,
    check: str | None = "Pending",
    gated_by: str | None = None,
    held: str | None = None,
    owner: str = "trainjob-uid",
    controller: bool = True,
) -> seen.Workload:
    annotations = {names.ADMISSION_GATED_BY: gated_by, names.HELD: held}
    obj = {
        "metadata": {
            "name": "trainjob-resnet-1-abcde",
            "namespace": "team-a",
            "uid": "workload-uid",
            "resourceVersion": "8",
            "annotations": {key: value for key, value in annotations.items() if value is not None},
            "ownerReferences": [
                {
                    "apiVersion": names.TRAINER_VERSION,
                    "kind": "TrainJob",
                    "name": "resnet-1",
                    "uid": owner,
                    "controller": controller,
                }
            ],
        },
        "spec": {"active": active},
        "status": {
            "conditions": list(conditions),
            "admissionChecks": [] if check is None else [{"name": "dispatch-hold", "state": check}],
        },
    }
    return read(obj, seen.Workload)


def runtime(
    *,
    attempt: int = 1,
    owner: str | None = "trainjob-uid",
    created: str = "2026-11-29T21:00:00Z",
    uid: str = "copy-uid",
) -> seen.Runtime:
    obj: dict[str, Any] = {"metadata": {"name": f"resnet-{attempt}", "uid": uid, "creationTimestamp": created}}
    if owner is not None:
        obj["metadata"]["ownerReferences"] = [{"kind": "TrainJob", "uid": owner}]
    return read(label(obj, attempt=attempt), seen.Runtime)


def node(
    name: str = "node-0",
    *,
    uid: str = NODE_UID,
    boot: str | None = BOOT,
    system: str | None = "system-a",
    provider: str | None = "provider-a",
    taints: Sequence[str] = (),
) -> seen.Node:
    obj = {
        "metadata": {"name": name, "uid": uid},
        "spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]},
        "status": {"nodeInfo": {}},
    }
    if provider is not None:
        obj["spec"]["providerID"] = provider
    if boot is not None:
        obj["status"]["nodeInfo"]["bootID"] = boot
    if system is not None:
        obj["status"]["nodeInfo"]["systemUUID"] = system
    return read(obj, seen.Node)
