"""The demonstration in kueue mode: one job waits for another's quota, a hold gives the quota away, and whatever stops
and starts it, no rank of a job ever runs beside itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dispatch_kubeflow.backend import JobSpec, ObjectRef, factory
from dispatch_kubeflow.backend.admission.controller import Controller, Place
from dispatch_kubeflow.backend.embedded import Cluster, KueueConfiguration, ProcessKubelet
from dispatch_kubeflow.backend.embedded.kubelet.base import Sandbox
from dispatch_kubeflow.backend.embedded.kubelet.status import ContainerState
from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.objects.found import FoundObject
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests import Door, load_access
from dispatch_kubeflow.backend.requests.resources import ADMISSION_CHECKS, WORKLOADS
from dispatch_kubeflow.machine import Context
from dispatch_kubeflow.machine.context import SystemClock
from dispatch_kubeflow.machine.rules import rulebook

from .demo import NAMESPACE, Stage, Watched, example, has_succeeded, number_of, seconds, stale_release
from .output import OutputFollower

QUEUE, CHECK = "training", "dispatch-hold"
ASKED = {"requests": {"cpu": "1"}}
FULL = {"cpu": "2"}
"""Room for the two nodes of one job."""
SHORT = {
    "nodes": 2,
    "command": ["python3", "-u", "-c", "import time; time.sleep(2)"],
    "resources": ASKED,
    "extensions": {
        "dispatch/Image": "python:3.12-slim",
        "kubeflow/RuntimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
    },
}


class Witness(ProcessKubelet):
    """Runs containers as processes, and knows which started while one of the same job and rank still ran."""

    def __init__(self) -> None:
        super().__init__()
        self.generations: dict[tuple[str, str], int] = {}
        self.overlaps: list[str] = []

    def started(self, sandbox: Sandbox, container: ContainerState) -> None:
        rank = _rank(sandbox.pod)
        self.generations[rank] = self.generations.get(rank, 0) + 1
        if any(_rank(each.pod) == rank for each in self.running() if each.uid != sandbox.uid):
            self.overlaps.append(sandbox.pod["metadata"]["name"])
        super().started(sandbox, container)


class Telling:
    """The controller's observer: what it writes is told."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._rule = ""

    def requested(self, *_: str) -> None:
        """Not told."""

    def decided(self, rule: str) -> None:
        self._rule = rule

    def wrote(self, does: str, outcome: str) -> None:
        if outcome == "ok" and does != "serve":
            self._stage.tell(f"the controller: {does} (row {self._rule})")

    def watching(self, *_: str) -> None:
        """Not told."""

    def settled(self, *_: float) -> None:
        """Not told."""


def play(stage: Stage) -> None:
    """The whole of it."""
    stage.act("An embedded cluster with Kueue 0.19.2, a queue with room for one job, and the admission controller")
    witness = Witness()
    with Cluster(nodes=2, kubelet=witness, kueue=KueueConfiguration()) as cluster:
        cluster.add_queue(QUEUE, NAMESPACE, quota=FULL, check=CHECK)
        queued = {"mode": "kueue", "queue": QUEUE, "admission_check": CHECK}
        with _controller(stage, cluster), factory({**stage.settings(cluster), **queued}, ctx=seconds()) as backend:
            _two_jobs(stage, cluster, backend, witness)


@contextmanager
def _controller(stage: Stage, cluster: Cluster) -> Iterator[None]:
    clock = SystemClock()
    path = str(cluster.kubeconfig(stage.folder / "kubeconfig-controller"))
    door = Door(load_access(book=rulebook(), kubeconfig=path, clock=clock), request_timeout=10, clock=clock)
    place = Place(NAMESPACE, "dispatch-kubeflow-admission", "demo")
    try:
        with Controller(door, place, Telling(stage), clock=clock) as controller:
            until = time.monotonic() + 30
            while not (controller.ready and controller.elector.leading):
                stage.check(time.monotonic() < until, "the controller leads")
                time.sleep(0.02)
            while not _is_active(cluster):
                stage.check(time.monotonic() < until, "the check is active")
                time.sleep(0.02)
            stage.tell("the controller leads, and keeps the check active")
            yield
    finally:
        door.close()


