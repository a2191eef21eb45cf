"""Find: five lists in one order, and what they show of a job at every stage of its life."""

from __future__ import annotations

import pathlib

import pytest

from dispatch_kubeflow.backend.embedded import Script
from dispatch_kubeflow.backend.objects.found import Found
from dispatch_kubeflow.backend.requests.resources import JOB_SETS, JOBS, TRAIN_JOBS, TRAINING_RUNTIMES
from dispatch_kubeflow.machine import ErrOutcomeUnknown

from .wire import status_body
from .world import NAMESPACE, T_JOBS, World, cancelled, ended, refused, soon, start

LISTS = ["trainingruntimes", "pods", "jobs", "jobsets", "trainjobs"]


def shown(found: Found) -> list[tuple[str, str, str]]:
    return [(each.ref.kind, each.ref.name, each.state) for each in found.objects]


def test_find_makes_five_lists_with_trainjobs_last_and_nothing_else(world: World) -> None:
    backend = world.backend()
    start(backend)
    world.cluster.apiserver.requests.clear()
    backend.find("job", ctx=soon())
    assert [path.rpartition("/")[2] for path in world.requests()] == LISTS
    assert {each.method for each in world.cluster.requests} == {"GET"}


def test_find_asks_for_one_job_of_this_backend_alone(world: World) -> None:
    backend = world.backend()
    start(backend)
    start(backend, job="other")
    found = backend.find("job", ctx=soon())
    assert shown(found) == [("TrainJob", "job-1", "gated")]
    assert all(
        "dispatch-kubeflow.io%2Fbackend%3Dgpu%2Cdispatch-kubeflow.io%2Fjob%3Djob" in each.path
        for each in world.wire.seen[-5:]
    )


def test_nothing_of_a_job_is_an_empty_view(world: World) -> None:
    found = world.backend().find("job", ctx=soon())
    assert found == Found("job")


def test_a_started_job_is_gated_with_its_record(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    (seen,) = backend.find("job", ctx=soon()).objects
    assert (seen.ref, seen.state, seen.attempt) == (ref, "gated", 1)
    assert (seen.gate_lifted, seen.hold_register, seen.cause, seen.drift) == (False, None, None, ())


def test_a_running_job_is_opened_and_its_pods_are_counted(world: World) -> None:
    backend = world.backend()
    backend.open(start(backend), ctx=soon())
    world.running()
    (seen,) = backend.find("job", ctx=soon()).objects
    assert (seen.state, seen.gate_lifted, seen.pods.running, seen.pods.total) == ("opened", True, 2, 2)
    assert seen.cause is None


def test_a_held_job_shows_the_instance_in_force(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    backend.hold(ref, 3, ctx=soon())
    (seen,) = backend.find("job", ctx=soon()).objects
    assert seen.state == "held"
    assert seen.hold_register is not None
    assert (seen.hold_register.instance, seen.hold_register.held) == (3, True)


def test_a_gated_job_that_somebody_unsuspended_counts_as_opened_and_says_what_differs(world: World) -> None:
    backend = world.backend()
    start(backend)
    world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"suspend": False}}, NAMESPACE)
    (seen,) = backend.find("job", ctx=soon()).objects
    assert (seen.state, seen.gate_lifted) == ("opened", False)
    assert "spec.suspend" in [each.path for each in seen.drift]


def test_a_gated_job_whose_pods_run_counts_as_opened_though_it_is_suspended_again(world: World) -> None:
    backend = world.backend()
    start(backend)
    world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"suspend": False}}, NAMESPACE)
    world.running()
    world.cluster.take_down("trainer")
    world.cluster.admission.set_down(False)
    world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"suspend": True}}, NAMESPACE)
    (seen,) = backend.find("job", ctx=soon()).objects
    assert (seen.state, seen.pods.running) == ("opened", 2)
    assert [str(each) for each in seen.drift] == ["pods is 2, the record wants 0"]


@pytest.mark.parametrize(
    ("script", "cause", "exit_code"),
    [(Script(run=0.0), "succeeded", None), (Script.out_of_memory(0.0), "out-of-memory", 137)],
)
def test_an_ended_job_says_why(tmp_path: pathlib.Path, script: Script, cause: str, exit_code: int | None) -> None:
    world = World(tmp_path, script)
    try:
        backend = world.backend()
        backend.open(start(backend, nodes=1), ctx=soon())
        world.until(lambda: backend.find("job", ctx=soon()).objects[0].state == "ended")
        (seen,) = backend.find("job", ctx=soon()).objects
        assert seen.cause is not None
        assert (seen.cause.kind, seen.cause.exit_code) == (cause, exit_code)
    finally:
        world.close()


