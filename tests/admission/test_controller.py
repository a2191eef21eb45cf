import builtins
import contextlib
import http.client
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import msgspec
import pytest
from ruamel.yaml import YAML

from dispatch_kubeflow.backend.admission import running
from dispatch_kubeflow.backend.admission.controller import Controller, Place
from dispatch_kubeflow.backend.admission.leading import LeaseTimes
from dispatch_kubeflow.backend.admission.metrics import Metrics
from dispatch_kubeflow.backend.admission.serving import Pages
from dispatch_kubeflow.backend.cli.app import execute
from dispatch_kubeflow.backend.embedded.controllers.kinds import NAMESPACES
from dispatch_kubeflow.backend.requests import Door, load_access
from dispatch_kubeflow.backend.requests.resources import LEASES, WORKLOADS, Resource
from dispatch_kubeflow.machine.context import SystemClock
from dispatch_kubeflow.machine.rules import rulebook

from .scene import CHECK, LEASE, NAMESPACE, Recorder, Scene, workload_name

DOCS = pathlib.Path(__file__).parents[2] / "docs"
HOME = "dispatch-kubeflow"
ACCOUNT = f"system:serviceaccount:{HOME}:dispatch-kubeflow-admission"
QUICK = LeaseTimes(2, 1.5, 0.2)
LIMIT = 10.0


@pytest.fixture(scope="module")
def scene():
    made = Scene(live=True)
    yield made
    made.cluster.close()
    assert not made.cluster.failures


def until(what, why="it never came"):
    end = time.monotonic() + LIMIT
    while not (found := what()):
        assert time.monotonic() < end, why
        threading.Event().wait(0.01)
    return found


def documents():
    return list(YAML(typ="safe").load_all((DOCS / "admission.yaml").read_text()))


def kubeconfig(scene, folder, user="admin"):
    return scene.cluster.kubeconfig(folder / f"kubeconfig-{user.rpartition(':')[2]}", user)


@contextlib.contextmanager
def controller(scene, folder, identity, *, user="admin", namespace=NAMESPACE, lease=LEASE, observer=None):
    access = load_access(book=rulebook(), kubeconfig=str(kubeconfig(scene, folder, user)))
    door = Door(access, request_timeout=10, clock=SystemClock())
    made = Controller(door, Place(namespace, lease, identity), observer or Recorder(), times=QUICK)
    try:
        with made:
            yield made
    finally:
        door.close()


def opened(scene, job, attempt=1):
    name = scene.start(job, attempt)
    scene.record(name, lifted=True)
    scene.workload(name)
    return name


def holder(scene, lease=LEASE, namespace=NAMESPACE):
    found = scene.cluster.get(LEASES, lease, namespace)
    return None if found is None else found["spec"].get("holderIdentity")


def test_a_change_is_settled_and_the_next_controller_goes_on(scene, tmp_path):
    name = opened(scene, "goes-on")
    with controller(scene, tmp_path, "a") as first, controller(scene, tmp_path, "b") as second:
        until(lambda: first.elector.leading or second.elector.leading)
        until(lambda: first.ready and second.ready)
        leader, other = (first, second) if first.elector.leading else (second, first)
        began = time.monotonic()
        scene.reserve(name)
        until(lambda: scene.state(name) == "Ready")
        assert time.monotonic() - began < 1
        assert leader.healthy
        leader.stop()
        leader.stop()
        assert not leader.ready
        until(lambda: other.elector.leading)
        scene.evict(name)
        scene.reserve(name)
        until(lambda: scene.state(name) == "Ready")
    assert holder(scene) is None, "a lease is given back at the end"


def test_two_at_once_write_everything_once(scene, tmp_path):
    seen = [Recorder(), Recorder()]
    jobs = [opened(scene, f"once-{number}") for number in range(4)]
    with contextlib.ExitStack() as both:
        for number, each in enumerate(seen):
            both.enter_context(controller(scene, tmp_path, f"c-{number}", observer=each))
        for name in jobs:
            scene.reserve(name)
        until(lambda: all(scene.state(name) == "Ready" for name in jobs))
    writes = [write for each in seen for write in each.writes if write == ("ready", "ok")]
    assert len(writes) == len(jobs)
    assert sum(bool(each.writes) for each in seen) == 1


