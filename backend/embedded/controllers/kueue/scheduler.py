"""The head of each line is given quota, set aside, or may send others away, as Kueue's scheduler does it."""

from __future__ import annotations

from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.kueue import names, workload
from dispatch_kubeflow.backend.embedded.controllers.kueue.books import Books, checks, place_of
from dispatch_kubeflow.backend.embedded.controllers.kueue.pod_sets import total_requests
from dispatch_kubeflow.backend.embedded.controllers.kueue.quotas import Assignment, Target, assign, shown
from dispatch_kubeflow.backend.embedded.controllers.view import Change

Object = dict[str, Any]

CYCLE = "cycle"
REST = 0.1
"""Seconds until a preemptor is looked at again, unless quota was freed before."""
REASONS = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
}


class KueueScheduler(Controller):
    """Heads of lines in, quota reservations and preemptions out."""

    name: ClassVar[str] = "kueue-scheduler"

    def __init__(self, world: World, books: Books) -> None:
        super().__init__(world)
        self._books = books
        books.wake = self.wake

    def wake(self) -> None:
        """There may be something to schedule."""
        if not self.down:
            self.enqueue(CYCLE)

    def relist(self) -> None:
        """Look at every line again."""
        self.wake()

    def handle(self, change: Change) -> None:
        """Nothing: the books say when there is something to do."""

    def reconcile(self, key: str) -> None:  # noqa: ARG002  # there is one
        """One cycle: the head of every line whose ClusterQueue is active."""
        heads: list[tuple[Object, Object, Assignment]] = []
        for name in list(self._books.lines):
            queue = self._books.cluster_queue(name)
            if queue is None or self._books.inactive(queue) is not None:
                continue
            head = self._books.head(name)
            if head is not None:
                heads.append((queue, head, assign(self._books, queue, head)))
        touched: set[str] = set()
        for queue, head, found in sorted(heads, key=_rank):
            # What one takes another of its cohort may have counted on: that one is looked at in the next cycle.
            shared = queue["spec"].get("cohortName") or ""
            if not shared or shared not in touched:
                self._try(queue, head, found)
            touched.add(shared)
        if heads:
            self.enqueue(CYCLE)

    def _try(self, queue: Object, wl: Object, found: Assignment) -> None:
        name = queue["metadata"]["name"]
        if workload.checks_in(wl, "Retry") or workload.checks_in(wl, "Rejected"):
            self._refuse(name, wl, "The workload has failed admission checks", hopeless=False)
            return
        if found.mode == "fit":
            self._reserve(queue, wl, found)
        elif found.targets:
            self._preempt(queue, wl, found)
        else:
            self._refuse(name, wl, found.message, hopeless=True)

    def _reserve(self, queue: Object, wl: Object, found: Assignment) -> None:
        editor = workload.Editor(wl, self.world.now())
        editor.reserve({"clusterQueue": queue["metadata"]["name"], "podSetAssignments": found.pod_sets})
        chosen = {flavor for each in found.pod_sets for flavor in (each.get("flavors") or {}).values()}
        needed = {name for name, flavors in checks(queue).items() if chosen & set(flavors)}
        if needed <= {check["name"] for check in editor.status.get("admissionChecks") or ()}:
            editor.sync_admitted()
        self._write(editor)
        self._books.forget(place_of(wl))

    def _preempt(self, queue: Object, wl: Object, found: Assignment) -> None:
        name = queue["metadata"]["name"]
        for target in found.targets:
            if not workload.has(target.workload, "Evicted"):
                self._send_away(queue, wl, target)
        line = self._books.lines[name]
        line.preemptor = place_of(wl)
        line.rests = True
        self.world.timers.after(REST, lambda: self._rested(name))
        message = f"{found.message}. Pending the preemption of {len(found.targets)} workload(s)"
        self._say_waiting(wl, message)

    def _rested(self, name: str) -> None:
        line = self._books.lines.get(name)
        if line is not None and line.rests:
            line.rests = False
            self.wake()

    def _send_away(self, queue: Object, wl: Object, target: Target) -> None:
        victim = target.workload
        theirs = self._books.cluster_queue(victim["status"]["admission"]["clusterQueue"]) or queue
        message = (
            f"Preempted to accommodate a workload (UID: {wl['metadata']['uid']}, "
            f"JobUID: {(wl['metadata'].get('labels') or {}).get(names.JOB_UID, 'UNKNOWN')}) due to "
            f"{REASONS[target.reason]}; preemptor path: {_path(queue)}; preemptee path: {_path(theirs)}"
        )
        editor = workload.Editor(victim, self.world.now())
        editor.put("Preempted", "True", target.reason, message, observed=False)
        editor.evict("Preempted", message)
        self._write(editor)

    def _refuse(self, name: str, wl: Object, message: str, *, hopeless: bool) -> None:
        self._books.set_aside(name, wl, hopeless=hopeless)
        self._say_waiting(wl, message)

    def _say_waiting(self, wl: Object, message: str) -> None:
        editor = workload.Editor(wl, self.world.now())
        editor.unreserve("Pending", message)
        editor.status["resourceRequests"] = [
            {"name": name, "resources": {each: shown(each, amount) for each, amount in sorted(asked.items())}}
            if asked
            else {"name": name}
            for name, _, asked in total_requests(wl)
        ]
        if editor.changed:
            self._write(editor)

    def _write(self, editor: workload.Editor) -> None:
        self.world.api.update(names.WORKLOADS, editor.edited(), names.ADMISSION_MANAGER, "status")


def _rank(entry: tuple[Object, Object, Assignment]) -> tuple[bool, int, str]:
    """Who does not borrow comes first, then who matters most, then who waited longest."""
    _, wl, found = entry
    return found.borrows, -workload.priority(wl), wl["metadata"]["creationTimestamp"]


def _path(queue: Object) -> str:
    cohort = queue["spec"].get("cohortName")
    return f"/{cohort}/{queue['metadata']['name']}" if cohort else f"/{queue['metadata']['name']}"
