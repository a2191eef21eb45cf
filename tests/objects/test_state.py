import pytest

from dispatch_kubeflow.backend.objects import names, seen, state
from dispatch_kubeflow.backend.objects.state import View
from dispatch_kubeflow.backend.objects.workload import Waiting
from tests.objects.made import condition, failed, job, jobset, pod, succeeded, trainjob, workload
from tests.objects.samples import decide, end, read, sample

CHECK = "dispatch-hold"
COMPLETE = condition("Complete", reason="AllJobsCompleted")
FAILED = condition("Failed", reason="FailedJobs")
DEADLINE = condition("Failed", reason="DeadlineExceeded")


def facts(view, mode="plain"):
    return state.facts(view, mode=mode, check_name=CHECK)


def stated(view, mode="plain"):
    return decide(mode)("states", facts(view, mode).facts)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (View(trainjob(gate="closed", suspend=True)), "gated"),
        (View(trainjob(gate="closed", suspend=False)), "opened"),
        (View(trainjob(gate="closed", suspend=True), pods=[pod()]), "opened"),
        (View(trainjob(gate="closed", hold="1/released", suspend=True), pods=[succeeded()]), "opened"),
        (View(trainjob(gate="closed", hold="1/held", suspend=True), pods=[pod()]), "held"),
        (View(trainjob(hold="2/held", suspend=True)), "held"),
        (View(trainjob(hold="2/held", suspend=True), pods=[pod(deleted_at=5)]), "held"),
        (View(trainjob(hold="2/held", suspend=False)), "opened"),
        (View(trainjob(gate="closed", hold="2/held", suspend=True)), "held"),
        (View(trainjob()), "opened"),
        (View(trainjob(suspend=True)), "opened"),
        (View(trainjob(gate=None, suspend=True)), "opened"),
        (View(trainjob(COMPLETE), jobset()), "ended"),
        (View(trainjob(FAILED), jobset()), "ended"),
        (View(trainjob(FAILED), None), "opened"),
        (View(trainjob(FAILED), jobset(owner="other-uid")), "opened"),
        (View(trainjob(FAILED), jobset(deletionTimestamp="2026-11-29T21:00:00Z")), "opened"),
        (View(trainjob(COMPLETE), None), "ended"),
        (View(trainjob(COMPLETE), jobset(owner="other-uid")), "opened"),
        (View(trainjob(COMPLETE, gate="closed", suspend=True), None), "gated"),
        (View(trainjob(DEADLINE), None), "ended"),
    ],
)
def test_the_state_in_plain_mode(view, expected):
    assert stated(view) == expected


@pytest.mark.parametrize(
    ("record", "found", "expected"),
    [
        ({"gate": "closed", "suspend": True}, [], "gated"),
        ({"gate": "closed", "suspend": False}, [], "opened"),
        ({"gate": "closed", "suspend": True}, [workload(gated_by=names.KUEUE_GATE)], "gated"),
        ({"gate": "closed", "suspend": True}, [workload(check="Ready")], "opened"),
        ({"hold": "1/held", "suspend": True}, [workload(active=False, held="1")], "held"),
        ({"hold": "1/held", "suspend": False}, [workload(active=False, held="1")], "held"),
        ({"hold": "1/held", "suspend": True}, [workload(check="Pending")], "held"),
        ({"hold": "1/held", "suspend": True}, [workload(condition("Admitted"), check="Ready")], "opened"),
        ({"hold": "1/held", "suspend": True}, [workload(active=False), workload(check="Ready")], "opened"),
        ({"suspend": True}, [workload(check="Pending")], "opened"),
    ],
)
def test_the_state_in_kueue_mode(record, found, expected):
    assert stated(View(trainjob(**record), workloads=found), "kueue") == expected


@pytest.mark.parametrize(
    ("name", "terminal"),
    [("success", "complete"), ("exit3", "failed"), ("deadline-trainjob", "deadline"), ("image-stuck", "none")],
)
def test_the_terminal_condition_of_real_endings(name, terminal):
    assert state.terminal(end(name).trainjob) == terminal


@pytest.mark.parametrize("name", ["success", "exit3", "deadline-trainjob", "deadline-job", "oom", "evict-api"])
def test_real_endings_are_ended(name):
    seen_end = end(name)
    assert stated(View(seen_end.trainjob, seen_end.jobset, seen_end.jobs, seen_end.listed)) == "ended"


def test_a_job_on_a_silent_node_has_not_ended_but_is_failing():
    seen_end = end("node-not-ready")
    view = View(seen_end.trainjob, seen_end.jobset, seen_end.jobs, seen_end.listed)
    assert stated(view) == "opened"
    assert state.failing(view.jobs)


def test_a_job_that_has_failed_is_no_longer_failing():
    assert not state.failing(end("exit3").jobs)
    assert not state.failing([])


def test_with_both_terminal_conditions_success_is_not_shown():
    assert state.terminal(trainjob(COMPLETE, FAILED)) == "failed"


def test_a_terminal_condition_that_is_not_true_is_none():
    assert state.terminal(trainjob(condition("Failed", "False"), condition("Complete", "Unknown"))) == "none"


def test_a_jobset_without_an_owner_is_not_this_trainjobs():
    assert state.jobset_fact(trainjob(), jobset(owner=None)) == "other"
    assert state.jobset_fact(trainjob(uid=""), jobset(owner="")) == "other"


def test_deletion_begun_is_a_fact():
    assert facts(View(trainjob(deletionTimestamp="2026-11-29T21:00:00Z"))).deleting == "yes"
    assert facts(View(trainjob())).deleting == "no"


