"""The controller as a process: from its options to its end by SIGTERM.

The command line checks the options, and then gives its place to a process that has none of its libraries: they take a
fifth of the memory that a controller may have.
"""

from __future__ import annotations

import logging
import os
import platform
import secrets
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import msgspec

from dispatch_kubeflow.backend.requests import Door, load_access
from dispatch_kubeflow.machine.context import SystemClock
from dispatch_kubeflow.machine.rules import rulebook

from .controller import Controller, Place
from .leading import LeaseTimes
from .metrics import Metrics
from .serving import Pages

REQUEST_TIMEOUT = 10.0
"""Seconds for one request of the controller."""

# glibc would keep memory for each thread apart, and much of what was freed.
_THRIFTY = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller is told. Times in seconds; without a kubeconfig the client's usual search."""

    namespace: str
    lease: str
    identity: str | None
    kubeconfig: str | None
    context: str | None
    host: str
    port: int
    times: LeaseTimes
    verbose: bool


def give_place(options: Options) -> NoReturn:
    """Replace this process by one that runs the controller; raises OSError if there can be none."""
    sys.stdout.flush()
    sys.stderr.flush()
    said = msgspec.json.encode(options).decode()
    command = [sys.executable, "-m", "dispatch_kubeflow.backend.admission", said]
    os.execve(sys.executable, command, {**_THRIFTY, **os.environ})  # noqa: S606 - ourselves


def run(options: Options) -> int:
    """Run until SIGTERM or SIGINT. Prints where its pages are."""
    _log_to_stderr(verbose=options.verbose)
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _setter(told))
    clock = SystemClock()
    access = load_access(book=rulebook(), kubeconfig=options.kubeconfig, context=options.context, clock=clock)
    door = Door(access, request_timeout=REQUEST_TIMEOUT, clock=clock)
    metrics = Metrics()
    identity = options.identity or f"{platform.node()}_{secrets.token_hex(8)}"
    place = Place(options.namespace, options.lease, identity)
    try:
        controller = Controller(door, place, metrics, times=options.times, clock=clock)
        with Pages(controller, metrics, host=options.host, port=options.port) as pages, controller:
            sys.stdout.write(f"http://{options.host}:{pages.port}\n")
            sys.stdout.flush()
            told.wait()
    finally:
        door.close()
    return 0


def _setter(event: threading.Event) -> Callable[[int, FrameType | None], None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        event.set()

    return handle


def _log_to_stderr(*, verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("dispatch_kubeflow.admission")
    log.setLevel(logging.DEBUG if verbose else logging.INFO)
    log.addHandler(handler)
