"""Containers as local processes, on the system's clock: exit codes, signals, output, environment, volumes, names,
leftovers.
"""

import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from dispatch_kubeflow.backend.embedded import Cluster, ProcessKubelet
from dispatch_kubeflow.backend.embedded.controllers.kinds import PODS, TRAIN_JOBS, TRAINING_RUNTIMES
from dispatch_kubeflow.backend.embedded.pods import LogQuery
from tests.embedded.scene import NAMESPACE, runtime, train_job


class Machine:
    """A cluster that runs by itself, and waiting for what it shows."""

    def __init__(self, cluster):
        self.cluster = cluster

    def until(self, look, seconds=20.0):
        """Wait for `look` to be true, looking after each write to the store."""
        changed = threading.Event()
        subscription = self.cluster.store.subscribe(wake=changed.set)
        try:
            end = time.monotonic() + seconds
            while not (found := look()):
                changed.clear()
                assert changed.wait(max(0.0, min(0.5, end - time.monotonic()))) or time.monotonic() < end, (
                    "waited in vain"
                )
                for _ in subscription.drain():
                    pass
            return found
        finally:
            self.cluster.store.unsubscribe(subscription)

    def pod(self, *command, name="p", wait="ended", args=(), grace=30, **spec):
        container = {"name": "node", "image": "x:y", "command": list(command), "args": list(args)}
        container |= {key: spec.pop(key) for key in ("env", "volumeMounts") if key in spec}
        body = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": grace, **spec}
        self.cluster.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": body})
        if wait == "ended":
            return self.until(lambda: self.ended(name))
        return self.until(lambda: self.in_phase(name, "Running"))

    def in_phase(self, name, *phases):
        pod = self.cluster.get(PODS, name, NAMESPACE)
        return pod if pod is not None and pod["status"]["phase"] in phases else None

    def ended(self, name):
        return self.in_phase(name, "Succeeded", "Failed")

    def log(self, pod, **query):
        return b"".join(self.cluster.kubelet.log(pod, "node", LogQuery(**query)))


@contextmanager
def machine(root=None):
    with Cluster(nodes=1, kubelet=ProcessKubelet(root), serve=False) as cluster:
        yield Machine(cluster)


@pytest.fixture(scope="module")
def shared():
    with machine() as found:
        yield found


def terminated(pod):
    return pod["status"]["containerStatuses"][0]["state"]["terminated"]


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        ("exit 0", "Succeeded", 0, "Completed"),
        ("exit 7", "Failed", 7, "Error"),
        ("kill -9 $$$$", "Failed", 137, "Error"),
        ("kill -TERM $$$$", "Failed", 143, "Error"),
    ],
)
def test_the_end_of_a_process_is_the_end_of_its_container(shared, script, phase, code, reason):
    name = f"end-{code}"
    pod = shared.pod("sh", "-c", script, name=name)
    state = terminated(pod)
    assert pod["status"]["phase"] == phase
    assert (state["exitCode"], state["reason"]) == (code, reason)
    assert state["containerID"].startswith("containerd://")
    assert state["startedAt"] <= state["finishedAt"]


def test_a_program_that_is_not_there_ends_its_container_with_128(shared):
    pod = shared.pod("no-such-program", name="absent")
    state = terminated(pod)
    assert (state["exitCode"], state["reason"]) == (128, "StartError")
    assert "no-such-program" in state["message"]


def test_without_a_command_a_container_cannot_be_created(shared):
    shared.cluster.create(
        PODS,
        {
            "metadata": {"name": "idle", "namespace": NAMESPACE},
            "spec": {"containers": [{"name": "node", "image": "x"}]},
        },
    )
    waits = shared.until(lambda: waiting(shared, "idle"))
    assert waits["reason"] == "CreateContainerError"


def test_a_pod_with_init_containers_is_refused_not_half_run(shared):
    spec = {
        "containers": [{"name": "node", "image": "x", "command": ["true"]}],
        "initContainers": [{"name": "i", "image": "x"}],
    }
    shared.cluster.create(PODS, {"metadata": {"name": "init", "namespace": NAMESPACE}, "spec": spec})
    assert shared.until(lambda: waiting(shared, "init"))["message"] == "initContainers are not run as processes"


def waiting(shared, name):
    pod = shared.cluster.get(PODS, name, NAMESPACE)
    for status in pod["status"].get("containerStatuses") or ():
        return status["state"].get("waiting")
    return None


def test_both_streams_are_kept_in_order_with_their_times(shared):
    script = "echo one; echo two >&2; printf three"
    pod = shared.pod("sh", "-c", script, name="streams")
    assert sorted(shared.log(pod).split(b"\n")) == [b"one", b"three", b"two"]
    assert shared.log(pod, timestamps=True).split()[0].endswith(b"Z")


