"""A Node that falls silent is the one case in which nobody knows whether a pod still runs; what Kubernetes then does
must be exact.

Three controllers of kube-controller-manager: node lifecycle (silence to `Unknown` and taints), taint eviction
(`DeletionByTaintManager`, then a pod that stays), and PodGC (phase `Failed` written by no kubelet, then a forced
deletion).
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.events import Recorder
from dispatch_kubeflow.backend.embedded.controllers.job_pods import ENDED, phase
from dispatch_kubeflow.backend.embedded.controllers.kinds import NODES, PODS
from dispatch_kubeflow.backend.embedded.controllers.scheduler import tolerates
from dispatch_kubeflow.backend.embedded.controllers.view import Change

Object = dict[str, Any]

MANAGER = "kube-controller-manager"
UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
LIFETIME = "node.alpha.kubernetes.io/ttl"
MONITOR_GRACE = 50.0
QUARANTINE = 40.0
GC_PERIOD = 20.0
EFFECTS = ("NoSchedule", "NoExecute")


class Heartbeats(Protocol):
    """What the kubelets tell of themselves: the lease of a Node, without the lease."""

    def silent_since(self, node: str) -> float | None:
        """When the Node was last heard of, on the cluster's clock; None while it reports."""
        ...


class NodeLifecycle(Controller):
    """Silence in; `Ready` `Unknown`, taints and not-ready pods out. Told of a change by `heard`."""

    name: ClassVar[str] = "node-lifecycle"

    def __init__(self, world: World, heartbeats: Heartbeats) -> None:
        super().__init__(world)
        self.monitor_grace = MONITOR_GRACE
        self._heartbeats = heartbeats
        self._recorder = Recorder(world, "node-controller")

    def handle(self, change: Change) -> None:
        """Nodes as they appear."""
        if change.resource == NODES and change.type == "ADDED":
            self.enqueue(change.place[1])

    def heard(self, node: str) -> None:
        """A kubelet fell silent or came back."""
        self.enqueue(node)

    def reconcile(self, key: str) -> None:
        """Mark the Node as its silence demands."""
        node = self.world.view.get(NODES, "", key)
        if node is None:
            return
        node = self._annotated(node)
        since = self._heartbeats.silent_since(key)
        if since is None:
            self._reachable(node)
            return
        left = since + self.monitor_grace - self.world.clock.monotonic()
        if left > 0:
            self.enqueue(key, left)
        else:
            self._unreachable(node)

    def _annotated(self, node: Object) -> Object:
        """How long kubelets may keep what they read: said by a controller of its own, on every node."""
        given = node["metadata"].get("annotations") or {}
        if LIFETIME in given or "deletionTimestamp" in node["metadata"]:
            return node
        meta = {**node["metadata"], "annotations": {**given, LIFETIME: "0"}}
        return self.world.api.update(NODES, {**node, "metadata": meta}, MANAGER)

    def _unreachable(self, node: Object) -> None:
        now = self.world.now()
        ready = conditions.find(node["status"], "Ready")
        if ready is not None and ready["status"] == "Unknown":
            return
        status = {**node["status"]}
        conditions.put(status, "Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", now)
        marked = self.world.api.update(NODES, {**node, "status": status}, MANAGER, "status")
        taints = _without(marked, UNREACHABLE)
        taints += [{"effect": effect, "key": UNREACHABLE, "timeAdded": now} for effect in EFFECTS]
        self.world.api.update(NODES, {**marked, "spec": {**(marked.get("spec") or {}), "taints": taints}}, MANAGER)
        for pod in self.world.view.pods_on(node["metadata"]["name"]):
            if phase(pod) in ENDED:
                continue
            told = {**pod["status"]}
            if conditions.put_pod(told, "Ready", "False", now):
                self.world.api.update(PODS, {**pod, "status": told}, MANAGER, "status")
                self._recorder.event(pod, "Warning", "NodeNotReady", "Node is not ready")

    def _reachable(self, node: Object) -> None:
        kept = _without(node, UNREACHABLE)
        if len(kept) == len((node.get("spec") or {}).get("taints") or ()):
            return
        spec = {**(node.get("spec") or {}), "taints": kept}
        if not kept:
            del spec["taints"]
        self.world.api.update(NODES, {**node, "spec": spec}, MANAGER)


