"""The calls of kueue mode: what keeps a job waiting is told as Kueue shows it, and a hold is enforced without the
controller.
"""

from __future__ import annotations

import pytest

from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.machine import ErrStaleHold, ErrUnsupported
from tests.operations.world import refused

from .queue_scene import ASKED, KUEUE, SOON, QueueScene, kind
from .scene import FOREVER, soon


def _served(scene: QueueScene) -> None:
    """Until our check is Active; it stays so without the controller, and starts nothing."""
    with scene.controller() as controller:
        scene.wait_for(lambda: ("serve", "ok") in controller.writes)


def _waits(scene: QueueScene, backend: Backend, state: str, reason: str | None) -> None:
    """Until the job is seen in this state, waiting for this."""
    scene.seen(
        backend,
        lambda view: (
            [(each.state, each.waiting.reason if each.waiting else None) for each in view.objects] == [(state, reason)]
        ),
    )


def test_a_job_says_what_it_waits_for_and_is_held_without_the_controller(queue_scene: QueueScene) -> None:
    queue_scene.queue(checked=True)
    queue_scene.steer(FOREVER)
    _served(queue_scene)
    backend = queue_scene.queue_backend()
    assert backend.capabilities().hold.answer == "yes"
    ref = queue_scene.start(backend, resources=ASKED)
    _waits(queue_scene, backend, "gated", "AdmissionGated")
    assert [each.kind for each in backend.ceased(ref, ctx=soon()).evidence] == ["never-opened"]
    backend.open(ref, ctx=soon())
    _waits(queue_scene, backend, "opened", "AdmissionChecks")
    assert not backend.ceased(ref, ctx=soon()).ceased
    backend.hold(ref, 1, ctx=soon())
    assert queue_scene.found(backend) == [("TrainJob", "job-1", "held")]
    _waits(queue_scene, backend, "held", "Held")
    backend.release(ref, 1, ctx=soon())
    _waits(queue_scene, backend, "opened", "Held")
    assert queue_scene.names(queue_scene.pods) == []
    with queue_scene.controller():
        queue_scene.running()
        _waits(queue_scene, backend, "opened", None)
    backend.hold(ref, 2, ctx=soon())
    queue_scene.at_rest()
    with pytest.raises(ErrStaleHold):
        backend.release(ref, 1, ctx=soon())
    assert queue_scene.workload("job-1")["spec"]["active"] is False
    backend.stop_job("job", ctx=soon())
    assert queue_scene.found(backend) == []


def test_a_job_ends_well_through_gate_queue_and_check(queue_scene: QueueScene) -> None:
    queue_scene.queue(checked=True)
    queue_scene.steer(SOON)
    with queue_scene.controller() as controller:
        queue_scene.wait_for(lambda: ("serve", "ok") in controller.writes)
        backend = queue_scene.queue_backend()
        ref = queue_scene.start(backend, resources=ASKED)
        backend.open(ref, ctx=soon())
        ended = queue_scene.ended(backend)
    assert ended.cause is not None
    assert ended.cause.kind == "succeeded"
    with refused("object.hold-ended"):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("backend.observe-only-start")
def test_a_queue_without_our_check_is_observed_only(queue_scene: QueueScene) -> None:
    queue_scene.queue(checked=False)
    queue_scene.steer(FOREVER)
    backend = queue_scene.queue_backend()
    with refused("backend.observe-only-start", missing_gate="AdmissionCheck"):
        queue_scene.start(backend, resources=ASKED)


@pytest.mark.rule("start.workload-unchecked")
def test_a_check_taken_off_the_queue_is_missed_on_the_workload(queue_scene: QueueScene) -> None:
    queue_scene.queue(checked=True)
    queue_scene.steer(FOREVER)
    _served(queue_scene)
    backend = queue_scene.backend(mode="kueue", queue="lq", admission_check=queue_scene.namespace, workload_wait=3.0)
    change = {"spec": {"admissionChecksStrategy": None}}
    queue_scene.cluster.api.merge(f"{KUEUE}/clusterqueues/{queue_scene.namespace}", change)
    with refused("start.workload-unchecked"):
        queue_scene.start(backend, resources=ASKED)
    queue_scene.wait_for(lambda: not queue_scene.names(queue_scene.train_jobs))
    assert queue_scene.names(queue_scene.pods) == []


@pytest.mark.rule("runtime.no-requests")
def test_a_job_that_requests_nothing_is_refused(queue_scene: QueueScene) -> None:
    queue_scene.queue(checked=True)
    queue_scene.steer(FOREVER)
    _served(queue_scene)
    with refused("runtime.no-requests"):
        queue_scene.start(queue_scene.queue_backend())


@pytest.mark.rule("factory.queueless-managed")
def test_plain_mode_is_refused_where_a_default_queue_takes_what_has_none(queue_scene: QueueScene) -> None:
    queue_scene.queue(checked=False)
    queue_scene.steer(FOREVER)
    backend = queue_scene.backend()
    assert backend.capabilities().hold.answer == "yes"
    default = {**kind("LocalQueue"), "metadata": {"name": "default"}, "spec": {"clusterQueue": queue_scene.namespace}}
    queue_scene.cluster.api.post(f"{KUEUE}/namespaces/{queue_scene.namespace}/localqueues", default)

    def managed() -> bool:
        # Kueue's webhook knows of the queue from a cache.
        try:
            queue_scene.backend().close()
        except ErrUnsupported:
            return True
        return False

    queue_scene.wait_for(managed)
    with refused("factory.queueless-managed", seen="the queue default"):
        queue_scene.backend()
