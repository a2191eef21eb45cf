"""Options that every command spells alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dispatch_kubeflow import backend as backends
from dispatch_kubeflow.machine import Context, ErrInvalid
from dispatch_kubeflow.machine.values import JobSpec, Settings

from .exits import Exit, Refusal
from .terminal import Terminal

if TYPE_CHECKING:
    from dispatch_kubeflow.backend.operations.backend import Backend

SETTINGS_VARIABLE = "DISPATCH_KUBEFLOW_SETTINGS"

Json = Annotated[bool, typer.Option("--json", help="Answer with JSON on standard output, errors too.")]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings", envvar=SETTINGS_VARIABLE, help="The Backend's settings, a YAML file.", show_default=False
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0, help="Seconds for the call, all its requests together.")]


def terminal_of(context: typer.Context, json: bool) -> Terminal:
    """Where this command writes."""
    terminal = context.ensure_object(Terminal)
    terminal.json = json
    return terminal


def settings_of(path: Path | None) -> Settings:
    """The settings in this file; refused if none was named, ErrInvalid if they are not valid."""
    if path is None:
        raise Refusal("no settings were given", Exit.USAGE, f"Name a YAML file with --settings or {SETTINGS_VARIABLE}.")
    with _naming(path):
        return Settings.parse(path)


def job_of(path: Path) -> JobSpec:
    """The job in this file, checked; ErrInvalid if it is not valid."""
    with _naming(path):
        spec = JobSpec.parse(path)
        spec.check(operation="parse")
        return spec


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Within it a file is read, which an error then names, with the line where that is known."""
    try:
        yield
    except ErrInvalid as error:
        line = error.details.get("line")
        error.add_note(f"In {path}" + (f", line {line}" if line else ""))
        raise


def backend_of(path: Path | None, ctx: Context) -> Backend:
    """The Backend that these settings describe."""
    return backends.factory(settings_of(path), ctx=ctx)
