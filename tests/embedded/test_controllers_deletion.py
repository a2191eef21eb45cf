"""Deletion, left-overs and names used again: facts/real-behaviour.md section 6."""

import pytest

from dispatch_kubeflow.backend.embedded.controllers.kinds import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NAMESPACES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.kubelet import Script
from tests.embedded.scene import NAMESPACE, Scene, runtime, sample, shape, train_job


@pytest.fixture
def scene():
    with Scene(Script(stop_after=5.0)) as scene:
        yield scene


def own_runtime(scene, name, **flags):
    """What Start does at its end: the TrainJob owns its runtime copy."""
    job = scene.train_job(name)
    owner = {"apiVersion": job["apiVersion"], "kind": "TrainJob", "name": name, "uid": job["metadata"]["uid"], **flags}
    scene.cluster.patch(TRAINING_RUNTIMES, name, {"metadata": {"ownerReferences": [owner]}}, NAMESPACE)


def test_background_deletion_takes_the_trainjob_first_and_leaves_pods_that_run_on_until_they_end(scene):
    scene.run("d-1")
    own_runtime(scene, "d-1")
    deleted = scene.cluster.delete(TRAIN_JOBS, "d-1", NAMESPACE)
    assert deleted.gone
    assert scene.absent(TRAIN_JOBS, "d-1")
    assert not scene.absent(JOB_SETS, "d-1")
    scene.settle()
    assert scene.left("d-1") == ["Pod", "Pod"]
    for pod in scene.pods("d-1"):
        assert pod["status"]["phase"] == "Running"
        [reference] = pod["metadata"]["ownerReferences"]
        assert reference["kind"] == "Job"
        assert "finalizers" not in pod["metadata"]
    scene.advance(6)
    assert scene.left("d-1") == []
    assert scene.kubelet.running() == []


def test_a_hanging_pod_is_all_that_is_left_and_looks_like_the_real_one():
    theirs = sample("hanging-pod-after-delete")
    with Scene(Script(hang=True)) as scene:
        scene.run("lh-1")
        scene.cluster.delete(TRAIN_JOBS, "lh-1", NAMESPACE)
        scene.advance(600)
        assert scene.left("lh-1") == ["TrainingRuntime", "Pod", "Pod"]
        ours = scene.pod("lh-1", 0)
        theirs["metadata"]["annotations"].pop("lab/term")
        for field in ("batch.kubernetes.io/controller-uid", "controller-uid"):
            ours["metadata"]["labels"][field] = theirs["metadata"]["labels"][field] = "*"
        ours["metadata"].pop("managedFields", None)
        assert shape(ours["metadata"]) == shape(theirs["metadata"])
        assert shape(ours["status"]["containerStatuses"]) == shape(theirs["status"]["containerStatuses"])


def test_the_same_name_while_old_pods_hang_makes_new_pods_beside_them_under_the_same_hostnames():
    with Scene(Script(hang=True)) as scene:
        scene.run("sn-1")
        old = {pod["metadata"]["uid"] for pod in scene.pods("sn-1")}
        scene.cluster.delete(TRAIN_JOBS, "sn-1", NAMESPACE)
        scene.advance(5)
        scene.cluster.create(TRAIN_JOBS, train_job("sn-1", suspend=False))
        scene.advance(3)
        pods = scene.pods("sn-1")
        assert len(pods) == 4
        assert old < {pod["metadata"]["uid"] for pod in pods}
        assert len({pod["spec"]["hostname"] for pod in pods}) == 2
        assert len(scene.kubelet.running()) == 4


def test_a_name_used_again_after_the_end_inherits_nothing(scene):
    for _ in range(8):
        scene.gate("ag-1")
        scene.open("ag-1")
        scene.advance(2)
        for index in (0, 1):
            scene.end(scene.pod("ag-1", index), 0)
        scene.advance(3)
        assert scene.is_true(scene.train_job("ag-1"), "Complete")
        scene.cluster.delete(TRAIN_JOBS, "ag-1", NAMESPACE)
        scene.cluster.delete(TRAINING_RUNTIMES, "ag-1", NAMESPACE)
        scene.settle()
        scene.cluster.create(TRAINING_RUNTIMES, runtime("ag-1"))
        scene.cluster.create(TRAIN_JOBS, train_job("ag-1"))
        scene.advance(1)
        assert [item["type"] for item in scene.train_job("ag-1")["status"]["conditions"]] == ["Suspended"]
        scene.cluster.delete(TRAIN_JOBS, "ag-1", NAMESPACE)
        scene.cluster.delete(TRAINING_RUNTIMES, "ag-1", NAMESPACE)
        scene.advance(10)


