"""StopJob: everything of a job is seen gone, or what is left is named with the gravest reason."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded import Script
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.operations.call import Call
from dispatch_kubeflow.backend.requests import Failure, Reply, Request
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.machine import Context, ErrOutcomeUnknown

from .wire import Seen
from .world import COPY, NAMESPACE, T_JOB, T_JOBS, World, cancelled, ended, refused, soon, start

STOPPING = "dispatch_kubeflow.backend.operations.stop_job"


@pytest.fixture
def stuck(tmp_path: pathlib.Path) -> Iterator[World]:
    """A cluster whose containers can't be stopped."""
    made = World(tmp_path, Script(stop_after=None, hang=True))
    yield made
    made.close()


def running(world: World, attempt: int = 1) -> Backend:
    backend = world.backends[0] if world.backends else world.backend()
    backend.open(start(backend, attempt=attempt), ctx=soon())
    world.running(f"job-{attempt}")
    world.wire.seen.clear()
    return backend


def orphaned(world: World) -> Backend:
    """A JobSet whose TrainJob was deleted with its dependents orphaned; its Job and pods run on."""
    backend = running(world)
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE, propagation="Orphan")
    for resource in (JOB_SETS, TRAINING_RUNTIMES, CONFIG_MAPS):
        name = "job-1-runtime-snapshot" if resource is CONFIG_MAPS else "job-1"
        world.until(lambda r=resource, n=name: "ownerReferences" not in world.get(r, n)["metadata"])  # type: ignore[misc]
    return backend


def deletes(world: World) -> list[Seen]:
    return [each for each in world.wire.seen if each.method == "DELETE"]


def test_a_running_job_is_deleted_and_seen_gone(world: World) -> None:
    backend = running(world)
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}
    assert [each.path.rpartition("/")[2] for each in deletes(world)] == ["job-1"]


def test_a_job_that_is_not_there_is_a_success(world: World) -> None:
    backend = world.backend()
    backend.stop_job("job", ctx=soon())
    listed = [each.rpartition("/")[2].partition("?")[0] for each in world.requests()]
    assert listed == ["trainingruntimes", "pods", "jobs", "jobsets", "trainjobs", "jobsets", "jobs", "pods"]


def test_every_attempt_is_stopped(world: World) -> None:
    backend = running(world)
    start(backend, attempt=2)
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}


def test_another_job_is_left_alone(world: World) -> None:
    backend = running(world)
    start(backend, job="other")
    backend.stop_job("job", ctx=soon())
    assert world.names(TRAIN_JOBS) == ["other-1"]


def test_orphans_are_deleted_with_their_copy_and_snapshot(world: World) -> None:
    backend = orphaned(world)
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}
    assert all(set(each.body["preconditions"]) == {"uid", "resourceVersion"} for each in deletes(world))


def test_a_copy_alone_is_deleted(world: World) -> None:
    backend = world.backend()
    world.wire.lose_request("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    backend._adapter.in_flight.of_job("job", frozenset({each.nonce for each in _marks(backend)}))
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}


def _marks(backend: Backend) -> list[object]:
    return list(backend._adapter.in_flight._marks.values())