def test_what_it_may_do_is_what_it_does(scene, tmp_path):
    """docs/admission.yaml grants what the controller asks for, and nothing else."""
    granted = apply_documents(scene)
    scene.cluster.user(ACCOUNT)
    first = len(scene.cluster.requests)
    name = opened(scene, "allowed")
    recorder = Recorder()
    scene.cluster.delete(ADMISSION, CHECK)
    scene.check(CHECK)
    with controller(scene, tmp_path, "allowed", user=ACCOUNT, namespace=HOME, observer=recorder) as made:
        until(lambda: made.elector.leading)
        scene.reserve(name)
        until(lambda: scene.state(name) == "Ready")
        scene.record(name, hold="1/held")
        until(lambda: not scene.active(name))
    until(lambda: holder(scene, namespace=HOME) is None)
    asked = [each for each in scene.cluster.requests[first:] if each.user == ACCOUNT]
    assert [f"{each.method} {each.path}" for each in asked if each.status == 403] == []
    assert {access(each) for each in asked} == granted


ADMISSION = Resource("kueue.x-k8s.io", "v1beta2", "admissionchecks", "AdmissionCheck", namespaced=False)
RBAC = "rbac.authorization.k8s.io"


def apply_documents(scene):
    """Create the roles and bindings; every verb and resource that they grant."""
    granted = set()
    scene.cluster.create(NAMESPACES, {"metadata": {"name": HOME}})
    for each in documents():
        if each["apiVersion"] != f"{RBAC}/v1":
            continue
        kind = each["kind"]
        resource = Resource(RBAC, "v1", f"{kind.lower()}s", kind, namespaced=not kind.startswith("Cluster"))
        scene.cluster.create(resource, each, each["metadata"].get("namespace"))
        for rule in each.get("rules", []):
            granted |= {(verb, what) for verb in rule["verbs"] for what in rule["resources"]}
    return granted


def access(request):
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces":
        parts = parts[2:]
    verbs = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}
    verb = "watch" if "watch=" in request.query else "get" if len(parts) > 1 else "list"
    return verbs.get(request.method, verb), "/".join([parts[0], *parts[2:]])


def test_the_documents_name_each_other_and_what_the_code_expects():
    found = {each["kind"]: each for each in documents()}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert found["Role"]["rules"][1]["resourceNames"] == [LEASE]
    assert container["command"] == ["dispatch-kubeflow", "admission"]
    assert [container[f"{each}Probe"]["httpGet"]["path"] for each in ("liveness", "readiness")] == [
        "/healthz",
        "/readyz",
    ]
    assert found["AdmissionCheck"]["spec"]["controllerName"] == "dispatch-kubeflow.io/admission"
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        binding = found[kind]
        assert binding["subjects"][0]["name"] == pod["serviceAccountName"]
        assert binding["roleRef"]["name"] == found[binding["roleRef"]["kind"]]["metadata"]["name"]


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_its_pages_tell_how_it_fares(scene, tmp_path):
    metrics = Metrics()
    with (
        controller(scene, tmp_path, "pages", observer=metrics) as made,
        Pages(made, metrics, host="127.0.0.1", port=0) as pages,
    ):
        until(lambda: made.ready and made.elector.leading)
        assert get(pages.port, "/healthz") == (200, "alive\n")
        assert get(pages.port, "/readyz?verbose") == (200, "ready\n")
        name = opened(scene, "pages")
        scene.reserve(name)
        until(lambda: scene.state(name) == "Ready")
        until(lambda: "dispatch_admission_settle_seconds_count 0.0" not in get(pages.port, "/metrics")[1])
        text = get(pages.port, "/metrics")[1]
        assert "dispatch_admission_leader 1.0" in text
        assert 'dispatch_admission_writes_total{does="ready",outcome="ok"} 1.0' in text
        assert 'dispatch_admission_decisions_total{rule="admission.start"} 1.0' in text
        assert 'dispatch_admission_requests_total{outcome="ok",resource="pods",verb="list"}' in text
        assert 'dispatch_admission_watches_total{resource="workloads"} 1.0' in text
        assert get(pages.port, "/")[0] == 404
        made.stop()
        assert get(pages.port, "/healthz") == (503, "a thread has died or hangs\n")
        assert get(pages.port, "/readyz")[0] == 503


