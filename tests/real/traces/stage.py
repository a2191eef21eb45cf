"""The stage on the real control plane: a namespace, and a watch of every kind from its beginning."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.real.api import Object, has
from tests.real.cluster import Cluster
from tests.real.training import hardened_copy

from .facets import KINDS, QUEUE_KINDS, Trace, Watched
from .queues import APPLIED, ROOM
from .scenarios import Holds

LIMIT = 60.0
_LONGEST = 300.0


class RealStage:
    """Plays a scenario on a running control plane and keeps what the watches tell."""

    def __init__(self, cluster: Cluster, kinds: Sequence[str] = KINDS) -> None:
        self._cluster = cluster
        self._namespace = cluster.new_namespace("trace")
        self._paths = {
            "trainjobs": cluster.train_jobs(self._namespace),
            "trainingruntimes": cluster.runtimes(self._namespace),
            "jobsets": cluster.job_sets(self._namespace),
            "jobs": cluster.jobs(self._namespace),
            "pods": cluster.pods(self._namespace),
        }
        self._node = ""
        self._watched = Watched(self._namespace)
        self._changed = threading.Condition()
        self._last = time.monotonic()
        self._objects: dict[str, dict[str, Object]] = {kind: {} for kind in kinds}
        self._threads = [threading.Thread(target=self._follow, args=(kind,), daemon=True) for kind in kinds]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.delete_namespace(self._namespace)
        if self._node:
            self._cluster.api.send("DELETE", f"/api/v1/nodes/{self._node}")

    def _follow(self, kind: str) -> None:
        """The namespace is new and empty: a watch from nowhere begins with its first object."""
        for event in self._cluster.api.events(self._paths[kind], seconds=_LONGEST):
            obj = event["object"]
            with self._changed:
                self._watched.see(kind, event["type"], obj)
                self._objects[kind].pop(obj["metadata"]["uid"], None)
                if event["type"] != "DELETED":
                    self._objects[kind][obj["metadata"]["uid"]] = obj
                self._last = time.monotonic()
                self._changed.notify_all()

    # What scenarios do.

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
            self._node = f"{self._namespace}-node"
            selector = {"trace": self._namespace}
            self._cluster.add_node(self._node, selector)
        made = hardened_copy(self._cluster, name, pods, policy=policy, selector=selector, deadline=deadline)
        self.create("trainingruntimes", made)

    def create(self, kind: str, obj: Object) -> Object:
        return self._cluster.api.post(self._paths[kind], obj)

    def merge(self, kind: str, name: str, change: Object) -> Object:
        return self._cluster.api.merge(f"{self._paths[kind]}/{name}", change)

    def delete(self, kind: str, name: str, policy: str | None = None) -> None:
        body = {"propagationPolicy": policy} if policy else None
        self._cluster.api.expect("DELETE", f"{self._paths[kind]}/{name}", body)

    def list(self, kind: str) -> list[Object]:
        items: list[Object] = self._cluster.api.get(self._paths[kind])["items"]
        return items

    def until(self, kind: str, holds: Holds) -> list[Object]:
        def found() -> bool:
            return holds(list(self._objects[kind].values()))

        if not self._wait(found):
            seen = [each.get("status") for each in self._objects[kind].values()]
            raise TimeoutError(f"{kind} never came to what was waited for: {seen}; so far: {self.trace()}")
        return list(self._objects[kind].values())

    def evict(self, pod: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        self._cluster.api.post(f"{self._paths['pods']}/{pod}/eviction", body)

    def silence_the_node(self) -> None:
        self._cluster.silence(self._node)

    def declare_the_node_off(self) -> None:
        self._cluster.put_out_of_service(self._node)

    # What was seen.

    def trace(self) -> Trace:
        with self._changed:
            return self._watched.trace()

    def trace_when(self, right: Callable[[Trace], bool]) -> Trace:
        """The trace once it is as wanted, or as it is when nothing has come for ten seconds."""
        self._wait(lambda: right(self._watched.trace()), quiet=10.0)
        return self.trace()

    def trace_at_rest(self) -> Trace:
        """The trace once nothing has come for three seconds: for the record, where nobody knows what to wait for."""
        self._wait(lambda: False, quiet=3.0)
        return self.trace()

    def _wait(self, holds: Callable[[], bool], quiet: float = LIMIT) -> bool:
        """Until something is true; False once `quiet` seconds have passed without any event."""
        with self._changed:
            self._last = time.monotonic()
            while not holds():
                left = self._last + quiet - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True


_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_APPLY = "application/apply-patch+yaml"


def _made(kind: str, name: str, **parts: Any) -> Object:
    return {"apiVersion": APPLIED["apiVersion"], "kind": kind, "metadata": {"name": name}, **parts}


class RealQueueStage(RealStage):
    """The stage on a control plane that has Kueue; cluster-wide objects are named after the namespace."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, QUEUE_KINDS)
        for kind in ("workloads", "localqueues"):
            self._paths[kind] = f"{_KUEUE}/namespaces/{self._namespace}/{kind}"

    def furnish(self, *, checked: bool = True) -> None:
        api, name = self._cluster.api, self._namespace
        for priority, value in (("low", 10), ("high", 100)):
            made = _made("WorkloadPriorityClass", self.priority(priority), value=value)
            api.post(f"{_KUEUE}/workloadpriorityclasses", made)
        api.post(f"{_KUEUE}/resourceflavors", _made("ResourceFlavor", name, spec={}))
        quota = {"name": name, "resources": [{"name": "cpu", "nominalQuota": ROOM}]}
        spec: Object = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        }
        if checked:
            made = _made("AdmissionCheck", name, spec={"controllerName": "kubelet.test/nobody"})
            api.post(f"{_KUEUE}/admissionchecks", made)
            active = {"type": "Active", "status": "True", "reason": "Here", "message": ""}
            active["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            api.merge(f"{_KUEUE}/admissionchecks/{name}/status", {"status": {"conditions": [active]}})
            spec |= self.checks()
        api.post(f"{_KUEUE}/clusterqueues", _made("ClusterQueue", name, spec=spec))
        api.post(self._paths["localqueues"], _made("LocalQueue", "lq", spec={"clusterQueue": name}))
        self._cluster.wait(self._paths["localqueues"], "lq", has("Active"))

    def priority(self, name: str) -> str:
        return f"{self._namespace}-{name}"

    def checks(self) -> Object:
        return {"admissionChecksStrategy": {"admissionChecks": [{"name": self._namespace}]}}

    def write_check(self, workload: str, state: str) -> None:
        entry = {"name": self._namespace, "state": state, "message": "by us"}
        entry["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        body = {**APPLIED, "metadata": {"name": workload}, "status": {"admissionChecks": [entry]}}
        path = f"{self._paths['workloads']}/{workload}/status"
        query = {"fieldManager": "dispatch", "force": "true"}
        answer = self._cluster.api.send("PATCH", path, body, content_type=_APPLY, query=query)
        assert answer.status == 200, answer.text()

    def change_queue(self, change: Object) -> None:
        self._cluster.api.merge(f"{_KUEUE}/clusterqueues/{self._namespace}", {"spec": change})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for plural in ("clusterqueues", "admissionchecks", "resourceflavors"):
            self._cluster.api.send("DELETE", f"{_KUEUE}/{plural}/{self._namespace}")
