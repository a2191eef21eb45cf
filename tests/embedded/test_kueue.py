"""The embedded Kueue: what a Workload goes through from the gate to its end, as the real one was seen to do it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded import Cluster, Script, VirtualClock
from dispatch_kubeflow.backend.embedded.controllers.kinds import TRAIN_JOBS, TRAINING_RUNTIMES
from dispatch_kubeflow.backend.embedded.controllers.kueue import names
from dispatch_kubeflow.backend.embedded.controllers.kueue.names import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from dispatch_kubeflow.backend.embedded.controllers.kueue.quotas import shown
from dispatch_kubeflow.backend.embedded.errors import ApiError

from .kueue import CHECK, GATE, QueueScene
from .scene import NAMESPACE, project, sample, shape, train_job

HELD = ("False", "AdmissionGated")
RESERVED = ("True", "QuotaReserved")


def alike(scene: QueueScene, name: str, kept: str) -> bool:
    """Whether a job's Workload has the status of a sample from the real one, but for times and UIDs."""
    theirs = sample(f"kueue-{kept}-workload")["status"]
    ours = project(scene.workload(name)["status"], theirs)
    for status in (ours, theirs):
        status.pop("accumulatedPastExecutionTimeSeconds", None)
        for condition in status["conditions"]:
            condition["message"] = condition["message"].partition("(UID")[0]
    assert shape(ours) == shape(theirs)
    return True


def test_a_queued_train_job_waits_behind_its_gate_with_the_check_pending() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1")
        assert scene.suspended("kf-1")
        found = scene.workload("kf-1")
        theirs = sample("kueue-gated-workload")
        assert found["metadata"]["labels"] == {names.JOB_UID: scene.job("kf-1")["metadata"]["uid"]}
        assert found["metadata"]["annotations"] == theirs["metadata"]["annotations"]
        assert shape(found["metadata"]["ownerReferences"]) == shape(theirs["metadata"]["ownerReferences"])
        assert found["metadata"]["finalizers"] == theirs["metadata"]["finalizers"]
        for pod_set in found["spec"]["podSets"]:
            del pod_set["template"], pod_set["topologyRequest"]
        assert found["spec"] == theirs["spec"]
        assert alike(scene, "kf-1", "gated")


def test_a_lifted_gate_reserves_quota_and_a_ready_check_starts_the_job() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1")
        scene.open("kf-1")
        assert alike(scene, "kf-1", "reserved-check-pending")
        assert scene.suspended("kf-1")
        scene.check("kf-1")
        scene.advance()
        assert alike(scene, "kf-1", "running")
        theirs = sample("kueue-running-trainjob")
        ours = scene.job("kf-1")["spec"]["runtimePatches"]
        name = scene.workload("kf-1")["metadata"]["name"]
        theirs_said = json.dumps(theirs["spec"]["runtimePatches"]).replace("trainjob-kf-1-e65fb", name)
        assert shape(ours) == shape(json.loads(theirs_said))
        assert len(scene.pods("kf-1")) == 2
        assert scene.pods("kf-1")[0]["metadata"]["labels"][names.POD_CLUSTER_QUEUE] == "cq"


def test_deactivation_evicts_resets_the_check_and_frees_the_quota() -> None:
    with QueueScene(Script(start_after=10)) as scene:
        scene.run("kf-1")
        scene.set_active("kf-1", False)
        scene.advance()
        assert alike(scene, "kf-1", "inactive")
        assert scene.suspended("kf-1")
        assert scene.pods("kf-1") == []
        assert "replicatedJobs" not in str(scene.job("kf-1")["spec"]["runtimePatches"])


def test_reactivation_reserves_quota_again_and_waits_for_the_check() -> None:
    with QueueScene() as scene:
        scene.run("kf-1")
        scene.set_active("kf-1", False)
        scene.advance()
        scene.set_active("kf-1", True)
        found = scene.conditions("kf-1")
        assert found["QuotaReserved"] == RESERVED
        assert found["Evicted"] == ("False", "QuotaReserved")
        assert found["Requeued"] == ("True", "Reactivated")
        assert found["Admitted"] == ("False", "NoReservationUnsatisfiedChecks")
        assert scene.checks("kf-1") == [(CHECK, "Pending")]
        assert scene.suspended("kf-1")
        scene.check("kf-1")
        scene.advance()
        assert not scene.suspended("kf-1")


