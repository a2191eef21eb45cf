"""Every ending of facts/real-behaviour.md section 3, against the objects a real control plane gave."""

import pytest

from dispatch_kubeflow.backend.embedded.controllers.kinds import JOB_SETS, NODES, PODS, TRAIN_JOBS
from dispatch_kubeflow.backend.embedded.kubelet import Script
from tests.embedded.scene import Scene, project, sample, shape


def by_index(**scripts):
    """A plan that gives completion index N the script `p<N>`, the others one that runs until it is stopped."""

    def plan(pod, container):
        index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        return scripts.get(f"p{index}", Script())

    return plan


def exit_three(scene, name):
    scene.end(scene.pod(name, 0), 3)


def out_of_memory(scene, name):
    scene.end(scene.pod(name, 0), 137, "OOMKilled")


def succeed(scene, name):
    for index in (0, 1):
        scene.end(scene.pod(name, index), 0)


def evict(scene, name):
    scene.cluster.evict(scene.pod(name, 0)["metadata"]["name"], "team-a")


def delete(scene, name):
    scene.cluster.delete(PODS, scene.pod(name, 0)["metadata"]["name"], "team-a")


def force_delete(scene, name):
    scene.cluster.delete(PODS, scene.pod(name, 0)["metadata"]["name"], "team-a", grace=0)


def pressure(scene, name):
    scene.kubelet.evict_for_pressure(scene.pod(name, 0)["metadata"]["uid"])


def lose_the_node_object(scene, name):
    scene.cluster.delete(NODES, scene.pod(name, 0)["spec"]["nodeName"])
    scene.advance(60)


def pass_the_jobs_deadline(scene, name):
    scene.advance(4)


ENDINGS = {
    "end-exit3": (exit_three, {}),
    "end-oom": (out_of_memory, {}),
    "end-success": (succeed, {}),
    "end-evict-api": (evict, {}),
    "end-pod-deleted": (delete, {}),
    "end-pod-force-deleted": (force_delete, {}),
    "end-node-pressure": (pressure, {}),
    "end-node-deleted": (lose_the_node_object, {}),
    "end-deadline-job": (pass_the_jobs_deadline, {"activeDeadlineSeconds": 4}),
}


@pytest.fixture(params=ENDINGS)
def ending(request):
    act, runtime = ENDINGS[request.param]
    theirs = sample(request.param)
    name = theirs["trainjob"]["metadata"]["name"]
    with Scene() as scene:
        scene.run(name, **runtime)
        act(scene, name)
        scene.advance(10)
        yield scene, name, theirs


def test_the_status_of_trainjob_jobset_and_job_is_the_real_one(ending):
    scene, name, theirs = ending
    assert shape(scene.train_job(name)["status"]) == shape(theirs["trainjob"]["status"])
    assert shape(scene.jobset(name)["status"]) == shape(theirs["jobset"]["status"])
    assert shape(scene.job(name)["status"]) == shape(theirs["job"]["status"])


def test_the_generations_and_owners_are_the_real_ones(ending):
    scene, name, theirs = ending
    for obj, kind in (
        (scene.train_job(name), "trainjob"),
        (scene.jobset(name), "jobset"),
        (scene.job(name), "job"),
    ):
        metadata = theirs[kind]["metadata"]
        assert shape(project(obj["metadata"], metadata)) == shape(metadata)


def test_each_pod_was_last_seen_as_on_the_real_thing(ending):
    scene, name, theirs = ending
    for pod in theirs["pods"]:
        index = pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        event, ours = scene.last_seen(name, int(index))
        assert event == pod["watchLastEvent"]
        if pod["status"].get("reason") == "Evicted":
            # That status was written by hand on the real thing, which no kubelet stood behind.
            scene.condition(pod, "Ready").update(status="False", reason="PodFailed")
        assert shape(project(ours["status"], pod["status"])) == shape(pod["status"])
        assert shape(project(ours["metadata"], pod["metadata"])) == shape(pod["metadata"])
        assert ("deletionTimestamp" in ours["metadata"]) == ("deletionTimestamp" in pod["metadata"])
        assert ours["metadata"].get("finalizers") == pod["metadata"].get("finalizers")
        assert pod["stillThere"] == any(
            other["metadata"]["uid"] == ours["metadata"]["uid"] for other in scene.pods(name)
        )


