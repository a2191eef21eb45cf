"""Ceased: evidence for each pod, from the cluster and from the notes that a watch kept, and never a bare yes."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from dispatch_kubeflow.backend import ObjectRef
from dispatch_kubeflow.backend.embedded import Script
from dispatch_kubeflow.backend.objects.found import Cessation, Found
from dispatch_kubeflow.backend.operations.adapter import Permissions
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.operations.ceased import _guessed_name
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from dispatch_kubeflow.machine import DispatchError, ErrPodsRemain

from .world import NAMESPACE, World, cancelled, ended, refused, soon, spec, start


@pytest.fixture
def quick(tmp_path: pathlib.Path) -> Iterator[World]:
    """A cluster whose containers end at once, well."""
    made = World(tmp_path, Script(run=0.0))
    yield made
    made.close()


@contextmanager
def watched(world: World, job: str = "job") -> Iterator[Iterator[Found]]:
    """A watch from here to the end of the block, with notes."""
    ctx = soon(30)
    views = world.backends[0].watch(job, ctx=ctx)
    next(views)
    try:
        yield views
    finally:
        ctx.cancel()
        with pytest.raises(DispatchError):
            list(views)


def kinds(found: Cessation) -> list[str]:
    return sorted(each.kind for each in found.evidence)


def settled(world: World, ref: ObjectRef) -> Cessation:
    """Ceased, once it is shown."""
    backend = world.backends[0]

    def shown() -> Cessation | None:
        found = backend.ceased(ref, ctx=soon())
        return found if found.ceased else None

    return world.until(shown, f"never shown: {backend.ceased(ref, ctx=soon())}")  # type: ignore[no-any-return]


def ended_job(world: World, backend: Backend) -> bool:
    found = backend.find("job", ctx=soon()).objects
    return bool(found) and found[0].state == "ended"


def noted(world: World, ref: ObjectRef) -> Any:
    return world.backends[0]._adapter.hub.notes(ref.uid)


def written(world: World, name: str = "job-1") -> str:
    """The notes in the ConfigMap, as text."""
    found = world.get(CONFIG_MAPS, f"{name}-notes")
    return "" if found is None else str(found["data"]["notes"])


# The whole.


def test_a_gated_job_was_never_opened(world: World) -> None:
    backend = world.backend()
    found = backend.ceased(start(backend), ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["never-opened"])


def test_a_gated_job_was_never_opened_though_no_controller_has_looked_at_it_yet(world: World) -> None:
    for controller in ("jobset", "kube-controller-manager"):
        world.cluster.take_down(controller)
    world.cluster.admission.set_down(False)
    backend = world.backend()
    ref = start(backend)
    world.until(lambda: world.get(JOB_SETS, "job-1"))
    found = backend.ceased(ref, ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["never-opened"])


def test_a_gated_job_that_this_backend_stopped_was_never_opened(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.stop(ref, ctx=soon())
    world.until(lambda: not world.get(JOB_SETS, "job-1"))
    found = backend.ceased(ref, ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["never-opened"])


def test_a_gated_job_stopped_unseen_is_not_shown(world: World) -> None:
    backend, other = world.backend(), world.backend()
    ref = start(backend)
    backend.stop(ref, ctx=soon())
    world.until(lambda: not world.get(JOB_SETS, "job-1"))
    found = other.ceased(ref, ctx=soon())
    assert (found.ceased, kinds(found)) == (False, ["not-shown"])


def test_a_gated_job_whose_deletion_a_watch_saw_was_never_opened(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    with watched(world):
        world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE)
        found = settled(world, ref)
    assert kinds(found) == ["never-opened"]


def test_a_running_job_has_not_ceased(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.running()
    found = backend.ceased(ref, ctx=soon())
    assert not found.ceased
    assert kinds(found) == ["not-shown", "not-shown", "not-shown"]
    assert found.may_make_pods


def test_pods_read_as_ended_are_evidence_but_without_notes_not_all_of_it(quick: World) -> None:
    backend = quick.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    quick.until(lambda: ended_job(quick, backend))
    found = backend.ceased(ref, ctx=soon())
    assert not found.ceased
    assert kinds(found) == ["not-shown", "terminated", "terminated"]
    assert [each.pod for each in found.evidence if each.kind == "not-shown"] == ["unobserved"]
    assert found.may_make_pods == ()


def test_a_completed_job_that_was_watched_from_its_gate_on_has_ceased(quick: World) -> None:
    backend = quick.backend()
    ref = start(backend)
    with watched(quick):
        backend.open(ref, ctx=soon())
        quick.until(lambda: ended_job(quick, backend))
        found = settled(quick, ref)
    assert kinds(found) == ["terminated", "terminated"]


def test_what_a_watch_noted_is_evidence_for_another_backend(quick: World) -> None:
    backend = quick.backend()
    ref = start(backend)
    with watched(quick):
        backend.open(ref, ctx=soon())
        quick.until(lambda: ended_job(quick, backend))
        settled(quick, ref)
        quick.until(lambda: '"settled":0' in written(quick))
    backend.stop_job("job", ctx=soon())
    found = quick.backend().ceased(ref, ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["terminated", "terminated"])
    assert {each.source for each in found.evidence} == {"notes"}


def test_a_job_that_was_stopped_under_watch_has_ceased_when_its_pods_have(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    with watched(world):
        backend.open(ref, ctx=soon())
        world.running()
        backend.stop_job("job", ctx=soon())
        found = settled(world, ref)
    assert kinds(found) == ["terminated", "terminated"]
    assert found.may_make_pods == ()


def test_a_held_job_has_ceased_while_it_is_held_and_no_longer_once_released(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    with watched(world):
        backend.open(ref, ctx=soon())
        world.running()
        backend.hold(ref, 1, ctx=soon())
        found = settled(world, ref)
        assert kinds(found) == ["terminated", "terminated"]
    world.until(lambda: _released(backend, ref))
    world.running()
    again = backend.ceased(ref, ctx=soon())
    assert not again.ceased
    assert "unobserved" in [each.pod for each in again.evidence]


def _released(backend: Backend, ref: ObjectRef) -> bool:
    try:
        backend.release(ref, 1, ctx=soon())
    except ErrPodsRemain:
        return False
    return True


def test_pods_that_came_after_the_watch_had_ended_leave_it_not_shown(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    with watched(world):
        backend.open(ref, ctx=soon())
        world.running()
        backend.hold(ref, 1, ctx=soon())
        settled(world, ref)
    world.until(lambda: _released(backend, ref))
    world.running()
    backend.stop_job("job", ctx=soon())
    found = backend.ceased(ref, ctx=soon())
    assert not found.ceased


def test_a_watch_that_began_on_an_opened_gate_does_not_know_all_pods(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.running()
    with watched(world):
        world.until(lambda: noted(world, ref) is not None and len(noted(world, ref).pods) == 2)
        backend.stop_job("job", ctx=soon())
        world.until(lambda: all(note.ends for note in noted(world, ref).pods))
    found = backend.ceased(ref, ctx=soon())
    assert kinds(found) == ["not-shown", "terminated", "terminated"]


def test_a_failed_job_that_is_not_suspended_has_not_ceased(tmp_path: pathlib.Path) -> None:
    world = World(tmp_path, Script(run=0.0, exit_code=3))
    try:
        backend = world.backend()
        ref = start(backend, nodes=1)
        with watched(world):
            backend.open(ref, ctx=soon())
            world.until(lambda: ended_job(world, backend))
            found = backend.ceased(ref, ctx=soon())
            assert not found.ceased
            assert any("not suspended" in each for each in found.may_make_pods)
            backend.stop_job("job", ctx=soon())
            assert kinds(settled(world, ref)) == ["terminated"]
    finally:
        world.close()


# One pod.


def pods(world: World) -> list[ObjectRef]:
    found = world.cluster.list(PODS, NAMESPACE)
    return [ObjectRef("gpu", NAMESPACE, "Pod", each["metadata"]["name"], each["metadata"]["uid"]) for each in found]


def test_one_pod_that_ended_has_ceased_without_any_notes(quick: World) -> None:
    backend = quick.backend()
    backend.open(start(backend), ctx=soon())
    quick.until(lambda: ended_job(quick, backend))
    found = backend.ceased(pods(quick)[0], ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["terminated"])


def test_a_pod_whose_name_is_anothers_is_not_found(world: World) -> None:
    backend = world.backend()
    backend.open(start(backend), ctx=soon())
    world.running()
    with refused("read.other-uid"):
        backend.ceased(replace(pods(world)[0], uid="another"), ctx=soon())


def test_one_pod_that_runs_has_not_ceased(world: World) -> None:
    backend = world.backend()
    backend.open(start(backend), ctx=soon())
    world.running()
    found = backend.ceased(pods(world)[0], ctx=soon())
    assert (found.ceased, kinds(found)) == (False, ["not-shown"])


def test_a_pod_that_nobody_knows_is_not_shown(world: World) -> None:
    found = world.backend().ceased(ObjectRef("gpu", NAMESPACE, "Pod", "job-1-node-0-0-abcde", "uid"), ctx=soon())
    assert (found.ceased, kinds(found)) == (False, ["not-shown"])


def lost_pod(world: World) -> tuple[Backend, ObjectRef, str]:
    """A pod that was force-deleted while it ran, and was watched; its node's name."""
    backend = world.backend()
    backend.open(start(backend, nodes=1), ctx=soon())
    (pod,) = world.running(pods=1)
    (ref,) = pods(world)
    trainjob = ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", world.trainjob()["metadata"]["uid"])
    with watched(world):
        world.until(lambda: noted(world, trainjob) and any(note.boot_id for note in noted(world, trainjob).pods))
        world.cluster.take_down("kubelet")
        world.cluster.delete(PODS, ref.name, NAMESPACE, grace=0)
        world.cluster.patch(PODS, ref.name, {"metadata": {"finalizers": None}}, NAMESPACE)
        world.until(lambda: noted(world, trainjob).pods[0].gone)
    return backend, ref, pod["spec"]["nodeName"]


