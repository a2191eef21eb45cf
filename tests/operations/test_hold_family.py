"""Open, Hold and Release: contract section 7, in plain mode."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dispatch_kubeflow.backend import ObjectRef
from dispatch_kubeflow.backend.embedded.kubelet import Script
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from dispatch_kubeflow.machine import ErrPodsRemain, ErrRejected, ErrStaleHold, ErrUnreachable

from .wire import Seen
from .world import COPY, NAMESPACE, T_JOB, World, refused, soon, spec, start


def _record(world: World) -> tuple[str, str, bool]:
    job = world.trainjob()
    annotations = job["metadata"]["annotations"]
    return (
        annotations["dispatch-kubeflow.io/gate"],
        annotations["dispatch-kubeflow.io/hold"],
        job["spec"]["suspend"],
    )


def _no_pods(world: World) -> None:
    world.until(lambda: not world.names(PODS), "the pods never went")


def _all_rest(world: World) -> None:
    """Until nothing of the job can run: no pods, and its Job says that none terminates."""

    def rests() -> bool:
        jobs = world.cluster.list(JOBS, NAMESPACE)
        return not world.names(PODS) and all(not each["status"].get("terminating") for each in jobs)

    world.until(rests, "the job never came to rest")


def _release(backend: Backend, ref: ObjectRef, instance: int, world: World) -> None:
    """Release, called again as the caller of ErrPodsRemain should."""

    def released() -> bool:
        try:
            backend.release(ref, instance, ctx=soon())
        except ErrPodsRemain:
            return False
        return True

    world.until(released, "the release never came through")


# Requests.


def test_open_makes_four_requests(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.calm()
    world.cluster.apiserver.requests.clear()
    backend.open(ref, ctx=soon())
    assert [call.split("/")[0] + call.rpartition("/")[2] for call in world.requests()] == [
        "GET trainjobs",
        "GET job-1",
        "GET pods",
        "PATCH job-1",
    ]


def test_hold_makes_two_requests(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.calm()
    world.cluster.apiserver.requests.clear()
    backend.hold(ref, 1, ctx=soon())
    assert [call.split()[0] for call in world.requests()] == ["GET", "PATCH"]


def test_release_makes_five_requests_the_pods_last_before_the_patch(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.running()
    backend.hold(ref, 1, ctx=soon())
    _all_rest(world)
    world.calm()
    world.cluster.apiserver.requests.clear()
    backend.release(ref, 1, ctx=soon())
    assert [call.split("/")[0] + call.rpartition("/")[2] for call in world.requests()] == [
        "GET trainjobs",
        "GET job-1",
        "GET jobs",
        "GET pods",
        "PATCH job-1",
    ]


# The register and the gate.


def test_a_job_goes_gated_opened_held_released(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    assert _record(world) == ("closed", "none", True)
    backend.open(ref, ctx=soon())
    assert _record(world) == ("lifted", "none", False)
    first = {pod["metadata"]["uid"] for pod in world.running()}
    backend.hold(ref, 4, ctx=soon())
    assert _record(world) == ("lifted", "4/held", True)
    _release(backend, ref, 4, world)
    assert _record(world) == ("lifted", "4/released", False)
    second = {pod["metadata"]["uid"] for pod in world.running()}
    assert not first & second


@pytest.mark.rule("object.stale-hold", "object.stale-hold-again", "object.release-without-hold", "object.stale-release")
@pytest.mark.parametrize("register", ["none", "5/held", "5/released"])
@pytest.mark.parametrize("call", ["hold", "release"])
@pytest.mark.parametrize("instance", [4, 5, 6])
def test_the_register_answers_every_call_as_the_contracts_table(
    world: World, register: str, call: str, instance: int
) -> None:
    backend = world.backend()
    ref = start(backend)
    world.annotate("job-1", hold=register)
    wanted = {
        ("hold", "none"): {4: "4/held", 5: "5/held", 6: "6/held"},
        ("hold", "5/held"): {5: "5/held"},
        ("hold", "5/released"): {6: "6/held"},
        ("release", "none"): {},
        ("release", "5/held"): {5: "5/released"},
        ("release", "5/released"): {5: "5/released"},
    }[call, register]
    method = getattr(backend, call)
    if instance in wanted:
        method(ref, instance, ctx=soon())
        assert _record(world) == ("closed", wanted[instance], True)
        return
    with pytest.raises(ErrStaleHold) as raised:
        method(ref, instance, ctx=soon())
    assert isinstance(raised.value, ErrRejected)
    assert raised.value.details["instance"] == instance
    assert raised.value.details["instance_in_force"] == ("none" if register == "none" else 5)
    assert _record(world) == ("closed", register, True)


def test_a_repeated_call_writes_nothing(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.calm()
    backend.hold(ref, 1, ctx=soon())
    backend.hold(ref, 1, ctx=soon())
    backend.release(ref, 1, ctx=soon())
    backend.release(ref, 1, ctx=soon())
    backend.open(ref, ctx=soon())
    backend.open(ref, ctx=soon())
    patches = [call for call in world.requests() if call.startswith("PATCH") and call.endswith("trainjobs/job-1")]
    assert len(patches) == 3


def test_opening_a_held_job_lifts_the_gate_and_the_hold_stays(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.hold(ref, 1, ctx=soon())
    backend.open(ref, ctx=soon())
    assert _record(world) == ("lifted", "1/held", True)
    backend.release(ref, 1, ctx=soon())
    assert _record(world) == ("lifted", "1/released", False)
    world.running()


def test_releasing_a_gated_job_clears_the_hold_and_the_gate_stays(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.hold(ref, 1, ctx=soon())
    backend.release(ref, 1, ctx=soon())
    assert _record(world) == ("closed", "1/released", True)
    assert world.names(PODS) == []


@pytest.mark.parametrize(("call", "suspend"), [("open", True), ("hold", False)])
def test_a_suspend_that_is_not_what_the_record_says_is_written_right(world: World, call: str, suspend: bool) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    if call == "hold":
        backend.hold(ref, 1, ctx=soon())
    world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"suspend": suspend}}, NAMESPACE)
    if call == "hold":
        backend.hold(ref, 1, ctx=soon())
        assert _record(world)[2] is True
    else:

        def opened() -> bool:
            try:
                backend.open(ref, ctx=soon())
            except ErrPodsRemain:
                return False
            return True

        world.until(opened)
        assert _record(world)[2] is False


# What has ended.


@pytest.mark.rule("object.ended-unopened", "object.ended-opened", "object.hold-ended")
def test_open_and_hold_on_an_ended_job_are_refused_in_the_pages_words(world: World) -> None:
    world.cluster.kubelet.plan = Script(run=0.05)  # type: ignore[attr-defined] # the scripted one
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.until(lambda: [c for c in world.trainjob()["status"].get("conditions", []) if c["type"] == "Complete"])
    with refused("object.ended-opened") as caught:
        backend.open(ref, ctx=soon())
    assert "has run and ended" in str(caught[0])
    with refused("object.hold-ended"):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("object.ended-unopened")
def test_open_on_a_job_whose_deletion_has_begun_ended_without_being_opened(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.cluster.patch(TRAIN_JOBS, "job-1", {"metadata": {"finalizers": ["a.b/c"]}}, NAMESPACE)
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE)
    with refused("object.ended-unopened") as caught:
        backend.open(ref, ctx=soon())
    assert "ended without being opened" in str(caught[0])
    world.cluster.patch(TRAIN_JOBS, "job-1", {"metadata": {"finalizers": None}}, NAMESPACE)


def test_releasing_an_ended_job_writes_only_the_record(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.running()
    backend.hold(ref, 1, ctx=soon())
    _all_rest(world)
    jobset = world.get(JOB_SETS, "job-1")
    assert jobset is not None
    condition = {"type": "Complete", "status": "True", "reason": "AllJobsCompleted", "message": "done"}
    jobset["status"]["conditions"] = [{**condition, "type": "Completed", "lastTransitionTime": "2026-11-29T00:00:00Z"}]
    world.cluster.store.update(JOB_SETS, jobset, "status")
    world.until(lambda: [c for c in world.trainjob()["status"].get("conditions", []) if c["type"] == "Complete"])
    backend.release(ref, 1, ctx=soon())
    assert _record(world) == ("lifted", "1/released", True)


def test_a_completed_copied_from_another_jobs_jobset_is_not_believed(world: World) -> None:
    """Trainer finds JobSets by name alone: the end of another TrainJob's must not close this one's gate."""
    backend = world.backend()
    ref = start(backend)
    world.until(lambda: world.names(JOB_SETS))
    jobset = world.get(JOB_SETS, "job-1")
    assert jobset is not None
    other = {**jobset["metadata"]["ownerReferences"][0], "uid": "00000000-0000-0000-0000-000000000000"}
    world.cluster.take_down("trainer")
    world.cluster.take_down("kube-controller-manager")
    job = world.trainjob()
    condition = {"type": "Complete", "status": "True", "reason": "AllJobsCompleted", "message": "another's"}
    job["status"]["conditions"] = [{**condition, "lastTransitionTime": "2026-11-29T00:00:00Z"}]
    world.cluster.store.update(TRAIN_JOBS, job, "status")
    world.cluster.patch(JOB_SETS, "job-1", {"metadata": {"ownerReferences": [other]}}, NAMESPACE)
    world.cluster.admission.set_down(False)
    backend.hold(ref, 1, ctx=soon())
    assert _record(world) == ("closed", "1/held", True)


# Whose and what.


@pytest.mark.rule("object.other-uid")
@pytest.mark.parametrize("call", ["open", "hold", "release"])
def test_a_name_that_another_instance_holds_is_not_found(world: World, call: str) -> None:
    backend = world.backend()
    ref = start(backend)
    other = ObjectRef(ref.backend, ref.namespace, ref.kind, ref.name, "11111111-1111-1111-1111-111111111111")
    with refused("object.other-uid", seen=ref.uid):
        getattr(backend, call)(other, *([] if call == "open" else [1]), ctx=soon())


@pytest.mark.rule("request.not-found")
@pytest.mark.parametrize("call", ["open", "hold", "release"])
def test_a_job_that_is_gone_is_not_found(world: World, call: str) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.stop(ref, ctx=soon())
    world.until(lambda: not world.names(TRAIN_JOBS))
    with refused("request.not-found"):
        getattr(backend, call)(ref, *([] if call == "open" else [1]), ctx=soon())


@pytest.mark.rule("object.record-unreadable", "object.hold-record-unreadable", "object.other-mode")
@pytest.mark.parametrize(
    ("annotation", "value", "rule"),
    [
        ("gate", None, "object.record-unreadable"),
        ("gate", "ajar", "object.record-unreadable"),
        ("mode", None, "object.record-unreadable"),
        ("hold", None, "object.hold-record-unreadable"),
        ("hold", "01/held", "object.hold-record-unreadable"),
        ("hold", "1/holding", "object.hold-record-unreadable"),
        ("mode", "kueue", "object.other-mode"),
    ],
)
def test_a_record_that_cannot_be_read_refuses_every_call(
    world: World, annotation: str, value: str | None, rule: str
) -> None:
    backend = world.backend()
    ref = start(backend)
    world.annotate("job-1", **{annotation: value})
    with refused(rule):
        backend.open(ref, ctx=soon())
    with refused(rule):
        backend.hold(ref, 1, ctx=soon())
    with refused(rule):
        backend.release(ref, 1, ctx=soon())


# Open: the copy, and what was written.


@pytest.mark.rule("open.copy-lost")
def test_open_without_its_runtime_copy_is_refused(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.cluster.delete(TRAINING_RUNTIMES, "job-1", NAMESPACE)
    with refused("open.copy-lost", state="gone"):
        backend.open(ref, ctx=soon())


@pytest.mark.rule("open.copy-lost")
def test_open_with_a_copy_that_is_being_deleted_is_refused(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.cluster.patch(TRAINING_RUNTIMES, "job-1", {"metadata": {"finalizers": ["a.b/c"]}}, NAMESPACE)
    world.cluster.delete(TRAINING_RUNTIMES, "job-1", NAMESPACE)
    with refused("open.copy-lost", state="being deleted"):
        backend.open(ref, ctx=soon())
    world.cluster.patch(TRAINING_RUNTIMES, "job-1", {"metadata": {"finalizers": None}}, NAMESPACE)


@pytest.mark.rule("open.copy-lost")
def test_open_with_a_copy_that_another_owns_is_refused(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    made = world.cluster.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, NAMESPACE)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": made["metadata"]["uid"]}
    world.cluster.patch(TRAINING_RUNTIMES, "job-1", {"metadata": {"ownerReferences": [owner]}}, NAMESPACE)
    with refused("open.copy-lost", seen="ConfigMap mine"):
        backend.open(ref, ctx=soon())


def test_a_job_found_after_an_unknown_start_becomes_safe_by_being_opened(world: World) -> None:
    backend = world.backend()
    world.wire.lose_answer("POST", r"/trainjobs$")
    with refused("start.create-unanswered"):
        start(backend)
    found = backend.find("job", ctx=soon())
    ref = next(each.ref for each in found.objects if each.ref.kind == "TrainJob")
    backend.open(ref, ctx=soon())
    copy = world.get(TRAINING_RUNTIMES, "job-1")
    assert copy is not None
    assert [owner["uid"] for owner in copy["metadata"]["ownerReferences"]] == [ref.uid]
    world.running()


@pytest.mark.rule("open.changed")
def test_open_on_a_job_that_is_not_what_was_written_is_refused(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    patch = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}
    world.cluster.patch(TRAIN_JOBS, "job-1", patch, NAMESPACE)
    with refused("open.changed", difference="digest"):
        backend.open(ref, ctx=soon())
    assert _record(world) == ("closed", "none", True)


@pytest.mark.rule("open.changed")
def test_open_on_a_job_that_was_given_a_deadline_of_its_own_is_refused(world: World) -> None:
    backend = world.backend()
    ref = start(backend, deadline_seconds=3600)
    world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"activeDeadlineSeconds": 60}}, NAMESPACE)
    with refused("open.changed", difference="digest"):
        backend.open(ref, ctx=soon())
    assert _record(world) == ("closed", "none", True)


@pytest.mark.rule("open.copy-lost")
@pytest.mark.parametrize("seconds", [None, 7200])
def test_open_on_a_copy_whose_deadline_is_not_what_start_wrote_is_refused(world: World, seconds: int | None) -> None:
    backend = world.backend()
    ref = start(backend, deadline_seconds=3600)
    copy = world.get(TRAINING_RUNTIMES, "job-1")
    assert copy is not None
    jobs = copy["spec"]["template"]["spec"]["replicatedJobs"]
    assert [each["template"]["spec"]["activeDeadlineSeconds"] for each in jobs] == [3600]
    jobs[0]["template"]["spec"]["activeDeadlineSeconds"] = seconds
    change = {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    world.cluster.patch(TRAINING_RUNTIMES, "job-1", change, NAMESPACE)
    with refused("open.copy-lost", state="not what Start wrote, by its digest"):
        backend.open(ref, ctx=soon())
    assert _record(world) == ("closed", "none", True)


# C25: nothing of the job may still run when its pods are to start.


@pytest.mark.rule("open.pods-remain")
def test_a_release_while_pods_stop_is_to_be_called_again_and_writes_nothing(world: World) -> None:
    world.cluster.kubelet.plan = Script(stop_after=0.6)  # type: ignore[attr-defined] # the scripted one
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.running()
    backend.hold(ref, 1, ctx=soon())
    before = world.trainjob()["metadata"]["annotations"]
    with refused("open.pods-remain", left="job-1-node-0-") as caught:
        backend.release(ref, 1, ctx=soon())
    assert isinstance(caught[0], ErrUnreachable)
    assert world.trainjob()["metadata"]["annotations"] == before
    _release(backend, ref, 1, world)
    pods = world.running()
    assert len(pods) == 2


@pytest.mark.rule("open.other-attempt")
def test_opening_while_pods_of_another_attempt_run_is_refused(world: World) -> None:
    backend = world.backend()
    first = start(backend)
    backend.open(first, ctx=soon())
    world.running()
    second = start(backend, attempt=2)
    with refused("open.other-attempt", left="TrainJob job-1"):
        backend.open(second, ctx=soon())
    assert world.trainjob("job-2")["spec"]["suspend"] is True


@pytest.mark.rule("open.controller-active")
def test_a_release_is_refused_while_the_jobset_is_not_suspended_although_no_pod_is_there(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())
    world.running()
    backend.hold(ref, 1, ctx=soon())
    _all_rest(world)
    world.cluster.take_down("trainer")
    world.cluster.take_down("jobset")
    world.cluster.take_down("kube-controller-manager")
    world.cluster.admission.set_down(False)
    world.cluster.patch(JOB_SETS, "job-1", {"spec": {"suspend": False}}, NAMESPACE)
    with refused("open.controller-active", left="JobSet job-1"):
        backend.release(ref, 1, ctx=soon())


def test_a_succeeded_pod_rests_and_does_not_stand_in_a_releases_way(world: World) -> None:
    def plan(pod: dict[str, Any], _: str) -> Script:
        index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        return Script(run=0.05) if index == "0" else Script(stop_after=0.05)

    world.cluster.kubelet.plan = plan  # type: ignore[attr-defined] # the scripted one
    backend = world.backend()
    ref = start(backend)
    backend.open(ref, ctx=soon())

    def one_ended() -> bool:
        phases = sorted(pod["status"].get("phase", "") for pod in world.cluster.list(PODS, NAMESPACE))
        return phases == ["Running", "Succeeded"]

    world.until(one_ended)
    backend.hold(ref, 1, ctx=soon())
    _release(backend, ref, 1, world)
    assert _record(world)[2] is False


# Conflicts and lost answers.


def test_a_conflict_is_judged_anew_and_tried_again(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.calm()
    touches = itertools.count()

    def touch(_: Seen) -> None:
        patch = {"metadata": {"labels": {"touched": str(next(touches))}}}
        world.cluster.patch(TRAIN_JOBS, "job-1", patch, NAMESPACE)

    world.wire.on("PATCH", T_JOB, times=7, before=touch)
    backend.hold(ref, 1, ctx=soon())
    assert _record(world) == ("closed", "1/held", True)


@pytest.mark.rule("open.conflicts")
@pytest.mark.parametrize("call", ["open", "hold"])
def test_eight_conflicts_are_a_refusal(world: World, call: str) -> None:
    backend = world.backend()
    ref = start(backend)
    world.calm()
    touches = itertools.count()

    def touch(_: Seen) -> None:
        patch = {"metadata": {"labels": {"touched": str(next(touches))}}}
        world.cluster.patch(TRAIN_JOBS, "job-1", patch, NAMESPACE)

    world.wire.on("PATCH", T_JOB, times=8, before=touch)
    with refused("open.conflicts", tries=8) as caught:
        getattr(backend, call)(ref, *([] if call == "open" else [1]), ctx=soon())
    assert caught[0].__cause__ is not None
    assert _record(world) == ("closed", "none", True)


def test_a_newer_hold_between_the_tries_is_seen(world: World) -> None:
    backend = world.backend()
    ref = start(backend)

    def newer(_: Seen) -> None:
        world.annotate("job-1", hold="9/held")

    world.wire.on("PATCH", T_JOB, before=newer)
    with refused("object.stale-hold", instance_in_force=9):
        backend.hold(ref, 1, ctx=soon())


@pytest.mark.rule("request.outcome-unknown")
@pytest.mark.parametrize("received", [True, False])
@pytest.mark.parametrize("call", ["open", "hold"])
def test_an_unanswered_patch_is_unknown_and_the_call_can_be_repeated(world: World, call: str, received: bool) -> None:
    backend = world.backend()
    ref = start(backend)
    lose = world.wire.lose_answer if received else world.wire.lose_request
    lose("PATCH", T_JOB)
    arguments = [] if call == "open" else [1]
    with refused("request.outcome-unknown"):
        getattr(backend, call)(ref, *arguments, ctx=soon())
    applied = _record(world) != ("closed", "none", True)
    assert applied is received
    getattr(backend, call)(ref, *arguments, ctx=soon())
    assert _record(world) == (("lifted", "none", False) if call == "open" else ("closed", "1/held", True))


def test_an_owner_that_cannot_be_set_is_told_as_its_request(world: World) -> None:
    backend = world.backend()
    world.wire.lose_answer("POST", r"/trainjobs$")
    with refused("start.create-unanswered"):
        start(backend)
    ref = next(each.ref for each in backend.find("job", ctx=soon()).objects if each.ref.kind == "TrainJob")
    world.wire.refuse("PATCH", COPY, 403, "Forbidden")
    with refused("request.forbidden"):
        backend.open(ref, ctx=soon())
    assert _record(world) == ("closed", "none", True)
    assert spec().nodes == 2
