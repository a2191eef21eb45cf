"""Label and field selectors, parsed once and matched against plain objects as the apiserver matches them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import bad_request

Match = Callable[[Mapping[str, Any]], bool]

_TERM = re.compile(
    r"\s*(?:(?P<not>!)\s*(?P<absent>[^\s=!,()<>]+)"
    r"|(?P<key>[^\s=!,()<>]+)\s*(?:(?P<op>==|!=|=)\s*(?P<value>[^\s,=!()<>]*)"
    r"|(?P<order>[<>])\s*(?P<bound>-?\d+)"
    r"|(?:\s(?P<set>in|notin))\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)
_KEY = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_FIELD_TERM = re.compile(r"^\s*([^=!]+?)\s*(==|!=|=)\s*(.*?)\s*$")

_POD_FIELDS = {
    "spec.nodeName": ("spec", "nodeName"),
    "spec.restartPolicy": ("spec", "restartPolicy"),
    "spec.schedulerName": ("spec", "schedulerName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "status.phase": ("status", "phase"),
    "status.podIP": ("status", "podIP"),
    "status.nominatedNodeName": ("status", "nominatedNodeName"),
}
_EXTRA_FIELDS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
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


def label_selector(text: str | None) -> Match | None:
    """The test a label selector stands for, or None when it selects everything; 400 when it cannot be read."""
    if not text or not text.strip():
        return None
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    position = 0
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None or term.end() == position:
            raise bad_request(
                f"unable to parse requirement: found '{text[position:].strip()}', expected: ',' or 'end of string'"
            )
        tests.append(_label_test(term, text))
        position = term.end()
    return lambda obj: _all_match(tests, obj["metadata"].get("labels") or {})


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
    for part in text.split(","):
        term = _FIELD_TERM.match(part)
        if term is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = term.groups()
        if name not in paths:
            raise bad_request(f"field label not supported: {name}")
        tests.append(_field_test(paths[name], value, operator == "!="))
    return lambda obj: all(test(obj) for test in tests)


def both(first: Match | None, second: Match | None) -> Match | None:
    """Both tests, or whichever there is."""
    if first is None or second is None:
        return first or second
    return lambda obj: first(obj) and second(obj)


def _all_match(tests: list[Callable[[Mapping[str, str]], bool]], labels: Mapping[str, str]) -> bool:
    return all(test(labels) for test in tests)


def _label_test(term: re.Match[str], text: str) -> Callable[[Mapping[str, str]], bool]:
    key = term["absent"] or term["key"]
    if not _KEY.match(key) or len(key.rsplit("/", 1)[-1]) > 63:
        raise bad_request(f"unable to parse requirement: <nil>: Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")  # fmt: skip
    if term["not"]:
        return lambda labels: key not in labels
    if term["op"]:
        value = _checked(term["value"], key)
        if term["op"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if term["order"]:
        bound = int(term["bound"])
        above = term["order"] == ">"
        return lambda labels: _ordered(labels.get(key), bound, above)
    if term["set"]:
        values = {_checked(value.strip(), key) for value in term["values"].split(",")}
        if term["set"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    return lambda labels: key in labels


def _ordered(value: str | None, bound: int, above: bool) -> bool:
    if value is None or not re.fullmatch(r"-?\d+", value):
        return False
    return int(value) > bound if above else int(value) < bound


def _checked(value: str, key: str) -> str:
    if len(value) > 63:
        raise bad_request(
            f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": must be no more than 63 bytes'
        )
    if not _VALUE.match(value):
        raise bad_request(f"unable to parse requirement: values[0][{key}]: Invalid value: \"{value}\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")  # fmt: skip
    return value


def _field_test(path: tuple[str, ...], value: str, differs: bool) -> Match:
    def test(obj: Mapping[str, Any]) -> bool:
        found: Any = obj
        for step in path:
            found = found.get(step) if isinstance(found, Mapping) else None
        shown = _text(found, path)
        return (shown != value) if differs else (shown == value)

    return test


def _text(found: Any, path: tuple[str, ...]) -> str:
    if isinstance(found, bool):
        return "true" if found else "false"
    if found is None:
        return {"unschedulable": "false", "succeeded": "0"}.get(path[-1], "")
    return str(found)
