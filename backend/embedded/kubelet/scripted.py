"""Hours of training, hangs, losses of memory and silent machines must be played in microseconds and in any order; a
script does.

The scripted kubelet starts no process. A `Script` says what a container does on the cluster's clock; a plan gives each
container of each pod its script.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.timers import Timer
from dispatch_kubeflow.backend.embedded.kubelet.base import SIGKILL_EXIT, SIGTERM_EXIT, Kubelet, Sandbox
from dispatch_kubeflow.backend.embedded.kubelet.logs import Log
from dispatch_kubeflow.backend.embedded.kubelet.status import ContainerState

Object = dict[str, Any]


@dataclass(frozen=True)
class Script:
    """What one container does. All times are seconds of the cluster's clock.

    `run`: how long until it ends by itself, None for ever. `exit_code`, `reason`: how (`OOMKilled` makes it 137).
    `start_after`: how long it takes to start. `waiting`: it never starts, and shows this reason and message.
    `stop_after`: how long it takes to end after SIGTERM, None if it ignores it; `stop_exit`: with which code.
    `hang`: not even SIGKILL ends it, as on a stuck mount. `lines`: when after its start it writes what to stdout.
    """

    run: float | None = None
    exit_code: int = 0
    reason: str = ""
    start_after: float = 0.0
    waiting: tuple[str, str] | None = None
    stop_after: float | None = 1.0
    stop_exit: int = SIGTERM_EXIT
    hang: bool = False
    lines: tuple[tuple[float, str], ...] = ()

    @staticmethod
    def out_of_memory(after: float) -> Script:
        """Runs `after` seconds, then the kernel kills it for memory."""
        return Script(run=after, exit_code=SIGKILL_EXIT, reason="OOMKilled")

    @staticmethod
    def image_stuck() -> Script:
        """Its image can never be pulled."""
        return Script(waiting=("ImagePullBackOff", "Back-off pulling image"))

    @staticmethod
    def misconfigured() -> Script:
        """Its configuration names what does not exist."""
        return Script(waiting=("CreateContainerConfigError", 'secret "absent" not found'))


Plan = Callable[[Object, str], Script]


def by_command(pod: Object, container: str) -> Script:
    """The usual plan: `sleep N` runs N seconds, `exit N` ends at once with that code, anything else runs for ever."""
    spec = next(item for item in pod["spec"]["containers"] if item["name"] == container)
    words = [*(spec.get("command") or ()), *(spec.get("args") or ())]
    if len(words) == 2 and words[0] == "sleep":
        return Script(run=float(words[1]))
    if len(words) == 2 and words[0] == "exit":
        return Script(run=0.0, exit_code=int(words[1]))
    return Script()


class ScriptedKubelet(Kubelet):
    """Plays scripts. `plan` is one Script for all, or a function of pod and container name; it may be replaced at
    any time.
    """

    def __init__(self, plan: Plan | Script = by_command) -> None:
        super().__init__()
        self.plan = plan
        self._scripts: dict[tuple[str, str], Script] = {}
        self._timers: dict[tuple[str, str], list[Timer]] = {}
        self._logs: dict[tuple[str, str], Log] = {}
        self._addresses = itertools.count(2)

    def address(self, pod: Object) -> str:  # noqa: ARG002  # each pod has another address, whatever it is
        """The next address of 10.0.0.0/8."""
        number = next(self._addresses)
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def start(self, sandbox: Sandbox, container: ContainerState) -> None:
        """Start it when its script says."""
        script = self.plan if isinstance(self.plan, Script) else self.plan(sandbox.pod, container.name)
        self._scripts[sandbox.uid, container.name] = script
        if script.waiting is not None:
            self.hold_back(sandbox, container, *script.waiting)
        elif script.start_after:
            self._after(sandbox, container, script.start_after, lambda: self._begin(sandbox, container, script))
        else:
            self._begin(sandbox, container, script)

    def _begin(self, sandbox: Sandbox, container: ContainerState, script: Script) -> None:
        if sandbox.stopping:
            return
        log = self._logs[sandbox.uid, container.name] = self.logs.start(sandbox.uid, container.name)
        self.started(sandbox, container)
        for at, text in script.lines:
            self._after(sandbox, container, at, partial(self._write, log, text))
        if script.run is not None:
            self._after(sandbox, container, script.run, lambda: self._end(sandbox, container))

    def _write(self, log: Log, text: str) -> None:
        log.write(self.world.clock.now(), "stdout", text.encode())

    def _end(self, sandbox: Sandbox, container: ContainerState) -> None:
        script = self._scripts[sandbox.uid, container.name]
        self.end(sandbox.uid, script.exit_code, script.reason, container.name)

    def _after(self, sandbox: Sandbox, container: ContainerState, after: float, action: Callable[[], None]) -> None:
        timer = self.world.timers.after(after, action)
        self._timers.setdefault((sandbox.uid, container.name), []).append(timer)

    def end(self, uid: str, exit_code: int = 0, reason: str = "", container: str | None = None) -> None:
        """End a pod's container (its first, or the named one) now, as if by itself."""
        sandbox = self.sandbox(uid)
        if sandbox is None:
            return
        state = sandbox.container(container) if container else sandbox.containers[0]
        for timer in self._timers.pop((uid, state.name), ()):
            timer.cancel()
        if log := self._logs.get((uid, state.name)):
            log.close()
        self.ended(sandbox, state, exit_code, reason)

    def signal(self, sandbox: Sandbox, container: ContainerState) -> None:
        """SIGTERM, answered as the script says."""
        script = self._scripts[sandbox.uid, container.name]
        if script.stop_after is not None and not script.hang:
            self._after(
                sandbox,
                container,
                script.stop_after,
                lambda: self.end(sandbox.uid, script.stop_exit, "", container.name),
            )

    def kill(self, sandbox: Sandbox, container: ContainerState) -> None:
        """SIGKILL, which only a hanging container survives."""
        if not self._scripts[sandbox.uid, container.name].hang:
            self.end(sandbox.uid, SIGKILL_EXIT, "", container.name)

    def unhang(self, uid: str, exit_code: int = SIGKILL_EXIT) -> None:
        """Let a hanging pod go at last."""
        self.end(uid, exit_code)

    def released(self, sandbox: Sandbox) -> None:
        """Forget its scripts."""
        for container in sandbox.containers:
            key = (sandbox.uid, container.name)
            self._scripts.pop(key, None)
            self._logs.pop(key, None)
            for timer in self._timers.pop(key, ()):
                timer.cancel()