def test_an_attempt_in_flight_is_waited_for_and_stopped_when_it_comes(world: World) -> None:
    backend = world.backend()
    world.wire.lose_request("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    (mark,) = _marks(backend)
    with refused("stop.context-ended") as caught:
        backend.stop_job("job", ctx=soon(0.7))
    assert caught[0].details["left"] == ("job-1 (in flight)",)
    backend._adapter.in_flight.answered(mark)  # type: ignore[arg-type]
    backend.stop_job("job", ctx=soon())


def test_an_attempt_that_appears_later_is_not_its_business(world: World) -> None:
    backend = running(world)

    def start_next(_: Seen) -> None:
        threading.Thread(target=start, args=(other,), kwargs={"attempt": 2}).start()
        world.until(lambda: world.get(TRAIN_JOBS, "job-2"))

    other = world.backend()
    world.wire.on("DELETE", T_JOB, before=start_next)
    backend.stop_job("job", ctx=soon())
    assert world.names(TRAIN_JOBS) == ["job-2"]


def job_alone(world: World) -> tuple[Backend, dict[str, Any]]:
    """A Job of a job of which nothing else is left, in a cluster that does nothing more; and a pod as it made them."""
    backend = running(world)
    (template, *_) = world.cluster.list(PODS, NAMESPACE)
    for resource in (TRAIN_JOBS, JOB_SETS):
        world.cluster.delete(resource, "job-1", NAMESPACE, propagation="Orphan")
        world.until(lambda kind=resource: not world.names(kind))  # type: ignore[misc]
    world.cluster.take_down("kube-controller-manager")
    for kind in (TRAINING_RUNTIMES, CONFIG_MAPS):
        for name in world.names(kind):
            world.cluster.delete(kind, name, NAMESPACE)
    for name in world.names(PODS):
        world.cluster.patch(PODS, name, {"metadata": {"finalizers": None}}, NAMESPACE)
        world.cluster.delete(PODS, name, NAMESPACE, grace=0)
    assert world.left() == {"Job": ["job-1-node-0"]}
    return backend, template


def test_a_pod_that_its_job_made_and_left_behind_between_two_lists_is_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{STOPPING}.COLLECTED_WITHIN", 0.0)
    backend, template = job_alone(world)
    kept = {key: template["metadata"][key] for key in ("labels", "ownerReferences")}
    made = {"metadata": {"name": "job-1-node-0-0-late1", "namespace": NAMESPACE, **kept}, "spec": template["spec"]}

    def make_a_pod_and_go(_: Seen) -> None:
        world.cluster.create(PODS, made, NAMESPACE)
        world.cluster.delete(JOBS, "job-1-node-0", NAMESPACE, propagation="Background")

    world.wire.on("GET", r"/pods\?", after=make_a_pod_and_go)
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}


def test_what_is_in_flight_is_named_beside_what_is_left(world: World) -> None:
    backend = world.backend()
    world.wire.lose_request("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    world.cluster.delete(TRAINING_RUNTIMES, "job-1", NAMESPACE)
    start(backend, attempt=2)
    world.cluster.patch(TRAIN_JOBS, "job-2", {"metadata": {"finalizers": ["example.com/keep"]}}, NAMESPACE)
    with refused("stop.context-ended") as caught:
        backend.stop_job("job", ctx=soon(1.0))
    left = caught[0].details["left"]
    assert left[-1] == "job-1 (in flight)"
    assert "/TrainJob/job-2?" in left[0]


def test_pods_that_do_not_end_are_waited_for_until_the_context_ends(stuck: World) -> None:
    backend = running(stuck)
    with refused("stop.context-ended") as caught:
        backend.stop_job("job", ctx=soon(1.0))
    assert sorted(each.split("?")[0].rpartition("/")[0].rpartition("/")[2] for each in caught[0].details["left"]) == [
        "Pod",
        "Pod",
    ]


def test_a_cancellation_while_it_waits_is_the_same_row(stuck: World) -> None:
    backend = running(stuck)
    ctx = Context.background()
    threading.Timer(0.5, ctx.cancel).start()
    with refused("stop.context-ended"):
        backend.stop_job("job", ctx=ctx)


def test_a_list_that_fails_ends_it_with_that_lists_row(world: World) -> None:
    backend = running(world)
    world.wire.refuse("GET", r"/pods\?", 403, "Forbidden", nth=2)
    with refused("request.forbidden"):
        backend.stop_job("job", ctx=soon())
    assert len(deletes(world)) == 1


def test_the_first_list_failing_stops_nothing(world: World) -> None:
    backend = running(world)
    world.wire.lose_request("GET", r"/trainjobs\?")
    with refused("request.no-answer"):
        backend.stop_job("job", ctx=soon())
    assert deletes(world) == []


def test_a_delete_without_an_answer_is_settled_by_the_next_lists(world: World) -> None:
    backend = running(world)
    world.wire.lose_answer("DELETE", T_JOB)
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}
    assert len(deletes(world)) == 1


def test_deletes_that_never_have_an_answer_are_unknown_and_name_what_is_left(world: World) -> None:
    backend = running(world)
    world.wire.lose_request("DELETE", T_JOB, times=99)
    with refused("stop.left-unknown") as caught:
        backend.stop_job("job", ctx=soon())
    left = caught[0].details["left"]
    assert any("/TrainJob/job-1?" in each for each in left)
    assert any("/Pod/" in each for each in left)
    assert any("/TrainJob/job-1?" in each for each in caught[0].details["failures"])
    assert len(deletes(world)) == 3


