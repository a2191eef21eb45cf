"""What is seen of a job in kueue mode: Find, Watch, Stop, StopJob and Ceased, with its Workload in sight."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from dispatch_kubeflow.backend.embedded import Script
from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.objects.found import Found, FoundObject
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests.resources import PODS, TRAIN_JOBS, WORKLOADS
from dispatch_kubeflow.machine import ErrUnreachable

from .queue_world import CHECK, QUEUED, QueueWorld, queued, running
from .world import NAMESPACE, refused, soon


def _seen(backend: Backend, attempt: int = 1, job: str = "job") -> FoundObject:
    return next(each for each in backend.find(job, ctx=soon()).objects if each.attempt == attempt)


def _reason(found: FoundObject) -> str | None:
    return None if found.waiting is None else found.waiting.reason


def test_find_makes_six_lists_the_trainjobs_last(queue: QueueWorld) -> None:
    backend = queue.backend()
    queued(backend)
    queue.wire.seen.clear()
    backend.find("job", ctx=soon())
    assert [call.rpartition("/")[2] for call in queue.wire.calls()] == [
        "trainingruntimes",
        "pods",
        "jobs",
        "jobsets",
        "workloads",
        "trainjobs",
    ]


def test_a_job_says_what_it_waits_for_from_its_gate_to_its_pods(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    found = _seen(backend)
    assert (found.state, found.gate_lifted, _reason(found)) == ("gated", False, "AdmissionGated")
    backend.open(ref, ctx=soon())
    queue.until(lambda: queue.condition("QuotaReserved") == "True")
    found = _seen(backend)
    assert (found.state, found.gate_lifted, _reason(found)) == ("opened", True, "AdmissionChecks")
    assert found.waiting is not None
    assert found.waiting.message == f"quota is reserved; {CHECK} is Pending"
    queue.admit()
    queue.running()
    found = _seen(backend)
    assert (found.state, _reason(found), found.pods.running, found.drift) == ("opened", None, 2, ())


def test_a_job_for_which_there_is_no_room_says_so_in_kueue_s_words(queue: QueueWorld) -> None:
    backend = queue.backend()
    running(queue, backend)
    second = queued(backend, "next")
    backend.open(second, ctx=soon())
    queue.until(lambda: _reason(_seen(backend, job="next")) == "Pending")
    found = _seen(backend, job="next")
    assert found.waiting is not None
    assert "quota" in found.waiting.message


def test_a_hold_on_record_that_nothing_enforces_is_drift(queue: QueueWorld) -> None:
    backend = queue.backend()
    running(queue, backend)
    queue.annotate("job-1", hold="1/held")
    found = _seen(backend)
    name = queue.workload()["metadata"]["name"]
    assert found.state == "opened"
    assert [str(each) for each in found.drift] == [
        f"Workload {name} is free to run, the record wants kept from running",
        "spec.suspend is false, the record wants true",
    ]


def test_a_gate_removed_on_the_workload_alone_keeps_the_job_behind_the_check(queue: QueueWorld) -> None:
    backend = queue.backend()
    queued(backend)
    queue.change({"metadata": {"annotations": {names.ADMISSION_GATED_BY: None}}})
    assert _seen(backend).state == "gated"
    queue.calm()
    assert queue.suspended()


def test_a_workload_deleted_by_hand_is_made_anew_and_the_job_waits(queue: QueueWorld) -> None:
    backend = queue.backend()
    running(queue, backend)
    queue.cluster.delete(WORKLOADS, queue.workload()["metadata"]["name"], NAMESPACE)
    queue.until(lambda: queue.workloads() and queue.condition("QuotaReserved") == "True" and queue.suspended())
    assert (_seen(backend).state, _reason(_seen(backend))) == ("opened", "AdmissionChecks")


def test_watch_shows_the_workload_as_it_changes(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    queue.wire.seen.clear()
    ctx = soon(30)
    views = backend.watch("job", ctx=ctx)

    def until(state: str, reason: str | None) -> Found:
        for view in views:
            found = view.objects[0]
            if (found.state, _reason(found)) == (state, reason):
                return view
        raise AssertionError("the watch ended")

    until("gated", "AdmissionGated")
    backend.open(ref, ctx=soon())
    until("opened", "AdmissionChecks")
    queue.admit()
    until("opened", None)
    backend.hold(ref, 1, ctx=soon())
    until("held", "Held")
    assert len([each for each in queue.wire.seen if "watch=" in each.path]) == 6
    ctx.cancel()
    with pytest.raises(ErrUnreachable):
        list(views)


def test_stop_and_stop_job_leave_nothing_of_a_gated_and_of_a_running_job(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    backend.stop(ref, ctx=soon())
    queue.until(lambda: not queue.workloads() and not queue.names(TRAIN_JOBS))
    running(queue, backend)
    backend.stop_job("job", ctx=soon())
    queue.until(lambda: not queue.names(PODS) and not queue.cluster.list(WORKLOADS, NAMESPACE))


# Ceased.


@pytest.fixture
def quick(tmp_path: pathlib.Path) -> Iterator[QueueWorld]:
    """Containers that end at once, well."""
    made = QueueWorld(tmp_path, Script(run=0.0))
    yield made
    made.close()


def test_a_gated_job_has_ceased_for_it_never_ran(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    found = backend.ceased(ref, ctx=soon())
    assert (found.ceased, [each.kind for each in found.evidence]) == (True, ["never-opened"])


def test_a_gated_job_whose_workload_is_free_has_not_ceased(queue: QueueWorld) -> None:
    """The gate was removed on the Workload alone, and the check taken off the queue."""
    backend = queue.backend()
    ref = queued(backend)
    queue.change({"metadata": {"annotations": {names.ADMISSION_GATED_BY: None}}})
    workload = queue.workload()
    workload["status"].pop("admissionChecks")
    listed = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadList", "metadata": {"resourceVersion": "1"}}
    queue.wire.answer("GET", QUEUED, 200, {**listed, "items": [workload]})
    found = backend.ceased(ref, ctx=soon())
    assert not found.ceased
    assert found.may_make_pods == (f"Workload {workload['metadata']['name']} is free to run, whatever the record says",)


def test_a_job_that_waits_its_turn_has_not_ceased(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    backend.open(ref, ctx=soon())
    found = backend.ceased(ref, ctx=soon())
    assert not found.ceased
    assert found.may_make_pods == ("TrainJob job-1 is neither gated nor held, so Kueue may admit it",)


@pytest.mark.parametrize("there", [True, False])
def test_a_held_job_without_a_workload_has_not_ceased(queue: QueueWorld, there: bool) -> None:
    backend = queue.backend()
    ref = queued(backend)
    backend.open(ref, ctx=soon())
    backend.hold(ref, 1, ctx=soon())
    listed = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadList", "metadata": {"resourceVersion": "1"}}
    if not there:
        queue.wire.answer("GET", QUEUED, 200, {**listed, "items": []})
    found = backend.ceased(ref, ctx=soon())
    assert not found.ceased
    assert [each.uid for each in found.evidence] == [None]
    said = () if there else ("TrainJob job-1 has no Workload, and what Kueue makes of a new one is not known",)
    assert found.may_make_pods == said


@pytest.mark.rule("request.forbidden")
def test_workloads_that_may_not_be_listed_show_nothing(queue: QueueWorld) -> None:
    backend = queue.backend()
    ref = queued(backend)
    queue.wire.refuse("GET", QUEUED, 403, "Forbidden")
    with refused("request.forbidden"):
        backend.ceased(ref, ctx=soon())


def test_a_job_ends_well_and_shows_it(quick: QueueWorld) -> None:
    backend = quick.backend()
    ref = queued(backend)
    backend.open(ref, ctx=soon())
    quick.admit()
    quick.until(lambda: _seen(backend).state == "ended")
    found = _seen(backend)
    assert found.cause is not None
    assert (found.cause.kind, found.waiting, found.drift) == ("succeeded", None, ())
    assert b"".join(backend.output("job", ctx=soon())) == b""
    with refused("object.ended-opened"):
        backend.open(ref, ctx=soon())
    with refused("object.hold-ended"):
        backend.hold(ref, 1, ctx=soon())
