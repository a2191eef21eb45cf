import pytest

from dispatch_kubeflow.backend.objects import resting, seen
from tests.objects.made import condition, ended, failed, job, jobset, pod, succeeded
from tests.objects.samples import end, read, sample

SUSPENDED = condition("Suspended")


def remains(*, jobset=None, jobs=(), pods=(), attempt=1):
    return resting.remains(attempt, jobset=jobset, jobs=jobs, pods=pods)


def test_pods_whose_end_a_kubelet_reported_rest():
    assert resting.rests(succeeded())
    assert resting.rests(failed())


@pytest.mark.parametrize("name", ["exit3", "oom", "success", "node-pressure"])
def test_real_pods_that_were_kept_after_their_end_rest(name):
    listed = end(name).listed
    assert listed
    assert [resting.why_not(each) for each in listed] == [None] * len(listed)


@pytest.mark.parametrize("name", ["node-not-ready", "image-stuck", "unschedulable"])
def test_real_pods_that_hang_do_not_rest(name):
    listed = end(name).listed
    assert listed
    assert not any(resting.rests(each) for each in listed)


def test_a_pod_that_outlived_everything_above_it_does_not_rest():
    assert resting.why_not(read(sample("hanging-pod-after-delete"), seen.Pod)) == "pod-terminating"


@pytest.mark.parametrize(
    ("why", "unrested"),
    [
        ("pod-runs", pod()),
        ("pod-runs", pod(phase="Pending", container={})),
        ("pod-runs", pod(phase="Unknown")),
        ("pod-runs", pod(phase="Running", container={"terminated": ended(0)})),
        ("pod-terminating", failed(deleted_at=5)),
        ("pod-end-not-reported", pod(phase="Failed")),
        ("pod-end-not-reported", pod(phase="Failed", container={})),
        ("pod-end-not-reported", pod(phase="Failed", container={"waiting": {"reason": "PodInitializing"}})),
        ("pod-end-not-reported", pod(phase="Failed", container={"terminated": ended(137, containerID="")})),
        ("pod-end-not-reported", pod(phase="Failed", container={"terminated": ended(137, "ContainerStatusUnknown")})),
    ],
)
def test_anything_less_than_a_kubelets_report_is_no_rest(why, unrested):
    assert resting.why_not(unrested) == why


def test_a_pod_failed_by_podgc_with_its_container_still_running_does_not_rest():
    gone = end("node-deleted").gone
    podgc = [each for each in gone if each.status.phase == "Failed" and each.container_statuses[0].state.running]
    assert podgc
    assert not any(resting.rests(each) for each in podgc)


def test_a_container_that_is_not_reported_at_all_is_not_known_to_have_ended():
    obj = {
        "spec": {"containers": [{"name": "node"}, {"name": "sidecar"}]},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "node", "state": {"terminated": ended(1)}}]},
    }
    assert not resting.rests(read(obj, seen.Pod))


@pytest.mark.parametrize("kind", ["initContainers", "ephemeralContainers"])
def test_init_and_ephemeral_containers_count_too(kind):
    status = {"phase": "Failed", "containerStatuses": [{"name": "node", "state": {"terminated": ended(1)}}]}
    obj = {"spec": {"containers": [{"name": "node"}], kind: [{"name": "other"}]}, "status": status}
    assert not resting.rests(read(obj, seen.Pod))
    status[kind.removesuffix("s") + "Statuses"] = [{"name": "other", "state": {"terminated": ended(0)}}]
    assert resting.rests(read(obj, seen.Pod))


def test_a_pod_without_any_container_does_not_rest():
    assert not resting.all_terminated(read({"status": {"phase": "Failed"}}, seen.Pod))


def test_nothing_remains_where_nothing_is():
    assert remains().fact == "rests"
    assert not remains()
    assert str(remains()) == ""


def test_what_was_made_suspended_and_never_changed_rests_before_its_controller_says_so():
    found = remains(jobset=jobset(suspend=True, generation=1), jobs=[job(suspend=True, generation=1)])
    assert found.fact == "rests"


def test_a_held_job_whose_pods_ended_rests():
    found = remains(jobset=jobset(SUSPENDED, suspend=True), jobs=[job(SUSPENDED, suspend=True)], pods=[succeeded()])
    assert found.fact == "rests"


