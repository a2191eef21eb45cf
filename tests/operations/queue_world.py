"""A cluster with Kueue, a queue and our check on it; a test is the admission controller and says when a job may run."""

from __future__ import annotations

import pathlib
from typing import Any

from dispatch_kubeflow.backend import ObjectRef, factory
from dispatch_kubeflow.backend.embedded import KueueConfiguration, Script
from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, WORKLOADS

from .world import NAMESPACE, World, soon, start

QUEUE, CLUSTER_QUEUE, CHECK = "lq", "cq", "dispatch"
ASKED = {"requests": {"cpu": "2"}}
QUEUED = r"/workloads"
ONE_QUEUED = r"/workloads/[^/?]+"


class QueueWorld(World):
    """Room for four CPUs. Nothing runs before `admit`."""

    def __init__(self, folder: pathlib.Path, script: Script | None = None) -> None:
        super().__init__(folder, script, KueueConfiguration())
        self.cluster.add_queue(
            QUEUE, NAMESPACE, cluster_queue=CLUSTER_QUEUE, quota={"cpu": "4"}, check=CHECK, preempts=True
        )
        self.serve_check()

    def settings(self, *, token: str | None = None, **settings: Any) -> dict[str, Any]:
        given = {"mode": "kueue", "queue": QUEUE, "admission_check": CHECK, "workload_wait": 5.0, **settings}
        return super().settings(token=token, **given)

    def connect(self, **settings: Any) -> Backend:
        """A Backend in kueue mode."""
        backend = factory(self.settings(**settings), ctx=soon())
        self.backends.append(backend)
        return backend

    def backend(self, *, token: str | None = None, **settings: Any) -> Backend:
        backend = self.connect(token=token, **settings)
        self.wire.seen.clear()
        self.cluster.apiserver.requests.clear()
        return backend

    # The admission controller's part.

    def serve_check(self, active: str = "True", check: str = CHECK) -> None:
        """Say of a check whether its controller is there."""
        condition = {
            "type": "Active",
            "status": active,
            "reason": "Active",
            "message": "said by the test",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
        self.cluster.patch(ADMISSION_CHECKS, check, {"status": {"conditions": [condition]}}, subresource="status")

    def list_checks(self, *checks: dict[str, Any]) -> None:
        """Have the ClusterQueue ask for these checks alone."""
        spec = {"admissionChecksStrategy": {"admissionChecks": list(checks)} if checks else None}
        self.cluster.patch(CLUSTER_QUEUES, CLUSTER_QUEUE, {"spec": spec})

    def admit(self, name: str = "job-1") -> None:
        """Make the check of a job's Workload Ready, once it has quota."""
        self.until(lambda: self.condition("QuotaReserved", name) == "True", "it never had quota")
        entry = {"name": CHECK, "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {"status": {"admissionChecks": [entry]}}
        self.cluster.patch(WORKLOADS, self.workload(name)["metadata"]["name"], status, NAMESPACE, subresource="status")

    # What the cluster knows.

    def workloads(self, name: str = "job-1") -> list[dict[str, Any]]:
        every = self.cluster.list(WORKLOADS, NAMESPACE)
        return [each for each in every if each["metadata"]["ownerReferences"][0]["name"] == name]

    def workload(self, name: str = "job-1") -> dict[str, Any]:
        (found,) = self.workloads(name)
        return found

    def change(self, change: dict[str, Any], name: str = "job-1") -> None:
        """Patch the Workload of a job."""
        self.cluster.patch(WORKLOADS, self.workload(name)["metadata"]["name"], change, NAMESPACE)

    def condition(self, kind: str, name: str = "job-1") -> str | None:
        found = self.workload(name).get("status", {}).get("conditions") or []
        return next((each["status"] for each in found if each["type"] == kind), None)

    def held(self, name: str = "job-1") -> tuple[bool, str | None]:
        """Whether the Workload is active, and the instance of the hold on it."""
        found = self.workload(name)
        return found["spec"]["active"], (found["metadata"].get("annotations") or {}).get(names.HELD)

    def record(self, name: str = "job-1") -> tuple[str, str]:
        annotations = self.trainjob(name)["metadata"]["annotations"]
        return annotations[names.GATE], annotations[names.HOLD]

    def suspended(self, name: str = "job-1") -> bool:
        return bool(self.trainjob(name)["spec"]["suspend"])


def queued(backend: Backend, job: str = "job", attempt: int = 1, **changes: Any) -> ObjectRef:
    """Start a job of two nodes that ask for two CPUs each."""
    return start(backend, job, attempt, **{"resources": ASKED, **changes})


def running(world: QueueWorld, backend: Backend) -> ObjectRef:
    """A job that was started, opened and admitted, and runs."""
    ref = queued(backend)
    backend.open(ref, ctx=soon())
    world.admit()
    world.running()
    return ref
