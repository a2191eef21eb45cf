"""A key that is silently ignored is a job, or a Backend, that differs from what was asked; so what users write is read
strictly, and the settings and the job specification in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn

from . import marked
from .inputs import SECRET_KEYS, refuse, shown


@dataclass(frozen=True, slots=True)
class Source:
    """One mapping a user wrote, and where each part of it stands if it was a file."""

    what: Literal["settings", "spec"]
    operation: str
    data: Mapping[str, Any]
    lines: Mapping[marked.Path, int] = field(default_factory=dict)

    @classmethod
    def of(cls, what: Literal["settings", "spec"], value: object, *, operation: str) -> Source:
        """From a mapping, or from the path of a YAML file."""
        source = cls(what, operation, {})
        if isinstance(value, Mapping):
            return replace(source, data=value)
        if not isinstance(value, str | os.PathLike):
            source.refuse("shape", (), value, "a mapping, or the path of a YAML file")
        try:
            text = Path(value).read_text(encoding="utf-8")
        except (OSError, ValueError) as failure:  # a ValueError: no UTF-8, or no path at all
            source.refuse("shape", (), str(value), f"the file can't be read: {failure}", cause=failure)
        return cls.of_yaml(what, text, operation=operation)

    @classmethod
    def of_yaml(cls, what: Literal["settings", "spec"], text: str, *, operation: str) -> Source:
        """From YAML text, which keeps the line of every key."""
        source = cls(what, operation, {})
        try:
            document = marked.read(text)
        except marked.UnreadableYaml as failure:
            # The parser's own words may quote the file, and with it a secret: only the problem and the place are told.
            place = replace(source, lines={(): failure.mark.line})
            place.refuse("shape", (), "text", f"malformed YAML in line {failure.mark.line}: {failure.problem}")
        if not isinstance(document.data, dict):
            source.refuse("shape", (), type(document.data).__name__, "a mapping of keys to values")
        return replace(source, data=document.data, lines={path: mark.line for path, mark in document.marks.items()})

    def check_keys(self, known: Sequence[str], required: Iterable[str]) -> None:
        """Every key known, none of them null, and the required ones there."""
        for key, value in self.data.items():
            if key not in known:
                self.refuse("unknown-key", (key,), "given", f"the keys are {', '.join(known)}")
            if value is None:
                self.refuse("null", (key,), None, "give a value, or leave the key out")
        for key in required:
            if key not in self.data:
                self.refuse("missing-key", (key,), "missing", "it is required")

    def refuse(
        self, problem: str, path: marked.Path, value: object, rule: str, *, cause: BaseException | None = None
    ) -> NoReturn:
        """Raise ErrInvalid by the row `input.WHAT-PROBLEM`; a problem with a name of its own has its own row."""
        shared = ("shape", "unknown-key", "missing-key", "null", "type", "rule")
        refuse(
            f"{self.what}-{problem}" if problem in shared else problem,
            operation=self.operation,
            key=".".join(each if isinstance(each, str) else shown(each) for each in path) or self.what,
            value=value,
            rule=rule,
            line=self.lines.get(path),
            secret=self.what == "spec" and bool(path) and path[0] in SECRET_KEYS and problem != "unknown-key",
            cause=cause,
        )


def frozen(value: Any) -> Any:
    """The same data, deeply read-only: mappings as proxies, lists as tuples."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return tuple(frozen(each) for each in value)
    return value


def thawed(value: Any) -> Any:
    """The same data as plain dicts and lists; what `frozen` gave, made writable (and fit for JSON) again."""
    if isinstance(value, Mapping):
        return {key: thawed(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [thawed(each) for each in value]
    return value
