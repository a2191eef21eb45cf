"""Each call of the library as a command, so that a shell can do what a program can, and an operator can step in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatch_kubeflow.machine import Context
from dispatch_kubeflow.machine.values import Stream

from .exits import Exit
from .options import Json, SettingsFile, Timeout, backend_of, job_of, terminal_of
from .seen import object_line
from .terminal import Terminal

if TYPE_CHECKING:
    from dispatch_kubeflow.backend.objects.found import Found
    from dispatch_kubeflow.backend.operations.backend import Backend

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
Reference = Annotated[str, typer.Argument(metavar="REF", help="kubeflow://BACKEND/NAMESPACE/KIND/NAME?uid=UID")]
Instance = Annotated[int, typer.Argument(metavar="INSTANCE", help="The hold's instance number, at least 1.")]
JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job's specification.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for call in (start, find, watch, open_, hold, release, stop, stop_job, output, ceased, capabilities):
        app.command(call.__name__.rstrip("_").replace("_", "-"), rich_help_panel="The calls")(call)


@contextmanager
def _backend(settings: Path | None, ctx: Context) -> Iterator[Backend]:
    with backend_of(settings, ctx) as backend:
        yield backend


def start(
    context: typer.Context,
    job_id: JobId,
    attempt: Annotated[int, typer.Argument(help="The attempt's number, at least 1.")],
    job: JobFile,
    settings: SettingsFile = None,
    timeout: Timeout = 30,
    json: Json = False,
) -> None:
    """Create a job, gated: it has no pods until it is opened. Prints its reference."""
    terminal, ctx = terminal_of(context, json), Context.with_timeout(timeout)
    spec = job_of(job)
    with _backend(settings, ctx) as backend:
        _answer(terminal, {"ref": str(ref := backend.start(job_id, attempt, spec, ctx=ctx))}, str(ref))


def find(
    context: typer.Context, job_id: JobId, settings: SettingsFile = None, timeout: Timeout = 30, json: Json = False
) -> None:
    """Show what there is of a job, each object with its reference, which other calls take."""
    terminal, ctx = terminal_of(context, json), Context.with_timeout(timeout)
    with _backend(settings, ctx) as backend:
        _show_found(terminal, job_id, backend.find(job_id, ctx=ctx), references=True)


def watch(
    context: typer.Context,
    job_id: JobId,
    settings: SettingsFile = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0, help="End after so many seconds.")] = None,
    json: Json = False,
) -> None:
    """Show what there is of a job, again each time it changes, until interrupted."""
    terminal = terminal_of(context, json)
    ctx = Context.background() if timeout is None else Context.with_timeout(timeout)
    with _backend(settings, ctx) as backend:
        for found in backend.watch(job_id, ctx=ctx):
            _show_found(terminal, job_id, found)


def open_(
    context: typer.Context, ref: Reference, settings: SettingsFile = None, timeout: Timeout = 30, json: Json = False
) -> None:
    """Lift a job's gate, for ever: its pods may start."""
    _act(context, settings, timeout, json, "opened", lambda backend, ctx: backend.open(ref, ctx=ctx))


def hold(
    context: typer.Context,
    ref: Reference,
    instance: Instance,
    settings: SettingsFile = None,
    timeout: Timeout = 30,
    json: Json = False,
) -> None:
    """Stop a job's pods under an instance number; a later number takes over from an earlier one."""
    _act(context, settings, timeout, json, "held", lambda backend, ctx: backend.hold(ref, instance, ctx=ctx))


def release(
    context: typer.Context,
    ref: Reference,
    instance: Instance,
    settings: SettingsFile = None,
    timeout: Timeout = 30,
    json: Json = False,
) -> None:
    """End the hold of that instance: once its old pods are gone the job goes on."""
    _act(context, settings, timeout, json, "released", lambda backend, ctx: backend.release(ref, instance, ctx=ctx))


