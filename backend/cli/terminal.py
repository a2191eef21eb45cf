"""A person wants to see what goes on, a script wants lines and a JSON document: the same commands serve both.

The job's own lines and JSON go to standard output, everything told about it to standard error. Where both are a
terminal, the state of the moment stays on the last line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.status import Status
from rich.text import Text

from dispatch_kubeflow.machine.values import ObjectRef


class Terminal:
    """Where a command writes. `narrates`: the telling is what was asked for, so it goes to standard output."""

    def __init__(self, *, narrates: bool = False) -> None:
        self.json = False
        self.settings: str | None = None
        self.live = sys.stdout.isatty() and sys.stderr.isatty()
        self._console = Console(stderr=not narrates, highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._told = ""

    def say(self, text: str, style: str = "") -> None:
        """One line of narration."""
        self._console.print(Text(text, style=style))

    def line(self, line: bytes) -> None:
        """One line of the job's output, as it is."""
        text = line.rstrip(b"\n")
        if self._status is not None:
            self._console.print(Text(text.decode(errors="replace")))
        else:
            sys.stdout.buffer.write(text + b"\n")
            sys.stdout.buffer.flush()

    def result(self, value: Any) -> None:
        """One JSON document, on a line of its own."""
        sys.stdout.write(json.dumps(plain(value)) + "\n")
        sys.stdout.flush()

    def print(self, text: str) -> None:
        """One line of the command's answer, for people."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def faint(self, text: str) -> str:
        """The text, dimmed where people read standard output."""
        return f"\x1b[2m{text}\x1b[0m" if sys.stdout.isatty() else text

    def dressed(self, markdown: str) -> None:
        """A Markdown page, dressed for a terminal."""
        Console(highlight=False).print(Markdown(markdown))

    def tell(self, summary: str) -> None:
        """The state of things, where it is not what was told last; on a terminal it stays on the last line."""
        if summary != self._told:
            self._told = summary
            self.say(summary, "dim")
        if self._status is not None:
            self._status.update(Text(summary, style="cyan"))

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Within it, what `tell` told last stays on the last line of a terminal."""
        if not self.live:
            yield
            return
        with self._console.status("") as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None


def plain(value: Any) -> Any:
    """The value as JSON has it: by its own `to_json`, references as their URL, bytes as text."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if is_dataclass(value) and not isinstance(value, ObjectRef):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value if value is None or isinstance(value, str | int | float) else str(value)
