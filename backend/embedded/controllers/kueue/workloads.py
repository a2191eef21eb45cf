"""A Workload's life beside the scheduler: gates, checks, admission, deactivation, stopped queues and limits of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.kueue import names, workload
from dispatch_kubeflow.backend.embedded.controllers.kueue.books import Books, checks, flavors, place_of, stopped
from dispatch_kubeflow.backend.embedded.controllers.view import Change, Place

Object = dict[str, Any]


class KueueWorkloads(Controller):
    """Workloads in, their status out, in the order of Kueue's own reconciler."""

    name: ClassVar[str] = "kueue-workloads"

    def __init__(self, world: World, books: Books) -> None:
        super().__init__(world)
        self._books = books

    def handle(self, change: Change) -> None:
        """Workloads, and those of a queue that came, went, was stopped or started, or has other checks."""
        if change.resource == names.WORKLOADS:
            if change.type != "DELETED":
                self.enqueue(change.place)
        elif change.resource == names.CLUSTER_QUEUES:
            if _concerns(change, ("admissionChecksStrategy", "stopPolicy")):
                for queue in self._books.local_queues_of(change.obj["metadata"]["name"]):
                    self._all_of(place_of(queue))
        elif change.resource == names.LOCAL_QUEUES and _concerns(change, ("stopPolicy",)):
            self._all_of(change.place)

    def _all_of(self, queue: Place) -> None:
        for wl in self._books.workloads_of(queue):
            self.enqueue(place_of(wl))

    def reconcile(self, key: Place) -> None:
        """One pass: at most one write, and what follows from it in the next."""
        wl = self.world.view.get(names.WORKLOADS, *key)
        if wl is None:
            return
        if _is_orphan(wl):
            self._orphaned(wl)
            return
        if workload.has(wl, "Finished") or self._retry_time(wl):
            return
        if not (self._activity(wl) if workload.is_active(wl) else self._deactivation(wl)):
            self._in_its_queues(wl)

    def _in_its_queues(self, wl: Object) -> None:
        local = self._books.local_queue(self._books.queue_of(wl))
        if local is not None and not stopped(local) and self._restarted(wl, "LocalQueue"):
            return
        name = self._books.line_of(wl)
        queue = None if name is None else self._books.cluster_queue(name)
        if self._gate(wl, self._blocker(wl, local, queue)):
            return
        if queue is not None and (
            (not stopped(queue) and self._restarted(wl, "ClusterQueue")) or self._sync_checks(wl, queue)
        ):
            return
        if not workload.has(wl, "Admitted") and self._sync_admitted(wl, local, queue):
            return
        if workload.has_quota(wl):
            self._with_quota(wl, local, queue)

    # Orphans.

    def _orphaned(self, wl: Object) -> None:
        if "deletionTimestamp" not in wl["metadata"] and not workload.has(wl, "Finished"):
            editor = workload.Editor(wl, self.world.now())
            editor.put("Finished", "True", "OwnerNotFound", "The workload's owner no longer exists")
            wl = self._status(editor)
        finalizers = wl["metadata"].get("finalizers") or []
        if names.FINALIZER in finalizers:
            rest = [each for each in finalizers if each != names.FINALIZER]
            self.world.api.update(names.WORKLOADS, {**wl, "metadata": {**wl["metadata"], "finalizers": rest}}, "kueue")

    # Activity.

    def _retry_time(self, wl: Object) -> bool:
        """A check may ask for a later retry; True when that was written down."""
        moments = [
            conditions.parse_stamp(check["lastTransitionTime"]) + timedelta(seconds=check["requeueAfterSeconds"])
            for check in workload.checks_in(wl, "Retry")
            if check.get("requeueAfterSeconds") is not None
        ]
        if not moments or max(moments) <= self.world.clock.now():
            return False
        wanted = conditions.stamp(max(moments))
        state = workload.status_of(wl).get("requeueState") or {}
        if state.get("requeueAt", "") >= wanted:
            return False
        editor = workload.Editor(wl, self.world.now())
        editor.status["requeueState"] = {**state, "requeueAt": wanted}
        self._status(editor)
        return True

    def _activity(self, wl: Object) -> bool:
        """Deactivate what is to be, and let those come back whose time has come."""
        if workload.has(wl, "DeactivationTarget"):
            spec = {**wl["spec"], "active": False}
            self.world.api.update(names.WORKLOADS, {**wl, "spec": spec}, names.MANAGER)
            return True
        state = workload.status_of(wl).get("requeueState") or {}
        if state.get("requeueAt") is not None:
            left = (conditions.parse_stamp(state["requeueAt"]) - self.world.clock.now()).total_seconds()
            if left > 0:
                self.enqueue(place_of(wl), left)
                return True
        editor = workload.Editor(wl, self.world.now())
        requeued = conditions.find(editor.status, "Requeued")
        if requeued is not None and requeued["status"] == "False":
            if requeued["reason"] == "Deactivated":
                editor.requeued("Reactivated", "The workload was reactivated", value=True)
            elif requeued["reason"] in ("AdmissionCheck", "PodsReadyTimeout"):
                editor.requeued("BackoffFinished", "The workload backoff was finished", value=True)
        if "requeueAt" in state and workload.phase(wl) == "pending":
            editor.status["requeueState"] = {key: given for key, given in state.items() if key != "requeueAt"} or None
        if editor.changed:
            self._status(editor)
            return True
        return False

    def _deactivation(self, wl: Object) -> bool:
        target = conditions.find(workload.status_of(wl), "DeactivationTarget")
        evicted = workload.has(wl, "Evicted")
        editor = workload.Editor(wl, self.world.now())
        if not evicted:
            message, cause = "The workload is deactivated", ""
            if target is not None:
                message, cause = f"{message} due to {target['message']}", target["reason"]
            conditions.drop(editor.status, "DeactivationTarget")
            editor.evict("Deactivated", message, cause)
        if editor.status.pop("requeueState", None) is None and evicted:
            return False
        self._status(editor)
        return True

    def _restarted(self, wl: Object, kind: str) -> bool:
        requeued = conditions.find(workload.status_of(wl), "Requeued")
        if requeued is None or (requeued["status"], requeued["reason"]) != ("False", f"{kind}Stopped"):
            return False
        editor = workload.Editor(wl, self.world.now())
        editor.requeued(f"{kind}Restarted", f"The {kind} was restarted after being stopped", value=True)
        self._status(editor)
        return True

    # Gate and checks.

    def _gate(self, wl: Object, blocked: str) -> bool:
        """Say that it is gated, or no more. Of a gate and a queue that admits nothing the queue is told in the end."""
        reserved = conditions.find(workload.status_of(wl), "QuotaReserved")
        said = reserved is not None and reserved["reason"] == "AdmissionGated"
        gate = workload.gate(wl)
        told = gate and blocked and reserved is not None and reserved["message"] == blocked
        if told or bool(gate) == said:
            return False
        editor = workload.Editor(wl, self.world.now())
        if gate:
            editor.unreserve("AdmissionGated", f"Admission is gated by: {gate}")
        else:
            editor.unreserve("Pending", "AdmissionGatedBy cleared, waiting for quota reservation")
        self._status(editor)
        return True

    def _sync_checks(self, wl: Object, queue: Object) -> bool:
        status = workload.status_of(wl)
        now = status.get("admissionChecks") or []
        wanted = _wanted_checks(wl, queue)
        kept = [check for check in now if check["name"] in wanted]
        present = {check["name"] for check in kept}
        if len(kept) == len(now) and present == wanted:
            return False
        new = [
            {"name": name, "state": "Pending", "message": "", "lastTransitionTime": self.world.now()}
            for name in wanted - present
        ]
        changed = {key: given for key, given in status.items() if key != "admissionChecks"}
        if kept or new:
            changed["admissionChecks"] = sorted([*kept, *new], key=lambda check: str(check["name"]))
        self.world.api.update(names.WORKLOADS, {**wl, "status": changed}, names.MANAGER, "status")
        return True

    def _sync_admitted(self, wl: Object, local: Object | None, queue: Object | None) -> bool:
        editor = workload.Editor(wl, self.world.now())
        if not workload.has_quota(wl):
            blocked = self._blocker(wl, local, queue)
            if blocked:
                editor.put("QuotaReserved", "False", "Inadmissible", blocked)
        editor.sync_admitted()
        if editor.changed:
            self._status(editor)
            return True
        return False

    def _blocker(self, wl: Object, local: Object | None, queue: Object | None) -> str:
        name = wl["spec"].get("queueName", "")
        if local is None:
            return f"LocalQueue {name} doesn't exist"
        if stopped(local):
            return f"LocalQueue {name} is inactive"
        if queue is None:
            return f"ClusterQueue {local['spec']['clusterQueue']} doesn't exist"
        if self._books.inactive(queue) is not None:
            return f"ClusterQueue {queue['metadata']['name']} is inactive"
        return ""

    # While quota is reserved.

    def _with_quota(self, wl: Object, local: Object | None, queue: Object | None) -> None:
        if (
            self._failed_checks(wl)
            or self._queue_stands(wl, "LocalQueue", wl["spec"].get("queueName", ""), local)
            or self._queue_stands(wl, "ClusterQueue", "" if local is None else local["spec"]["clusterQueue"], queue)
        ):
            return
        self._time_limit(wl)

    def _failed_checks(self, wl: Object) -> bool:
        if workload.has(wl, "Evicted"):
            return False
        rejected, retried = workload.checks_in(wl, "Rejected"), workload.checks_in(wl, "Retry")
        editor = workload.Editor(wl, self.world.now())
        if rejected:
            editor.put("DeactivationTarget", "True", "AdmissionCheck", _told(rejected, "Rejected"))
        elif retried:
            editor.evict("AdmissionCheck", f"Evicted due to {_told(retried, 'Retry')}")
        else:
            return False
        self._status(editor)
        return True

    def _queue_stands(self, wl: Object, kind: str, name: str, queue: Object | None) -> bool:
        """Whether a queue that is stopped, going or gone took the quota away."""
        policy = "None" if queue is None else queue["spec"].get("stopPolicy", "None")
        editor = workload.Editor(wl, self.world.now())
        if workload.has(wl, "Admitted"):
            if policy != "HoldAndDrain" or workload.has(wl, "Evicted"):
                return False
            editor.evict(f"{kind}Stopped", f"The {kind} is stopped")
        elif queue is None or "deletionTimestamp" in queue["metadata"]:
            editor.unreserve("Inadmissible", f"{kind} {name} is terminating or missing")
        elif policy != "None":
            editor.unreserve("Inadmissible", f"{kind} {name} is stopped")
        else:
            return False
        self._status(editor)
        return True

    def _time_limit(self, wl: Object) -> None:
        seconds = wl["spec"].get("maximumExecutionTimeSeconds")
        admitted = conditions.find(workload.status_of(wl), "Admitted")
        if seconds is None or admitted is None or admitted["status"] != "True":
            return
        past = workload.status_of(wl).get("accumulatedPastExecutionTimeSeconds", 0)
        ends = conditions.parse_stamp(admitted["lastTransitionTime"]) + timedelta(seconds=seconds - past)
        left = (ends - self.world.clock.now()).total_seconds()
        if left > 0:
            self.enqueue(place_of(wl), left)
            return
        editor = workload.Editor(wl, self.world.now())
        message = "exceeding the maximum execution time"
        editor.put("DeactivationTarget", "True", "MaximumExecutionTimeExceeded", message)
        editor.status.pop("accumulatedPastExecutionTimeSeconds", None)
        self._status(editor)

    def _status(self, editor: workload.Editor) -> Object:
        return self.world.api.update(names.WORKLOADS, editor.edited(), names.ADMISSION_MANAGER, "status")


