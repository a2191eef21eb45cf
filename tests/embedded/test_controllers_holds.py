"""Hold, release and other writes in every phase: facts/real-behaviour.md sections 4 and 5."""

import pytest

from dispatch_kubeflow.backend.embedded.controllers.kinds import JOB_SETS, PODS, TRAIN_JOBS, TRAINING_RUNTIMES
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.kubelet import Script
from tests.embedded.scene import NAMESPACE, Scene, sample, shape, train_job


@pytest.fixture
def scene():
    with Scene(Script(stop_after=5.0)) as scene:
        yield scene


def overlap(scene, name):
    """How many containers of one index ran at once, at most."""
    runs = [
        run for run in scene.kubelet.runs if run.pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == name
    ]
    index = "batch.kubernetes.io/job-completion-index"
    most = 0
    for run in runs:
        others = [
            other
            for other in runs
            if other.pod["metadata"]["labels"][index] == run.pod["metadata"]["labels"][index]
            and other.started <= run.started
            and (other.ended is None or other.ended > run.started)
        ]
        most = max(most, len(others))
    return most


def deleting(scene, name):
    return ["deletionTimestamp" in pod["metadata"] for pod in scene.pods(name)]


class TestHold:
    def test_all_pods_are_being_deleted_at_once_without_disruption_target_and_let_go_by_the_job(self, scene):
        scene.run("h-1")
        scene.hold("h-1")
        assert deleting(scene, "h-1") == [True, True]
        for pod in scene.pods("h-1"):
            assert scene.condition(pod, "DisruptionTarget") is None
            assert "finalizers" not in pod["metadata"]
            assert pod["status"]["phase"] == "Running"

    def test_it_is_no_end_and_counts_no_failure(self, scene):
        scene.run("h-2")
        scene.hold("h-2")
        scene.advance(20)
        assert scene.pods("h-2") == []
        job = scene.job("h-2")
        assert scene.is_true(job, "Suspended")
        assert "failed" not in job["status"]
        assert scene.condition(scene.train_job("h-2"), "Failed") is None
        assert scene.train_job("h-2")["status"]["jobsStatus"][0]["suspended"] == 1

    def test_terminating_falls_to_zero_only_after_the_last_pod_is_gone(self, scene):
        scene.run("h-3")
        scene.hold("h-3")
        scene.advance(4.9)
        assert scene.job("h-3")["status"]["terminating"] == 2
        scene.advance(2)
        assert scene.pods("h-3") == []
        assert scene.job("h-3")["status"]["terminating"] == 0

    def test_suspended_is_true_while_a_jobset_controller_that_is_down_lets_the_pods_run(self, scene):
        scene.run("h-4")
        scene.cluster.take_down("jobset")
        scene.hold("h-4")
        scene.advance(5)
        assert scene.is_true(scene.train_job("h-4"), "Suspended")
        assert not scene.jobset("h-4")["spec"]["suspend"]
        assert not scene.job("h-4")["spec"]["suspend"]
        assert deleting(scene, "h-4") == [False, False]
        assert "TrainJobResourcesCreationFailed" in scene.reasons("TrainJob")
        scene.cluster.bring_up("jobset")
        scene.advance(9)
        assert scene.is_true(scene.job("h-4"), "Suspended")

    def test_with_trainer_down_every_write_is_500_and_a_delete_works(self, scene):
        scene.run("h-5")
        scene.cluster.take_down("trainer")
        with pytest.raises(ApiError) as caught:
            scene.hold("h-5")
        assert (caught.value.status, caught.value.reason) == (500, "InternalError")
        assert "failed calling webhook" in caught.value.message
        scene.cluster.delete(TRAIN_JOBS, "h-5", NAMESPACE)
        scene.advance(10)
        assert scene.left("h-5") == ["TrainingRuntime"]

    def test_with_the_controller_manager_down_it_is_shown_and_nothing_stops(self, scene):
        scene.run("h-6")
        scene.cluster.take_down("kube-controller-manager")
        scene.hold("h-6")
        scene.advance(30)
        assert scene.is_true(scene.train_job("h-6"), "Suspended")
        assert scene.is_true(scene.jobset("h-6"), "Suspended")
        assert deleting(scene, "h-6") == [False, False]
        scene.cluster.bring_up("kube-controller-manager")
        scene.advance(1)
        assert deleting(scene, "h-6") == [True, True]

    def test_a_hold_before_the_open_took_effect_makes_no_pod(self, scene):
        scene.gate("h-7")
        scene.cluster.controllers["jobset"].lag = 2.0
        scene.open("h-7")
        scene.hold("h-7")
        scene.advance(10)
        assert scene.seen() == {}