def test_a_gated_workload_can_be_deactivated_and_waits_when_it_is_opened() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1")
        scene.set_active("kf-1", False)
        scene.open("kf-1")
        assert scene.conditions("kf-1")["Evicted"] == ("True", "Deactivated")
        assert scene.conditions("kf-1")["QuotaReserved"][0] == "False"
        scene.set_active("kf-1", True)
        assert scene.conditions("kf-1")["QuotaReserved"] == RESERVED


def test_a_retried_check_evicts_and_gets_quota_again() -> None:
    with QueueScene() as scene:
        scene.run("kf-1")
        scene.check("kf-1", "Retry")
        scene.advance()
        assert alike(scene, "kf-1", "held")


def test_a_rejected_check_deactivates() -> None:
    with QueueScene() as scene:
        scene.run("kf-1")
        scene.check("kf-1", "Rejected")
        scene.advance()
        assert scene.workload("kf-1")["spec"]["active"] is False
        assert scene.conditions("kf-1")["Evicted"] == ("True", "DeactivatedDueToAdmissionCheck")
        assert "DeactivationTarget" not in scene.conditions("kf-1")


def test_a_higher_priority_sends_a_lower_one_away() -> None:
    with QueueScene() as scene:
        scene.run("ka-1", priority="low")
        scene.submit("kb-1", gate=None, priority="high")
        scene.advance(3)
        assert alike(scene, "ka-1", "preempted")
        assert scene.conditions("kb-1")["QuotaReserved"] == RESERVED
        assert scene.suspended("ka-1")


def test_who_was_sent_away_is_admitted_again_when_there_is_room() -> None:
    with QueueScene() as scene:
        scene.run("ka-1", priority="low")
        scene.submit("kb-1", gate=None, priority="high")
        scene.advance(3)
        scene.cluster.delete(TRAIN_JOBS, "kb-1", NAMESPACE)
        scene.advance(3)
        scene.check("ka-1")
        assert alike(scene, "ka-1", "readmitted")


@pytest.mark.parametrize(("exit_code", "kept", "reason"), [(0, "finished", "Succeeded"), (3, "failed", "Failed")])
def test_an_end_finishes_the_workload(exit_code: int, kept: str, reason: str) -> None:
    with QueueScene(Script(run=5, exit_code=exit_code)) as scene:
        scene.run("kf-1")
        scene.advance(20)
        theirs = next(
            each for each in sample(f"kueue-{kept}-workload")["status"]["conditions"] if each["type"] == "Finished"
        )
        assert scene.conditions("kf-1")["Finished"] == ("True", reason)
        assert scene.message("kf-1", "Finished").replace("kf-1", "kx-1") == theirs["message"].replace("kf-1", "kx-1")
        assert scene.conditions("kf-1")["QuotaReserved"] == RESERVED
        assert scene.conditions("kf-1")["Admitted"][0] == "True"
        assert "finalizers" not in scene.workload("kf-1")["metadata"]


def test_too_much_and_uncovered_requests_say_so() -> None:
    with QueueScene() as scene:
        scene.submit("kb-1", gate=None, requests={"cpu": "100"})
        scene.submit("ku-1", gate=None, requests={"example.com/foo": "1"})
        assert alike(scene, "kb-1", "too-big")
        assert alike(scene, "ku-1", "uncovered")


def test_a_job_of_the_shape_that_found_no_room_is_not_even_looked_at() -> None:
    with QueueScene() as scene:
        scene.run("ka-1")
        scene.submit("kb-1", gate=None)
        scene.submit("kc-1", gate=None)
        assert "4 more needed" in scene.message("kb-1", "QuotaReserved")
        assert alike(scene, "kc-1", "waiting")


