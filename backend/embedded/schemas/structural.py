"""A structural OpenAPI schema, compiled as far as objects reach into it.

The schemas of the training kinds are megabytes of pod templates, of which an object touches a few dozen fields; a node
is read from the document when a value first needs it. On an update only what changed is looked at, as the apiserver's
ratcheting does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from dispatch_kubeflow.backend.embedded.copying import copied
from dispatch_kubeflow.backend.embedded.errors import FieldError, duplicate, not_supported, required, too_long, too_many
from dispatch_kubeflow.backend.embedded.metadata import FIELDS
from dispatch_kubeflow.backend.embedded.schemas.rules import Rule

Object = dict[str, Any]

ABSENT = object()
BLOCKING = frozenset({"Unsupported value", "Required value", "Too long", "Too many", "Type invalid"})
_BLOCKED = FieldError(
    "Invalid value",
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
_TYPE_META = ("apiVersion", "kind", "metadata")
_DURATION = re.compile(r"^-?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+$")


class StructuralSchema:
    """The schema of one version of a custom resource."""

    def __init__(self, structure: Mapping[str, Any]) -> None:
        self.structure = structure
        self._root = Node(structure)

    def decode(self, obj: Object, old: Object | None = None) -> list[str]:  # noqa: ARG002  # the whole is read at once
        """Drop unknown fields and nulls that mean absence, in place; the paths of the fields dropped."""
        unknown: list[str] = []
        body = {key: value for key, value in obj.items() if key not in _TYPE_META}
        self._root.prune(body, "", unknown)
        for key in list(obj):
            if key not in _TYPE_META and key not in body:
                del obj[key]
        obj.update(body)
        metadata = obj["metadata"]
        for key in [key for key in metadata if key not in FIELDS]:
            del metadata[key]
            unknown.append(f"metadata.{key}")
        return sorted(unknown)

    def default(self, obj: Object, old: Object | None = None) -> None:
        """Fill in the defaults of what is absent, in place; what is as in `old`, which was filled in, needs none."""
        self._root.default(obj, old)

    def validate(self, new: Object, old: Object | None, *, blocked: bool = False) -> list[FieldError]:
        """Every fault of an object, or of what changed in it; rules are left out where a fault makes them moot."""
        faults: list[FieldError] = []
        before: Any = ABSENT if old is None else old
        self._root.check(_outer(new), before if old is None else _outer(old), "", faults)
        self._root.check_lists(new, before, "", faults)
        if blocked or any(fault.type in BLOCKING for fault in faults):
            return [*faults, _BLOCKED]
        self._root.check_rules(new, old, "", faults)
        return faults


def _outer(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in _TYPE_META}


class Node:
    """One node of a schema, its children made when first asked for."""

    __slots__ = (
        "_children",
        "_items",
        "_names",
        "_values",
        "any_of",
        "defaults",
        "keys",
        "kind",
        "list_type",
        "needs",
        "nullable",
        "pattern",
        "preserves",
        "raw",
        "rules",
        "types",
    )

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.kind: str = raw.get("type") or ""
        self.types = (
            ("integer", "string") if raw.get("x-kubernetes-int-or-string") else (self.kind,) if self.kind else ()
        )
        self.nullable = bool(raw.get("nullable"))
        self.preserves = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        self.list_type = raw.get("x-kubernetes-list-type") or "atomic"
        self.keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys") or ())
        self.rules = tuple(Rule.of(entry) for entry in raw.get("x-kubernetes-validations") or ())
        self.pattern = _compiled(raw["pattern"]) if "pattern" in raw else None
        self.needs: tuple[str, ...] = tuple(raw.get("required") or ())
        self.any_of = tuple(Node(item) for item in raw.get("anyOf") or ())
        self._names: Mapping[str, Any] = raw.get("properties") or {}
        self.defaults = {
            name: child["default"] for name, child in self._names.items() if child.get("default") is not None
        }
        self._children: dict[str, Node] = {}
        self._values: Node | None = None
        self._items: Node | None = None

    # -- children

    def child(self, name: str) -> Node | None:
        """The node of a property, of any key of a map, or None for an unknown field."""
        found = self._children.get(name)
        if found is None:
            raw = self._names.get(name)
            if raw is None:
                return self.values
            found = self._children[name] = Node(raw)
        return found

    @property
    def values(self) -> Node | None:
        """The node of a map's values."""
        raw = self.raw.get("additionalProperties")
        if self._values is None and isinstance(raw, Mapping):
            self._values = Node(raw)
        return self._values

    @property
    def items(self) -> Node | None:
        """The node of a list's items."""
        raw = self.raw.get("items")
        if self._items is None and isinstance(raw, Mapping):
            self._items = Node(raw)
        return self._items

    # -- on the way in

    def prune(self, value: Any, path: str, unknown: list[str]) -> None:
        """Drop from a value what the schema does not know."""
        if isinstance(value, dict):
            for key in list(value):
                self._prune_member(value, key, f"{path}.{key}" if path else key, unknown)
        elif isinstance(value, list) and self.items is not None:
            for index, item in enumerate(value):
                self.items.prune(item, f"{path}[{index}]", unknown)

    def _prune_member(self, value: Object, key: str, path: str, unknown: list[str]) -> None:
        item, child = value[key], self.child(key)
        if child is None:
            if not (self.preserves or self.raw.get("additionalProperties") is True or self._is_embedded(key)):
                del value[key]
                unknown.append(path)
        elif item is None:
            if not child.nullable and key not in self.defaults and key in self._names:
                del value[key]
        elif type(item) in (dict, list):
            child.prune(item, path, unknown)

    def default(self, value: Any, old: Any = None) -> None:
        """Fill in what is absent from a value and has a default; `old` was filled in before."""
        if isinstance(value, dict):
            for name, default in self.defaults.items():
                if name not in value or (value[name] is None and not self._names[name].get("nullable")):
                    value[name] = copied(default)
            before = old if isinstance(old, dict) else {}
            for key, item in value.items():
                if type(item) not in (dict, list) or item == before.get(key):
                    continue
                child = self.child(key)
                if child is not None:
                    child.default(item, before.get(key))
        elif isinstance(value, list) and self.items is not None:
            for item in value:
                self.items.default(item)

    def _is_embedded(self, key: str) -> bool:
        return bool(self.raw.get("x-kubernetes-embedded-resource")) and key in _TYPE_META

    # -- validation

    def check(self, value: Any, old: Any, path: str, faults: list[FieldError]) -> None:
        """The faults of types, bounds, patterns and required fields, where a value is not what it was before."""
        if _same(value, old):
            return
        if value is None:
            if self.types and not self.nullable:
                faults.append(_type_fault(path, self.types, "null"))
            return
        if self.types and not any(_is_type(value, kind) for kind in self.types):
            self._check_type(value, path, faults)
            return
        self._check_content(value, old, path, faults)
        allowed = self.raw.get("enum")
        if allowed is not None and value not in allowed:
            faults.append(not_supported(path, value, [str(item) for item in allowed]))
        self._check_any(value, path, faults)

    def _check_content(self, value: Any, old: Any, path: str, faults: list[FieldError]) -> None:
        if isinstance(value, str):
            self._check_text(value, path, faults)
        elif isinstance(value, list):
            self._check_list(value, old, path, faults)
        elif isinstance(value, dict):
            self._check_object(value, old, path, faults)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self._check_number(value, path, faults)

    def _check_type(self, value: Any, path: str, faults: list[FieldError]) -> None:
        form = self.raw.get("format")
        fraction = isinstance(value, float) and self.kind == "integer"
        if fraction and form:
            faults.append(_type_fault(path, (form,), "float64"))
        else:
            faults.append(_type_fault(path, self.types, _type_name(value)))
        self._check_any(value, path, faults)
        if fraction:
            faults.append(_unchecked(path, f"with format {form}" if form else "(default format)"))

    def _check_any(self, value: Any, path: str, faults: list[FieldError]) -> None:
        if not self.any_of or any(_accepts(node, value) for node in self.any_of):
            return
        faults.append(FieldError("Invalid value", "<nil>", "", f'"{path}" must validate at least one schema (anyOf)'))
        self.any_of[0].check(value, ABSENT, path, faults)

    def check_lists(self, value: Any, old: Any, path: str, faults: list[FieldError]) -> None:
        """The faults of list-maps and sets that hold something twice, where they changed."""
        if _same(value, old):
            return
        if isinstance(value, dict):
            for key, item in value.items():
                child = self.child(key) if type(item) in (dict, list) else None
                if child is not None:
                    before = old.get(key, ABSENT) if isinstance(old, dict) else ABSENT
                    child.check_lists(item, before, _joined(path, key, key in self._names), faults)
        elif isinstance(value, list):
            faults += self._twice(value, path)
            if self.items is not None:
                for index, item in enumerate(value):
                    self.items.check_lists(item, self._earlier(item, old, index), f"{path}[{index}]", faults)

    def check_rules(self, value: Any, old: Any, path: str, faults: list[FieldError]) -> None:
        """The faults the CEL rules find. `old` is None where there is nothing to compare with."""
        if value is None or (old is not None and _same(value, old)):
            return
        for rule in self.rules:
            fault = rule.fault(path or "<nil>", self.kind, value, old)
            if fault is not None:
                faults.append(fault)
        if isinstance(value, dict):
            atomic = self.raw.get("x-kubernetes-map-type") == "atomic"
            for key, item in value.items():
                child = self.child(key)
                if child is not None:
                    before = old.get(key) if isinstance(old, dict) and not atomic else None
                    child.check_rules(item, before, _joined(path, key, key in self._names), faults)
        elif isinstance(value, list):
            node = self.items
            if node is not None:
                for index, item in enumerate(value):
                    before = self._earlier(item, old, index) if self.list_type == "map" else ABSENT
                    node.check_rules(item, None if before is ABSENT else before, f"{path}[{index}]", faults)

    def _check_object(self, value: Object, old: Any, path: str, faults: list[FieldError]) -> None:
        limit = self.raw.get("maxProperties")
        if limit is not None and len(value) > limit:
            faults.append(too_many(path, len(value), limit))
        floor = self.raw.get("minProperties")
        if floor is not None and len(value) < floor:
            faults.append(_fault(path, len(value), f"{path} in body should have at least {floor} properties"))
        faults += [required(_joined(path, name, True)) for name in self.needs if name not in value]
        for key, item in value.items():
            child = self.child(key)
            if child is not None:
                before = old.get(key, ABSENT) if isinstance(old, dict) else ABSENT
                child.check(item, before, f"{path}.{key}" if path else key, faults)

    def _check_list(self, value: list[Any], old: Any, path: str, faults: list[FieldError]) -> None:
        node = self.items
        if node is not None:
            for index, item in enumerate(value):
                node.check(item, self._earlier(item, old, index), f"{path}[{index}]", faults)
        floor, limit = self.raw.get("minItems"), self.raw.get("maxItems")
        if floor is not None and len(value) < floor:
            faults.append(_fault(path, len(value), f"{path} in body should have at least {floor} items"))
        if limit is not None and len(value) > limit:
            faults.append(too_many(path, len(value), limit))

    def _check_text(self, value: str, path: str, faults: list[FieldError]) -> None:
        floor, limit = self.raw.get("minLength"), self.raw.get("maxLength")
        if limit is not None and len(value) > limit:
            faults.append(too_long(path, limit))
        if floor is not None and len(value) < floor:
            faults.append(_fault(path, value, f"{path} in body should be at least {floor} chars long"))
        if self.pattern is not None and not self.pattern.search(value):
            faults.append(_fault(path, value, f"{path} in body should match '{self.raw['pattern']}'"))
        form = self.raw.get("format")
        if form in _FORMATS and not _FORMATS[form](value):
            faults.append(FieldError("Type invalid", path, value, f'{path} in body must be of type {form}: "{value}"'))

    def _check_number(self, value: float, path: str, faults: list[FieldError]) -> None:
        floor, limit = self.raw.get("minimum"), self.raw.get("maximum")
        if floor is not None and value < floor:
            faults.append(_fault(path, value, f"{path} in body should be greater than or equal to {floor}"))
        if limit is not None and value > limit:
            faults.append(_fault(path, value, f"{path} in body should be less than or equal to {limit}"))
        bits = {"int32": 31, "int64": 63}.get(self.raw.get("format") or "")
        if bits is not None and not -(2**bits) <= value < 2**bits:
            faults.append(_unchecked(path, f"with format {self.raw['format']}"))

    def _twice(self, value: list[Any], path: str) -> list[FieldError]:
        if self.list_type == "atomic":
            return []
        counts: dict[str, int] = {}
        faults: list[FieldError] = []
        for index, item in enumerate(value):
            told = item
            if self.list_type == "map" and isinstance(item, dict):
                told = {key: item[key] for key in self.keys if key in item}
            counts[repr(told)] = counts.get(repr(told), 0) + 1
            if counts[repr(told)] == 2:
                faults.append(duplicate(f"{path}[{index}]", told))
        return faults

    def _earlier(self, item: Any, old: Any, index: int) -> Any:
        if not isinstance(old, list):
            return ABSENT
        if self.list_type == "map" and isinstance(item, dict):
            told = [item.get(key) for key in self.keys]
            matches = (one for one in old if isinstance(one, dict) and [one.get(key) for key in self.keys] == told)
            return next(matches, ABSENT)
        return old[index] if index < len(old) else ABSENT


