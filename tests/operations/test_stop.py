"""Stop: one object by its UID; what is gone is a success, what has a living owner is refused."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dispatch_kubeflow.backend import ObjectRef
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.machine import ErrOutcomeUnknown, SystemClock
from dispatch_kubeflow.machine.rules import rulebook

from .wire import Seen
from .world import COPY, NAMESPACE, T_JOB, T_JOBS, World, cancelled, ended, refused, soon, start


def ref(world: World, resource: Resource, name: str = "job-1") -> ObjectRef:
    found = world.get(resource, name)
    assert found is not None, f"no {resource.kind} {name}"
    return ObjectRef("gpu", NAMESPACE, resource.kind, name, found["metadata"]["uid"])


def running(world: World) -> tuple[Backend, ObjectRef]:
    backend = world.backend()
    target = start(backend)
    backend.open(target, ctx=soon())
    world.running()
    world.wire.seen.clear()
    return backend, target


def orphaned(world: World) -> Backend:
    """A JobSet whose TrainJob was deleted with its dependents orphaned; its Job and pods run on."""
    backend, _ = running(world)
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE, propagation="Orphan")
    world.until(lambda: not (world.get(JOB_SETS, "job-1") or {"metadata": {"ownerReferences": 1}})["metadata"].get(
        "ownerReferences"))  # fmt: skip
    return backend


def deletes(world: World) -> list[Seen]:
    return [each for each in world.wire.seen if each.method == "DELETE"]


# A TrainJob.


def test_a_running_trainjob_is_deleted_by_uid_in_the_background(world: World) -> None:
    backend, target = running(world)
    backend.stop(target, ctx=soon())
    (sent,) = deletes(world)
    assert sent.body["preconditions"] == {"uid": target.uid}
    assert sent.body["propagationPolicy"] == "Background"
    world.until(lambda: not world.left(), "something outlived its TrainJob")


def test_a_trainjob_that_was_never_opened_is_deleted_by_its_version_too(world: World) -> None:
    backend = world.backend()
    target = start(backend)
    backend.stop(target, ctx=soon())
    # More than one where Trainer wrote a status in between.
    assert all(set(sent.body["preconditions"]) == {"uid", "resourceVersion"} for sent in deletes(world))
    assert world.get(TRAIN_JOBS, "job-1") is None


def test_a_never_opened_trainjob_that_changes_is_read_again(world: World) -> None:
    backend = world.backend()
    target = start(backend)
    count = iter(range(99))
    world.wire.on("DELETE", T_JOB, before=lambda _: world.annotate("job-1", note=str(next(count))), times=2)
    backend.stop(target, ctx=soon())
    assert len(deletes(world)) >= 3
    assert world.get(TRAIN_JOBS, "job-1") is None


def test_a_trainjob_opened_meanwhile_is_deleted_by_uid_alone(world: World) -> None:
    backend = world.backend()
    target = start(backend)
    other = world.backend()
    world.wire.on("DELETE", T_JOB, before=lambda _: other.open(target, ctx=soon()))
    backend.stop(target, ctx=soon())
    assert set(deletes(world)[-1].body["preconditions"]) == {"uid"}


def test_a_never_opened_trainjob_that_keeps_changing_is_a_conflict(world: World) -> None:
    backend = world.backend()
    target = start(backend)
    count = iter(range(99))
    world.wire.on("DELETE", T_JOB, before=lambda _: world.annotate("job-1", note=str(next(count))), times=99)
    with refused("stop.conflict", status=409):
        backend.stop(target, ctx=soon())
    assert len(deletes(world)) == 8
    assert world.get(TRAIN_JOBS, "job-1") is not None


def test_an_unowned_copy_goes_with_its_trainjob(world: World) -> None:
    backend = world.backend()
    world.wire.lose_answer("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    (found,) = backend.find("job", ctx=soon()).objects
    assert not world.get(TRAINING_RUNTIMES, "job-1")["metadata"].get("ownerReferences")  # type: ignore[index]
    backend.stop(found.ref, ctx=soon())
    assert world.get(TRAINING_RUNTIMES, "job-1") is None


def test_an_unowned_copy_that_is_used_anew_meanwhile_stays(world: World) -> None:
    backend = world.backend()
    world.wire.lose_answer("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    (found,) = backend.find("job", ctx=soon()).objects
    patch = {"metadata": {"annotations": {"dispatch-kubeflow.io/nonce": "another"}}}
    world.wire.on(
        "DELETE", COPY, before=lambda _: world.cluster.patch(TRAINING_RUNTIMES, "job-1", patch, NAMESPACE) and None
    )
    backend.stop(found.ref, ctx=soon())
    assert world.get(TRAINING_RUNTIMES, "job-1") is not None


def test_an_unowned_copy_whose_delete_is_refused_is_said(world: World) -> None:
    backend = world.backend()
    world.wire.lose_answer("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    (found,) = backend.find("job", ctx=soon()).objects
    world.wire.refuse("DELETE", COPY, 403, "Forbidden")
    with refused("request.forbidden"):
        backend.stop(found.ref, ctx=soon())
    assert world.get(TRAIN_JOBS, "job-1") is None


def unowned_copy(world: World, backend: Backend) -> ObjectRef:
    """A TrainJob whose copy no Stop could delete, and that is gone; its reference."""
    world.wire.lose_answer("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    (found,) = backend.find("job", ctx=soon()).objects
    world.wire.refuse("DELETE", COPY, 403, "Forbidden")
    with refused("request.forbidden"):
        backend.stop(found.ref, ctx=soon())
    return found.ref


class Later(SystemClock):
    """A clock on which every copy is old."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


