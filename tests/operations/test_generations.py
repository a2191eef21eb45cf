"""Two generations of a job's pods, of one attempt or of two opened one after the other, never run at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dispatch_kubeflow.backend import ObjectRef
from dispatch_kubeflow.backend.requests.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from dispatch_kubeflow.machine import DispatchError, ErrOutcomeUnknown
from dispatch_kubeflow.machine.record import Recorded, record_start

from .test_stages import Minutes, _rules
from .wire import Seen
from .world import COPIES, COPY, NAMESPACE, T_JOB, T_JOBS, World, refused, soon, spec, start

# Attempts opened one after the other.


@pytest.mark.rule("open.other-attempt")
def test_a_second_attempt_opened_right_after_the_first_is_refused(world: World) -> None:
    backend = world.backend()
    first, second = start(backend), start(backend, attempt=2)
    backend.open(first, ctx=soon())
    with refused("open.other-attempt", left="TrainJob job-1"):
        backend.open(second, ctx=soon())


@pytest.mark.rule("open.other-attempt")
def test_a_second_attempt_is_refused_while_the_job_controller_lags_behind_the_first(world: World) -> None:
    backend = world.backend()
    first, second = start(backend), start(backend, attempt=2)
    world.until(lambda: world.get(JOBS, "job-1-node-0"))
    world.cluster.take_down("kube-controller-manager")
    backend.open(first, ctx=soon())
    with refused("open.other-attempt"):
        backend.open(second, ctx=soon())
    assert world.names(PODS) == []


@pytest.mark.rule("open.other-attempt")
def test_the_first_attempt_is_not_released_beside_an_opened_second(world: World) -> None:
    backend = world.backend()
    first = start(backend)
    backend.hold(first, 1, ctx=soon())
    backend.open(first, ctx=soon())
    second = start(backend, attempt=2)
    world.until(lambda: world.get(JOBS, "job-1-node-0") and world.get(JOBS, "job-2-node-0"))
    for program in ("jobset", "trainer"):
        world.cluster.take_down(program)
    world.cluster.admission.set_down(False)
    backend.open(second, ctx=soon())
    with refused("open.other-attempt", left="TrainJob job-2"):
        backend.release(first, 1, ctx=soon())


def test_the_next_attempt_opens_beside_an_ended_one(world: World) -> None:
    from dispatch_kubeflow.backend.embedded.kubelet import Script

    world.cluster.kubelet.plan = Script(run=0.05)  # type: ignore[attr-defined] # the scripted one
    backend = world.backend()
    first = start(backend)
    backend.open(first, ctx=soon())
    world.until(lambda: [c for c in world.trainjob()["status"].get("conditions", []) if c["type"] == "Complete"])
    world.calm()
    backend.open(start(backend, attempt=2), ctx=soon())
    assert world.trainjob("job-2")["spec"]["suspend"] is False


@pytest.mark.rule("open.controller-active")
def test_a_held_attempt_whose_jobset_was_not_suspended_yet_stands_in_the_way(world: World) -> None:
    backend = world.backend()
    first, second = start(backend), start(backend, attempt=2)
    backend.open(first, ctx=soon())
    world.running()
    world.cluster.take_down("trainer")
    world.cluster.admission.set_down(False)
    backend.hold(first, 1, ctx=soon())
    for pod in world.names(PODS):
        world.cluster.delete(PODS, pod, NAMESPACE, grace=0)
    with pytest.raises(DispatchError) as raised:
        backend.open(second, ctx=soon())
    assert raised.value.row in {"open.controller-active", "open.other-attempt"}
    assert world.get(JOB_SETS, "job-1") is not None


# What a webhook makes of a write.


def _forced(world: World, *, suspend: bool | None = None, **annotations: str) -> None:
    """A mutating webhook that forces a part of the TrainJob whenever it is patched; the answer shows it."""

    def undo(_: Seen) -> None:
        if suspend is not None:
            world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"suspend": suspend}}, NAMESPACE)
        if annotations:
            world.annotate("job-1", **annotations)

    def answer() -> tuple[int, dict[str, str], bytes]:
        body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", **world.trainjob()}
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    world.wire.on("PATCH", T_JOB, times=99, after=undo, answer=answer)


@pytest.mark.rule("written.changed")
def test_a_hold_whose_answer_shows_a_running_job_does_not_say_success(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    _forced(world, suspend=False)
    with refused("written.changed", difference="spec.suspend"):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("written.changed")
def test_a_hold_whose_answer_shows_no_hold_does_not_say_success(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    _forced(world, hold="none")
    with refused("written.changed", difference="1/held"):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("written.changed")
def test_an_open_whose_answer_shows_a_closed_gate_does_not_say_success(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    _forced(world, suspend=True, gate="closed")
    with refused("written.changed", difference="gate"):
        backend.open(ref, ctx=soon())


# The copy a job runs on is the one that Start wrote.


def _unhardened(world: World, labels: dict[str, str], annotations: dict[str, str]) -> None:
    copy = world.get(TRAINING_RUNTIMES, "job-1")
    assert copy is not None
    for program in ("trainer",):
        world.cluster.take_down(program)
    world.cluster.admission.set_down(False)
    world.cluster.delete(TRAINING_RUNTIMES, "job-1", NAMESPACE)
    job = copy["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job.pop("podReplacementPolicy")
    metadata = {"name": "job-1", "namespace": NAMESPACE, "labels": labels, "annotations": annotations}
    world.cluster.create(TRAINING_RUNTIMES, {"metadata": metadata, "spec": copy["spec"]}, NAMESPACE)


def _unknown(world: World) -> tuple[Any, ObjectRef]:
    backend = world.backend()
    world.wire.lose_answer("POST", T_JOBS + "$")
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    return backend, ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", world.trainjob()["metadata"]["uid"])


@pytest.mark.rule("open.copy-lost")
def test_open_does_not_adopt_a_runtime_that_nobody_labelled(world: World) -> None:
    backend, ref = _unknown(world)
    _unhardened(world, {}, {})
    with refused("open.copy-lost", state="labels"):
        backend.open(ref, ctx=soon())


@pytest.mark.rule("open.copy-lost")
def test_open_does_not_adopt_a_copy_that_was_changed_since(world: World) -> None:
    backend, ref = _unknown(world)
    copy = world.get(TRAINING_RUNTIMES, "job-1")
    assert copy is not None
    _unhardened(world, copy["metadata"]["labels"], copy["metadata"]["annotations"])
    with refused("open.copy-lost", state="digest"):
        backend.open(ref, ctx=soon())


# A reference that names this Backend, and an object that does not.


@pytest.mark.rule("object.other-backend")
@pytest.mark.parametrize("call", ["open", "hold", "release"])
def test_a_job_of_another_backend_is_not_acted_on(world: World, call: str) -> None:
    other, backend = world.backend(name="other"), world.backend()
    ref = start(other)
    ours = ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", ref.uid)
    with refused("object.other-backend", seen="other"):
        getattr(backend, call)(ours, *([] if call == "open" else [1]), ctx=soon())


@pytest.mark.rule("stop.other-backend")
def test_a_job_of_another_backend_is_not_stopped(world: World) -> None:
    other, backend = world.backend(name="other"), world.backend()
    ref = start(other)
    with refused("stop.other-backend", seen="other"):
        backend.stop(ObjectRef("gpu", NAMESPACE, "TrainJob", "job-1", ref.uid), ctx=soon())
    assert world.names(TRAIN_JOBS) == ["job-1"]


@pytest.mark.rule("stop.other-backend")
def test_a_runtime_that_no_backend_made_is_not_stopped(world: World) -> None:
    backend = world.backend()
    source = world.get(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
    assert source is not None
    made = world.cluster.create(TRAINING_RUNTIMES, {"metadata": {"name": "mine"}, "spec": source["spec"]}, NAMESPACE)
    with refused("stop.other-backend"):
        backend.stop(ObjectRef("gpu", NAMESPACE, "TrainingRuntime", "mine", made["metadata"]["uid"]), ctx=soon())
    assert world.names(TRAINING_RUNTIMES) == ["mine"]


# A Backend that heals.


def _healed(world: World) -> tuple[Any, ObjectRef]:
    ref = start(world.backend())
    token = world.cluster.user("observer", _rules(world, without="patch"))
    backend = world.backend(token=token)
    minutes = backend._adapter.clock = Minutes(backend)
    world.cluster.user("observer", _rules(world))
    minutes.moved = 61
    return backend, ref


def _managed(world: World) -> None:
    """Every dry run comes back suspended."""

    def give() -> tuple[int, dict[str, str], bytes]:
        body = next(each for each in reversed(world.wire.seen) if "dryRun" in each.path).body
        answer = {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}}
        answer["spec"] = {**body["spec"], "suspend": True}
        return 201, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    world.wire.on("POST", "dryRun=All", times=99, forward=False, answer=give)


@pytest.mark.rule("factory.queueless-managed")
def test_a_healed_backend_makes_up_for_the_dry_run_at_every_call_until_it_passes(world: World) -> None:
    backend, ref = _healed(world)
    _managed(world)
    for _ in range(2):
        with refused("factory.queueless-managed"):
            backend.open(ref, ctx=soon())
    world.wire.rules.clear()
    backend.open(ref, ctx=soon())


@pytest.mark.rule("factory.queueless-managed")
def test_a_backend_that_a_stop_healed_still_owes_the_dry_run(world: World) -> None:
    backend, ref = _healed(world)
    second = start(world.backends[0], attempt=2)
    _managed(world)
    backend.stop(second, ctx=soon())
    with refused("factory.queueless-managed"):
        backend.hold(ref, 1, ctx=soon())


# Start: what must not be recorded as refused.


@pytest.mark.parametrize("how", ["another version", 400, 409])
@pytest.mark.rule("start.leftover-unread", "start.leftover")
def test_a_jobset_of_the_name_that_cannot_be_read_makes_no_refusal(world: World, how: str | int) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.running()
    if isinstance(how, str):
        body = {**(world.get(JOB_SETS, "job-1") or {}), "apiVersion": "jobset.x-k8s.io/v1beta1", "kind": "JobSet"}
        world.wire.answer("GET", "/jobsets/job-1", 200, body)
    else:
        world.wire.refuse("GET", "/jobsets/job-1", how, "BadRequest")
    with pytest.raises(DispatchError) as raised:
        start(backend)
    assert record_start(raised.value) is Recorded.UNKNOWN


def test_a_conflict_over_a_copy_that_another_start_uses_is_judged_anew(world: World) -> None:
    one, two = world.backend(), world.backend()
    world.wire.lose_request("POST", T_JOBS + "$")
    with pytest.raises(ErrOutcomeUnknown):
        start(one)
    world.wire.rules.clear()

    def other_starts(_: Seen) -> None:
        world.wire.rules.clear()
        start(one)

    world.wire.on("PATCH", COPY, before=other_starts)
    with refused("start.copy-owned"):
        start(two)


def test_a_read_back_answered_as_no_read_can_be_leaves_the_attempt_unknown(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("GET", T_JOB, 409, "AlreadyExists")
    with refused("start.read-back-unanswered") as caught:
        start(backend)
    assert record_start(caught[0]) is Recorded.UNKNOWN


def test_a_create_whose_own_answer_shows_a_running_job_is_stopped(world: World) -> None:
    backend = world.backend()

    def answer() -> tuple[int, dict[str, str], bytes]:
        world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"suspend": False}}, NAMESPACE)
        body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", **world.trainjob()}
        return 201, {"Content-Type": "application/json"}, json.dumps(body).encode()

    world.wire.on("POST", T_JOBS + "$", answer=answer)
    with refused("start.changed", difference="spec.suspend") as caught:
        start(backend)
    assert "never ran" not in str(caught[0])
    world.until(lambda: not world.left(), f"left: {world.left()}")


@pytest.mark.rule("request.expired-write")
def test_a_410_to_a_write_is_definite(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("POST", T_JOBS + "$", 410, "Gone")
    with refused("request.expired-write"):
        start(backend)
    assert backend.find("job", ctx=soon()).in_flight == ()
    assert world.left() == {}
    ref = start(backend)
    world.wire.refuse("PATCH", T_JOB, 410, "Gone")
    with refused("request.expired-write"):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("start.copy-unanswered")
@pytest.mark.parametrize(
    "metadata", [{"generation": "1"}, {"ownerReferences": None}, {"labels": {"dispatch-kubeflow.io/job": 5}}]
)
def test_a_copy_whose_answer_cannot_be_read_counts_as_unanswered(world: World, metadata: dict[str, Any]) -> None:
    backend = world.backend()
    given = {"name": "job-1", "namespace": NAMESPACE, "uid": "u", "resourceVersion": "1", **metadata}
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": given}
    world.wire.answer("POST", COPIES, 201, body)
    with refused("start.copy-unanswered"):
        start(backend)
    assert spec().nodes == 2