def test_a_pod_that_was_force_deleted_is_not_shown(world: World) -> None:
    backend, ref, _ = lost_pod(world)
    found = backend.ceased(ref, ctx=soon())
    assert (found.ceased, kinds(found)) == (False, ["not-shown"])


def test_a_reboot_of_the_same_machine_is_evidence(world: World) -> None:
    backend, ref, node = lost_pod(world)
    world.cluster.patch(NODES, node, {"status": {"nodeInfo": {"bootID": "another"}}}, subresource="status")
    found = backend.ceased(ref, ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["node-rebooted"])


def test_another_machine_under_the_same_name_is_no_evidence(world: World) -> None:
    backend, ref, node = lost_pod(world)
    info = {"bootID": "another", "systemUUID": "another"}
    world.cluster.patch(NODES, node, {"status": {"nodeInfo": info}}, subresource="status")
    assert kinds(backend.ceased(ref, ctx=soon())) == ["not-shown"]


def test_a_node_declared_out_of_service_is_evidence(world: World) -> None:
    backend, ref, node = lost_pod(world)
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    world.cluster.patch(NODES, node, {"spec": {"taints": [taint]}})
    found = backend.ceased(ref, ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["node-gone"])


def test_a_node_object_that_is_gone_is_no_evidence(world: World) -> None:
    backend, ref, node = lost_pod(world)
    world.cluster.delete(NODES, node)
    assert kinds(backend.ceased(ref, ctx=soon())) == ["not-shown"]