def test_a_log_is_followed_until_the_container_ends(shared):
    pod = shared.pod(
        "sh", "-c", "echo first; read line < /dev/stdin; sleep 0.2; echo last", name="follow", wait="running"
    )
    assert shared.log(pod, follow=True) == b"first\nlast\n"


def test_a_log_of_a_pod_that_has_not_started_is_refused(shared):
    from dispatch_kubeflow.backend.embedded.errors import ApiError

    pod = {
        "metadata": {"name": "x", "namespace": NAMESPACE, "uid": "none"},
        "spec": {"nodeName": "node-0"},
        "status": {},
    }
    with pytest.raises(ApiError) as caught:
        shared.log(pod)
    assert (caught.value.status, caught.value.message) == (
        400,
        'container "node" in pod "x" is waiting to start: ContainerCreating',
    )


def test_the_environment_is_the_containers_own(shared, monkeypatch):
    monkeypatch.setenv("OUTSIDE", "seen")
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)-$(NONE)-$$(A)"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['absent']"}}},
    ]
    pod = shared.pod("sh", "-c", "env; echo arg=$0", args=["$(A)"], name="env", env=env)
    lines = dict(line.split("=", 1) for line in shared.log(pod).decode().splitlines())
    assert "OUTSIDE" not in lines
    assert (lines["A"], lines["B"], lines["NAME"], lines["LABEL"]) == ("1", "1-$(NONE)-$(A)", "env", "")
    assert lines["IP"] == pod["status"]["podIP"]
    assert lines["HOST"] == "127.0.0.1"
    assert lines["arg"] == "1"


def test_each_pod_works_in_a_folder_of_its_own_that_goes_with_it(shared):
    pods = [shared.pod("sh", "-c", "pwd; echo > file; ls", name=f"home-{index}") for index in range(2)]
    homes = [shared.log(pod).split(b"\n")[0].decode() for pod in pods]
    assert homes[0] != homes[1]
    assert shared.log(pods[0]).split(b"\n")[1] == b"file"
    assert not Path(homes[0]).exists()


def test_a_claim_is_one_folder_for_all_and_an_empty_dir_the_pods_own(shared):
    volumes = [
        {"name": "ck", "persistentVolumeClaim": {"claimName": "c1"}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "cm", "configMap": {"name": "absent"}},
    ]
    mounts = [
        {"name": "ck", "mountPath": "/checkpoints"},
        {"name": "ck", "mountPath": "/checkpoints/deep", "subPath": "sub"},
        {"name": "tmp", "mountPath": "/scratch/"},
        {"name": "cm", "mountPath": "/config"},
    ]
    env = [
        {"name": "CHECKPOINT", "value": "/checkpoints/last"},
        {"name": "DEEP", "value": "/checkpoints/deep"},
        {"name": "NEAR", "value": "/checkpointsX"},
        {"name": "CONFIG", "value": "/config/x"},
    ]
    common = {"volumes": volumes, "volumeMounts": mounts, "env": env}
    shared.pod("sh", "-c", "echo step-7 > $CHECKPOINT; echo x > $0/mine", args=["/scratch"], name="writer", **common)
    reader = shared.pod(
        "sh",
        "-c",
        "cat $CHECKPOINT; ls $0; echo $NEAR $CONFIG; basename $DEEP",
        args=["/scratch"],
        name="reader",
        **common,
    )
    assert shared.log(reader) == b"step-7\n/checkpointsX /config/x\nsub\n"


class TestDeletion:
    def test_sigterm_first_and_the_answer_is_reported_before_the_pod_goes(self, shared):
        script = "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done"
        pod = shared.pod("sh", "-c", script, name="polite", wait="running")
        shared.until(lambda: shared.log(pod) == b"up\n")
        seen = shared.cluster.store.subscribe(PODS)
        shared.cluster.delete(PODS, "polite", NAMESPACE)
        shared.until(lambda: shared.cluster.get(PODS, "polite", NAMESPACE) is None)
        last = [event for event in seen.drain() if event.peek["metadata"]["name"] == "polite"][-1]
        assert last.type == "DELETED"
        assert terminated(last.peek)["exitCode"] == 4

    def test_sigkill_after_the_grace_period_for_the_whole_session(self, shared):
        script = "trap '' TERM; sleep 300 & echo $!; wait"
        pod = shared.pod("sh", "-c", script, name="stubborn", wait="running", grace=1)
        child = int(shared.until(lambda: shared.log(pod)))
        shared.cluster.delete(PODS, "stubborn", NAMESPACE)
        shared.until(lambda: shared.cluster.get(PODS, "stubborn", NAMESPACE) is None)
        assert not alive(child)

    def test_what_a_process_leaves_behind_dies_with_it_even_in_another_session(self, shared):
        script = "import os,subprocess;p=subprocess.Popen(['sleep','300'],start_new_session=True);print(p.pid)"
        pod = shared.pod("python", "-c", script, name="escape")
        child = int(shared.log(pod))
        shared.until(lambda: not alive(child))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_container_that_fails_is_restarted_in_place_and_its_earlier_output_can_be_read(shared):
    script = "if [ -e again ]; then echo two; exec sleep 300; fi; echo one; touch again; exit 3"
    shared.pod("sh", "-c", script, name="again", wait="running", restartPolicy="OnFailure")
    pod = shared.until(lambda: restarted(shared))
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 3
    shared.until(lambda: shared.log(pod) == b"two\n")
    assert shared.log(pod, previous=True) == b"one\n"