def test_what_outlives_its_trainjob_is_shown_as_an_orphan(world: World) -> None:
    backend = world.backend()
    backend.open(start(backend), ctx=soon())
    world.running()
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE, propagation="Orphan")
    world.until(lambda: not world.get(TRAIN_JOBS, "job-1"))
    found = backend.find("job", ctx=soon())
    assert ("JobSet", "job-1", "orphaned") in shown(found)
    assert "Pod" not in {each.ref.kind for each in found.objects}
    (jobset,) = [each for each in found.objects if each.ref.kind == "JobSet"]
    assert (jobset.collecting, jobset.pods.running) == (False, 2)


def test_a_young_copy_without_a_trainjob_is_starting(world: World) -> None:
    backend = world.backend()
    world.wire.lose_request("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    found = backend.find("job", ctx=soon())
    assert shown(found) == [("TrainingRuntime", "job-1", "starting")]


def test_an_unanswered_create_is_in_flight_here_and_not_elsewhere(world: World) -> None:
    backend, other = world.backend(), world.backend()
    world.wire.lose_request("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    assert backend.find("job", ctx=soon()).in_flight == (1,)
    assert other.find("job", ctx=soon()).in_flight == ()


def test_a_create_that_is_seen_to_have_committed_is_no_longer_in_flight(world: World) -> None:
    backend = world.backend()
    world.wire.lose_answer("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    found = backend.find("job", ctx=soon())
    assert (found.in_flight, shown(found)[0]) == ((), ("TrainJob", "job-1", "gated"))


def test_a_create_answered_while_find_reads_is_either_seen_or_in_flight(world: World) -> None:
    # The TrainJobs were listed, empty; then the create of another call is answered before Find is done.
    backend = world.backend()
    marks = backend._adapter.in_flight
    from dispatch_kubeflow.backend.objects.names import Identity

    mark = marks.begin(Identity("gpu", "job", 1), "nonce")
    world.wire.on("GET", r"/trainjobs\?", after=lambda _: marks.answered(mark))
    assert backend.find("job", ctx=soon()).in_flight == (1,)
    assert backend.find("job", ctx=soon()).in_flight == ()


@pytest.mark.parametrize("plural", LISTS)
def test_a_list_that_has_no_answer_is_unreachable(world: World, plural: str) -> None:
    backend = world.backend()
    world.wire.lose_request("GET", rf"/{plural}\?")
    with refused("request.no-answer", method="GET"):
        backend.find("job", ctx=soon())


@pytest.mark.parametrize(
    ("status", "reason", "rule"),
    [
        (401, "Unauthorized", "request.unauthenticated"),
        (403, "Forbidden", "request.forbidden"),
        (404, "NotFound", "request.path-not-found"),
        (422, "Invalid", "request.invalid"),
        (500, "InternalError", "request.no-answer"),
    ],
)
def test_a_list_that_is_refused_says_so(world: World, status: int, reason: str, rule: str) -> None:
    backend = world.backend()
    world.wire.refuse("GET", r"/jobsets\?", status, reason)
    with refused(rule, status=status):
        backend.find("job", ctx=soon())


def test_a_list_that_expires_four_times_is_unreachable(world: World) -> None:
    backend = world.backend()
    world.wire.answer("GET", r"/pods\?", 410, status_body(410, "Expired"), times=4)
    with refused("request.expired"):
        backend.find("job", ctx=soon())


def test_a_list_of_another_version_is_unsupported(world: World) -> None:
    backend = world.backend()
    body = {"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSetList", "metadata": {"resourceVersion": "1"}, "items": []}
    world.wire.answer("GET", r"/jobsets\?", 200, body)
    with refused("request.wrong-kind"):
        backend.find("job", ctx=soon())


def test_find_on_an_ended_context_sends_nothing(world: World) -> None:
    backend = world.backend()
    with refused("context.deadline"):
        backend.find("job", ctx=ended())
    with refused("context.cancelled"):
        backend.find("job", ctx=cancelled())
    assert world.requests() == []


def test_find_of_an_invalid_job_id_sends_nothing(world: World) -> None:
    backend = world.backend()
    with refused("input.job-id"):
        backend.find("No_Job", ctx=soon())
    assert world.requests() == []


def test_find_on_a_closed_backend_is_unreachable(world: World) -> None:
    backend = world.backend()
    backend.close()
    with refused("backend.closed"):
        backend.find("job", ctx=soon())


def test_a_read_only_backend_finds(world: World) -> None:
    start(world.backend())
    found = world.backend(read_only=True).find("job", ctx=soon())
    assert shown(found) == [("TrainJob", "job-1", "gated")]


def test_find_never_lists_more_than_it_is_given_however_many_kinds_are_left(world: World) -> None:
    backend = world.backend()
    backend.open(start(backend), ctx=soon())
    world.running()
    assert world.names(JOBS)
    assert world.names(JOB_SETS)
    assert world.names(TRAINING_RUNTIMES)
    world.cluster.apiserver.requests.clear()
    backend.find("job", ctx=soon())
    assert len(world.requests()) == 5