def test_orphaning_leaves_a_jobset_that_runs_on_and_whose_end_a_new_trainjob_of_the_name_shows_as_its_own(scene):
    scene.run("or-1")
    scene.cluster.delete(TRAIN_JOBS, "or-1", NAMESPACE, propagation="Orphan")
    scene.settle()
    assert scene.absent(TRAIN_JOBS, "or-1")
    assert "ownerReferences" not in scene.jobset("or-1")["metadata"]
    assert len(scene.active("or-1")) == 2
    for index in (0, 1):
        scene.end(scene.pod("or-1", index), 0)
    scene.advance(3)
    scene.cluster.create(TRAIN_JOBS, train_job("or-1"))
    scene.advance(3)
    job = scene.train_job("or-1")
    assert job["spec"]["suspend"]
    assert scene.is_true(job, "Complete")


def test_a_left_over_snapshot_of_another_trainjob_makes_every_reconcile_fail(scene):
    scene.run("ls-1")
    scene.cluster.delete(TRAIN_JOBS, "ls-1", NAMESPACE, propagation="Orphan")
    scene.settle()
    scene.cluster.delete(JOB_SETS, "ls-1", NAMESPACE)
    scene.advance(10)
    scene.cluster.create(TRAIN_JOBS, train_job("ls-1"))
    scene.advance(10)
    assert scene.absent(JOB_SETS, "ls-1")
    told = [event for event in scene.events("TrainJob") if "runtime snapshot" in event["message"]]
    assert len(told) == 1
    scene.cluster.delete(CONFIG_MAPS, "ls-1-runtime-snapshot", NAMESPACE)
    scene.advance(30)
    assert not scene.absent(JOB_SETS, "ls-1")


def test_a_jobset_of_another_trainjob_of_the_name_is_never_taken_over(scene):
    scene.run("to-1")
    scene.cluster.take_down("kube-controller-manager")
    scene.settle()
    scene.cluster.delete(TRAIN_JOBS, "to-1", NAMESPACE)
    scene.cluster.delete(CONFIG_MAPS, "to-1-runtime-snapshot", NAMESPACE)
    old = scene.jobset("to-1")["metadata"]["ownerReferences"]
    scene.cluster.create(TRAIN_JOBS, train_job("to-1"))
    scene.advance(5)
    assert scene.jobset("to-1")["metadata"]["ownerReferences"] == old
    assert not scene.jobset("to-1")["spec"]["suspend"]
    told = [event for event in scene.events("TrainJob") if "Controller set to true" in event["message"]]
    assert told
    scene.cluster.bring_up("kube-controller-manager")
    scene.advance(30)
    assert scene.jobset("to-1")["metadata"]["ownerReferences"] != old
    assert scene.jobset("to-1")["spec"]["suspend"]


class TestForeground:
    def test_dependents_go_before_the_trainjob(self, scene):
        scene.run("fg-1")
        deleted = scene.cluster.delete(TRAIN_JOBS, "fg-1", NAMESPACE, propagation="Foreground")
        assert not deleted.gone
        scene.settle()
        assert scene.left("fg-1") == ["TrainJob", "TrainingRuntime", "JobSet", "Job", "Pod", "Pod"]
        assert all("deletionTimestamp" in pod["metadata"] for pod in scene.pods("fg-1"))
        scene.advance(10)
        assert scene.left("fg-1") == ["TrainingRuntime"]

    def test_it_sticks_for_ever_where_the_trainjob_owns_its_runtime_and_is_blocked_by_it(self, scene):
        scene.run("fs-1")
        own_runtime(scene, "fs-1", blockOwnerDeletion=True)
        scene.cluster.delete(TRAIN_JOBS, "fs-1", NAMESPACE, propagation="Foreground")
        scene.advance(3600)
        assert scene.left("fs-1") == ["TrainJob"]
        assert scene.train_job("fs-1")["metadata"]["finalizers"] == ["foregroundDeletion"]

    def test_it_sticks_without_blocking_too_once_the_runtime_went_first(self, scene):
        scene.run("fn-1")
        own_runtime(scene, "fn-1")
        scene.cluster.delete(TRAIN_JOBS, "fn-1", NAMESPACE, propagation="Foreground")
        scene.advance(3600)
        assert scene.left("fn-1") == ["TrainJob"]