class TaintEviction(Controller):
    """NoExecute taint in, deletion of the pods that do not tolerate it (any more) out."""

    name: ClassVar[str] = "taint-eviction"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._recorder = Recorder(world, "taint-eviction-controller")

    def handle(self, change: Change) -> None:
        """All pods of a Node whose taints changed; pods as they are bound."""
        if change.resource == NODES:
            for pod in self.world.view.pods_on(change.place[1]):
                self.enqueue(pod["metadata"]["uid"])
        elif change.resource == PODS and change.type != "DELETED":
            node = change.obj["spec"].get("nodeName")
            if node and (change.old is None or change.old["spec"].get("nodeName") != node):
                self.enqueue(change.obj["metadata"]["uid"])

    def reconcile(self, key: str) -> None:
        """Evict one pod, now or when its tolerations run out."""
        entry = self.world.view.by_uid(key)
        if entry is None or phase(entry.obj) in ENDED or "deletionTimestamp" in entry.obj["metadata"]:
            return
        pod = entry.obj
        node = self.world.view.get(NODES, "", pod["spec"]["nodeName"])
        left = self._patience(pod, node)
        if left is None:
            return
        if left > 0:
            self.enqueue(key, left)
            return
        self._recorder.event(
            pod,
            "Normal",
            "TaintManagerEviction",
            f"Marking for deletion Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}",
        )
        status = {**pod["status"]}
        message = "Taint manager: deleting due to NoExecute taint"
        conditions.put_pod(status, "DisruptionTarget", "True", self.world.now(), "DeletionByTaintManager", message)
        marked = self.world.api.update(PODS, {**pod, "status": status}, MANAGER, "status")
        self.world.api.delete(PODS, marked, manager=MANAGER)

    def _patience(self, pod: Object, node: Object | None) -> float | None:
        """Seconds until the pod must go; None if it may stay."""
        taints = ((node or {}).get("spec") or {}).get("taints") or ()
        waits: list[float] = []
        for taint in taints:
            if taint["effect"] != "NoExecute":
                continue
            toleration = tolerates(pod, taint)
            if toleration is None:
                return 0.0
            if "tolerationSeconds" in toleration:
                added = taint.get("timeAdded")
                since = conditions.parse_stamp(added) if added else self.world.clock.now()
                gone = (self.world.clock.now() - since).total_seconds()
                waits.append(toleration["tolerationSeconds"] - gone)
        return min(waits) if waits else None


class PodGC(Controller):
    """Pods no kubelet can finish: on a Node that is gone, or terminating on one declared out of service."""

    name: ClassVar[str] = "podgc"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._missing_since: dict[str, float] = {}

    def handle(self, change: Change) -> None:
        """Pods of a Node that went or was tainted; pods that start to terminate on one."""
        if change.resource == NODES:
            for pod in self.world.view.pods_on(change.place[1]):
                self._appoint(pod)
        elif change.resource == PODS and change.type != "DELETED":
            node = change.obj["spec"].get("nodeName")
            if node and (self._gone(node) or _out_of_service(self._node(node))):
                self._appoint(change.obj)

    def _node(self, name: str) -> Object | None:
        return self.world.view.get(NODES, "", name)

    def _gone(self, name: str) -> bool:
        return self._node(name) is None

    def _appoint(self, pod: Object) -> None:
        now = self.world.clock.monotonic()
        node = pod["spec"]["nodeName"]
        after = 0.0
        if self._gone(node):
            self._missing_since.setdefault(node, now)
            after = max(0.0, self._missing_since[node] + QUARANTINE - now)
        else:
            self._missing_since.pop(node, None)
        turn = (now + after) % GC_PERIOD
        self.enqueue(pod["metadata"]["uid"], after + (GC_PERIOD - turn if turn else 0.0))

    def reconcile(self, key: str) -> None:
        """Write the pod off: phase `Failed`, whatever its containers say, then a forced deletion."""
        entry = self.world.view.by_uid(key)
        if entry is None:
            return
        pod, node = entry.obj, self._node(entry.obj["spec"]["nodeName"])
        if node is not None:
            ready = conditions.is_true(node["status"], "Ready")
            if not _out_of_service(node) or ready or "deletionTimestamp" not in pod["metadata"]:
                return
        status = {**pod["status"]}
        if phase(pod) not in ENDED:
            if node is None:
                message = "PodGC: node no longer exists"
                conditions.put_pod(status, "DisruptionTarget", "True", self.world.now(), "DeletionByPodGC", message)
            status["phase"] = "Failed"
            pod = self.world.api.update(PODS, {**pod, "status": status}, MANAGER, "status")
        self.world.api.delete(PODS, pod, grace=0, manager=MANAGER)


def _without(node: Object, key: str) -> list[Object]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint["key"] != key]


def _out_of_service(node: Object | None) -> bool:
    taints = ((node or {}).get("spec") or {}).get("taints") or ()
    return any(taint["key"] == OUT_OF_SERVICE for taint in taints)
