"""The stage on the real control plane: a namespace, and a watch of every kind from its beginning."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from tests.real.api import Object
from tests.real.cluster import Cluster
from tests.real.training import hardened_copy

from .facets import KINDS, Trace, Watched
from .scenarios import Holds

LIMIT = 60.0
_LONGEST = 300.0


class RealStage:
    """Plays a scenario on a running control plane and keeps what the watches tell."""

    def __init__(self, cluster: Cluster) -> None:
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
        self._watched = Watched()
        self._changed = threading.Condition()
        self._last = time.monotonic()
        self._objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self._threads = [threading.Thread(target=self._follow, args=(kind,), daemon=True) for kind in KINDS]

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
