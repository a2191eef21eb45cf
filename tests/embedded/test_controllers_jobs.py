"""What Jobs and JobSets do beyond a TrainJob's usual life: retries, restarts, policies, order, time to live."""

import pytest

from dispatch_kubeflow.backend.embedded.controllers import indexes, quantities
from dispatch_kubeflow.backend.embedded.controllers.base import Controller
from dispatch_kubeflow.backend.embedded.controllers.kinds import (
    JOB_SETS,
    JOBS,
    PODS,
    SERVICES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from dispatch_kubeflow.backend.embedded.controllers.manager import Restless
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.kubelet import Script
from tests.embedded.scene import NAMESPACE, Scene, runtime, train_job


@pytest.fixture
def scene():
    with Scene() as scene:
        yield scene


def start(scene, name, change, nodes=2):
    """Run a job whose runtime's JobSet spec was changed by `change`."""
    copy = runtime(name)
    change(copy["spec"]["template"]["spec"])
    scene.cluster.create(TRAINING_RUNTIMES, copy)
    scene.cluster.create(TRAIN_JOBS, train_job(name, nodes, suspend=False))
    scene.advance(2)


def fail(scene, name):
    scene.end(scene.active(name)[0], 1)
    scene.advance(20)


def test_the_indexes_of_a_job_are_written_and_read_in_ranges():
    assert indexes.write({0, 1, 3, 5, 6, 7, 9}) == "0,1,3,5-7,9"
    assert indexes.parse("0,1,3,5-7,9") == {0, 1, 3, 5, 6, 7, 9}
    assert indexes.write(set()) == ""
    assert indexes.parse("") == set()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("1000m", "1"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), (2, "2"), ("1024Mi", "1Gi"), ("1000", "1k"), ("0", "0"),
        ("1e3", "1e3"), ("12E2", "1200"), ("0.0000000001", "1n"), ("512Ki", "512Ki"), ("0.5Ki", "512"), ("+3", "3"),
        ("-1500m", "-1500m"), ("0.1Gi", "107374183"), (0.5, "500m"), (" 1 ", "1"),
    ],
)  # fmt: skip
def test_quantities_are_written_as_kubernetes_writes_them(given, wanted):
    assert quantities.canonical(given) == wanted


@pytest.mark.parametrize("given", ["", "abc", "1 Gi", "1Xi", "--1", "1.2.3"])
def test_what_is_no_quantity_is_refused(given):
    with pytest.raises(quantities.QuantityError):
        quantities.value(given)


class TestRetries:
    def test_a_failed_pod_is_replaced_after_a_back_off_until_the_limit(self, scene):
        start(scene, "bo-1", lambda spec: spec["replicatedJobs"][0]["template"]["spec"].update(backoffLimit=1), nodes=1)
        scene.end(scene.active("bo-1")[0], 1)
        scene.advance(8)
        assert scene.active("bo-1") == []
        scene.advance(5)
        assert len(scene.active("bo-1")) == 1
        scene.end(scene.active("bo-1")[0], 1)
        scene.advance(5)
        assert scene.is_true(scene.train_job("bo-1"), "Failed")
        assert scene.job("bo-1")["status"]["failed"] == 2

    def test_on_failure_a_container_restarts_in_place_until_the_limit_and_then_goes_with_its_exit_code(self):
        with Scene(Script(run=1.0, exit_code=9)) as scene:

            def change(spec):
                job = spec["replicatedJobs"][0]["template"]["spec"]
                job["backoffLimit"] = 3
                job["template"]["spec"]["restartPolicy"] = "OnFailure"

            start(scene, "of-1", change, nodes=1)
            [status] = scene.pod("of-1", 0)["status"]["containerStatuses"]
            assert status["restartCount"] == 2
            assert status["lastState"]["terminated"]["exitCode"] == 9
            assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            assert scene.pod("of-1", 0)["status"]["phase"] == "Running"
            scene.advance(60)
            assert scene.is_true(scene.train_job("of-1"), "Failed")
            assert scene.pods("of-1") == []

    def test_a_job_that_shrinks_lets_its_highest_pods_go(self, scene):
        start(scene, "sh-1", lambda spec: None, nodes=3)
        scene.cluster.patch(JOBS, "sh-1-node-0", {"spec": {"parallelism": 1}}, NAMESPACE)
        scene.advance(5)
        [pod] = scene.pods("sh-1")
        assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"


