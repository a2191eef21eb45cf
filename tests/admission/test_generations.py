"""Kueue by itself starts the next generation of a job's pods beside the last one; behind our check it does not.

The jobs here lack `podReplacementPolicy: Failed`, so that nothing but the controller keeps the generations apart.
"""

import functools
import random

import pytest

from dispatch_kubeflow.backend.embedded import Cluster, KueueConfiguration, Script, ScriptedKubelet, VirtualClock
from dispatch_kubeflow.backend.embedded.controllers.kueue.names import (
    CLUSTER_QUEUES,
    PRIORITY_CLASS,
    WORKLOAD_PRIORITY_CLASSES,
)
from dispatch_kubeflow.backend.objects import names, runtime_copy, trainjob
from dispatch_kubeflow.backend.objects.record import Hold, record_patch
from dispatch_kubeflow.backend.objects.seen import Workload, read
from dispatch_kubeflow.backend.objects.workload import hold_patch
from dispatch_kubeflow.backend.requests.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
)
from dispatch_kubeflow.machine.values import JobSpec

from .scene import CHECK, NAMESPACE, Process

STOPPING = 5.0
EXTENSIONS = {
    "dispatch/Image": "pytorch:2",
    "kubeflow/RuntimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
}


def plan(pod, _container):
    """Whose containers run until they are stopped, which takes a while; the urgent ones end by themselves."""
    urgent = pod["metadata"]["name"].startswith("urgent")
    return Script(run=1.0) if urgent else Script(stop_after=STOPPING)


class Truthful(ScriptedKubelet):
    """Knows which containers started beside one of the same job and rank."""

    def __init__(self):
        super().__init__(plan)
        self.overlaps = []
        self.starts = []

    def started(self, sandbox, container):
        self.starts.append(self.of(sandbox.pod))
        if any(self.of(each.pod) == self.of(sandbox.pod) for each in self.running() if each.uid != sandbox.uid):
            self.overlaps.append(sandbox.pod["metadata"]["name"])
        super().started(sandbox, container)

    def of(self, pod):
        job = pod["metadata"]["labels"][names.JOB]
        return job, pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]


@functools.cache
def template():
    return Cluster(kubelet=Truthful(), clock=VirtualClock(), seed=3, serve=False, kueue=KueueConfiguration())


