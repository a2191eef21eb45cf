"""Between a TrainJob and its Workload: the one is made for the other, started when it is admitted, stopped when it is
evicted.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.events import Recorder
from dispatch_kubeflow.backend.embedded.controllers.kinds import JOB_SETS, TRAIN_JOBS
from dispatch_kubeflow.backend.embedded.controllers.kueue import names, pod_sets, workload
from dispatch_kubeflow.backend.embedded.controllers.kueue.books import Books
from dispatch_kubeflow.backend.embedded.controllers.trainer import RUNTIMES
from dispatch_kubeflow.backend.embedded.controllers.trainer_build import owner_reference
from dispatch_kubeflow.backend.embedded.controllers.view import Change, Place, controller_of
from dispatch_kubeflow.backend.embedded.errors import ApiError

Object = dict[str, Any]

COMPONENT = "trainer.kubeflow.org/trainjob-kueue-controller"
JOB_CONTROLLER = "job-controller"
NOT_READY = "Not all pods are ready or succeeded"
RECOVERS = "At least one pod has failed, waiting for recovery"
ALL_READY = "All pods reached readiness and the workload is running"


class KueueJobs(Controller):
    """TrainJobs with a queue in, Workloads out; and the TrainJob's `suspend` by what the Workload says."""

    name: ClassVar[str] = "kueue-jobs"

    def __init__(self, world: World, books: Books) -> None:
        super().__init__(world)
        self._books = books
        self._configuration = books.configuration
        self._recorder = Recorder(world, COMPONENT)

    def handle(self, change: Change) -> None:
        """TrainJobs, and the Workloads and JobSets they control."""
        if change.resource == TRAIN_JOBS:
            self.enqueue(change.place)
        elif change.resource in (names.WORKLOADS, JOB_SETS):
            owner = controller_of(change.obj)
            if owner is not None and owner["kind"] == "TrainJob":
                self.enqueue((change.place[0], owner["name"]))

    def reconcile(self, key: Place) -> None:
        """One pass over a TrainJob, in the order of Kueue's own."""
        job = self.world.view.get(TRAIN_JOBS, *key)
        if job is None or "deletionTimestamp" in job["metadata"]:
            for orphan in self._books.owned_by(key):
                self._orphaned(orphan)
            return
        if not self._configuration.manages(key[0]):
            return
        if not queue_name(job) and not self._configuration.manage_jobs_without_queue_name:
            return
        wl = self._one_workload(job)
        end = _end(job)
        if wl is not None:
            self._follow(job, wl, end)
        elif end is None and not _is_active(job):
            self._make_workload(job)

    def _follow(self, job: Object, wl: Object, end: tuple[str, str] | None) -> None:
        if workload.has(wl, "Finished"):
            self._let_go(wl)
        elif "deletionTimestamp" in wl["metadata"]:
            self._stop(job, "Workload is deleted")
            self._let_go(wl)
        elif end is not None:
            self._finish(wl, *end)
            self._recorder.event(job, "Normal", "FinishedWorkload", f"Workload '{_key(wl)}' is declared finished")
        elif not self._say_reclaimable(job, wl) and not self._say_ready(job, wl):
            self._obey(job, wl)

    def _obey(self, job: Object, wl: Object) -> None:
        """Run the job, or stop it, as its Workload says."""
        evicted = conditions.find(workload.status_of(wl), "Evicted")
        if evicted is not None and evicted["status"] == "True":
            self._stop(job, evicted["message"])
            if workload.has_quota(wl):
                self._give_back(wl, evicted)
        elif _is_suspended(job):
            if workload.has(wl, "Admitted"):
                self._start(job, wl)
            elif wl["spec"].get("queueName") != queue_name(job):
                self._update(wl, spec={**wl["spec"], "queueName": queue_name(job)})
        elif not workload.has(wl, "Admitted"):
            self._stop(job, "Not admitted by cluster queue")

    # Which Workload.

    def _one_workload(self, job: Object) -> Object | None:
        """The Workload that matches the job; those that do not are deleted, or one of them made to match."""
        match, rest = None, []
        for wl in self._books.owned_by((job["metadata"]["namespace"], job["metadata"]["name"])):
            if match is None and self._matches(job, wl):
                match = wl
            else:
                rest.append(wl)
        renewed = None
        if match is None and rest and _is_suspended(job) and not workload.has_quota(rest[0]):
            renewed = rest.pop(0)
        if match is None and renewed is None and not _is_suspended(job) and _end(job) is None:
            missing = "Missing Workload; unable to restore pod templates"
            other = "No matching Workload; restoring pod templates according to existent Workload"
            self._stop(job, other if len(rest) == 1 else missing)
        for wl in rest:
            self._delete(job, wl)
        if rest:
            raise ApiError(500, "", "no matching workloads" if match is None else "extra workloads")
        if renewed is not None:
            return self._renew(job, renewed)
        if match is not None:
            match = self._copy_gate(job, match)
            match = self._copy_priority(job, match)
        return match

    def _matches(self, job: Object, wl: Object) -> bool:
        owner = controller_of(wl) or {}
        if owner.get("uid") != job["metadata"]["uid"]:
            return False
        if wl["spec"].get("maximumExecutionTimeSeconds") != max_execution(job):
            return False
        return pod_sets.same(self._pod_sets(job), wl["spec"]["podSets"], tolerations=not workload.has(wl, "Admitted"))

    def _pod_sets(self, job: Object) -> list[Object]:
        reference = job["spec"]["runtimeRef"]
        resource = RUNTIMES[reference.get("kind", "ClusterTrainingRuntime")]
        namespace = job["metadata"]["namespace"] if resource.namespaced else ""
        runtime = self.world.view.get(resource, namespace, reference["name"])
        if runtime is None:
            raise ApiError(500, "", f"runtime '{reference['name']}' not found")
        return pod_sets.pod_sets(job, runtime)

    def _delete(self, job: Object, wl: Object) -> None:
        self._let_go(wl)
        if "deletionTimestamp" not in wl["metadata"]:
            self.world.api.delete(names.WORKLOADS, wl, propagation="Background", manager=names.MANAGER)
            self._recorder.event(job, "Normal", "DeletedWorkload", f"Deleted not matching Workload: {_key(wl)}")

    def _renew(self, job: Object, wl: Object) -> Object:
        made = self._built(job)
        made["spec"]["active"] = wl["spec"].get("active", True)
        renewed = self._update(wl, spec=made["spec"])
        message = f"Updated not matching Workload for suspended job: {_key(wl)}"
        self._recorder.event(job, "Normal", "UpdatedWorkload", message)
        return renewed

    def _copy_gate(self, job: Object, wl: Object) -> Object:
        wanted = workload.gate(job)
        if wanted == workload.gate(wl):
            return wl
        annotations = {**(wl["metadata"].get("annotations") or {})}
        annotations.pop(names.GATED_BY, None)
        if wanted:
            annotations[names.GATED_BY] = wanted
        copied = self._update(wl, annotations=annotations)
        self._recorder.event(job, "Normal", "UpdatedWorkload", f'Updated workload AdmissionGatedBy to "{wanted}"')
        return copied

    def _copy_priority(self, job: Object, wl: Object) -> Object:
        reference = wl["spec"].get("priorityClassRef")
        if reference is None and workload.has_quota(wl):
            return wl
        if reference is not None and reference["kind"] != "WorkloadPriorityClass":
            return wl
        if (reference or {}).get("name", "") == _priority_class(job):
            return wl
        spec = {**wl["spec"]}
        spec.pop("priorityClassRef", None)
        return self._update(wl, spec=spec | self._priority(job, wl["spec"]["podSets"]))

    def _make_workload(self, job: Object) -> None:
        made = self._built(job)
        self.world.api.create(names.WORKLOADS, made, names.MANAGER)
        self._recorder.event(job, "Normal", "CreatedWorkload", f"Created Workload: {_key(made)}")

    def _built(self, job: Object) -> Object:
        sets = self._pod_sets(job)
        metadata: Object = {
            "name": pod_sets.workload_name(job),
            "namespace": job["metadata"]["namespace"],
            "labels": {names.JOB_UID: job["metadata"]["uid"]},
            "finalizers": [names.FINALIZER],
            "ownerReferences": [owner_reference(job)],
        }
        if workload.gate(job):
            metadata["annotations"] = {names.GATED_BY: workload.gate(job)}
        spec: Object = {"podSets": sets, **self._priority(job, sets)}
        if queue_name(job):
            spec["queueName"] = queue_name(job)
        seconds = max_execution(job)
        if seconds is not None:
            spec["maximumExecutionTimeSeconds"] = seconds
        return {
            "apiVersion": names.WORKLOADS.api_version,
            "kind": names.WORKLOADS.kind,
            "metadata": metadata,
            "spec": spec,
        }

    def _priority(self, job: Object, sets: list[Object]) -> Object:
        name = _priority_class(job)
        if name:
            found = self.world.view.get(names.WORKLOAD_PRIORITY_CLASSES, "", name)
            if found is None:
                kind = names.WORKLOAD_PRIORITY_CLASSES
                raise ApiError(404, "NotFound", f'{kind.kind}.{kind.group} "{name}" not found')
            reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
            return {"priorityClassRef": reference, "priority": found["value"]}
        named = next((given for each in sets if (given := each["template"]["spec"].get("priorityClassName"))), "")
        every = self.world.view.all(names.PRIORITY_CLASSES)
        chosen = [each for each in every if (each["metadata"]["name"] == named if named else each.get("globalDefault"))]
        if not chosen:
            return {"priority": 0}
        least = min(chosen, key=lambda each: int(each.get("value", 0)))
        reference = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": least["metadata"]["name"]}
        return {"priorityClassRef": reference, "priority": least.get("value", 0)}

    # What the Workload is told.

    def _orphaned(self, wl: Object) -> None:
        if "deletionTimestamp" not in wl["metadata"] and not workload.has(wl, "Finished"):
            wl = self._finish(wl, "OwnerNotFound", "The workload's owner no longer exists")
        self._let_go(wl)

    def _finish(self, wl: Object, reason: str, message: str) -> Object:
        editor = workload.Editor(wl, self.world.now())
        editor.put("Finished", "True", reason, message)
        return self._status(editor)

    def _let_go(self, wl: Object) -> None:
        finalizers = wl["metadata"].get("finalizers") or []
        if names.FINALIZER in finalizers:
            rest = [each for each in finalizers if each != names.FINALIZER]
            metadata = {**wl["metadata"], "finalizers": rest}
            self.world.api.update(names.WORKLOADS, {**wl, "metadata": metadata}, names.MANAGER)

    def _say_reclaimable(self, job: Object, wl: Object) -> bool:
        counts = {each["name"]: each for each in (job.get("status") or {}).get("jobsStatus") or ()}
        if not counts:
            wanted: list[Object] = []
        else:
            wanted = [
                {"name": each["name"], "count": each["count"]}
                for each in wl["spec"]["podSets"]
                if counts.get(each["name"], {}).get("succeeded", 0) > 0
            ]
        status = workload.status_of(wl)
        if wanted == (status.get("reclaimablePods") or []):
            return False
        changed = {key: given for key, given in status.items() if key != "reclaimablePods"}
        if wanted:
            changed["reclaimablePods"] = wanted
        self.world.api.update(names.WORKLOADS, {**wl, "status": changed}, names.MANAGER, "status")
        return True

    def _say_ready(self, job: Object, wl: Object) -> bool:
        before = conditions.find(workload.status_of(wl), "PodsReady")
        value, reason, message = self._readiness(job, wl, before)
        if before is not None and (before["status"], before["reason"]) == (value, reason):
            return False
        editor = workload.Editor(wl, self.world.now())
        editor.put("PodsReady", value, reason, message)
        changed = {**wl, "status": editor.status}
        self.world.api.update(names.WORKLOADS, changed, f"{JOB_CONTROLLER}-PodsReady", "status")
        return True

    def _readiness(self, job: Object, wl: Object, before: Object | None) -> tuple[str, str, str]:
        reason = (before or {}).get("reason")
        if not workload.has(wl, "Admitted"):
            return "False", "WaitForStart", NOT_READY
        if self._pods_ready(job):
            recovered = reason in ("WaitForRecovery", "Recovered")
            return "True", "Recovered" if recovered else "Started", ALL_READY
        if before is not None and (before["status"] == "True" or reason == "WaitForRecovery"):
            return "False", "WaitForRecovery", RECOVERS
        return "False", "WaitForStart", NOT_READY

    def _pods_ready(self, job: Object) -> bool:
        counts = (job.get("status") or {}).get("jobsStatus") or []
        up = sum(each.get("ready", 0) + each.get("succeeded", 0) for each in counts)
        jobset = self.world.view.get(JOB_SETS, job["metadata"]["namespace"], job["metadata"]["name"])
        wanted = (jobset or {"spec": {}})["spec"].get("replicatedJobs") or ()
        return bool(up == sum(each.get("replicas", 1) for each in wanted))

    def _give_back(self, wl: Object, evicted: Object) -> None:
        editor = workload.Editor(wl, self.world.now())
        again = evicted["reason"] in ("Preempted", "NodeFailures")
        editor.requeued(evicted["reason"], evicted["message"], value=again)
        editor.unreserve("Pending", evicted["message"])
        self._status(editor)

    # What the TrainJob is told.

    def _start(self, job: Object, wl: Object) -> None:
        assigned = wl["status"]["admission"].get("podSetAssignments") or ()
        wanted = {flavor for each in assigned for flavor in (each.get("flavors") or {}).values()}
        there = {name: self.world.view.get(names.RESOURCE_FLAVORS, "", name) for name in wanted}
        flavors = {name: found for name, found in there.items() if found is not None}
        if len(flavors) < len(wanted):
            raise ApiError(404, "NotFound", f"a ResourceFlavor of {sorted(wanted)} is gone")
        patched = pod_sets.patched(job, pod_sets.start_patches(wl, flavors))
        if patched is None:
            raise ApiError(500, "", "kueue runtime patch not found")
        job = self.world.api.update(TRAIN_JOBS, pod_sets.as_kueue_sends(patched), names.MANAGER)
        self.world.api.update(TRAIN_JOBS, {**job, "spec": {**job["spec"], "suspend": False}}, names.MANAGER)
        queue = wl["status"]["admission"]["clusterQueue"]
        self._recorder.event(job, "Normal", "Started", f"Admitted by clusterQueue {queue}")

    def _stop(self, job: Object, message: str) -> None:
        if not _is_suspended(job):
            suspended = {**job, "spec": {**job["spec"], "suspend": True}}
            job = self.world.api.update(TRAIN_JOBS, pod_sets.as_kueue_sends(suspended), names.MANAGER)
        if _is_active(job):
            raise ApiError(500, "", "jobs are still active")
        emptied = pod_sets.patched(job, None)
        if emptied is None:
            raise ApiError(500, "", "error restoring info to the trainjob")
        if emptied["spec"] != job["spec"]:
            self.world.api.update(TRAIN_JOBS, emptied, names.MANAGER)
            self._recorder.event(job, "Normal", "Stopped", message)

    # Writing.

    def _status(self, editor: workload.Editor) -> Object:
        return self.world.api.update(names.WORKLOADS, editor.edited(), names.ADMISSION_MANAGER, "status")

    def _update(self, wl: Object, *, spec: Object | None = None, annotations: Object | None = None) -> Object:
        metadata = wl["metadata"]
        if annotations is not None:
            metadata = {key: given for key, given in metadata.items() if key != "annotations"}
            if annotations:
                metadata["annotations"] = annotations
        changed = {**wl, "metadata": metadata, "spec": wl["spec"] if spec is None else spec}
        return self.world.api.update(names.WORKLOADS, changed, names.MANAGER)