def test_a_repeated_stop_deletes_the_copy_that_the_first_one_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = world.backend()
    target = unowned_copy(world, backend)
    monkeypatch.setattr(backend._adapter, "clock", Later())
    backend.stop(target, ctx=soon())
    assert world.get(TRAINING_RUNTIMES, "job-1") is None


def test_a_young_copy_of_a_trainjob_that_is_gone_may_be_anothers_start(world: World) -> None:
    backend = world.backend()
    target = unowned_copy(world, backend)
    backend.stop(target, ctx=soon())
    assert world.get(TRAINING_RUNTIMES, "job-1") is not None


@pytest.mark.parametrize("label", ["backend", "job", "attempt"])
def test_a_copy_of_another_identity_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch, label: str) -> None:
    backend = world.backend()
    target = unowned_copy(world, backend)
    monkeypatch.setattr(backend._adapter, "clock", Later())
    labels = {"metadata": {"labels": {f"dispatch-kubeflow.io/{label}": "7"}}}
    world.cluster.patch(TRAINING_RUNTIMES, "job-1", labels, NAMESPACE)
    backend.stop(target, ctx=soon())
    assert world.get(TRAINING_RUNTIMES, "job-1") is not None


@pytest.mark.rule("stop.deleted")
def test_a_trainjob_that_a_finalizer_keeps_is_not_said_to_be_gone(world: World) -> None:
    backend, target = running(world)
    world.cluster.patch(TRAIN_JOBS, "job-1", {"metadata": {"finalizers": ["example.com/keep"]}}, NAMESPACE)
    backend.stop(target, ctx=soon())
    assert world.trainjob()["metadata"]["deletionTimestamp"]
    rule = rulebook().decide("stop", operation="stop", mode="plain", finding="deleted")
    assert rule.concludes == "deletion-begun"


