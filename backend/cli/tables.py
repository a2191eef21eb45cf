"""The tables are the specification: whoever changes or reads them needs a proof and a page, not a program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dispatch_kubeflow.machine.rules import Tables, check
from dispatch_kubeflow.machine.rules.compile import load_rulebook
from dispatch_kubeflow.tables import directory as packaged

from .exits import Exit, Refusal
from .options import Json, terminal_of
from .pages import pages
from .terminal import Terminal

group = typer.Typer(no_args_is_help=True, help="Prove the tables, and show them.")

Directory = Annotated[
    Path | None, typer.Argument(metavar="[DIR]", help="A folder of tables.  [default: those installed]")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="tables", rich_help_panel="The rules")


@group.command("check")
def check_tables(context: typer.Context, directory: Directory = None, json: Json = False) -> int:
    """Prove a folder of tables; each fault is shown with its file and line. Ends with 0 or 1."""
    terminal = terminal_of(context, json)
    folder = _folder(directory)
    faults = check(folder)
    if terminal.json:
        terminal.result({"directory": folder, "faults": faults})
    elif faults:
        for fault in faults:
            terminal.print(str(fault))
        terminal.print(f"{len(faults)} fault{'s' if len(faults) > 1 else ''}")
    else:
        terminal.print(_proved(load_rulebook(folder).tables))
    return Exit.DIFFERS if faults else Exit.OK


@group.command()
def show(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A page: a family, lifecycle-NAME, sentinels, specification, words.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="A folder of tables.  [default: those installed]")
    ] = None,
    style: Annotated[
        Literal["text", "markdown"],
        typer.Option("--format", help="`text` is dressed for a terminal, where there is one."),
    ] = "text",
    out: Annotated[Path | None, typer.Option("--out", help="Write every page into this folder instead.")] = None,
) -> None:
    """Show the tables as pages. Without a name: what there is."""
    terminal = terminal_of(context, json=False)
    made = pages(load_rulebook(_folder(directory)).tables)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for page, text in made.items():
            (out / page).write_text(text, encoding="utf-8")
        return
    page = f"{name or 'README'}.md"
    if page not in made:
        raise Refusal(
            f"there is no page {name}",
            Exit.USAGE,
            f"There are: {', '.join(each.removesuffix('.md') for each in made)}.",
        )
    _print(terminal, made[page], dressed=style == "text")


def _folder(directory: Path | None) -> Path:
    folder = Path(packaged()) if directory is None else directory
    if not folder.is_dir():
        raise Refusal(f"{folder} is not a folder", Exit.DIFFERS)
    return folder


def _proved(tables: Tables) -> str:
    rules = sum(len(family.rules) for family in tables.families.values())
    return (
        f"{len(tables.families)} families with {rules} rules and {len(tables.lifecycles)} lifecycles: "
        "every case has one rule, every rule a case, every sentence of the page its rules"
    )


def _print(terminal: Terminal, text: str, *, dressed: bool) -> None:
    if dressed and terminal.live:
        terminal.dressed(text)
    else:
        terminal.print(text.rstrip("\n"))
