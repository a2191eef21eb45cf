"""Ceased: pods that ended, hang, or are on nodes that are lost, rebooted or declared off."""

from __future__ import annotations

from dispatch_kubeflow.backend import ObjectRef
from dispatch_kubeflow.backend.objects.found import Cessation
from dispatch_kubeflow.backend.operations.backend import Backend
from tests.real.api import has

from .scene import FOREVER, Scene, kinds, soon, view, watched


def shown(backend: Backend, ref: ObjectRef) -> Cessation:
    """Ceased, asked again as a caller does until it is shown: of a Job's last count no view tells."""
    ctx = soon()
    while not (found := backend.ceased(ref, ctx=soon())).ceased:
        assert not ctx.wait(0.05), f"never shown: {found}"
    return found


def test_a_gated_job_was_never_opened(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    found = backend.ceased(scene.start(backend), ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["never-opened"])


def test_a_running_job_has_not_ceased(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.run(backend)
    found = backend.ceased(ref, ctx=soon())
    assert (found.ceased, set(kinds(found))) == (False, {"not-shown"})
    assert found.may_make_pods


def test_a_job_watched_from_its_gate_to_its_end_has_ceased(scene: Scene) -> None:
    scene.steer({"kubelet.test/runs": "0s"})
    backend = scene.backend()
    ref = scene.start(backend)
    with watched(backend) as views:
        backend.open(ref, ctx=soon())
        view(views, lambda found: [each.state for each in found.objects] == ["ended"])
        found = shown(backend, ref)
    assert kinds(found) == ["terminated", "terminated"]


def test_a_stopped_job_has_ceased_when_its_pods_have(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    ref = scene.start(backend)
    with watched(backend):
        backend.open(ref, ctx=soon())
        scene.running()
        backend.stop_job("job", ctx=soon())
        found = shown(backend, ref)
    assert kinds(found) == ["terminated", "terminated"]


def test_a_held_job_has_ceased_only_when_pods_that_hang_have_ended(scene: Scene) -> None:
    scene.steer({**FOREVER, "kubelet.test/stops": "never"})
    backend = scene.backend()
    ref = scene.start(backend)
    with watched(backend):
        backend.open(ref, ctx=soon())
        scene.running()
        backend.hold(ref, 1, ctx=soon())
        scene.stopping()
        assert not backend.ceased(ref, ctx=soon()).ceased
        scene.annotate_pods(stops="0s")
        scene.at_rest()
        found = shown(backend, ref)
    assert kinds(found) == ["terminated", "terminated"]


def test_a_pod_that_is_there_and_ended_is_its_own_evidence(scene: Scene) -> None:
    scene.steer({"kubelet.test/runs": "0s"})
    backend = scene.backend()
    backend.open(scene.start(backend, nodes=1), ctx=soon())
    scene.ended(backend)
    (pod,) = scene.pod_refs()
    found = backend.ceased(pod, ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["terminated"])


def lost(scene: Scene, backend: Backend) -> ObjectRef:
    """A pod whose node fell silent; it was watched, is being deleted, and still shows itself running."""
    ref = scene.start(backend, nodes=1)
    backend.open(ref, ctx=soon())
    scene.running(count=1)
    scene.seen(backend, lambda found: found.objects[0].pods.running == 1)
    scene.cluster.silence(scene.node)
    scene.wait("/api/v1/nodes", scene.node, has("Ready", "Unknown"))
    (pod,) = scene.stopping()
    assert pod["status"]["phase"] == "Running"
    (found,) = scene.pod_refs()
    return found


def test_a_pod_on_a_node_that_fell_silent_has_not_ceased_until_the_node_is_declared_off(scene: Scene) -> None:
    scene.steer(FOREVER, selector=scene.own_node())
    backend = scene.backend()
    with watched(backend):
        pod = lost(scene, backend)
        found = backend.ceased(pod, ctx=soon())
        assert (found.ceased, kinds(found)) == (False, ["not-shown"])
        scene.cluster.put_out_of_service(scene.node)
        found = backend.ceased(pod, ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["node-gone"])


def test_a_pod_on_a_node_that_was_rebooted_has_ceased(scene: Scene) -> None:
    scene.steer(FOREVER, selector=scene.own_node())
    backend = scene.backend()
    with watched(backend):
        pod = lost(scene, backend)
        scene.cluster.reboot(scene.node)
        found = backend.ceased(pod, ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["node-rebooted"])


def test_a_node_that_comes_back_reports_the_end_of_its_pod(scene: Scene) -> None:
    scene.steer(FOREVER, selector=scene.own_node())
    backend = scene.backend()
    with watched(backend):
        pod = lost(scene, backend)
        scene.cluster.answer_again(scene.node)
        scene.wait(scene.train_jobs, "job-1", has("Failed"))
        found = backend.ceased(pod, ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["terminated"])


def test_a_pod_that_was_deleted_by_force_is_not_shown_to_have_ended(scene: Scene) -> None:
    scene.steer(FOREVER, selector=scene.own_node())
    backend = scene.backend()
    with watched(backend):
        pod = lost(scene, backend)
        # Its Job waits for the kubelet's word as well, and holds the object until somebody takes its finalizer away.
        path = f"{scene.pods}/{pod.name}"
        kept = scene.cluster.api.expect("DELETE", path, {"gracePeriodSeconds": 0})
        assert kept["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
        scene.cluster.api.merge(path, {"metadata": {"finalizers": None}})
        scene.wait(scene.pods, pod.name, lambda seen: seen is None)
        found = backend.ceased(pod, ctx=soon())
    assert (found.ceased, kinds(found)) == (False, ["not-shown"])