def test_a_finalizer_keeps_the_trainjob_and_its_jobset_runs_on(scene):
    scene.gate("fi-1")
    scene.cluster.patch(TRAIN_JOBS, "fi-1", {"metadata": {"finalizers": ["a.io/b"]}}, NAMESPACE)
    scene.open("fi-1")
    scene.advance(2)
    scene.cluster.delete(TRAIN_JOBS, "fi-1", NAMESPACE)
    scene.advance(60)
    assert len(scene.active("fi-1")) == 2
    scene.cluster.patch(TRAIN_JOBS, "fi-1", {"metadata": {"finalizers": []}}, NAMESPACE)
    scene.advance(10)
    assert scene.left("fi-1") == ["TrainingRuntime"]


def test_a_jobset_deleted_under_a_running_trainjob_is_made_anew_beside_the_old_pods(scene):
    scene.run("jd-1")
    old = scene.jobset("jd-1")["metadata"]["uid"]
    scene.cluster.delete(JOB_SETS, "jd-1", NAMESPACE)
    scene.advance(2)
    assert scene.jobset("jd-1")["metadata"]["uid"] != old
    assert len(scene.pods("jd-1")) == 4


def test_a_jobset_deleted_under_a_trainjob_that_is_being_deleted_is_made_anew(scene):
    scene.gate("jt-1")
    scene.cluster.patch(TRAIN_JOBS, "jt-1", {"metadata": {"finalizers": ["a.io/b"]}}, NAMESPACE)
    scene.cluster.delete(TRAIN_JOBS, "jt-1", NAMESPACE)
    old = scene.jobset("jt-1")["metadata"]["uid"]
    scene.cluster.delete(JOB_SETS, "jt-1", NAMESPACE)
    scene.advance(2)
    assert scene.jobset("jt-1")["metadata"]["uid"] != old


def test_a_dependent_is_kept_while_one_owner_stands_and_loses_the_other_reference(scene):
    scene.gate("do-1")
    scene.gate("do-2")
    owners = [
        {"apiVersion": job["apiVersion"], "kind": "TrainJob", "name": name, "uid": job["metadata"]["uid"]}
        for name in ("do-1", "do-2")
        if (job := scene.train_job(name))
    ]
    scene.cluster.create(
        CONFIG_MAPS, {"metadata": {"name": "shared", "namespace": NAMESPACE, "ownerReferences": owners}}
    )
    scene.cluster.delete(TRAIN_JOBS, "do-1", NAMESPACE)
    scene.advance(1)
    assert scene.get(CONFIG_MAPS, "shared")["metadata"]["ownerReferences"] == owners[1:]
    scene.cluster.delete(TRAIN_JOBS, "do-2", NAMESPACE)
    scene.advance(1)
    assert scene.absent(CONFIG_MAPS, "shared")


def test_an_owner_of_another_uid_is_no_owner(scene):
    scene.gate("ou-1")
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "ou-1", "uid": "another"}
    metadata = {"name": "stray", "namespace": NAMESPACE, "ownerReferences": [owner]}
    scene.cluster.create(CONFIG_MAPS, {"metadata": metadata})
    scene.advance(1)
    assert scene.absent(CONFIG_MAPS, "stray")


def test_a_collector_that_was_down_collects_when_it_is_back(scene):
    scene.run("cd-1")
    scene.cluster.take_down("kube-controller-manager")
    scene.settle()
    scene.cluster.delete(TRAIN_JOBS, "cd-1", NAMESPACE)
    scene.advance(60)
    assert scene.left("cd-1") == ["TrainingRuntime", "JobSet", "Job", "ConfigMap", "Service", "Pod", "Pod"]
    scene.cluster.bring_up("kube-controller-manager")
    scene.advance(10)
    assert scene.left("cd-1") == ["TrainingRuntime"]


def test_a_job_deleted_by_default_leaves_its_pods(scene):
    scene.run("jo-1")
    scene.cluster.take_down("jobset")
    scene.settle()
    scene.cluster.delete(JOBS, "jo-1-node-0", NAMESPACE)
    scene.advance(10)
    assert scene.absent(JOBS, "jo-1-node-0")
    assert len(scene.active("jo-1")) == 2
    assert all("ownerReferences" not in pod["metadata"] for pod in scene.pods("jo-1"))


def test_a_namespace_that_is_deleted_is_emptied_first_and_takes_nothing_new(scene):
    scene.run("ns-1")
    scene.cluster.delete(NAMESPACES, NAMESPACE)
    scene.settle()
    with pytest.raises(ApiError) as caught:
        scene.cluster.create(CONFIG_MAPS, {"metadata": {"name": "late", "namespace": NAMESPACE}})
    assert caught.value.status == 403
    scene.advance(30)
    assert scene.cluster.list(PODS) == []
    assert scene.cluster.get(NAMESPACES, NAMESPACE) is None