def test_a_node_that_may_not_be_read_is_unsupported(world: World) -> None:
    backend, ref, node = lost_pod(world)
    world.wire.refuse("GET", r"/nodes/", 403, "Forbidden")
    with refused("read.nodes-denied", name=node, status=403):
        backend.ceased(ref, ctx=soon())


def test_a_node_without_an_answer_is_unreachable(world: World) -> None:
    backend, ref, _ = lost_pod(world)
    world.wire.lose_request("GET", r"/nodes/")
    with refused("request.no-answer"):
        backend.ceased(ref, ctx=soon())


# Other objects, and other instances.


@pytest.mark.parametrize("resource", [JOB_SETS, JOBS])
def test_a_jobset_and_a_job_are_asked_about_by_their_attempt(quick: World, resource: Any) -> None:
    backend = quick.backend()
    ref = start(backend)
    with watched(quick):
        backend.open(ref, ctx=soon())
        quick.until(lambda: ended_job(quick, backend))
        settled(quick, ref)
        (found,) = quick.cluster.list(resource, NAMESPACE)
        metadata = found["metadata"]
        below = ObjectRef("gpu", NAMESPACE, resource.kind, metadata["name"], metadata["uid"])
        assert kinds(settled(quick, below)) == ["terminated", "terminated"]