@pytest.mark.parametrize(
    ("why", "given_jobset"),
    [
        ("jobset-not-suspended", jobset()),
        ("jobset-not-suspended", jobset(SUSPENDED)),
        ("jobset-not-yet-suspended", jobset(suspend=True)),
        ("jobset-not-yet-suspended", jobset(suspend=True, generation=2)),
        ("jobset-not-suspended", jobset(generation=1)),
        ("jobset-not-yet-suspended", jobset(condition("Suspended", "False"), suspend=True)),
    ],
)
def test_a_jobset_that_may_make_jobs_remains(why, given_jobset):
    found = remains(jobset=given_jobset)
    assert (found.fact, [each.why for each in found.items]) == ("controller-active", [why])


@pytest.mark.parametrize("type_", ["Completed", "Failed"])
def test_a_jobset_that_has_ended_makes_no_pods(type_):
    assert remains(jobset=jobset(condition(type_))).fact == "rests"


@pytest.mark.parametrize(
    ("why", "given_job"),
    [
        ("job-not-suspended", job()),
        ("job-not-suspended", job(condition("FailureTarget"))),
        ("job-not-yet-suspended", job(suspend=True)),
        ("job-not-yet-suspended", job(suspend=True, generation=2)),
        ("job-not-suspended", job(generation=1)),
        ("job-has-pods", job(suspend=True, generation=1, active=1)),
        ("job-has-pods", job(SUSPENDED, suspend=True, active=1)),
        ("job-has-pods", job(SUSPENDED, suspend=True, terminating=1)),
        ("job-has-pods", job(SUSPENDED, suspend=True, uncountedTerminatedPods={"failed": ["1"]})),
        ("job-has-pods", job(condition("Failed"), uncountedTerminatedPods={"succeeded": ["1"]})),
        ("job-has-pods", job(condition("Complete"), terminating=2)),
    ],
)
def test_a_job_that_may_make_pods_or_has_some_left_remains(why, given_job):
    found = remains(jobs=[given_job])
    assert (found.fact, [each.why for each in found.items]) == ("controller-active", [why])


@pytest.mark.parametrize("type_", ["Complete", "Failed"])
def test_a_finished_job_makes_no_pods(type_):
    assert remains(jobs=[job(condition(type_), terminating=0, uncountedTerminatedPods={})]).fact == "rests"


def test_a_job_whose_controller_has_not_counted_yet_is_told_by_real_objects():
    raw = sample("early-release-waits")
    found = remains(jobset=read(raw["jobset"], seen.JobSet), jobs=[read(raw["job"], seen.Job)])
    assert [each.why for each in found.items] == ["jobset-not-suspended", "job-has-pods"]


def test_pods_of_another_attempt_are_told_apart():
    found = remains(pods=[pod(attempt=2)])
    assert (found.fact, found.items[0].whose, found.items[0].attempt) == ("other-attempt", "other", 2)


def test_this_attempts_pods_are_named_before_anothers():
    assert remains(pods=[pod(attempt=2), pod("p1")]).fact == "pods-remain"


def test_pods_are_named_before_controllers():
    assert remains(jobset=jobset(), pods=[pod()]).fact == "pods-remain"
    assert remains(jobset=jobset(), pods=[pod(attempt=2)]).fact == "other-attempt"


def test_a_pod_whose_attempt_cannot_be_read_counts_as_this_ones():
    unlabelled = read({"metadata": {"name": "p"}, "status": {"phase": "Running"}}, seen.Pod)
    assert remains(pods=[unlabelled]).fact == "pods-remain"


def test_only_this_attempts_controllers_are_its_controllers():
    found = remains(jobset=jobset(), jobs=[job(attempt=2), job(name="j")], pods=[pod()])
    assert [(each.kind, each.name) for each in found.controllers] == [("JobSet", "resnet-1"), ("Job", "j")]


def test_what_remains_is_named_for_people():
    assert str(remains(jobs=[job()], pods=[pod()])) == "Job resnet-1-node-0 (job-not-suspended), Pod p0 (pod-runs)"
