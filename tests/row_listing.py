"""Which tests reach which row of the specification page: `python -m tests.row_listing` prints it.

A test says so itself, by `@pytest.mark.rule("request.conflict", ...)` or by `refused("request.conflict", ...)`, which
also asserts it. A row is reached when a rule that cites it is.
"""

from __future__ import annotations

import ast
import pathlib
import sys
from collections import defaultdict
from collections.abc import Iterator

from dispatch_kubeflow.machine.rules import Rulebook, rulebook

TESTS = pathlib.Path(__file__).parent
PUBLIC = ("operations", "cli")
"""The folders whose tests go through public calls."""


def reached() -> dict[str, list[str]]:
    """Every rule id that a test names, with the tests that do."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(path for folder in PUBLIC for path in (TESTS / folder).rglob("test_*.py")):
        tree = ast.parse(path.read_text("utf-8"), str(path))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                name = f"{path.relative_to(TESTS)}::{function.name}"
                for rule in sorted(set(_rules(function))):
                    found[rule].append(name)
    return found


def _rules(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _called(node.func) in {"rule", "refused"}:
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def by_row(book: Rulebook) -> dict[str, list[str]]:
    """Every row of the page, in its order, with the tests that reach it."""
    tests = reached()
    rows: dict[str, list[str]] = {row: [] for row in book.tables.page_rows}
    for family in book.families.values():
        for rule in family.rules:
            for row in rule.spec:
                if row in rows:
                    rows[row] += tests.get(rule.id, [])
    return rows


def main() -> None:
    for row, tests in by_row(rulebook()).items():
        sys.stdout.write(f"{row:4} {', '.join(sorted(set(tests)))}\n")


if __name__ == "__main__":
    main()
