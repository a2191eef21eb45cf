"""A demonstration that trains, and output, exit codes and signals that are real: a container's command runs as a local
process.

There are no images and no isolation: a process sees the machine's files and programs. `python` and `python3` mean the
interpreter that runs the cluster. Every container leads a session of its own and carries its name in
`EMBEDDED_CONTAINER`, by which whatever is left of it is found and killed when its first process ends. What is promised
of names and mounts stands in `network` and `environment`. Only `containers` are run; a pod with `initContainers` is
refused (`CreateContainerError`), not half run.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any, cast

from dispatch_kubeflow.backend.embedded.controllers.base import World
from dispatch_kubeflow.backend.embedded.kubelet.base import Kubelet, Sandbox
from dispatch_kubeflow.backend.embedded.kubelet.environment import Mounts, expanded, variables
from dispatch_kubeflow.backend.embedded.kubelet.logs import Log
from dispatch_kubeflow.backend.embedded.kubelet.network import Addresses
from dispatch_kubeflow.backend.embedded.kubelet.status import ContainerState

Object = dict[str, Any]

MARK = "EMBEDDED_CONTAINER"
PYTHON = ("python", "python3")


class ProcessKubelet(Kubelet):
    """Runs commands as processes. `root` holds working folders and claims; without one a temporary folder does."""

    def __init__(self, root: Path | None = None) -> None:
        super().__init__()
        self._temporary = None if root else tempfile.TemporaryDirectory(prefix="embedded-")
        self.root = root or Path(self._temporary.name if self._temporary else "")
        self._addresses = Addresses()
        self._processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []

    def attach(self, world: World) -> None:
        """Join a cluster."""
        super().attach(world)
        self.root.mkdir(parents=True, exist_ok=True)

    def address(self, pod: Object) -> str:
        """A loopback address of the pod's own."""
        return self._addresses.take(pod)

    def start(self, sandbox: Sandbox, container: ContainerState) -> None:
        """Run the command; a program that cannot be found ends the container with 128 `StartError`."""
        pod = sandbox.pod
        spec = next(item for item in pod["spec"]["containers"] if item["name"] == container.name)
        if pod["spec"].get("initContainers"):
            self.hold_back(sandbox, container, "CreateContainerError", "initContainers are not run as processes")
            return
        home = self.root / "pods" / sandbox.uid / container.name
        home.mkdir(parents=True, exist_ok=True)
        environment = self._environment(sandbox, spec, home)
        words = self._words(pod, spec, environment)
        log = self.logs.start(sandbox.uid, container.name)
        if not words:
            log.close()
            self.hold_back(sandbox, container, "CreateContainerError", "no command specified")
            return
        try:
            process = subprocess.Popen(
                words,
                cwd=home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            log.close()
            self.failed_to_start(sandbox, container, f'failed to start: exec: "{words[0]}": {error}')
            return
        self._processes[sandbox.uid, container.name] = process
        self.started(sandbox, container)
        thread = threading.Thread(
            target=self._follow, args=(sandbox, container, process, log), name=f"pod-{sandbox.uid}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _environment(self, sandbox: Sandbox, spec: Object, home: Path) -> dict[str, str]:
        pod = sandbox.pod
        mounts = Mounts(self.root, pod, spec)
        given = variables(pod, spec, sandbox.ip)
        written = {name: mounts.localised(self._addresses.resolved(pod, text)) for name, text in given.items()}
        base = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "TMPDIR": str(home),
            "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
            MARK: f"{sandbox.uid}/{spec['name']}",
        }
        return base | written

    def _words(self, pod: Object, spec: Object, environment: dict[str, str]) -> list[str]:
        mounts = Mounts(self.root, pod, spec)
        words = [*(spec.get("command") or ()), *(spec.get("args") or ())]
        words = [mounts.localised(expanded(word, environment)) for word in words]
        if words and words[0] in PYTHON:
            words[0] = sys.executable
        return words

    def _follow(self, sandbox: Sandbox, container: ContainerState, process: subprocess.Popen[bytes], log: Log) -> None:
        """In a thread of its own: keep what the process writes, and tell the pump how it ended."""
        with selectors.DefaultSelector() as selector:
            for pipe, stream in ((process.stdout, "stdout"), (process.stderr, "stderr")):
                selector.register(cast("IO[bytes]", pipe), selectors.EVENT_READ, _Splitter(stream))
            waiter = threading.Thread(target=self._reap, args=(process, f"{sandbox.uid}/{container.name}"), daemon=True)
            waiter.start()
            while selector.get_map():
                for key, _ in selector.select():
                    self._read(selector, key, log)
            waiter.join()
        code = process.returncode
        exit_code = code if code >= 0 else 128 - code
        log.close()
        self.world.soon(lambda: self._gone(sandbox, container, exit_code))

    def _read(self, selector: selectors.BaseSelector, key: selectors.SelectorKey, log: Log) -> None:
        splitter: _Splitter = key.data
        chunk = os.read(key.fd, 65536)
        now = self.world.clock.now()
        for line in splitter.lines(chunk):
            log.write(now, splitter.stream, line)
        if not chunk:
            if splitter.rest:
                log.write(now, splitter.stream, splitter.rest, whole=False)
            selector.unregister(key.fileobj)
            cast("IO[bytes]", key.fileobj).close()

    def _reap(self, process: subprocess.Popen[bytes], mark: str) -> None:
        """When the first process of a container ends, so does all the rest of it: that closes the pipes."""
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        _kill_session(process.pid)
        _sweep(mark)
        process.wait()

    def _gone(self, sandbox: Sandbox, container: ContainerState, exit_code: int) -> None:
        self._processes.pop((sandbox.uid, container.name), None)
        self.ended(sandbox, container, exit_code)

    def signal(self, sandbox: Sandbox, container: ContainerState) -> None:
        """SIGTERM to the first process alone, as a kubelet does."""
        process = self._processes.get((sandbox.uid, container.name))
        if process is not None and process.returncode is None:
            _send(process.pid, signal.SIGTERM)

    def kill(self, sandbox: Sandbox, container: ContainerState) -> None:
        """SIGKILL to all of it."""
        process = self._processes.get((sandbox.uid, container.name))
        if process is not None and process.returncode is None:
            _kill_session(process.pid)

    def released(self, sandbox: Sandbox) -> None:
        """Free the pod's name and folder."""
        self._addresses.release(sandbox.pod)
        shutil.rmtree(self.root / "pods" / sandbox.uid, ignore_errors=True)

    def close(self) -> None:
        """Leave no process and no temporary folder behind."""
        super().close()
        for thread in self._threads:
            thread.join(5.0)
        if self._temporary is not None:
            self._temporary.cleanup()


class _Splitter:
    """Cuts a stream into lines."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.rest = b""

    def lines(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes."""
        *whole, self.rest = (self.rest + chunk).split(b"\n")
        return whole


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        # It ended by itself a moment ago, which its own thread reports.
        return


def _kill_session(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        # Nothing of the group is left.
        return


def _sweep(mark: str) -> None:
    """Kill every process that carries this container's mark, wherever it went."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            # Another user's process, or one that has just ended.
            continue
        if wanted in environment.split(b"\0"):
            _send(int(entry.name), signal.SIGKILL)
