"""Reads cases from YAML and expands them, so that a limit or a matrix of kinds is one line and not a thousand.

A case file is `{about, users?, kinds?, variables?, steps}`. With `kinds` the steps are performed once for each of them
(`only` and `not` name kinds for one step). In strings
`<name>` stands for a variable; a string that is nothing but `<name>` takes the variable's value as it is. In bodies:

    {$text: {length: 501, of: a}}            a string of that many characters
    {$items: {count: 129, of: "item <i>"}}   a list; <i> counts from 0
    {$merge: [a, b]}                         an object, later ones laid over earlier ones, null takes a key away
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ruamel.yaml

CASES = Path(__file__).resolve().parent / "cases"
_VARIABLE = re.compile(r"<([a-zA-Z][\w-]*)>")


class BadCase(Exception):
    """A case that cannot be read: which, and why."""


@dataclass(frozen=True)
class Step:
    """One request, wait or watch. `case` is its stable id."""

    case: str
    kind: str | None
    content: Mapping[str, Any]


@dataclass(frozen=True)
class CaseFile:
    """A sequence of steps that share a namespace and variables."""

    name: str
    users: Mapping[str, list[Any]]
    kinds: Mapping[str, Mapping[str, Any]]
    variables: Mapping[str, Any]
    steps: list[Step] = field(default_factory=list)


def load(path: Path) -> CaseFile:
    """Reads one file of cases; ids are `<file>.<kind>.<case>`, and never used twice."""
    content = _read(path)
    name = path.stem
    every = _read(CASES / "kinds" / "kinds.yaml")
    kinds: dict[str, Any] = {kind: every[kind] for kind in content.get("kinds", [])}
    steps: list[Step] = []
    for kind in kinds or [None]:
        prefix = f"{name}.{kind}" if kind else name
        for index, step in enumerate(content["steps"]):
            if kind in step.get("not", []) or kind not in step.get("only", [kind]):
                continue
            steps.append(Step(f"{prefix}.{step.get('case', f'step-{index}')}", kind, step))
    ids = [step.case for step in steps]
    twice = {each for each in ids if ids.count(each) > 1}
    if twice:
        raise BadCase(f"{path}: used twice: {sorted(twice)}")
    return CaseFile(name, content.get("users", {}), kinds, content.get("variables", {}), steps)


def load_all(pattern: str = "*") -> Iterator[CaseFile]:
    """Every file of cases, in the order of their names."""
    for path in sorted(CASES.glob(f"{pattern}.yaml")):
        yield load(path)


def _read(path: Path) -> Any:
    return ruamel.yaml.YAML(typ="safe", pure=True).load(path.read_text())


def fill(value: Any, variables: Mapping[str, Any]) -> Any:
    """The value with variables put in and generators run."""
    if isinstance(value, str):
        return _fill_text(value, variables)
    if isinstance(value, list):
        return [fill(each, variables) for each in value]
    if isinstance(value, dict):
        if "$text" in value:
            wanted = value["$text"]
            return (wanted["of"] * wanted["length"])[: wanted["length"]]
        if "$items" in value:
            wanted = value["$items"]
            return [fill(wanted["of"], {**variables, "i": str(index)}) for index in range(wanted["count"])]
        if "$merge" in value:
            merged: dict[str, Any] = {}
            for part in value["$merge"]:
                merged = merge(merged, fill(part, variables))
            return merged
        return {fill(key, variables): fill(each, variables) for key, each in value.items()}
    return value


def _fill_text(text: str, variables: Mapping[str, Any]) -> Any:
    def known(name: str) -> Any:
        if name not in variables:
            raise BadCase(f"{text!r} names <{name}>, which no step has set")
        return variables[name]

    whole = _VARIABLE.fullmatch(text)
    if whole:
        found = known(whole[1])
        return fill(copy.deepcopy(found), variables) if isinstance(found, dict | list) else found
    return _VARIABLE.sub(lambda match: str(known(match[1])), text)


def merge(base: Any, patch: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def dig(value: Any, path: str) -> Any:
    """The value at a dotted path (`metadata.uid`, `items.0.metadata.name`), or None."""
    for part in path.split("."):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part.replace("~1", "."))
        else:
            return None
    return value