class TestFailurePolicies:
    def test_a_restart_makes_new_jobs_and_counts(self, scene):
        start(scene, "rs-1", lambda spec: spec.update(failurePolicy={"maxRestarts": 1}))
        first = scene.job("rs-1")["metadata"]["uid"]
        fail(scene, "rs-1")
        status = scene.jobset("rs-1")["status"]
        assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
        assert scene.job("rs-1")["metadata"]["uid"] != first
        assert scene.job("rs-1")["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "1"
        assert len(scene.active("rs-1")) == 2
        fail(scene, "rs-1")
        failure = scene.condition(scene.train_job("rs-1"), "Failed")
        assert failure["reason"] == "ReachedMaxRestarts"

    def test_a_rule_may_fail_the_jobset_at_once(self, scene):
        rules = [
            {"name": "f", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]},
        ]
        start(scene, "fr-1", lambda spec: spec.update(failurePolicy={"maxRestarts": 3, "rules": rules}))
        fail(scene, "fr-1")
        failure = scene.condition(scene.train_job("fr-1"), "Failed")
        assert failure["reason"] == "FailJobSetFailurePolicyAction"
        assert failure["message"].endswith("(first failed job: fr-1-node-0)")

    def test_a_rule_may_restart_without_counting(self, scene):
        rules = [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]
        start(scene, "ri-1", lambda spec: spec.update(failurePolicy={"maxRestarts": 0, "rules": rules}))
        fail(scene, "ri-1")
        status = scene.jobset("ri-1")["status"]
        assert status["restarts"] == 1
        assert status.get("restartsCountTowardsMax", 0) == 0

    def test_the_first_rule_that_fits_decides_and_none_means_restart(self, scene):
        rules = [
            {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
            {"action": "FailJobSet", "targetReplicatedJobs": ["absent"]},
            {"action": "FailJobSet", "onJobFailureMessagePatterns": ["^never$"]},
        ]
        jobset = {
            "metadata": {"name": "js", "namespace": NAMESPACE},
            "spec": {
                "failurePolicy": {"maxRestarts": 2, "rules": rules},
                "replicatedJobs": [replicated("node"), replicated("absent")],
            },
        }
        scene.cluster.create(JOB_SETS, jobset)
        scene.advance(2)
        scene.end(scene.pods("js")[-1], 1)
        scene.advance(20)
        assert scene.jobset("js")["status"]["restarts"] == 1


def replicated(name, **more):
    pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "x:y"}]}
    job = {"backoffLimit": 0, "completions": 1, "parallelism": 1, "template": {"spec": pod}}
    return {"name": name, "template": {"spec": job}, **more}


