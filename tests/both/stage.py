"""The stage on an embedded cluster on virtual time: a scenario takes milliseconds and is the same in every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dispatch_kubeflow.backend.embedded import Cluster, KueueConfiguration, VirtualClock
from dispatch_kubeflow.backend.embedded.controllers.kueue.names import WORKLOAD_PRIORITY_CLASSES
from dispatch_kubeflow.backend.requests.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
)
from tests.real.api import Object
from tests.real.traces.facets import KINDS, QUEUE_KINDS, Trace, Watched
from tests.real.traces.queues import APPLIED, ROOM
from tests.real.traces.scenarios import Holds
from tests.real.training import SOURCE, hardened

from .kubelet import AnnotatedKubelet

NAMESPACE = "team-a"
_RESOURCES = {
    "trainjobs": TRAIN_JOBS,
    "trainingruntimes": TRAINING_RUNTIMES,
    "jobsets": JOB_SETS,
    "jobs": JOBS,
    "pods": PODS,
    "workloads": WORKLOADS,
    "localqueues": LOCAL_QUEUES,
}
_STEP, _LIMIT = 0.05, 600.0
"""Virtual seconds: how far time moves between two looks, and how long anything may take."""


class EmbeddedStage:
    """Plays a scenario in process; its trace is read from the store's own history."""

    def __init__(self, kueue: KueueConfiguration | None = None) -> None:
        self._cluster = Cluster(
            clock=VirtualClock(), kubelet=AnnotatedKubelet(), serve=False, seed=1, kueue=kueue
        )  # fmt: skip
        self._cluster.settle()
        self._from = self._cluster.store.resource_version
        self._node = ""

    def close(self) -> None:
        self._cluster.close()
        assert list(self._cluster.failures) == []

    def runtime(
        self,
        name: str,
        pods: Mapping[str, str],
        *,
        policy: str | None = "Failed",
        lost: bool = False,
        deadline: int | None = None,
    ) -> None:
        selector = None
        if lost:
            self._node, selector = "lost", {"trace": "lost"}
            self._cluster.add_node(self._node, labels=selector)
        source = self._cluster.get(CLUSTER_TRAINING_RUNTIMES, SOURCE)
        assert source is not None
        made = hardened(source, name, pods, policy=policy, selector=selector, deadline=deadline)
        self.create("trainingruntimes", made)

    def create(self, kind: str, obj: Object) -> Object:
        return self._cluster.create(_RESOURCES[kind], obj, NAMESPACE)

    def merge(self, kind: str, name: str, change: Object) -> Object:
        return self._cluster.patch(_RESOURCES[kind], name, change, NAMESPACE)

    def delete(self, kind: str, name: str, policy: str | None = None) -> None:
        chosen: Any = policy
        self._cluster.delete(_RESOURCES[kind], name, NAMESPACE, propagation=chosen)

    def list(self, kind: str) -> list[Object]:
        return self._cluster.list(_RESOURCES[kind], NAMESPACE)

    def until(self, kind: str, holds: Holds) -> list[Object]:
        self._cluster.settle()
        waited = 0.0
        while not holds(self.list(kind)):
            waited += _STEP
            if waited > _LIMIT:
                seen = [each.get("status") for each in self.list(kind)]
                raise TimeoutError(f"{kind} never came to what was waited for: {seen}")
            self._cluster.advance(_STEP)
        return self.list(kind)

    def evict(self, pod: str) -> None:
        self._cluster.evict(pod, NAMESPACE)

    def silence_the_node(self) -> None:
        self._cluster.lose_node(self._node)

    def declare_the_node_off(self) -> None:
        self._cluster.taint_node(self._node, "node.kubernetes.io/out-of-service", value="nodeshutdown")

    def trace(self) -> Trace:
        """Everything that happened, and whatever still does when the scenario is over."""
        return self._traced(Watched(), KINDS)

    def _traced(self, watched: Watched, kinds: Sequence[str]) -> Trace:
        self._cluster.advance(30.0)
        events = [(event, kind) for kind in kinds for event in self._cluster.store.events(_RESOURCES[kind], self._from)]
        for event, kind in sorted(events, key=lambda each: each[0].version):
            watched.see(kind, event.type, event.object)
        return watched.trace()


OWN = "its-own"


class EmbeddedQueueStage(EmbeddedStage):
    """The stage on an embedded cluster that has Kueue."""

    def __init__(self) -> None:
        super().__init__(KueueConfiguration())

    def furnish(self, *, checked: bool = True) -> None:
        for name, value in (("low", 10), ("high", 100)):
            self._cluster.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        check = OWN if checked else None
        self._cluster.add_queue(
            "lq", NAMESPACE, cluster_queue=OWN, flavor=OWN, quota={"cpu": ROOM}, check=check, preempts=True
        )
        if checked:
            active = {"type": "Active", "status": "True", "reason": "Here", "message": ""}
            active["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            status = {"status": {"conditions": [active]}}
            self._cluster.patch(ADMISSION_CHECKS, OWN, status, subresource="status")
        self._cluster.settle()

    def priority(self, name: str) -> str:
        return name

    def checks(self) -> Object:
        return {"admissionChecksStrategy": {"admissionChecks": [{"name": OWN}]}}

    def write_check(self, workload: str, state: str) -> None:
        entry = {"name": OWN, "state": state, "message": "by us", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = {**APPLIED, "metadata": {"name": workload}, "status": {"admissionChecks": [entry]}}
        place = (NAMESPACE, workload)
        self._cluster.store.patch(WORKLOADS, *place, body, "apply", "status", manager="dispatch", force=True)

    def change_queue(self, change: Object) -> None:
        self._cluster.patch(CLUSTER_QUEUES, OWN, {"spec": change})

    def trace(self) -> Trace:
        return self._traced(Watched(OWN), QUEUE_KINDS)