@pytest.mark.rule("stop.gone")
@pytest.mark.parametrize("uid", ["0000-gone"])
def test_a_trainjob_that_is_gone_is_a_success(world: World, uid: str) -> None:
    backend = world.backend()
    backend.stop(ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", uid), ctx=soon())
    assert deletes(world) == []


@pytest.mark.rule("stop.other-uid")
def test_a_name_that_is_anothers_is_a_success_and_leaves_it_alone(world: World) -> None:
    backend = world.backend()
    target = start(backend)
    backend.stop(ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", "another-uid"), ctx=soon())
    assert deletes(world) == []
    assert world.trainjob()["metadata"]["uid"] == target.uid


def test_a_trainjob_gone_between_read_and_delete_is_a_success(world: World) -> None:
    backend, target = running(world)
    world.wire.on("DELETE", T_JOB, before=lambda _: world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE) and None)
    backend.stop(target, ctx=soon())


def test_a_name_taken_over_between_read_and_delete_is_a_success(world: World) -> None:
    backend, target = running(world)

    def take_over(_: Seen) -> None:
        old = world.trainjob()
        world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE)
        kept = {key: old["metadata"][key] for key in ("name", "labels", "annotations")}
        world.cluster.create(TRAIN_JOBS, {**old, "metadata": kept}, NAMESPACE)

    world.wire.on("DELETE", T_JOB, before=take_over)
    backend.stop(target, ctx=soon())
    assert world.trainjob()["metadata"]["uid"] != target.uid


def test_a_conflict_that_is_still_the_same_object_is_a_conflict(world: World) -> None:
    backend, target = running(world)
    world.wire.refuse("DELETE", T_JOB, 409, "Conflict")
    with refused("stop.conflict", status=409):
        backend.stop(target, ctx=soon())
    assert len(deletes(world)) == 1


@pytest.mark.parametrize(
    ("status", "reason", "rule"),
    [
        (401, "Unauthorized", "request.unauthenticated"),
        (403, "Forbidden", "request.forbidden"),
        (404, "NotFound", "request.path-not-found"),
        (422, "Invalid", "request.invalid"),
        (500, "InternalError", "request.outcome-unknown"),
    ],
)
def test_a_delete_that_fails_says_so(world: World, status: int, reason: str, rule: str) -> None:
    backend, target = running(world)
    world.wire.refuse("DELETE", T_JOB, status, reason)
    with refused(rule, status=status):
        backend.stop(target, ctx=soon())
    assert world.get(TRAIN_JOBS, "job-1") is not None


def test_a_delete_without_an_answer_is_unknown(world: World) -> None:
    backend, target = running(world)
    world.wire.lose_answer("DELETE", T_JOB)
    with refused("request.outcome-unknown"):
        backend.stop(target, ctx=soon())
    assert world.get(TRAIN_JOBS, "job-1") is None


def test_the_read_before_the_delete_without_an_answer_is_unreachable(world: World) -> None:
    backend, target = running(world)
    world.wire.lose_request("GET", T_JOB)
    with refused("request.no-answer"):
        backend.stop(target, ctx=soon())
    assert deletes(world) == []


def test_a_trainjob_of_another_version_is_unsupported(world: World) -> None:
    backend, target = running(world)
    body = {**world.trainjob(), "apiVersion": "trainer.kubeflow.org/v9"}
    world.wire.answer("GET", T_JOB, 200, body)
    with refused("request.wrong-kind"):
        backend.stop(target, ctx=soon())


# What is left without a TrainJob.


@pytest.mark.parametrize("resource", [JOB_SETS, JOBS, TRAINING_RUNTIMES])
def test_while_its_trainjob_exists_it_is_refused_and_says_what_to_stop_instead(
    world: World, resource: Resource
) -> None:
    backend, target = running(world)
    (name,) = world.names(resource)
    with refused("stop.owner-lives", instead=str(target)):
        backend.stop(ref(world, resource, name), ctx=soon())
    assert deletes(world) == []


def test_a_pod_of_a_trainjob_is_refused_and_names_the_trainjob(world: World) -> None:
    backend, target = running(world)
    with refused("stop.owner-lives", instead=str(target)):
        backend.stop(ref(world, PODS, world.names(PODS)[0]), ctx=soon())


