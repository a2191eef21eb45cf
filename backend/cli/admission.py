"""The controller of kueue mode as a command, for a Deployment to run."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from .exits import Exit, Refusal
from .options import terminal_of

NEEDS_EXTRA = "pip install 'dispatch-kubeflow[cli,admission]'"
REQUEST_TIMEOUT = 10.0
"""Seconds for one request of the controller."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Kueue")(admission)


def admission(
    context: typer.Context,
    namespace: Annotated[
        str, typer.Option(envvar="POD_NAMESPACE", help="The namespace of its Lease: the one it runs in.")
    ],
    lease: Annotated[str, typer.Option(help="The name of its Lease.")] = "dispatch-kubeflow-admission",
    identity: Annotated[
        str | None, typer.Option(help="Who it is on the Lease; made up if not given, and never to be used twice.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="A kubeconfig; the client's usual search if not given.", show_default=False)
    ] = None,
    kube_context: Annotated[str | None, typer.Option("--context", help="A context of the kubeconfig.")] = None,
    host: Annotated[
        str, typer.Option(help="The address that /healthz, /readyz and /metrics are served on.")
    ] = "0.0.0.0",  # noqa: S104 - a kubelet and Prometheus ask from outside of the pod
    port: Annotated[int, typer.Option(min=0, max=65535, help="Their port; 0 takes a free one.")] = 8080,
    lease_duration: Annotated[float, typer.Option(help="Seconds for which a Lease counts.")] = 15.0,
    renew_deadline: Annotated[float, typer.Option(help="Seconds for which its holder trusts it.")] = 10.0,
    retry_period: Annotated[float, typer.Option(help="Seconds between tries to take or renew it.")] = 2.0,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say also what it waits for.")] = False,
) -> int:
    """Run the admission controller of kueue mode until it is told to end (SIGTERM): one of all that run acts."""
    try:
        from dispatch_kubeflow.backend.admission.metrics import Metrics  # noqa: PLC0415 - needs the extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dispatch_kubeflow"):
            raise
        raise Refusal(
            f"the controller needs its extra: {error.name} is not installed", Exit.USAGE, NEEDS_EXTRA
        ) from error
    from dispatch_kubeflow.backend.admission.controller import Controller, Place  # noqa: PLC0415 - as above
    from dispatch_kubeflow.backend.admission.leading import LeaseTimes  # noqa: PLC0415
    from dispatch_kubeflow.backend.admission.serving import Pages  # noqa: PLC0415
    from dispatch_kubeflow.backend.requests import Door, load_access  # noqa: PLC0415
    from dispatch_kubeflow.machine.context import SystemClock  # noqa: PLC0415
    from dispatch_kubeflow.machine.rules import rulebook  # noqa: PLC0415

    times = LeaseTimes(lease_duration, renew_deadline, retry_period)
    wrong = times.wrong()
    if wrong is not None:
        raise Refusal(
            f"the times of the lease must have {wrong}", Exit.USAGE, "Try: dispatch-kubeflow admission --help"
        )
    _log_to_stderr(verbose=verbose)
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _setter(told))
    clock = SystemClock()
    access = load_access(
        book=rulebook(), kubeconfig=None if kubeconfig is None else str(kubeconfig), context=kube_context, clock=clock
    )
    door = Door(access, request_timeout=REQUEST_TIMEOUT, clock=clock)
    metrics = Metrics()
    place = Place(namespace, lease, identity or f"{socket.gethostname()}_{secrets.token_hex(8)}")
    terminal = terminal_of(context, json=False)
    try:
        controller = Controller(door, place, metrics, times=times, clock=clock)
        with Pages(controller, metrics, host=host, port=port) as pages, controller:
            terminal.print(f"http://{host}:{pages.port}")
            told.wait()
    finally:
        door.close()
    return Exit.OK


def _setter(event: threading.Event) -> Callable[[int, FrameType | None], None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        event.set()

    return handle


def _log_to_stderr(*, verbose: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("dispatch_kubeflow.admission")
    log.setLevel(logging.DEBUG if verbose else os.environ.get("LOG_LEVEL", "INFO"))
    log.addHandler(handler)
