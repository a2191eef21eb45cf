"""All kubelets of the cluster share one honest core: what really runs is kept apart from what has been reported.

`runs` is ground truth, told to nobody through the API: a pod may be gone there while its container runs on, and a
silent Node reports nothing. What a container is (a process, a script) is the subclass's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers import conditions
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.job_pods import ENDED, phase
from dispatch_kubeflow.backend.embedded.controllers.kinds import NODES, PODS
from dispatch_kubeflow.backend.embedded.controllers.timers import Timer
from dispatch_kubeflow.backend.embedded.controllers.view import Change
from dispatch_kubeflow.backend.embedded.errors import unreasoned
from dispatch_kubeflow.backend.embedded.kubelet.logs import LogBook
from dispatch_kubeflow.backend.embedded.kubelet.status import ContainerState, compose
from dispatch_kubeflow.backend.embedded.pods import LogQuery

Object = dict[str, Any]

MANAGER = "kubelet"
SIGTERM_EXIT = 143
SIGKILL_EXIT = 137
FIRST_RESTART = 10.0
LONGEST_RESTART = 300.0


@dataclass
class Run:
    """Ground truth: one run of one container. Times are the cluster clock's seconds; `ended` None while it runs."""

    uid: str
    pod: Object
    node: str
    container: str
    started: float
    ended: float | None = None
    exit_code: int | None = None


@dataclass
class Sandbox:
    """A pod on its Node, as the Node has it."""

    pod: Object
    node: str
    ip: str
    containers: list[ContainerState]
    stopping: bool = False
    forced: bool = False
    kill_timer: Timer | None = None
    restart_timers: list[Timer] = field(default_factory=list)
    verdict: Object = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """The pod's UID."""
        uid: str = self.pod["metadata"]["uid"]
        return uid

    @property
    def over(self) -> bool:
        """Whether nothing of the pod runs or will run again."""
        return all(not container.running for container in self.containers) and (
            self.stopping or all(container.ended for container in self.containers)
        )

    def container(self, name: str) -> ContainerState:
        """The container of that name."""
        return next(container for container in self.containers if container.name == name)