def test_the_events_are_the_real_ones(ending):
    scene, _, theirs = ending
    wanted = sorted(str(shape(event)) for event in theirs["events"])
    assert sorted(str(shape(event)) for event in scene.events()) == wanted


def test_kill_9_is_137_with_reason_error():
    with Scene() as scene:
        scene.run("k9-1")
        scene.end(scene.pod("k9-1", 0), 137)
        scene.advance(10)
        terminated = scene.pod("k9-1", 0)["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (137, "Error")


def test_the_trainjobs_deadline_is_told_before_the_pods_end_and_takes_jobset_and_job_away():
    theirs = sample("end-deadline-trainjob")
    with Scene() as scene:
        scene.run("dl-1", spec={"activeDeadlineSeconds": 4})
        scene.advance(2)
        assert shape(scene.train_job("dl-1")["status"]) == shape(theirs["trainjob"]["status"])
        assert scene.absent(JOB_SETS, "dl-1")
        assert [pod["status"]["phase"] for pod in scene.pods("dl-1")] == ["Running", "Running"]
        scene.advance(5)
        assert scene.pods("dl-1") == []
        for index in (0, 1):
            event, pod = scene.last_seen("dl-1", index)
            assert event == "DELETED"
            assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_a_stuck_image_never_ends():
    theirs = sample("end-image-stuck")
    with Scene(Script.image_stuck()) as scene:
        scene.run("img-1")
        scene.advance(86400)
        assert shape(scene.train_job("img-1")["status"]) == shape(theirs["trainjob"]["status"])
        assert shape(scene.job("img-1")["status"]) == shape(theirs["job"]["status"])
        for pod in theirs["pods"]:
            ours = scene.pod("img-1", int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))
            assert shape(project(ours["status"], pod["status"])) == shape(pod["status"])
            assert ours["metadata"]["finalizers"] == pod["metadata"]["finalizers"]


def test_an_unschedulable_pod_says_so_and_never_ends():
    theirs = sample("end-unschedulable")
    with Scene() as scene:
        for name in ("node-0", "node-1", "node-2"):
            scene.cluster.taint_node(name, "team", "NoSchedule", "other")
        scene.run("us-1")
        scene.advance(86400)
        assert shape(scene.train_job("us-1")["status"]) == shape(theirs["trainjob"]["status"])
        assert shape(scene.job("us-1")["status"]) == shape(theirs["job"]["status"])
        for pod in theirs["pods"]:
            ours = scene.pod("us-1", int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]))
            assert "nodeName" not in ours["spec"]
            assert shape(project(ours["status"], pod["status"])) == shape(pod["status"])
        wanted = sorted(str(shape(event)) for event in theirs["events"])
        assert sorted(str(shape(event)) for event in scene.events()) == wanted


def test_an_unschedulable_pod_is_bound_when_room_comes():
    with Scene() as scene:
        for name in ("node-0", "node-1", "node-2"):
            scene.cluster.cordon(name)
        scene.run("us-2")
        assert all("nodeName" not in pod["spec"] for pod in scene.pods("us-2"))
        scene.cluster.cordon("node-1", cordoned=False)
        scene.advance(2)
        assert [pod["spec"]["nodeName"] for pod in scene.pods("us-2")] == ["node-1", "node-1"]