def test_a_real_held_job_without_our_record_is_not_called_held():
    assert stated(View(read(sample("held-one-succeeded-trainjob"), seen.TrainJob))) == "opened"


def drift(view, mode="plain", *, ended=False):
    return [str(each) for each in state.drift(view, mode=mode, ended=ended, check_name=CHECK)]


@pytest.mark.parametrize("mode", ["plain", "kueue"])
def test_pods_beside_a_closed_gate_are_drift(mode):
    view = View(trainjob(gate="closed", suspend=True), pods=[pod(), pod("p1")])
    assert drift(view, mode) == ["pods is 2, the record wants 0"]


def test_pods_beside_a_hold_are_no_drift():
    assert drift(View(trainjob(gate="closed", hold="1/held", suspend=True), pods=[pod()])) == []
    assert drift(View(trainjob(hold="1/held", suspend=True), pods=[pod()])) == []


def test_a_suspend_unlike_the_record_is_drift():
    assert drift(View(trainjob(suspend=True))) == ["spec.suspend is true, the record wants false"]
    assert drift(View(trainjob(hold="1/held"))) == ["spec.suspend is false, the record wants true"]


@pytest.mark.parametrize(
    "view",
    [
        View(trainjob()),
        View(trainjob(gate="closed", suspend=True)),
        View(trainjob(gate=None, suspend=True)),
        View(trainjob(suspend=True, deletionTimestamp="2026-11-29T21:00:00Z")),
    ],
)
def test_a_job_as_its_record_wants_it_or_without_a_readable_one_does_not_drift(view):
    assert drift(view) == []


def test_an_ended_job_does_not_drift():
    assert drift(View(trainjob(suspend=True)), ended=True) == []


@pytest.mark.parametrize(
    ("record", "found", "expected"),
    [
        (
            {"gate": "closed", "suspend": True},
            workload(check="Ready"),
            ["Workload trainjob-resnet-1-abcde is free to run, the record wants kept from running"],
        ),
        (
            {"hold": "1/held", "suspend": True},
            workload(check="Pending"),
            ["Workload trainjob-resnet-1-abcde spec.active is true, the record wants false"],
        ),
        (
            {"suspend": True},
            workload(active=False),
            ["Workload trainjob-resnet-1-abcde spec.active is false, by somebody else, the record wants true"],
        ),
        ({"suspend": True}, workload(active=False, held="1"), []),
        ({"suspend": True}, workload(), []),
        (
            {"hold": "1/held", "suspend": False},
            workload(active=False),
            ["spec.suspend is false, the record wants true"],
        ),
        ({"gate": "closed", "suspend": True}, workload(gated_by=names.KUEUE_GATE), []),
    ],
)
def test_drift_in_kueue_mode(record, found, expected):
    assert drift(View(trainjob(**record), workloads=[found]), "kueue") == expected


@pytest.mark.parametrize(("name", "reason"), [("image-stuck", "ImagePullBackOff"), ("unschedulable", "Unschedulable")])
def test_real_pods_say_why_a_job_waits(name, reason):
    seen_end = end(name)
    assert state.waiting(View(seen_end.trainjob, pods=seen_end.listed)).reason == reason


@pytest.mark.parametrize("reason", ["RunContainerError", "CreateContainerError"])
def test_a_container_that_cannot_be_run_waits_without_its_command_being_shown(reason):
    told = {"reason": reason, "message": 'exec: "train --token=s3cr3t": executable file not found in $PATH'}
    waits = pod(phase="Pending", container={"waiting": told})
    assert state.waiting(View(trainjob(), pods=[waits])) == Waiting(reason, "container node")


def test_a_container_whose_configuration_is_missing_says_what_is():
    told = {"reason": "CreateContainerConfigError", "message": 'secret "token" not found'}
    waits = pod(phase="Pending", container={"waiting": told})
    assert "not found" in state.waiting(View(trainjob(), pods=[waits])).message


def test_the_workload_says_why_a_job_waits_before_its_pods_do():
    unschedulable = pod(phase="Pending", container={}, conditions=[condition("PodScheduled", "False", "Unschedulable")])
    view = View(trainjob(), pods=[unschedulable], workloads=[workload(condition("Admitted"))])
    assert state.waiting(view).reason == "Unschedulable"
    view = View(trainjob(), pods=[unschedulable], workloads=[workload(condition("Evicted", reason="Preempted"))])
    assert state.waiting(view).reason == "Preempted"


@pytest.mark.parametrize(
    "calm",
    [
        pod(),
        succeeded(),
        failed(),
        pod(phase="Pending", container={"waiting": {"reason": "ContainerCreating"}}),
        pod(phase="Pending", container={"waiting": {"reason": "ErrImagePull"}}, deleted_at=1),
    ],
)
def test_a_pod_that_runs_has_ended_or_is_only_slow_waits_for_nothing(calm):
    assert state.waiting(View(trainjob(), pods=[calm])) is None


def test_pods_are_counted_by_phase_and_those_being_deleted_apart():
    pods = [pod(), pod(phase="Pending"), succeeded(), failed(), failed(deleted_at=1), pod(phase="Odd"), pod(phase="")]
    counts = state.count(pods)
    assert (counts.running, counts.pending, counts.succeeded, counts.failed, counts.terminating, counts.unknown) == (
        1,
        1,
        1,
        1,
        1,
        2,
    )
    assert counts.total == 7


def test_a_jobs_failing_needs_its_failure_target():
    assert state.failing([job(condition("FailureTarget"))])
    assert not state.failing([job(condition("FailureTarget"), condition("Failed"))])
