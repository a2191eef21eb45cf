"""The TrainJob's status is what a supervisor reads first; Trainer 2.3.0's way of writing it, its faults included, is
kept here.

Kept on purpose: `Suspended` is written before anything is suspended; `Failed` is dropped and recomputed from the
JobSet, which is found by its name alone; a JobSet that is gone under a failed TrainJob is made anew; a deletion that
fails after the deadline is never tried again; and with a `lag`, as when busy, a JobSet is made anew behind a deadline.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.events import Recorder
from dispatch_kubeflow.backend.embedded.controllers.kinds import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.backend.embedded.controllers.trainer_build import build_jobset, owner_reference
from dispatch_kubeflow.backend.embedded.controllers.view import Change, Place, controller_of
from dispatch_kubeflow.backend.embedded.errors import ApiError, invalid, invalid_value

Object = dict[str, Any]

MANAGER = "trainer"
STATUS_MANAGER = "trainer-controller-manager"
OURS = "trainer.kubeflow.org/trainjob-controller"
RUNTIMES: dict[str, Resource] = {
    "TrainingRuntime": TRAINING_RUNTIMES,
    "ClusterTrainingRuntime": CLUSTER_TRAINING_RUNTIMES,
}
SNAPSHOT = "-runtime-snapshot"
LONGEST_MESSAGE = 950
_APPLIED_METADATA = ("uid", "labels", "annotations", "ownerReferences")


class TrainerError(Exception):
    """A reconcile that failed outside the apiserver; told by an event and tried again."""


class Trainer(Controller):
    """TrainJob in, ConfigMap, JobSet and status out."""

    name: ClassVar[str] = "trainer"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._recorder = Recorder(world, STATUS_MANAGER)
        self._snapshots: dict[str, tuple[str, Object]] = {}
        self._applied: dict[str, tuple[Object, Object, Object]] = {}
        self._behind: dict[str, int] = {}

    def handle(self, change: Change) -> None:
        """TrainJobs, and the JobSets they control."""
        if change.type == "DELETED":
            self._snapshots.pop(change.obj["metadata"]["uid"], None)
            self._applied.pop(change.obj["metadata"]["uid"], None)
            self._behind.pop(change.obj["metadata"]["uid"], None)
        if change.resource == TRAIN_JOBS and change.type != "DELETED":
            self.enqueue(change.place)
        elif change.resource == JOB_SETS:
            owner = controller_of(change.obj)
            if owner is not None and owner["kind"] == "TrainJob":
                self.enqueue((change.place[0], owner["name"]))

    def reconcile(self, key: Place) -> None:
        """One pass of Trainer's reconciler: objects, `Suspended`, the JobSet's end, the deadline, the status."""
        job = self.world.view.get(TRAIN_JOBS, *key)
        if job is None or job["spec"].get("managedBy", OURS) != OURS:
            return
        before = job.get("status") or {}
        status: Object = {**before}
        _drop_failure(status)
        error: Exception | None = None
        if not finished(status):
            error = self._apply_objects(job)
        self._suspended(job, status)
        missing = self._copy_jobset(job, status)
        self._deadline(job, status)
        if status != before:
            self.world.api.update(TRAIN_JOBS, {**job, "status": status}, STATUS_MANAGER, "status")
        if isinstance(error, ApiError):
            raise error
        if error is not None or missing:
            raise ApiError(500, "", str(error or "the JobSet is not there yet"))

    def _apply_objects(self, job: Object) -> Exception | None:
        try:
            self._apply_jobset(job, self._runtime_spec(job))
        except (ApiError, TrainerError) as error:
            text = str(error)
            message = f"TrainJob resources reconciliation failed: {text[:LONGEST_MESSAGE]}"
            more = " ..." if len(text) > LONGEST_MESSAGE else ""
            self._recorder.event(job, "Warning", "TrainJobResourcesCreationFailed", message + more)
            return error
        return None

    def _runtime_spec(self, job: Object) -> Object:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        reference = job["spec"]["runtimeRef"]
        snapshot = self.world.view.get(CONFIG_MAPS, namespace, name + SNAPSHOT)
        if snapshot is not None:
            owner = controller_of(snapshot)
            if owner is None or owner["uid"] != job["metadata"]["uid"]:
                raise TrainerError(
                    "unable to get runtime snapshot: invalid runtime snapshot: "
                    "a snapshot configmap exists but is owned by another object"
                )
            return self._read_snapshot(snapshot)
        resource = RUNTIMES[reference.get("kind", "ClusterTrainingRuntime")]
        runtime = self.world.view.get(resource, namespace if resource.namespaced else "", reference["name"])
        if runtime is None:
            absent = f'{resource.kind}.{resource.group} "{reference["name"]}" not found'
            raise TrainerError(f"TrainingRuntime specified in TrainJob is not found: {absent}")
        self._take_snapshot(job, runtime, resource)
        spec: Object = runtime["spec"]
        return spec

    def _read_snapshot(self, snapshot: Object) -> Object:
        """The spec kept in a snapshot; read once a version, for a TrainJob is looked at dozens of times."""
        uid, version = snapshot["metadata"]["uid"], snapshot["metadata"]["resourceVersion"]
        known = self._snapshots.get(uid)
        if known is None or known[0] != version:
            known = self._snapshots[uid] = (version, json.loads(snapshot["data"]["runtime"])["spec"])
        return known[1]

    def _take_snapshot(self, job: Object, runtime: Object, resource: Resource) -> None:
        metadata = {field: given for field, given in runtime["metadata"].items() if field != "managedFields"}
        kept = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "spec": runtime["spec"],
        }
        snapshot = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": job["metadata"]["name"] + SNAPSHOT,
                "namespace": job["metadata"]["namespace"],
                "ownerReferences": [owner_reference(job)],
            },
            # JSON is YAML: Trainer writes the latter and reads either.
            "data": {"runtime": json.dumps(kept, sort_keys=True)},
        }
        self.world.api.create(CONFIG_MAPS, snapshot, MANAGER)

    def _apply_jobset(self, job: Object, runtime_spec: Object) -> None:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        live = self.world.view.get(JOB_SETS, namespace, name)
        suspended = bool(job["spec"].get("suspend", False))
        if live is not None and not suspended and not live["spec"].get("suspend", False):
            return
        if live is not None and self._is_applied(job, live):
            return
        wanted = build_jobset(job, runtime_spec)
        if live is None:
            self.world.api.create(JOB_SETS, wanted, MANAGER)
            return
        owner = controller_of(live)
        if owner is not None and owner["uid"] != job["metadata"]["uid"]:
            both = [*live["metadata"]["ownerReferences"], *wanted["metadata"]["ownerReferences"]]
            fault = (
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for TrainJob/{name} and TrainJob/{name}'
            )
            raise invalid(
                JOB_SETS.group,
                JOB_SETS.kind,
                name,
                [invalid_value("metadata.ownerReferences", both, fault)],
            )
        self._apply_over(live, wanted)
        self._applied[job["metadata"]["uid"]] = (job["spec"], live["spec"], live["metadata"])

    def _is_applied(self, job: Object, live: Object) -> bool:
        """Whether this very TrainJob was applied to this very JobSet before; a write of status changes neither."""
        known = self._applied.get(job["metadata"]["uid"])
        if known is None or known[0] is not job["spec"] or known[1] is not live["spec"]:
            return False
        return all(known[2].get(field) == live["metadata"].get(field) for field in _APPLIED_METADATA)

    def _apply_over(self, live: Object, wanted: Object) -> None:
        metadata = dict(live["metadata"])
        for field in ("labels", "annotations"):
            if field in wanted["metadata"]:
                metadata[field] = {**(metadata.get(field) or {}), **wanted["metadata"][field]}
        metadata["ownerReferences"] = wanted["metadata"]["ownerReferences"]
        spec = _laid_over(live["spec"], wanted["spec"])
        if metadata != live["metadata"] or spec != live["spec"]:
            self.world.api.update(JOB_SETS, {**live, "metadata": metadata, "spec": spec}, MANAGER)

    def _suspended(self, job: Object, status: Object) -> None:
        now = self.world.now()
        if job["spec"].get("suspend", False):
            conditions.put(status, "Suspended", "True", "Suspended", "TrainJob is suspended", now)
        elif conditions.is_true(status, "Suspended"):
            conditions.put(status, "Suspended", "False", "Resumed", "TrainJob is resumed", now)

    def _copy_jobset(self, job: Object, status: Object) -> bool:
        """Copy the JobSet's end and counts; True when there is none to copy from and there should be."""
        jobset = self.world.api.get(JOB_SETS, job["metadata"]["namespace"], job["metadata"]["name"])
        if jobset is None:
            return not finished(status)
        deadline = conditions.find(status, "Failed")
        theirs = jobset.get("status") or {}
        for kind, ours in (("Completed", "Complete"), ("Failed", "Failed")):
            end = conditions.find(theirs, kind)
            if end is not None and end["status"] == "True":
                conditions.put(status, ours, "True", end["reason"], end["message"], end["lastTransitionTime"])
        if deadline is not None:
            conditions.put(
                status, "Failed", "True", deadline["reason"], deadline["message"], deadline["lastTransitionTime"]
            )
        counts = theirs.get("replicatedJobsStatus")
        if counts:
            status["jobsStatus"] = [dict(count) for count in counts]
        else:
            status.pop("jobsStatus", None)
        return False

    def _deadline(self, job: Object, status: Object) -> None:
        seconds = job["spec"].get("activeDeadlineSeconds")
        if not seconds or finished(status) or job["spec"].get("suspend", False):
            return
        started = job["metadata"]["creationTimestamp"]
        resumed = conditions.find(status, "Suspended")
        if resumed is not None and resumed["status"] == "False":
            started = resumed["lastTransitionTime"]
        left = conditions.left(seconds, started, self.world.clock.now())
        if left > 0:
            self.enqueue((job["metadata"]["namespace"], job["metadata"]["name"]), left)
            return
        behind = self._is_behind(job)
        if not behind:
            conditions.put(
                status, "Failed", "True", "DeadlineExceeded", "TrainJob exceeded its active deadline", self.world.now()
            )
        jobset = self.world.view.get(JOB_SETS, job["metadata"]["namespace"], job["metadata"]["name"])
        if jobset is not None and behind < 2:
            self._delete_once(jobset)

    def _is_behind(self, job: Object) -> int:
        """Which pass this is of a busy Trainer that has deleted the JobSet and not seen its own `Failed` yet: in the
        first that is to come, in the second it makes the JobSet anew; in the third it has caught up, and that is 0.
        """
        uid = job["metadata"]["uid"]
        passes = self._behind.get(uid, 0) + 1
        if not self.lag or passes > 2:
            return 0
        self._behind[uid] = passes
        self.enqueue((job["metadata"]["namespace"], job["metadata"]["name"]))
        return passes

    def _delete_once(self, jobset: Object) -> None:
        try:
            self.world.api.delete(JOB_SETS, jobset, manager=STATUS_MANAGER)
        except ApiError:
            # Trainer 2.3.0 only logs this and never tries again: pods run on behind `DeadlineExceeded`.
            return


def finished(status: Object) -> bool:
    """Whether a TrainJob's status says `Complete` or `Failed`."""
    return conditions.is_true(status, "Complete") or conditions.is_true(status, "Failed")


def _drop_failure(status: Object) -> None:
    failure = conditions.find(status, "Failed")
    if failure is not None and failure["reason"] != "DeadlineExceeded":
        conditions.drop(status, "Failed")


def _laid_over(live: Any, wanted: Any) -> Any:
    """What a forced apply makes of `live`: every field of `wanted`, and those of `live` that others filled in."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        return {**live, **{field: _laid_over(live.get(field), given) for field, given in wanted.items()}}
    if isinstance(live, list) and isinstance(wanted, list) and len(live) == len(wanted):
        return [_laid_over(old, new) for old, new in zip(live, wanted, strict=True)]
    return wanted