def test_a_watch_that_is_refused_is_begun_again(scene, tmp_path, monkeypatch):
    monkeypatch.setattr("dispatch_kubeflow.backend.admission.controller._FIRST_PAUSE", 0.05)
    user = "late"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "patch", "create"]}]
    scene.cluster.user(user, [{**rules[0], "resources": ["leases"]}])
    recorder = Recorder()
    with controller(scene, tmp_path, "late", user=user, lease="late", observer=recorder) as made:
        until(lambda: recorder.watches.count("trainjobs") > 1)
        assert not made.ready
        assert made.healthy


def test_a_defect_in_one_look_does_not_stop_the_others(scene, tmp_path, monkeypatch, caplog):
    bad, good = opened(scene, "bad"), opened(scene, "good")
    with controller(scene, tmp_path, "defect") as made:
        look = made._settler.look

        def broken(key, ctx, *, waiting=False):
            if key.name == workload_name(bad):
                raise RuntimeError("a defect")
            return look(key, ctx, waiting=waiting)

        monkeypatch.setattr(made._settler, "look", broken)
        scene.reserve(bad)
        scene.reserve(good)
        until(lambda: scene.state(good) == "Ready")
        assert scene.state(bad) == "Pending"
    assert "could not be judged" in caplog.text
    scene.cluster.delete(WORKLOADS, workload_name(bad), NAMESPACE)


def command(*arguments):
    return [sys.executable, "-m", "dispatch_kubeflow.backend.cli", "admission", *arguments]


def test_the_command_runs_until_it_is_told_to_end(scene, tmp_path):
    path = kubeconfig(scene, tmp_path)
    arguments = ("--kubeconfig", str(path), "--host", "127.0.0.1", "--port", "0", "--lease", "command")
    environment = {**os.environ, "POD_NAMESPACE": NAMESPACE}
    with subprocess.Popen(
        command(*arguments, "--verbose"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        port = int(process.stdout.readline().rpartition(":")[2])
        until(lambda: get(port, "/readyz")[0] == 200)
        until(lambda: holder(scene, "command"))
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, log
    assert "leads now" in log
    assert holder(scene, "command") is None


@pytest.fixture
def given(monkeypatch):
    """The options that a command line came to, instead of a controller."""
    found = []
    monkeypatch.setattr(running, "give_place", found.append)
    return found


def test_the_command_line_checks_its_options_and_gives_its_place(scene, tmp_path, given, capfd):
    path = str(kubeconfig(scene, tmp_path))
    assert execute(["admission", "--namespace", "a", "--kubeconfig", path, "--identity", "me"]) == 0
    (options,) = given
    assert (options.namespace, options.lease, options.identity, options.port) == ("a", LEASE, "me", 8080)
    assert options.times == LeaseTimes()
    assert execute(["admission", "--namespace", "a", "--kubeconfig", path, "--lease-duration", "10"]) == 2
    assert "a duration longer than the renew deadline" in capfd.readouterr().err
    assert execute(["admission", "--namespace", "a", "--kubeconfig", "nowhere"]) == 80
    assert execute(["admission", "--kubeconfig", path]) == 2
    assert len(given) == 1


def test_the_process_that_takes_its_place_is_told_the_options(monkeypatch):
    told = []
    monkeypatch.setattr(os, "execve", lambda program, command, environment: told.append((command, environment)))
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    options = running.Options(
        namespace="a",
        lease=LEASE,
        identity=None,
        kubeconfig=None,
        context=None,
        host="::",
        port=1,
        times=LeaseTimes(),
        verbose=False,
    )
    running.give_place(options)
    ((command, environment),) = told
    assert command[1:3] == ["-m", "dispatch_kubeflow.backend.admission"]
    assert msgspec.json.decode(command[3], type=running.Options) == options
    assert environment["MALLOC_ARENA_MAX"] == "4"


def test_without_its_extra_the_command_says_what_to_install(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "dispatch_kubeflow.backend.admission.running", None)
    missing = ModuleNotFoundError("no", name="prometheus_client")
    monkeypatch.setattr("builtins.__import__", raising(missing, "dispatch_kubeflow.backend.admission.running"))
    assert execute(["admission", "--namespace", "a"]) == 2
    assert "prometheus_client is not installed" in capfd.readouterr().err


def raising(error, module):
    original = builtins.__import__

    def imported(name, *arguments, **named):
        if name == module:
            raise error
        return original(name, *arguments, **named)

    return imported
