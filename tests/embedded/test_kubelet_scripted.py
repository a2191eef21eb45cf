"""Scripts, logs and ground truth on virtual time."""

import pytest

from dispatch_kubeflow.backend.embedded.controllers.kinds import PODS
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.kubelet import Script
from dispatch_kubeflow.backend.embedded.kubelet.scripted import by_command
from dispatch_kubeflow.backend.embedded.pods import LogQuery
from tests.embedded.scene import NAMESPACE, Scene


def pod(scene, name="p", containers=("node",), **spec):
    made = [{"name": container, "image": "x:y", "command": ["x"]} for container in containers]
    body = {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"restartPolicy": "Never", "containers": made, **spec},
    }
    scene.cluster.create(PODS, body)
    scene.settle()
    return scene.get(PODS, name)


def state(scene, name="p"):
    return scene.get(PODS, name)["status"]["containerStatuses"][0]["state"]


def log(scene, name="p", **query):
    return b"".join(scene.kubelet.log(scene.get(PODS, name), "node", LogQuery(**query)))


class TestScripts:
    def test_out_of_memory(self):
        with Scene(Script.out_of_memory(after=3)) as scene:
            pod(scene)
            scene.advance(3)
            assert (state(scene)["terminated"]["exitCode"], state(scene)["terminated"]["reason"]) == (137, "OOMKilled")

    def test_a_configuration_error_waits_for_ever(self):
        with Scene(Script.misconfigured()) as scene:
            pod(scene)
            scene.advance(9999)
            assert state(scene)["waiting"]["reason"] == "CreateContainerConfigError"
            assert scene.get(PODS, "p")["status"]["phase"] == "Pending"
            scene.cluster.delete(PODS, "p", NAMESPACE)
            scene.settle()
            assert scene.absent(PODS, "p")
            assert scene.kubelet.runs == []

    def test_a_slow_start_is_pending_meanwhile_and_a_deletion_forestalls_it(self):
        with Scene(Script(start_after=5.0)) as scene:
            pod(scene)
            pod(scene, "q")
            scene.advance(4)
            assert state(scene)["waiting"]["reason"] == "ContainerCreating"
            scene.cluster.delete(PODS, "q", NAMESPACE)
            scene.advance(2)
            assert "running" in state(scene)
            assert scene.absent(PODS, "q")
            assert len(scene.kubelet.runs) == 1

    def test_sigterm_ignored_is_sigkill_after_the_grace_period(self):
        with Scene(Script(stop_after=None)) as scene:
            pod(scene, terminationGracePeriodSeconds=10)
            scene.cluster.delete(PODS, "p", NAMESPACE)
            scene.advance(9)
            assert "running" in state(scene)
            scene.advance(2)
            assert scene.absent(PODS, "p")
            assert scene.kubelet.runs[0].exit_code == 137
            assert scene.kubelet.runs[0].ended == scene.kubelet.runs[0].started + 10

    def test_a_hanging_container_runs_on_after_a_forced_deletion_and_nobody_is_told(self):
        with Scene(Script(hang=True)) as scene:
            pod(scene)
            scene.cluster.delete(PODS, "p", NAMESPACE, grace=0)
            scene.advance(100)
            assert scene.absent(PODS, "p")
            [run] = scene.kubelet.running()
            scene.kubelet.unhang(run.uid)
            scene.settle()
            assert scene.kubelet.running() == []

    def test_several_containers_end_the_pod_when_all_have_ended_and_fail_it_when_one_failed(self):
        scripts = {"a": Script(run=1.0), "b": Script(run=2.0, exit_code=5)}
        with Scene(lambda pod, container: scripts[container]) as scene:
            pod(scene, containers=("a", "b"))
            scene.advance(1)
            shown = scene.get(PODS, "p")["status"]
            assert shown["phase"] == "Running"
            ready = scene.condition(scene.get(PODS, "p"), "Ready")
            assert (ready["status"], ready["reason"]) == ("False", "ContainersNotReady")
            scene.advance(2)
            assert scene.get(PODS, "p")["status"]["phase"] == "Failed"

    @pytest.mark.parametrize(
        ("command", "args", "script"),
        [
            (["sleep", "5"], [], Script(run=5.0)),
            (["sleep"], ["0.5"], Script(run=0.5)),
            (["exit", "3"], [], Script(run=0.0, exit_code=3)),
            (["python", "-c", "x"], [], Script()),
            ([], [], Script()),
        ],
    )
    def test_the_usual_plan_reads_the_command(self, command, args, script):
        container = {"name": "node", "command": command, "args": args}
        assert by_command({"spec": {"containers": [container]}}, "node") == script

    def test_a_plan_may_be_replaced_while_the_cluster_runs(self):
        with Scene(Script(run=1.0)) as scene:
            pod(scene)
            scene.kubelet.plan = Script(run=1.0, exit_code=2)
            pod(scene, "q")
            scene.advance(2)
            assert [state(scene, name)["terminated"]["exitCode"] for name in ("p", "q")] == [0, 2]

    def test_an_end_that_comes_twice_or_too_late_is_void(self):
        with Scene(Script()) as scene:
            uid = pod(scene)["metadata"]["uid"]
            scene.kubelet.end(uid, 1)
            scene.kubelet.end(uid, 0)
            scene.settle()
            scene.kubelet.end(uid, 0)
            assert state(scene)["terminated"]["exitCode"] == 1


