"""Open, Hold and Release on pods that stop at once, slowly, or never."""

from __future__ import annotations

import pytest

from dispatch_kubeflow.machine import ErrPodsRemain, ErrStaleHold
from tests.operations.world import refused
from tests.real.api import MERGE_PATCH, has

from .scene import FOREVER, Scene, soon


def record(scene: Scene) -> tuple[str, str, bool]:
    job = scene.train_job()
    annotations = job["metadata"]["annotations"]
    prefix = "dispatch-kubeflow.io/"
    return annotations[f"{prefix}gate"], annotations[f"{prefix}hold"], job["spec"]["suspend"]


def test_a_job_goes_gated_opened_held_released(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    assert record(scene) == ("closed", "none", True)
    backend.open(ref, ctx=soon())
    assert record(scene) == ("lifted", "none", False)
    first = {pod["metadata"]["uid"] for pod in scene.running()}
    backend.hold(ref, 4, ctx=soon())
    assert record(scene) == ("lifted", "4/held", True)
    assert scene.found(backend) == [("TrainJob", "job-1", "held")]
    scene.at_rest()
    backend.release(ref, 4, ctx=soon())
    assert record(scene) == ("lifted", "4/released", False)
    assert not first & {pod["metadata"]["uid"] for pod in scene.running()}


def test_calls_that_come_again_succeed_and_change_nothing(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.run(backend)
    backend.open(ref, ctx=soon())
    backend.hold(ref, 1, ctx=soon())
    scene.at_rest()
    scene.wait(scene.train_jobs, "job-1", has("Suspended"))
    before = scene.train_job()["spec"], record(scene)
    backend.hold(ref, 1, ctx=soon())
    assert (scene.train_job()["spec"], record(scene)) == before
    backend.release(ref, 1, ctx=soon())
    backend.release(ref, 1, ctx=soon())
    assert record(scene) == ("lifted", "1/released", False)


def test_a_late_hold_or_release_never_touches_a_newer_one(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.run(backend)
    backend.hold(ref, 2, ctx=soon())
    for late in (lambda: backend.hold(ref, 1, ctx=soon()), lambda: backend.release(ref, 1, ctx=soon())):
        with pytest.raises(ErrStaleHold) as caught:
            late()
        assert caught.value.details["instance_in_force"] == 2
    assert record(scene) == ("lifted", "2/held", True)


def test_released_while_old_pods_stop_is_refused_and_nothing_new_starts(scene: Scene) -> None:
    scene.steer({**FOREVER, "kubelet.test/stops": "never"})
    backend = scene.backend()
    ref = scene.run(backend)
    old = {pod["metadata"]["uid"] for pod in scene.list(scene.pods)}
    backend.hold(ref, 1, ctx=soon())
    scene.stopping()
    with pytest.raises(ErrPodsRemain):
        backend.release(ref, 1, ctx=soon())
    assert record(scene) == ("lifted", "1/held", True)
    assert {pod["metadata"]["uid"] for pod in scene.list(scene.pods)} == old
    scene.annotate_pods(stops="0s")
    scene.at_rest()
    backend.release(ref, 1, ctx=soon())
    assert not old & {pod["metadata"]["uid"] for pod in scene.running()}


def test_even_released_behind_the_librarys_back_no_pod_starts_beside_an_old_one(scene: Scene) -> None:
    scene.steer({**FOREVER, "kubelet.test/stops": "never"})
    backend = scene.backend()
    ref = scene.run(backend)
    old = {pod["metadata"]["uid"] for pod in scene.list(scene.pods)}
    backend.hold(ref, 1, ctx=soon())
    scene.stopping()
    scene.cluster.api.merge(f"{scene.train_jobs}/job-1", {"spec": {"suspend": False}})
    scene.wait(scene.jobs, "job-1-node-0", has("Suspended", "False"))
    assert {pod["metadata"]["uid"] for pod in scene.list(scene.pods)} == old
    scene.annotate_pods(stops="0s")
    assert not old & {pod["metadata"]["uid"] for pod in scene.running()}


def test_held_before_it_is_opened_it_stays_held(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    backend.hold(ref, 1, ctx=soon())
    backend.open(ref, ctx=soon())
    assert record(scene) == ("lifted", "1/held", True)
    assert scene.names(scene.pods) == []
    scene.wait(scene.jobs, "job-1-node-0", has("Suspended"))
    backend.release(ref, 1, ctx=soon())
    scene.running()


def test_released_before_it_is_opened_it_stays_gated(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    backend.hold(ref, 1, ctx=soon())
    backend.release(ref, 1, ctx=soon())
    assert record(scene) == ("closed", "1/released", True)
    assert scene.found(backend) == [("TrainJob", "job-1", "gated")]


def test_one_node_that_had_succeeded_does_not_run_again_after_a_hold(scene: Scene) -> None:
    scene.steer({**FOREVER, "kubelet.test/runs.0": "0s"})
    backend = scene.backend()
    ref = scene.start(backend)
    backend.open(ref, ctx=soon())

    def one_done(job: dict[str, object] | None) -> bool:
        status = dict((job or {}).get("status", {}))  # type: ignore[call-overload]
        return status.get("completedIndexes") == "0" and status.get("ready") == 1

    scene.wait(scene.jobs, "job-1-node-0", one_done)
    backend.hold(ref, 1, ctx=soon())

    def rests(job: dict[str, object] | None) -> bool:
        status = dict((job or {}).get("status", {}))  # type: ignore[call-overload]
        return has("Suspended")(job) and not status.get("active") and not status.get("terminating")

    scene.wait(scene.jobs, "job-1-node-0", rests)
    backend.release(ref, 1, ctx=soon())
    up = scene.cluster.wait_list(
        scene.pods, lambda pods: sorted(p["status"].get("phase", "") for p in pods) == ["Running", "Succeeded"]
    )
    assert sorted(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in up) == ["0", "1"]


def test_another_attempts_pods_keep_an_attempt_from_opening(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.run(backend)
    second = scene.start(backend, attempt=2)
    with refused("open.other-attempt"):
        backend.open(second, ctx=soon())
    assert [each[2] for each in scene.found(backend)] == ["opened", "gated"]


def test_a_job_changed_behind_its_gate_is_not_opened(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    change = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
    scene.cluster.api.merge(f"{scene.train_jobs}/job-1", change)
    with refused("open.changed"):
        backend.open(ref, ctx=soon())
    assert record(scene) == ("closed", "none", True)


def test_a_job_whose_copy_is_gone_is_not_opened(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    path = f"{scene.runtimes}/job-1"
    scene.cluster.api.send("DELETE", path)
    freed = {"metadata": {"finalizers": None}}
    scene.cluster.api.send("PATCH", path, freed, content_type=MERGE_PATCH)
    scene.wait(scene.runtimes, "job-1", lambda seen: seen is None)
    with refused("open.copy-lost"):
        backend.open(ref, ctx=soon())