class TestRelease:
    def test_the_same_job_makes_a_new_gang(self, scene):
        scene.run("r-1")
        job = scene.job("r-1")["metadata"]["uid"]
        first = {pod["metadata"]["uid"] for pod in scene.pods("r-1")}
        scene.hold("r-1")
        scene.advance(10)
        scene.open("r-1")
        scene.advance(2)
        second = {pod["metadata"]["uid"] for pod in scene.pods("r-1")}
        assert len(second) == 2
        assert not first & second
        assert scene.job("r-1")["metadata"]["uid"] == job
        assert scene.jobset("r-1")["status"]["restarts"] == 0
        assert overlap(scene, "r-1") == 1

    def test_an_index_that_succeeded_is_not_run_again(self, scene):
        scene.run("ho-1")
        scene.end(scene.pod("ho-1", 0), 0)
        scene.advance(2)
        scene.hold("ho-1")
        scene.advance(10)
        theirs = sample("held-one-succeeded-trainjob")
        assert shape(scene.train_job("ho-1")["status"]) == shape(theirs["status"])
        job = scene.job("ho-1")["metadata"]["uid"]
        scene.open("ho-1")
        scene.advance(2)
        assert scene.job("ho-1")["metadata"]["uid"] == job
        assert scene.job("ho-1")["status"]["completedIndexes"] == "0"
        assert [
            pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in scene.active("ho-1")
        ] == ["1"]
        scene.end(scene.active("ho-1")[0], 0)
        scene.advance(3)
        assert scene.is_true(scene.train_job("ho-1"), "Complete")

    def test_an_answer_of_0_to_sigterm_is_not_counted(self):
        with Scene(Script(stop_after=1.0, stop_exit=0)) as scene:
            scene.run("s-0")
            scene.hold("s-0")
            scene.advance(10)
            assert "completedIndexes" not in scene.job("s-0")["status"]
            scene.open("s-0")
            scene.advance(2)
            assert len(scene.active("s-0")) == 2

    def test_all_succeeded_before_the_hold_is_complete_although_held(self, scene):
        scene.run("c-1")
        for index in (0, 1):
            scene.end(scene.pod("c-1", index), 0)
        scene.hold("c-1")
        scene.advance(5)
        job = scene.train_job("c-1")
        assert scene.is_true(job, "Complete")
        assert scene.is_true(job, "Suspended")
        scene.open("c-1")
        scene.advance(5)
        assert scene.is_true(scene.train_job("c-1"), "Complete")
        assert not scene.is_true(scene.train_job("c-1"), "Suspended")
        assert scene.active("c-1") == []

    def test_one_failed_before_the_hold_is_failed_although_held_and_release_starts_nothing(self, scene):
        scene.run("f-1")
        scene.end(scene.pod("f-1", 0), 3)
        scene.hold("f-1")
        scene.advance(10)
        assert scene.is_true(scene.train_job("f-1"), "Failed")
        scene.open("f-1")
        scene.advance(10)
        assert scene.is_true(scene.train_job("f-1"), "Failed")
        assert scene.active("f-1") == []

    def test_while_pods_stop_there_are_two_gangs_under_the_default_policy(self, scene):
        scene.run("tg-1")
        scene.hold("tg-1")
        scene.open("tg-1")
        scene.settle()
        status = scene.job("tg-1")["status"]
        assert (status["active"], status["terminating"]) == (2, 2)
        assert len(scene.kubelet.running()) == 4
        assert overlap(scene, "tg-1") == 2

    def test_with_policy_failed_no_new_pod_comes_until_the_old_are_gone(self, scene):
        scene.run("pf-1", replacement="Failed")
        scene.hold("pf-1")
        scene.open("pf-1")
        scene.advance(4)
        status = scene.job("pf-1")["status"]
        assert status["terminating"] == 2
        assert "active" not in status
        assert deleting(scene, "pf-1") == [True, True]
        scene.advance(4)
        assert len(scene.active("pf-1")) == 2
        assert overlap(scene, "pf-1") == 1

    def test_the_waiting_job_looks_as_on_the_real_thing(self, scene):
        theirs = sample("early-release-waits")
        scene.run("sb-1", nodes=1, replacement="Failed")
        scene.hold("sb-1")
        scene.open("sb-1")
        scene.advance(3)
        assert shape(scene.job("sb-1")["status"]) == shape(theirs["job"]["status"])
        assert shape(scene.jobset("sb-1")["status"]) == shape(theirs["jobset"]["status"])
        assert shape(scene.train_job("sb-1")["status"]) == shape(theirs["trainjob"]["status"])
        assert scene.train_job("sb-1")["metadata"]["generation"] == theirs["trainjob"]["metadata"]["generation"]

    def test_with_policy_failed_a_pod_that_hangs_holds_everything_up(self):
        with Scene(Script(hang=True)) as scene:
            scene.run("hg-1", replacement="Failed")
            scene.hold("hg-1")
            scene.advance(5)
            scene.open("hg-1")
            scene.advance(600)
            assert scene.active("hg-1") == []
            for pod in scene.pods("hg-1"):
                scene.kubelet.unhang(pod["metadata"]["uid"])
            scene.advance(3)
            assert len(scene.active("hg-1")) == 2

    def test_with_policy_failed_an_evicted_pod_counts_only_when_it_has_ended(self, scene):
        scene.run("pe-1", replacement="Failed")
        scene.cluster.evict(scene.pod("pe-1", 0)["metadata"]["name"], NAMESPACE)
        scene.advance(4)
        assert scene.condition(scene.job("pe-1"), "FailureTarget") is None
        assert len(scene.active("pe-1")) == 1
        scene.advance(10)
        assert scene.is_true(scene.train_job("pe-1"), "Failed")

    def test_that_policy_holds_within_one_job_only(self, scene):
        scene.run("oj-1", replacement="Failed")
        scene.cluster.delete(JOB_SETS, "oj-1", NAMESPACE)
        scene.advance(2)
        assert len(scene.active("oj-1")) == 2
        assert overlap(scene, "oj-1") == 2


