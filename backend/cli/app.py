"""One command, whose every failure ends in a sentence and an exit code for scripts, never in a traceback."""

from __future__ import annotations

import os
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from dispatch_kubeflow.machine import DispatchError
from dispatch_kubeflow.machine.rules import TablesError

from . import calls, explain, local, run, tables
from .exits import Exit, Refusal, code_of
from .report import error_document, error_text, refusal_document, refusal_text
from .terminal import Terminal

app = typer.Typer(
    name="dispatch-kubeflow",
    help="Submit and supervise multi-node training jobs on Kubeflow Trainer, with no outcome ever guessed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for part in (run, calls, explain, tables, local):
    part.register(app)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (that of the process, if none is given); returns its exit code."""
    terminal = Terminal()
    try:
        result = app(args=arguments, prog_name="dispatch-kubeflow", standalone_mode=False, obj=terminal)
    except DispatchError as error:
        _show(terminal, error_document(error) if terminal.json else error_text(error))
        return code_of(error)
    except Refusal as refusal:
        _show(terminal, refusal_document(refusal) if terminal.json else refusal_text(refusal))
        return refusal.code
    except TablesError as error:
        _show(terminal, f"The tables cannot be used:\n{error}")
        return Exit.DIFFERS
    except TyperException as error:
        _show(terminal, f"{error.format_message()}\nTry: dispatch-kubeflow --help")
        return Exit.USAGE
    except (typer.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except SystemExit:  # Typer's answer to a pipe whose reader has gone
        return Exit.PIPE
    except Exception as error:
        if os.environ.get("DISPATCH_KUBEFLOW_TRACEBACK"):
            raise
        _show(terminal, f"dispatch-kubeflow itself failed: {type(error).__name__}: {error}")
        return Exit.INTERNAL
    return result if isinstance(result, int) else Exit.OK


def _show(terminal: Terminal, answer: object) -> None:
    if isinstance(answer, str):
        terminal.say(answer, "red")
    else:
        terminal.result(answer)