@pytest.mark.parametrize(
    ("resource", "name"),
    [(TRAIN_JOBS, "job-1"), (TRAINING_RUNTIMES, "job-1"), (JOB_SETS, "job-1"), (JOBS, "job-1-node-0")],
)
def test_a_name_that_is_anothers_is_not_found(world: World, resource: Any, name: str) -> None:
    backend = world.backend()
    start(backend)
    world.until(lambda: world.get(resource, name))
    with refused("read.other-uid"):
        backend.ceased(ObjectRef("gpu", NAMESPACE, resource.kind, name, "another"), ctx=soon())


def test_notes_on_another_trainjob_of_that_name_are_no_evidence(quick: World) -> None:
    backend = quick.backend()
    ref = start(backend)
    with watched(quick):
        backend.open(ref, ctx=soon())
        quick.until(lambda: ended_job(quick, backend))
        settled(quick, ref)
        quick.until(lambda: quick.get(CONFIG_MAPS, "job-1-notes"))
    backend.stop_job("job", ctx=soon())
    other = ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", "another")
    found = backend.ceased(other, ctx=soon())
    assert (found.ceased, kinds(found)) == (False, ["not-shown"])


def forgotten(world: World) -> None:
    """Nothing of the TrainJob is left in the API, while its containers run on, on nodes that went silent."""
    for node in ("node-0", "node-1"):
        world.cluster.lose_node(node)
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE)

    def gone() -> bool:
        for pod in world.names(PODS):
            world.cluster.delete(PODS, pod, NAMESPACE, grace=0)
        return not world.left()

    world.until(gone)


@pytest.mark.parametrize(
    ("resource", "name"),
    [(TRAINING_RUNTIMES, "job-1"), (JOB_SETS, "job-1"), (JOBS, "job-1-node-0")],
)
def test_the_next_trainjob_of_its_name_says_nothing_of_an_object_that_is_gone(
    world: World, resource: Any, name: str
) -> None:
    backend = world.backend()
    backend.open(start(backend), ctx=soon())
    world.running()
    found = world.get(resource, name)
    assert found is not None
    old = ObjectRef("gpu", NAMESPACE, resource.kind, name, found["metadata"]["uid"])
    forgotten(world)
    for controller in ("jobset", "trainer"):
        world.cluster.take_down(controller)
    world.cluster.admission.set_down(False)
    start(backend)
    if resource is TRAINING_RUNTIMES:
        with refused("read.other-uid"):
            backend.ceased(old, ctx=soon())
    else:
        said = backend.ceased(old, ctx=soon())
        assert (said.ceased, [each.pod for each in said.evidence]) == (False, ["unobserved"])


