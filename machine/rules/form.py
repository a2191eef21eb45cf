"""The form of the tables is said once, in `tables/schema/*.json`; and a complaint about it must name the line.

So the loader reads the same JSON Schemas that editors use, and checks the part of JSON Schema that they are written in.
A keyword it does not know is an error of the schema, never passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from dispatch_kubeflow.machine.marked import Path
from dispatch_kubeflow.tables import schema_directory

Fault = tuple[Path, str]
Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, str]] = {
    "object": (dict, "a mapping"),
    "array": (list, "a list"),
    "string": (str, "a string; quote it if it is one"),
    "boolean": (bool, "true or false"),
}
_ANNOTATIONS = frozenset({"$schema", "$defs", "title", "description"})


@cache
def schema(name: str) -> Schema:
    """The JSON Schema of this kind of file."""
    text = (schema_directory() / f"{name}.json").read_text(encoding="utf-8")
    read: Schema = json.loads(text)
    return read


def faults(name: str, data: object) -> list[Fault]:
    """Where the data's form differs from its schema, by path."""
    root = schema(name)
    return list(_Form(root).faults(root, data, ()))


class _Form:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def faults(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if "type" in schema and not _is_type(schema["type"], data):
            names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
            yield path, f"must be {' or '.join(_TYPES[each][1] for each in names)}"
            return  # what is asked of another type says nothing of this one
        for keyword, asked in schema.items():
            if keyword in _ANNOTATIONS or keyword in {"type", "then", "else"}:
                continue
            if keyword == "if":
                holds = not any(self.faults(asked, data, path))
                yield from self.faults(schema.get("then" if holds else "else", {}), data, path)
            else:
                yield from _KEYWORDS[keyword](self, schema, data, path)

    def ref(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        name = schema["$ref"].removeprefix("#/$defs/")
        yield from self.faults(self._root["$defs"][name], data, path)

    def one_of(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if sum(not any(self.faults(each, data, path)) for each in schema["oneOf"]) != 1:
            yield path, f"must have exactly one of {', '.join(each['required'][0] for each in schema['oneOf'])}"

    def const(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if data != schema["const"]:
            yield path, f"must be {schema['const']}"

    def enum(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if data not in schema["enum"]:
            yield path, f"must be one of {', '.join(schema['enum'])}"

    def pattern(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if isinstance(data, str) and not re.search(schema["pattern"], data):
            yield path, f"{data!r} is not of the form {schema['pattern']}"

    def min_length(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if isinstance(data, str) and len(data) < schema["minLength"]:
            yield path, "must not be empty"

    def min_items(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if isinstance(data, list) and len(data) < schema["minItems"]:
            yield path, "must not be empty"

    def min_properties(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if isinstance(data, dict) and len(data) < schema["minProperties"]:
            yield path, "must not be empty"

    def unique_items(self, _schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if isinstance(data, list):
            for i, item in enumerate(data):
                if item in data[:i]:
                    yield (*path, i), f"{item!r} is given twice"

    def items(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if isinstance(data, list):
            for i, item in enumerate(data):
                yield from self.faults(schema["items"], item, (*path, i))

    def required(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if isinstance(data, dict):
            for key in schema["required"]:
                if key not in data:
                    yield path, f"lacks {key}"

    def properties(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if isinstance(data, dict):
            for key, asked in schema["properties"].items():
                if key in data:
                    yield from self.faults(asked, data[key], (*path, key))

    def additional_properties(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        if not isinstance(data, dict):
            return
        known = schema.get("properties", {})
        for key in data:
            if key in known:
                continue
            if schema["additionalProperties"] is False:
                yield (*path, key), f"unknown key {key}; the keys are {', '.join(known)}"
            else:
                yield from self.faults(schema["additionalProperties"], data[key], (*path, key))

    def property_names(self, schema: Schema, data: object, path: Path) -> Iterator[Fault]:
        for key in data if isinstance(data, dict) else ():
            yield from self.faults(schema["propertyNames"], key, (*path, key))


def _is_type(names: str | list[str], data: object) -> bool:
    return any(isinstance(data, _TYPES[name][0]) for name in ([names] if isinstance(names, str) else names))


_KEYWORDS: Mapping[str, Callable[[_Form, Schema, object, Path], Iterator[Fault]]] = {
    "$ref": _Form.ref,
    "oneOf": _Form.one_of,
    "const": _Form.const,
    "enum": _Form.enum,
    "pattern": _Form.pattern,
    "minLength": _Form.min_length,
    "minItems": _Form.min_items,
    "minProperties": _Form.min_properties,
    "uniqueItems": _Form.unique_items,
    "items": _Form.items,
    "required": _Form.required,
    "properties": _Form.properties,
    "additionalProperties": _Form.additional_properties,
    "propertyNames": _Form.property_names,
}
