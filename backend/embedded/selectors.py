"""Label and field selectors, parsed once and matched against plain objects as the apiserver matches them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import ApiError, bad_request
from dispatch_kubeflow.backend.embedded.metadata import label_value, qualified_name

Match = Callable[[Mapping[str, Any]], bool]
Labels = Mapping[str, str]
Test = Callable[[Labels], bool]

_WORD = re.compile(r"\s*(==|!=|[=!,()<>]|[^\s=!,()<>]+)")
_SIGNS = frozenset({"==", "!=", "=", "!", ",", "(", ")", "<", ">", ""})
_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_FIELD_TERM = re.compile(r"^([^=!]+?)(==|!=|=)(.*)$", re.DOTALL)

_POD_FIELDS = {
    "spec.nodeName": ("spec", "nodeName"),
    "spec.restartPolicy": ("spec", "restartPolicy"),
    "spec.schedulerName": ("spec", "schedulerName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "status.phase": ("status", "phase"),
    "status.podIP": ("status", "podIP"),
    "status.nominatedNodeName": ("status", "nominatedNodeName"),
}
_EXTRA_FIELDS: Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]] = {
    ("", "pods"): _POD_FIELDS,
    ("", "nodes"): {"spec.unschedulable": ("spec", "unschedulable")},
    ("", "namespaces"): {"status.phase": ("status", "phase"), "name": ("metadata", "name")},
    ("", "secrets"): {"type": ("type",)},
    ("", "events"): {
        "involvedObject.kind": ("involvedObject", "kind"),
        "involvedObject.namespace": ("involvedObject", "namespace"),
        "involvedObject.name": ("involvedObject", "name"),
        "involvedObject.uid": ("involvedObject", "uid"),
        "involvedObject.apiVersion": ("involvedObject", "apiVersion"),
        "involvedObject.resourceVersion": ("involvedObject", "resourceVersion"),
        "involvedObject.fieldPath": ("involvedObject", "fieldPath"),
        "reason": ("reason",),
        "reportingComponent": ("reportingComponent",),
        "source": ("source", "component"),
        "type": ("type",),
    },
    ("batch", "jobs"): {"status.successful": ("status", "succeeded")},
}


@lru_cache(maxsize=1024)
def label_selector(text: str | None) -> Match | None:
    """The test a label selector stands for, or None when it selects everything; 400 when it cannot be read."""
    if not text or not text.strip():
        return None
    tests = list(_Parser(text).requirements())
    return lambda obj: _holds(tests, obj["metadata"].get("labels") or {})


@lru_cache(maxsize=1024)
def field_selector(text: str | None, group: str, plural: str) -> Match | None:
    """The test a field selector stands for; 400 for a field this kind cannot be selected by."""
    if not text or not text.strip():
        return None
    paths: dict[str, tuple[str, ...]] = {
        "metadata.name": ("metadata", "name"),
        "metadata.namespace": ("metadata", "namespace"),
        **_EXTRA_FIELDS.get((group, plural), {}),
    }
    tests: list[Match] = []
    for name, operator, value in field_terms(text):
        if name not in paths:
            raise bad_request(_unsupported(name, group, plural))
        tests.append(_field_test(paths[name], value, operator == "!="))
    return lambda obj: all(test(obj) for test in tests)


def _unsupported(name: str, group: str, plural: str) -> str:
    if plural == "jobs":
        return f'field label "{name}" not supported for Job'
    if (group, plural) in _EXTRA_FIELDS or "." in group:
        return f"field label not supported: {name}"
    return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def field_terms(text: str) -> Iterator[tuple[str, str, str]]:
    """The terms of a field selector: field, operator, value with its escapes undone."""
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        term = _FIELD_TERM.match(part)
        if term is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = term.groups()
        bare = re.search(r"(?<!\\)=", value)
        if bare is not None:
            raise bad_request("invalid field selector: unescaped character in value: 61")
        yield name, operator, re.sub(r"\\([\\,=])", r"\1", value)


def both(first: Match | None, second: Match | None) -> Match | None:
    """Both tests, or whichever there is."""
    if first is None or second is None:
        return first or second
    return lambda obj: first(obj) and second(obj)


class _Parser:
    """Reads a label selector word by word, for it is at a word that the apiserver says what it expected."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = [*_WORD.findall(text), ""]
        self._next = 0

    def requirements(self) -> Iterator[Test]:
        while True:
            if self._look() == "":
                return
            if self._look() in _SIGNS - {"!"}:
                raise bad_request(f"found '{self._look()}', expected: !, identifier, or 'end of string'")
            yield self._requirement()
            word = self._take()
            if word == "":
                return
            if word != ",":
                raise bad_request(f"found '{word}', expected: ',' or 'end of string'")
            if self._look() in _SIGNS - {"!"}:
                raise bad_request(f"found '{self._look()}', expected: identifier after ','")

    def _look(self) -> str:
        return self._words[self._next]

    def _take(self) -> str:
        word = self._words[self._next]
        self._next = min(self._next + 1, len(self._words) - 1)
        return word

    def _requirement(self) -> Test:
        absent = self._look() == "!"
        if absent:
            self._take()
        key = self._take()
        if key in _SIGNS:
            raise _unreadable(f"found '{key}', expected: identifier")
        for fault in qualified_name(key):
            raise _unreadable(f'<nil>: Invalid value: "{key}": {fault}')
        if absent:
            return lambda labels: key not in labels
        if self._look() in ("", ","):
            return lambda labels: key in labels
        operator = self._take()
        if operator in ("in", "notin"):
            return _membership(key, self._values(key), operator == "in")
        if operator not in ("=", "==", "!=", ">", "<"):
            raise _unreadable(f"found '{operator}', expected: {_OPERATORS}")
        return self._comparison(key, operator)

    def _comparison(self, key: str, operator: str) -> Test:
        value = "" if self._look() in ("", ",") else self._take()
        if value in _SIGNS - {""}:
            raise _unreadable(f"found '{value}', expected: identifier")
        if operator in ("<", ">"):
            if not re.fullmatch(r"[-+]?\d+", value):
                raise _unreadable(
                    f"values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
                )
            return lambda labels: _ordered(labels.get(key), int(value), operator == ">")
        _check(key, 0, value)
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value

    def _values(self, key: str) -> frozenset[str]:
        opening = self._take()
        if opening != "(":
            raise _unreadable(f"found '{opening}' expected: '('")
        if self._look() in _SIGNS - {",", ")"}:
            raise _unreadable(f"found '{self._look()}', expected: ',', ')' or identifier")
        values: set[str] = set()
        last = ","
        while (word := self._take()) != ")":
            if word in _SIGNS - {","}:
                raise _unreadable(f"found '{word}', expected: ',', or identifier")
            if word == "," and last == ",":
                values.add("")
            elif word != ",":
                if last != ",":
                    raise _unreadable(f"found '{word}', expected: ',' or ')'")
                values.add(word)
            last = word
        if last == ",":
            values.add("")
        for index, value in enumerate(sorted(values)):
            _check(key, index, value)
        return frozenset(values)


def _membership(key: str, values: frozenset[str], included: bool) -> Test:
    if included:
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _holds(tests: list[Test], labels: Labels) -> bool:
    return all(test(labels) for test in tests)


def _ordered(value: str | None, bound: int, above: bool) -> bool:
    if value is None or not re.fullmatch(r"-?\d+", value):
        return False
    return int(value) > bound if above else int(value) < bound


def _check(key: str, index: int, value: str) -> None:
    for fault in label_value(value):
        raise _unreadable(f'values[{index}][{key}]: Invalid value: "{value}": {fault}')


def _unreadable(text: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {text}")


def _field_test(path: tuple[str, ...], value: str, differs: bool) -> Match:
    def test(obj: Mapping[str, Any]) -> bool:
        found: Any = obj
        for step in path:
            found = found.get(step) if isinstance(found, Mapping) else None
        return (_text(found, path) != value) is differs

    return test


def _text(found: Any, path: tuple[str, ...]) -> str:
    if isinstance(found, bool):
        return "true" if found else "false"
    if found is None:
        return {"unschedulable": "false", "succeeded": "0"}.get(path[-1], "")
    return str(found)