def test_a_job_that_requests_nothing_loses_its_check_and_runs() -> None:
    with QueueScene() as scene:
        scene.submit("kn-1", gate=None, requests={})
        scene.advance()
        assert scene.checks("kn-1") == []
        assert scene.conditions("kn-1")["Admitted"][0] == "True"
        assert not scene.suspended("kn-1")


def test_a_queue_that_is_not_there_gives_no_check() -> None:
    with QueueScene() as scene:
        scene.submit("kn-1", queue="nosuch")
        assert scene.checks("kn-1") == []
        scene.open("kn-1")
        assert scene.message("kn-1", "QuotaReserved") == "LocalQueue nosuch doesn't exist"
        assert alike(scene, "kn-1", "no-queue")


@pytest.mark.parametrize(("kind", "name"), [(CLUSTER_QUEUES, "cq"), (LOCAL_QUEUES, "lq")])
def test_a_drained_queue_stops_what_runs_and_starts_it_again(kind: Any, name: str) -> None:
    namespace = NAMESPACE if kind.namespaced else None
    with QueueScene() as scene:
        scene.run("kf-1")
        scene.cluster.patch(kind, name, {"spec": {"stopPolicy": "HoldAndDrain"}}, namespace)
        scene.advance()
        assert scene.conditions("kf-1")["Evicted"] == ("True", f"{kind.kind}Stopped")
        assert scene.conditions("kf-1")["QuotaReserved"] == ("False", "Inadmissible")
        assert scene.checks("kf-1") == [(CHECK, "Pending")]
        scene.cluster.patch(kind, name, {"spec": {"stopPolicy": "None"}}, namespace)
        scene.advance()
        assert scene.conditions("kf-1")["Requeued"] == ("True", f"{kind.kind}Restarted")
        assert scene.conditions("kf-1")["QuotaReserved"] == RESERVED
        assert scene.suspended("kf-1")


def test_the_clusterqueue_drained_looks_as_the_real_one() -> None:
    with QueueScene() as scene:
        scene.run("kf-1")
        scene.cluster.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        scene.advance()
        assert alike(scene, "kf-1", "clusterqueue-holdanddrain-running")


def test_a_held_queue_lets_what_runs_run() -> None:
    with QueueScene() as scene:
        scene.run("kf-1")
        scene.cluster.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        scene.advance()
        assert scene.conditions("kf-1")["Admitted"][0] == "True"
        assert not scene.suspended("kf-1")


def test_a_check_taken_off_the_queue_starts_who_waits_but_not_who_is_held_or_gated() -> None:
    with QueueScene() as scene:
        scene.submit("kw-1", gate=None, requests={"cpu": "1"})
        scene.submit("kh-1", gate=None, requests={"cpu": "1"})
        scene.submit("kg-1", requests={"cpu": "1"})
        scene.set_active("kh-1", False)
        scene.cluster.patch(CLUSTER_QUEUES, "cq", {"spec": {"admissionChecksStrategy": None}})
        scene.advance()
        assert [scene.suspended(name) for name in ("kw-1", "kh-1", "kg-1")] == [False, True, True]
        assert scene.checks("kw-1") == []


def test_an_inactive_check_makes_the_queue_admit_nothing() -> None:
    with QueueScene() as scene:
        scene.activate(active=False)
        scene.submit("kf-1", gate=None)
        assert scene.conditions("kf-1")["QuotaReserved"] == ("False", "Inadmissible")
        status = scene.cluster.list(CLUSTER_QUEUES)[0]["status"]
        assert (status["conditions"][0]["status"], status["conditions"][0]["reason"]) == (
            "False",
            "AdmissionCheckInactive",
        )
        local = scene.cluster.list(LOCAL_QUEUES, NAMESPACE)[0]["status"]["conditions"][0]
        assert (local["status"], local["reason"]) == ("False", "ClusterQueueIsInactive")
        scene.activate()
        scene.advance()
        assert scene.conditions("kf-1")["QuotaReserved"] == RESERVED


