"""Starts and stops the programs so that nothing is ever left running, whatever happens to whoever started them.

A child is killed by the kernel when its parent dies (PR_SET_PDEATHSIG), leads a process group of its own so that a
terminal's Ctrl-C reaches only the parent, and writes to a log file that is quoted when it fails to come up.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class DidNotStart(Exception):
    """A program ended, or did not become ready in time; the text quotes the end of its log."""


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports that nothing on the loopback listens on right now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass
class Child:
    """One program: how it is started, and its running process, if any."""

    name: str
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "logs" / f"{self.name}.log"

    def start(self) -> None:
        """Starts it. Call from a thread that outlives it: the kernel ties the child to the thread, not the process."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()

        def tie_to_parent() -> None:
            os.nice(_spare_niceness())
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(self.command),
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=tie_to_parent,  # noqa: PLW1509 - it only makes system calls: no lock can be held in it
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: int) -> None:
        """Sends a signal (SIGSTOP to freeze it, SIGKILL to crash it)."""
        if self.process is not None:
            self.process.send_signal(number)

    def stop(self, patience: float = 5.0) -> None:
        """Ends it: SIGTERM, then SIGKILL to its whole group after `patience` seconds."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.process = None

    def kill(self) -> None:
        """Crashes it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wait_until(self, ready: Callable[[], bool], seconds: float = 60.0) -> None:
        """Waits for readiness; raises DidNotStart when it ends first or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running:
                raise DidNotStart(f"{self.name} ended at its start:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise DidNotStart(f"{self.name} was not ready within {seconds:.0f} s:\n{self._tail()}")
            time.sleep(0.05)

    def _tail(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-15:])


def _spare_niceness() -> int:
    """How much nicer than its parent a child is made: `DISPATCH_REAL_NICE`, default 0."""
    return int(os.environ.get("DISPATCH_REAL_NICE", "0"))


def resident_megabytes(pid: int) -> float:
    """The resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
