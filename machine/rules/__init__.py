"""The tables as the code sees them: facts in, one rule out.

`rulebook()` gives the packaged tables, `Rulebook.decide` looks a rule up, `Rulebook.settle` raises what it says; and
`check` proves a directory of tables, complaining by file, line and rule. `compile` makes and reads the compiled form.
"""

from __future__ import annotations

import pathlib
from functools import cache

from .decide import Rulebook
from .model import Complaint, FactError, Rule, Tables, TablesError


@cache
def rulebook() -> Rulebook:
    """The packaged tables, loaded once. Raises TablesError if they were edited and are wrong."""
    from dispatch_kubeflow.tables import directory  # noqa: PLC0415 - importing the package must stay quick

    from .compile import COMPILED, load_rulebook  # noqa: PLC0415 - as above

    return load_rulebook(directory(), COMPILED)


def check(directory: pathlib.Path) -> list[Complaint]:
    """Everything that is wrong with the tables of a directory; nothing is, where the list is empty."""
    from .prove import check as prove  # noqa: PLC0415 - brings ruamel.yaml, which is slow to import

    return prove(directory)


__all__ = ["Complaint", "FactError", "Rule", "Rulebook", "Tables", "TablesError", "check", "rulebook"]
