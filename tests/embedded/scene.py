"""One cluster on virtual time with scripted containers, and the verbs in which the tests tell their stories."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Self

from dispatch_kubeflow.backend.embedded.clock import VirtualClock
from dispatch_kubeflow.backend.embedded.cluster import Cluster
from dispatch_kubeflow.backend.embedded.controllers.kinds import (
    CONFIG_MAPS,
    EVENTS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    SERVICES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.backend.embedded.kubelet import Script, ScriptedKubelet

Object = dict[str, Any]

NAMESPACE = "team-a"
SAMPLES = Path(__file__).parent / "samples"
_TIMES = {
    "lastTransitionTime", "lastProbeTime", "startTime", "completionTime", "startedAt", "finishedAt",
    "creationTimestamp", "deletionTimestamp", "time",
}  # fmt: skip
_VARYING = {"jobset.sigs.k8s.io/jobset-uid", "uid", "resourceVersion", "containerID", *_TIMES}
_SUFFIX = re.compile(r"-([bcdfghjklmnpqrstvwxz2456789]{5})\b")


def sample(name: str) -> Any:
    """A sample taken from the real control plane."""
    return json.loads((SAMPLES / f"{name}.json").read_text())


def shape(value: Any) -> Any:
    """What is the same in every run: times, UIDs and random letters replaced by stars."""
    if isinstance(value, dict):
        return {key: "*" if key in _VARYING and item is not None else shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return _SUFFIX.sub("-*", value) if isinstance(value, str) else value


def project(ours: Any, theirs: Any) -> Any:
    """Of ours only what a shortened sample has: its keys, and its conditions in its order."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {key: project(ours[key], item) for key, item in theirs.items() if key in ours}
    if isinstance(theirs, list) and isinstance(ours, list) and theirs and isinstance(theirs[0], dict):
        if "type" in theirs[0]:
            by_type = {item["type"]: item for item in ours}
            return [project(by_type[item["type"]], item) for item in theirs if item["type"] in by_type]
        return [project(item, other) for item, other in zip(ours, theirs, strict=False)] + ours[len(theirs) :]
    return ours


def runtime(name: str, *, backoff: int | None = 0, replacement: str | None = None, **job_spec: Any) -> Object:
    """A runtime as the adapter would copy it: torch, one trainer named `node`, pods never restarted."""
    spec: Object = {**job_spec}
    if backoff is not None:
        spec["backoffLimit"] = backoff
    if replacement is not None:
        spec["podReplacementPolicy"] = replacement
    pod: Object = {"containers": [{"name": "node", "image": "x:y"}]}
    if backoff is not None:
        pod["restartPolicy"] = "Never"
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {**spec, "template": {"spec": pod}},
    }
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }


def train_job(name: str, nodes: int = 2, *, suspend: bool = True, **spec: Any) -> Object:
    """A TrainJob that uses the runtime of its own name."""
    trainer = {"image": "x:y", "command": ["sleep", "5"], "numNodes": nodes, **spec.pop("trainer", {})}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "suspend": suspend,
            "runtimeRef": {"name": name, "kind": "TrainingRuntime"},
            "trainer": trainer,
            **spec,
        },
    }


