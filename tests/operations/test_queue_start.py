"""Start in kueue mode: contract section 6, the AdmissionCheck between steps 2 and 3, and step 7."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.requests.resources import ADMISSION_CHECKS, TRAIN_JOBS, WORKLOADS
from dispatch_kubeflow.machine import Context

from .queue_world import CHECK, QUEUED, QueueWorld, queued, running
from .world import NAMESPACE, T_JOB, refused, soon, spec, start


def test_start_makes_nine_requests_and_the_job_waits_behind_gate_and_check(queue: QueueWorld) -> None:
    backend = queue.backend()
    queue.wire.on("GET", QUEUED, before=lambda _: queue.until(queue.workloads) and queue.calm())
    ref = queued(backend)
    assert [call.split("/")[0] + call.rpartition("/")[2] for call in queue.requests()][:9] == [
        "GET torch-distributed",
        "GET job-1",
        "GET job-1-runtime-snapshot",
        f"GET {CHECK}",
        "POST trainingruntimes",
        "POST trainjobs",
        "PATCH job-1",
        "GET job-1",
        "GET workloads",
    ]
    assert len(queue.requests()) == 9
    job, workload = queue.trainjob(), queue.workload()
    assert job["metadata"]["uid"] == ref.uid
    assert job["metadata"]["labels"][names.QUEUE_NAME] == "lq"
    assert job["metadata"]["annotations"][names.MODE] == "kueue"
    assert workload["metadata"]["annotations"][names.ADMISSION_GATED_BY] == names.KUEUE_GATE
    assert [each["name"] for each in workload["status"]["admissionChecks"]] == [CHECK]
    assert backend.find("job", ctx=soon()).objects[0].state == "gated"


def test_gate_and_check_may_come_late(queue: QueueWorld) -> None:
    backend = queue.backend()
    queue.cluster.do(lambda: setattr(queue.cluster.controllers["kueue-jobs"], "lag", 0.2))
    queue.cluster.do(lambda: setattr(queue.cluster.controllers["kueue-workloads"], "lag", 0.1))
    ref = queued(backend)
    assert queue.trainjob()["metadata"]["uid"] == ref.uid


@pytest.mark.rule("runtime.no-requests")
def test_a_job_that_requests_nothing_is_refused_before_anything_is_created(queue: QueueWorld) -> None:
    backend = queue.backend()
    with refused("runtime.no-requests"):
        start(backend)
    with refused("runtime.no-requests"):
        backend.capabilities(spec(), ctx=soon())
    assert queue.left() == {}


# The AdmissionCheck.


@pytest.mark.rule("start.check-inactive")
@pytest.mark.parametrize(
    ("active", "state"), [("False", "Active False, Active: said by the test"), ("Unknown", "Active Unknown")]
)
def test_a_check_that_is_not_active_is_unsupported(queue: QueueWorld, active: str, state: str) -> None:
    backend = queue.backend()
    queue.serve_check(active)
    with refused("start.check-inactive", name=CHECK, state=state):
        queued(backend)
    assert queue.left() == {}


@pytest.mark.rule("start.check-inactive")
def test_a_check_of_which_nothing_was_said_or_that_is_absent_is_unsupported(queue: QueueWorld) -> None:
    backend = queue.backend(admission_check=CHECK)
    queue.cluster.create(ADMISSION_CHECKS, {"metadata": {"name": "new"}, "spec": {"controllerName": "acme.io/x"}})
    queue.wire.on(
        "GET",
        f"/admissionchecks/{CHECK}$",
        nth=1,
        before=lambda _: queue.cluster.patch(
            ADMISSION_CHECKS, CHECK, {"status": {"conditions": None}}, subresource="status"
        ),
    )
    with refused("start.check-inactive", state="its controller has not said that it is there"):
        queued(backend)
    queue.wire.answer("GET", f"/admissionchecks/{CHECK}$", 404, _gone())
    with refused("start.check-inactive", state="absent"):
        queued(backend)
    assert queue.left() == {}


def _gone() -> dict[str, Any]:
    details = {"name": CHECK, "group": "kueue.x-k8s.io", "kind": "admissionchecks"}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404}
    return {**status, "reason": "NotFound", "message": "not found", "details": details}


@pytest.mark.rule("start.check-not-ours")
def test_a_check_that_another_controller_answers_for_is_unsupported(queue: QueueWorld) -> None:
    queue.cluster.create(ADMISSION_CHECKS, {"metadata": {"name": "theirs"}, "spec": {"controllerName": "acme.io/x"}})
    queue.serve_check(check="theirs")
    queue.list_checks({"name": "theirs"})
    backend = queue.backend(admission_check="theirs")
    with refused("start.check-not-ours", name="theirs", seen="acme.io/x"):
        queued(backend)
    assert queue.left() == {}


def test_a_check_that_cannot_be_read_is_what_the_request_says(queue: QueueWorld) -> None:
    backend = queue.backend()
    queue.wire.refuse("GET", "/admissionchecks/", 403, "Forbidden", nth=1)
    queue.wire.lose_answer("GET", "/admissionchecks/", nth=2)
    with refused("request.forbidden"):
        queued(backend)
    with refused("request.no-answer"):
        queued(backend)
    assert queue.left() == {}


# Step 7.


@pytest.mark.rule("start.no-workload")
def test_no_workload_in_time_stops_the_trainjob(queue: QueueWorld) -> None:
    backend = queue.backend(workload_wait=0.2)
    _silence(queue)
    with refused("start.no-workload", seen="none after 0.2 s"):
        queued(backend)
    queue.until(lambda: queue.left() == {}, "not all of it went")


@pytest.mark.rule("start.workload-ungated")
def test_a_workload_without_the_gate_stops_the_trainjob(queue: QueueWorld) -> None:
    """A Kueue whose feature is off ignores the annotation without a sign."""
    backend = queue.backend(workload_wait=0.3)
    _silence(queue)
    queue.wire.on("GET", QUEUED, before=lambda _: _make_workload(queue, gated_by=None))
    with refused("start.workload-ungated", seen="gate is not on it after 0.3 s"):
        queued(backend)
    assert "TrainJob" not in queue.left()


@pytest.mark.rule("start.workload-unchecked")
def test_a_workload_without_our_check_stops_the_trainjob(queue: QueueWorld) -> None:
    backend = queue.backend(workload_wait=0.3)
    queue.list_checks()
    queue.serve_check()
    with refused("start.workload-unchecked", seen="without ours after 0.3 s"):
        queued(backend)
    queue.until(lambda: queue.left() == {}, "not all of it went")


def test_the_label_alone_makes_no_workload_of_the_trainjob(queue: QueueWorld) -> None:
    backend = queue.backend(workload_wait=0.2)
    _silence(queue)
    queue.wire.on("GET", QUEUED, before=lambda _: _make_workload(queue, controller=False))
    with refused("start.no-workload"):
        queued(backend)


def test_a_workload_that_goes_again_is_none(queue: QueueWorld) -> None:
    backend = queue.backend(workload_wait=0.5)
    _silence(queue)
    queue.wire.on(
        "GET",
        QUEUED,
        before=lambda _: _make_workload(queue, gated_by=None),
        after=lambda _: queue.cluster.delete(WORKLOADS, "made", NAMESPACE),
    )
    with refused("start.no-workload"):
        queued(backend)


def _silence(queue: QueueWorld) -> None:
    """Kueue's webhooks answer, and its controllers do nothing."""
    done = threading.Event()

    def stop() -> None:
        for name, controller in queue.cluster.controllers.items():
            if name.startswith("kueue-"):
                controller.down = True
        done.set()

    queue.cluster.do(stop)
    assert done.wait(5)