def stop(
    context: typer.Context, ref: Reference, settings: SettingsFile = None, timeout: Timeout = 30, json: Json = False
) -> None:
    """Delete one object. Its pods may end later: `stop-job` waits for them."""
    _act(context, settings, timeout, json, "stopped", lambda backend, ctx: backend.stop(ref, ctx=ctx))


def stop_job(
    context: typer.Context, job_id: JobId, settings: SettingsFile = None, timeout: Timeout = 120, json: Json = False
) -> None:
    """Delete all of a job and wait until it is gone."""
    _act(context, settings, timeout, json, "stopped", lambda backend, ctx: backend.stop_job(job_id, ctx=ctx))


def output(
    context: typer.Context,
    job_id: JobId,
    stderr: Annotated[bool, typer.Option("--stderr", help="The other stream.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", help="Only so many last lines.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come.")] = False,
    settings: SettingsFile = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0, help="End after so many seconds.")] = None,
    json: Json = False,
) -> None:
    """Print the lines of rank 0."""
    terminal = terminal_of(context, json)
    ctx = Context.background() if timeout is None else Context.with_timeout(timeout)
    stream = Stream.STDERR if stderr else Stream.STDOUT
    with _backend(settings, ctx) as backend:
        for line in backend.output(job_id, stream, tail=tail, follow=follow, ctx=ctx):
            if terminal.json:
                terminal.result({"line": line})
            else:
                terminal.line(line)


def ceased(
    context: typer.Context, ref: Reference, settings: SettingsFile = None, timeout: Timeout = 30, json: Json = False
) -> int:
    """Show whether all of an object has provably stopped, and by what evidence. Ends with 92 if that is not shown."""
    terminal, ctx = terminal_of(context, json), Context.with_timeout(timeout)
    with _backend(settings, ctx) as backend:
        cessation = backend.ceased(ref, ctx=ctx)
    lines = ["ceased" if cessation.ceased else "not shown to have ceased"]
    lines += [
        f"  {each.kind:<14} {each.pod or 'the whole'}: {each.text} (from the {each.source})"
        for each in cessation.evidence
    ]
    lines += [f"  may still make pods: {each}" for each in cessation.may_make_pods]
    _answer(terminal, cessation, "\n".join(lines))
    return Exit.OK if cessation.ceased else Exit.NOT_CEASED


def capabilities(
    context: typer.Context,
    job: Annotated[Path | None, typer.Argument(metavar="[JOB.yaml]", help="A job to check as Start would.")] = None,
    settings: SettingsFile = None,
    timeout: Timeout = 30,
    json: Json = False,
) -> None:
    """Show what this Backend can do."""
    terminal, ctx = terminal_of(context, json), Context.with_timeout(timeout)
    spec = None if job is None else job_of(job)
    with _backend(settings, ctx) as backend:
        able = backend.capabilities(spec, ctx=ctx)
    lines = [f"{name:<12} {each['answer']}: {each['reason']}" for name, each in able.to_json().items()]
    _answer(terminal, able, "\n".join(lines))


def _act(
    context: typer.Context,
    settings: Path | None,
    timeout: float,
    json: bool,
    done: str,
    call: Callable[[Backend, Context], None],
) -> None:
    terminal, ctx = terminal_of(context, json), Context.with_timeout(timeout)
    with _backend(settings, ctx) as backend:
        call(backend, ctx)
    _answer(terminal, {"done": done}, done)


def _answer(terminal: Terminal, document: Any, text: str) -> None:
    if terminal.json:
        terminal.result(document)
    else:
        terminal.print(text)


def _show_found(terminal: Terminal, job_id: str, found: Found, *, references: bool = False) -> None:
    lines = []
    for each in found.objects:
        lines.append(object_line(each))
        lines += [terminal.faint(f"  {each.ref}")] if references else []
    lines += [f"attempt {number} is in flight: its create may still take effect" for number in found.in_flight]
    _answer(terminal, found, "\n".join(lines) or f"nothing of {job_id}")