def test_an_orphaned_jobset_is_deleted_by_uid_and_version_with_its_snapshot(world: World) -> None:
    backend = orphaned(world)
    world.until(lambda: world.get(CONFIG_MAPS, "job-1-runtime-snapshot"))
    target = ref(world, JOB_SETS)
    backend.stop(target, ctx=soon())
    sent = deletes(world)
    assert [each.path.rpartition("/")[2] for each in sent] == ["job-1", "job-1-runtime-snapshot"]
    assert all(set(each.body["preconditions"]) == {"uid", "resourceVersion"} for each in sent)
    assert world.get(JOB_SETS, "job-1") is None
    assert world.get(CONFIG_MAPS, "job-1-runtime-snapshot") is None


def test_an_orphaned_jobset_without_a_snapshot_is_deleted(world: World) -> None:
    backend = orphaned(world)
    world.cluster.delete(CONFIG_MAPS, "job-1-runtime-snapshot", NAMESPACE)
    backend.stop(ref(world, JOB_SETS), ctx=soon())
    assert world.get(JOB_SETS, "job-1") is None


def test_a_snapshot_that_may_not_be_read_does_not_spoil_the_stop(world: World) -> None:
    backend = orphaned(world)
    world.wire.refuse("GET", r"/configmaps/", 403, "Forbidden")
    backend.stop(ref(world, JOB_SETS), ctx=soon())


def test_a_snapshot_whose_delete_has_no_answer_is_said(world: World) -> None:
    backend = orphaned(world)
    world.wire.lose_request("DELETE", r"/configmaps/")
    with refused("request.outcome-unknown"):
        backend.stop(ref(world, JOB_SETS), ctx=soon())


def test_a_job_is_refused_while_its_jobset_lives(world: World) -> None:
    backend = orphaned(world)
    (name,) = world.names(JOBS)
    with refused("stop.owner-lives", instead=str(ref(world, JOB_SETS))):
        backend.stop(ref(world, JOBS, name), ctx=soon())


def test_a_pod_is_refused_while_its_job_lives_and_names_the_topmost(world: World) -> None:
    backend = orphaned(world)
    with refused("stop.owner-lives", instead=str(ref(world, JOB_SETS))):
        backend.stop(ref(world, PODS, world.names(PODS)[0]), ctx=soon())


def test_an_orphaned_job_and_then_its_orphaned_pod_are_deleted(world: World) -> None:
    backend = orphaned(world)
    world.cluster.delete(JOB_SETS, "job-1", NAMESPACE, propagation="Orphan")
    (name,) = world.names(JOBS)
    world.until(lambda: not world.get(JOBS, name)["metadata"].get("ownerReferences"))  # type: ignore[index]
    pod = ref(world, PODS, world.names(PODS)[0])
    with refused("stop.owner-lives", instead=str(ref(world, JOBS, name))):
        backend.stop(pod, ctx=soon())
    backend.stop(ref(world, JOBS, name), ctx=soon())
    world.until(lambda: not world.left().get("Pod"))


def test_a_pod_whose_job_is_gone_is_deleted(world: World) -> None:
    backend = orphaned(world)
    world.cluster.delete(JOB_SETS, "job-1", NAMESPACE, propagation="Orphan")
    world.cluster.delete(JOBS, world.names(JOBS)[0], NAMESPACE, propagation="Orphan")
    name = world.names(PODS)[0]
    world.until(lambda: not world.get(PODS, name)["metadata"].get("ownerReferences"))  # type: ignore[index]
    backend.stop(ref(world, PODS, name), ctx=soon())
    left = world.get(PODS, name)
    assert left is None or left["metadata"]["deletionTimestamp"]


