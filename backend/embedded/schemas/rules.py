"""The CEL rules of a schema: compiled once each, and never twice for two kinds that share one.

Most rules of the training kinds say `self == oldSelf`; that one is answered without an evaluator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import OMIT, FieldError

_USE = re.compile(r"(?P<has>\bhas\()?\b(?:oldSelf|self)\b(?P<path>(?:\.[A-Za-z_]\w*)*)(?P<call>\()?")
_SCALARS = ("string", "integer", "number", "boolean")
_TYPES = {"FieldValueForbidden": "Forbidden", "FieldValueRequired": "Required value"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `x-kubernetes-validations`."""

    expression: str
    message: str
    message_expression: str
    reason: str
    field_path: str
    optional_old: bool

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Rule:
        return cls(
            entry["rule"].strip(),
            str(entry.get("message") or "").strip(),
            str(entry.get("messageExpression") or ""),
            str(entry.get("reason") or ""),
            str(entry.get("fieldPath") or ""),
            bool(entry.get("optionalOldSelf")),
        )

    @property
    def is_transition(self) -> bool:
        """Whether the rule compares with the value before, and so speaks only of updates."""
        return "oldSelf" in self.expression

    def fault(self, path: str, kind: str, value: Any, old: Any) -> FieldError | None:
        """What the rule finds wrong with a value at a path; `old` is None where there is nothing to compare with."""
        if self.is_transition and old is None and not self.optional_old:
            return None
        try:
            kept = self._holds(value, old)
        except (RuntimeError, ValueError, TypeError, LookupError) as error:
            said = f"no such key: {error.args[0]}" if isinstance(error, LookupError) else str(error)
            text = f"{said} evaluating rule: {self.message or self.expression}"
            return FieldError("Invalid value", path, kind, text)
        if kept:
            return None
        shown = value if kind in _SCALARS else OMIT
        where = f"{path}{self.field_path}" if self.field_path else path
        return FieldError(_TYPES.get(self.reason, "Invalid value"), where, shown, self._detail(value, old))

    def _holds(self, value: Any, old: Any) -> bool:
        if self.expression == "self == oldSelf":
            return bool(value == old)
        return _evaluated(self.expression, value, old) is True

    def _detail(self, value: Any, old: Any) -> str:
        if self.message_expression:
            said = _evaluated(self.message_expression, value, old)
            if isinstance(said, str) and said.strip():
                return said
        return self.message or f"failed rule: {self.expression}"


def _evaluated(expression: str, value: Any, old: Any) -> Any:
    if old is None and isinstance(value, str):
        return _of_text(expression, value)
    members = _members(expression)
    context = {"self": _narrowed(value, members)}
    if old is not None:
        context["oldSelf"] = _narrowed(old, members)
    return _program(expression).execute(context)


@lru_cache(maxsize=4096)
def _of_text(expression: str, value: str) -> Any:
    return _program(expression).execute({"self": value})


@lru_cache(maxsize=1024)
def _members(expression: str) -> Mapping[str, frozenset[str] | None] | None:
    """The members of `self` an expression reads, each with those of its own that are read, None where it is read whole;
    None for all of it where `self` itself is.

    Handing an object over to the evaluator costs more than the evaluation.
    """
    read: dict[str, set[str] | None] = {}
    for use in _USE.finditer(expression):
        path = use["path"].split(".")[1:]
        if use["call"]:
            path.pop()
        if not path:
            return None
        inner = read.setdefault(path[0], set())
        if len(path) > 1 and inner is not None:
            inner.add(path[1])
        elif not use["has"]:
            read[path[0]] = None
    return {name: None if inner is None else frozenset(inner) for name, inner in read.items()}


def _narrowed(value: Any, members: Mapping[str, frozenset[str] | None] | None) -> Any:
    if members is None or not isinstance(value, dict):
        return value
    return {key: _part(value[key], inner) for key, inner in members.items() if key in value}


def _part(value: Any, inner: frozenset[str] | None) -> Any:
    if inner is None or not isinstance(value, dict):
        return value
    return {key: value[key] for key in inner if key in value}


@lru_cache(maxsize=1024)
def _program(expression: str) -> Any:
    # Imported at the first rule that needs it: the evaluator takes longer to import than a cluster to start.
    import cel  # noqa: PLC0415  # see above

    return cel.compile(expression)
