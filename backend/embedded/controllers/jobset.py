"""Between TrainJob and Job stands the JobSet: it creates the Jobs, suspends and resumes them, and decides what a
failure means.

As JobSet 0.12: failures are looked at before suspension, `Suspended` is set before any pod is gone, a finished JobSet
keeps its finished Jobs, a terminating one is looked at no more.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.events import Recorder
from dispatch_kubeflow.backend.embedded.controllers.jobset_build import (
    REPLICATED_JOB,
    RESTART_ATTEMPT,
    build_job,
    build_service,
    job_name,
    subdomain,
)
from dispatch_kubeflow.backend.embedded.controllers.kinds import JOB_SETS, JOBS, SERVICES
from dispatch_kubeflow.backend.embedded.controllers.view import Change, Place, controller_of
from dispatch_kubeflow.backend.embedded.errors import ApiError

Object = dict[str, Any]

MANAGER = "jobset"
OURS = "jobset.sigs.k8s.io/jobset-controller"
COUNTS = ("active", "failed", "ready", "succeeded", "suspended")
LONGEST_MESSAGE = 950


class JobSet(Controller):
    """JobSet in, Service, Jobs and status out."""

    name: ClassVar[str] = "jobset"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._recorder = Recorder(world, "jobset")

    def handle(self, change: Change) -> None:
        """JobSets, and the Jobs they control."""
        if change.resource == JOB_SETS and change.type != "DELETED":
            self.enqueue(change.place)
        elif change.resource in (JOBS, SERVICES):
            owner = controller_of(change.obj)
            if owner is not None and owner["kind"] == "JobSet":
                self.enqueue((change.place[0], owner["name"]))

    def reconcile(self, key: Place) -> None:
        """One pass over a JobSet that is neither being deleted nor someone else's."""
        jobset = self.world.view.get(JOB_SETS, *key)
        if jobset is None or "deletionTimestamp" in jobset["metadata"]:
            return
        if jobset["spec"].get("managedBy", OURS) != OURS:
            return
        status: Object = {"restarts": 0, **(jobset.get("status") or {})}
        jobs = self.world.view.controlled(jobset["metadata"]["uid"], JOBS)
        current = [job for job in jobs if job["metadata"]["labels"][RESTART_ATTEMPT] == str(status["restarts"])]
        status["replicatedJobsStatus"] = [_counts(job, current) for job in replicated_jobs(jobset)]
        if ended(status):
            self._clean_up(jobset, status, current)
        else:
            self._advance(jobset, status, jobs, current)
        if status != jobset.get("status"):
            self.world.api.update(JOB_SETS, {**jobset, "status": status}, MANAGER, "status")

    def _advance(self, jobset: Object, status: Object, jobs: list[Object], current: list[Object]) -> None:
        for job in jobs:
            if job not in current and "deletionTimestamp" not in job["metadata"]:
                self.world.api.delete(JOBS, job, propagation="Foreground", manager=MANAGER)
        failed = [job for job in current if conditions.is_true(job.get("status"), "Failed")]
        if failed:
            self._failed(jobset, status, min(failed, key=_failed_at))
            return
        if _succeeded(jobset, current):
            self._end(jobset, status, "Completed", "AllJobsCompleted", "jobset completed successfully")
            return
        self._create(jobset, status, jobs)
        if jobset["spec"].get("suspend", False):
            self._suspend(status, current)
        else:
            self._resume(jobset, status, current)

    def _clean_up(self, jobset: Object, status: Object, current: list[Object]) -> None:
        for job in current:
            if not job_finished(job) and "deletionTimestamp" not in job["metadata"]:
                self.world.api.delete(JOBS, job, propagation="Foreground", manager=MANAGER)
        seconds = jobset["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return
        end = conditions.need(status, status["terminalState"])
        since = (self.world.clock.now() - conditions.parse_stamp(end["lastTransitionTime"])).total_seconds()
        if since < seconds:
            self.enqueue((jobset["metadata"]["namespace"], jobset["metadata"]["name"]), seconds - since)
        else:
            self.world.api.delete(JOB_SETS, jobset, propagation="Foreground", manager=MANAGER)

    def _end(self, jobset: Object, status: Object, kind: str, reason: str, message: str) -> None:
        status["terminalState"] = kind
        conditions.put(status, kind, "True", reason, message, self.world.now())
        self._recorder.event(jobset, "Normal" if kind == "Completed" else "Warning", reason, message)

    def _failed(self, jobset: Object, status: Object, first: Object) -> None:
        policy = jobset["spec"].get("failurePolicy")
        which = f"(first failed job: {first['metadata']['name']})"
        if policy is None:
            self._end(jobset, status, "Failed", "FailedJobs", f"jobset failed due to one or more job failures {which}")
            return
        action = _action(policy, first)
        if action == "FailJobSet":
            message = f"jobset failed due to FailJobSet failure policy action {which}"
            self._end(jobset, status, "Failed", "FailJobSetFailurePolicyAction", message)
            return
        counted = status.get("restartsCountTowardsMax", 0)
        if action == "RestartJobSet":
            if counted >= policy.get("maxRestarts", 0):
                message = f"jobset failed due to reaching max number of restarts {which}"
                self._end(jobset, status, "Failed", "ReachedMaxRestarts", message)
                return
            status["restartsCountTowardsMax"] = counted + 1
        status["restarts"] += 1
        self._recorder.event(jobset, "Warning", "Restarting", f"restarting jobset, attempt {status['restarts']}")

    def _create(self, jobset: Object, status: Object, jobs: list[Object]) -> None:
        namespace = jobset["metadata"]["namespace"]
        present = {job["metadata"]["name"] for job in jobs}
        named = (jobset["spec"].get("network") or {}).get("enableDNSHostnames", True)
        if named and self.world.view.get(SERVICES, namespace, subdomain(jobset)) is None:
            self.world.api.create(SERVICES, build_service(jobset), MANAGER)
        for replicated in replicated_jobs(jobset):
            if not _may_start(replicated, status):
                continue
            for index in range(replicated.get("replicas", 1)):
                if job_name(jobset, replicated, index) not in present:
                    self._create_job(jobset, build_job({**jobset, "status": status}, replicated, index))

    def _create_job(self, jobset: Object, job: Object) -> None:
        try:
            self.world.api.create(JOBS, job, MANAGER)
        except ApiError as error:
            message = f"error creating job {job['metadata']['name']}: {error.message[:LONGEST_MESSAGE]}"
            self._recorder.event(jobset, "Warning", "JobCreationFailed", message)
            raise

    def _suspend(self, status: Object, current: list[Object]) -> None:
        conditions.put(status, "Suspended", "True", "SuspendedJobs", "jobset is suspended", self.world.now())
        for job in current:
            if not job_finished(job) and not job["spec"].get("suspend", False):
                self.world.api.update(JOBS, {**job, "spec": {**job["spec"], "suspend": True}}, MANAGER)

    def _resume(self, jobset: Object, status: Object, current: list[Object]) -> None:
        if conditions.is_true(status, "Suspended"):
            conditions.put(status, "Suspended", "False", "ResumeJobs", "jobset is resumed", self.world.now())
        replicated = {job["name"]: job for job in replicated_jobs(jobset)}
        for job in current:
            if job["spec"].get("suspend", False) and not job_finished(job):
                self._resume_job(job, replicated[job["metadata"]["labels"][REPLICATED_JOB]])

    def _resume_job(self, job: Object, replicated: Object) -> None:
        if (job.get("status") or {}).get("startTime") is not None:
            # Kubernetes lets a Job's template change only while it has no start time.
            status = {field: given for field, given in job["status"].items() if field != "startTime"}
            job = self.world.api.update(JOBS, {**job, "status": status}, MANAGER, "status")
        template = job["spec"]["template"]
        wanted = replicated["template"]["spec"]["template"]
        metadata = dict(template["metadata"])
        for field in ("labels", "annotations"):
            metadata[field] = {**(metadata.get(field) or {}), **((wanted.get("metadata") or {}).get(field) or {})}
        pod = dict(template["spec"])
        for field in ("nodeSelector", "tolerations", "schedulingGates"):
            if wanted["spec"].get(field):
                pod[field] = wanted["spec"][field]
        spec = {**job["spec"], "suspend": False, "template": {"metadata": metadata, "spec": pod}}
        self.world.api.update(JOBS, {**job, "spec": spec}, MANAGER)


def replicated_jobs(jobset: Object) -> list[Object]:
    """The jobs of a JobSet, which may have none."""
    found: list[Object] = jobset["spec"].get("replicatedJobs") or []
    return found


def ended(status: Object) -> bool:
    """Whether a JobSet's status says `Completed` or `Failed`."""
    return conditions.is_true(status, "Completed") or conditions.is_true(status, "Failed")


def job_finished(job: Object) -> bool:
    """Whether a Job says `Complete` or `Failed`."""
    return conditions.is_true(job.get("status"), "Complete") or conditions.is_true(job.get("status"), "Failed")


def _counts(replicated: Object, jobs: list[Object]) -> Object:
    counts: Object = {"name": replicated["name"], **dict.fromkeys(COUNTS, 0)}
    for job in jobs:
        if job["metadata"]["labels"][REPLICATED_JOB] != replicated["name"]:
            continue
        status = job.get("status") or {}
        if conditions.is_true(status, "Failed"):
            counts["failed"] += 1
        elif conditions.is_true(status, "Complete"):
            counts["succeeded"] += 1
        else:
            pods = job["spec"].get("parallelism", 1)
            pods = min(pods, job["spec"].get("completions", pods))
            counts["ready"] += status.get("ready", 0) + status.get("succeeded", 0) >= pods
            counts["active"] += status.get("active", 0) > 0
            counts["suspended"] += bool(job["spec"].get("suspend", False))
    return counts


def _succeeded(jobset: Object, current: list[Object]) -> bool:
    policy = jobset["spec"].get("successPolicy") or {"operator": "All"}
    targets = policy.get("targetReplicatedJobs") or [job["name"] for job in replicated_jobs(jobset)]
    done = [job for job in current if conditions.is_true(job.get("status"), "Complete")]
    matched = [job for job in done if job["metadata"]["labels"][REPLICATED_JOB] in targets]
    if policy["operator"] == "Any" or not matched:
        return bool(matched)
    replicas = [job.get("replicas", 1) for job in replicated_jobs(jobset) if job["name"] in targets]
    return bool(len(matched) == sum(replicas))


def _may_start(replicated: Object, status: Object) -> bool:
    counts = {count["name"]: count for count in status["replicatedJobsStatus"]}
    for dependency in replicated.get("dependsOn") or ():
        count = counts[dependency["name"]]
        if count["succeeded"] == 0 and (dependency["status"] == "Complete" or count["ready"] == 0):
            return False
    return True


def _failed_at(job: Object) -> str:
    moment: str = conditions.need(job["status"], "Failed")["lastTransitionTime"]
    return moment


def _action(policy: Object, job: Object) -> str:
    failure = conditions.need(job["status"], "Failed")
    for rule in policy.get("rules") or ():
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        patterns = rule.get("onJobFailureMessagePatterns")
        if reasons and failure["reason"] not in reasons:
            continue
        if targets and job["metadata"]["labels"][REPLICATED_JOB] not in targets:
            continue
        if patterns and not any(re.search(pattern, failure["message"]) for pattern in patterns):
            continue
        action: str = rule["action"]
        return action
    return "RestartJobSet"