PHASES = {
    "gated": lambda scene: scene.gate("w-1"),
    "running": lambda scene: scene.run("w-1"),
    "held": lambda scene: (scene.run("w-1"), scene.hold("w-1"), scene.advance(10)),
    "stopping": lambda scene: (scene.run("w-1"), scene.hold("w-1")),
    "complete": lambda scene: (
        scene.run("w-1"),
        scene.end(scene.pod("w-1", 0), 0),
        scene.end(scene.pod("w-1", 1), 0),
        scene.advance(5),
    ),
    "failed": lambda scene: (scene.run("w-1"), scene.end(scene.pod("w-1", 0), 1), scene.advance(20)),
}
ENTRY = {"manager": "a.io/b", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
WRITES = {
    "annotation": {"metadata": {"annotations": {"a.io/b": "c"}}},
    "label": {"metadata": {"labels": {"a.io/b": "c"}}},
    "suspend": {"spec": {"suspend": True}},
    "finalizer": {"metadata": {"finalizers": ["a.io/b"]}},
    "deadline": {"spec": {"activeDeadlineSeconds": 9}},
}


def status_of(write):
    try:
        write()
    except ApiError as error:
        return error.status
    return 200


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("write", WRITES)
def test_metadata_suspend_and_deadline_can_be_written_in_every_phase(scene, phase, write):
    PHASES[phase](scene)
    assert status_of(lambda: scene.cluster.patch(TRAIN_JOBS, "w-1", WRITES[write], NAMESPACE)) == 200


@pytest.mark.parametrize("phase", PHASES)
def test_the_trainer_can_be_changed_in_none(scene, phase):
    PHASES[phase](scene)
    patch = {"spec": {"trainer": {"image": "other"}}}
    assert status_of(lambda: scene.cluster.patch(TRAIN_JOBS, "w-1", patch, NAMESPACE)) == 422


@pytest.mark.parametrize(
    ("phase", "status"), [("gated", 200), ("held", 200), ("running", 403), ("complete", 403), ("failed", 403)]
)
def test_runtime_patches_can_be_changed_only_while_suspended(scene, phase, status):
    PHASES[phase](scene)
    patch = {"spec": {"runtimePatches": [ENTRY]}}
    assert status_of(lambda: scene.cluster.patch(TRAIN_JOBS, "w-1", patch, NAMESPACE)) == status


def test_runtime_patches_cannot_be_changed_while_a_job_of_the_jobset_is_active(scene):
    scene.run("w-2")
    scene.cluster.controllers["job"].lag = 5.0
    scene.hold("w-2")
    with pytest.raises(ApiError) as caught:
        scene.cluster.patch(TRAIN_JOBS, "w-2", {"spec": {"runtimePatches": [ENTRY]}}, NAMESPACE)
    assert (
        "RuntimePatches cannot be modified when the JobSet's ReplicatedJob node is still active" in caught.value.message
    )


def test_a_finalizer_cannot_be_added_while_being_deleted_and_the_rest_can(scene):
    scene.gate("w-3")
    scene.cluster.patch(TRAIN_JOBS, "w-3", WRITES["finalizer"], NAMESPACE)
    scene.cluster.delete(TRAIN_JOBS, "w-3", NAMESPACE)
    more = {"metadata": {"finalizers": ["a.io/b", "a.io/c"]}}
    assert status_of(lambda: scene.cluster.patch(TRAIN_JOBS, "w-3", more, NAMESPACE)) == 422
    for write in ("annotation", "label", "suspend"):
        assert status_of(lambda: scene.cluster.patch(TRAIN_JOBS, "w-3", WRITES[write], NAMESPACE)) == 200  # noqa: B023


@pytest.mark.parametrize("write", ["annotation", "suspend", "finalizer"])
def test_with_its_runtime_deleted_every_write_is_403_and_a_delete_works(scene, write):
    scene.run("w-4")
    scene.cluster.delete(TRAINING_RUNTIMES, "w-4", NAMESPACE)
    patch = {"spec": {"suspend": True}} if write == "suspend" else WRITES[write]
    assert status_of(lambda: scene.cluster.patch(TRAIN_JOBS, "w-4", patch, NAMESPACE)) == 403
    status = {"status": {"jobsStatus": []}}
    assert scene.cluster.patch(TRAIN_JOBS, "w-4", status, NAMESPACE, subresource="status")
    scene.cluster.delete(TRAIN_JOBS, "w-4", NAMESPACE)
    scene.advance(10)
    assert scene.left("w-4") == []


def test_suspending_an_ended_trainjob_flips_suspended_alone(scene):
    PHASES["complete"](scene)
    scene.hold("w-1")
    scene.advance(5)
    assert scene.is_true(scene.train_job("w-1"), "Complete")
    assert scene.is_true(scene.train_job("w-1"), "Suspended")
    assert scene.active("w-1") == []


def test_the_jobset_of_a_failed_trainjob_deleted_makes_it_train_again(scene):
    PHASES["failed"](scene)
    old = scene.jobset("w-1")["metadata"]["uid"]
    scene.cluster.delete(JOB_SETS, "w-1", NAMESPACE)
    scene.advance(3)
    assert scene.condition(scene.train_job("w-1"), "Failed") is None
    assert scene.jobset("w-1")["metadata"]["uid"] != old
    assert len(scene.active("w-1")) == 2


def test_the_jobset_of_a_complete_trainjob_deleted_changes_nothing(scene):
    PHASES["complete"](scene)
    scene.cluster.delete(JOB_SETS, "w-1", NAMESPACE)
    scene.advance(3)
    assert scene.is_true(scene.train_job("w-1"), "Complete")
    assert scene.absent(JOB_SETS, "w-1")


def test_deadline_exceeded_stays_and_each_resume_restarts_the_clock(scene):
    scene.run("d-1", spec={"activeDeadlineSeconds": 20})
    scene.advance(15)
    scene.hold("d-1")
    scene.advance(100)
    assert scene.condition(scene.train_job("d-1"), "Failed") is None
    scene.open("d-1")
    scene.advance(15)
    assert scene.condition(scene.train_job("d-1"), "Failed") is None
    scene.advance(10)
    assert scene.condition(scene.train_job("d-1"), "Failed")["reason"] == "DeadlineExceeded"
    scene.advance(60)
    scene.cluster.patch(TRAIN_JOBS, "d-1", {"metadata": {"annotations": {"a": "b"}}}, NAMESPACE)
    scene.advance(5)
    assert scene.condition(scene.train_job("d-1"), "Failed")["reason"] == "DeadlineExceeded"
    assert scene.absent(JOB_SETS, "d-1")


def test_a_jobs_deadline_does_not_run_while_it_is_held_and_begins_anew_with_each_release(scene):
    scene.run("d-2", activeDeadlineSeconds=20)
    scene.advance(15)
    scene.hold("d-2")
    scene.advance(100)
    held = scene.job("d-2")
    assert scene.condition(held, "FailureTarget") is None
    assert "startTime" not in held["status"]
    scene.open("d-2")
    scene.advance(15)
    assert scene.condition(scene.job("d-2"), "FailureTarget") is None
    scene.advance(8)
    target = scene.condition(scene.job("d-2"), "FailureTarget")
    assert (target["reason"], target["message"]) == (
        "DeadlineExceeded",
        "Job was active longer than specified deadline",
    )


def test_a_release_before_the_job_controller_saw_the_hold_begins_the_deadline_anew_as_well(scene):
    scene.run("d-8", activeDeadlineSeconds=20)
    before = scene.job("d-8")["status"]["startTime"]
    scene.advance(15)
    scene.cluster.controllers["job"].lag = 2.0
    scene.hold("d-8")
    scene.open("d-8")
    scene.advance(15)
    assert scene.job("d-8")["status"]["startTime"] > before
    assert scene.condition(scene.job("d-8"), "FailureTarget") is None
    assert len(scene.active("d-8")) == 2


def test_a_jobs_deadline_ends_the_trainjob_once_its_pods_have_ended_and_nothing_is_made_anew():
    with Scene(Script(stop_after=8.0)) as scene:
        scene.run("d-3", activeDeadlineSeconds=5)
        old = scene.jobset("d-3")["metadata"]["uid"]
        scene.advance(6)
        assert scene.condition(scene.train_job("d-3"), "Failed") is None
        assert scene.job("d-3")["status"]["terminating"] == 2
        scene.advance(60)
        assert scene.condition(scene.train_job("d-3"), "Failed")["reason"] == "FailedJobs"
        assert scene.jobset("d-3")["metadata"]["uid"] == old
        assert scene.active("d-3") == []


@pytest.mark.parametrize(
    ("deadline", "gangs"),
    [({"spec": {"activeDeadlineSeconds": 5}}, 2), ({"activeDeadlineSeconds": 5, "replacement": "Failed"}, 1)],
)
def test_a_trainer_that_lags_starts_a_second_gang_behind_its_own_deadline_and_none_behind_a_jobs(deadline, gangs):
    with Scene(Script(stop_after=20.0)) as scene:
        scene.run("d-7", **deadline)
        scene.cluster.controllers["trainer"].lag = 3.0
        scene.advance(90)
        assert overlap(scene, "d-7") == gangs
        assert scene.is_true(scene.train_job("d-7"), "Failed")
        assert scene.active("d-7") == []


def test_a_deadline_beyond_what_nanoseconds_can_count_has_passed_at_once(scene):
    scene.run("d-4", activeDeadlineSeconds=9_223_372_036)
    scene.run("d-5", activeDeadlineSeconds=9_223_372_037)
    scene.run("d-6", spec={"activeDeadlineSeconds": 9_223_372_037})
    scene.advance(5)
    assert scene.condition(scene.job("d-4"), "FailureTarget") is None
    assert scene.condition(scene.job("d-5"), "FailureTarget")["reason"] == "DeadlineExceeded"
    assert scene.condition(scene.train_job("d-6"), "Failed")["reason"] == "DeadlineExceeded"


def test_someone_elses_trainjob_is_left_alone(scene):
    scene.gate("mk-0")
    job = train_job(
        "mk-1", managedBy="kueue.x-k8s.io/multikueue", runtimeRef={"name": "mk-0", "kind": "TrainingRuntime"}
    )
    scene.cluster.create(TRAIN_JOBS, job)
    scene.advance(3)
    assert scene.absent(JOB_SETS, "mk-1")
    assert scene.train_job("mk-1").get("status", {}) == {}


def test_jobset_suspend_alone_is_reverted_at_the_next_reconcile(scene):
    scene.run("js-1")
    scene.cluster.patch(JOB_SETS, "js-1", {"spec": {"suspend": True}}, NAMESPACE)
    scene.advance(1)
    assert not scene.jobset("js-1")["spec"]["suspend"]


def test_a_pod_created_by_hand_runs_without_any_job(scene):
    pod = {"metadata": {"name": "alone", "namespace": NAMESPACE}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    scene.cluster.create(PODS, pod)
    scene.advance(1)
    assert scene.get(PODS, "alone")["status"]["phase"] == "Running"
    scene.cluster.delete(PODS, "alone", NAMESPACE)
    scene.advance(6)
    assert scene.absent(PODS, "alone")