class Scene:
    """A cluster and what a watch saw of its pods."""

    def __init__(self, plan: Any = None, *, nodes: int = 3) -> None:
        self.kubelet = ScriptedKubelet(plan or Script())
        self.cluster = Cluster(clock=VirtualClock(), kubelet=self.kubelet, nodes=nodes, seed=7, serve=False)
        self._watch = self.cluster.store.subscribe(PODS)
        self._last: dict[str, tuple[str, Object]] = {}

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    # Time.

    def advance(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    def settle(self) -> None:
        self.cluster.settle()

    @property
    def now(self) -> float:
        return self.cluster.clock.monotonic()

    # Acts.

    def gate(self, name: str, nodes: int = 2, **runtime_spec: Any) -> None:
        """Create the runtime and a suspended TrainJob, and let it settle."""
        job_spec = runtime_spec.pop("spec", {})
        self.cluster.create(TRAINING_RUNTIMES, runtime(name, **runtime_spec))
        self.cluster.create(TRAIN_JOBS, train_job(name, nodes, **job_spec))
        self.advance(1)

    def open(self, name: str) -> None:
        self.suspend(name, suspended=False)

    def hold(self, name: str) -> None:
        self.suspend(name, suspended=True)

    def suspend(self, name: str, *, suspended: bool) -> None:
        self.cluster.patch(TRAIN_JOBS, name, {"spec": {"suspend": suspended}}, NAMESPACE)
        self.settle()

    def run(self, name: str, nodes: int = 2, **spec: Any) -> None:
        """Gate and open; all pods run afterwards."""
        self.gate(name, nodes, **spec)
        self.open(name)
        self.advance(2)

    def end(self, pod: Object, code: int, reason: str = "") -> None:
        """One pod's container ends."""
        self.kubelet.end(pod["metadata"]["uid"], code, reason)
        self.settle()

    # Sights.

    def get(self, resource: Resource, name: str) -> Object:
        found = self.cluster.get(resource, name, NAMESPACE if resource.namespaced else None)
        assert found is not None, f"{resource.kind} {name} is absent"
        return found

    def absent(self, resource: Resource, name: str) -> bool:
        return self.cluster.get(resource, name, NAMESPACE) is None

    def train_job(self, name: str) -> Object:
        return self.get(TRAIN_JOBS, name)

    def jobset(self, name: str) -> Object:
        return self.get(JOB_SETS, name)

    def job(self, name: str) -> Object:
        return self.get(JOBS, f"{name}-node-0")

    def condition(self, obj: Object, kind: str) -> Object | None:
        return next((item for item in obj.get("status", {}).get("conditions", []) if item["type"] == kind), None)

    def is_true(self, obj: Object, kind: str) -> bool:
        found = self.condition(obj, kind)
        return found is not None and found["status"] == "True"

    def pods(self, name: str | None = None) -> list[Object]:
        labels = f"jobset.sigs.k8s.io/jobset-name={name}" if name else None
        return self.cluster.list(PODS, NAMESPACE, labels)

    def pod(self, name: str, index: int) -> Object:
        """The newest pod of an index."""
        found = [pod for pod in self.pods(name) if pod["metadata"]["labels"][INDEX] == str(index)]
        return max(found, key=lambda pod: int(pod["metadata"]["resourceVersion"]))

    def active(self, name: str) -> list[Object]:
        return [
            pod
            for pod in self.pods(name)
            if pod["status"]["phase"] in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
        ]

    def seen(self) -> dict[str, tuple[str, Object]]:
        """By UID what the watch saw last of each pod: event and object."""
        for event in self._watch.drain():
            self._last[event.object["metadata"]["uid"]] = (event.type, event.object)
        return self._last

    def last_seen(self, name: str, index: int) -> tuple[str, Object]:
        found = [
            (event, pod)
            for event, pod in self.seen().values()
            if (labels := pod["metadata"].get("labels", {})).get("jobset.sigs.k8s.io/jobset-name") == name
            and labels[INDEX] == str(index)
        ]
        return max(found, key=lambda item: int(item[1]["metadata"]["resourceVersion"]))

    def events(self, kind: str | None = None) -> list[Object]:
        return [
            {
                "from": event["source"]["component"],
                "message": event["message"],
                "object": f"{event['involvedObject']['kind']}/{event['involvedObject']['name']}",
                "reason": event["reason"],
                "type": event["type"],
            }
            for event in self.cluster.list(EVENTS)
            if kind is None or event["involvedObject"]["kind"] == kind
        ]

    def reasons(self, kind: str) -> list[str]:
        return [event["reason"] for event in self.events(kind)]

    def left(self, name: str) -> list[str]:
        """Kinds of which an object of this job is left."""
        places = [
            (TRAIN_JOBS, name),
            (TRAINING_RUNTIMES, name),
            (JOB_SETS, name),
            (JOBS, f"{name}-node-0"),
            (CONFIG_MAPS, f"{name}-runtime-snapshot"),
            (SERVICES, name),
        ]
        kinds = [resource.kind for resource, place in places if not self.absent(resource, place)]
        return kinds + ["Pod"] * len(self.pods(name))

    def node(self, name: str) -> Object:
        return self.get(NODES, name)


INDEX = "batch.kubernetes.io/job-completion-index"
