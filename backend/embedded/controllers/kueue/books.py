"""Kueue decides from its memory of queues and reservations, not from the objects' status; this is that memory.

Built from events alone, so that it is the same after a restart. Who waits is in one of two places: in line, or set
aside as inadmissible until room may have come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.kueue import names, workload
from dispatch_kubeflow.backend.embedded.controllers.kueue.configuration import KueueConfiguration
from dispatch_kubeflow.backend.embedded.controllers.kueue.pod_sets import shape
from dispatch_kubeflow.backend.embedded.controllers.quantities import value
from dispatch_kubeflow.backend.embedded.controllers.view import Change, Place, controller_of

Object = dict[str, Any]
Slot = tuple[str, str]
"""A flavor and a resource of it."""
Amounts = dict[Slot, Decimal]


@dataclass
class Line:
    """The Workloads that wait for one ClusterQueue."""

    waiting: dict[Place, None] = field(default_factory=dict)
    aside: dict[Place, Object] = field(default_factory=dict)
    hopeless: set[str] = field(default_factory=set)
    """Shapes that found no room: who shares one is set aside without being looked at."""
    preemptor: Place | None = None
    rests: bool = False
    """Its head waits for what it preempts."""


class Books(Controller):
    """Queues, what waits in them and what is reserved; it writes nothing."""

    name: ClassVar[str] = "kueue-queues"

    def __init__(self, world: World, configuration: KueueConfiguration) -> None:
        super().__init__(world)
        self.configuration = configuration
        self.wake: Callable[[], None] = lambda: None
        """Called when there may be something to schedule."""
        self.lines: dict[str, Line] = {}
        self.reserving: dict[str, dict[Place, Object]] = {}
        self._usage: dict[str, Amounts] = {}
        self._members: dict[Place, dict[Place, None]] = {}
        self._known: dict[Place, Object] = {}
        self._owned: dict[Place, dict[Place, None]] = {}

    # What there is.

    def cluster_queue(self, name: str) -> Object | None:
        """The ClusterQueue of that name."""
        return self.world.view.get(names.CLUSTER_QUEUES, "", name)

    def local_queue(self, place: Place) -> Object | None:
        """The LocalQueue of that place."""
        return self.world.view.get(names.LOCAL_QUEUES, *place)

    def serves(self, place: Place) -> bool:
        """Whether a LocalQueue is there and not stopped."""
        queue = self.local_queue(place)
        return queue is not None and not stopped(queue)

    def queue_of(self, wl: Object) -> Place:
        """The place of the LocalQueue a Workload names."""
        return wl["metadata"]["namespace"], wl["spec"].get("queueName", "")

    def line_of(self, wl: Object) -> str | None:
        """The ClusterQueue that a Workload waits for, if its queues are there and the LocalQueue is not stopped."""
        queue = self.local_queue(self.queue_of(wl))
        if queue is None or stopped(queue):
            return None
        name: str = queue["spec"]["clusterQueue"]
        return name if self.cluster_queue(name) is not None else None

    def workloads_of(self, queue: Place) -> list[Object]:
        """The Workloads that name a LocalQueue."""
        return [self._known[place] for place in self._members.get(queue, ())]

    def owned_by(self, job: Place) -> list[Object]:
        """The Workloads that a TrainJob of that place controls, by its name: whichever UID it had."""
        return [self._known[place] for place in self._owned.get(job, ())]

    def local_queues_of(self, cluster_queue: str) -> list[Object]:
        """The LocalQueues of a ClusterQueue."""
        every = self.world.view.all(names.LOCAL_QUEUES)
        return [queue for queue in every if queue["spec"]["clusterQueue"] == cluster_queue]

    def cluster_queues_using(self, *, flavor: str = "", check: str = "") -> list[str]:
        """The ClusterQueues that name a flavor or an AdmissionCheck."""
        return [
            queue["metadata"]["name"]
            for queue in self.world.view.all(names.CLUSTER_QUEUES)
            if (flavor and flavor in flavors(queue)) or (check and check in checks(queue))
        ]

    def inactive(self, queue: Object) -> tuple[str, str] | None:
        """Why a ClusterQueue admits nothing, as reason and message; None when it does."""
        if "deletionTimestamp" in queue["metadata"]:
            return "Terminating", "Can't admit new workloads; clusterQueue is terminating"
        found: list[tuple[str, str]] = []
        view = self.world.view
        if stopped(queue):
            found.append(("Stopped", "is stopped"))
        gone = [name for name in flavors(queue) if view.get(names.RESOURCE_FLAVORS, "", name) is None]
        if gone:
            found.append(("FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(gone)}"))
        there = {name: view.get(names.ADMISSION_CHECKS, "", name) for name in sorted(checks(queue))}
        absent = [name for name, check in there.items() if check is None]
        if absent:
            found.append(("AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(absent)}"))
        idle = [
            name
            for name, check in there.items()
            if check is not None and not conditions.is_true(check.get("status"), "Active")
        ]
        if idle:
            found.append(("AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(idle)}"))
        if not found:
            return None
        return found[0][0], f"Can't admit new workloads: {', '.join(message for _, message in found)}."

    def usage(self, cluster_queue: str) -> Amounts:
        """What is reserved in a ClusterQueue."""
        return self._usage.get(cluster_queue, {})

    def pending(self, cluster_queue: str) -> Iterator[Place]:
        """The Workloads that wait for a ClusterQueue, set aside or not."""
        line = self.lines.get(cluster_queue)
        return iter(()) if line is None else iter([*line.waiting, *line.aside])

    # Events.

    def relist(self) -> None:
        """Begin anew."""
        self.lines.clear()
        self.reserving.clear()
        self._usage.clear()
        self._members.clear()
        self._known.clear()
        self._owned.clear()
        super().relist()

    def handle(self, change: Change) -> None:
        """Workloads, and all that decides where and whether they wait."""
        if change.resource == names.WORKLOADS:
            self._workload(change)
        elif change.resource == names.LOCAL_QUEUES:
            self._local_queue(change)
        elif change.resource == names.CLUSTER_QUEUES:
            self._cluster_queue(change)
        elif change.resource == names.ADMISSION_CHECKS:
            self._look_again(self.cluster_queues_using(check=change.obj["metadata"]["name"]))
        elif change.resource == names.RESOURCE_FLAVORS:
            self._look_again(self.cluster_queues_using(flavor=change.obj["metadata"]["name"]))

    def reconcile(self, key: Any) -> None:
        """Nothing: the memory changes with the events themselves."""

    def _workload(self, change: Change) -> None:
        place, new = change.place, change.obj
        old = self._known.get(place)
        if old is not None:
            self._members[self.queue_of(old)].pop(place, None)
            self._owned.get(owner_of(old), {}).pop(place, None)
            self._release(place, old)
        if change.type == "DELETED":
            self._known.pop(place, None)
            self.forget(place)
            self._look_again([name] if (name := self.line_of(new)) else [])
            return
        self._known[place] = new
        self._members.setdefault(self.queue_of(new), {})[place] = None
        self._owned.setdefault(owner_of(new), {})[place] = None
        self._reserve(place, new)
        before = "new" if old is None else workload.phase(old)
        now = workload.phase(new)
        if now == "finished" or not workload.is_active(new):
            self.forget(place)
            self._look_again([name] if (name := self.line_of(new)) else [])
        elif now != "pending":
            self.forget(place)
        else:
            if before in ("quotaReserved", "admitted"):
                self._look_again([name] if (name := self.line_of(new)) else [])
            self.stand_in_line(new)

    def _reserve(self, place: Place, wl: Object) -> None:
        if not reserves(wl):
            return
        admission = wl["status"]["admission"]
        name = admission["clusterQueue"]
        self.reserving.setdefault(name, {})[place] = wl
        used = self._usage.setdefault(name, {})
        for slot, amount in reserved(wl).items():
            used[slot] = used.get(slot, Decimal(0)) + amount

    def _release(self, place: Place, wl: Object) -> None:
        if not reserves(wl):
            return
        name = wl["status"]["admission"]["clusterQueue"]
        self.reserving[name].pop(place, None)
        for slot, amount in reserved(wl).items():
            self._usage[name][slot] -= amount

    def _local_queue(self, change: Change) -> None:
        name = change.obj["spec"]["clusterQueue"]
        served = change.type != "DELETED" and not stopped(change.obj)
        if not served:
            for wl in self.workloads_of(change.place):
                self.forget(place_of(wl))
        elif change.old is None or stopped(change.old):
            self._join(name, self.workloads_of(change.place))

    def _cluster_queue(self, change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            self.lines.pop(name, None)
            return
        if change.old is None:
            for queue in self.local_queues_of(name):
                if not stopped(queue):
                    self._join(name, self.workloads_of(place_of(queue)))
        if change.old is None or change.old["spec"] != change.obj["spec"]:
            self._look_again([name])
        self.wake()

    def _join(self, name: str, workloads: Iterable[Object]) -> None:
        line = self.lines.setdefault(name, Line())
        for wl in workloads:
            if workload.is_admissible(wl) and place_of(wl) not in line.aside:
                line.waiting[place_of(wl)] = None
        self.wake()

    # Standing in line.

    def stand_in_line(self, wl: Object) -> None:
        """Put a Workload in line, or aside if nothing that matters changed since it was looked at."""
        name = self.line_of(wl)
        if name is None or not workload.is_admissible(wl):
            return
        place = place_of(wl)
        for other, line in self.lines.items():
            if other != name:
                line.waiting.pop(place, None)
                line.aside.pop(place, None)
        line = self.lines.setdefault(name, Line())
        earlier = line.aside.get(place)
        if earlier is not None:
            if _matters(earlier) == _matters(wl):
                line.aside[place] = wl
                return
            del line.aside[place]
        if place not in line.waiting and (backing_off(wl, self.world.now()) or self._is_hopeless(line, name, wl)):
            line.aside[place] = wl
            return
        line.waiting[place] = None
        self.wake()

    def _is_hopeless(self, line: Line, name: str, wl: Object) -> bool:
        return bool(line.hopeless) and not self.strict(name) and shape(wl) in line.hopeless

    def strict(self, cluster_queue: str) -> bool:
        """Whether a ClusterQueue lets nobody overtake its head."""
        queue = self.cluster_queue(cluster_queue)
        return queue is not None and queue["spec"].get("queueingStrategy") == "StrictFIFO"

    def head(self, cluster_queue: str) -> Object | None:
        """Who is next: a preemptor, then by priority and age."""
        line = self.lines.get(cluster_queue)
        if line is None or line.rests:
            return None
        found = [self._known[place] for place in line.waiting if place in self._known]
        if not found:
            return None
        return min(found, key=lambda wl: self._order(line, wl))

    def _order(self, line: Line, wl: Object) -> tuple[bool, int, str, str]:
        moment = wl["metadata"]["creationTimestamp"]
        evicted = conditions.find(workload.status_of(wl), "Evicted")
        if evicted and evicted["status"] == "True" and evicted["reason"] in ("AdmissionCheck", "PodsReadyTimeout"):
            moment = evicted["lastTransitionTime"]
        return place_of(wl) != line.preemptor, -workload.priority(wl), moment, wl["metadata"]["uid"]

    def set_aside(self, cluster_queue: str, wl: Object, *, hopeless: bool) -> None:
        """It found no room: aside until room may have come, and with it, if `hopeless`, all of its shape."""
        line = self.lines[cluster_queue]
        place = place_of(wl)
        if self.strict(cluster_queue):
            line.rests = True
            return
        line.waiting.pop(place, None)
        line.aside[place] = wl
        if hopeless:
            line.hopeless.add(shape(wl))
            for other in [each for each in line.waiting if shape(self._known[each]) in line.hopeless]:
                line.aside[other] = self._known[other]
                del line.waiting[other]

    def forget(self, place: Place) -> None:
        """It waits no more."""
        for line in self.lines.values():
            line.waiting.pop(place, None)
            line.aside.pop(place, None)
            if line.preemptor == place:
                line.preemptor = None

    def _look_again(self, cluster_queues: Iterable[str]) -> None:
        """Room may have come: to whoever preempts now, to those set aside in a while."""
        near = (other for each in cluster_queues for other in self.cohort(each))
        for name in dict.fromkeys(other for other in near if other in self.lines):
            line = self.lines[name]
            if line.rests:
                line.rests = False
                self.wake()
            if line.aside or line.hopeless:
                self.world.timers.after(self.configuration.requeue_seconds, partial(self._readmit, name))

    def cohort(self, cluster_queue: str) -> list[str]:
        """The ClusterQueues that share a cohort with one, itself included."""
        queue = self.cluster_queue(cluster_queue)
        shared = (queue or {"spec": {}})["spec"].get("cohortName")
        if not shared:
            return [cluster_queue]
        every = self.world.view.all(names.CLUSTER_QUEUES)
        return [each["metadata"]["name"] for each in every if each["spec"].get("cohortName") == shared]

    def _readmit(self, name: str) -> None:
        line = self.lines.get(name)
        if line is None or self.down:
            return
        line.hopeless.clear()
        now = self.world.now()
        for place in [place for place, wl in line.aside.items() if not backing_off(wl, now)]:
            del line.aside[place]
            line.waiting[place] = None
        self.wake()


def place_of(obj: Object) -> Place:
    """Namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def owner_of(wl: Object) -> Place:
    """The place of the TrainJob that controls a Workload; that of no object where none does."""
    owner = controller_of(wl)
    if owner is None or owner["kind"] != "TrainJob":
        return "", ""
    return wl["metadata"]["namespace"], owner["name"]