def test_what_may_not_be_deleted_is_not_waited_for(world: World) -> None:
    backend = running(world)
    world.wire.refuse("DELETE", T_JOB, 403, "Forbidden", times=99)
    with refused("stop.left-denied") as caught:
        backend.stop_job("job", ctx=soon())
    assert len(deletes(world)) == 1
    assert any("/TrainJob/job-1?" in each for each in caught[0].details["left"])


def test_what_can_be_stopped_is_stopped_before_the_refusal_is_reported(world: World) -> None:
    backend = running(world)
    start(backend, attempt=2)
    world.wire.refuse("DELETE", r"/trainjobs/job-1$", 403, "Forbidden", times=99)
    with refused("stop.left-denied"):
        backend.stop_job("job", ctx=soon())
    assert world.names(TRAIN_JOBS) == ["job-1"]
    assert world.names(JOB_SETS) == ["job-1"]


def test_an_orphan_that_may_not_be_deleted_has_its_own_row(world: World) -> None:
    backend = orphaned(world)
    world.wire.refuse("DELETE", r"/jobsets/", 403, "Forbidden", times=99)
    with refused("stop.orphan-denied", status=403) as caught:
        backend.stop_job("job", ctx=soon())
    assert any("/JobSet/job-1?" in each for each in caught[0].details["left"])
    assert world.names(TRAINING_RUNTIMES) == []


def test_a_delete_that_is_refused_otherwise_is_rejected(world: World) -> None:
    backend = running(world)
    world.wire.refuse("DELETE", T_JOB, 422, "Invalid", times=99)
    with refused("stop.left-refused"):
        backend.stop_job("job", ctx=soon())
    assert len(deletes(world)) == 1


def test_what_keeps_changing_is_left_after_eight_tries(world: World) -> None:
    backend = running(world)
    world.wire.refuse("DELETE", T_JOB, 409, "Conflict", times=99)
    with refused("stop.left-refused"):
        backend.stop_job("job", ctx=soon())
    assert len(deletes(world)) == 8


def test_a_conflict_is_read_again_and_then_deleted(world: World) -> None:
    backend = running(world)
    world.wire.refuse("DELETE", T_JOB, 409, "Conflict", times=2)
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}


def test_the_gravest_of_what_is_left_is_raised(world: World) -> None:
    backend = running(world)
    start(backend, attempt=2)
    world.wire.refuse("DELETE", r"/trainjobs/job-1$", 403, "Forbidden", times=99)
    world.wire.lose_request("DELETE", r"/trainjobs/job-2$", times=99)
    with refused("stop.left-unknown") as caught:
        backend.stop_job("job", ctx=soon())
    assert len(caught[0].details["failures"]) == 2


def test_an_unanswered_delete_is_graver_than_the_end_of_the_context(world: World) -> None:
    backend = running(world)
    backend.close()
    world.wire.lose_request("DELETE", T_JOB, times=99)
    slow = world.backend(stop_poll=5.0)
    with refused("stop.left-unknown"):
        slow.stop_job("job", ctx=soon(0.7))


def test_what_is_collecting_is_left_to_garbage_collection(world: World) -> None:
    backend = running(world)
    world.cluster.take_down("kube-controller-manager")
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE)
    with refused("stop.context-ended"):
        backend.stop_job("job", ctx=soon(0.7))
    assert deletes(world) == []


def test_what_is_collecting_for_too_long_is_deleted_here(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{STOPPING}.COLLECTED_WITHIN", 0.2)
    backend = running(world)
    world.cluster.take_down("kube-controller-manager")
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE)
    with refused("stop.context-ended"):
        backend.stop_job("job", ctx=soon(2.0))
    assert {"JobSet", "TrainingRuntime"} <= {
        {"jobsets": "JobSet", "trainingruntimes": "TrainingRuntime"}.get(each.path.split("/")[-2], "")
        for each in deletes(world)
    }
    assert world.names(JOB_SETS) == []


def test_a_snapshot_that_may_not_be_read_is_not_waited_for(world: World) -> None:
    backend = running(world)
    world.wire.refuse("GET", r"/configmaps/", 403, "Forbidden", times=99)
    backend.stop_job("job", ctx=soon())
    assert world.names(PODS) == []


