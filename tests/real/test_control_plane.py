"""That the control plane is the real thing, and that its kubelets do what a pod's annotations say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .api import MERGE_PATCH, Object, condition, has
from .cluster import Cluster
from .expand import dig
from .training import hardened_copy, start, suspend, train_job

FOREVER = {"kubelet.test/runs": "forever"}
# A session's first test starts the control plane, and where it is missing builds it.
pytestmark = pytest.mark.timeout(3600, func_only=True)


def all_are(phase: str, count: int) -> Callable[[list[Object]], bool]:
    return lambda pods: len(pods) == count and all(pod["status"].get("phase") == phase for pod in pods)


def state(pod: Object) -> Object:
    found: Object = pod["status"]["containerStatuses"][0]["state"]
    return found


def test_a_gated_train_job_makes_a_suspended_job_set_and_no_pods(cluster: Cluster, namespace: str) -> None:
    start(cluster, namespace, "gated", {})
    cluster.wait(cluster.train_jobs(namespace), "gated", has("Suspended"))
    cluster.wait(cluster.jobs(namespace), "gated-node-0", has("Suspended"))
    assert cluster.api.get(cluster.pods(namespace))["items"] == []


def test_an_opened_train_job_runs_and_completes(cluster: Cluster, namespace: str) -> None:
    start(cluster, namespace, "opened", {"kubelet.test/runs": "0s"})
    suspend(cluster, namespace, "opened", False)
    ended = cluster.wait(cluster.train_jobs(namespace), "opened", has("Complete"))
    assert condition(ended, "Complete")["reason"] == "AllJobsCompleted"
    pods = cluster.api.get(cluster.pods(namespace))["items"]
    assert [state(pod)["terminated"]["exitCode"] for pod in pods] == [0, 0]
    assert all(state(pod)["terminated"]["containerID"] for pod in pods)


def test_a_pod_that_exits_with_a_code_fails_the_train_job_and_keeps_the_code(cluster: Cluster, namespace: str) -> None:
    start(cluster, namespace, "failing", {**FOREVER, "kubelet.test/runs.1": "0s", "kubelet.test/exit.1": "3"})
    suspend(cluster, namespace, "failing", False)
    ended = cluster.wait(cluster.train_jobs(namespace), "failing", has("Failed"))
    assert condition(ended, "Failed")["reason"] == "FailedJobs"
    (pod,) = cluster.api.get(cluster.pods(namespace))["items"]
    assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "1"
    assert (state(pod)["terminated"]["exitCode"], state(pod)["terminated"]["reason"]) == (3, "Error")


def test_a_pod_killed_for_memory_says_so(cluster: Cluster, namespace: str) -> None:
    killed = {"kubelet.test/runs": "0s", "kubelet.test/exit": "137", "kubelet.test/reason": "OOMKilled"}
    start(cluster, namespace, "oom", killed, nodes=1)
    suspend(cluster, namespace, "oom", False)
    cluster.wait(cluster.train_jobs(namespace), "oom", has("Failed"))
    (pod,) = cluster.api.get(cluster.pods(namespace))["items"]
    assert (state(pod)["terminated"]["exitCode"], state(pod)["terminated"]["reason"]) == (137, "OOMKilled")


def test_released_at_once_no_pod_starts_beside_an_old_one(cluster: Cluster, namespace: str) -> None:
    """podReplacementPolicy Failed is what keeps the generations apart, whatever the controllers have seen."""
    start(cluster, namespace, "held", {**FOREVER, "kubelet.test/stops": "never"})
    suspend(cluster, namespace, "held", False)
    old = {pod["metadata"]["uid"] for pod in cluster.wait_list(cluster.pods(namespace), all_are("Running", 2))}
    suspend(cluster, namespace, "held", True)
    cluster.wait_list(cluster.pods(namespace), lambda pods: all("deletionTimestamp" in p["metadata"] for p in pods))
    suspend(cluster, namespace, "held", False)
    cluster.wait(cluster.jobs(namespace), "held-node-0", has("Suspended", "False"))
    for pod in cluster.api.get(cluster.pods(namespace))["items"]:
        assert pod["metadata"]["uid"] in old
        stop_now = {"metadata": {"annotations": {"kubelet.test/stops": "0s"}}}
        cluster.api.merge(f"{cluster.pods(namespace)}/{pod['metadata']['name']}", stop_now)
    new = cluster.wait_list(cluster.pods(namespace), all_are("Running", 2))
    assert not old & {pod["metadata"]["uid"] for pod in new}


def test_an_image_that_cannot_be_pulled_keeps_the_pod_pending_with_its_reason(cluster: Cluster, namespace: str) -> None:
    start(cluster, namespace, "image", {"kubelet.test/waits": "ImagePullBackOff"}, nodes=1)
    suspend(cluster, namespace, "image", False)

    def stuck(pods: list[Object]) -> bool:
        statuses = [pod["status"].get("containerStatuses") for pod in pods]
        return any(s and s[0]["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for s in statuses)

    (pod,) = cluster.wait_list(cluster.pods(namespace), stuck)
    assert pod["status"]["phase"] == "Pending"


def test_trainers_webhook_denies_in_its_own_words(cluster: Cluster, namespace: str) -> None:
    answer = cluster.api.send("POST", cluster.train_jobs(namespace), train_job("no-runtime"))
    assert answer.status == 403
    assert answer.json()["reason"] == "Forbidden"
    assert answer.json()["message"].startswith('admission webhook "validator.trainjob.trainer.kubeflow.org" denied')


def run_on_a_node_that_falls_silent(cluster: Cluster, namespace: str, policy: str | None) -> str:
    """Returns the node's name once the taint manager has asked for the pod's deletion, in vain."""
    name = f"{namespace}-lost"
    cluster.add_node(name, {"lost": namespace})
    described = hardened_copy(cluster, "lost", FOREVER, policy=policy, selector={"lost": namespace})
    cluster.api.post(cluster.runtimes(namespace), described)
    cluster.api.post(cluster.train_jobs(namespace), train_job("lost", nodes=1, suspend=False))
    cluster.wait_list(cluster.pods(namespace), all_are("Running", 1))
    cluster.silence(name)
    cluster.wait("/api/v1/nodes", name, has("Ready", "Unknown"), seconds=40)
    (pod,) = cluster.wait_list(cluster.pods(namespace), lambda pods: "deletionTimestamp" in pods[0]["metadata"])
    assert condition(pod, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    assert pod["status"]["phase"] == "Running"
    return name


def test_a_silent_node_keeps_a_hardened_job_from_any_sign_of_failure(cluster: Cluster, namespace: str) -> None:
    """Under podReplacementPolicy Failed a pod that terminates is not counted as failed: there is no FailureTarget."""
    name = run_on_a_node_that_falls_silent(cluster, namespace, "Failed")
    job = cluster.wait(cluster.jobs(namespace), "lost-node-0", lambda seen: dig(seen, "status.terminating") == 1)
    assert job["status"].get("conditions") is None
    cluster.put_out_of_service(name)
    cluster.wait(cluster.train_jobs(namespace), "lost", has("Failed"), seconds=60)
    cluster.delete_node(name)


def test_a_silent_node_makes_an_unhardened_job_a_failure_target(cluster: Cluster, namespace: str) -> None:
    name = run_on_a_node_that_falls_silent(cluster, namespace, None)
    job = cluster.wait(cluster.jobs(namespace), "lost-node-0", has("FailureTarget"))
    assert condition(job, "Failed") == {}
    cluster.delete_node(name)


def test_foreground_deletion_of_a_running_train_job_makes_its_pods_anew(cluster: Cluster, namespace: str) -> None:
    """Trainer does not look at the deletion: it makes the deleted JobSet again, and the TrainJob stays."""
    start(cluster, namespace, "again", FOREVER, nodes=1)
    suspend(cluster, namespace, "again", False)
    (old,) = cluster.wait_list(cluster.pods(namespace), all_are("Running", 1))
    path = f"{cluster.train_jobs(namespace)}/again"
    cluster.api.expect("DELETE", path, {"propagationPolicy": "Foreground"})

    def made_anew(pods: list[Object]) -> bool:
        return any(pod["metadata"]["uid"] != old["metadata"]["uid"] for pod in pods)

    cluster.wait_list(cluster.pods(namespace), made_anew)
    # Sooner or later the collector is quicker than Trainer, and then all of it goes.
    seen = cluster.api.find(path)
    assert seen is None or "deletionTimestamp" in seen["metadata"]
    cluster.api.send("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)


def test_a_rebooted_node_shows_another_boot_id(cluster: Cluster, namespace: str) -> None:
    name = f"{namespace}-boots"
    cluster.add_node(name)
    before = cluster.api.get(f"/api/v1/nodes/{name}")["status"]["nodeInfo"]["bootID"]
    after = cluster.reboot(name)
    assert before != after
    assert cluster.api.get(f"/api/v1/nodes/{name}")["status"]["nodeInfo"]["bootID"] == after
    cluster.delete_node(name)


def test_output_of_a_pod_is_served_through_the_apiserver(cluster: Cluster, namespace: str) -> None:
    start(cluster, namespace, "talks", FOREVER, nodes=1)
    suspend(cluster, namespace, "talks", False)
    (pod,) = cluster.wait_list(cluster.pods(namespace), all_are("Running", 1))
    name = pod["metadata"]["name"]
    cluster.write_output(namespace, name, ["hello", "world"])
    answer = cluster.api.send("GET", f"{cluster.pods(namespace)}/{name}/log", query={"tailLines": "1"})
    assert (answer.status, answer.body) == (200, b"world\n")


def test_a_user_may_do_what_was_granted_and_nothing_else(cluster: Cluster, namespace: str) -> None:
    rules = [{"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["list"]}]
    user = cluster.user(rules, namespace=namespace)
    api = cluster.as_user(user)
    assert api.send("GET", cluster.train_jobs(namespace)).status == 200
    refused = api.send("GET", cluster.pods(namespace))
    assert refused.status == 403
    assert f'User "{user.name}" cannot list resource "pods"' in refused.json()["message"]
