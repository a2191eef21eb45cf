"""Whoever uses or tests the adapter needs a cluster to do it on; this one starts in a blink and knows the truth.

The apiserver's store, Trainer, JobSet, the Job controller, scheduler, kubelets, garbage collector and node controllers
in one process. On the system's clock it runs by itself; on a `VirtualClock` nothing moves but by `settle` and
`advance`.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from dispatch_kubeflow.backend.embedded.access import ADMIN
from dispatch_kubeflow.backend.embedded.admission import Admission
from dispatch_kubeflow.backend.embedded.apiserver import Apiserver, Received
from dispatch_kubeflow.backend.embedded.clock import VirtualClock
from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.collector import Collector
from dispatch_kubeflow.backend.embedded.controllers.job import Job
from dispatch_kubeflow.backend.embedded.controllers.jobset import JobSet
from dispatch_kubeflow.backend.embedded.controllers.kinds import (
    CLUSTER_TRAINING_RUNTIMES,
    NAMESPACES,
    NODES,
    PODS,
    Resource,
)
from dispatch_kubeflow.backend.embedded.controllers.kueue import names as kueue_names
from dispatch_kubeflow.backend.embedded.controllers.kueue.configuration import KueueConfiguration
from dispatch_kubeflow.backend.embedded.controllers.kueue.kueue import Kueue
from dispatch_kubeflow.backend.embedded.controllers.manager import Manager
from dispatch_kubeflow.backend.embedded.controllers.nodes import NodeLifecycle, PodGC, TaintEviction
from dispatch_kubeflow.backend.embedded.controllers.scheduler import Scheduler
from dispatch_kubeflow.backend.embedded.controllers.trainer import Trainer
from dispatch_kubeflow.backend.embedded.controllers.trainer_webhook import EXEMPTION
from dispatch_kubeflow.backend.embedded.controllers.webhooks import JobSetWebhooks, TrainerWebhooks
from dispatch_kubeflow.backend.embedded.crds import runtimes
from dispatch_kubeflow.backend.embedded.definitions import Definitions
from dispatch_kubeflow.backend.embedded.kubelet import Kubelet, ProcessKubelet
from dispatch_kubeflow.backend.embedded.server import Server
from dispatch_kubeflow.backend.embedded.store import Deleted, PatchType, Propagation, Store
from dispatch_kubeflow.machine.context import Clock, SystemClock

Object = dict[str, Any]
Joining = TypeVar("Joining", bound=Controller)

RELEASES = {"2.3.0": ("kubeflow-trainer-v2.3.0", "jobset-v0.12.0")}
# What goes down together with a program: its controllers, and the API groups whose webhooks it serves.
PROGRAMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "trainer": (("trainer",), ("defaulter.trainjob.trainer.kubeflow.org", "validator.trainjob.trainer.kubeflow.org",
                               "validator.trainingruntime.trainer.kubeflow.org",
                               "validator.clustertrainingruntime.trainer.kubeflow.org")),
    "jobset": (("jobset",), ("mjobset.kb.io", "vjobset.kb.io", "mpod.kb.io")),
    "kube-controller-manager": (("job", "collector", "node-lifecycle", "taint-eviction", "podgc"), ()),
    "kube-scheduler": (("scheduler",), ()),
    "kubelet": (("kubelet",), ()),
    "kueue": (("kueue-queues", "kueue-jobs", "kueue-workloads", "kueue-statuses", "kueue-scheduler"), ()),
}  # fmt: skip
CHECK_CONTROLLER = "dispatch-kubeflow.io/admission"
CPU, MEMORY, MAX_PODS = "64", "256Gi", "110"


@functools.cache
def _installed(releases: tuple[str, ...]) -> Store:
    """A store that serves these releases' kinds: their definitions are megabytes, and the same for every cluster."""
    store = Store(SystemClock())
    Definitions(store).install(*releases)
    return store