def create_jobset(scene, name, **spec):
    scene.cluster.create(JOB_SETS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    scene.advance(2)


class TestJobSets:
    def test_a_dependent_job_waits_for_the_other_to_complete(self, scene):
        after = {"dependsOn": [{"name": "first", "status": "Complete"}]}
        create_jobset(scene, "dp", replicatedJobs=[replicated("first"), replicated("second", **after)])
        assert scene.absent(JOBS, "dp-second-0")
        scene.end(scene.pods("dp")[0], 0)
        scene.advance(3)
        assert not scene.absent(JOBS, "dp-second-0")

    def test_a_dependent_jobs_deadline_counts_from_its_own_start_and_one_it_waits_for_has_its_own(self, scene):
        jobs = [replicated("first"), replicated("second", dependsOn=[{"name": "first", "status": "Complete"}])]
        for each in jobs:
            each["template"]["spec"]["activeDeadlineSeconds"] = 20
        create_jobset(scene, "dd", replicatedJobs=jobs)
        create_jobset(scene, "dh", replicatedJobs=jobs)
        scene.advance(10)
        scene.end(scene.pods("dd")[0], 0)
        scene.advance(15)
        assert scene.absent(JOBS, "dh-second-0")
        assert "first failed job: dh-first-0" in scene.condition(scene.jobset("dh"), "Failed")["message"]
        assert scene.condition(scene.jobset("dd"), "Failed") is None
        scene.advance(15)
        assert "first failed job: dd-second-0" in scene.condition(scene.jobset("dd"), "Failed")["message"]

    def test_a_dependent_job_waits_for_the_other_to_be_ready(self, scene):
        scene.kubelet.plan = Script(start_after=10.0)
        after = {"dependsOn": [{"name": "first", "status": "Ready"}]}
        create_jobset(scene, "dr", replicatedJobs=[replicated("first"), replicated("second", **after)])
        assert scene.absent(JOBS, "dr-second-0")
        scene.advance(12)
        assert not scene.absent(JOBS, "dr-second-0")

    def test_success_may_be_decided_by_some_jobs_and_the_others_are_deleted(self, scene):
        policy = {"operator": "All", "targetReplicatedJobs": ["first"]}
        create_jobset(scene, "sp", successPolicy=policy, replicatedJobs=[replicated("first"), replicated("second")])
        scene.end(next(pod for pod in scene.pods("sp") if "-first-" in pod["metadata"]["name"]), 0)
        scene.advance(10)
        assert scene.is_true(scene.jobset("sp"), "Completed")
        assert scene.absent(JOBS, "sp-second-0")
        assert not scene.absent(JOBS, "sp-first-0")

    def test_success_may_be_decided_by_any_job(self, scene):
        create_jobset(
            scene, "sa", successPolicy={"operator": "Any"}, replicatedJobs=[replicated("first"), replicated("second")]
        )
        scene.end(scene.pods("sa")[0], 0)
        scene.advance(5)
        assert scene.is_true(scene.jobset("sa"), "Completed")

    def test_a_finished_jobset_is_deleted_when_its_time_to_live_is_over(self, scene):
        create_jobset(scene, "tl", ttlSecondsAfterFinished=60, replicatedJobs=[replicated("node")])
        scene.end(scene.pods("tl")[0], 0)
        scene.advance(30)
        assert scene.is_true(scene.jobset("tl"), "Completed")
        scene.advance(60)
        assert scene.absent(JOB_SETS, "tl")
        assert scene.pods("tl") == []

    def test_indexes_and_groups_are_counted_over_all_jobs(self, scene):
        create_jobset(scene, "gi", replicatedJobs=[replicated("a", replicas=2), replicated("b", groupName="other")])
        labels = scene.get(JOBS, "gi-b-0")["metadata"]["labels"]
        wanted = {"global-replicas": "3", "job-global-index": "2", "group-replicas": "1", "job-group-index": "0"}
        assert {key: labels[f"jobset.sigs.k8s.io/{key}"] for key in wanted} == wanted

    def test_one_without_a_spec_is_accepted_and_never_ends(self, scene):
        scene.cluster.create(JOB_SETS, {"metadata": {"name": "ns", "namespace": NAMESPACE}})
        scene.advance(5)
        assert scene.jobset("ns")["status"]["restarts"] == 0
        assert "conditions" not in scene.jobset("ns")["status"]

    def test_one_that_does_not_decode_is_a_400_of_its_mutating_webhook(self, scene):
        with pytest.raises(ApiError) as caught:
            create_jobset(scene, "md", ttlSecondsAfterFinished="soon", replicatedJobs=[replicated("node")])
        assert (caught.value.status, caught.value.reason) == (400, "")
        assert caught.value.message == (
            'admission webhook "mjobset.kb.io" denied the request: json: cannot unmarshal string into Go struct field '
            "JobSetSpec.spec.ttlSecondsAfterFinished of type int32"
        )

    def test_its_service_is_made_again_when_it_is_deleted(self, scene):
        create_jobset(scene, "sv", replicatedJobs=[replicated("node")])
        scene.cluster.delete(SERVICES, "sv", NAMESPACE)
        scene.advance(1)
        assert not scene.absent(SERVICES, "sv")

    def test_someone_elses_jobset_is_left_alone(self, scene):
        create_jobset(scene, "mk", managedBy="a.io/b", replicatedJobs=[replicated("node")])
        assert scene.absent(JOBS, "mk-node-0")

    def test_a_jobset_without_dns_has_no_service_and_its_pods_no_subdomain(self, scene):
        create_jobset(scene, "nd", network={"enableDNSHostnames": False}, replicatedJobs=[replicated("node")])
        assert "Service" not in scene.left("nd")
        assert "subdomain" not in scene.pods("nd")[0]["spec"]

    def test_a_job_that_kubernetes_refuses_is_told_by_an_event_on_the_jobset(self, scene):
        job = replicated("node")
        job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Always"
        create_jobset(scene, "rf", replicatedJobs=[job])
        assert "JobCreationFailed" in scene.reasons("JobSet")

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            (
                {"replicatedJobs": [replicated("b", dependsOn=[{"name": "a", "status": "Complete"}]), replicated("a")]},
                "cannot depend on",
            ),
            (
                {
                    "replicatedJobs": [replicated("a")],
                    "successPolicy": {"operator": "All", "targetReplicatedJobs": ["z"]},
                },
                "does not appear",
            ),
            ({"replicatedJobs": [replicated("UP")]}, "DNS-1035"),
        ],
    )
    def test_a_jobset_that_cannot_work_is_422(self, scene, spec, text):
        with pytest.raises(ApiError) as caught:
            create_jobset(scene, "bad", **spec)
        assert caught.value.status == 422
        assert text in caught.value.message

    def test_a_change_of_its_jobs_is_422_but_for_what_a_scheduler_may_set_while_it_is_suspended(self, scene):
        create_jobset(scene, "im", suspend=True, replicatedJobs=[replicated("node")])
        jobs = scene.jobset("im")["spec"]["replicatedJobs"]
        pod = jobs[0]["template"]["spec"]["template"]
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
        pod["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
        scene.cluster.patch(JOB_SETS, "im", {"spec": {"replicatedJobs": jobs, "suspend": False}}, NAMESPACE)
        scene.advance(3)
        [running] = scene.pods("im")
        assert running["spec"]["nodeName"] == "node-1"
        assert running["metadata"]["labels"]["a"] == "b"
        pod["spec"]["containers"][0]["image"] = "other"
        with pytest.raises(ApiError) as caught:
            scene.cluster.patch(JOB_SETS, "im", {"spec": {"replicatedJobs": jobs}}, NAMESPACE)
        assert caught.value.status == 422
        assert "field is immutable" in caught.value.message

    def test_its_manager_cannot_be_changed(self, scene):
        create_jobset(scene, "mb", managedBy="a.io/b", replicatedJobs=[replicated("node")])
        with pytest.raises(ApiError) as caught:
            scene.cluster.patch(JOB_SETS, "mb", {"spec": {"managedBy": "a.io/c"}}, NAMESPACE)
        assert caught.value.status == 422


class TestScheduling:
    def request(self, scene, name, **resources):
        container = {"name": "c", "image": "x:y", "resources": {"requests": resources, "limits": resources}}
        spec = {"containers": [container]}
        return scene.cluster.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})

    def test_pods_spread_and_resources_are_counted(self, scene):
        for index in range(4):
            self.request(scene, f"p{index}", cpu="40")
        scene.advance(1)
        bound = [pod["spec"].get("nodeName") for pod in scene.cluster.list(PODS)]
        assert sorted(filter(None, bound)) == ["node-0", "node-1", "node-2"]
        waiting = next(pod for pod in scene.cluster.list(PODS) if "nodeName" not in pod["spec"])
        message = scene.condition(waiting, "PodScheduled")["message"]
        assert message.startswith("0/3 nodes are available: 3 Insufficient cpu. ")
        scene.cluster.delete(PODS, "p0", NAMESPACE)
        scene.advance(5)
        assert scene.get(PODS, waiting["metadata"]["name"])["spec"]["nodeName"] == "node-0"

    def test_a_resource_no_node_has_is_never_given(self, scene):
        self.request(scene, "gpu", **{"nvidia.com/gpu": "1"})
        scene.advance(1)
        assert "Insufficient nvidia.com/gpu" in scene.condition(scene.get(PODS, "gpu"), "PodScheduled")["message"]
        scene.cluster.add_node("big", capacity={"nvidia.com/gpu": "8"})
        scene.advance(1)
        assert scene.get(PODS, "gpu")["spec"]["nodeName"] == "big"

    def test_a_toleration_opens_a_tainted_node(self, scene):
        scene.cluster.add_node(
            "own", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}], labels={"own": "yes"}
        )
        tolerations = [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}]
        spec = {"containers": [{"name": "c", "image": "x"}], "nodeSelector": {"own": "yes"}, "tolerations": tolerations}
        scene.cluster.create(PODS, {"metadata": {"name": "t", "namespace": NAMESPACE}, "spec": spec})
        scene.advance(1)
        assert scene.get(PODS, "t")["spec"]["nodeName"] == "own"

    def test_a_selector_no_node_matches_and_a_cluster_without_nodes_are_told(self):
        with Scene(nodes=0) as scene:
            self.request(scene, "none", cpu="1")
            scene.advance(1)
            assert (
                scene.condition(scene.get(PODS, "none"), "PodScheduled")["message"]
                == "no nodes available to schedule pods"
            )
            scene.cluster.add_node("a")
            spec = {"containers": [{"name": "c", "image": "x"}], "nodeSelector": {"x": "y"}}
            scene.cluster.create(PODS, {"metadata": {"name": "s", "namespace": NAMESPACE}, "spec": spec})
            scene.advance(1)
            assert (
                "didn't match Pod's node affinity/selector"
                in scene.condition(scene.get(PODS, "s"), "PodScheduled")["message"]
            )

    def test_a_gated_pod_and_another_schedulers_pod_are_left_alone(self, scene):
        base = {"containers": [{"name": "c", "image": "x"}]}
        for name, more in (("g", {"schedulingGates": [{"name": "a.io/b"}]}), ("o", {"schedulerName": "other"})):
            scene.cluster.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {**base, **more}})
        scene.advance(5)
        assert all("nodeName" not in pod["spec"] for pod in scene.cluster.list(PODS))

    def test_nobody_is_preempted_where_it_would_not_help_or_is_not_wanted(self, scene):
        for index in range(3):
            self.request(scene, f"p{index}", cpu="60")
        scene.advance(1)
        for name, cpu, policy in (("huge", "100", "PreemptLowerPriority"), ("meek", "60", "Never")):
            container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
            spec = {"containers": [container], "priority": 9, "preemptionPolicy": policy}
            scene.cluster.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
        scene.advance(5)
        assert len([pod for pod in scene.cluster.list(PODS) if pod["status"]["phase"] == "Running"]) == 3


