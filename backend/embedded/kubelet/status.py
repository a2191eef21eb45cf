"""A pod's status is the evidence of how it ended; it is composed here, purely, from what the kubelet knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers import conditions

Object = dict[str, Any]


@dataclass
class ContainerState:
    """One container as its kubelet knows it. Times as Kubernetes writes them."""

    name: str
    image: str
    waiting: tuple[str, str] | None = ("ContainerCreating", "")
    container_id: str = ""
    started_at: str = ""
    finished_at: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    restarts: int = 0
    last: Object = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Started and not ended."""
        return self.waiting is None and self.exit_code is None

    @property
    def ended(self) -> bool:
        """Ended, and not to be restarted yet."""
        return self.waiting is None and self.exit_code is not None

    def terminated(self) -> Object:
        """The `terminated` state."""
        state: Object = {
            "exitCode": self.exit_code,
            "finishedAt": self.finished_at,
            "reason": self.reason,
            "startedAt": self.started_at,
        }
        if self.container_id:
            state["containerID"] = self.container_id
        if self.message:
            state["message"] = self.message
        return state

    def status(self) -> Object:
        """The entry of `containerStatuses`."""
        if self.running:
            state: Object = {"running": {"startedAt": self.started_at}}
        elif self.waiting is not None:
            state = {"waiting": {"reason": self.waiting[0]}}
            if self.waiting[1]:
                state["waiting"]["message"] = self.waiting[1]
        else:
            state = {"terminated": self.terminated()}
        written: Object = {
            "image": self.image,
            "imageID": "",
            "lastState": self.last,
            "name": self.name,
            "ready": self.running,
            "restartCount": self.restarts,
            "started": self.running,
            "state": state,
        }
        if self.container_id and self.waiting is None:
            written["containerID"] = self.container_id
        return written


def compose(old: Object, containers: list[ContainerState], ip: str, now: str) -> Object:
    """The pod's status: `old` (its foreign conditions kept) with what the kubelet knows laid over it."""
    status = {**old}
    phase = _phase(containers)
    running = all(container.running for container in containers)
    if "startTime" not in status:
        status["startTime"] = now
    if phase != "Pending":
        status |= {"hostIP": "127.0.0.1", "podIP": ip, "podIPs": [{"ip": ip}]}
    done = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
    unready = done or ("" if running else "ContainersNotReady")
    message = ""
    if unready == "ContainersNotReady":
        names = " ".join(container.name for container in containers if not container.running)
        message = f"containers with unready status: [{names}]"
    value = "True" if running else "False"
    conditions.put_pod(status, "Initialized", "True", now)
    conditions.put_pod(status, "Ready", value, now, unready, message)
    conditions.put_pod(status, "ContainersReady", value, now, unready, message)
    conditions.put_pod(status, "PodReadyToStartContainers", "False" if done else "True", now)
    conditions.put_pod(status, "PodScheduled", "True", now)
    status["phase"] = phase
    status["containerStatuses"] = [container.status() for container in containers]
    return status


def _phase(containers: list[ContainerState]) -> str:
    if all(container.ended for container in containers):
        return "Failed" if any(container.exit_code for container in containers) else "Succeeded"
    if any(container.waiting is None or container.restarts for container in containers):
        return "Running"
    return "Pending"
