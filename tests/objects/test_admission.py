import pytest

from dispatch_kubeflow.backend.objects import admission, names, seen
from dispatch_kubeflow.backend.requests.resources import ADMISSION_CHECKS, WORKLOADS
from dispatch_kubeflow.machine.rules import rulebook
from tests.objects import made
from tests.objects.made import condition, job, jobset, pod, succeeded
from tests.objects.samples import label, read, sample

CHECK = "dispatch-hold"
OURS = {CHECK}
AT = "2026-11-29T21:44:47Z"
QUOTA = condition("QuotaReserved")
SUSPENDED = condition("Suspended")


def trainjob(
    gate="lifted",
    hold="none",
    *,
    mode="kueue",
    name="resnet-1",
    uid="trainjob-uid",
    suspend=True,
    conditions=(),
    **meta,
):
    annotations = {names.GATE: gate, names.HOLD: hold, names.MODE: mode}
    written = {key: value for key, value in annotations.items() if value is not None}
    obj = {
        "metadata": {"name": name, "uid": uid, **meta},
        "spec": {"suspend": suspend},
        "status": {"conditions": list(conditions)},
    }
    return read(label(obj, attempt=1, annotations=written), seen.TrainJob)


def bare(**metadata):
    return seen.read({"metadata": {"name": "resnet-1", "uid": "trainjob-uid", **metadata}}, seen.TrainJob)


def decided(workload, found, **more):
    return rulebook().decide("admission", **admission.facts(workload, found, OURS), **more)


def given(*conditions, found=None, **workload):
    return made.workload(*conditions, **workload), trainjob() if found is None else found


@pytest.mark.parametrize(
    ("rule", "does", "given_ones"),
    [
        ("over", "nothing", given(condition("Finished"), check="Pending")),
        ("no-check", "nothing", given(check=None)),
        ("not-ours", "ready", given(found=bare())),
        ("not-ours-answered", "nothing", given(found=bare(), check="Ready")),
        ("not-ours-answered", "nothing", given(found=bare(), check="Rejected")),
        ("trainjob-absent", "nothing", given(found=trainjob(uid="another-uid"))),
        ("unreadable", "nothing", given(QUOTA, found=trainjob("open"))),
        ("unreadable", "nothing", given(QUOTA, found=trainjob(mode="plain"))),
        ("unreadable", "nothing", given(QUOTA, found=trainjob(mode=None))),
        ("unreadable", "nothing", given(QUOTA, found=trainjob(name="resnet-2"))),
        ("hold", "deactivate", given(found=trainjob(hold="3/held"))),
        ("hold", "deactivate", given(found=trainjob("closed", "3/held"), held="2")),
        ("held", "nothing", given(found=trainjob(hold="3/held"), active=False, held="2")),
        ("held", "nothing", given(found=trainjob(hold="3/held"), active=False)),
        ("forget", "forget", given(found=trainjob(hold="3/released"), held="3")),
        ("release-look", "look", given(found=trainjob(hold="3/released"), held="3", active=False)),
        ("release-ended", "nothing", given(found=trainjob(deletionTimestamp=AT), held="3", active=False)),
        ("deactivated", "nothing", given(QUOTA, active=False)),
        ("gated", "nothing", given(QUOTA, found=trainjob("closed"))),
        ("ending", "nothing", given(QUOTA, found=trainjob(conditions=[condition("Failed")]))),
        ("answered", "nothing", given(QUOTA, check="Ready")),
        ("answered", "nothing", given(QUOTA, check="Retry")),
        ("runs", "nothing", given(QUOTA, condition("Admitted"))),
        ("not-yet", "nothing", given()),
        ("not-yet", "nothing", given(QUOTA, condition("Admitted"), condition("Evicted"))),
        ("start-look", "look", given(QUOTA, condition("Evicted", "False"))),
    ],
)
def test_what_is_done_with_a_workload(rule, does, given_ones):
    decision = decided(*given_ones)
    assert (decision.id, decision.gives) == (f"admission.{rule}", does)


@pytest.mark.parametrize("rest", ["pods-remain", "other-attempt", "controller-active"])
def test_nothing_starts_beside_what_can_still_run(rest):
    assert decided(*given(QUOTA), rest=rest).id == "admission.start-waits"
    assert decided(*given(held="3", active=False), rest=rest).id == "admission.release-waits"


def test_what_rests_may_start():
    assert decided(*given(QUOTA), rest="rests").gives == "ready"
    assert decided(*given(held="3", active=False), rest="rests").gives == "activate"


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("gated", "no-quota"),
        ("waiting", "no-quota"),
        ("reserved-check-pending", "quota"),
        ("running", "admitted"),
        ("preempted", "evicted"),
        ("inactive", "evicted"),
        ("held", "quota"),
    ],
)
def test_how_far_kueue_has_come_with_real_workloads(name, fact):
    assert admission.admission_fact(read(sample(f"kueue-{name}-workload"), seen.Workload)) == fact


def test_a_workload_that_no_trainjob_controls_is_not_ours():
    assert decided(made.workload(controller=False), None).id == "admission.not-ours"
    another = read({"metadata": {"ownerReferences": [{"apiVersion": "acme.io/v1", "kind": "TrainJob",
                                                      "controller": True}]}}, seen.Workload)  # fmt: skip
    assert admission.owner(another) is None
    assert decided(made.workload(), None).id == "admission.trainjob-absent"


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {names.JOB: "resnet"}},
        {"annotations": {names.DIGEST: "0"}},
        {"annotations": {names.ADMISSION_GATED_BY: f"acme.io/a,{names.KUEUE_GATE}"}},
    ],
)
def test_whatever_bears_anything_of_ours_is_not_somebody_elses(metadata):
    assert decided(made.workload(QUOTA), bare(**metadata)).id == "admission.unreadable"