def test_a_snapshot_without_an_answer_ends_it(world: World) -> None:
    backend = running(world)
    world.wire.lose_request("GET", r"/configmaps/")
    with refused("request.no-answer"):
        backend.stop_job("job", ctx=soon())


def test_a_copy_that_may_not_be_deleted_is_left(world: World) -> None:
    backend = orphaned(world)
    world.wire.refuse("DELETE", COPY, 403, "Forbidden", times=99)
    with refused("stop.orphan-denied"):
        backend.stop_job("job", ctx=soon())
    assert world.names(JOBS) == []


def test_stop_job_passes_the_stages_in_order(world: World) -> None:
    backend = world.backend()
    with refused("input.job-id"):
        backend.stop_job("No_Job", ctx=ended())
    with refused("context.deadline"):
        backend.stop_job("job", ctx=ended())
    with refused("context.cancelled"):
        backend.stop_job("job", ctx=cancelled())
    with refused("backend.read-only"):
        world.backend(read_only=True).stop_job("job", ctx=soon())
    backend.close()
    with refused("backend.closed"):
        backend.stop_job("job", ctx=soon())
    assert deletes(world) == []


def test_a_list_that_the_end_of_the_context_cut_is_the_end_of_the_context(stuck: World) -> None:
    backend = running(stuck)
    stuck.wire.hang("GET", r"/pods\?", nth=2)
    with refused("stop.context-ended") as caught:
        backend.stop_job("job", ctx=soon(1.0))
    assert caught[0].details["left"]


def test_a_snapshot_read_that_the_end_of_the_context_cut_is_the_end_of_the_context(world: World) -> None:
    backend = running(world)
    world.wire.hang("GET", r"/configmaps/job-1-runtime-snapshot")
    with refused("stop.context-ended"):
        backend.stop_job("job", ctx=soon(1.5))


def test_deletes_that_cannot_be_sent_are_unreachable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = running(world)
    unsent = _unsent()
    monkeypatch.setattr(Call, "delete", lambda *_, **__: Reply(unsent[0], failure=unsent[1]))
    with refused("stop.left-unreachable"):
        backend.stop_job("job", ctx=soon())


def test_a_delete_that_may_have_been_sent_is_graver_than_a_later_one_that_was_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = running(world)
    unsent = _unsent()
    lost = Failure("lost", sent=True, details=unsent[1].details, facts={**unsent[1].facts, "result": "lost"})
    answers = iter([lost])
    monkeypatch.setattr(Call, "delete", lambda *_, **__: Reply(unsent[0], failure=next(answers, unsent[1])))
    with refused("stop.left-unknown"):
        backend.stop_job("job", ctx=soon())


def test_what_went_by_itself_before_its_delete_is_gone(world: World) -> None:
    backend = running(world)
    world.wire.on("DELETE", T_JOB, before=lambda _: world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE) and None)
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}


def relabelled(world: World, resource: Resource, name: str = "job-1", **labels: str | None) -> None:
    """Somebody edits labels of ours by hand."""
    keys = {f"dispatch-kubeflow.io/{key}": value for key, value in labels.items()}
    world.cluster.patch(resource, name, {"metadata": {"labels": keys}}, NAMESPACE)


@pytest.mark.parametrize("labels", [{"backend": None}, {"backend": "other"}, {"job": "other"}])
def test_what_a_relabelled_trainjob_would_make_anew_is_left_and_it_is_named(
    world: World, labels: dict[str, str | None]
) -> None:
    backend = running(world)
    start(backend, attempt=2)
    world.wire.seen.clear()
    relabelled(world, TRAIN_JOBS, **labels)
    uid = world.trainjob()["metadata"]["uid"]
    with refused("stop.left-kept", instead=f"/TrainJob/job-1?uid={uid}") as caught:
        backend.stop_job("job", ctx=soon())
    left = [each.split("/")[-2] for each in caught[0].details["left"]]
    assert sorted(set(left)) == ["Job", "JobSet", "Pod", "TrainingRuntime"]
    assert all("would make it anew" in each for each in caught[0].details["failures"].values())
    assert [each.path.rpartition("/")[2] for each in deletes(world)] == ["job-2"]
    assert len(world.running()) == 2


def test_put_right_by_hand_a_relabelled_trainjob_is_stopped(world: World) -> None:
    backend = running(world)
    relabelled(world, TRAIN_JOBS, backend=None)
    with refused("stop.left-kept"):
        backend.stop_job("job", ctx=soon())
    relabelled(world, TRAIN_JOBS, backend="gpu")
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}


