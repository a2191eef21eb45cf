"""A pod that finds no Node waits for ever and a pod that is preempted ends as a failure; both must look as the
scheduler makes them look.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.events import Recorder
from dispatch_kubeflow.backend.embedded.controllers.job_pods import ENDED, phase
from dispatch_kubeflow.backend.embedded.controllers.kinds import NODES, PODS
from dispatch_kubeflow.backend.embedded.controllers.quantities import value
from dispatch_kubeflow.backend.embedded.controllers.view import Change

Object = dict[str, Any]
Amounts = dict[str, Decimal]

MANAGER = "kube-scheduler"
NAME = "default-scheduler"
UNHELPFUL = "Preemption is not helpful for scheduling"


class Scheduler(Controller):
    """Unbound pod in, `nodeName` out: the Node with the fewest pods among those that fit."""

    name: ClassVar[str] = "scheduler"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._recorder = Recorder(world, NAME)
        self._waiting: dict[str, None] = {}
        self._used: dict[str, Amounts] = {}
        self._counted: dict[str, tuple[str, Amounts]] = {}

    def handle(self, change: Change) -> None:
        """Unbound pods; and every waiting one when room may have come."""
        if change.resource == NODES:
            self._look_again()
        elif change.resource == PODS:
            uid = change.obj["metadata"]["uid"]
            if self._account(uid, change):
                self._look_again()
            if change.type == "DELETED":
                self._waiting.pop(uid, None)
            elif not change.obj["spec"].get("nodeName") and uid not in self._waiting:
                self.enqueue(uid)

    def _look_again(self) -> None:
        for uid in self._waiting:
            self.enqueue(uid)

    def _account(self, uid: str, change: Change) -> bool:
        """Keep what each Node's pods ask for; True when a pod stopped asking."""
        node = change.obj["spec"].get("nodeName")
        present = bool(node) and change.type != "DELETED" and phase(change.obj) not in ENDED
        if present and uid not in self._counted:
            self._add(uid, node, requests(change.obj))
        elif not present and uid in self._counted:
            node, amounts = self._counted.pop(uid)
            for name, amount in amounts.items():
                self._used[node][name] -= amount
            return True
        return False

    def _add(self, uid: str, node: str, amounts: Amounts) -> None:
        self._counted[uid] = (node, amounts)
        used = self._used.setdefault(node, {})
        for name, amount in amounts.items():
            used[name] = used.get(name, Decimal(0)) + amount

    def reconcile(self, key: str) -> None:
        """Bind one pod, or say why not."""
        entry = self.world.view.by_uid(key)
        if entry is None or entry.obj["spec"].get("nodeName") or entry.obj["spec"].get("schedulingGates"):
            return
        pod = entry.obj
        if pod["spec"].get("schedulerName", NAME) != NAME or "deletionTimestamp" in pod["metadata"]:
            return
        nodes = self.world.view.all(NODES)
        refusals = {node["metadata"]["name"]: self._refusal(pod, node) for node in nodes}
        fitting = [name for name, refusal in refusals.items() if refusal is None]
        if fitting:
            self._waiting.pop(key, None)
            self._bind(pod, min(fitting, key=lambda name: (self._count(name), name)))
            return
        self._waiting[key] = None
        if not self._preempt(pod, nodes, refusals):
            self._say_why(pod, refusals)

    def _count(self, node: str) -> Decimal:
        return self._used.get(node, {}).get("pods", Decimal(0))

    def _bind(self, pod: Object, node: str) -> None:
        status = {**pod["status"]}
        conditions.put_pod(status, "PodScheduled", "True", self.world.now())
        status.pop("nominatedNodeName", None)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}
        self.world.api.update(PODS, bound, MANAGER, "binding")
        self._add(pod["metadata"]["uid"], node, requests(pod))

    def _refusal(self, pod: Object, node: Object) -> str | None:
        spec = node.get("spec") or {}
        if spec.get("unschedulable"):
            return "node(s) were unschedulable"
        if _untolerated(pod, spec.get("taints") or (), ("NoSchedule", "NoExecute")):
            return "node(s) had untolerated taint(s)"
        labels = node["metadata"].get("labels") or {}
        wanted = pod["spec"].get("nodeSelector") or {}
        if any(labels.get(key) != given for key, given in wanted.items()):
            return "node(s) didn't match Pod's node affinity/selector"
        return self._too_small(pod, node, self._used.get(node["metadata"]["name"], {}))

    def _too_small(self, pod: Object, node: Object, used: Amounts) -> str | None:
        room = (node.get("status") or {}).get("allocatable") or {}
        for name, amount in requests(pod).items():
            if name == "pods" and name not in room:
                continue
            if amount and used.get(name, Decimal(0)) + amount > value(room.get(name, "0")):
                return "Too many pods" if name == "pods" else f"Insufficient {name}"
        return None

    def _say_why(self, pod: Object, refusals: dict[str, str | None]) -> None:
        counts: dict[str, int] = {}
        for refusal in refusals.values():
            counts[str(refusal)] = counts.get(str(refusal), 0) + 1
        total = len(refusals)
        reasons = ", ".join(f"{count} {refusal}" for refusal, count in sorted(counts.items()))
        short = sum(count for refusal, count in counts.items() if refusal.startswith(("Insufficient", "Too many")))
        ways = [(short, "No preemption victims found for incoming pod"), (total - short, UNHELPFUL)]
        told = ", ".join(f"{count} {way}" for count, way in ways if count)
        message = (
            f"0/{total} nodes are available: {reasons}. no new claims to deallocate, "
            f"preemption: 0/{total} nodes are available: {told}."
            if total
            else "no nodes available to schedule pods"
        )
        status = {**pod["status"]}
        if conditions.put_pod(status, "PodScheduled", "False", self.world.now(), "Unschedulable", message):
            self.world.api.update(PODS, {**pod, "status": status}, MANAGER, "status")
            self._recorder.event(pod, "Warning", "FailedScheduling", message)

    def _preempt(self, pod: Object, nodes: list[Object], refusals: dict[str, str | None]) -> bool:
        """Make room by deleting pods of lower priority; the pod is bound when they are gone."""
        if pod["spec"].get("preemptionPolicy") == "Never" or pod["status"].get("nominatedNodeName"):
            return bool(pod["status"].get("nominatedNodeName"))
        for node in nodes:
            name = node["metadata"]["name"]
            if not str(refusals[name]).startswith(("Insufficient", "Too many")):
                continue
            victims = self._victims(pod, node)
            if victims:
                for victim in victims:
                    self._evict(pod, victim, name)
                status = {**pod["status"], "nominatedNodeName": name}
                self.world.api.update(PODS, {**pod, "status": status}, MANAGER, "status")
                return True
        return False

    def _victims(self, pod: Object, node: Object) -> list[Object]:
        name = node["metadata"]["name"]
        lower = [
            other
            for other in self.world.view.pods_on(name)
            if phase(other) not in ENDED and other["spec"].get("priority", 0) < pod["spec"].get("priority", 0)
        ]
        used = dict(self._used.get(name, {}))
        victims: list[Object] = []
        for victim in sorted(lower, key=lambda other: other["spec"].get("priority", 0)):
            if self._too_small(pod, node, used) is None:
                break
            victims.append(victim)
            for resource, amount in requests(victim).items():
                used[resource] = used.get(resource, Decimal(0)) - amount
        return victims if self._too_small(pod, node, used) is None else []

    def _evict(self, pod: Object, victim: Object, node: str) -> None:
        if "deletionTimestamp" in victim["metadata"]:
            return
        status = {**victim["status"]}
        message = f"{NAME}: preempting to accommodate a higher priority pod"
        conditions.put_pod(status, "DisruptionTarget", "True", self.world.now(), "PreemptionByScheduler", message)
        marked = self.world.api.update(PODS, {**victim, "status": status}, MANAGER, "status")
        self.world.api.delete(PODS, marked, manager=MANAGER)
        told = f"Preempted by pod {pod['metadata']['uid']} on node {node}"
        self._recorder.event(victim, "Normal", "Preempted", told)


def requests(pod: Object) -> Amounts:
    """What a pod asks of a Node, itself counted as one of `pods`."""
    total: Amounts = {"pods": Decimal(1)}
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            total[name] = total.get(name, Decimal(0)) + value(amount)
    return total


def tolerates(pod: Object, taint: Object) -> Object | None:
    """The toleration of the pod that answers a taint, or None."""
    for toleration in pod["spec"].get("tolerations") or ():
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        if toleration.get("operator", "Equal") == "Exists" or toleration.get("value", "") == taint.get("value", ""):
            found: Object = toleration
            return found
    return None


def _untolerated(pod: Object, taints: Any, effects: tuple[str, ...]) -> bool:
    return any(taint["effect"] in effects and tolerates(pod, taint) is None for taint in taints)