def restarted(shared):
    pod = shared.cluster.get(PODS, "again", NAMESPACE)
    [status] = pod["status"]["containerStatuses"]
    return pod if status["restartCount"] and "running" in status["state"] else None


RANK = """
import os, socket
rank = int(os.environ["PET_NODE_RANK"])
address = (os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as server:
        peer, _ = server.accept()
        with peer:
            print("rank 0 got", peer.recv(100).decode())
else:
    import time
    for _ in range(200):
        try:
            with socket.create_connection(address) as peer:
                peer.sendall(b"hello from rank 1")
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    print("rank 1 done")
"""


def test_two_jobs_of_two_nodes_meet_at_their_master_addresses_at_the_same_time(tmp_path):
    with machine(tmp_path / "root") as found:
        for name in ("net-1", "net-2"):
            found.cluster.create(TRAINING_RUNTIMES, runtime(name))
            job = train_job(name, suspend=False, trainer={"command": ["python", "-c", RANK]})
            found.cluster.create(TRAIN_JOBS, job)
        for name in ("net-1", "net-2"):
            found.until(lambda name=name: complete(found, name))
        for name in ("net-1", "net-2"):
            pods = found.cluster.list(PODS, NAMESPACE, f"jobset.sigs.k8s.io/jobset-name={name}")
            assert len({pod["status"]["podIP"] for pod in pods}) == 2
            assert sorted(found.log(pod) for pod in pods) == [b"rank 0 got hello from rank 1\n", b"rank 1 done\n"]


def complete(found, name):
    status = found.cluster.get(TRAIN_JOBS, name, NAMESPACE).get("status", {})
    ends = {item["type"]: item["status"] for item in status.get("conditions", [])}
    assert "Failed" not in ends
    return ends.get("Complete") == "True"


def test_the_next_generation_of_a_name_gets_another_address(tmp_path):
    with machine(tmp_path) as found:
        addresses = []
        for index in range(2):
            pod = found.pod("sleep", "300", name=f"g{index}", wait="running", hostname="h", subdomain="s")
            addresses.append(pod["status"]["podIP"])
            found.cluster.delete(PODS, f"g{index}", NAMESPACE, grace=0)
            found.until(lambda: not found.cluster.kubelet.running())
        assert addresses[0] != addresses[1]


def test_two_living_pods_of_one_name_have_an_address_each(tmp_path):
    with machine(tmp_path) as found:
        pods = [
            found.pod("sleep", "300", name=f"t{index}", wait="running", hostname="h", subdomain="s")
            for index in range(2)
        ]
        assert len({pod["status"]["podIP"] for pod in pods}) == 2


def test_names_of_other_services_and_other_text_are_left_alone(tmp_path):
    with machine(tmp_path) as found:
        values = {
            "SELF": "h.s",
            "FULL": "tcp://h.s.team-a.svc.cluster.local:5",
            "OTHER": "h.other",
            "ELSE": "h.s.team-b",
            "TEXT": "see h.s now",
        }
        env = [{"name": name, "value": value} for name, value in values.items()]
        pod = found.pod("env", name="names", env=env, hostname="h", subdomain="s")
        lines = dict(line.split("=", 1) for line in found.log(pod).decode().splitlines())
        address = pod["status"]["podIP"]
        assert (lines["SELF"], lines["FULL"]) == (address, f"tcp://{address}:5")
        assert {name: lines[name] for name in ("OTHER", "ELSE", "TEXT")} == {
            name: values[name] for name in ("OTHER", "ELSE", "TEXT")
        }


def test_nothing_is_left_when_the_cluster_stops():
    before = set(threading.enumerate())
    with machine() as found:
        pod = found.pod("sh", "-c", "sleep 300 & echo $!; wait", name="left", wait="running")
        child = int(found.until(lambda: found.log(pod)))
        root = found.cluster.kubelet.root
        reader = found.cluster.kubelet.log(pod, "node", LogQuery(follow=True))
        assert next(reader)
    assert not alive(child)
    assert not root.exists()
    assert list(reader) == []
    assert set(threading.enumerate()) <= before
