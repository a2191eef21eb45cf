"""The embedded cluster from a shell, to try things on and to show them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from .exits import Exit, Refusal
from .options import terminal_of
from .terminal import Terminal


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="The embedded cluster")(cluster)
    app.command(rich_help_panel="The embedded cluster")(demo)


def cluster(
    context: typer.Context,
    kubeconfig: Annotated[Path, typer.Option("--kubeconfig", help="Where to write how to reach it.")],
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Number of nodes.")] = 2,
) -> int:
    """Serve an embedded cluster until interrupted. Prints one line with its URL when it is ready.

    Its kubelet runs the containers' commands as local processes, as you and without isolation.
    """
    with _extra():
        from dispatch_kubeflow.backend.embedded import Cluster  # noqa: PLC0415 - needs the extra

    terminal = terminal_of(context, json=False)
    interrupted = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _setter(interrupted))
    # Without a namespace of its own: the kubeconfig then names `default`, as the documentation's settings do.
    with Cluster(nodes=nodes, kubelet="processes", namespaces=()) as served:
        try:
            served.kubeconfig(kubeconfig)
        except OSError as failure:
            raise Refusal(
                f"the kubeconfig cannot be written: {failure}", Exit.USAGE, "Name a file in a folder that is there."
            ) from failure
        terminal.print(str(served.url))
        interrupted.wait()
    return Exit.OK


class Mode(StrEnum):
    """Which mode is shown."""

    PLAIN = "plain"
    KUEUE = "kueue"


def demo(mode: Annotated[Mode, typer.Option("--mode", help="Without Kueue, or behind it.")] = Mode.PLAIN) -> int:
    """Show the library at work on an embedded cluster: gate, hold, release, and a create whose answer is lost."""
    with _extra():
        from .demo import show  # noqa: PLC0415 - needs the extra

    return show(Terminal(narrates=True), mode)


def _setter(event: threading.Event) -> Callable[[int, FrameType | None], None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        event.set()

    return handle


@contextmanager
def _extra() -> Iterator[None]:
    """Within it the embedded cluster is imported, which its extra may be missing for."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dispatch_kubeflow"):
            raise
        raise Refusal(
            f"the embedded cluster needs its extra: {error.name} is not installed",
            Exit.USAGE,
            "pip install 'dispatch-kubeflow[cli,embedded]'",
        ) from error
