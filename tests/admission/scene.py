"""A namespace of kueue mode on an embedded cluster with virtual time, and controllers that take one step at a time.

Kueue itself is played by hand here: what it writes on a Workload is a line of the test.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from dispatch_kubeflow.backend.admission.asking import Asker
from dispatch_kubeflow.backend.admission.leading import Elector
from dispatch_kubeflow.backend.admission.queue import Key, WorkQueue
from dispatch_kubeflow.backend.admission.settling import Settler
from dispatch_kubeflow.backend.admission.watched import WORKLOAD, Watched
from dispatch_kubeflow.backend.embedded import Cluster, Script, ScriptedKubelet, VirtualClock
from dispatch_kubeflow.backend.embedded.crds import definitions
from dispatch_kubeflow.backend.embedded.definitions import DEFINITIONS
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.objects import names, runtime_copy, seen, trainjob
from dispatch_kubeflow.backend.objects.record import Hold, record_patch
from dispatch_kubeflow.backend.objects.workload import hold_patch
from dispatch_kubeflow.backend.requests import Listed
from dispatch_kubeflow.backend.requests.resources import (
    ADMISSION_CHECKS,
    CLUSTER_TRAINING_RUNTIMES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
    Resource,
)
from dispatch_kubeflow.machine import Context
from dispatch_kubeflow.machine.context import Clock, SystemClock
from dispatch_kubeflow.machine.rules import rulebook
from dispatch_kubeflow.machine.values import JobSpec

from .memory import Memory

NAMESPACE, CHECK, LEASE = "team-a", "dispatch-hold", "dispatch-kubeflow-admission"
STOP_AFTER = 5.0
"""Seconds that a container takes to stop."""
Object = dict[str, Any]


@functools.cache
def _template(judges: bool) -> Cluster:
    # Its seed is no other cluster's: two objects of one would have one UID.
    cluster = Cluster(kubelet=_kubelet(), clock=VirtualClock(), seed=1, serve=False)
    _install(cluster)
    if not judges:
        for kind in cluster.store.kinds():
            if kind.custom and kind.schema is not None:
                cluster.store.install(replace(kind, schema=Unjudging(kind.schema)))
    return cluster


def _install(cluster: Cluster) -> None:
    for each in definitions("kueue-v0.19.2"):
        cluster.create(DEFINITIONS, each)


class Unjudging:
    """The schema of a kind that takes what comes; most of a long story's time is judging."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def __getattr__(self, name: str) -> Any:
        return getattr(self._schema, name)

    def decode(self, _obj: Object, _old: Object | None = None) -> list[str]:
        return []

    def validate(self, _new: Object, _old: Object | None, *, blocked: bool = False) -> list[Any]:
        return []


def _kubelet() -> ScriptedKubelet:
    return ScriptedKubelet(Script(stop_after=STOP_AFTER))