def _two_jobs(stage: Stage, cluster: Cluster, backend: Backend, witness: Witness) -> None:
    stage.act("Two jobs for one place: docs/examples/fit.yaml, and a short one behind it")
    with Watched(backend, "fit") as watched, Watched(backend, "next") as behind:
        fit = backend.start("fit", 1, replace(example(), resources=ASKED), ctx=seconds())
        gated = watched.until("the job is gated", lambda job: job.state == "gated")
        stage.state("gated", gated, "created, and provably not running")
        with OutputFollower(backend, "fit", Context.background(), stage.output, stage.tell) as lines:
            watched.on_view = lambda _: lines.look()
            backend.open(fit, ctx=seconds())
            stage.until_output("step 15 of 60")
            stage.state(
                "opened", watched.until("the job runs", lambda job: job.pods.running == 2), "its gate is lifted"
            )

            after = backend.start("next", 1, JobSpec.parse(SHORT), ctx=seconds())
            backend.open(after, ctx=seconds())
            waits = behind.until("the next job waits for quota", _waits_for_quota)
            stage.state("waiting", waits, f"the other one: {waits.waiting.message if waits.waiting else ''}")
            stopped = _hold(stage, backend, fit, watched)
            behind.until("the next job runs", lambda job: job.pods.running == 2)
            backend.release(fit, 1, ctx=seconds())
            stage.step("released", "on record; it queues again, behind the one that runs on the quota given up")
            stage.state(
                "succeeded", behind.until("the next job succeeds", has_succeeded), "it ran on the quota given up"
            )
            _go_on(stage, fit, watched, stopped)
            _lose_the_workload(stage, cluster, fit)
            stage.until_output("fitted: y = 3.0")
            stage.state("succeeded", watched.until("the job has succeeded", has_succeeded), "the line is found")
    for job in ("fit", "next"):
        backend.stop_job(job, ctx=seconds())
    stage.step("stopped", "everything of both is gone")
    times = min(count for (job, _), count in witness.generations.items() if job == "fit")
    stage.check(times >= 3, f"each rank of the first job was started {times} times")
    stage.check(not witness.overlaps, "no rank of a job was ever started while it still ran")


def _hold(stage: Stage, backend: Backend, ref: ObjectRef, watched: Watched) -> int:
    """Held, and its quota given up. Gives the line in which it stopped."""
    backend.hold(ref, 1, ctx=seconds())
    held = watched.until("the held job has no pods", lambda job: job.state == "held" and not job.pods.total)
    stage.state("held", held, "both processes saved and ended, and its quota is free")
    stopped = stage.until_output("rank 0: stopped at step ")
    stale_release(stage, backend, ref)
    return stopped


def _go_on(stage: Stage, ref: ObjectRef, watched: Watched, stopped: int) -> None:
    resumed = stage.until_output("rank 0 of 2: from step ", after=stopped)
    stage.state("opened", watched.until("the job runs again", lambda job: job.pods.running == 2), f"{ref.name} goes on")
    at, again = (number_of(stage.outputs[index]) for index in (stopped, resumed))
    stage.check(at == again > 0, f"it goes on from its checkpoint: stopped at step {at}, on from step {again}")


def _lose_the_workload(stage: Stage, cluster: Cluster, ref: ObjectRef) -> None:
    """Kueue stops the job and makes a new Workload; by itself it would start the next pods beside the last ones."""
    before = stage.until_output("step 25 of 60")
    (found,) = cluster.list(WORKLOADS, NAMESPACE, labels=names.workload_selector(ref.uid))
    cluster.delete(WORKLOADS, found["metadata"]["name"], NAMESPACE)
    stage.step("evicted", "somebody deletes its Workload; Kueue makes it anew, and the controller waits for the pods")
    stage.until_output("rank 0 of 2: from step ", after=before)


def _is_active(cluster: Cluster) -> bool:
    check = cluster.get(ADMISSION_CHECKS, CHECK) or {}
    return any(each["status"] == "True" for each in check.get("status", {}).get("conditions", []))


def _waits_for_quota(job: FoundObject) -> bool:
    return job.waiting is not None and "insufficient" in job.waiting.message


def _rank(pod: dict[str, Any]) -> tuple[str, str]:
    index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
    return pod["metadata"]["labels"][names.JOB], index
