"""`python -m real`: builds the control plane, leaves one running, and stops it again."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from . import programs
from .cluster import STATE, Cluster
from .control_plane import ControlPlane
from .processes import DidNotStart

_PLACE = programs.CHECKOUT / ".cache" / "real" / "up"
_KUEUE_PLACE = _PLACE.with_name("up-kueue")


def main() -> int:
    parser = argparse.ArgumentParser(prog="real", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("build", "build what is missing"),
        ("up", "start a control plane and leave it running"),
        ("down", "stop it"),
        ("status", "say whether it runs, and its memory"),
        ("serve", "run one in the foreground until a signal"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--kueue", action="store_true", help="the one that has Kueue")
        command.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder or (_KUEUE_PLACE if arguments.kueue else _PLACE)
    try:
        return {"build": _build, "up": _up, "down": _down, "status": _status, "serve": _serve}[arguments.command](
            folder, arguments.kueue
        )
    except (programs.CannotBuild, DidNotStart) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _build(folder: Path, kueue: bool) -> int:
    taken = programs.build_missing()
    programs.say(
        json.dumps({name: round(seconds) for name, seconds in taken.items()}) if taken else "everything is built"
    )
    return 0


def _up(folder: Path, kueue: bool) -> int:
    """Starts a process of its own that outlives this one, and waits for it."""
    if _server(folder) is None:
        programs.build_missing()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "serve.log").open("wb") as log:
            command = [sys.executable, "-m", __package__ or "real", "serve", "--folder", str(folder)]
            command += ["--kueue"] if kueue else []
            environment = {**os.environ, "PYTHONPATH": str(programs.HERE.parent)}
            serving = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        while not (folder / "ready").exists():
            if serving.poll() is not None:
                raise DidNotStart((folder / "serve.log").read_text())
            time.sleep(0.1)
    cluster = Cluster.at(folder)
    programs.say(f"export KUBECONFIG={cluster.kubeconfig(folder / 'kubeconfig')}")
    return 0


def _serve(folder: Path, kueue: bool) -> int:
    if _server(folder) is not None:
        raise DidNotStart(f"one is running in {folder} already")
    (folder / "ready").unlink(missing_ok=True)
    _empty(folder)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    plane = ControlPlane(folder, kueue=kueue)
    with plane as started:
        started.cluster.kubeconfig(folder / "kubeconfig")
        (folder / "ready").write_text(json.dumps({"seconds": plane.seconds}))
        programs.say(f"ready in {plane.seconds['all']:.1f} s; KUBECONFIG={folder / 'kubeconfig'}")
        ended.wait()
        (folder / "ready").unlink(missing_ok=True)
    return 0


def _down(folder: Path, kueue: bool) -> int:
    server = _server(folder)
    if server is None:
        programs.say("none is running")
        return 0
    os.kill(server, signal.SIGTERM)
    while Path(f"/proc/{server}").exists():
        time.sleep(0.05)
    programs.say("stopped")
    return 0


def _status(folder: Path, kueue: bool) -> int:
    if _server(folder) is None:
        programs.say("none is running")
        return 1
    programs.say(f"running; KUBECONFIG={folder / 'kubeconfig'}; {(folder / 'ready').read_text()}")
    return 0


def _server(folder: Path) -> int | None:
    """The process that serves a folder, if it lives: its command line is compared, for a pid is used again."""
    state = folder / STATE
    if not (folder / "ready").exists() or not state.exists():
        return None
    pid = json.loads(state.read_text())["pid"]
    command = Path(f"/proc/{pid}/cmdline")
    return int(pid) if command.exists() and str(folder).encode() in command.read_bytes() else None


def _empty(folder: Path) -> None:
    """Takes away what a crashed one left: its data must not be found again under new certificates."""
    for name in ("etcd", "logs", "certificates"):
        shutil.rmtree(folder / name, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
