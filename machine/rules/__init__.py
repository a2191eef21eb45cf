"""The tables as the code sees them: facts in, one rule out.

`rulebook()` gives the packaged tables, `Rulebook.decide` looks a rule up, `Rulebook.settle` raises what it says; and
`check` proves a directory of tables, complaining by file, line and rule.
"""

from __future__ import annotations

import pathlib

from .compile import COMPILED, compiled_bytes, load_rulebook, rulebook, write_compiled
from .decide import Rulebook
from .model import Complaint, FactError, Rule, Tables, TablesError


def check(directory: pathlib.Path) -> list[Complaint]:
    """Everything that is wrong with the tables of a directory; nothing is, where the list is empty."""
    from .prove import check as prove  # noqa: PLC0415 - brings ruamel.yaml, which is slow to import

    return prove(directory)


__all__ = [
    "COMPILED",
    "Complaint",
    "FactError",
    "Rule",
    "Rulebook",
    "Tables",
    "TablesError",
    "check",
    "compiled_bytes",
    "load_rulebook",
    "rulebook",
    "write_compiled",
]
