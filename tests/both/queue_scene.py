"""A queue that one job fills, on whichever cluster, and who looks whether a rank ever runs twice at once."""

from __future__ import annotations

import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ruamel.yaml import YAML

from dispatch_kubeflow.backend.admission.controller import Controller, Place
from dispatch_kubeflow.backend.admission.leading import LeaseTimes
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests import Door, load_access
from dispatch_kubeflow.machine.context import SystemClock
from dispatch_kubeflow.machine.rules import rulebook
from tests.admission.scene import LEASE, Recorder
from tests.real.api import Object
from tests.real.cluster import Cluster
from tests.real.training import hardened_copy, train_job

from .scene import FOREVER, LIMIT, Scene

DOCUMENTS = pathlib.Path(__file__).parents[2] / "docs" / "admission.yaml"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
SLOWLY = {**FOREVER, "kubelet.test/stops": "1s"}
"""Pods that run until they are stopped, which takes a while."""
VERY_SLOWLY = {**FOREVER, "kubelet.test/stops": "10s"}
"""The same, longer than a preemption takes with all that follows."""
SOON = {"kubelet.test/runs": "500ms"}
QUICK = LeaseTimes(4, 3, 0.5)
ASKED = {"requests": {"cpu": "1"}}
_INDEX = "batch.kubernetes.io/job-completion-index"
_NAME = "jobset.sigs.k8s.io/jobset-name"


class QueueScene(Scene):
    """Everything of it that has no namespace bears the namespace's name."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path) -> None:
        super().__init__(cluster, folder)
        self._made: list[str] = []

    def close(self) -> None:
        super().close()
        for path in reversed(self._made):
            self.cluster.api.send("DELETE", path)

    def queue(self, *, checked: bool) -> None:
        """A LocalQueue with room for one job of two nodes, behind our check or not."""
        name = self.namespace
        resources = [{"name": "cpu", "nominalQuota": "2"}]
        spec: Object = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": resources}]}],
        }
        self._make("workloadpriorityclasses", "WorkloadPriorityClass", {"value": 100})
        self._make("resourceflavors", "ResourceFlavor", {"spec": {}})
        if checked:
            self._make(
                "admissionchecks", "AdmissionCheck", {"spec": {"controllerName": "dispatch-kubeflow.io/admission"}}
            )
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name}]}
        self._make("clusterqueues", "ClusterQueue", {"spec": spec})
        local = {**kind("LocalQueue"), "metadata": {"name": "lq"}, "spec": {"clusterQueue": name}}
        self.cluster.api.post(f"{KUEUE}/namespaces/{name}/localqueues", local)

    def _make(self, plural: str, name: str, obj: Object) -> None:
        self.cluster.api.post(f"{KUEUE}/{plural}", {**kind(name), "metadata": {"name": self.namespace}, **obj})
        self._made.append(f"{KUEUE}/{plural}/{self.namespace}")

    @contextmanager
    def controller(self) -> Iterator[Recorder]:
        """Our controller, for as long as the block takes, with the rights that the documentation gives it."""
        every, own = roles()
        user = self.cluster.user(every)
        self.cluster.grant(user.name, own, namespace=self.namespace)
        path = str(self.cluster.kubeconfig(self.folder / "kubeconfig-controller", user=user))
        door = Door(load_access(book=rulebook(), kubeconfig=path), request_timeout=10, clock=SystemClock())
        recorder = Recorder()
        try:
            with Controller(door, Place(self.namespace, LEASE, "both"), recorder, times=QUICK):
                yield recorder
        finally:
            door.close()
            self.cluster.revoke(user.name)

    def queue_backend(self) -> Backend:
        return self.backend(mode="kueue", queue="lq", admission_check=self.namespace)

    def by_hand(self, name: str, pods: dict[str, str], *, urgent: bool = False) -> None:
        """A queued job that this library knows nothing of, whose pods are replaced as Kubernetes does by default."""
        self.cluster.api.post(self.runtimes, hardened_copy(self.cluster, name, pods, policy=None))
        job = train_job(name)
        job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lq"} | self._priority(urgent=urgent)
        job["spec"]["trainer"]["resourcesPerNode"] = ASKED
        self.cluster.api.post(self.train_jobs, job)

    def _priority(self, *, urgent: bool) -> dict[str, str]:
        return {"kueue.x-k8s.io/priority-class": self.namespace} if urgent else {}

    def make_urgent(self, name: str) -> None:
        """Give a gated job the priority by which it sends another away."""
        self.cluster.api.merge(f"{self.train_jobs}/{name}", {"metadata": {"labels": self._priority(urgent=True)}})

    def workload(self, name: str) -> Object:
        """The Workload of a TrainJob, once it is there."""
        uid = self.train_job(name)["metadata"]["uid"]
        collection = f"{KUEUE}/namespaces/{self.namespace}/workloads"
        (found,) = self.cluster.wait_list(collection, bool, selector=f"kueue.x-k8s.io/job-uid={uid}")
        return found

    def delete_workload(self, name: str) -> None:
        """What an operator's hand may do."""
        found = self.workload(name)["metadata"]["name"]
        self.cluster.api.send("DELETE", f"{KUEUE}/namespaces/{self.namespace}/workloads/{found}")

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds, however slow the machine."""
        end = time.monotonic() + LIMIT
        while not holds():
            assert time.monotonic() < end, "it never came"
            threading.Event().wait(0.02)

    @contextmanager
    def looking(self) -> Iterator[Generations]:
        """Look at the pods all the while."""
        found = Generations()
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.02):
                found.see(self.list(self.pods))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()


def roles() -> tuple[list[Object], list[Object]]:
    """The rules that docs/admission.yaml gives the controller: in every namespace, and in its own."""
    found = {each["kind"]: each for each in YAML(typ="safe").load_all(DOCUMENTS.read_text("utf-8"))}
    return found["ClusterRole"]["rules"], found["Role"]["rules"]


def kind(name: str) -> Object:
    """What an object of Kueue's says that it is."""
    return {"apiVersion": KUEUE.removeprefix("/apis/"), "kind": name}


class Generations:
    """The pods of each job and rank that were seen to run, and those that ran at once."""

    def __init__(self) -> None:
        self.ran: dict[tuple[str, str], set[str]] = {}
        self.overlaps: set[tuple[str, str]] = set()

    def see(self, pods: list[Object]) -> None:
        now: dict[tuple[str, str], set[str]] = {}
        for pod in pods:
            if any("running" in each.get("state", {}) for each in pod["status"].get("containerStatuses", [])):
                metadata = pod["metadata"]
                rank = (metadata["labels"][_NAME], metadata["annotations"][_INDEX])
                now.setdefault(rank, set()).add(metadata["uid"])
        for rank, uids in now.items():
            self.ran.setdefault(rank, set()).update(uids)
            if len(uids) > 1:
                self.overlaps.add(rank)

    def times(self, name: str) -> int:
        """How many generations of a job's pods were seen."""
        return min((len(uids) for (of, _), uids in self.ran.items() if of == name), default=0)