def _compiled(pattern: str) -> re.Pattern[str]:
    # Go's `$` is the end of the text alone, and its flags may stand anywhere.
    flags = re.IGNORECASE if "(?i)" in pattern else 0
    plain = pattern.replace("(?i)", "")
    return re.compile(plain[:-1] + r"\Z" if plain.endswith("$") and not plain.endswith(r"\$") else plain, flags)


def _same(value: Any, old: Any) -> bool:
    return old is not ABSENT and value == old and isinstance(value, bool) == isinstance(old, bool)


def _joined(path: str, key: str, is_property: bool) -> str:
    if not is_property:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _accepts(node: Node, value: Any) -> bool:
    faults: list[FieldError] = []
    node.check(value, ABSENT, "", faults)
    return not faults


def _is_type(value: Any, kind: str) -> bool:
    if kind == "integer":
        return not isinstance(value, bool) and (
            isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        )
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    wanted: type = {"string": str, "boolean": bool, "array": list, "object": dict}[kind]
    return isinstance(value, wanted)


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names: dict[type, str] = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names[type(value)]


def _type_fault(path: str, types: tuple[str, ...], found: str) -> FieldError:
    wanted = ",".join(types)
    return FieldError("Type invalid", path, found, f'{path} in body must be of type {wanted}: "{found}"')


def _fault(path: str, value: Any, text: str) -> FieldError:
    return FieldError("Invalid value", path, value, text)


def _unchecked(path: str, form: str) -> FieldError:
    # The real validator loses the path of this one on the way.
    return FieldError("Invalid value", "<nil>", "", f"Checked value must be of type integer {form} in {path}")


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None and "T" in value.upper()
    except ValueError:
        return False


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _is_time,
    "duration": lambda value: bool(_DURATION.match(value)),
}
