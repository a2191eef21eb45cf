"""That nothing is ever left running, whatever happens to whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from . import programs
from .control_plane import ControlPlane
from .processes import Child, DidNotStart, free_ports


def alive(pid: int) -> bool:
    """A process that runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until_gone(pids: list[int], seconds: float = 10) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(10))) == 10


def test_a_program_that_ends_at_its_start_is_an_error_that_quotes_its_log(tmp_path: Path) -> None:
    child = Child("dies", ["sh", "-c", "echo why it died >&2; exit 1"], tmp_path)
    child.start()
    with pytest.raises(DidNotStart, match="why it died"):
        child.wait_until(lambda: False)


def test_a_program_that_ignores_being_asked_is_killed_with_its_group(tmp_path: Path) -> None:
    child = Child("stubborn", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1000 & wait; done"], tmp_path)
    child.start()
    child.wait_until(lambda: "up" in child.log.read_text())
    assert child.process is not None
    pid = child.process.pid
    child.stop(patience=0.1)
    assert until_gone([pid]) == []


@pytest.mark.timeout(3600, func_only=True)
def test_killing_the_owner_of_a_control_plane_leaves_nothing_running(tmp_path: Path) -> None:
    programs.build_missing()
    environment = {**os.environ, "PYTHONPATH": str(programs.HERE.parent)}
    command = [sys.executable, "-m", "real", "serve", "--folder", str(tmp_path)]
    serving = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "ready").exists():
        assert serving.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    children = [int(pid) for pid in Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text().split()]
    assert len(children) == len(programs.PROGRAMS)
    serving.send_signal(signal.SIGKILL)
    serving.wait()
    assert until_gone(children) == []


@pytest.mark.timeout(3600, func_only=True)
def test_a_warm_start_takes_less_than_thirty_seconds_and_a_stop_leaves_no_process_and_no_folder() -> None:
    programs.build_missing()
    began = time.monotonic()
    with ControlPlane() as plane:
        assert time.monotonic() - began < 30
        pids = [child.process.pid for child in plane.children.values() if child.process is not None]
        assert len(plane.memory()) == len(programs.PROGRAMS)
    assert until_gone(pids) == []
    assert not plane.folder.exists()


@pytest.mark.timeout(3600, func_only=True)
def test_a_crashed_program_can_be_started_again() -> None:
    with ControlPlane() as plane:
        job_sets = plane.cluster.job_sets("default")
        plane.crash("kube-apiserver")
        with pytest.raises(OSError, match="refused"):
            plane.cluster.api.get(job_sets)
        plane.start_again("kube-apiserver")
        assert plane.cluster.api.get(job_sets)["items"] == []
