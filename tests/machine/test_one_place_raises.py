"""Code never names a sentinel when it refuses: it states facts. So one place alone makes and raises sentinels."""

import ast
import pathlib

import pytest

import dispatch_kubeflow.backend
import dispatch_kubeflow.machine
from dispatch_kubeflow.machine import errors

ROOMS = [pathlib.Path(each.__file__).parent for each in (dispatch_kubeflow.machine, dispatch_kubeflow.backend)]
FILES = sorted(path for room in ROOMS for path in room.rglob("*.py"))
NAMES = {*errors.sentinels(), "DispatchError"}


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def raisings(source: str) -> list[int]:
    """The lines in which a sentinel is made, or raised by its name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        called = node.func if isinstance(node, ast.Call) else node.exc if isinstance(node, ast.Raise) else None
        if called is not None and name_of(called) in NAMES:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_no_file_makes_or_raises_a_sentinel_by_name(path):
    assert raisings(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source", ["raise ErrInvalid", "raise errors.ErrInvalid('x')", "error = ErrStaleHold('x')", "raise DispatchError()"]
)
def test_a_planted_one_is_found(source):
    assert raisings(source)


def test_one_statement_alone_raises_what_the_tables_decide():
    settle = [path for path in FILES if "raise error from cause" in path.read_text(encoding="utf-8")]
    assert [path.name for path in settle] == ["decide.py"]
