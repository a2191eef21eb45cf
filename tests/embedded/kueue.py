"""A cluster with Kueue on virtual time, one queue and one check, and the verbs in which its tests are told."""

from __future__ import annotations

from typing import Any, Self

from dispatch_kubeflow.backend.embedded import Cluster, KueueConfiguration, Script, ScriptedKubelet, VirtualClock
from dispatch_kubeflow.backend.embedded.controllers.kinds import PODS, TRAIN_JOBS, TRAINING_RUNTIMES
from dispatch_kubeflow.backend.embedded.controllers.kueue import names
from dispatch_kubeflow.backend.embedded.controllers.kueue.names import (
    ADMISSION_CHECKS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)

from .scene import NAMESPACE, runtime, train_job

Object = dict[str, Any]
CHECK = "dispatch-hold"
GATE = "dispatch-kubeflow.io/gate"
ROOM = {"cpu": "4"}


class QueueScene:
    """A LocalQueue `lq` with room for four CPUs, behind our check; the sides of a job's Workload."""

    def __init__(self, plan: Any = None, *, check: str | None = CHECK, **configuration: Any) -> None:
        self.cluster = Cluster(
            clock=VirtualClock(),
            kubelet=ScriptedKubelet(plan or Script()),
            kueue=KueueConfiguration(**configuration),
            serve=False,
            seed=7,
        )
        self.cluster.add_queue("lq", NAMESPACE, quota=ROOM, check=check, preempts=True)
        for name, value in (("low", 10), ("high", 100)):
            self.cluster.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        if check is not None:
            self.activate()
        self.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()
        assert list(self.cluster.failures) == []

    def settle(self) -> None:
        self.cluster.settle()

    def advance(self, seconds: float = 2.0) -> None:
        self.cluster.advance(seconds)

    # Acts.

    def activate(self, active: bool = True) -> None:
        """Say that the check's controller is there."""
        condition = {
            "type": "Active",
            "status": str(active),
            "reason": "Here",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"status": {"conditions": [condition]}}
        self.cluster.patch(ADMISSION_CHECKS, CHECK, status, subresource="status")
        self.settle()

    def submit(
        self,
        name: str,
        *,
        gate: str | None = GATE,
        queue: str | None = "lq",
        priority: str | None = None,
        requests: dict[str, str] | None = None,
        **ways: Any,
    ) -> None:
        """A runtime and a TrainJob of two nodes that ask for two CPUs each."""
        copy = runtime(name, replacement="Failed")
        (replicated,) = copy["spec"]["template"]["spec"]["replicatedJobs"]
        replicated["template"]["spec"]["template"]["spec"] |= ways.pop("pod", {})
        self.cluster.create(TRAINING_RUNTIMES, copy)
        asked = {"cpu": "2"} if requests is None else requests
        trainer = {"resourcesPerNode": {"requests": asked}} if asked else {}
        job = train_job(name, suspend=ways.pop("suspend", False), trainer=trainer | ways.pop("trainer", {}))
        labels = {names.QUEUE_NAME: queue} if queue else {}
        if priority:
            labels[names.PRIORITY_CLASS] = priority
        job["metadata"]["labels"] = labels | ways.pop("labels", {})
        if gate:
            job["metadata"]["annotations"] = {names.GATED_BY: gate}
        self.cluster.create(TRAIN_JOBS, job)
        self.settle()

    def open(self, name: str) -> None:
        """Take the gate off the TrainJob."""
        self.cluster.patch(TRAIN_JOBS, name, {"metadata": {"annotations": {names.GATED_BY: None}}}, NAMESPACE)
        self.settle()

    def check(self, name: str, state: str = "Ready", check: str = CHECK) -> None:
        """Write the check as its controller does: by forced apply of the one entry."""
        found = self.workload(name)
        entry = {"name": check, "state": state, "message": "by us", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        applied = {
            "apiVersion": WORKLOADS.api_version,
            "kind": "Workload",
            "metadata": {"name": found["metadata"]["name"]},
            "status": {"admissionChecks": [entry]},
        }
        place = (NAMESPACE, found["metadata"]["name"])
        self.cluster.store.patch(WORKLOADS, *place, applied, "apply", "status", manager="dispatch", force=True)
        self.settle()

    def set_active(self, name: str, active: bool) -> None:
        """Deactivate the Workload, or activate it."""
        self.change(name, {"spec": {"active": active}})

    def change(self, name: str, change: Object) -> None:
        """Patch the Workload of a job."""
        self.cluster.patch(WORKLOADS, self.workload(name)["metadata"]["name"], change, NAMESPACE)
        self.settle()

    def run(self, name: str, **ways: Any) -> None:
        """Submit, check, and wait until the pods run."""
        self.submit(name, gate=None, **ways)
        self.check(name)
        self.advance()

    # What there is.

    def job(self, name: str) -> Object:
        found = self.cluster.get(TRAIN_JOBS, name, NAMESPACE)
        assert found is not None
        return found

    def workload(self, name: str) -> Object:
        """The Workload of a job."""
        (found,) = self.workloads(name)
        return found

    def workloads(self, name: str) -> list[Object]:
        every = self.cluster.list(WORKLOADS, NAMESPACE)
        return [each for each in every if each["metadata"]["name"].startswith(f"trainjob-{name}-")]

    def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        """Status and reason of each condition of a job's Workload."""
        found = self.workload(name).get("status", {}).get("conditions") or []
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def message(self, name: str, condition: str) -> str:
        found = self.workload(name)["status"]["conditions"]
        (message,) = [each["message"] for each in found if each["type"] == condition]
        return str(message)

    def checks(self, name: str) -> list[tuple[str, str]]:
        found = self.workload(name).get("status", {}).get("admissionChecks") or []
        return [(each["name"], each["state"]) for each in found]

    def suspended(self, name: str) -> bool:
        return bool(self.job(name)["spec"]["suspend"])

    def pods(self, name: str) -> list[Object]:
        selector = f"jobset.sigs.k8s.io/jobset-name={name}"
        return self.cluster.list(PODS, NAMESPACE, labels=selector)