class Recorder:
    """The observer of a controller: all that it was told."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.rules: list[str] = []
        self.writes: list[tuple[str, str]] = []
        self.seconds: list[float] = []
        self.watches: list[str] = []

    def requested(self, verb: str, resource: str, outcome: str) -> None:
        self.requests.append((verb, resource, outcome))

    def decided(self, rule: str) -> None:
        self.rules.append(rule)

    def wrote(self, does: str, outcome: str) -> None:
        self.writes.append((does, outcome))

    def watching(self, resource: str) -> None:
        self.watches.append(resource)

    def settled(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Process:
    """One life of a controller, without its threads: it sees and acts when it is told to."""

    def __init__(self, scene: Scene, identity: str, token: str | None = None) -> None:
        self.scene = scene
        self.memory = Memory(scene.cluster, token or scene.admin)
        self.recorder = Recorder()
        door = self.memory.door()
        self.door = door
        asker = Asker(door, rulebook(), self.recorder)
        self.watched = Watched()
        self.queue = WorkQueue(scene.clock)
        self.elector = Elector(asker, scene.clock, namespace=NAMESPACE, name=LEASE, identity=identity)
        self.settler = Settler(asker, self.watched, self.elector, self.recorder, scene.clock)
        self.ctx = Context.background(clock=scene.clock)
        self.renews = False

    def lead(self) -> Process:
        self.elector.campaign(self.ctx)
        assert self.elector.leading
        self.renews = True
        return self

    def see(self) -> None:
        """All that its watches would have brought by now."""
        for resource, kind, take in (
            (WORKLOADS, seen.Workload, self.watched.take_workloads),
            (TRAIN_JOBS, seen.TrainJob, self.watched.take_trainjobs),
            (ADMISSION_CHECKS, seen.AdmissionCheck, self.watched.take_checks),
        ):
            items = [seen.read(each, kind) for each in self.scene.cluster.list(resource)]
            self.queue.add(take(Listed(tuple(items), "1")))

    def act(self) -> list[str]:
        """Look at all that is due; the rules by which it decided on what it read."""
        before = len(self.recorder.rules)
        if self.renews:
            self.elector.campaign(self.ctx)
        while (key := self.queue.take(0)) is not None:
            match self.settler.look(key, self.ctx, waiting=self.queue.is_waiting(key)):
                case "settled":
                    self.queue.settled(key)
                case "waits":
                    self.queue.waits(key)
                case "failed":
                    self.queue.failed(key)
        return self.recorder.rules[before:]

    def turn(self) -> list[str]:
        """See and act."""
        self.see()
        return self.act()


class Scene:
    """The cluster, and what its users and Kueue do.

    `judges`: whether schemas judge what is written. `live`: it serves, on the system's clock.
    """

    def __init__(self, *, judges: bool = True, live: bool = False) -> None:
        self.live = live
        self.clock: Clock = SystemClock() if live else VirtualClock()
        if live:
            self.cluster = Cluster(kubelet=_kubelet(), seed=1)
            _install(self.cluster)
            self.cluster.__enter__()
        else:
            self.cluster = Cluster(kubelet=_kubelet(), clock=self.clock, seed=2, serve=False, like=_template(judges))
        self.admin = self.cluster.apiserver.access.user("admin", groups=["system:masters"])
        self.check(CHECK)
        self.processes = 0

    def process(self, token: str | None = None) -> Process:
        self.processes += 1
        return Process(self, f"controller-{self.processes}", token)

    def settle(self) -> None:
        if not self.live:
            self.cluster.settle()

    # What users do.

    def check(self, name: str, controller: str = names.CHECK_CONTROLLER) -> None:
        body = {"metadata": {"name": name}, "spec": {"controllerName": controller}}
        self.cluster.create(ADMISSION_CHECKS, body)

    def start(self, job: str = "fit", attempt: int = 1, backend: str = "gpu") -> str:
        """A gated TrainJob of kueue mode, as Start makes it; its name."""
        identity = names.Identity(backend, job, attempt)
        spec = job_spec()
        body = self.cluster.get(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
        assert body is not None
        source = runtime_copy.Source.of(body, "ClusterTrainingRuntime")
        assert not isinstance(source, seen.Unreadable)
        made = runtime_copy.build(source, identity, spec, namespace=NAMESPACE, nonce="n")
        self.cluster.create(TRAINING_RUNTIMES, made, NAMESPACE)
        gated = trainjob.build(identity, spec, namespace=NAMESPACE, mode="kueue", nonce="n", queue="lq")
        self.cluster.create(TRAIN_JOBS, gated, NAMESPACE)
        self.settle()
        return identity.name

    def record(self, name: str, *, lifted: bool = False, hold: str | None = None) -> None:
        """The record that Open, Hold or Release writes."""
        instance, _, state = (hold or "0/").partition("/")
        while True:
            metadata = self.get(TRAIN_JOBS, name)["metadata"]
            body = record_patch(
                metadata["uid"],
                metadata["resourceVersion"],
                gate="lifted" if lifted else None,
                hold=None if hold is None else Hold(int(instance), state == "held"),
            )
            try:
                self.cluster.patch(TRAIN_JOBS, name, body, NAMESPACE)
                break
            except ApiError as error:
                if error.status != 409:  # a controller of the live cluster came between
                    raise
        self.settle()

    def hold(self, name: str, instance: int) -> None:
        """Both writes of a hold."""
        self.record(name, hold=f"{instance}/held")
        found = seen.read(self.get(WORKLOADS, workload_name(name)), seen.Workload)
        assert not isinstance(found, seen.Unreadable)
        self.patch(name, hold_patch(found, instance))

    # What Kueue does.

    def workload(self, name: str, *, checks: tuple[str, ...] = (CHECK,), owned: bool = True) -> None:
        """The Workload of a TrainJob, as Kueue makes it once the gate is gone; or one that nothing owns."""
        uid = self.get(TRAIN_JOBS, name)["metadata"]["uid"] if owned else "nobody"
        owner = {"apiVersion": names.TRAINER_VERSION, "kind": "TrainJob", "name": name, "uid": uid, "controller": True}
        pod = {"template": {"spec": {"containers": [{"name": "node", "image": "x"}]}}, "name": "node", "count": 2}
        body = {
            "metadata": {
                "name": workload_name(name),
                "labels": {names.JOB_UID: uid},
                "ownerReferences": [owner] if owned else [],
            },
            "spec": {"active": True, "queueName": "lq", "podSets": [pod]},
        }
        self.cluster.create(WORKLOADS, body, NAMESPACE)
        self.status(name, checks=dict.fromkeys(checks, "Pending"))

    def status(self, name: str, *, checks: dict[str, str] | None = None, **conditions: str) -> None:
        """Write a Workload's status."""
        found = self.get(WORKLOADS, workload_name(name))
        status = found.get("status") or {}
        have = {each["type"]: each for each in status.get("conditions", [])}
        for kind, value in conditions.items():
            have[kind] = {
                "type": kind,
                "status": value,
                "reason": "Seen",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        body: Object = {"conditions": list(have.values())}
        if checks is not None:
            body["admissionChecks"] = [
                {"name": each, "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for each, state in checks.items()
            ]
        self.cluster.patch(WORKLOADS, workload_name(name), {"status": body}, NAMESPACE, subresource="status")
        self.settle()

    def reserve(self, name: str) -> None:
        self.status(name, QuotaReserved="True", Evicted="False")

    def obey(self, name: str) -> None:
        """Start what is admitted by now; nothing of the job may run then."""
        if self.state(name) == "Ready" and self.active(name):
            assert not list(self.cluster.kubelet.running()), "a generation starts beside another"
            self.status(name, Admitted="True")
            self.cluster.patch(TRAIN_JOBS, name, {"spec": {"suspend": False}}, NAMESPACE)
            self.settle()

    def evict(self, name: str) -> None:
        """An eviction up to where quota may be reserved again: long before the pods have stopped."""
        self.status(name, checks={CHECK: "Pending"}, Evicted="True")
        self.cluster.patch(TRAIN_JOBS, name, {"spec": {"suspend": True}}, NAMESPACE)
        self.settle()
        self.status(name, Evicted="True", QuotaReserved="False", Admitted="False")

    # What there is.

    def get(self, resource: Resource, name: str) -> Object:
        found = self.cluster.get(resource, name, NAMESPACE if resource.namespaced else None)
        assert found is not None, name
        return found

    def patch(self, name: str, body: Object) -> None:
        self.cluster.patch(WORKLOADS, workload_name(name), body, NAMESPACE)
        self.settle()

    def state(self, name: str, check: str = CHECK) -> str:
        checks = self.get(WORKLOADS, workload_name(name))["status"].get("admissionChecks", [])
        return next((each["state"] for each in checks if each["name"] == check), "absent")

    def active(self, name: str) -> bool:
        return bool(self.get(WORKLOADS, workload_name(name))["spec"].get("active", True))

    def mark(self, name: str) -> str | None:
        annotations = self.get(WORKLOADS, workload_name(name))["metadata"].get("annotations") or {}
        found: str | None = annotations.get(names.HELD)
        return found

    def pods(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.cluster.list(PODS, NAMESPACE)]

    def key(self, name: str) -> Key:
        return Key(WORKLOAD, NAMESPACE, workload_name(name))


@functools.cache
def job_spec() -> JobSpec:
    return JobSpec.parse(
        {
            "nodes": 2,
            "command": ["train"],
            "resources": {"requests": {"cpu": "1"}},
            "extensions": {
                "dispatch/Image": "pytorch:2",
                "kubeflow/RuntimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
            },
        }
    )


def workload_name(name: str) -> str:
    return f"trainjob-{name}-abcde"
