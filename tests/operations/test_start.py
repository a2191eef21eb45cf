"""Start: each step of contract section 6, in the order of its table, with what each failure leaves behind."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dispatch_kubeflow.backend.requests.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from dispatch_kubeflow.machine import Context, DispatchError, ErrOutcomeUnknown, ErrRejected
from dispatch_kubeflow.machine.record import Recorded, record_start

from .wire import Seen
from .world import COPIES, COPY, NAMESPACE, T_JOB, T_JOBS, World, refused, soon, spec, start

# What goes well.


def test_start_makes_seven_requests_in_the_contracts_order(world: World) -> None:
    backend = world.backend()
    start(backend)
    assert world.requests() == [
        "GET /apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed",
        f"GET /apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets/job-1",
        f"GET /api/v1/namespaces/{NAMESPACE}/configmaps/job-1-runtime-snapshot",
        f"POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainingruntimes",
        f"POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs",
        f"PATCH /apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainingruntimes/job-1",
        f"GET /apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs/job-1",
    ]


def test_a_started_job_is_gated_and_has_no_pods(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    job = world.trainjob()
    assert job["metadata"]["uid"] == ref.uid
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["annotations"]["dispatch-kubeflow.io/gate"] == "closed"
    world.until(lambda: world.names(JOB_SETS), "Trainer never made the JobSet")
    assert world.names(PODS) == []


def test_the_copy_is_owned_by_the_trainjob_without_blocking_its_deletion(world: World) -> None:
    ref = start(world.backend())
    copy = world.get(TRAINING_RUNTIMES, "job-1")
    assert copy is not None
    assert copy["metadata"]["ownerReferences"] == [
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "job-1", "uid": ref.uid}
    ]


# Step 1: the runtime.


@pytest.mark.rule("runtime.absent")
def test_a_runtime_that_does_not_exist_is_refused_and_nothing_is_made(world: World) -> None:
    backend = world.backend(runtimes=["ClusterTrainingRuntime/torch-distributed", "TrainingRuntime/mine"])
    with refused("runtime.absent", value="TrainingRuntime/mine"):
        start(
            backend,
            extensions={**spec().extensions, "kubeflow/RuntimeRef": {"kind": "TrainingRuntime", "name": "mine"}},
        )
    assert world.left() == {}


def _change_template(world: World, **change: Any) -> None:
    runtime = world.get(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
    assert runtime is not None
    body = runtime["spec"]["template"]["spec"]
    job = body["replicatedJobs"][0]["template"]["spec"]
    match change:
        case {"jobset": fields}:
            body.update(fields)
        case {"job": fields}:
            job.update(fields)
        case {"pod": fields}:
            job["template"]["spec"].update(fields)
        case {"policy": policy}:
            runtime["spec"]["mlPolicy"] = policy
        case {"name": name}:
            body["replicatedJobs"][0]["name"] = name
    world.cluster.delete(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
    kept = {key: runtime["metadata"].get(key) for key in ("name", "labels")}
    world.cluster.create(CLUSTER_TRAINING_RUNTIMES, {"metadata": kept, "spec": runtime["spec"]})


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("runtime.ttl", {"jobset": {"ttlSecondsAfterFinished": 60}}),
        ("runtime.managed-by", {"jobset": {"managedBy": "kueue.x-k8s.io/multikueue"}}),
        ("runtime.subdomain", {"jobset": {"network": {"subdomain": "other"}}}),
        ("runtime.failure-policy", {"jobset": {"failurePolicy": {"maxRestarts": 2}}}),
        ("runtime.restart-policy", {"pod": {"restartPolicy": "OnFailure"}}),
        ("runtime.backoff-limit", {"job": {"backoffLimit": 3}}),
        ("runtime.pod-replacement-policy", {"job": {"podReplacementPolicy": "TerminatingOrFailed"}}),
        ("runtime.mpi", {"policy": {"numNodes": 1, "mpi": {"numProcPerNode": 1}}}),
        ("runtime.trainer-job", {"name": "worker"}),
    ],
)
def test_a_runtime_that_breaks_a_rule_is_refused_by_that_rule(world: World, rule: str, change: dict[str, Any]) -> None:
    backend = world.backend()
    _change_template(world, **change)
    with refused(rule):
        start(backend)
    assert world.left() == {}


@pytest.mark.rule("runtime.no-torch")
def test_procs_per_node_on_a_runtime_without_torch_is_refused(world: World) -> None:
    backend = world.backend()
    _change_template(world, policy={"numNodes": 1})
    with refused("runtime.no-torch"):
        start(backend, procs_per_node=2)
    assert world.left() == {}


# Step 2: what is left of the name.


@pytest.mark.rule("start.exists")
def test_a_second_start_of_an_attempt_does_not_know_and_says_what_is_there(world: World) -> None:
    backend = world.backend()
    start(backend)
    world.until(lambda: world.names(JOB_SETS))
    before = world.trainjob()
    with refused("start.exists", name="job-1", state="gated") as caught:
        start(backend)
    assert record_start(caught[0]) is Recorded.UNKNOWN
    assert world.trainjob()["metadata"]["resourceVersion"] >= before["metadata"]["resourceVersion"]
    assert world.names(TRAIN_JOBS) == ["job-1"]


@pytest.mark.rule("start.leftover")
def test_a_jobset_left_of_the_name_makes_the_outcome_unknown_and_nothing_is_created(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.until(lambda: world.names(JOB_SETS))
    world.cluster.delete(TRAIN_JOBS, ref.name, NAMESPACE, propagation="Orphan")
    world.until(lambda: not world.names(TRAIN_JOBS))
    with refused("start.leftover", name="job-1", seen="JobSet") as caught:
        start(backend)
    assert record_start(caught[0]) is Recorded.UNKNOWN
    assert world.names(TRAIN_JOBS) == []


@pytest.mark.rule("start.leftover")
def test_a_runtime_snapshot_alone_is_a_leftover_too(world: World) -> None:
    backend = world.backend()
    world.cluster.create(CONFIG_MAPS, {"metadata": {"name": "job-1-runtime-snapshot"}}, NAMESPACE)
    with refused("start.leftover", seen="snapshot"):
        start(backend)
    assert world.names(TRAINING_RUNTIMES) == []


# Step 3: the runtime copy.


@pytest.mark.rule("start.copy-unanswered")
def test_an_unanswered_create_of_the_copy_made_no_trainjob(world: World) -> None:
    backend = world.backend()
    world.wire.lose_answer("POST", COPIES + "$")
    with refused("start.copy-unanswered") as caught:
        start(backend)
    assert caught[0].__cause__ is not None
    assert record_start(caught[0]) is Recorded.UNKNOWN
    assert world.names(TRAINING_RUNTIMES) == ["job-1"]
    assert world.names(TRAIN_JOBS) == []


@pytest.mark.rule("start.copy-reused")
def test_a_retried_start_uses_its_own_copy_again_and_puts_its_nonce_on_it(world: World) -> None:
    backend = world.backend()
    world.wire.lose_answer("POST", COPIES + "$")
    with refused("start.copy-unanswered"):
        start(backend)
    first = world.get(TRAINING_RUNTIMES, "job-1")
    ref = start(backend)
    second = world.get(TRAINING_RUNTIMES, "job-1")
    assert first is not None
    assert second is not None
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    nonce = "dispatch-kubeflow.io/nonce"
    assert second["metadata"]["annotations"][nonce] != first["metadata"]["annotations"][nonce]
    assert second["metadata"]["annotations"][nonce] == world.trainjob()["metadata"]["annotations"][nonce]
    assert world.trainjob()["metadata"]["uid"] == ref.uid


def _leave_copy(world: World) -> None:
    """A copy of this attempt whose create went unanswered."""
    backend = world.backend()
    world.wire.lose_answer("POST", COPIES + "$")
    with refused("start.copy-unanswered"):
        start(backend)


@pytest.mark.rule("start.copy-owned")
def test_a_copy_that_is_owned_refuses_the_start(world: World) -> None:
    _leave_copy(world)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "u-1"}
    made = world.cluster.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, NAMESPACE)
    owner["uid"] = made["metadata"]["uid"]
    world.cluster.patch(TRAINING_RUNTIMES, "job-1", {"metadata": {"ownerReferences": [owner]}}, NAMESPACE)
    with refused("start.copy-owned", seen="ConfigMap mine") as caught:
        start(world.backend())
    assert record_start(caught[0]) is Recorded.REFUSED
    assert world.names(TRAIN_JOBS) == []


@pytest.mark.rule("start.copy-differs")
def test_a_copy_with_another_spec_refuses_the_start(world: World) -> None:
    _leave_copy(world)
    with refused("start.copy-differs", difference="spec"):
        start(
            world.backend(), extensions={**spec().extensions, "dispatch/SharedCheckpoint": {"claim": "c", "path": "/c"}}
        )
    assert world.names(TRAIN_JOBS) == []


@pytest.mark.rule("start.copy-deleting")
def test_a_copy_that_is_being_deleted_refuses_the_start(world: World) -> None:
    _leave_copy(world)
    world.cluster.patch(TRAINING_RUNTIMES, "job-1", {"metadata": {"finalizers": ["a.b/c"]}}, NAMESPACE)
    world.cluster.delete(TRAINING_RUNTIMES, "job-1", NAMESPACE)
    with refused("start.copy-deleting"):
        start(world.backend())
    world.cluster.patch(TRAINING_RUNTIMES, "job-1", {"metadata": {"finalizers": None}}, NAMESPACE)


@pytest.mark.rule("start.copy-gone-again")
def test_a_copy_that_vanished_between_create_and_read_is_created_again_once(world: World) -> None:
    _leave_copy(world)
    backend = world.backend()
    world.wire.on("GET", COPY, before=lambda _: world.cluster.delete(TRAINING_RUNTIMES, "job-1", NAMESPACE))
    start(backend)
    assert sum(call.startswith("POST") and call.endswith("trainingruntimes") for call in world.requests()) == 2


@pytest.mark.rule("start.copy-flickers")
def test_a_copy_that_comes_and_goes_twice_is_nobodys_refusal(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("POST", COPIES + "$", 409, "AlreadyExists", times=2)
    with refused("start.copy-flickers") as caught:
        start(backend)
    assert record_start(caught[0]) is Recorded.UNKNOWN
    assert world.left() == {}


@pytest.mark.rule("request.no-answer")
def test_an_unanswered_read_of_the_copy_that_exists_is_unreachable(world: World) -> None:
    _leave_copy(world)
    backend = world.backend()
    world.wire.lose_answer("GET", COPY)
    with refused("request.no-answer"):
        start(backend)
    assert world.names(TRAIN_JOBS) == []


# Step 4: the TrainJob.


@pytest.mark.rule("start.create-unanswered", "in_flight.marked")
@pytest.mark.parametrize("received", [True, False])
def test_an_unanswered_create_is_unknown_and_in_flight_whether_it_was_received_or_not(
    world: World, received: bool
) -> None:
    backend = world.backend()
    lose = world.wire.lose_answer if received else world.wire.lose_request
    lose("POST", T_JOBS + "$")
    with refused("start.create-unanswered") as caught:
        start(backend)
    assert isinstance(caught[0], ErrOutcomeUnknown)
    assert record_start(caught[0]) is Recorded.UNKNOWN
    assert (world.names(TRAIN_JOBS) == ["job-1"]) is received
    found = backend.find("job", ctx=soon())
    if received:
        assert [each.ref.name for each in found.objects if each.ref.kind == "TrainJob"] == ["job-1"]
        assert found.in_flight == ()
    else:
        assert found.in_flight == (1,)
    posts = [call for call in world.wire.calls() if call.startswith("POST") and call.endswith("/trainjobs")]
    assert len(posts) == 1


@pytest.mark.rule("in_flight.elsewhere")
def test_another_backend_does_not_report_what_is_in_flight_here(world: World) -> None:
    backend = world.backend()
    world.wire.lose_request("POST", T_JOBS + "$")
    with refused("start.create-unanswered"):
        start(backend)
    assert world.backend().find("job", ctx=soon()).in_flight == ()


def test_an_interrupt_in_the_create_leaves_the_attempt_in_flight(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = world.backend()
    door = backend._adapter.door
    send = door.send

    def interrupted(request: Any, ctx: Context, *, operation: str) -> Any:
        if request.method == "POST" and request.resource is TRAIN_JOBS:
            raise KeyboardInterrupt
        return send(request, ctx, operation=operation)

    monkeypatch.setattr(door, "send", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(backend)
    assert backend.find("job", ctx=soon()).in_flight == (1,)


@pytest.mark.rule("start.create-exists")
def test_a_trainjob_that_exists_already_refuses_the_start_and_its_copy_stays(world: World) -> None:
    backend = world.backend()

    def race(_: Seen) -> None:
        body = {
            "metadata": {"name": "job-1"},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": True},
        }
        world.cluster.create(TRAIN_JOBS, body, NAMESPACE)

    world.wire.on("POST", T_JOBS + "$", before=race)
    with refused("start.create-exists", status=409) as caught:
        start(backend)
    assert record_start(caught[0]) is Recorded.REFUSED
    assert world.names(TRAINING_RUNTIMES) == ["job-1"]


@pytest.mark.parametrize(
    ("status", "reason", "rule"),
    [
        (422, "Invalid", "request.invalid"),
        (400, "BadRequest", "request.invalid"),
        (403, "Forbidden", "request.forbidden"),
        (401, "Unauthorized", "request.unauthenticated"),
        (409, "Conflict", "request.conflict"),
        (404, "NotFound", "request.path-not-found"),
    ],
)
@pytest.mark.rule("start.create-refused")
def test_a_definite_refusal_of_the_create_deletes_the_copy_and_gives_its_own_cause(
    world: World, status: int, reason: str, rule: str
) -> None:
    backend = world.backend()
    world.wire.refuse("POST", T_JOBS + "$", status, reason)
    with refused(rule, status=status):
        start(backend)
    assert world.left() == {}


def test_a_copy_that_could_not_be_deleted_after_a_refusal_is_told(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("POST", T_JOBS + "$", 422, "Invalid")
    world.wire.refuse("DELETE", COPY, 403, "Forbidden")
    with refused("request.invalid", copy_left="request.forbidden"):
        start(backend)
    assert world.names(TRAINING_RUNTIMES) == ["job-1"]


def test_a_reused_copy_is_not_deleted_by_a_refusal(world: World) -> None:
    _leave_copy(world)
    backend = world.backend()
    world.wire.refuse("POST", T_JOBS + "$", 422, "Invalid")
    with refused("request.invalid"):
        start(backend)
    assert world.names(TRAINING_RUNTIMES) == ["job-1"]


UNSEEN = (
    'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: spec.RuntimeRef: Invalid value: '
    '"x": TrainingRuntime.trainer.kubeflow.org "job-1" not found: specified trainingRuntime must be created before '
    "the TrainJob is created"
)


@pytest.mark.rule("start.runtime-unseen")
def test_a_denial_because_the_webhook_has_not_seen_the_copy_yet_is_tried_again(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("POST", T_JOBS + "$", 403, "Forbidden", UNSEEN, times=2)
    start(backend)
    assert sum(call.endswith("/trainjobs") for call in world.wire.calls() if call.startswith("POST")) == 3


@pytest.mark.rule("request.admission-denied")
def test_a_denial_that_lasts_is_an_admission_denial_and_the_copy_goes(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("POST", T_JOBS + "$", 403, "Forbidden", UNSEEN, times=99)
    with refused("request.admission-denied", webhook="validator.trainjob.trainer.kubeflow.org"):
        start(backend)
    assert world.left() == {}


@pytest.mark.rule("context.deadline")
def test_a_context_that_ends_between_the_tries_leaves_the_copy(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("POST", T_JOBS + "$", 403, "Forbidden", UNSEEN, times=99)
    with pytest.raises(DispatchError) as raised:
        backend.start("job", 1, spec(), ctx=soon(0.5))
    assert raised.value.row in {"context.deadline", "request.deadline"}
    assert world.names(TRAINING_RUNTIMES) == ["job-1"]
    assert world.names(TRAIN_JOBS) == []


# Step 5: the owner.


def test_a_conflict_over_the_owner_is_read_and_tried_again(world: World) -> None:
    backend = world.backend()

    def touch(_: Seen) -> None:
        world.cluster.patch(TRAINING_RUNTIMES, "job-1", {"metadata": {"labels": {"touched": "yes"}}}, NAMESPACE)

    world.wire.on("PATCH", COPY, before=touch)
    start(backend)


def test_an_unanswered_owner_that_was_set_is_done(world: World) -> None:
    backend = world.backend()
    world.wire.lose_answer("PATCH", COPY)
    start(backend)
    assert world.trainjob()["spec"]["suspend"] is True


@pytest.mark.rule("start.owner", "start.owner-stop")
def test_an_owner_that_is_refused_stops_the_trainjob(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("PATCH", COPY, 403, "Forbidden")
    with refused("start.owner") as caught:
        start(backend)
    assert record_start(caught[0]) is Recorded.REFUSED
    world.until(lambda: not world.left(), f"left: {world.left()}")


@pytest.mark.rule("start.owner", "start.owner-stop-unanswered")
def test_an_owner_that_went_unanswered_and_was_not_set_stops_the_trainjob(world: World) -> None:
    backend = world.backend()
    world.wire.lose_request("PATCH", COPY)
    with refused("start.owner"):
        start(backend)
    world.until(lambda: not world.left(), f"left: {world.left()}")


@pytest.mark.rule("start.stop-failed")
def test_a_stop_that_fails_too_makes_the_outcome_unknown(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("PATCH", COPY, 403, "Forbidden")
    world.wire.refuse("DELETE", T_JOB, 403, "Forbidden")
    with refused("start.stop-failed", refusal="start.owner") as caught:
        start(backend)
    assert record_start(caught[0]) is Recorded.UNKNOWN
    assert world.names(TRAIN_JOBS) == ["job-1"]


# Step 6: the read-back.


@pytest.mark.rule("start.changed", "start.changed-stop")
def test_a_trainjob_changed_since_it_was_written_is_stopped_and_the_difference_named(world: World) -> None:
    backend = world.backend()

    def meddle(_: Seen) -> None:
        patch = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}
        world.cluster.patch(TRAIN_JOBS, "job-1", patch, NAMESPACE)

    world.wire.on("GET", T_JOB, before=meddle)
    with refused("start.changed", difference="queue-name") as caught:
        start(backend)
    assert record_start(caught[0]) is Recorded.REFUSED
    world.until(lambda: not world.left(), f"left: {world.left()}")


def test_a_trainjob_that_somebody_unsuspended_is_refused_only_once_all_of_it_is_seen_gone(world: World) -> None:
    backend = world.backend()

    def meddle(_: Seen) -> None:
        world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"suspend": False}}, NAMESPACE)
        world.running()

    world.wire.on("GET", T_JOB, before=meddle)
    with refused("start.changed", difference="spec.suspend"):
        start(backend)
    assert not {"TrainJob", "JobSet", "Job", "Pod"} & set(world.left())


def test_a_trainjob_that_ran_and_whose_pods_hang_is_not_called_refused(world: World) -> None:
    from dispatch_kubeflow.backend.embedded.kubelet import Script

    world.cluster.kubelet.plan = Script(hang=True)  # type: ignore[attr-defined] # the scripted one
    backend = world.backend()

    def meddle(_: Seen) -> None:
        world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"suspend": False}}, NAMESPACE)
        world.running()

    world.wire.on("GET", T_JOB, before=meddle)
    with refused("start.stop-failed", refusal="start.changed") as caught:
        backend.start("job", 1, spec(), ctx=soon(2))
    assert not isinstance(caught[0], ErrRejected)
    assert len(world.names(PODS)) == 2


@pytest.mark.rule("start.read-back-unanswered")
@pytest.mark.parametrize("status", [500, 400])
def test_a_read_back_without_an_answer_leaves_the_job_gated_for_find(world: World, status: int) -> None:
    backend = world.backend()
    world.wire.refuse("GET", T_JOB, status, "Nope")
    with refused("start.read-back-unanswered", status=status) as caught:
        start(backend)
    assert record_start(caught[0]) is Recorded.UNKNOWN
    assert world.trainjob()["spec"]["suspend"] is True
    assert [each.state for each in backend.find("job", ctx=soon()).objects] == ["gated"]


@pytest.mark.rule("start.read-back-context")
def test_a_context_that_ends_before_the_read_back_leaves_the_job_gated(world: World) -> None:
    backend = world.backend()
    ctx = soon()
    world.wire.on("PATCH", COPY, after=lambda _: ctx.cancel(), nth=1)
    world.wire.on("GET", COPY, before=lambda _: None)
    with pytest.raises(DispatchError) as raised:
        backend.start("job", 1, spec(), ctx=ctx)
    assert raised.value.row in {"start.read-back-context", "start.stop-failed"}
    assert record_start(raised.value) is Recorded.UNKNOWN
    assert world.trainjob()["spec"]["suspend"] is True


@pytest.mark.rule("start.read-back-denied")
def test_a_read_back_that_is_forbidden_leaves_the_job_gated(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("GET", T_JOB, 403, "Forbidden")
    with refused("start.read-back-denied", status=403):
        start(backend)
    assert world.trainjob()["spec"]["suspend"] is True


@pytest.mark.rule("start.read-back-absent")
def test_a_trainjob_deleted_before_the_read_back_is_not_found(world: World) -> None:
    backend = world.backend()
    world.wire.on("GET", T_JOB, before=lambda _: world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE))
    with refused("start.read-back-absent"):
        start(backend)


@pytest.mark.rule("start.other-uid")
def test_a_trainjob_replaced_before_the_read_back_is_not_found(world: World) -> None:
    backend = world.backend()

    def replace(_: Seen) -> None:
        world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE)
        body = {"metadata": {"name": "job-1"}, "spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": True}}
        world.until(lambda: not world.names(TRAIN_JOBS))
        world.cluster.create(TRAIN_JOBS, body, NAMESPACE)

    world.wire.on("GET", T_JOB, before=replace)
    with refused("start.other-uid"):
        start(backend)


@pytest.mark.rule("start.wrong-kind", "start.wrong-kind-stop")
def test_a_trainjob_read_back_as_another_kind_is_stopped_first(world: World) -> None:
    backend = world.backend()
    body = {"apiVersion": "trainer.kubeflow.org/v2", "kind": "TrainJob", "metadata": {"name": "job-1"}, "spec": {}}
    world.wire.answer("GET", T_JOB, 200, body)
    with refused("start.wrong-kind", seen="v2"):
        start(backend)
    world.until(lambda: not world.left(), f"left: {world.left()}")


# The rows that any call has, by the first read of Start.


@pytest.mark.rule("request.wrong-kind")
def test_a_runtime_of_another_version_is_unsupported(world: World) -> None:
    backend = world.backend()
    body = {
        "apiVersion": "trainer.kubeflow.org/v9",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed"},
    }
    world.wire.answer("GET", "clustertrainingruntimes", 200, body)
    with refused("request.wrong-kind", seen="v9"):
        start(backend)


def test_concurrent_starts_of_one_attempt_create_one_trainjob(world: World) -> None:
    backends = [world.backend() for _ in range(3)]
    outcomes: list[str] = []
    gate = threading.Barrier(3)

    def race(index: int) -> None:
        gate.wait()
        try:
            outcomes.append(start(backends[index]).uid)
        except DispatchError as error:
            outcomes.append(error.row)

    threads = [threading.Thread(target=race, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.names(TRAIN_JOBS) == ["job-1"]
    uid = world.trainjob()["metadata"]["uid"]
    assert all(each == uid or each.startswith(("start.", "request.")) for each in outcomes)