def test_an_orphaned_copy_is_deleted(world: World) -> None:
    backend = world.backend()
    world.wire.lose_request("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    backend.stop(ref(world, TRAINING_RUNTIMES), ctx=soon())
    assert world.get(TRAINING_RUNTIMES, "job-1") is None


@pytest.mark.parametrize(("kind", "name"), [("JobSet", "job-1"), ("Pod", "job-1-node-0-0-abcde")])
def test_an_orphan_that_is_gone_or_anothers_is_a_success(world: World, kind: str, name: str) -> None:
    backend = orphaned(world)
    backend.stop(ObjectRef("gpu", NAMESPACE, kind, name, "another-uid"), ctx=soon())
    assert deletes(world) == []


def test_an_orphan_that_this_user_may_not_delete_is_unauthorized(world: World) -> None:
    backend = orphaned(world)
    world.wire.refuse("DELETE", r"/jobsets/", 403, "Forbidden")
    with refused("stop.orphan-denied", status=403):
        backend.stop(ref(world, JOB_SETS), ctx=soon())


def test_an_orphan_that_changes_meanwhile_is_a_conflict(world: World) -> None:
    backend = orphaned(world)
    patch = {"metadata": {"annotations": {"note": "x"}}}
    world.wire.on(
        "DELETE", r"/jobsets/", before=lambda _: world.cluster.patch(JOB_SETS, "job-1", patch, NAMESPACE) and None
    )
    with refused("stop.conflict"):
        backend.stop(ref(world, JOB_SETS), ctx=soon())


def test_an_orphan_that_goes_meanwhile_is_a_success(world: World) -> None:
    backend = orphaned(world)
    target = ref(world, JOB_SETS)
    world.wire.on("DELETE", r"/jobsets/", before=lambda _: world.cluster.delete(JOB_SETS, "job-1", NAMESPACE) and None)
    backend.stop(target, ctx=soon())


# Before anything is sent.


def test_stop_passes_the_stages_in_order(world: World) -> None:
    backend = world.backend()
    target = ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", "uid")
    with refused("input.reference-other-backend"):
        backend.stop(ObjectRef("other", NAMESPACE, "TrainJob", "job-1", "uid"), ctx=ended())
    with refused("support.namespace"):
        backend.stop(ObjectRef("gpu", "elsewhere", "TrainJob", "job-1", "uid"), ctx=ended())
    with refused("context.deadline"):
        backend.stop(target, ctx=ended())
    with refused("context.cancelled"):
        backend.stop(target, ctx=cancelled())
    with refused("backend.read-only"):
        world.backend(read_only=True).stop(target, ctx=soon())
    backend.close()
    with refused("backend.closed"):
        backend.stop(target, ctx=soon())
    assert deletes(world) == []


def test_a_reference_may_be_given_as_text(world: World) -> None:
    backend = world.backend()
    target = start(backend)
    backend.stop(str(target), ctx=soon())
    assert world.get(TRAIN_JOBS, "job-1") is None


def bare(world: World, owners: list[dict[str, str]]) -> None:
    """A Job with our labels that no JobSet stands behind; nothing collects it."""
    world.cluster.take_down("kube-controller-manager")
    (name,) = world.names(JOBS)
    job = world.get(JOBS, name)
    assert job is not None
    labels = {key: value for key, value in job["metadata"]["labels"].items() if key.startswith("dispatch-kubeflow")}
    template = {"spec": job["spec"]["template"]["spec"]}
    world.cluster.create(
        JOBS,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "bare", "labels": labels, "ownerReferences": owners},
            "spec": {"template": template, "suspend": True},
        },
        NAMESPACE,
    )


def test_a_job_that_nothing_stands_behind_is_deleted(world: World) -> None:
    backend, _ = running(world)
    bare(world, [])
    backend.stop(ref(world, JOBS, "bare"), ctx=soon())
    assert world.get(JOBS, "bare") is None


def test_a_job_whose_jobset_is_gone_is_deleted(world: World) -> None:
    backend, _ = running(world)
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "gone", "uid": "gone"}
    bare(world, [owner])
    backend.stop(ref(world, JOBS, "bare"), ctx=soon())
    assert world.get(JOBS, "bare") is None