def test_an_object_below_an_earlier_trainjob_is_not_judged_by_the_next_one(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.calm()
    jobset = world.get(JOB_SETS, "job-1")
    assert jobset is not None
    owner = {**jobset["metadata"]["ownerReferences"][0], "uid": "another"}
    world.cluster.take_down("kube-controller-manager")
    world.cluster.take_down("trainer")
    world.cluster.patch(JOB_SETS, "job-1", {"metadata": {"ownerReferences": [owner]}}, NAMESPACE)
    below = ObjectRef("gpu", NAMESPACE, "JobSet", "job-1", jobset["metadata"]["uid"])
    assert backend.ceased(ref, ctx=soon()).ceased
    said = backend.ceased(below, ctx=soon())
    assert (said.ceased, [each.pod for each in said.evidence]) == (False, ["unobserved"])


def test_a_job_of_a_gated_trainjob_was_never_opened(world: World) -> None:
    backend = world.backend()
    start(backend)
    job = world.until(lambda: world.get(JOBS, "job-1-node-0"))
    found = backend.ceased(ObjectRef("gpu", NAMESPACE, "Job", "job-1-node-0", job["metadata"]["uid"]), ctx=soon())
    assert (found.ceased, kinds(found)) == (True, ["never-opened"])


def test_a_job_without_its_jobset_is_not_shown(world: World) -> None:
    backend = world.backend()
    start(backend)
    world.until(lambda: world.get(JOBS, "job-1-node-0"))
    world.calm()
    job = world.get(JOBS, "job-1-node-0")
    assert job is not None
    world.cluster.take_down("kube-controller-manager")
    world.cluster.take_down("trainer")
    world.cluster.delete(JOB_SETS, "job-1", NAMESPACE)
    found = backend.ceased(ObjectRef("gpu", NAMESPACE, "Job", "job-1-node-0", job["metadata"]["uid"]), ctx=soon())
    assert (found.ceased, [each.pod for each in found.evidence]) == (False, ["unobserved"])


def test_a_copy_without_an_owner_is_not_shown(world: World) -> None:
    backend = world.backend()
    start(backend)
    world.cluster.patch(TRAINING_RUNTIMES, "job-1", {"metadata": {"ownerReferences": None}}, NAMESPACE)
    copy = world.get(TRAINING_RUNTIMES, "job-1")
    assert copy is not None
    ref = ObjectRef("gpu", NAMESPACE, "TrainingRuntime", "job-1", copy["metadata"]["uid"])
    found = backend.ceased(ref, ctx=soon())
    assert (found.ceased, [each.pod for each in found.evidence]) == (False, ["unobserved"])


def test_the_name_of_a_job_that_is_gone_does_not_tell_its_trainjob(world: World) -> None:
    backend = world.backend()
    backend.start("job-1", 5, spec(), ctx=soon())
    found = backend.ceased(ObjectRef("gpu", NAMESPACE, "Job", "job-1-5-x-0", "uid"), ctx=soon())
    assert (found.ceased, [each.pod for each in found.evidence]) == (False, ["unobserved"])


def test_notes_on_an_earlier_instance_do_not_vouch_for_an_object_known_by_name_only(quick: World) -> None:
    backend = quick.backend()
    ref = start(backend)
    with watched(quick):
        backend.open(ref, ctx=soon())
        quick.until(lambda: ended_job(quick, backend))
        settled(quick, ref)
    quick.until(lambda: quick.get(CONFIG_MAPS, "job-1-notes"))
    backend.stop_job("job", ctx=soon())
    found = backend.ceased(ObjectRef("gpu", NAMESPACE, "JobSet", "job-1", "another"), ctx=soon())
    assert (found.ceased, [each.pod for each in found.evidence]) == (False, ["unobserved"])


def test_notes_that_cannot_be_read_are_none(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.running()
    world.wire.lose_request("GET", r"/configmaps/")
    assert not backend.ceased(ref, ctx=soon()).ceased


def test_what_cannot_be_read_is_said(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.wire.lose_request("GET", r"/pods\?")
    with refused("request.no-answer"):
        backend.ceased(ref, ctx=soon())


def test_the_pods_are_read_after_everything_that_could_make_one(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.wire.seen.clear()
    backend.ceased(ref, ctx=soon())
    assert [path.split("/")[-2] if "job-1" in path else path.split("/")[-1] for path in world.wire.calls()] == [
        "trainjobs",
        "jobsets",
        "jobs",
        "configmaps",
        "pods",
    ]


def test_ceased_passes_the_stages_in_order(world: World) -> None:
    backend = world.backend()
    ref = ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", "uid")
    with refused("input.reference-other-backend"):
        backend.ceased(ObjectRef("other", NAMESPACE, "TrainJob", "job-1", "uid"), ctx=ended())
    with refused("support.namespace"):
        backend.ceased(ObjectRef("gpu", "elsewhere", "TrainJob", "job-1", "uid"), ctx=ended())
    with refused("context.deadline"):
        backend.ceased(ref, ctx=ended())
    with refused("context.cancelled"):
        backend.ceased(ref, ctx=cancelled())
    assert world.requests() == []


def test_ceased_needs_the_permission_for_nodes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = world.backend()
    monkeypatch.setattr(backend._adapter, "permissions", Permissions(log=True, nodes=False))
    with refused("support.ceased-capability"):
        backend.ceased(ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", "uid"), ctx=soon())


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("TrainJob", "job-1", "job-1"),
        ("Job", "job-1-node-0", "job-1"),
        ("Job", "job-1-dataset-initializer-0", "job-1"),
        ("Pod", "job-1-node-0-0-abcde", "job-1"),
        ("Pod", "job-1-dataset-initializer-0-0-abcde", "job-1"),
        ("Pod", "by-hand", "by"),
    ],
)
def test_an_objects_attempt_is_told_from_its_name(kind: str, name: str, expected: str) -> None:
    assert _guessed_name(ObjectRef("gpu", NAMESPACE, kind, name, "uid")) == expected