def test_a_pod_of_higher_priority_preempts():
    theirs = sample("end-preempt-scheduler")
    with Scene(nodes=1) as scene:
        scene.run("pre-1", nodes=1, spec={"trainer": {"resourcesPerNode": {"requests": {"cpu": "60"}}}})
        container = {"name": "c", "image": "x:y", "resources": {"requests": {"cpu": "60"}}}
        preemptor = {
            "metadata": {"name": "big", "namespace": "team-a"},
            "spec": {"containers": [container], "priority": 100},
        }
        scene.cluster.create(PODS, preemptor)
        scene.advance(10)
        victim = theirs["pods"][0]
        event, ours = scene.last_seen("pre-1", 0)
        assert event == "DELETED"
        assert shape(project(ours["status"], victim["status"])) == shape(victim["status"])
        assert scene.get(PODS, "big")["spec"]["nodeName"] == "node-0"
        preempted = next(event for event in scene.events("Pod") if event["reason"] == "Preempted")
        uid = scene.get(PODS, "big")["metadata"]["uid"]
        assert preempted["message"] == f"Preempted by pod {uid} on node node-0"
        assert scene.is_true(scene.train_job("pre-1"), "Failed")


class TestASilentNode:
    @pytest.fixture
    def scene(self):
        with Scene(by_index()) as scene:
            scene.run("nr-1")
            self.node = scene.pod("nr-1", 1)["spec"]["nodeName"]
            scene.cluster.lose_node(self.node)
            yield scene

    def test_it_is_marked_after_the_grace_period(self, scene):
        scene.advance(49)
        assert scene.is_true(scene.node(self.node), "Ready")
        scene.advance(2)
        theirs = sample("end-node-not-ready")["node"]
        ours = scene.node(self.node)
        ready = scene.condition(ours, "Ready")
        assert {key: ready[key] for key in ("status", "reason", "message")} == {
            key: theirs["status"]["conditions"][0][key] for key in ("status", "reason", "message")
        }
        taints = [{key: taint[key] for key in ("effect", "key")} for taint in ours["spec"]["taints"]]
        assert taints == [{key: taint[key] for key in ("effect", "key")} for taint in theirs["spec"]["taints"]]
        pod = scene.pod("nr-1", 1)
        assert scene.condition(pod, "Ready")["status"] == "False"
        assert "NodeNotReady" in scene.reasons("Pod")

    def test_its_pod_is_deleted_after_the_toleration_and_stays_running_while_no_failure_is_told(self, scene):
        scene.advance(50 + 300 + 45)
        theirs = sample("end-node-not-ready")
        assert shape(scene.job("nr-1")["status"]) == shape(theirs["job"]["status"])
        assert shape(scene.jobset("nr-1")["status"]) == shape(theirs["jobset"]["status"])
        assert scene.condition(scene.train_job("nr-1"), "Failed") is None
        [pod] = scene.pods("nr-1")
        sampled = theirs["pods"][1]
        assert shape(project(pod["status"], sampled["status"])) == shape(sampled["status"])
        assert shape(project(pod["metadata"], sampled["metadata"])) == shape(sampled["metadata"])
        assert pod["metadata"].get("finalizers") is None
        assert [run.pod["metadata"]["name"] for run in scene.kubelet.running()] == [pod["metadata"]["name"]]

    def test_out_of_service_writes_the_pod_off_and_then_the_failure_is_told(self, scene):
        scene.advance(50 + 300 + 10)
        scene.cluster.taint_node(self.node, "node.kubernetes.io/out-of-service", "NoExecute", "nodeshutdown")
        scene.advance(25)
        theirs = sample("end-out-of-service")
        event, pod = scene.last_seen("nr-1", 1)
        assert event == "DELETED"
        sampled = theirs["pods"][0]
        assert shape(project(pod["status"], sampled["status"])) == shape(sampled["status"])
        assert shape(scene.train_job("nr-1")["status"]) == shape(theirs["trainjob"]["status"])
        assert len(scene.kubelet.running()) == 1

    def test_when_it_returns_the_pod_ends_and_the_failure_is_told(self, scene):
        scene.advance(50 + 300 + 10)
        scene.cluster.return_node(self.node)
        scene.advance(10)
        assert scene.pods("nr-1") == []
        assert "taints" not in scene.node(self.node)["spec"]
        assert scene.is_true(scene.node(self.node), "Ready")
        assert scene.is_true(scene.train_job("nr-1"), "Failed")

    def test_a_short_silence_changes_nothing(self, scene):
        scene.advance(20)
        scene.cluster.return_node(self.node)
        scene.advance(500)
        assert [pod["status"]["phase"] for pod in scene.pods("nr-1")] == ["Running", "Running"]
        assert "taints" not in scene.node(self.node)["spec"]


