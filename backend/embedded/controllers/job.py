"""Whether two generations of pods can overlap, and when a failure is told, is decided by the Job controller, not by
Trainer.

As Kubernetes 1.36, Indexed mode: a hold takes the finalizer off before it deletes, so held pods never count; a failure
is `FailureTarget` first and `Failed` only when nothing terminates; `Succeeded` indexes are never run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers import conditions, indexes, job_pods
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.events import Recorder
from dispatch_kubeflow.backend.embedded.controllers.kinds import JOBS, PODS
from dispatch_kubeflow.backend.embedded.controllers.view import Change, Place, controller_of

Object = dict[str, Any]

MANAGER = "kube-controller-manager"
OURS = "kubernetes.io/job-controller"
BATCH_PERIOD = 1.0
FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 600.0
SUCCEEDED = ("SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
BACKOFF = ("FailureTarget", "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE = ("FailureTarget", "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")


@dataclass
class Pass:
    """What one look at a Job found and decided."""

    job: Object
    pods: list[Object]
    status: Object
    finish: tuple[str, str, str, str] | None = None
    active: int = 0
    done: set[int] = field(default_factory=set)
    failures: int = 0
    counted: list[Object] = field(default_factory=list)

    @property
    def suspended(self) -> bool:
        """Whether the Job is to be suspended."""
        return bool(self.job["spec"].get("suspend", False))


class Job(Controller):
    """Job in, pods and status out. Pod events are taken in batches, `batch_period` seconds after the first."""

    name: ClassVar[str] = "job"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.batch_period = BATCH_PERIOD
        self._recorder = Recorder(world, "job-controller")
        self._last_failure: dict[str, tuple[int, float]] = {}

    def handle(self, change: Change) -> None:
        """Jobs at once when their spec changed, else with their pods' events, in batches."""
        if change.resource == JOBS:
            self._handle_job(change)
        elif change.resource == PODS:
            owner = controller_of(change.obj)
            if owner is None or owner["kind"] != "Job":
                return
            job = self.world.view.get(JOBS, change.place[0], owner["name"])
            if job is not None and job["metadata"]["uid"] != owner["uid"]:
                job = None
            if job is not None:
                self.enqueue((JOBS.plural, change.place[0], owner["name"]), self.batch_period)
            if change.type != "DELETED" and job_pods.tracked(change.obj):
                self._look_after_orphan(change.obj, job)

    def _handle_job(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        if change.type == "DELETED":
            self._last_failure.pop(metadata["uid"], None)
            for entry in self.world.view.dependents(metadata["uid"]):
                if entry.resource == PODS and job_pods.tracked(entry.obj):
                    self.enqueue((PODS.plural, entry.obj["metadata"]["uid"]))
            return
        old = change.old
        same = old is not None and old["metadata"].get("generation") == metadata.get("generation")
        self.enqueue((JOBS.plural, *change.place), self.batch_period if same else 0.0)

    def _look_after_orphan(self, pod: Object, job: Object | None) -> None:
        if job is None or _finished(job["status"]):
            self.enqueue((PODS.plural, pod["metadata"]["uid"]))

    def reconcile(self, key: tuple[str, ...]) -> None:
        """A Job by namespace and name, or a left-over pod by UID."""
        if key[0] == PODS.plural:
            entry = self.world.view.by_uid(key[1])
            if entry is not None and job_pods.tracked(entry.obj):
                self._release(entry.obj)
            return
        job = self.world.view.get(JOBS, key[1], key[2])
        if job is None or job["spec"].get("managedBy", OURS) != OURS or _finished(job.get("status") or {}):
            return
        if job["spec"].get("completionMode") == "Indexed" or job["spec"].get("suspend"):
            # One that is not indexed is shown as suspended; to run such a one is nobody's need here.
            self._sync((key[1], key[2]), job)

    def _sync(self, place: Place, job: Object) -> None:
        pods = self.world.view.controlled(job["metadata"]["uid"], PODS)
        step = Pass(job, pods, {**(job.get("status") or {})})
        status = step.status
        if status.get("startTime") is None and not step.suspended:
            status["startTime"] = self.world.now()
        step.active = sum(map(job_pods.active, pods))
        self._count(step)
        status["terminating"] = sum(map(job_pods.terminating, pods))
        status["ready"] = sum(map(job_pods.ready, pods))
        step.finish = self._decide(place, step)
        if step.finish is SUCCEEDED:
            self._remove(step, list(filter(job_pods.active, pods)))
        elif step.finish is not None:
            self._delete_active(step)
        elif "deletionTimestamp" in job["metadata"]:
            # One that is being deleted makes no pods and counts none that still runs: it lets go of all.
            for pod in pods:
                if pod not in step.counted:
                    self._release(pod)
        else:
            self._manage(place, step)
            self._note_suspension(step)
        _set(status, "active", step.active)
        self._write(step)

    def _count(self, step: Pass) -> None:
        """Which pods ended and were not counted yet; which indexes are done."""
        step.done = indexes.parse(step.status.get("completedIndexes", ""))
        told = set((step.status.get("uncountedTerminatedPods") or {}).get("failed") or ())
        step.failures = len(told)
        for pod in step.pods:
            if job_pods.tracked(pod) and job_pods.phase(pod) == "Succeeded":
                step.done.add(job_pods.index(pod))
                step.counted.append(pod)
            elif job_pods.tracked(pod) and (job_pods.failed(pod, step.job) or pod["metadata"]["uid"] in told):
                step.failures += pod["metadata"]["uid"] not in told
                step.counted.append(pod)

    def _decide(self, place: Place, step: Pass) -> tuple[str, str, str, str] | None:
        spec, status = step.job["spec"], step.status
        target = conditions.find(status, "FailureTarget")
        if target is not None:
            return ("FailureTarget", "Failed", target["reason"], target["message"])
        if conditions.is_true(status, "SuccessCriteriaMet"):
            return SUCCEEDED
        limit = spec.get("backoffLimit", 6)
        if status.get("failed", 0) + step.failures > limit or _restarted_too_often(step, limit):
            return BACKOFF
        left = self._deadline_left(step)
        if left is not None and left <= 0:
            return DEADLINE
        if left is not None:
            self.enqueue((JOBS.plural, *place), left)
        if len(step.done) >= spec["completions"]:
            return SUCCEEDED
        return None

    def _deadline_left(self, step: Pass) -> float | None:
        """Seconds until the Job's deadline, which does not run while it is suspended; None without one."""
        seconds, started = step.job["spec"].get("activeDeadlineSeconds"), step.status.get("startTime")
        if seconds is None or started is None or step.suspended:
            return None
        return conditions.left(seconds, started, self.world.clock.now())

    def _delete_active(self, step: Pass) -> None:
        """At a failure every other pod is deleted, and counted as failed now, before it has ended."""
        for pod in step.pods:
            if job_pods.active(pod):
                self.world.api.delete(PODS, pod, manager=MANAGER)
                self._recorder.event(step.job, "Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
                step.status["terminating"] += 1
            if pod not in step.counted and job_pods.tracked(pod):
                step.failures += 1
                step.counted.append(pod)
        step.active = 0
        step.status["ready"] = 0

    def _manage(self, place: Place, step: Pass) -> None:
        spec = step.job["spec"]
        if step.suspended:
            self._remove(step, list(filter(job_pods.active, step.pods)))
            return
        wanted = min(spec.get("parallelism", 1), spec["completions"] - len(step.done))
        missing = wanted - step.active
        if job_pods.only_replaces_failed(step.job):
            missing -= step.status["terminating"]
        if missing > 0 and not self._backing_off(place, step):
            for number in self._free(step, missing):
                pod = self.world.api.create(PODS, job_pods.build_pod(step.job, number), MANAGER)
                self._recorder.event(step.job, "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
                step.active += 1
        elif missing < 0:
            self._remove(step, sorted(filter(job_pods.active, step.pods), key=job_pods.index)[wanted:])

    def _remove(self, step: Pass, pods: list[Object]) -> None:
        """How held or surplus pods go: they are let go first, so they never count as failed."""
        for pod in pods:
            if self._release(pod) is not None:
                self.world.api.delete(PODS, pod, manager=MANAGER)
            self._recorder.event(step.job, "Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
            step.active -= 1
            step.status["terminating"] += 1
            step.status["ready"] -= job_pods.ready(pod)

    def _free(self, step: Pass, count: int) -> list[int]:
        taken = set(step.done) | {job_pods.index(pod) for pod in step.pods if job_pods.active(pod)}
        if job_pods.only_replaces_failed(step.job):
            taken |= {job_pods.index(pod) for pod in step.pods if job_pods.terminating(pod)}
        free: list[int] = []
        number = 0
        while len(free) < count and number < step.job["spec"]["completions"]:
            if number not in taken:
                free.append(number)
            number += 1
        return free

    def _backing_off(self, place: Place, step: Pass) -> bool:
        """After failures new pods wait: 10 s, doubled each time, from the last failure on."""
        uid, total = step.job["metadata"]["uid"], step.status.get("failed", 0) + step.failures
        now = self.world.clock.monotonic()
        known, since = self._last_failure.get(uid, (0, now))
        if total > known:
            since = now
            self._last_failure[uid] = (total, now)
        if total == 0:
            return False
        left = since + min(FIRST_BACKOFF * 2 ** (total - 1), LONGEST_BACKOFF) - now
        if left <= 0:
            return False
        self.enqueue((JOBS.plural, *place), left)
        return True

    def _note_suspension(self, step: Pass) -> None:
        now, before = self.world.now(), conditions.find(step.status, "Suspended")
        if step.suspended:
            if before is None or before["status"] != "True":
                _condition(step.status, "Suspended", "True", "JobSuspended", "Job suspended", now)
                step.status.pop("startTime", None)
        elif before is not None and before["status"] == "True":
            _condition(step.status, "Suspended", "False", "JobResumed", "Job resumed", now)
            step.status["startTime"] = now

    def _write(self, step: Pass) -> None:
        """Say first what is about to be counted, then let the pods go, then count them: nothing is lost in between."""
        status = step.status
        if step.finish is not None and conditions.find(status, step.finish[0]) is None:
            _condition(status, step.finish[0], "True", step.finish[2], step.finish[3], self.world.now())
        succeeded = [pod for pod in step.counted if job_pods.phase(pod) == "Succeeded"]
        failed = [pod for pod in step.counted if job_pods.phase(pod) != "Succeeded"]
        if step.done:
            status["completedIndexes"] = indexes.write(step.done)
        uncounted = {
            key: [pod["metadata"]["uid"] for pod in pods]
            for key, pods in (("succeeded", succeeded), ("failed", failed))
            if pods
        }
        job = step.job
        if uncounted:
            job = self._write_status(job, {**status, "uncountedTerminatedPods": uncounted})
            for pod in step.counted:
                self._release(pod)
        _set(status, "succeeded", len(step.done))
        _set(status, "failed", status.get("failed", 0) + step.failures)
        status["uncountedTerminatedPods"] = {}
        event = self._enact(step)
        self._write_status(job, status)
        if event is not None:
            self._recorder.event(job, *event)

    def _enact(self, step: Pass) -> tuple[str, str, str] | None:
        """The final condition, once nothing runs or terminates any more; and the event that tells it."""
        status = step.status
        if step.finish is None or status["terminating"] or status["ready"]:
            return None
        _, final, reason, message = step.finish
        _condition(status, final, "True", reason, message, self.world.now())
        if final == "Complete":
            status["completionTime"] = self.world.now()
            return ("Normal", "Completed", "Job completed")
        return ("Warning", reason, message)

    def _write_status(self, job: Object, status: Object) -> Object:
        if status == job.get("status"):
            return job
        return self.world.api.update(JOBS, {**job, "status": status}, MANAGER, "status")

    def _release(self, pod: Object) -> Object | None:
        live = self.world.api.get(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if live is None or live["metadata"]["uid"] != pod["metadata"]["uid"] or not job_pods.tracked(live):
            return live
        return self.world.api.update(PODS, job_pods.released(live), MANAGER)


def _finished(status: Object) -> bool:
    return conditions.is_true(status, "Complete") or conditions.is_true(status, "Failed")


def _restarted_too_often(step: Pass, limit: int) -> bool:
    if step.job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    count = sum(map(job_pods.restarts, step.pods))
    return count > 0 if limit == 0 else count >= limit


def _condition(status: Object, kind: str, value: str, reason: str, message: str, moment: str) -> None:
    """A Job's condition also has `lastProbeTime`, and its time always moves."""
    conditions.replace(
        status,
        {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastProbeTime": moment,
            "lastTransitionTime": moment,
        },
    )


def _set(status: Object, field_name: str, count: int) -> None:
    """A count that Kubernetes leaves out where it is 0."""
    if count:
        status[field_name] = count
    else:
        status.pop(field_name, None)