def test_a_workload_deleted_by_hand_comes_again_with_its_check_pending() -> None:
    with QueueScene() as scene:
        scene.run("kf-1")
        before = scene.workload("kf-1")
        scene.cluster.delete(WORKLOADS, before["metadata"]["name"], NAMESPACE)
        scene.advance()
        after = scene.workload("kf-1")
        assert after["metadata"]["name"] == before["metadata"]["name"]
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after["spec"]["active"] is True
        assert scene.checks("kf-1") == [(CHECK, "Pending")]
        assert scene.suspended("kf-1")


def test_a_gate_removed_on_the_workload_alone_counts() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1")
        scene.change("kf-1", {"metadata": {"annotations": {names.GATED_BY: None}}})
        assert scene.conditions("kf-1")["QuotaReserved"] == RESERVED


def test_a_gate_can_only_be_taken_away() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1", gate=f"{GATE}, acme.io/b")
        scene.cluster.patch(TRAIN_JOBS, "kf-1", {"metadata": {"annotations": {names.GATED_BY: GATE}}}, NAMESPACE)
        for gates, why in ((f"{GATE},acme.io/b", "can only remove gates"), ("acme.io/c", "can only remove gates")):
            with pytest.raises(ApiError, match=why):
                scene.cluster.patch(
                    TRAIN_JOBS, "kf-1", {"metadata": {"annotations": {names.GATED_BY: gates}}}, NAMESPACE
                )
        scene.open("kf-1")
        with pytest.raises(ApiError, match="cannot add admission gate after creation") as caught:
            scene.cluster.patch(TRAIN_JOBS, "kf-1", {"metadata": {"annotations": {names.GATED_BY: GATE}}}, NAMESPACE)
        assert caught.value.status == 403