class Kubelet(Controller):
    """Bound pod in; containers, status and the pod's final deletion out. One object stands for every Node's kubelet."""

    name: ClassVar[str] = "kubelet"

    def __init__(self) -> None:
        # The world comes with `attach`: a kubelet is made by the user before there is a cluster.
        self.logs: LogBook
        self.runs: list[Run] = []
        self._live: dict[tuple[str, str], Run] = {}
        self._sandboxes: dict[str, Sandbox] = {}
        self._silent: dict[str, float] = {}
        self._boots: dict[str, int] = {}

    def attach(self, world: World) -> None:
        """Join a cluster."""
        super().__init__(world)
        self.logs = LogBook(world.clock)

    # What a subclass does.

    def start(self, sandbox: Sandbox, container: ContainerState) -> None:
        """Begin to run a container; `started`, `hold_back` or `ended` is called when it does or cannot."""
        raise NotImplementedError

    def signal(self, sandbox: Sandbox, container: ContainerState) -> None:
        """SIGTERM a running container."""
        raise NotImplementedError

    def kill(self, sandbox: Sandbox, container: ContainerState) -> None:
        """SIGKILL a running container."""
        raise NotImplementedError

    def address(self, pod: Object) -> str:
        """The pod's IP."""
        raise NotImplementedError

    def released(self, sandbox: Sandbox) -> None:
        """Nothing of the pod is left on its Node."""

    def close(self) -> None:
        """The cluster stops: leave nothing running."""
        for sandbox in self._sandboxes.values():
            for container in sandbox.containers:
                if container.running:
                    self.kill(sandbox, container)
        self.logs.close()

    # Ground truth and meddling.

    def running(self) -> list[Run]:
        """Every container that really runs now, whatever the API says."""
        return list(self._live.values())

    def silent_since(self, node: str) -> float | None:
        """When the Node fell silent; None while it reports."""
        return self._silent.get(node)

    def fall_silent(self, node: str) -> None:
        """The Node is cut off: its containers run on, nothing is reported and no order arrives."""
        self._silent.setdefault(node, self.world.clock.monotonic())

    def come_back(self, node: str) -> None:
        """The Node reports again, obeys what it missed, and says so in its `Ready` condition."""
        if self._silent.pop(node, None) is not None:
            self._report_node(node)
            for uid in [sandbox.uid for sandbox in self._sandboxes.values() if sandbox.node == node]:
                self.enqueue(uid)
            for pod in self.world.view.pods_on(node):
                self.enqueue(pod["metadata"]["uid"])

    def reboot(self, node: str) -> None:
        """The Node's machine restarts: everything on it dies, its bootID is another. A silent Node speaks again."""
        for sandbox in [sandbox for sandbox in self._sandboxes.values() if sandbox.node == node]:
            for container in sandbox.containers:
                if container.running:
                    self._finish(sandbox, container, 255, "Unknown")
                    self.kill(sandbox, container)
        self._boots[node] = self._boots.get(node, 0) + 1
        self._silent.setdefault(node, self.world.clock.monotonic())
        self.come_back(node)

    def boot_id(self, node: str) -> str:
        """The Node's present bootID."""
        return f"boot-{node}-{self._boots.get(node, 0)}"

    def evict_for_pressure(self, uid: str, message: str = "The node was low on resource: memory.") -> None:
        """Node pressure: the kubelet kills the pod and says `Evicted`."""
        sandbox = self._sandboxes[uid]
        sandbox.verdict = {"reason": "Evicted", "message": message}
        for container in sandbox.containers:
            if container.running:
                self._finish(sandbox, container, SIGKILL_EXIT, "Error")
                self.kill(sandbox, container)

    def _report_node(self, name: str) -> None:
        node = self.world.api.get(NODES, "", name)
        if node is None:
            return
        status = {**node["status"], "nodeInfo": {**node["status"].get("nodeInfo", {}), "bootID": self.boot_id(name)}}
        now = self.world.now()
        conditions.put(status, "Ready", "True", "KubeletReady", "kubelet is posting ready status", now)
        self.world.api.update(NODES, {**node, "status": status}, MANAGER, "status")

    # The controller.

    def handle(self, change: Change) -> None:
        """Pods as they are bound, deleted or gone."""
        if change.resource != PODS:
            return
        uid = change.obj["metadata"]["uid"]
        if uid in self._sandboxes:
            self.enqueue(uid)
        elif change.type == "DELETED":
            self.logs.forget(uid)
        elif change.obj["spec"].get("nodeName"):
            self.enqueue(uid)

    def reconcile(self, key: str) -> None:
        """Bring one pod's containers to what the API wants, then say what they are."""
        entry = self.world.view.by_uid(key)
        sandbox = self._sandboxes.get(key)
        node = sandbox.node if sandbox else (entry.obj["spec"].get("nodeName") if entry else None)
        if node is None or node in self._silent:
            return
        if entry is None:
            if sandbox is not None:
                self._drop(sandbox)
            return
        if sandbox is None:
            self._admit(entry.obj)
            return
        if "deletionTimestamp" in entry.obj["metadata"] and not sandbox.stopping:
            grace = entry.obj["metadata"].get("deletionGracePeriodSeconds", 0)
            # Of a pod deleted by force nothing is reported any more.
            sandbox.forced = grace == 0
            self._stop(sandbox, grace)
        self._report(sandbox)

    def _admit(self, pod: Object) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            self._delete(pod)
            return
        if phase(pod) in ENDED or self.world.view.get(NODES, "", pod["spec"]["nodeName"]) is None:
            return
        containers = [ContainerState(item["name"], item.get("image", "")) for item in pod["spec"]["containers"]]
        sandbox = Sandbox(pod, pod["spec"]["nodeName"], self.address(pod), containers)
        self._sandboxes[sandbox.uid] = sandbox
        for container in containers:
            self.start(sandbox, container)
        self._report(sandbox)

    def _stop(self, sandbox: Sandbox, grace: float) -> None:
        sandbox.stopping = True
        for timer in sandbox.restart_timers:
            timer.cancel()
        for container in sandbox.containers:
            if container.running:
                self.signal(sandbox, container)
        if any(container.running for container in sandbox.containers):
            sandbox.kill_timer = self.world.timers.after(grace, lambda: self._kill_all(sandbox))

    def _kill_all(self, sandbox: Sandbox) -> None:
        for container in sandbox.containers:
            if container.running:
                self.kill(sandbox, container)

    def _drop(self, sandbox: Sandbox) -> None:
        """The pod object is gone: whatever still runs is killed, and nobody is told."""
        if not sandbox.stopping:
            self._stop(sandbox, 0.0)
        if sandbox.over:
            self._forget(sandbox)

    def _forget(self, sandbox: Sandbox) -> None:
        if self._sandboxes.pop(sandbox.uid, None) is None:
            return
        if sandbox.kill_timer is not None:
            sandbox.kill_timer.cancel()
        self.released(sandbox)
        if self.world.view.by_uid(sandbox.uid) is None:
            self.logs.forget(sandbox.uid)

    def _report(self, sandbox: Sandbox) -> None:
        metadata = sandbox.pod["metadata"]
        live = self.world.api.get(PODS, metadata["namespace"], metadata["name"])
        if live is None or live["metadata"]["uid"] != sandbox.uid:
            return
        if phase(live) not in ENDED and not sandbox.forced:
            status = compose(live["status"], sandbox.containers, sandbox.ip, self.world.now())
            self._pronounce(sandbox, status)
            if status != live["status"]:
                live = self.world.api.update(PODS, {**live, "status": status}, MANAGER, "status")
        if sandbox.over:
            if "deletionTimestamp" in live["metadata"]:
                self._delete(live)
            self._forget(sandbox)

    def _pronounce(self, sandbox: Sandbox, status: Object) -> None:
        if sandbox.stopping and sandbox.over and status["phase"] == "Pending":
            # Stopped before it ever ran: no container of it will.
            status["phase"] = "Failed"
        if sandbox.verdict and sandbox.over:
            status |= {**sandbox.verdict, "phase": "Failed"}
            message = sandbox.verdict["message"]
            conditions.put_pod(status, "DisruptionTarget", "True", self.world.now(), "TerminationByKubelet", message)

    def _delete(self, pod: Object) -> None:
        """The kubelet's final word: the object may go."""
        if pod["metadata"].get("deletionGracePeriodSeconds") != 0 or not pod["metadata"].get("finalizers"):
            self.world.api.delete(PODS, pod, grace=0, manager=MANAGER)

    # What a subclass tells.

    def started(self, sandbox: Sandbox, container: ContainerState) -> None:
        """A container runs."""
        container.waiting = None
        container.exit_code = None
        container.started_at = self.world.now()
        container.container_id = f"containerd://{self.world.chance.getrandbits(256):064x}"
        run = Run(sandbox.uid, sandbox.pod, sandbox.node, container.name, self.world.clock.monotonic())
        self.runs.append(run)
        self._live[sandbox.uid, container.name] = run
        self._tell(sandbox)

    def hold_back(self, sandbox: Sandbox, container: ContainerState, reason: str, message: str) -> None:
        """A container cannot be started, and says why."""
        container.waiting = (reason, message)
        self._tell(sandbox)

    def ended(self, sandbox: Sandbox, container: ContainerState, exit_code: int, reason: str = "") -> None:
        """A container ended by itself or by a signal."""
        if container.running:
            self._finish(sandbox, container, exit_code, reason)

    def failed_to_start(self, sandbox: Sandbox, container: ContainerState, message: str) -> None:
        """A container's command cannot be run at all."""
        container.waiting = None
        container.started_at = "1970-01-01T00:00:00Z"
        container.message = message
        self._finish(sandbox, container, 128, "StartError")

    def _finish(self, sandbox: Sandbox, container: ContainerState, exit_code: int, reason: str) -> None:
        container.exit_code = exit_code
        container.reason = reason or ("Completed" if exit_code == 0 else "Error")
        container.finished_at = self.world.now()
        run = self._live.pop((sandbox.uid, container.name), None)
        if run is not None:
            run.ended, run.exit_code = self.world.clock.monotonic(), exit_code
        if not sandbox.stopping and not sandbox.verdict and self._restarts(sandbox.pod, exit_code):
            self._restart_later(sandbox, container)
        self._tell(sandbox)

    def _restarts(self, pod: Object, exit_code: int) -> bool:
        policy = pod["spec"].get("restartPolicy", "Always")
        return bool(policy == "Always" or (policy == "OnFailure" and exit_code != 0))

    def _restart_later(self, sandbox: Sandbox, container: ContainerState) -> None:
        """In place, at once the first time, then after 10 s, doubled each time."""
        container.last = {"terminated": container.terminated()}
        delay = min(FIRST_RESTART * 2 ** (container.restarts - 1), LONGEST_RESTART) if container.restarts else 0.0
        container.restarts += 1
        container.waiting = (
            "CrashLoopBackOff",
            f"back-off {delay:.0f}s restarting failed container={container.name}",
        )
        sandbox.restart_timers.append(self.world.timers.after(delay, lambda: self._restart(sandbox, container)))

    def _restart(self, sandbox: Sandbox, container: ContainerState) -> None:
        if not sandbox.stopping:
            self.start(sandbox, container)

    def _tell(self, sandbox: Sandbox) -> None:
        if sandbox.uid in self._sandboxes:
            self.enqueue(sandbox.uid)

    def log(self, pod: Object, container: str, query: LogQuery) -> Iterator[bytes]:
        """A container's log; a silent Node cannot be asked (500 without a reason)."""
        node = pod["spec"]["nodeName"]
        if node in self._silent:
            path = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{container}"
            raise unreasoned(
                f'Get "https://127.0.0.1:10250/containerLogs/{path}": dial tcp 127.0.0.1:10250: '
                "connect: connection refused"
            )
        return self.logs.read(pod, container, query)

    def sandbox(self, uid: str) -> Sandbox | None:
        """The pod of that UID as its Node has it, or None."""
        return self._sandboxes.get(uid)