def test_controllers_that_never_come_to_rest_are_found_out(scene, monkeypatch):
    class Restive(Controller):
        name = "restive"

        def handle(self, change):
            self.enqueue("x")

        def reconcile(self, key):
            self.enqueue("x")

    monkeypatch.setattr("dispatch_kubeflow.backend.embedded.controllers.manager.RUNAWAY", 100)
    scene.settle()
    scene.cluster._manager.controllers.append(Restive(scene.cluster._manager.world))
    scene.cluster.cordon("node-0")
    with pytest.raises(Restless, match="restive"):
        scene.settle()


def test_a_write_that_loses_a_race_is_tried_again_with_what_is_now_there(scene):
    scene.run("cf-1")
    jobset = scene.jobset("cf-1")
    reconcile, stale = type(scene.cluster.jobset).reconcile, []

    def late(self, key):
        if not stale:
            stale.append(scene.cluster.patch(JOB_SETS, "cf-1", {"metadata": {"labels": {"a": "b"}}}, NAMESPACE))
        reconcile(self, key)

    scene.cluster.jobset.reconcile = late.__get__(scene.cluster.jobset)
    scene.hold("cf-1")
    scene.advance(10)
    assert jobset["metadata"]["resourceVersion"] != stale[0]["metadata"]["resourceVersion"]
    assert scene.is_true(scene.jobset("cf-1"), "Suspended")
    assert scene.pods("cf-1") == []
