"""ClusterQueues and LocalQueues say whether they admit and how full they are; checks and flavors stay while one names
them.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.kueue import names, workload
from dispatch_kubeflow.backend.embedded.controllers.kueue.books import (
    Amounts,
    Books,
    checks,
    flavors,
    place_of,
    reserved,
    stopped,
)
from dispatch_kubeflow.backend.embedded.controllers.kueue.quotas import shown
from dispatch_kubeflow.backend.embedded.controllers.view import Change
from dispatch_kubeflow.backend.requests.resources import Resource

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Plural, namespace, name."""

_KINDS = {
    resource.plural: resource
    for resource in (names.CLUSTER_QUEUES, names.LOCAL_QUEUES, names.ADMISSION_CHECKS, names.RESOURCE_FLAVORS)
}


class KueueStatuses(Controller):
    """Status of queues, and the finalizers of all that a ClusterQueue names."""

    name: ClassVar[str] = "kueue-statuses"

    def __init__(self, world: World, books: Books) -> None:
        super().__init__(world)
        self._books = books

    def handle(self, change: Change) -> None:
        """The four kinds themselves, and what their status counts."""
        resource, name = change.resource, change.obj["metadata"]["name"]
        if resource == names.WORKLOADS:
            for wl in (change.old, change.obj):
                if wl is not None:
                    self._queues_of(wl)
        elif resource.plural in _KINDS and resource == _KINDS[resource.plural]:
            self._enqueue(resource, *change.place)
            if resource == names.ADMISSION_CHECKS:
                self._cluster_queues(self._books.cluster_queues_using(check=name))
            elif resource == names.RESOURCE_FLAVORS:
                self._cluster_queues(self._books.cluster_queues_using(flavor=name))
            elif resource == names.CLUSTER_QUEUES:
                self._cluster_queue_changed(change)

    def _cluster_queue_changed(self, change: Change) -> None:
        for queue in self._books.local_queues_of(change.obj["metadata"]["name"]):
            self._enqueue(names.LOCAL_QUEUES, *place_of(queue))
        for state in (change.old, change.obj):
            for check in () if state is None else checks(state):
                self._enqueue(names.ADMISSION_CHECKS, "", check)
            for flavor in () if state is None else flavors(state):
                self._enqueue(names.RESOURCE_FLAVORS, "", flavor)

    def _queues_of(self, wl: Object) -> None:
        place = self._books.queue_of(wl)
        queue = self._books.local_queue(place)
        if queue is not None:
            self._enqueue(names.LOCAL_QUEUES, *place)
            self._enqueue(names.CLUSTER_QUEUES, "", queue["spec"]["clusterQueue"])
        admission = workload.status_of(wl).get("admission")
        if admission is not None:
            self._enqueue(names.CLUSTER_QUEUES, "", admission["clusterQueue"])

    def _cluster_queues(self, found: list[str]) -> None:
        for name in found:
            self._enqueue(names.CLUSTER_QUEUES, "", name)

    def _enqueue(self, resource: Resource, namespace: str, name: str) -> None:
        self.enqueue((resource.plural, namespace, name))

    def reconcile(self, key: Key) -> None:
        """One object's finalizer, or one queue's status."""
        plural, namespace, name = key
        resource = _KINDS[plural]
        obj = self.world.view.get(resource, namespace, name)
        if obj is None:
            return
        if resource == names.LOCAL_QUEUES:
            self._local_queue(obj)
        elif not self._finalizer(resource, obj) and resource == names.CLUSTER_QUEUES:
            self._cluster_queue(obj)

    def _finalizer(self, resource: Resource, obj: Object) -> bool:
        """Keep it on what lives, take it off what goes and nobody uses; True when it was written."""
        finalizers = obj["metadata"].get("finalizers") or []
        if "deletionTimestamp" not in obj["metadata"]:
            if names.FINALIZER in finalizers:
                return False
            wanted = [*finalizers, names.FINALIZER]
        elif names.FINALIZER not in finalizers or self._in_use(resource, obj["metadata"]["name"]):
            return False
        else:
            wanted = [each for each in finalizers if each != names.FINALIZER]
        self.world.api.update(resource, {**obj, "metadata": {**obj["metadata"], "finalizers": wanted}}, names.MANAGER)
        return True

    def _in_use(self, resource: Resource, name: str) -> bool:
        if resource == names.CLUSTER_QUEUES:
            return bool(self._books.reserving.get(name))
        if resource == names.ADMISSION_CHECKS:
            return bool(self._books.cluster_queues_using(check=name))
        return bool(self._books.cluster_queues_using(flavor=name))

    def _cluster_queue(self, queue: Object) -> None:
        name = queue["metadata"]["name"]
        reserving = list(self._books.reserving.get(name, {}).values())
        status = {**(queue.get("status") or {})}
        self._count(status, queue, reserving, sum(1 for _ in self._books.pending(name)), "borrowed")
        why = self._books.inactive(queue)
        if why is None:
            self._active(status, queue, "True", "Ready", "Can admit new workloads")
        else:
            self._active(status, queue, "False", *why)
        self._write(names.CLUSTER_QUEUES, queue, status)

    def _local_queue(self, queue: Object) -> None:
        place = place_of(queue)
        above = self._books.cluster_queue(queue["spec"]["clusterQueue"])
        mine = self._books.workloads_of(place)
        reserving = [wl for wl in mine if self._reserves_in(wl, queue["spec"]["clusterQueue"])]
        waiting = set(self._books.pending(queue["spec"]["clusterQueue"])) & {place_of(wl) for wl in mine}
        status = {**(queue.get("status") or {})}
        self._count(status, above, reserving, 0 if stopped(queue) else len(waiting), "")
        if stopped(queue):
            self._active(status, queue, "False", "Stopped", "LocalQueue is stopped")
        elif above is None:
            reason = "ClusterQueueDoesNotExist"
            self._active(status, queue, "False", reason, "Can't submit new workloads to clusterQueue")
        elif conditions.is_true(above.get("status"), "Active"):
            self._active(status, queue, "True", "Ready", "Can submit new workloads to localQueue")
        else:
            reason = "ClusterQueueIsInactive"
            self._active(status, queue, "False", reason, "Can't submit new workloads to clusterQueue")
        self._write(names.LOCAL_QUEUES, queue, status)

    def _reserves_in(self, wl: Object, cluster_queue: str) -> bool:
        return place_of(wl) in self._books.reserving.get(cluster_queue, {})

    def _count(
        self, status: Object, queue: Object | None, reserving: list[Object], pending: int, borrowed: str
    ) -> None:
        admitted = [wl for wl in reserving if workload.has(wl, "Admitted")]
        status["pendingWorkloads"] = pending
        status["reservingWorkloads"] = len(reserving)
        status["admittedWorkloads"] = len(admitted)
        for field, counted in (("flavorsReservation", reserving), ("flavorsUsage", admitted)):
            told = _usage(queue, counted, borrowed)
            status.pop(field, None)
            if told:
                status[field] = told

    def _active(self, status: Object, queue: Object, value: str, reason: str, message: str) -> None:
        new: Object = {
            "type": "Active",
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": self.world.now(),
            "observedGeneration": queue["metadata"].get("generation", 1),
        }
        old = conditions.find(status, "Active")
        if old is not None and old["status"] == value:
            new["lastTransitionTime"] = old["lastTransitionTime"]
        if new != old:
            conditions.replace(status, new)

    def _write(self, resource: Resource, queue: Object, status: Object) -> None:
        if status != queue.get("status"):
            self.world.api.update(resource, {**queue, "status": status}, names.MANAGER, "status")


def _usage(queue: Object | None, counted: list[Object], borrowed: str) -> list[Object]:
    total: Amounts = {}
    for wl in counted:
        for slot, amount in reserved(wl).items():
            total[slot] = total.get(slot, Decimal(0)) + amount
    groups = () if queue is None else queue["spec"].get("resourceGroups") or ()
    found: list[Object] = []
    for group in groups:
        for flavor in group["flavors"]:
            resources: list[Object] = []
            for quota in sorted(flavor["resources"], key=lambda each: str(each["name"])):
                used = total.get((flavor["name"], quota["name"]), Decimal(0))
                told: Object = {"name": quota["name"], "total": shown(quota["name"], used)}
                if borrowed:
                    told[borrowed] = "0"
                resources.append(told)
            found.append({"name": flavor["name"], "resources": resources})
    return found