def stopped(queue: Object) -> bool:
    """Whether a queue's stopPolicy holds anything."""
    return str(queue["spec"].get("stopPolicy", "None")) != "None"


def flavors(queue: Object) -> list[str]:
    """The flavors a ClusterQueue names, in their order."""
    groups = queue["spec"].get("resourceGroups") or ()
    return [each["name"] for group in groups for each in group["flavors"]]


def checks(queue: Object) -> dict[str, list[str]]:
    """The AdmissionChecks a ClusterQueue names and the flavors each is for (all of them where it says none)."""
    given = (queue["spec"].get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    return {each["name"]: each.get("onFlavors") or flavors(queue) for each in given}


def reserves(wl: Object) -> bool:
    """Whether quota is taken by it: reserved, not finished and not deactivated."""
    return (
        workload.has_quota(wl)
        and not workload.has(wl, "Finished")
        and workload.is_active(wl)
        and "admission" in wl["status"]
    )


def reserved(wl: Object) -> Amounts:
    """What is reserved for it, by flavor and resource."""
    found: Amounts = {}
    for assigned in wl["status"]["admission"].get("podSetAssignments") or ():
        for resource, flavor in (assigned.get("flavors") or {}).items():
            slot = (flavor, resource)
            amount = value((assigned.get("resourceUsage") or {}).get(resource, "0"))
            found[slot] = found.get(slot, Decimal(0)) + amount
    return found


def backing_off(wl: Object, now: str) -> bool:
    """Whether it may not stand in line yet."""
    status = workload.status_of(wl)
    requeued = conditions.find(status, "Requeued")
    if requeued is not None and requeued["status"] == "False":
        return True
    until = (status.get("requeueState") or {}).get("requeueAt")
    return until is not None and conditions.parse_stamp(now) < conditions.parse_stamp(until)


def _matters(wl: Object) -> tuple[Any, ...]:
    status = workload.status_of(wl)
    return (
        wl["spec"],
        status.get("reclaimablePods"),
        conditions.find(status, "Evicted"),
        conditions.find(status, "Requeued"),
    )