def test_what_a_relabelled_jobset_would_make_anew_is_left_and_it_is_named(world: World) -> None:
    backend = orphaned(world)
    relabelled(world, JOB_SETS, backend=None)
    with refused("stop.left-kept", instead="/JobSet/job-1?uid="):
        backend.stop_job("job", ctx=soon())
    assert len(world.running()) == 2
    assert world.names(TRAINING_RUNTIMES) == []


def test_what_a_trainjob_keeps_that_is_of_a_later_attempt_by_now_is_left(world: World) -> None:
    backend = running(world)
    world.wire.lose_request("DELETE", T_JOB).before = lambda _: relabelled(world, TRAIN_JOBS, attempt="7")
    with refused("stop.left-kept", instead="/TrainJob/job-1?uid="):
        backend.stop_job("job", ctx=soon())


def test_what_is_kept_is_said_after_what_is_graver(world: World) -> None:
    backend = running(world)
    start(backend, attempt=2)
    relabelled(world, TRAIN_JOBS, backend=None)
    world.wire.refuse("DELETE", T_JOB, 403, "Forbidden", times=99)
    with refused("stop.left-denied") as caught:
        backend.stop_job("job", ctx=soon())
    said = {"would make it anew" in each for each in caught[0].details["failures"].values()}
    assert said == {True, False}


def test_a_trainjob_that_comes_after_its_list_is_stopped_in_the_next_round(world: World) -> None:
    """Its JobSet is in the lists already, for somebody else started it again meanwhile."""
    backend = running(world)
    relabelled(world, TRAIN_JOBS, backend=None)
    world.wire.on("GET", T_JOB + "$", before=lambda _: relabelled(world, TRAIN_JOBS, backend="gpu"))
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}


def test_an_owner_that_cannot_be_read_ends_it(world: World) -> None:
    backend = orphaned(world)
    world.wire.lose_request("GET", T_JOB + "$")
    with refused("request.no-answer"):
        backend.stop_job("job", ctx=soon())
    assert deletes(world) == []


def test_a_read_of_an_owner_that_the_end_of_the_context_cut_is_the_end_of_the_context(world: World) -> None:
    backend = orphaned(world)
    world.wire.hang("GET", T_JOB + "$")
    with refused("stop.context-ended") as caught:
        backend.stop_job("job", ctx=soon(0.7))
    assert any("/JobSet/job-1?" in each for each in caught[0].details["left"])


def test_a_read_of_what_might_own_the_snapshot_that_the_end_of_the_context_cut_names_the_snapshot(world: World) -> None:
    backend = orphaned(world)
    world.wire.on("GET", r"/configmaps/", after=lambda _: world.wire.hang("GET", T_JOB + "$") and None)
    with refused("stop.context-ended") as caught:
        backend.stop_job("job", ctx=soon(2.0))
    assert any("/ConfigMap/job-1-runtime-snapshot?" in each for each in caught[0].details["left"])


@pytest.mark.parametrize("opened", [False, True])
def test_a_foreground_deletion_that_does_not_end_is_ended(world: World, opened: bool) -> None:
    backend = running(world) if opened else world.backend()
    if not opened:
        start(backend)
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE, propagation="Foreground")
    world.until(lambda: not world.names(TRAINING_RUNTIMES))
    assert world.trainjob()["metadata"]["finalizers"] == ["foregroundDeletion"]
    backend.stop_job("job", ctx=soon())
    assert world.left() == {}


def test_a_stop_ends_a_foreground_deletion_too(world: World) -> None:
    backend = running(world)
    ref = backend.find("job", ctx=soon()).objects[0].ref
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE, propagation="Foreground")
    world.until(lambda: not world.names(TRAINING_RUNTIMES))
    backend.stop(ref, ctx=soon())
    world.until(lambda: world.left() == {})


def _unsent() -> tuple[Request, Failure]:
    request = Request("DELETE", TRAIN_JOBS, NAMESPACE, "job-1", intent="write", expect="delete")
    facts = {"channel": "api", "verb": "write", "reason": "other", "admission": "none", "absence": "other"}
    details = {"method": "DELETE", "target": "TrainJob team-a/job-1"}
    return request, Failure("unsent", sent=False, details=details, facts={**facts, "result": "unsent"})
