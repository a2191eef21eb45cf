"""One command takes a job file to its end: it starts, records, opens and follows, and ends with the exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dispatch_kubeflow import backend as backends
from dispatch_kubeflow.machine import Context
from dispatch_kubeflow.machine.identifiers import LONGEST_JOB_ID, is_dns_1035_label

from .exits import Exit, Refusal
from .journal import Attempt, Journal
from .options import SettingsFile, Timeout, job_of, settings_of, terminal_of
from .supervisor import Supervisor


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Jobs")(run)


def run(
    context: typer.Context,
    job: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job's specification.")],
    job_id: Annotated[str | None, typer.Option("--job", help="The job's id.  [default: the file's name]")] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal", help="Where attempts are written down.  [default: JOB.journal.jsonl beside the file]"
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Start a new attempt of a job that has ended.")] = False,
    operators_word: Annotated[
        str | None,
        typer.Option("--operators-word", help="With --again: how you know that the last attempt has ceased."),
    ] = None,
    stop: Annotated[
        bool,
        typer.Option(
            "--stop", help="Stop the job once it has ended: only so can a failed one be shown to have ceased."
        ),
    ] = False,
    settings: SettingsFile = None,
    timeout: Timeout = 30,
) -> int:
    """Start a job, or go on with it after a crash, and follow it to its end."""
    terminal = terminal_of(context, json=False)
    name = job.stem if job_id is None else job_id
    if job_id is None and not is_dns_1035_label(name, longest=LONGEST_JOB_ID):
        raise Refusal(
            f"the file's name, {name!r}, cannot be the job's id",
            Exit.USAGE,
            f"Name the job with --job: lower-case letters, digits and '-', a letter first, at most {LONGEST_JOB_ID}.",
        )
    spec = job_of(job)
    chosen = settings_of(settings)
    ctx = Context.background()
    path = journal or job.with_name(f"{name}.journal.jsonl")
    with (
        Journal.open(path, job_id=name, backend=chosen.name, namespace=chosen.namespace) as attempts,
        backends.factory(chosen, ctx=ctx.child(timeout=timeout)) as backend,
    ):
        supervisor = Supervisor(backend, name, spec, attempts, terminal, ctx, chosen.call_bound, timeout)
        try:
            return supervisor.run(again=again, word=operators_word, stop=stop)
        except KeyboardInterrupt:
            terminal.say(interrupted(name, attempts.last), "yellow")
            raise
        finally:
            ctx.cancel()


def interrupted(job: str, attempt: Attempt | None) -> str:
    """What becomes of the job when its `run` was interrupted."""
    if attempt is None or attempt.state in ("refused", "ended"):
        return "interrupted; nothing of the job was left running"
    stays = {"opened": "goes on", "gated": "stays gated"}.get(attempt.state, "may have been created")
    return (
        f"interrupted; {job}-{attempt.number} {stays}. The same command follows it;"
        f" `dispatch-kubeflow stop-job {job}` ends it."
    )
