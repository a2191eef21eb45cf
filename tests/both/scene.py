"""One namespace of a cluster, whichever it is, and the words in which tests by its API tell their stories."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from dispatch_kubeflow.backend import ObjectRef, factory
from dispatch_kubeflow.backend.objects.found import Cessation, Found, FoundObject
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.machine import Context, DispatchError
from tests.operations.world import spec
from tests.real.api import Object
from tests.real.cluster import Cluster, User, cri_line
from tests.real.training import hardened_copy

LIMIT = 60.0
"""Seconds within which anything a test waits for has to come, on a busy machine too."""
STEERED = "TrainingRuntime/steered"
FOREVER = {"kubelet.test/runs": "forever"}
_QUICK_TO_GIVE_UP = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
    for key in ("not-ready", "unreachable")
]


def soon(seconds: float = LIMIT) -> Context:
    return Context.with_timeout(seconds)


class Scene:
    """A namespace of its own, a runtime whose pods do as they are told, and Backends."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path) -> None:
        self.cluster = cluster
        self.namespace = cluster.new_namespace("both")
        self.folder = folder
        self.backends: list[Backend] = []
        self._outputs: dict[str, pathlib.Path] = {}
        self._nodes: list[str] = []

    def close(self) -> None:
        for backend in self.backends:
            backend.close()
        self.cluster.delete_namespace(self.namespace)
        for name in self._nodes:
            self.cluster.api.send("DELETE", f"/api/v1/nodes/{name}")

    # What there is to run.

    def steer(self, pods: Mapping[str, str], *, selector: Mapping[str, str] | None = None) -> None:
        """Creates the runtime `steered`, whose pods do what these annotations say."""
        runtime = hardened_copy(self.cluster, "steered", pods, selector=selector)
        for replicated in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
            replicated["template"]["spec"]["template"]["spec"]["tolerations"] = _QUICK_TO_GIVE_UP
        self.cluster.api.post(self.cluster.runtimes(self.namespace), runtime)

    def own_node(self) -> dict[str, str]:
        """A node for this test alone, and the selector that reaches it."""
        label = {"scene": self.namespace}
        self._nodes.append(f"{self.namespace}-node")
        self.cluster.add_node(self.node, label)
        return label

    @property
    def node(self) -> str:
        return self._nodes[0]

    def backend(self, user: User | str = "admin", **settings: Any) -> Backend:
        path = self.folder / f"kubeconfig-{len(self.backends)}"
        given = {
            "name": "gpu",
            "namespace": self.namespace,
            "runtimes": [STEERED],
            "stop_poll": 0.1,
            "kubeconfig": str(self.cluster.kubeconfig(path, user=user)),
            **settings,
        }
        made = factory(given, ctx=soon())
        self.backends.append(made)
        return made

    def start(self, backend: Backend, job: str = "job", attempt: int = 1, **changes: Any) -> ObjectRef:
        kind, name = STEERED.split("/")
        extensions = {"dispatch/Image": "pytorch:2", "kubeflow/RuntimeRef": {"kind": kind, "name": name}}
        wanted = spec(**{"extensions": {**extensions, **changes.pop("extensions", {})}, **changes})
        return backend.start(job, attempt, wanted, ctx=soon())

    def run(self, backend: Backend, job: str = "job", **changes: Any) -> ObjectRef:
        """Starts and opens a job, and waits until its pods run."""
        ref = self.start(backend, job, **changes)
        backend.open(ref, ctx=soon())
        self.running(ref.name, changes.get("nodes", 2))
        return ref

    # What the cluster has.

    @property
    def train_jobs(self) -> str:
        return self.cluster.train_jobs(self.namespace)

    @property
    def runtimes(self) -> str:
        return self.cluster.runtimes(self.namespace)

    @property
    def job_sets(self) -> str:
        return self.cluster.job_sets(self.namespace)

    @property
    def jobs(self) -> str:
        return self.cluster.jobs(self.namespace)

    @property
    def pods(self) -> str:
        return self.cluster.pods(self.namespace)

    @property
    def config_maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def list(self, collection: str) -> list[Object]:
        items: list[Object] = self.cluster.api.get(collection)["items"]
        return items

    def names(self, collection: str) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.list(collection))

    def train_job(self, name: str = "job-1") -> Object:
        return self.cluster.api.get(f"{self.train_jobs}/{name}")

    def pod_refs(self) -> list[ObjectRef]:
        return [
            ObjectRef("gpu", self.namespace, "Pod", each["metadata"]["name"], each["metadata"]["uid"])
            for each in self.list(self.pods)
        ]

    def annotate_pods(self, **annotations: str) -> None:
        """Tells the kubelets of every pod something new."""
        change = {"metadata": {"annotations": {f"kubelet.test/{key}": value for key, value in annotations.items()}}}
        for name in self.names(self.pods):
            self.cluster.api.merge(f"{self.pods}/{name}", change)

    # Waiting.

    def wait(self, collection: str, name: str, holds: Callable[[Object | None], bool]) -> Object:
        return self.cluster.wait(collection, name, holds, seconds=LIMIT)

    def running(self, name: str = "job-1", count: int = 2) -> list[Object]:
        """The pods of a TrainJob, once so many run."""
        selector = f"jobset.sigs.k8s.io/jobset-name={name}"

        def run(pods: list[Object]) -> bool:
            up = [p for p in pods if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]]
            return len(up) == len(pods) == count

        return self.cluster.wait_list(self.pods, run, selector=selector, seconds=LIMIT)

    def stopping(self) -> list[Object]:
        """The pods, once all of them are being deleted."""

        def asked(pods: list[Object]) -> bool:
            return bool(pods) and all("deletionTimestamp" in each["metadata"] for each in pods)

        return self.cluster.wait_list(self.pods, asked, seconds=LIMIT)

    def at_rest(self, name: str = "job-1") -> None:
        """Until no pod is left and the Job says that none terminates."""

        def rests(job: Object | None) -> bool:
            status = (job or {}).get("status", {})
            return not any(status.get(key) for key in ("active", "terminating", "uncountedTerminatedPods"))

        self.cluster.wait_list(self.pods, lambda pods: not pods, seconds=LIMIT)
        self.wait(self.jobs, f"{name}-node-0", rests)

    def seen(self, backend: Backend, holds: Callable[[Found], bool], job: str = "job") -> Found:
        """The first view of a job that is as wanted."""
        ctx = soon()
        try:
            for view in backend.watch(job, ctx=ctx):
                if holds(view):
                    return view
        finally:
            ctx.cancel()
        raise AssertionError("a watch ended by itself")

    def ended(self, backend: Backend, job: str = "job") -> FoundObject:
        """The job's one TrainJob, once it has ended."""
        view = self.seen(backend, lambda found: [each.state for each in found.objects] == ["ended"], job)
        return view.objects[0]

    def found(self, backend: Backend, job: str = "job") -> list[tuple[str, str, str]]:
        objects = backend.find(job, ctx=soon()).objects
        return [(each.ref.kind, each.ref.name, each.state) for each in objects]

    # Output.

    def say(self, pod: str, lines: list[str]) -> None:
        """Lets the container of a pod write lines."""
        path = self._outputs.get(pod)
        if path is not None and path.is_file():
            with path.open("a") as file:
                file.write("".join(cri_line(line) for line in lines))
        else:
            self._outputs[pod] = self.cluster.write_output(self.namespace, pod, lines)


@contextmanager
def watched(backend: Backend, job: str = "job") -> Iterator[Iterator[Found]]:
    """A watch from here to the end of the block; while it runs, notes are kept."""
    ctx = soon()
    views = backend.watch(job, ctx=ctx)
    next(views)
    try:
        yield views
    finally:
        ctx.cancel()
        with pytest.raises(DispatchError):
            list(views)


def view(views: Iterator[Found], holds: Callable[[Found], bool]) -> Found:
    """The first of these views that is as wanted."""
    return next(each for each in views if holds(each))


def kinds(found: Cessation) -> list[str]:
    return sorted(each.kind for each in found.evidence)
