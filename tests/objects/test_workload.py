import pytest

from dispatch_kubeflow.backend.objects import names, seen, workload
from tests.objects import made
from tests.objects.made import condition
from tests.objects.samples import read, sample

CHECK = "dispatch-hold"


def real(name):
    return read(sample(f"kueue-{name}-workload"), seen.Workload)


@pytest.mark.parametrize(
    ("name", "enforces"),
    [
        ("gated", True),
        ("waiting", True),
        ("reserved-check-pending", True),
        ("too-big", True),
        ("held", True),
        ("inactive", True),
        ("preempted", True),
        ("running", False),
        ("readmitted", False),
        ("finished", False),
    ],
)
def test_real_workloads_keep_their_jobs_from_running_as_they_were_seen_to(name, enforces):
    assert workload.enforces(real(name), CHECK) is enforces


def test_a_check_put_back_beside_a_running_job_holds_nothing():
    assert not workload.enforces(made.workload(condition("Admitted"), check="Pending"), CHECK)


def test_a_workload_without_our_check_is_not_kept_by_it():
    assert not workload.enforces(made.workload(check=None), CHECK)
    assert not workload.enforces(made.workload(check="Pending"), "another-check")


def test_a_gate_of_anybody_keeps_a_workload_that_is_not_admitted():
    assert workload.enforces(made.workload(check="Ready", gated_by="acme.io/gate"), CHECK)
    assert not workload.enforces(made.workload(condition("Admitted"), check="Ready", gated_by="acme.io/gate"), CHECK)


def test_an_inactive_workload_keeps_its_job_whatever_else_it_shows():
    assert workload.enforces(made.workload(condition("Admitted"), check="Ready", active=False), CHECK)


@pytest.mark.parametrize(
    ("state", "fact"),
    [
        ("Pending", "pending"),
        ("Ready", "ready"),
        ("Retry", "retry"),
        ("Rejected", "rejected"),
        ("New", "pending"),
        (None, "absent"),
    ],
)
def test_the_state_of_our_check(state, fact):
    assert workload.check(made.workload(check=state), CHECK) == fact


def test_only_what_the_trainjob_controls_is_its_workload():
    ours, theirs = made.workload(), made.workload(owner="other-uid")
    assert workload.of("trainjob-uid", [theirs, ours, made.workload(controller=False)]) == (ours,)


def test_our_gate_is_told_from_others():
    assert workload.gated(real("gated"))
    assert workload.gated(made.workload(gated_by=f"acme.io/a, {names.KUEUE_GATE}"))
    assert not workload.gated(made.workload(gated_by="acme.io/a"))
    assert not workload.gated(made.workload())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gated", "AdmissionGated"),
        ("waiting", "Pending"),
        ("reserved-check-pending", "AdmissionChecks"),
        ("too-big", "Pending"),
        ("preempted", "Preempted"),
        ("inactive", "Deactivated"),
        ("clusterqueue-holdanddrain-running", "ClusterQueueStopped"),
    ],
)
def test_real_workloads_say_why_they_wait(name, reason):
    assert workload.waiting(real(name)).reason == reason


def test_a_hold_s_inactive_workload_is_told_from_somebody_else_s():
    assert workload.waiting(made.workload(active=False, held="4")).reason == "Held"
    assert "4" in workload.waiting(made.workload(active=False, held="4")).message
    assert workload.waiting(made.workload(active=False)).reason == "Deactivated"


def test_a_workload_with_quota_names_the_checks_it_waits_for():
    quota = condition("QuotaReserved")
    assert workload.waiting(made.workload(quota)).message == "quota is reserved; dispatch-hold is Pending"
    assert workload.waiting(made.workload(quota, check="Ready")).message.endswith("every admission check is Ready")


@pytest.mark.parametrize("name", ["running", "readmitted", "finished", "failed"])
def test_admitted_and_finished_workloads_wait_for_nothing(name):
    assert workload.waiting(real(name)) is None


def test_a_reason_that_kueue_does_not_give_is_still_said():
    assert workload.waiting(made.workload(condition("Evicted"))).reason == "Evicted"
    assert workload.waiting(made.workload(condition("QuotaReserved", "False"))).reason == "Pending"


@pytest.mark.parametrize(
    ("active", "held", "must"),
    [(True, None, True), (True, "4", True), (False, None, False), (False, "4", False), (False, "3", True)],
)
def test_a_hold_is_written_unless_it_stands_or_somebody_else_s_deactivation_does(active, held, must):
    assert workload.must_hold(made.workload(active=active, held=held), 4) is must


def test_holding_makes_it_inactive_under_the_instance():
    assert workload.hold_patch(made.workload(), 4) == {
        "metadata": {"uid": "workload-uid", "resourceVersion": "8", "annotations": {names.HELD: "4"}},
        "spec": {"active": False},
    }


@pytest.mark.parametrize(
    ("given_ones", "shown"),
    [
        ([], "none"),
        ([made.workload()], "no-gate"),
        ([made.workload(gated_by=names.KUEUE_GATE, check=None)], "no-check"),
        ([made.workload(gated_by=names.KUEUE_GATE)], "complete"),
    ],
)
def test_a_new_workload_is_complete_with_gate_and_check(given_ones, shown):
    assert workload.shows(given_ones, CHECK) == shown