class Cluster:
    """A cluster to be used as a context manager.

    `nodes`: how many, or their names. `kubelet`: `"processes"` or a Kubelet. `clock`: the system's by default, or a
    VirtualClock. `trainer`: which release. `namespaces`: created beside `default` and `kube-system`. `seed`: makes
    names and UIDs the same in every run. `serve`: whether to listen on a loopback port; without it `url` is None.
    `kueue`: how Kueue is configured, if there is to be one; without it none is installed. `like`: a cluster of the same
    kubelet, start of time and `kueue` that nobody has used: this one begins with what that one has, instead of making
    it anew, in about a millisecond.
    """

    def __init__(
        self,
        *,
        nodes: int | Sequence[str] = 2,
        kubelet: Kubelet | Literal["processes"] = "processes",
        clock: Clock | None = None,
        trainer: str = "2.3.0",
        namespaces: Sequence[str] = ("team-a",),
        seed: int | None = None,
        serve: bool = True,
        kueue: KueueConfiguration | None = None,
        like: Cluster | None = None,
    ) -> None:
        if trainer not in RELEASES:
            raise ValueError(f"no release {trainer!r} of Trainer: there are {', '.join(RELEASES)}")
        self.clock: Clock = clock or SystemClock()
        self.admission = Admission()
        self.store = Store(self.clock, admission=self.admission, seed=seed)
        releases = RELEASES[trainer] if kueue is None else (*RELEASES[trainer], kueue_names.RELEASE)
        self.store.begin_as(_installed(releases) if like is None else like.store)
        self._manager = Manager(self.store, self.clock, random.Random(seed))
        world = self._manager.world
        self.kubelet: Kubelet = ProcessKubelet() if kubelet == "processes" else kubelet
        self.kubelet.attach(world)
        self.trainer = Trainer(world)
        self.jobset = JobSet(world)
        self.job = Job(world)
        self.scheduler = Scheduler(world)
        self.collector = Collector(world)
        self.node_lifecycle = NodeLifecycle(world, self.kubelet)
        self.taint_eviction = TaintEviction(world)
        self.podgc = PodGC(world)
        # The collector comes first: where it races Trainer for a deleted JobSet, it wins as a rule.
        self._manager.controllers = [
            self.collector,
            self.trainer,
            self.jobset,
            self.job,
            self.scheduler,
            self.kubelet,
            self.node_lifecycle,
            self.taint_eviction,
            self.podgc,
        ]
        self.apiserver = Apiserver(self.store, logs=self.kubelet.log)
        self.server = Server(self.apiserver) if serve else None
        self._namespace = namespaces[0] if namespaces else "default"
        self._tokens = {ADMIN.name: self.apiserver.access.user(ADMIN.name, groups=ADMIN.groups)}
        self._definitions = Definitions(self.store, served=True)
        self.trainer_webhooks = TrainerWebhooks(world, self.admission)
        JobSetWebhooks(self.admission)
        self.kueue: Kueue | None = None
        if kueue is not None:
            self.kueue = Kueue(world, self.admission, kueue)
            self._manager.controllers += self.kueue.controllers
        if like is None:
            self._furnish(nodes, namespaces, RELEASES[trainer][0])

    def _furnish(self, nodes: int | Sequence[str], namespaces: Sequence[str], release: str) -> None:
        for name in ("default", "kube-system", *namespaces):
            self.create(NAMESPACES, {"metadata": {"name": name}})
        for runtime in runtimes(release):
            labels = {**(runtime["metadata"].get("labels") or {}), EXEMPTION: "disabled"}
            self.create(CLUSTER_TRAINING_RUNTIMES, {**runtime, "metadata": {**runtime["metadata"], "labels": labels}})
        for name in [f"node-{index}" for index in range(nodes)] if isinstance(nodes, int) else nodes:
            self.add_node(name)

    # Life.

    def __enter__(self) -> Self:
        if self.server is not None:
            self.server.start()
        if not isinstance(self.clock, VirtualClock):
            self._manager.run()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything; no process and no thread is left."""
        # The kubelets first: a log that is followed ends with them, and with it the connection that follows it.
        self.kubelet.close()
        if self.server is not None:
            self.server.stop()
        self._manager.stop()

    def settle(self) -> None:
        """Do all that can be done at the present moment."""
        self._manager.settle()

    def advance(self, seconds: float) -> None:
        """Let `seconds` of a VirtualClock pass, with everything that falls due in them."""
        self._manager.advance(seconds)

    # Objects, past the network but not past admission.

    def create(self, resource: Resource, obj: Mapping[str, Any], namespace: str | None = None) -> Object:
        """Create an object."""
        return self.store.create(resource, obj, namespace=namespace)

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """The object, or None."""
        return self.store.find(resource, namespace, name)

    def list(self, resource: Resource, namespace: str | None = None, labels: str | None = None) -> list[Object]:
        """The objects, by namespace and name."""
        return self.store.list(resource, namespace, label_selector=labels)[0]

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        kind: PatchType = "merge",
        subresource: str | None = None,
    ) -> Object:
        """Patch an object."""
        return self.store.patch(resource, namespace, name, patch, kind, subresource)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation | None = None,
        grace: int | None = None,
    ) -> Deleted:
        """Delete an object."""
        return self.store.delete(resource, namespace, name, propagation=propagation, grace_seconds=grace)

    # Access.

    @property
    def requests(self) -> Sequence[Received]:
        """Every request received over the network, in order, with its answer's status and what it committed."""
        return self.apiserver.requests

    @property
    def url(self) -> str | None:
        """Where the apiserver listens, once the cluster is entered."""
        return None if self.server is None else self.server.url

    @property
    def failures(self) -> Sequence[str]:
        """Traces of errors of this program itself, in a controller or the apiserver; a test may assert there are none.

        On a virtual clock a controller's error is raised by `settle` or `advance` instead.
        """
        return [*self._manager.failures, *self.apiserver.failures]

    def user(self, name: str, rules: Iterable[Mapping[str, Any]] = ()) -> str:
        """A user with these RBAC rules beside those of the store; gives its bearer token.

        Called again for a name it replaces the rules and gives another token.
        """
        token = self._tokens[name] = self.apiserver.access.user(name, rules)
        return token

    def kubeconfig(self, path: Path, user: str = "admin") -> Path:
        """Write a kubeconfig for a user, `admin` being there from the start; gives the path back."""
        if self.server is None:
            raise RuntimeError("this cluster does not serve")
        config = self.server.kubeconfig(self._tokens[user], namespace=self._namespace, user=user)
        # JSON is YAML, and needs no writer of its own.
        path.write_text(json.dumps(config, indent=2))
        path.chmod(0o600)
        return path

    # Meddling.

    @property
    def controllers(self) -> dict[str, Controller]:
        """The controllers by name; each can be put `down` and given a `lag`."""
        return {controller.name: controller for controller in self._manager.controllers}

    def join(self, make: Callable[[World], Joining]) -> Joining:
        """Let one more controller run beside the others, e.g. Kueue's; gives it back."""
        controller = make(self._manager.world)
        self._manager.soon(lambda: self._manager.add(controller))
        return controller

    def do(self, action: Callable[[], None]) -> None:
        """Do something where the controllers run, between two of their steps: so a running cluster is meddled with."""
        self._manager.soon(action)

    def take_down(self, program: str) -> None:
        """Stop `trainer`, `jobset`, `kueue`, `kube-controller-manager`, `kube-scheduler` or `kubelet`, with its
        webhooks.
        """
        self._set_down(program, True)

    def bring_up(self, program: str) -> None:
        """Start it again; it looks at everything anew."""
        self._set_down(program, False)

    def _set_down(self, program: str, down: bool) -> None:
        names, webhooks = PROGRAMS[program]
        for webhook in webhooks:
            self.admission.set_down(down, name=webhook)
        if program == "kueue":
            if self.kueue is None:
                raise ValueError("this cluster has no Kueue")
            self.kueue.webhooks.set_down(down)
        for name in names:
            self._manager.soon(partial(self._put_down, name, down))

    def _put_down(self, name: str, down: bool) -> None:
        self.controllers[name].down = down

    def add_node(
        self,
        name: str,
        *,
        capacity: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> Object:
        """A Node, ready, of the size of `capacity` (64 CPUs, 256 GiB, 110 pods by default)."""
        size = {"cpu": CPU, "memory": MEMORY, "pods": MAX_PODS, **(capacity or {})}
        now = conditions.stamp(self.clock.now())
        status: Object = {
            "addresses": [
                {"address": "127.0.0.1", "type": "InternalIP"},
                {"address": name, "type": "Hostname"},
            ],
            "allocatable": size,
            "capacity": size,
            "nodeInfo": {"bootID": self.kubelet.boot_id(name), "machineID": name, "systemUUID": f"system-{name}"},
        }
        message = "kubelet is posting ready status"
        conditions.put(status, "Ready", "True", "KubeletReady", message, now)
        spec: Object = {"providerID": f"embedded://{name}"}
        if taints:
            spec["taints"] = [dict(taint) for taint in taints]
        marks = {"kubernetes.io/hostname": name, **(labels or {})}
        return self.create(NODES, {"metadata": {"name": name, "labels": marks}, "spec": spec, "status": status})

    def add_queue(
        self,
        name: str,
        namespace: str,
        *,
        cluster_queue: str = "cq",
        flavor: str = "default",
        quota: Mapping[str, str] | None = None,
        check: str | None = None,
        preempts: bool = False,
    ) -> None:
        """A LocalQueue and its ClusterQueue, of one flavor with `quota` (64 CPUs and 256 GiB by default).

        `check`: the AdmissionCheck it asks for, which nobody has said to be active yet. `preempts`: whether a Workload
        of a higher priority sends others away.
        """
        amounts = quota or {"cpu": CPU, "memory": MEMORY}
        resources = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
        spec: Object = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority" if preempts else "Never"},
            "resourceGroups": [
                {"coveredResources": list(amounts), "flavors": [{"name": flavor, "resources": resources}]}
            ],
        }
        if self.get(kueue_names.RESOURCE_FLAVORS, flavor) is None:
            self.create(kueue_names.RESOURCE_FLAVORS, {"metadata": {"name": flavor}, "spec": {}})
        if check is not None:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
            if self.get(kueue_names.ADMISSION_CHECKS, check) is None:
                made = {"metadata": {"name": check}, "spec": {"controllerName": CHECK_CONTROLLER}}
                self.create(kueue_names.ADMISSION_CHECKS, made)
        self.create(kueue_names.CLUSTER_QUEUES, {"metadata": {"name": cluster_queue}, "spec": spec})
        local = {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": cluster_queue}}
        self.create(kueue_names.LOCAL_QUEUES, local)

    def lose_node(self, name: str) -> None:
        """Cut a Node off: its containers run on, nothing is heard of it."""
        self._manager.soon(lambda: self._lose(name))

    def _lose(self, name: str) -> None:
        self.kubelet.fall_silent(name)
        self.node_lifecycle.heard(name)

    def return_node(self, name: str) -> None:
        """Connect a Node again; it obeys what it missed."""
        self._manager.soon(lambda: self._return(name))

    def _return(self, name: str) -> None:
        self.kubelet.come_back(name)
        self.node_lifecycle.heard(name)

    def reboot_node(self, name: str) -> None:
        """Restart a Node's machine: everything on it dies, and its bootID is another."""
        self._manager.soon(lambda: self._reboot(name))

    def _reboot(self, name: str) -> None:
        self.kubelet.reboot(name)
        self.node_lifecycle.heard(name)

    def delete_node(self, name: str) -> None:
        """Take the Node object away; the machine behind it runs on."""
        self.delete(NODES, name)

    def taint_node(self, name: str, key: str, effect: str = "NoExecute", value: str = "") -> None:
        """Put a taint on a Node, beside those it has."""
        spec = self.store.get(NODES, None, name).get("spec") or {}
        taint = {"effect": effect, "key": key} | ({"value": value} if value else {})
        self.patch(NODES, name, {"spec": {"taints": [*(spec.get("taints") or ()), taint]}})

    def cordon(self, name: str, cordoned: bool = True) -> None:
        """Make a Node unschedulable, or schedulable again."""
        self.patch(NODES, name, {"spec": {"unschedulable": cordoned or None}})

    def evict(self, name: str, namespace: str) -> None:
        """What the eviction API does to a pod: the condition first, then the deletion."""
        pod = self.store.get(PODS, namespace, name)
        now = conditions.stamp(self.clock.now())
        conditions.put_pod(
            pod["status"], "DisruptionTarget", "True", now, "EvictionByEvictionAPI", "Eviction API: evicting"
        )
        self.store.update(PODS, pod, "status")
        self.store.delete(PODS, namespace, name, uid=pod["metadata"]["uid"])