@pytest.mark.parametrize(
    ("managed", "default", "suspended", "queue"),
    [(False, False, False, None), (True, False, True, None), (False, True, True, "default")],
)
def test_what_becomes_of_a_job_without_a_queue(
    managed: bool, default: bool, suspended: bool, queue: str | None
) -> None:
    with QueueScene(manage_jobs_without_queue_name=managed) as scene:
        if default:
            scene.cluster.add_queue("default", NAMESPACE, cluster_queue="other")
            scene.settle()
        reference = {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"}
        job = train_job("plain", suspend=False, runtimeRef=reference)
        seen = scene.cluster.store.create(TRAIN_JOBS, job, dry_run=True)
        assert seen["spec"]["suspend"] is suspended
        assert (seen["metadata"].get("labels") or {}).get(names.QUEUE_NAME) == queue
        assert [each["manager"] for each in seen["spec"]["runtimePatches"]] == [names.PATCH_MANAGER]
        scene.cluster.create(TRAIN_JOBS, job)
        scene.advance()
        assert len(scene.workloads("plain")) == suspended


def test_while_kueue_is_down_no_train_job_can_be_written_and_a_workload_stays() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1")
        scene.cluster.take_down("kueue")
        scene.settle()
        with pytest.raises(ApiError, match="failed calling webhook") as caught:
            scene.open("kf-1")
        assert caught.value.status == 500
        scene.cluster.delete(TRAIN_JOBS, "kf-1", NAMESPACE)
        scene.advance()
        assert len(scene.workloads("kf-1")) == 1
        scene.cluster.bring_up("kueue")
        scene.advance()
        assert scene.workloads("kf-1") == []


def test_kueue_restarted_knows_what_is_reserved() -> None:
    with QueueScene() as scene:
        scene.run("ka-1")
        scene.cluster.take_down("kueue")
        scene.settle()
        scene.cluster.bring_up("kueue")
        scene.submit("kb-1", gate=None)
        scene.advance()
        assert scene.conditions("kb-1")["QuotaReserved"] == ("False", "Pending")


def test_a_job_unsuspended_by_hand_is_suspended_again() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1")
        scene.cluster.patch(TRAIN_JOBS, "kf-1", {"spec": {"suspend": False}}, NAMESPACE)
        scene.advance()
        assert scene.suspended("kf-1")
        assert scene.conditions("kf-1")["QuotaReserved"] == HELD


@pytest.mark.parametrize("empty", [{"args": []}, {"env": []}, {"env": [{"name": "A", "value": ""}]}])
def test_a_job_with_anything_empty_in_it_is_admitted_and_never_started(empty: dict[str, Any]) -> None:
    with QueueScene(check=None) as scene:
        scene.submit("ke-1", gate=None, trainer=empty)
        scene.advance(30)
        assert scene.conditions("ke-1")["Admitted"][0] == "True"
        assert scene.suspended("ke-1")


def test_quantities_are_rewritten_once_kueue_is_there() -> None:
    with QueueScene() as scene:
        scene.submit("kq-1", requests={"cpu": "1500m", "memory": "1024Mi"})
        assert scene.job("kq-1")["spec"]["trainer"]["resourcesPerNode"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}


def test_a_flavor_puts_its_labels_and_tolerations_on_the_pods() -> None:
    toleration = {"key": "acme.io/gpu", "operator": "Exists"}
    taint = {"key": "acme.io/gpu", "effect": "NoSchedule"}
    with QueueScene(check=None) as scene:
        spec = {"nodeLabels": {"acme.io/pool": "a"}, "nodeTaints": [taint], "tolerations": [toleration]}
        scene.cluster.patch(names.RESOURCE_FLAVORS, "default", {"spec": spec})
        scene.cluster.add_node("gpu", labels={"acme.io/pool": "a"}, taints=[taint])
        scene.submit("kf-1", gate=None)
        scene.advance()
        assert {pod["spec"]["nodeName"] for pod in scene.pods("kf-1")} == {"gpu"}
        assert scene.pods("kf-1")[0]["spec"]["nodeSelector"] == {"acme.io/pool": "a"}


def test_a_taint_that_nobody_tolerates_and_another_nodes_label_are_no_fit() -> None:
    with QueueScene(check=None) as scene:
        spec: dict[str, Any] = {"nodeLabels": {"acme.io/pool": "a"}}
        scene.cluster.patch(names.RESOURCE_FLAVORS, "default", {"spec": spec})
        scene.submit("kn-1", gate=None, pod={"nodeSelector": {"acme.io/pool": "b"}})
        assert "flavor default doesn't match node affinity" in scene.message("kn-1", "QuotaReserved")
        spec["nodeTaints"] = [{"key": "acme.io/gpu", "effect": "NoSchedule"}]
        scene.cluster.patch(names.RESOURCE_FLAVORS, "default", {"spec": spec})
        scene.submit("kt-1", gate=None)
        assert "untolerated taint" in scene.message("kt-1", "QuotaReserved")


def queue(name: str, quota: str, **more: Any) -> dict[str, Any]:
    """A ClusterQueue of one flavor in the cohort `both`."""
    quotas = {"name": "cpu", "nominalQuota": quota} | more.pop("limits", {})
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quotas]}]}
    return {
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "cohortName": "both", "resourceGroups": [group], **more},
    }


def cohort(scene: QueueScene, **limits: str) -> None:
    """The queues `mine`, that reclaims, and `theirs`, that borrows, each with room for four CPUs."""
    policy = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    scene.cluster.create(CLUSTER_QUEUES, queue("mine", "4", preemption=policy))
    scene.cluster.create(CLUSTER_QUEUES, queue("theirs", "4", limits=limits))
    for name in ("mine", "theirs"):
        made = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"clusterQueue": name}}
        scene.cluster.create(LOCAL_QUEUES, made)
    scene.settle()


def test_a_queue_borrows_from_its_cohort_until_it_is_reclaimed() -> None:
    with QueueScene(check=None) as scene:
        cohort(scene)
        scene.submit("kb-1", gate=None, queue="theirs", requests={"cpu": "3"})
        scene.advance()
        assert scene.conditions("kb-1")["Admitted"][0] == "True"
        scene.submit("km-1", gate=None, queue="mine")
        scene.advance(3)
        assert scene.conditions("kb-1")["Preempted"] == ("True", "InCohortReclamation")
        assert "reclamation within the cohort" in scene.message("kb-1", "Evicted")
        assert scene.conditions("km-1")["Admitted"][0] == "True"


