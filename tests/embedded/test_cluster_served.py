"""The cluster as a client meets it: over its port, by the official client, on either clock."""

import json
import threading

import pytest
from kubernetes import client, config, watch

from dispatch_kubeflow.backend.embedded import Cluster, Script, ScriptedKubelet, VirtualClock
from tests.embedded.scene import NAMESPACE, runtime, train_job

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"


def clients(cluster, path, user="admin"):
    api = config.new_client_from_config(str(cluster.kubeconfig(path / f"{user}.json", user)))
    return client.CustomObjectsApi(api), client.CoreV1Api(api)


def submit(objects, name, command):
    job = train_job(name, 1, suspend=False, trainer={"command": command})
    for kind, plural, body in (("TrainingRuntime", "trainingruntimes", runtime(name)), ("TrainJob", "trainjobs", job)):
        typed = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, **body}
        objects.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, typed)


def test_a_job_runs_to_its_end_by_itself_and_its_output_can_be_read(tmp_path):
    with Cluster() as cluster:
        objects, core = clients(cluster, tmp_path)
        submit(objects, "real-1", ["python", "-c", "print('trained')"])
        seen = watch.Watch()
        for event in seen.stream(
            objects.list_namespaced_custom_object, GROUP, VERSION, NAMESPACE, "trainjobs", timeout_seconds=30
        ):
            conditions = event["object"].get("status", {}).get("conditions", [])
            if any(item["type"] == "Complete" and item["status"] == "True" for item in conditions):
                break
        else:
            pytest.fail("the watch ended before the job")
        seen.stop()
        [pod] = core.list_namespaced_pod(NAMESPACE).items
        assert pod.status.phase == "Succeeded"
        assert core.read_namespaced_pod_log(pod.metadata.name, NAMESPACE) == "trained\n"
        assert cluster.apiserver.failures == []
        assert {"POST", "GET"} <= {request.method for request in cluster.requests}
        committed = [request for request in cluster.requests if request.method == "POST"]
        assert all(request.status == 201 and request.committed for request in committed)


def test_a_followed_log_ends_when_the_cluster_does(tmp_path):
    with Cluster() as cluster:
        objects, core = clients(cluster, tmp_path)
        submit(objects, "follow-1", ["sh", "-c", "echo up; sleep 300"])
        changed = threading.Event()
        cluster.store.subscribe(wake=changed.set)
        while not (pods := [pod for pod in core.list_namespaced_pod(NAMESPACE).items if pod.status.phase == "Running"]):
            changed.clear()
            assert changed.wait(10)
        answer = core.read_namespaced_pod_log(pods[0].metadata.name, NAMESPACE, follow=True, _preload_content=False)
        assert answer.readline() == b"up\n"
    assert answer.read() == b""
    answer.close()


def test_on_a_virtual_clock_nothing_moves_until_it_is_told_to(tmp_path):
    with Cluster(clock=VirtualClock(), kubelet=ScriptedKubelet(Script(run=3600.0, lines=((1.0, "line"),)))) as cluster:
        objects, core = clients(cluster, tmp_path)
        submit(objects, "still-1", ["x"])
        assert core.list_namespaced_pod(NAMESPACE).items == []
        cluster.advance(10)
        [pod] = core.list_namespaced_pod(NAMESPACE).items
        assert pod.status.phase == "Running"
        assert core.read_namespaced_pod_log(pod.metadata.name, NAMESPACE) == "line\n"
        cluster.advance(3600)
        job = objects.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "trainjobs", "still-1")
        assert job["status"]["conditions"][-1]["type"] == "Complete"


def test_a_user_may_what_its_rules_say_and_is_refused_the_rest(tmp_path):
    with Cluster(clock=VirtualClock(), kubelet=ScriptedKubelet()) as cluster:
        cluster.user("reader", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
        objects, core = clients(cluster, tmp_path, "reader")
        assert core.list_namespaced_pod(NAMESPACE).items == []
        with pytest.raises(client.ApiException) as caught:
            objects.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "trainjobs")
        assert caught.value.status == 403
        assert json.loads(caught.value.body)["reason"] == "Forbidden"


def test_an_eviction_by_the_api_marks_the_pod_first(tmp_path):
    with Cluster(clock=VirtualClock(), kubelet=ScriptedKubelet(Script())) as cluster:
        objects, core = clients(cluster, tmp_path)
        submit(objects, "ev-1", ["x"])
        cluster.advance(2)
        [pod] = core.list_namespaced_pod(NAMESPACE).items
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod.metadata.name, namespace=NAMESPACE))
        core.create_namespaced_pod_eviction(pod.metadata.name, NAMESPACE, eviction)
        marked = core.read_namespaced_pod(pod.metadata.name, NAMESPACE)
        assert marked.metadata.deletion_timestamp is not None
        assert [item.reason for item in marked.status.conditions if item.type == "DisruptionTarget"] == [
            "EvictionByEvictionAPI"
        ]


def test_a_cluster_that_does_not_serve_has_no_address(tmp_path):
    with Cluster(clock=VirtualClock(), kubelet=ScriptedKubelet(), serve=False) as cluster:
        assert cluster.url is None
        with pytest.raises(RuntimeError):
            cluster.kubeconfig(tmp_path / "config")


def test_only_a_virtual_clock_can_be_moved():
    with Cluster(kubelet=ScriptedKubelet(), serve=False, nodes=0) as cluster, pytest.raises(TypeError):
        cluster.advance(1)


def test_the_same_seed_gives_the_same_names_and_uids():
    def names():
        with Cluster(clock=VirtualClock(), kubelet=ScriptedKubelet(), serve=False, seed=3) as cluster:
            from dispatch_kubeflow.backend.embedded.controllers.kinds import PODS, TRAIN_JOBS, TRAINING_RUNTIMES

            cluster.create(TRAINING_RUNTIMES, runtime("a-1"))
            cluster.create(TRAIN_JOBS, train_job("a-1", suspend=False))
            cluster.advance(3)
            return [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in cluster.list(PODS)]

    assert names() == names()


def test_a_virtual_clock_never_runs_backwards_and_wakes_those_who_wait():
    clock = VirtualClock()
    clock.advance(5)
    clock.move_to(3)
    assert clock.monotonic() == 5
    assert (clock.now() - VirtualClock().now()).total_seconds() == 5
    event, waited = threading.Event(), []
    thread = threading.Thread(target=lambda: waited.append(clock.wait(event, 10)))
    thread.start()
    clock.advance(9)
    assert thread.is_alive()
    clock.advance(2)
    thread.join(5)
    assert waited == [False]
    event.set()
    assert clock.wait(event, None)
