"""One command, whose every failure ends in a sentence and an exit code for scripts, never in a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from typer.exceptions import TyperException

from dispatch_kubeflow.machine import DispatchError
from dispatch_kubeflow.machine.rules import TablesError

from . import admission, calls, explain, local, run, tables
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


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dispatch-kubeflow {version('dispatch-kubeflow')}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version, and end.")
    ] = False,
) -> None:
    """Submit and supervise multi-node training jobs on Kubeflow Trainer, with no outcome ever guessed."""


for part in (run, calls, explain, tables, local, admission):
    part.register(app)


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (that of the process, if none is given); returns its exit code."""
    terminal = Terminal()
    terminal.json = "--json" in (sys.argv[1:] if arguments is None else arguments)  # also for an error in the words
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
        wrong = wrong_usage(error, sys.argv[1:] if arguments is None else arguments)
        _show(terminal, refusal_document(wrong) if terminal.json else refusal_text(wrong))
        return wrong.code
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


def wrong_usage(error: TyperException, arguments: Sequence[str]) -> Refusal:
    """What is wrong with the command line: the rule, the value where one was given, and whose help to ask for."""
    usage = getattr(error, "ctx", None)
    command = "dispatch-kubeflow" if usage is None else usage.command_path
    given = _given(getattr(error, "param", None), arguments)
    text = error.format_message().rstrip(".") + ("" if given is None else f", but it is {given!r}")
    return Refusal(text, Exit.USAGE, f"Try: {command} --help")


def _given(param: object, arguments: Sequence[str]) -> str | None:
    """The value that an option was given on the command line."""
    for word, following in zip(arguments, [*arguments[1:], None], strict=True):
        name, equals, value = word.partition("=")
        if name.startswith("-") and name in getattr(param, "opts", ()):
            return value if equals else following
    return None
