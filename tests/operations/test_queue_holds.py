"""Open, Hold and Release in kueue mode: contract section 7. What lets a job run is not theirs to write."""

from __future__ import annotations

from typing import Any

import pytest

from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.requests.resources import PODS, TRAIN_JOBS, TRAINING_RUNTIMES, WORKLOADS
from dispatch_kubeflow.machine import Context

from .queue_world import ONE_QUEUED, QUEUED, QueueWorld, queued, running
from .world import NAMESPACE, T_JOB, refused, soon


def _calls(queue: QueueWorld) -> list[str]:
    """Every request, by its method and its kind."""
    kinds = (("/workloads", "Workloads"), ("/trainingruntimes", "copy"), ("/trainjobs", "TrainJob"))
    return [f"{each.method} {next(kind for part, kind in kinds if part in each.path)}" for each in queue.wire.seen]


def _patched(queue: QueueWorld) -> list[dict[str, Any]]:
    return [each.body for each in queue.wire.seen if each.method == "PATCH"]


def test_open_takes_our_gate_away_and_starts_nothing(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    queue.calm()
    queue.wire.seen.clear()
    backend.open(ref, ctx=soon())
    assert _calls(queue) == ["GET TrainJob", "GET Workloads", "GET copy", "PATCH TrainJob"]
    (patch,) = _patched(queue)
    assert patch["metadata"]["annotations"] == {names.GATE: "lifted", names.ADMISSION_GATED_BY: None}
    assert "spec" not in patch
    queue.until(lambda: queue.condition("QuotaReserved") == "True")
    assert queue.suspended()
    queue.wire.seen.clear()
    backend.open(ref, ctx=soon())
    assert _calls(queue) == ["GET TrainJob", "GET Workloads"]
    queue.admit()
    queue.running()


def test_open_leaves_the_gates_of_others(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    # As a webhook that adds a gate at the create would leave it; later none can be added.
    job = queue.trainjob()
    job["metadata"]["annotations"][names.ADMISSION_GATED_BY] = f"{names.KUEUE_GATE}, acme.io/gate"
    queue.wire.answer("GET", T_JOB, 200, job)
    queue.wire.answer("PATCH", T_JOB, 200, _opened(job))
    queue.wire.seen.clear()
    backend.open(ref, ctx=soon())
    (patch,) = _patched(queue)
    assert patch["metadata"]["annotations"][names.ADMISSION_GATED_BY] == "acme.io/gate"


def _opened(job: dict[str, Any]) -> dict[str, Any]:
    annotations = {**job["metadata"]["annotations"], names.GATE: "lifted", names.ADMISSION_GATED_BY: "acme.io/gate"}
    return {**job, "metadata": {**job["metadata"], "annotations": annotations}}


@pytest.mark.rule("written.changed")
def test_a_gate_that_a_webhook_kept_is_not_called_open(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    job = queue.trainjob()
    kept = {**job["metadata"]["annotations"], names.GATE: "lifted"}
    queue.wire.answer("PATCH", T_JOB, 200, {**job, "metadata": {**job["metadata"], "annotations": kept}})
    with refused("written.changed", difference=names.ADMISSION_GATED_BY):
        backend.open(ref, ctx=soon())


def test_a_gate_that_was_taken_off_by_hand_is_lifted_on_record(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    queue.cluster.patch(TRAIN_JOBS, "job-1", {"metadata": {"annotations": {names.ADMISSION_GATED_BY: None}}}, NAMESPACE)
    queue.until(lambda: queue.condition("QuotaReserved") == "True")
    assert backend.find("job", ctx=soon()).objects[0].state == "gated"
    backend.open(ref, ctx=soon())
    assert queue.record() == ("lifted", "none")


@pytest.mark.rule("open.copy-lost", "open.changed")
def test_open_asks_for_the_copy_and_the_digest_as_in_plain_mode(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    queue.calm()
    change = {"spec": {"mlPolicy": {"numNodes": 7}}}
    queue.cluster.patch(TRAINING_RUNTIMES, "job-1", change, NAMESPACE)
    with refused("open.copy-lost"):
        backend.open(ref, ctx=soon())
    queue.cluster.patch(TRAINING_RUNTIMES, "job-1", {"spec": {"mlPolicy": {"numNodes": 1}}}, NAMESPACE)
    queue.annotate("job-1", digest="another")
    with refused("open.changed"):
        backend.open(ref, ctx=soon())
    assert queue.record() == ("closed", "none")


def test_hold_writes_the_record_and_then_the_workload(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    queue.calm()
    queue.wire.seen.clear()
    backend.hold(ref, 3, ctx=soon())
    assert _calls(queue) == ["GET TrainJob", "GET Workloads", "PATCH TrainJob", "PATCH Workloads"]
    first, second = _patched(queue)
    assert first["metadata"]["annotations"] == {names.HOLD: "3/held"}
    assert "spec" not in first
    assert second["metadata"]["annotations"] == {names.HELD: "3"}
    assert second["spec"] == {"active": False}
    assert queue.held() == (False, "3")
    queue.until(lambda: not queue.names(PODS), "the pods never went")
    assert queue.suspended()
    (found,) = backend.find("job", ctx=soon()).objects
    assert (found.state, found.waiting and found.waiting.reason, found.drift) == ("held", "Held", ())
    queue.wire.seen.clear()
    backend.hold(ref, 3, ctx=soon())
    assert _calls(queue) == ["GET TrainJob", "GET Workloads"]


@pytest.mark.rule("object.stale-hold", "object.stale-hold-again", "object.stale-release", "object.release-without-hold")
def test_the_register_refuses_what_is_late_as_in_plain_mode(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    with refused("object.release-without-hold"):
        backend.release(ref, 1, ctx=soon())
    backend.hold(ref, 2, ctx=soon())
    with refused("object.stale-hold", instance_in_force=2):
        backend.hold(ref, 3, ctx=soon())
    with refused("object.stale-release", instance_in_force=2):
        backend.release(ref, 1, ctx=soon())
    backend.release(ref, 2, ctx=soon())
    with refused("object.stale-hold-again", instance_in_force=2):
        backend.hold(ref, 2, ctx=soon())
    assert queue.record() == ("closed", "2/released")


def test_release_writes_the_record_alone_and_the_controller_does_the_rest(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    backend.hold(ref, 1, ctx=soon())
    queue.calm()
    queue.wire.seen.clear()
    backend.release(ref, 1, ctx=soon())
    assert _calls(queue) == ["GET TrainJob", "GET Workloads", "PATCH TrainJob"]
    assert queue.record() == ("lifted", "1/released")
    assert queue.held() == (False, "1")
    assert backend.find("job", ctx=soon()).objects[0].state == "opened"
    queue.wire.seen.clear()
    backend.release(ref, 1, ctx=soon())
    assert _calls(queue) == ["GET TrainJob", "GET Workloads"]


def test_a_hold_under_an_older_one_s_mark_is_written_anew(queue: QueueWorld) -> None:
    """Else the controller, which read the Workload before, would end the newer hold with the older."""
    backend = queue.backend()
    ref = running(queue, backend)
    backend.hold(ref, 1, ctx=soon())
    backend.release(ref, 1, ctx=soon())
    before = queue.workload()["metadata"]["resourceVersion"]
    backend.hold(ref, 2, ctx=soon())
    assert queue.held() == (False, "2")
    assert queue.workload()["metadata"]["resourceVersion"] != before


def test_what_somebody_else_made_inactive_is_not_marked_as_ours(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    queue.change({"spec": {"active": False}})
    queue.calm()
    queue.wire.seen.clear()
    backend.hold(ref, 1, ctx=soon())
    assert _calls(queue) == ["GET TrainJob", "GET Workloads", "PATCH TrainJob"]
    assert queue.held() == (False, None)
    (found,) = backend.find("job", ctx=soon()).objects
    assert (found.state, found.waiting and found.waiting.reason) == ("held", "Deactivated")


# C23: no Workload.


@pytest.mark.rule("object.no-workload")
@pytest.mark.parametrize("operation", ["open", "hold", "release"])
def test_without_a_workload_nothing_is_written(queue: QueueWorld, operation: str) -> None:
    backend = queue.backend()
    ref = queued(backend)
    backend.hold(ref, 4, ctx=soon())
    listed = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadList", "metadata": {"resourceVersion": "1"}}
    queue.wire.answer("GET", QUEUED, 200, {**listed, "items": []})
    with refused("object.no-workload"):
        # Before the instance is looked at: it is not the one in force.
        backend.open(ref, ctx=soon()) if operation == "open" else getattr(backend, operation)(ref, 3, ctx=soon())
    assert queue.record() == ("closed", "4/held")


@pytest.mark.rule("object.other-mode", "object.record-unreadable", "object.other-uid")
def test_what_the_trainjob_alone_refuses_costs_one_request(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    queue.annotate("job-1", mode="plain")
    queue.wire.seen.clear()
    with refused("object.other-mode"):
        backend.open(ref, ctx=soon())
    queue.annotate("job-1", mode="kueue", gate="ajar")
    with refused("object.record-unreadable"):
        backend.hold(ref, 1, ctx=soon())
    assert _calls(queue) == ["GET TrainJob", "GET TrainJob"]


@pytest.mark.rule("request.forbidden")
def test_workloads_that_may_not_be_listed_are_what_the_request_says(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    queue.wire.refuse("GET", QUEUED, 403, "Forbidden")
    with refused("request.forbidden"):
        backend.hold(ref, 1, ctx=soon())
    assert queue.record() == ("closed", "none")


# The second write.


def test_a_workload_that_changed_meanwhile_is_tried_again(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    note = {"metadata": {"annotations": {"acme.io/x": "1"}}}
    queue.wire.on("PATCH", ONE_QUEUED, before=lambda _: queue.change(note))
    queue.wire.seen.clear()
    backend.hold(ref, 1, ctx=soon())
    assert _calls(queue)[2:] == [
        "PATCH TrainJob",
        "PATCH Workloads",
        "GET TrainJob",
        "GET Workloads",
        "PATCH Workloads",
    ]
    assert queue.held() == (False, "1")


def test_a_workload_that_was_made_anew_meanwhile_is_held_instead(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    old = queue.workload()["metadata"]["uid"]

    def remake(_: object) -> None:
        queue.cluster.delete(WORKLOADS, queue.workload()["metadata"]["name"], NAMESPACE)
        queue.until(lambda: [each for each in queue.workloads() if each["metadata"]["uid"] != old], "no new Workload")

    queue.wire.on("PATCH", ONE_QUEUED, before=remake)
    backend.hold(ref, 1, ctx=soon())
    assert queue.held() == (False, "1")
    assert queue.workload()["metadata"]["uid"] != old


@pytest.mark.rule("hold.recorded-only")
@pytest.mark.parametrize(
    ("status", "reason", "seen"),
    [(403, "Forbidden", "request.forbidden"), (500, "InternalError", "request.outcome-unknown")],
)
def test_a_second_write_that_fails_leaves_the_record_and_hold_again_completes(
    queue: QueueWorld, status: int, reason: str, seen: str
) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    queue.wire.refuse("PATCH", ONE_QUEUED, status, reason)
    with refused("hold.recorded-only", applied="record", status=status, seen=seen):
        backend.hold(ref, 1, ctx=soon())
    assert queue.record() == ("lifted", "1/held")
    assert queue.held() == (True, None)
    (found,) = backend.find("job", ctx=soon()).objects
    assert found.state == "opened"
    assert [each.path for each in found.drift] == [f"Workload {queue.workload()['metadata']['name']}", "spec.suspend"]
    backend.hold(ref, 1, ctx=soon())
    assert queue.held() == (False, "1")


@pytest.mark.rule("hold.recorded-only")
def test_a_deadline_between_the_two_writes_leaves_the_outcome_unknown(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    ctx = Context.with_timeout(30)
    queue.wire.on("PATCH", ONE_QUEUED, before=lambda _: ctx.cancel())
    with refused("hold.recorded-only", applied="record"):
        backend.hold(ref, 1, ctx=ctx)
    assert queue.record() == ("lifted", "1/held")


@pytest.mark.rule("hold.recorded-only")
def test_a_workload_that_never_holds_still_ends_after_eight_tries(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    queue.wire.refuse("PATCH", ONE_QUEUED, 409, "Conflict", times=99)
    queue.wire.seen.clear()
    with refused("hold.recorded-only", seen="request.conflict"):
        backend.hold(ref, 1, ctx=soon())
    assert _calls(queue).count("PATCH Workloads") == 8


@pytest.mark.rule("hold.recorded-only")
@pytest.mark.parametrize("gone", ["TrainJob", "Workloads"])
def test_what_cannot_be_read_before_a_further_try_leaves_the_outcome_unknown(queue: QueueWorld, gone: str) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    queue.wire.refuse("PATCH", ONE_QUEUED, 409, "Conflict")
    queue.wire.lose_answer("GET", T_JOB if gone == "TrainJob" else QUEUED, nth=2)
    with refused("hold.recorded-only", seen="request.no-answer"):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("hold.recorded-only")
def test_a_workload_that_is_gone_by_then_is_not_called_held(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    queue.wire.refuse("PATCH", ONE_QUEUED, 409, "Conflict")
    listed = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadList", "metadata": {"resourceVersion": "1"}}
    queue.wire.answer("GET", QUEUED, 200, {**listed, "items": []}, nth=2)
    with refused("hold.recorded-only", seen="request.conflict"):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("hold.recorded-only")
@pytest.mark.parametrize("changed", ["active", "mark", "form"])
def test_an_answer_that_shows_something_else_is_no_hold(queue: QueueWorld, changed: str) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    workload = queue.workload()
    held = {**workload["metadata"], "annotations": {names.HELD: "9" if changed == "mark" else "1"}}
    spec: Any = {**workload["spec"], "active": changed == "active"}
    spec = {**spec, "active": "no"} if changed == "form" else spec
    queue.wire.answer("PATCH", ONE_QUEUED, 200, {**workload, "metadata": held, "spec": spec})
    with refused("hold.recorded-only", applied="record"):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("hold.overtaken")
def test_a_hold_that_was_released_meanwhile_stops_nothing(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)

    def release(_: object) -> None:
        queue.annotate("job-1", hold="1/released")
        queue.change({"metadata": {"annotations": {"acme.io/x": "1"}}})

    queue.wire.on("PATCH", ONE_QUEUED, before=release)
    with refused("hold.overtaken", applied="record", seen="1/released"):
        backend.hold(ref, 1, ctx=soon())
    assert queue.held() == (True, None)
    queue.running()


@pytest.mark.rule("hold.overtaken")
def test_a_trainjob_of_another_uid_is_not_held_for_the_first(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    job = queue.trainjob()
    queue.wire.refuse("PATCH", ONE_QUEUED, 409, "Conflict")
    queue.wire.answer("GET", T_JOB, 200, {**job, "metadata": {**job["metadata"], "uid": "another"}}, nth=2)
    with refused("hold.overtaken", seen="uid another"):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("request.outcome-unknown")
@pytest.mark.parametrize("operation", ["open", "hold"])
def test_kueue_down_leaves_a_write_unknown(queue: QueueWorld, operation: str) -> None:
    backend = queue.backend()
    ref = queued(backend)
    queue.cluster.take_down("kueue")
    with refused("request.outcome-unknown", status=500):
        backend.open(ref, ctx=soon()) if operation == "open" else backend.hold(ref, 1, ctx=soon())
    assert queue.record() == ("closed", "none")


# Ends.


@pytest.mark.rule("object.hold-ended", "object.ended-opened")
def test_a_job_that_is_being_deleted_is_neither_opened_nor_held(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    finalizer = {"metadata": {"finalizers": ["acme.io/keep"]}}
    queue.cluster.patch(TRAIN_JOBS, "job-1", finalizer, NAMESPACE)
    queue.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE)
    with refused("object.hold-ended"):
        backend.hold(ref, 1, ctx=soon())
    with refused("object.ended-opened"):
        backend.open(ref, ctx=soon())
    queue.cluster.patch(TRAIN_JOBS, "job-1", {"metadata": {"finalizers": None}}, NAMESPACE)