def test_out_of_service_on_a_live_node_ends_the_pod_as_any_eviction():
    with Scene() as scene:
        scene.run("oos-1")
        node = scene.pod("oos-1", 0)["spec"]["nodeName"]
        scene.cluster.taint_node(node, "node.kubernetes.io/out-of-service", "NoExecute", "nodeshutdown")
        scene.advance(10)
        _, pod = scene.last_seen("oos-1", 0)
        assert scene.condition(pod, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
        assert "TaintManagerEviction" in scene.reasons("Pod")


def test_a_reboot_ends_what_ran_and_changes_the_boot_id():
    with Scene() as scene:
        scene.run("rb-1")
        node = scene.pod("rb-1", 0)["spec"]["nodeName"]
        before = scene.node(node)["status"]["nodeInfo"]["bootID"]
        scene.cluster.reboot_node(node)
        scene.advance(10)
        assert scene.node(node)["status"]["nodeInfo"]["bootID"] != before
        terminated = scene.pod("rb-1", 0)["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (255, "Unknown")
        assert scene.is_true(scene.train_job("rb-1"), "Failed")


def test_the_peer_of_a_failed_pod_is_deleted_and_shows_143_whatever_it_would_have_exited_with():
    with Scene(by_index(p0=Script(run=4, exit_code=1), p1=Script(run=5.4, exit_code=3, stop_after=0.1))) as scene:
        scene.run("pe-1")
        scene.advance(20)
        event, peer = scene.last_seen("pe-1", 1)
        assert event == "DELETED"
        assert peer["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_failed_waits_for_the_last_terminating_pod():
    with Scene(by_index(p1=Script(stop_after=20.0))) as scene:
        scene.run("wt-1")
        scene.end(scene.pod("wt-1", 0), 1)
        scene.advance(15)
        job = scene.job("wt-1")
        assert scene.is_true(job, "FailureTarget")
        assert job["status"]["terminating"] == 1
        assert scene.condition(job, "Failed") is None
        assert scene.condition(scene.train_job("wt-1"), "Failed") is None
        scene.advance(10)
        assert scene.is_true(scene.job("wt-1"), "Failed")
        assert scene.is_true(scene.train_job("wt-1"), "Failed")


def test_the_deletion_timestamp_lies_in_the_future_by_the_grace_period():
    with Scene(Script(stop_after=20.0)) as scene:
        scene.run("gr-1")
        pod = scene.pod("gr-1", 0)
        scene.cluster.delete(PODS, pod["metadata"]["name"], "team-a")
        marked = scene.pod("gr-1", 0)["metadata"]
        assert marked["deletionGracePeriodSeconds"] == 30
        assert marked["deletionTimestamp"] == "2026-01-01T00:00:33Z"


def test_a_pod_never_bound_goes_at_once_without_a_node_name():
    with Scene() as scene:
        for name in ("node-0", "node-1", "node-2"):
            scene.cluster.cordon(name)
        scene.run("nb-1", nodes=1)
        scene.hold("nb-1")
        event, pod = scene.last_seen("nb-1", 0)
        assert event == "DELETED"
        assert "nodeName" not in pod["spec"]


def test_zero_nodes_are_complete_at_once_without_a_pod():
    with Scene() as scene:
        scene.run("z-1", nodes=0)
        scene.advance(3)
        assert scene.is_true(scene.get(TRAIN_JOBS, "z-1"), "Complete")
        assert scene.seen() == {}
