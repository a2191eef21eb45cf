"""The command line. It needs the `cli` extra, and says so in one line where that is not installed."""

from __future__ import annotations

import sys

NEEDS_EXTRA = "dispatch-kubeflow: the command line needs its extra: pip install 'dispatch-kubeflow[cli]'"


def main() -> None:
    """The command `dispatch-kubeflow`, and `python -m dispatch_kubeflow.backend.cli`."""
    try:
        import rich  # noqa: F401, PLC0415 - asked for here, where its absence can be told from a fault
        import typer  # noqa: F401, PLC0415
    except ModuleNotFoundError:
        sys.stderr.write(f"{NEEDS_EXTRA}\n")
        sys.exit(2)
    from .app import execute  # noqa: PLC0415 - as above

    sys.exit(execute())