def queue_name(job: Object) -> str:
    """The LocalQueue a job names; empty for none."""
    return str((job["metadata"].get("labels") or {}).get(names.QUEUE_NAME) or "")


def max_execution(job: Object) -> int | None:
    """How many seconds a job may run by its label; None where it has none that can be read."""
    text = str((job["metadata"].get("labels") or {}).get(names.MAX_EXEC_TIME) or "")
    return int(text) if text.isdigit() and 0 < int(text) < 2**31 else None


def _priority_class(job: Object) -> str:
    return str((job["metadata"].get("labels") or {}).get(names.PRIORITY_CLASS) or "")


def _is_suspended(job: Object) -> bool:
    return bool(job["spec"].get("suspend", False))


def _is_active(job: Object) -> bool:
    counts = (job.get("status") or {}).get("jobsStatus") or ()
    return any(each.get("active", 0) > 0 for each in counts)


def _end(job: Object) -> tuple[str, str] | None:
    for kind, reason in (("Complete", "Succeeded"), ("Failed", "Failed")):
        end = conditions.find(job.get("status"), kind)
        if end is not None and end["status"] == "True":
            return reason, end.get("message", "")
    return None


def _key(wl: Object) -> str:
    return f"{wl['metadata']['namespace']}/{wl['metadata']['name']}"