class Queue:
    """A queue that one job fills, with or without our check; and, with it, our controller."""

    def __init__(self, *, check=True):
        self.clock = VirtualClock()
        self.kubelet = Truthful()
        self.cluster = Cluster(
            kubelet=self.kubelet, clock=self.clock, seed=4, serve=False, kueue=KueueConfiguration(), like=template()
        )
        self.cluster.add_queue("lq", NAMESPACE, quota={"cpu": "4"}, check=CHECK if check else None, preempts=True)
        for name, value in (("low", 10), ("high", 100)):
            self.cluster.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        self.admin = self.cluster.apiserver.access.user("admin", groups=["system:masters"])
        self.controllers = [Process(self, "a"), Process(self, "b")] if check else []
        self.later()

    def later(self, seconds=0.5):
        """Let time pass, controllers acting all the while."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            for each in self.controllers:
                each.elector.campaign(each.ctx)
                if each.elector.leading:
                    each.turn()
            self.cluster.advance(0.1)

    def until(self, holds, seconds=60):
        end = self.clock.monotonic() + seconds
        while not holds():
            assert self.clock.monotonic() < end, "it never came"
            self.later(0.1)

    def start(self, job, attempt=1, priority="low"):
        """Start and open; the name."""
        identity = names.Identity("gpu", job, attempt)
        requests = {"requests": {"cpu": "2"}}
        spec = JobSpec.parse({"nodes": 2, "command": ["x"], "resources": requests, "extensions": EXTENSIONS})
        body = self.cluster.get(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
        source = runtime_copy.Source.of(body, "ClusterTrainingRuntime")
        copied = runtime_copy.build(source, identity, spec, namespace=NAMESPACE, nonce="n")
        for each in copied["spec"]["template"]["spec"]["replicatedJobs"]:
            del each["template"]["spec"]["podReplacementPolicy"]
        self.cluster.create(TRAINING_RUNTIMES, copied, NAMESPACE)
        gated = trainjob.build(identity, spec, namespace=NAMESPACE, mode="kueue", nonce="n", queue="lq")
        gated["metadata"]["labels"][PRIORITY_CLASS] = priority
        self.cluster.create(TRAIN_JOBS, gated, NAMESPACE)
        self.later()
        self.record(identity.name, gate="lifted")
        return identity.name

    def record(self, name, *, gate=None, hold=None):
        metadata = self.cluster.get(TRAIN_JOBS, name, NAMESPACE)["metadata"]
        gated_by = metadata["annotations"].get(names.ADMISSION_GATED_BY) if gate else None
        uid, version = metadata["uid"], metadata["resourceVersion"]
        self.cluster.patch(
            TRAIN_JOBS, name, record_patch(uid, version, gate=gate, hold=hold, gated_by=gated_by), NAMESPACE
        )

    def hold(self, name, instance):
        self.record(name, hold=Hold(instance, held=True))
        found = self.workload(name)
        self.cluster.patch(WORKLOADS, found.metadata.name, hold_patch(found, instance), NAMESPACE)

    def release(self, name, instance):
        self.record(name, hold=Hold(instance, held=False))
        if not self.controllers:
            # Without a controller somebody has to do what it does.
            found = self.workload(name)
            body = {"metadata": {"annotations": {names.HELD: None}}, "spec": {"active": True}}
            self.cluster.patch(WORKLOADS, found.metadata.name, body, NAMESPACE)

    def workload(self, name):
        uid = self.cluster.get(TRAIN_JOBS, name, NAMESPACE)["metadata"]["uid"]
        (found,) = self.cluster.list(WORKLOADS, NAMESPACE, labels=names.workload_selector(uid))
        return read(found, Workload)

    def pods(self, job):
        return self.cluster.list(PODS, NAMESPACE, labels=names.job_selector("gpu", job))

    def runs(self, job, times):
        """Whether both ranks of the job have started so often, and run."""
        ours = [each for each in self.kubelet.starts if each[0] == job]
        return len(ours) >= 2 * times and len(self.kubelet.running()) == 2


def preempted(queue):
    """A job runs, is sent away by an urgent one, and comes back."""
    queue.start("fit")
    queue.until(lambda: queue.runs("fit", 1))
    queue.start("urgent", priority="high")
    queue.until(lambda: queue.runs("fit", 2))


def held(queue):
    """A job runs, is held, and released while its pods still stop."""
    name = queue.start("fit")
    queue.until(lambda: queue.runs("fit", 1))
    queue.hold(name, 1)
    queue.later(1)
    queue.release(name, 1)
    queue.until(lambda: queue.runs("fit", 2))


def deleted(queue):
    """Somebody deletes the Workload of a job that runs; Kueue makes another."""
    name = queue.start("fit")
    queue.until(lambda: queue.runs("fit", 1))
    queue.cluster.delete(WORKLOADS, queue.workload(name).metadata.name, NAMESPACE)
    queue.until(lambda: queue.runs("fit", 2))


@pytest.mark.parametrize("story", [preempted, held, deleted], ids=lambda story: story.__name__)
@pytest.mark.parametrize("ours", [False, True], ids=["kueue-alone", "with-the-controller"])
def test_two_generations_overlap_under_kueue_alone_and_not_behind_our_check(story, ours):
    queue = Queue(check=ours)
    story(queue)
    assert bool(queue.kubelet.overlaps) is not ours
    assert list(queue.cluster.failures) == []


def test_two_attempts_of_a_job_never_run_at_once():
    queue = Queue()
    first = queue.start("fit")
    queue.until(lambda: queue.runs("fit", 1))
    queue.start("fit", attempt=2, priority="high")
    queue.until(lambda: queue.runs("fit", 2))
    assert queue.kubelet.overlaps == []
    assert queue.workload(first).status.admission_checks[0].state == "Pending"


def test_taking_the_check_off_the_queue_starts_what_waits_and_leaves_what_is_held():
    queue = Queue()
    held_one = queue.start("fit")
    queue.until(lambda: queue.runs("fit", 1))
    queue.hold(held_one, 1)
    queue.until(lambda: not queue.kubelet.running())
    queue.controllers = []
    queue.start("fat")
    queue.later(5)
    assert queue.kubelet.running() == []
    queue.cluster.patch(CLUSTER_QUEUES, "cq", {"spec": {"admissionChecksStrategy": None}})
    queue.until(lambda: queue.runs("fat", 1))
    queue.later(5)
    assert not queue.workload(held_one).spec.active
    assert not queue.pods("fit")


@pytest.mark.parametrize("moment", ["opened", "preempted", "released"])
def test_what_happens_while_the_controller_is_down_is_made_good_when_it_is_back(moment):
    queue = Queue()
    controllers, queue.controllers = queue.controllers, ([] if moment == "opened" else queue.controllers)
    name = queue.start("fit")
    if moment != "opened":
        queue.until(lambda: queue.runs("fit", 1))
        if moment == "released":
            queue.hold(name, 1)
            queue.later(3 * STOPPING)
        queue.controllers = []
    if moment == "preempted":
        queue.cluster.delete(WORKLOADS, queue.workload(name).metadata.name, NAMESPACE)
    if moment == "released":
        queue.record(name, hold=Hold(1, held=False))
    queue.later(30)
    assert queue.kubelet.running() == []
    queue.controllers = controllers
    queue.until(lambda: queue.runs("fit", 1 if moment == "opened" else 2))
    assert queue.kubelet.overlaps == []


class Chance:
    """A job whose holds, queue, Workload and controllers are at the mercy of chance, and what must be true whatever."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.queue = Queue()
        self.name = self.queue.start("fit")
        self.instance = 0
        self.held = False
        self.made = 2

    def step(self):
        self.chance.choice(
            [self.hold, self.hold, self.release, self.release, self.urgent, self.lose, self.drain, self.die, self.nap]
        )()
        self.queue.later(self.chance.choice([0.1, 0.3, 1, 4, 8]))
        assert self.queue.kubelet.overlaps == []

    def hold(self):
        self.instance += 1
        self.queue.record(self.name, hold=Hold(self.instance, held=True))
        self.held = True
        if self.chance.random() < 0.7:  # else it dies between its two writes, and the controller does the second
            found = self.queue.workload(self.name)
            body = hold_patch(found, self.instance)
            self.queue.cluster.patch(WORKLOADS, found.metadata.name, body, NAMESPACE)

    def release(self):
        if self.held:
            self.queue.record(self.name, hold=Hold(self.instance, held=False))
            self.held = False

    def urgent(self):
        self.made += 1
        self.queue.start("urgent", attempt=self.made, priority="high")

    def lose(self):
        self.queue.cluster.delete(WORKLOADS, self.queue.workload(self.name).metadata.name, NAMESPACE)
        self.queue.later(0.1)

    def drain(self):
        self.queue.cluster.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        self.queue.later(self.chance.choice([0.2, 1, 3]))
        self.queue.cluster.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})

    def die(self):
        self.made += 1
        self.queue.controllers[self.chance.randrange(2)] = Process(self.queue, f"controller-{self.made}")

    def nap(self):
        controllers, self.queue.controllers = self.queue.controllers, []
        self.queue.later(self.chance.choice([1, 5, 20]))
        self.queue.controllers = controllers

    def end(self):
        """Held, it comes to rest; released, it runs again."""
        self.hold()
        self.queue.until(lambda: not any(each.pod["metadata"]["name"].startswith("fit") for each in self.live()), 120)
        self.queue.later(20)
        assert not self.queue.pods("fit")
        self.release()
        self.queue.until(lambda: len([each for each in self.live() if "fit" in each.pod["metadata"]["name"]]) == 2, 180)
        assert self.queue.kubelet.overlaps == []
        assert list(self.queue.cluster.failures) == []

    def live(self):
        return self.queue.kubelet.running()


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_no_rank_runs_beside_itself_and_every_job_comes_back(seed):
    schedule = Chance(seed)
    for _ in range(12):
        schedule.step()
    schedule.end()