def _concerns(change: Change, fields: tuple[str, ...]) -> bool:
    if change.old is None or change.type == "DELETED" or "deletionTimestamp" in change.obj["metadata"]:
        return True
    return any(change.old["spec"].get(field) != change.obj["spec"].get(field) for field in fields)


def _is_orphan(wl: Object) -> bool:
    metadata = wl["metadata"]
    if metadata.get("ownerReferences"):
        return False
    return "deletionTimestamp" in metadata or bool((metadata.get("labels") or {}).get(names.JOB_UID))


def _wanted_checks(wl: Object, queue: Object) -> set[str]:
    """With quota the checks of its flavors; without, those that are for every flavor."""
    admission = workload.status_of(wl).get("admission")
    if admission is None:
        return {name for name, given in checks(queue).items() if set(flavors(queue)) <= set(given)}
    assigned = admission.get("podSetAssignments") or ()
    chosen = {flavor for each in assigned for flavor in (each.get("flavors") or {}).values()}
    return {name for name, given in checks(queue).items() if chosen & set(given)}


def _told(found: list[Object], state: str) -> str:
    parts = [f'"{check["name"]}" ({check["message"]})' if check["message"] else f'"{check["name"]}"' for check in found]
    return f"AdmissionCheck{'s' if len(found) > 1 else ''} in {state} state: {'; '.join(parts)}"