def test_a_borrowing_limit_is_the_most_a_queue_may_have() -> None:
    with QueueScene(check=None) as scene:
        cohort(scene, borrowingLimit="1")
        scene.submit("kb-1", gate=None, queue="theirs", requests={"cpu": "3"})
        assert "maximum capacity (5)" in scene.message("kb-1", "QuotaReserved")


def test_what_a_queue_does_not_lend_is_its_own() -> None:
    with QueueScene(check=None) as scene:
        cohort(scene, lendingLimit="1")
        scene.submit("km-1", gate=None, queue="mine", requests={"cpu": "3"})
        assert "maximum capacity (5)" in scene.message("km-1", "QuotaReserved")
        scene.submit("kt-1", gate=None, queue="theirs", requests={"cpu": "2"})
        assert scene.conditions("kt-1")["QuotaReserved"] == RESERVED


def test_a_strict_queue_lets_nobody_overtake_its_head() -> None:
    with QueueScene(check=None) as scene:
        scene.cluster.patch(CLUSTER_QUEUES, "cq", {"spec": {"queueingStrategy": "StrictFIFO"}})
        scene.submit("ka-1", gate=None)
        scene.advance()
        scene.submit("kb-1", gate=None)
        scene.submit("kc-1", gate=None, requests={"cpu": "0"})
        scene.advance()
        assert scene.conditions("kb-1")["QuotaReserved"] == ("False", "Pending")
        assert "QuotaReserved" not in scene.conditions("kc-1")
        scene.cluster.delete(TRAIN_JOBS, "ka-1", NAMESPACE)
        scene.advance(3)
        assert scene.conditions("kb-1")["QuotaReserved"] == RESERVED


def test_a_limit_of_execution_deactivates() -> None:
    with QueueScene(check=None) as scene:
        scene.submit("kl-1", gate=None, labels={names.MAX_EXEC_TIME: "5"})
        scene.advance(10)
        assert scene.workload("kl-1")["spec"]["active"] is False
        assert scene.conditions("kl-1")["Evicted"] == ("True", "DeactivatedDueToMaximumExecutionTimeExceeded")


def test_a_check_may_ask_for_a_later_retry() -> None:
    with QueueScene() as scene:
        scene.submit("kr-1", gate=None)
        name = scene.workload("kr-1")["metadata"]["name"]
        now = scene.cluster.store.now()
        retry = {"name": CHECK, "state": "Retry", "message": "", "lastTransitionTime": now, "requeueAfterSeconds": 60}
        scene.cluster.patch(WORKLOADS, name, {"status": {"admissionChecks": [retry]}}, NAMESPACE, subresource="status")
        scene.advance(30)
        assert "Evicted" not in scene.conditions("kr-1")
        assert scene.workload("kr-1")["status"]["requeueState"]["requeueAt"] > now
        scene.advance(40)
        assert scene.conditions("kr-1")["Evicted"] == ("False", "QuotaReserved")
        assert scene.conditions("kr-1")["Requeued"] == ("True", "BackoffFinished")
        assert "requeueState" not in scene.workload("kr-1")["status"]


def test_the_flavors_of_a_check_decide_who_has_it() -> None:
    with QueueScene() as scene:
        other = {"name": "other", "resources": [{"name": "cpu", "nominalQuota": "8"}]}
        scene.cluster.create(names.RESOURCE_FLAVORS, {"metadata": {"name": "other"}, "spec": {}})
        spec = scene.cluster.list(CLUSTER_QUEUES)[0]["spec"]
        spec["resourceGroups"][0]["flavors"].append(other)
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK, "onFlavors": ["default"]}]}
        scene.cluster.patch(CLUSTER_QUEUES, "cq", {"spec": spec})
        scene.settle()
        scene.submit("kd-1", gate=None)
        scene.submit("ko-1", gate=None)
        scene.advance()
        assert scene.checks("kd-1") == [(CHECK, "Pending")]
        assert (scene.checks("ko-1"), scene.suspended("ko-1")) == ([], False)