def _make_workload(queue: QueueWorld, *, gated_by: str | None = names.KUEUE_GATE, controller: bool = True) -> None:
    job = queue.trainjob()
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": "TrainJob",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": controller,
    }
    container = {"name": "c", "image": "i"}
    pod_set = {"name": "node", "count": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    queue.cluster.create(
        WORKLOADS,
        {
            "metadata": {
                "name": "made",
                "labels": {names.JOB_UID: job["metadata"]["uid"]},
                "annotations": {names.ADMISSION_GATED_BY: gated_by} if gated_by else {},
                "ownerReferences": [owner],
            },
            "spec": {"active": True, "queueName": "lq", "podSets": [pod_set]},
        },
        NAMESPACE,
    )


@pytest.mark.rule("start.workload-context")
def test_a_context_that_ends_during_the_wait_leaves_the_trainjob_gated(queue: QueueWorld) -> None:
    backend = queue.backend()
    _silence(queue)
    ctx = Context.with_timeout(30)
    queue.wire.on("GET", QUEUED + ".*watch=", before=lambda _: ctx.cancel())
    with refused("start.workload-context"):
        backend.start("job", 1, spec(resources={"requests": {"cpu": "1"}}), ctx=ctx)
    assert queue.record() == ("closed", "none")
    assert queue.suspended()
    assert not [each for each in queue.requests() if each.startswith("DELETE")]


@pytest.mark.rule("start.stop-failed")
def test_a_stop_that_is_refused_leaves_the_outcome_unknown(queue: QueueWorld) -> None:
    backend = queue.backend(workload_wait=0.2)
    _silence(queue)
    queue.wire.refuse("DELETE", T_JOB, 403, "Forbidden")
    with refused("start.stop-failed", refusal="start.no-workload"):
        queued(backend)
    assert queue.suspended()


@pytest.mark.rule("start.read-back-denied", "start.read-back-unanswered", "start.no-workload")
@pytest.mark.parametrize(
    ("status", "reason", "rule"),
    [
        (403, "Forbidden", "start.read-back-denied"),
        (500, "InternalError", "start.read-back-unanswered"),
        (400, "BadRequest", "start.read-back-unanswered"),
    ],
)
def test_a_wait_that_is_refused_leaves_the_trainjob_gated(
    queue: QueueWorld, status: int, reason: str, rule: str
) -> None:
    backend = queue.backend()
    queue.wire.refuse("GET", QUEUED, status, reason)
    with refused(rule, status=status):
        queued(backend)
    assert queue.record() == ("closed", "none")


@pytest.mark.rule("start.no-workload")
def test_workloads_of_another_version_stop_the_trainjob(queue: QueueWorld) -> None:
    backend = queue.backend()
    queue.wire.answer("GET", QUEUED, 200, {"apiVersion": "kueue.x-k8s.io/v1", "kind": "WorkloadList", "items": []})
    with refused("start.no-workload", seen="kueue.x-k8s.io/v1"):
        queued(backend)
    queue.until(lambda: queue.left() == {}, "not all of it went")


# What else is as in plain mode, and told with the Workload in sight.


def test_kueue_down_leaves_the_create_unknown_and_in_flight(queue: QueueWorld) -> None:
    backend = queue.backend()
    queue.cluster.take_down("kueue")
    with refused("start.create-unanswered", status=500):
        queued(backend)
    assert backend.find("job", ctx=soon()).in_flight == (1,)
    assert queue.names(TRAIN_JOBS) == []


@pytest.mark.rule("start.exists")
def test_a_second_start_tells_the_state_with_the_workload_in_sight(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = running(queue, backend)
    with refused("start.exists", state="opened"):
        queued(backend)
    backend.hold(ref, 1, ctx=soon())
    with refused("start.exists", state="held"):
        queued(backend)
    queue.wire.refuse("GET", QUEUED, 403, "Forbidden")
    with refused("start.exists"):
        queued(backend)
