"""Kueue mode whole: the calls, Kueue, and the admission controller that alone lets a job run."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dispatch_kubeflow.backend import ObjectRef
from dispatch_kubeflow.backend.admission.controller import Controller, Place
from dispatch_kubeflow.backend.admission.leading import LeaseTimes
from dispatch_kubeflow.backend.embedded import Script
from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests import Door, load_access
from dispatch_kubeflow.backend.requests.resources import PODS, WORKLOADS, Resource
from dispatch_kubeflow.machine.context import SystemClock
from dispatch_kubeflow.machine.rules import rulebook
from tests.admission.scene import Recorder

from .queue_world import QueueWorld, queued
from .world import NAMESPACE, soon

WORKLOAD_PRIORITIES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
SLOWLY = 0.5
"""Seconds that a container takes to stop."""


@contextmanager
def governed(queue: QueueWorld) -> Iterator[Controller]:
    """The admission controller at work, until the end of the block."""
    clock = SystemClock()
    path = queue.kubeconfig(url=queue.wire.url)
    cluster = load_access(book=rulebook(), kubeconfig=path, context=None, in_cluster=False, clock=clock)
    door = Door(cluster, request_timeout=10.0, clock=clock)
    place = Place(NAMESPACE, "admission", "the-only-one")
    try:
        with Controller(door, place, Recorder(), times=LeaseTimes(3.0, 2.0, 0.1), clock=clock) as made:
            queue.until(lambda: made.elector.leading, "it never led")
            yield made
    finally:
        door.close()


@pytest.fixture
def slow(tmp_path: pathlib.Path) -> Iterator[QueueWorld]:
    """Containers that take their time to stop."""
    made = QueueWorld(tmp_path, Script(stop_after=SLOWLY))
    yield made
    made.close()


class Generations:
    """Watches that no pod starts beside one of an earlier generation."""

    def __init__(self, queue: QueueWorld, name: str = "job-1") -> None:
        self._queue, self._name = queue, name

    def uids(self) -> set[str]:
        """The pods of the job that are not at an end."""
        every = self._queue.cluster.list(PODS, NAMESPACE)
        return {
            each["metadata"]["uid"]
            for each in every
            if each["metadata"]["name"].startswith(f"{self._name}-")
            and each["status"].get("phase") not in {"Succeeded", "Failed"}
        }

    def replaced(self, old: set[str]) -> set[str]:
        """The next generation, once it is whole; never one beside the last."""
        found: set[str] = set()

        def next_one() -> bool:
            nonlocal found
            found = self.uids()
            assert not (found & old and found - old), "two generations at once"
            return len(found) == 2 and not found & old

        self._queue.until(next_one, "the next generation never came")
        return found


def _run(queue: QueueWorld, backend: Backend, job: str = "job") -> ObjectRef:
    ref = queued(backend, job)
    backend.open(ref, ctx=soon())
    queue.running(ref.name)
    return ref


def test_a_job_goes_gated_opened_held_released_and_its_generations_never_overlap(slow: QueueWorld) -> None:
    backend = slow.backend()
    with governed(slow):
        ref = queued(backend)
        slow.calm()
        assert (slow.record(), slow.suspended(), slow.names(PODS)) == (("closed", "none"), True, [])
        backend.open(ref, ctx=soon())
        slow.running()
        pods = Generations(slow)
        first = pods.uids()
        backend.hold(ref, 1, ctx=soon())
        assert backend.find("job", ctx=soon()).objects[0].state == "held"
        # At once, while the first generation still stops: release is not refused, for it starts nothing itself.
        backend.release(ref, 1, ctx=soon())
        pods.replaced(first)
        assert slow.held() == (True, None)
        assert backend.find("job", ctx=soon()).objects[0].state == "opened"


def test_preempted_and_admitted_again_the_generations_never_overlap(slow: QueueWorld) -> None:
    for name, value in (("low", 1), ("high", 9)):
        slow.cluster.create(WORKLOAD_PRIORITIES, {"metadata": {"name": name}, "value": value})
    backend = slow.backend()
    with governed(slow):
        ref = _run(slow, backend)
        pods = Generations(slow)
        first = pods.uids()
        slow.change({"spec": {"priority": 1}})
        second = queued(backend, "urgent")
        slow.change({"spec": {"priority": 9}}, "urgent-1")
        backend.open(second, ctx=soon())
        slow.until(lambda: not pods.uids() & first, "it was never preempted")
        slow.running("urgent-1")
        waiting = backend.find("job", ctx=soon()).objects[0]
        assert (waiting.state, waiting.waiting is not None) == ("opened", True)
        backend.stop(second, ctx=soon())
        pods.replaced(first)
        assert ref.name == "job-1"


def test_a_crashed_hold_is_completed_and_a_remade_workload_stays_held(queue: QueueWorld) -> None:
    backend = queue.backend()
    with governed(queue):
        ref = _run(queue, backend)
        queue.annotate("job-1", hold="1/held")
        queue.until(lambda: queue.held() == (False, "1"), "the controller never completed it")
        queue.until(lambda: not queue.names(PODS), "the pods never went")
        old = queue.workload()["metadata"]["uid"]
        queue.cluster.delete(WORKLOADS, queue.workload()["metadata"]["name"], NAMESPACE)
        queue.until(
            lambda: any(each["metadata"]["uid"] != old for each in queue.workloads()) and queue.held() == (False, "1"),
            "the new Workload was never held",
        )
        assert queue.suspended()
        backend.release(ref, 1, ctx=soon())
        queue.running()


def test_what_somebody_else_made_inactive_stays_so_through_hold_and_release(queue: QueueWorld) -> None:
    backend = queue.backend()
    with governed(queue):
        ref = _run(queue, backend)
        queue.change({"spec": {"active": False}})
        queue.until(lambda: not queue.names(PODS), "the pods never went")
        backend.hold(ref, 1, ctx=soon())
        backend.release(ref, 1, ctx=soon())
        queue.calm()
        assert queue.held() == (False, None)
        assert queue.names(PODS) == []


def test_without_the_controller_a_hold_holds_and_a_release_waits_for_it(queue: QueueWorld) -> None:
    backend = queue.backend()
    with governed(queue):
        ref = _run(queue, backend)
    backend.hold(ref, 1, ctx=soon())
    queue.until(lambda: not queue.names(PODS), "the pods never went")
    backend.release(ref, 1, ctx=soon())
    queue.calm()
    assert (queue.held(), queue.names(PODS)) == ((False, "1"), [])
    with governed(queue):
        queue.running()
    assert queue.workload()["metadata"].get("annotations", {}).get(names.HELD) is None


def test_a_second_attempt_waits_until_the_first_has_gone(slow: QueueWorld) -> None:
    backend = slow.backend()
    with governed(slow):
        first = _run(slow, backend)
        old = Generations(slow).uids()
        slow.cluster.patch(
            Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False),
            "cq",
            [{"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "value": "64"}],
            kind="json",
        )
        second = queued(backend, attempt=2)
        backend.open(second, ctx=soon())
        slow.until(lambda: slow.condition("QuotaReserved", "job-2") == "True", "it never had quota")
        slow.calm()
        assert Generations(slow, "job-2").uids() == set()
        backend.stop(first, ctx=soon())

        def apart() -> bool:
            left, come = Generations(slow).uids() & old, Generations(slow, "job-2").uids()
            assert not (left and come), "two attempts at once"
            return len(come) == 2

        slow.until(apart, "the second attempt never ran")