class TestNodes:
    def test_a_silent_node_takes_no_pod_up_and_its_log_cannot_be_read(self):
        with Scene(Script(), nodes=1) as scene:
            pod(scene)
            scene.cluster.lose_node("node-0")
            scene.settle()
            pod(scene, "q")
            assert "containerStatuses" not in scene.get(PODS, "q")["status"]
            with pytest.raises(ApiError) as caught:
                log(scene)
            assert (caught.value.status, caught.value.reason) == (500, "")
            scene.cluster.return_node("node-0")
            scene.settle()
            assert "running" in state(scene, "q")

    def test_a_node_that_returns_tells_what_ended_meanwhile(self):
        with Scene(Script(run=30.0), nodes=1) as scene:
            pod(scene)
            scene.cluster.lose_node("node-0")
            scene.advance(40)
            assert "running" in state(scene)
            assert scene.kubelet.running() == []
            scene.cluster.return_node("node-0")
            scene.settle()
            assert state(scene)["terminated"]["exitCode"] == 0

    def test_a_silent_node_that_reboots_speaks_again(self):
        with Scene(Script(), nodes=1) as scene:
            pod(scene)
            scene.cluster.lose_node("node-0")
            scene.advance(60)
            scene.cluster.reboot_node("node-0")
            scene.settle()
            assert scene.is_true(scene.node("node-0"), "Ready")
            assert state(scene)["terminated"]["reason"] == "Unknown"
            assert scene.node("node-0")["status"]["nodeInfo"]["bootID"] == "boot-node-0-1"

    def test_a_node_object_that_is_gone_reports_no_more_about_itself(self):
        with Scene(Script(), nodes=1) as scene:
            scene.cluster.delete_node("node-0")
            scene.cluster.reboot_node("node-0")
            scene.settle()
            assert scene.cluster.get(PODS, "node-0") is None


class TestLogs:
    LINES = ((0.0, "one"), (1.0, "two"), (2.0, "three"), (3.0, "y" * 20000))

    @pytest.fixture
    def scene(self):
        with Scene(Script(run=10.0, lines=self.LINES)) as scene:
            pod(scene)
            scene.advance(5)
            yield scene

    def test_all_of_it_with_long_lines_whole(self, scene):
        assert log(scene) == b"one\ntwo\nthree\n" + b"y" * 20000 + b"\n"

    @pytest.mark.parametrize(
        ("count", "wanted"),
        [(0, b""), (1, b"y" * 20000 + b"\n"), (2, b"three\n" + b"y" * 20000 + b"\n"), (99, None)],
    )
    def test_a_line_stored_in_parts_is_one_line_of_the_tail(self, scene, count, wanted):
        assert log(scene, tail_lines=count) == (log(scene) if wanted is None else wanted)

    def test_since_a_time_or_so_many_seconds(self, scene):
        assert log(scene, since_seconds=3).startswith(b"three\n")
        moment = scene.cluster.clock.now()
        assert log(scene, since_time=moment) == b""

    def test_no_more_bytes_than_asked_for(self, scene):
        assert log(scene, limit_bytes=6) == b"one\ntw"

    def test_times_stand_once_before_each_line(self, scene):
        lines = log(scene, timestamps=True).splitlines()
        assert len(lines) == 4
        assert lines[0].split()[0] == b"2026-01-01T00:00:00.000000000Z"

    def test_an_earlier_run_there_was_none_of(self, scene):
        with pytest.raises(ApiError) as caught:
            log(scene, previous=True)
        assert caught.value.message == 'previous terminated container "node" in pod "p" not found'

    def test_a_container_that_waits_has_none(self):
        with Scene(Script.image_stuck()) as scene:
            pod(scene)
            with pytest.raises(ApiError) as caught:
                log(scene)
            assert caught.value.status == 400
            assert caught.value.message.endswith("is waiting to start: ImagePullBackOff")

    def test_it_goes_with_the_pod(self, scene):
        kept = scene.get(PODS, "p")
        scene.cluster.delete(PODS, "p", NAMESPACE)
        scene.advance(40)
        with pytest.raises(ApiError):
            scene.kubelet.log(kept, "node", LogQuery())


def test_a_kubelet_that_was_down_does_what_it_missed():
    with Scene(Script()) as scene:
        scene.cluster.take_down("kubelet")
        scene.run("kd-1")
        assert scene.kubelet.runs == []
        scene.cluster.bring_up("kubelet")
        scene.settle()
        assert len(scene.kubelet.running()) == 2