def test_a_job_changed_while_it_waits_has_its_workload_changed_with_it() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1")
        before = scene.workload("kf-1")
        runtime = scene.cluster.list(TRAINING_RUNTIMES, NAMESPACE)[0]
        (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        toleration = {"key": "acme.io/x", "operator": "Exists"}
        replicated["template"]["spec"]["template"]["spec"]["tolerations"] = [toleration]
        scene.cluster.patch(TRAINING_RUNTIMES, "kf-1", runtime, NAMESPACE)
        scene.cluster.patch(TRAIN_JOBS, "kf-1", {"metadata": {"labels": {"acme.io/touched": "1"}}}, NAMESPACE)
        scene.advance()
        after = scene.workload("kf-1")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["spec"]["podSets"][0]["template"]["spec"]["tolerations"]


def test_a_runtime_that_is_gone_keeps_every_write_away() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1")
        scene.cluster.delete(TRAINING_RUNTIMES, "kf-1", NAMESPACE)
        with pytest.raises(ApiError, match="not found"):
            scene.open("kf-1")


def test_a_runtime_changed_while_the_job_runs_stops_it_and_makes_a_new_workload() -> None:
    with QueueScene() as scene:
        scene.run("kf-1")
        before = scene.workload("kf-1")["metadata"]["uid"]
        runtime = scene.cluster.list(TRAINING_RUNTIMES, NAMESPACE)[0]
        (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        replicated["template"]["spec"]["template"]["spec"]["containers"][0]["workingDir"] = "/else"
        scene.cluster.patch(TRAINING_RUNTIMES, "kf-1", runtime, NAMESPACE)
        scene.cluster.patch(TRAIN_JOBS, "kf-1", {"metadata": {"labels": {"acme.io/touched": "1"}}}, NAMESPACE)
        scene.advance(5)
        assert scene.workload("kf-1")["metadata"]["uid"] != before
        assert scene.suspended("kf-1")
        assert scene.checks("kf-1") == [(CHECK, "Pending")]


def test_a_priority_class_that_is_not_there_is_waited_for() -> None:
    with QueueScene() as scene:
        scene.submit("kp-1", priority="absent")
        assert scene.workloads("kp-1") == []
        scene.cluster.create(names.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "absent"}, "value": 7})
        scene.advance(30)
        assert scene.workload("kp-1")["spec"]["priority"] == 7


def test_the_pods_own_priority_counts_where_no_class_is_named() -> None:
    with QueueScene() as scene:
        scene.cluster.create(names.PRIORITY_CLASSES, {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True})
        scene.cluster.create(names.PRIORITY_CLASSES, {"metadata": {"name": "mine"}, "value": 5})
        scene.settle()
        scene.submit("kd-1")
        scene.submit("kn-1", pod={"priorityClassName": "mine"})
        assert scene.workload("kd-1")["spec"]["priority"] == 3
        assert scene.workload("kn-1")["spec"]["priorityClassRef"]["name"] == "mine"
        label = {"metadata": {"labels": {names.PRIORITY_CLASS: "high"}}}
        scene.cluster.patch(TRAIN_JOBS, "kn-1", label, NAMESPACE)
        scene.settle()
        assert scene.workload("kn-1")["spec"]["priority"] == 5


def test_a_workload_without_its_owner_is_finished() -> None:
    with QueueScene() as scene:
        scene.submit("kf-1")
        name = scene.workload("kf-1")["metadata"]["name"]
        scene.cluster.patch(WORKLOADS, name, {"metadata": {"ownerReferences": None}}, NAMESPACE)
        scene.advance()
        orphan = scene.cluster.get(WORKLOADS, name, NAMESPACE)
        assert orphan is not None
        assert "finalizers" not in orphan["metadata"]
        assert ("Finished", "OwnerNotFound") in {
            (each["type"], each["reason"]) for each in orphan["status"]["conditions"]
        }


@pytest.mark.parametrize(("kind", "name"), [(CLUSTER_QUEUES, "cq"), (LOCAL_QUEUES, "lq")])
def test_a_queue_that_is_deleted_takes_back_what_it_reserved(kind: Any, name: str) -> None:
    namespace = NAMESPACE if kind.namespaced else None
    with QueueScene() as scene:
        scene.submit("kf-1", gate=None)
        scene.cluster.delete(kind, name, namespace)
        scene.advance()
        assert scene.conditions("kf-1")["QuotaReserved"] == ("False", "Inadmissible")
        assert scene.cluster.get(kind, name, namespace) is None


