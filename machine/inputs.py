"""Everything a caller passes in is checked in one way and refused in one way: by the `input` table, naming what was
wrong.

A refusal names the key, shows the value and states the rule, so that the caller can mend it without reading our code.
Values that may be secret (`env`, `args`, `command`) are never shown, only how long they are.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NoReturn

from .rules import rulebook

SECRET_KEYS = frozenset({"env", "args", "command"})
LONGEST_SHOWN = 120


def redacted(value: object) -> str:
    """What is shown in place of a value that may be secret: that it is one, and how long it is."""
    if isinstance(value, str):
        return f"<redacted> ({len(value)} characters)"
    if isinstance(value, list | tuple | dict):
        return f"<redacted> ({len(value)} items)"
    name = type(value).__name__
    return f"<redacted> ({'an' if name[0] in 'aeiou' else 'a'} {name})"


def shown(value: object, *, secret: bool = False) -> str:
    """A value as an error shows it: its repr, cut to a readable length, or redacted."""
    if secret:
        return redacted(value)
    try:
        text = repr(_plain(value))
    except Exception as failure:  # noqa: BLE001 - a caller's object may do anything; its type is then all there is to say
        text = f"<{type(value).__name__} whose repr raised {type(failure).__name__}>"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text)} characters)"


def _plain(value: object) -> object:
    """The value as its user wrote it: what was made read-only, with all in it, is shown as plain data."""
    if isinstance(value, MappingProxyType):
        return {key: _plain(each) for key, each in value.items()}
    return value


def refuse(
    problem: str,
    *,
    operation: str,
    key: str,
    value: object,
    rule: str,
    line: int | None = None,
    subject: str | None = None,
    secret: bool = False,
    cause: BaseException | None = None,
) -> NoReturn:
    """Raise what the `input` table says of this problem (ErrInvalid), naming key, value and rule."""
    details: dict[str, Any] = {"key": key, "value": shown(value, secret=secret), "rule": rule, "line": line}
    decided = rulebook().settle(
        "input", operation=operation, facts={"problem": problem}, subject=subject or key, details=details, cause=cause
    )
    raise AssertionError(f"{decided.id} lets a wrong input pass")