def test_of_several_checks_the_one_that_keeps_it_longest_counts():
    def with_checks(**states):
        checks = [{"name": name, "state": state} for name, state in states.items()]
        return read({"status": {"admissionChecks": checks}}, seen.Workload)

    both = {"a", "b"}
    assert admission.check_fact(with_checks(a="Ready", b="Pending", c="Rejected"), both) == "pending"
    assert admission.check_fact(with_checks(a="Ready", b="Ready", c="Pending"), both) == "ready"
    assert admission.check_fact(with_checks(a="Retry", b="Pending"), both) == "refused"
    assert admission.check_fact(with_checks(c="Pending"), both) == "absent"


def rest(**found):
    calm = {"others": (), "other_workloads": (), "jobset": None, "jobsets": (), "jobs": (), "pods": ()}
    return admission.rest(found.pop("trainjob", trainjob()), OURS, **(calm | found))


def test_a_job_that_never_ran_rests():
    assert rest() == admission.Rest("rests")


def test_a_suspended_job_whose_pods_have_ended_rests():
    suspended = jobset(SUSPENDED, suspend=True)
    stopped = job(SUSPENDED, suspend=True)
    assert rest(jobset=suspended, jobsets=[suspended], jobs=[stopped], pods=[succeeded()]).fact == "rests"


def test_pods_jobsets_and_jobs_that_may_still_run_are_named():
    assert rest(pods=[pod()]) == admission.Rest("pods-remain", ("Pod p0 (pod-runs)",))
    assert rest(jobset=jobset()).fact == "controller-active"
    assert rest(jobs=[job()]).fact == "controller-active"
    assert rest(jobsets=[jobset(attempt=2)]).left == ("JobSet resnet-2 (jobset-not-suspended)",)


def test_a_trainjob_that_is_not_suspended_may_have_pods_on_the_way():
    assert rest(trainjob=trainjob(suspend=False)) == admission.Rest("controller-active", ("TrainJob resnet-1",))


def test_another_attempt_that_may_run_is_as_good_as_its_pods():
    other = trainjob(name="resnet-2", uid="other-uid", suspend=False)
    assert rest(others=[other]) == admission.Rest("other-attempt", ("TrainJob resnet-2",))
    ended = trainjob(name="resnet-2", uid="other-uid", suspend=False, conditions=[condition("Complete")])
    assert rest(others=[ended]).fact == "rests"


@pytest.mark.parametrize(
    ("workload", "fact"),
    [
        (made.workload(QUOTA, check="Ready", owner="other-uid"), "other-attempt"),
        (made.workload(check=None, owner="other-uid"), "other-attempt"),
        (made.workload(condition("Admitted"), owner="other-uid"), "other-attempt"),
        (made.workload(QUOTA, owner="other-uid"), "rests"),
        (made.workload(QUOTA, check="Ready", active=False, owner="other-uid"), "rests"),
        (made.workload(condition("Finished"), check="Ready", owner="other-uid"), "rests"),
        (made.workload(QUOTA, check="Ready", owner="nobody-of-the-job"), "rests"),
        (made.workload(QUOTA, check="Ready", owner="other-uid", controller=False), "rests"),
    ],
)
def test_another_attempts_workload_counts_once_kueue_may_start_it(workload, fact):
    other = trainjob(name="resnet-2", uid="other-uid")
    assert rest(others=[other], other_workloads=[workload]).fact == fact


def test_pods_alone_show_only_that_something_runs():
    assert admission.pods_rest([succeeded(), pod()]) == admission.Rest("pods-remain", ("Pod p0 (pod-runs)",))
    assert admission.pods_rest([succeeded()]).fact == "unread"


def test_the_apply_has_every_check_of_ours_and_the_version_that_was_read():
    workload = made.workload()
    body = admission.ready_apply(workload, OURS, message="opened", at=AT, api_version=WORKLOADS.api_version)
    assert body["metadata"] == {"name": "trainjob-resnet-1-abcde", "namespace": "team-a", "resourceVersion": "8"}
    entry = {"name": CHECK, "state": "Ready", "message": "opened", "lastTransitionTime": AT}
    assert body["status"] == {"admissionChecks": [entry]}
    assert (body["apiVersion"], body["kind"]) == ("kueue.x-k8s.io/v1beta2", "Workload")


def test_a_release_takes_the_annotation_away_and_nothing_else():
    metadata = {"uid": "workload-uid", "resourceVersion": "8", "annotations": {names.HELD: None}}
    assert admission.activate_patch(made.workload(held="4")) == {"metadata": metadata, "spec": {"active": True}}
    assert admission.forget_patch(made.workload(held="4")) == {"metadata": metadata}


def check(*conditions, generation=1):
    metadata = {"name": CHECK, "uid": "u", "resourceVersion": "9", "generation": generation}
    return read({"metadata": metadata, "status": {"conditions": list(conditions)}}, seen.AdmissionCheck)


def test_a_check_is_active_when_its_controller_says_so_of_this_generation():
    assert admission.is_active(check({**condition("Active"), "observedGeneration": 1}))
    assert not admission.is_active(check({**condition("Active"), "observedGeneration": 1}, generation=2))
    assert not admission.is_active(check({**condition("Active", "False"), "observedGeneration": 1}))
    assert not admission.is_active(check())


def test_saying_that_a_check_is_served():
    body = admission.active_apply(check(generation=2), at=AT, api_version=ADMISSION_CHECKS.api_version)
    assert body["metadata"] == {"name": CHECK, "resourceVersion": "9"}
    (said,) = body["status"]["conditions"]
    assert (said["type"], said["status"], said["observedGeneration"]) == ("Active", "True", 2)