def test_what_a_queue_names_and_is_not_there_keeps_it_inactive() -> None:
    with QueueScene() as scene:
        made = queue("lost", "4")
        made["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "nosuch"
        made["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "never"}]}
        scene.cluster.create(CLUSTER_QUEUES, made)
        scene.settle()
        found = next(each for each in scene.cluster.list(CLUSTER_QUEUES) if each["metadata"]["name"] == "lost")
        (active,) = found["status"]["conditions"]
        assert (active["status"], active["reason"]) == ("False", "FlavorNotFound")
        assert active["message"].endswith(
            "references missing ResourceFlavor(s): nosuch, references missing AdmissionCheck(s): never."
        )


def test_no_more_are_sent_away_than_have_to_go_and_the_newer_of_equals_first() -> None:
    with QueueScene(check=None) as scene:
        policy = {"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}}
        scene.cluster.patch(CLUSTER_QUEUES, "cq", {"spec": policy})
        scene.submit("kw-1", gate=GATE, requests={"cpu": "1"})
        scene.advance()
        for name in ("ka-1", "kb-1"):
            scene.submit(name, gate=None, requests={"cpu": "1"})
            scene.advance()
        scene.open("kw-1")
        scene.advance(3)
        assert scene.conditions("kw-1")["Admitted"][0] == "True"
        assert scene.conditions("kb-1")["Preempted"] == ("True", "InClusterQueue")
        assert scene.conditions("ka-1")["Admitted"][0] == "True"


def test_a_retry_written_without_quota_is_a_trap() -> None:
    with QueueScene() as scene:
        scene.run("ka-1")
        scene.submit("kb-1", gate=None)
        scene.check("kb-1", "Retry")
        scene.cluster.delete(TRAIN_JOBS, "ka-1", NAMESPACE)
        scene.advance(3)
        assert scene.message("kb-1", "QuotaReserved") == "The workload has failed admission checks"
        scene.check("kb-1")
        scene.advance(75)
        assert scene.conditions("kb-1")["QuotaReserved"] == ("False", "Pending")


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [("cpu", "1.5", "1500m"), ("memory", "1073741824", "1Gi"), ("memory", "1000", "1000"), ("acme.io/gpu", "8", "8")],
)
def test_amounts_are_written_as_kueue_writes_them(resource: str, amount: str, text: str) -> None:
    assert shown(resource, Decimal(amount)) == text


def test_a_job_without_kueues_own_patch_is_never_started() -> None:
    with QueueScene(check=None) as scene:
        scene.submit("kf-1")
        scene.cluster.patch(TRAIN_JOBS, "kf-1", {"spec": {"runtimePatches": None}}, NAMESPACE)
        scene.open("kf-1")
        scene.advance(5)
        assert scene.conditions("kf-1")["Admitted"][0] == "True"
        assert scene.suspended("kf-1")


def test_only_a_suspended_job_may_change_its_queue_and_none_its_limit_while_it_runs() -> None:
    with QueueScene(check=None) as scene:
        scene.submit("kf-1", gate=None)
        for label in (names.QUEUE_NAME, names.MAX_EXEC_TIME, names.PRIORITY_CLASS):
            with pytest.raises(ApiError) as caught:
                scene.cluster.patch(TRAIN_JOBS, "kf-1", {"metadata": {"labels": {label: "7"}}}, NAMESPACE)
            assert caught.value.status == 403


def test_a_cluster_without_kueue_has_nothing_of_it() -> None:
    cluster = Cluster(clock=VirtualClock(), serve=False)
    try:
        assert cluster.kueue is None
        assert not [name for name in cluster.controllers if name.startswith("kueue")]
        with pytest.raises(ValueError, match="no Kueue"):
            cluster.take_down("kueue")
    finally:
        cluster.close()
