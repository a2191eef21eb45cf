"""Kubernetes' own kinds are Go structs: a field of another type is a 400 at once, an unknown one is dropped, an empty
one that the struct always writes is there in every answer.

What the structs are is read from Kubernetes' own documents (`crds/SOURCES.md`); values are judged by code, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.quantities import QuantityError, canonical
from dispatch_kubeflow.backend.embedded.crds import read
from dispatch_kubeflow.backend.embedded.errors import FieldError
from dispatch_kubeflow.backend.requests.resources import Resource

Object = dict[str, Any]

_RELEASE = "kubernetes-v1.36.3"
_NAMED = {
    ("NamespaceSpec", "finalizers"): "[]v1.FinalizerName",
    ("ObjectMeta", "uid"): "types.UID",
    ("OwnerReference", "uid"): "types.UID",
    ("PodSpec", "restartPolicy"): "v1.RestartPolicy",
    ("PodStatus", "phase"): "v1.PodPhase",
}
"""Types that Go has a name for and OpenAPI has not."""
_WRITTEN = {"Event": ("reportingComponent", "reportingInstance")}
"""What is written when it is empty, though no document says that it must be there."""
_TIMES = {
    "ContainerStateRunning": ("startedAt",),
    "ContainerStateTerminated": ("finishedAt", "startedAt"),
    "Event": ("eventTime", "firstTimestamp", "lastTimestamp"),
    "JobCondition": ("lastProbeTime", "lastTransitionTime"),
    "NodeCondition": ("lastHeartbeatTime", "lastTransitionTime"),
    "PodCondition": ("lastProbeTime", "lastTransitionTime"),
}
"""Times that are no pointers, and so are written when they are not set: as null."""
_UNTYPED = frozenset({"FieldsV1", "RawExtension"})
_ZEROS: Mapping[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": None, "object": None}
_JSON_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "bool"),
    (str, "string"),
    ((int, float), "number"),
    (list, "array"),
    (dict, "object"),
)


class Mistyped(Exception):
    """A value that does not fit its field; the text is what Go's decoder says."""


@dataclass(slots=True)
class Type:
    """A field's type: `struct`, `array`, `map`, or the name of a scalar; with what it holds and Go's name for it."""

    form: str
    go: str
    inner: Type | None = None
    struct: str = ""

    def zero(self) -> Any:
        """What Go writes of a value that was never set."""
        return Struct.of(self.struct).empty() if self.form == "struct" else _ZEROS.get(self.form)


@dataclass(slots=True)
class Struct:
    """One struct: its fields by name, those it writes even when they are empty, and what it is in protobuf."""

    name: str
    fields: Mapping[str, Type]
    always: Mapping[str, Type]
    times: tuple[str, ...]
    numbers: Mapping[int, str]
    inline: Mapping[int, str]

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(component: str) -> Struct:
        """The struct of a component of the OpenAPI documents."""
        raw = _components()[component]
        name = component.rpartition(".")[2]
        properties: Mapping[str, Any] = raw.get("properties") or {}
        fields = {key: _type(item, _NAMED.get((name, key))) for key, item in properties.items()}
        needed = {*(raw.get("required") or ()), *_WRITTEN.get(name, ())}
        always = {
            key: kind
            for key, kind in fields.items()
            if key != "metadata" and (properties[key].get("default") == {} or key in needed) and kind.form != "time"
        }
        numbers = {item["x-number"]: key for key, item in properties.items() if "x-number" in item}
        inline = {int(number): held for number, held in (raw.get("x-inline") or {}).items()}
        return Struct(name, fields, always, _TIMES.get(name, ()), numbers, inline)

    def empty(self) -> Object:
        """What is written of a struct in which nothing is set."""
        made: Object = {key: kind.zero() for key, kind in self.always.items()}
        return made | dict.fromkeys(self.times)

    def read(self, value: Object, path: str, where: str, unknown: list[str]) -> None:
        """Take a value into the struct, in place.

        `path` counts the items of lists, as what is unknown is told of; `where` does not, as Go's decoder.
        """
        for key in list(value):
            kind = self.fields.get(key)
            if kind is None:
                del value[key]
                unknown.append(f"{path}.{key}" if path else key)
            elif value[key] is None:
                del value[key]
            elif key != "metadata" or path:
                inside, below = (f"{path}.{key}", f"{where}.{key}") if path else (key, key)
                value[key] = _read(kind, value[key], inside, below, self.name, unknown)
        for key, kind in self.always.items():
            if key not in value:
                value[key] = kind.zero()
        for key in self.times:
            value.setdefault(key, None)


class StructSchema:
    """What a built-in kind's struct does to an object on its way in."""

    def __init__(self, component: str) -> None:
        self.component = component
        self.structure = _components()[component]
        self._struct = Struct.of(component)

    def decode(self, obj: Object, old: Object | None = None) -> list[str]:
        """Drop unknown fields and nulls and write what is always written, in place; gives the unknown fields.

        Raises `Mistyped` for a field of another type. What `metadata` holds is read elsewhere; what is as in `old` was
        read before.
        """
        unknown: list[str] = []
        known = {} if old is None else {key: value for key, value in obj.items() if value == old.get(key)}
        for key in known:
            del obj[key]
        self._struct.read(obj, "", "", unknown)
        obj.update(known)
        fields = Struct.of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").fields
        meta = obj["metadata"]
        strange = [key for key in meta if key not in fields]
        for key in strange:
            del meta[key]
        return sorted([*unknown, *(f"metadata.{key}" for key in strange)])

    def default(self, obj: Object, old: Object | None = None) -> None:
        """Nothing: a built-in kind's defaults are code."""

    def validate(self, new: Object, old: Object | None, *, blocked: bool) -> list[FieldError]:  # noqa: ARG002
        """Nothing: a built-in kind's checks are code."""
        return []


@lru_cache(maxsize=64)
def struct_schema(resource: Resource) -> StructSchema | None:
    """The struct of a built-in kind, or None for one whose data the package does not hold."""
    group = resource.group.partition(".")[0] or "core"
    component = f"io.k8s.api.{group}.{resource.version}.{resource.kind}"
    return StructSchema(component) if component in _components() else None


@lru_cache(maxsize=1)
def _components() -> Mapping[str, Any]:
    return read(_RELEASE, "structs.json.gz")


def resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """A node of these documents, or what it refers to together with what it says itself."""
    reference = node.get("$ref") or next((item.get("$ref") for item in node.get("allOf") or ()), None)
    return node if reference is None else {**_components()[reference.rpartition("/")[2]], **node}


def _type(raw: Mapping[str, Any], named: str | None = None) -> Type:
    reference = raw.get("$ref") or next((item.get("$ref") for item in raw.get("allOf") or ()), None)
    if reference is not None:
        return _referred(reference.rpartition("/")[2])
    form = raw.get("type") or "any"
    if form == "array":
        inner = _type(raw["items"])
        return Type("array", named or f"[]{inner.go}", inner)
    if form == "object":
        values = raw.get("additionalProperties")
        inner = _type(values) if isinstance(values, Mapping) else Type("any", "interface {}")
        return Type("map", f"map[string]{inner.go}", inner)
    if form == "integer":
        return Type("integer", raw.get("format") or "int64")
    names = {"string": "[]uint8" if raw.get("format") == "byte" else "string", "boolean": "bool", "number": "float64"}
    return Type(form, named or names.get(form, "interface {}"))


def _referred(component: str) -> Type:
    package, _, name = component.rpartition(".")
    short = package.rpartition(".")[2]
    if name in ("Time", "MicroTime"):
        return Type("time", f"v1.{name}")
    if name == "Quantity":
        return Type("quantity", "resource.Quantity")
    if name == "IntOrString":
        return Type("int-or-string", "intstr.IntOrString")
    if name in _UNTYPED or "properties" not in _components()[component]:
        return Type("any", f"{short}.{name}")
    return Type("struct", f"{short}.{name}", struct=component)


def _read(kind: Type, value: Any, path: str, where: str, holder: str, unknown: list[str]) -> Any:
    form = kind.form
    if form == "struct":
        _expect(value, dict, kind, where, holder)
        Struct.of(kind.struct).read(value, path, where, unknown)
    elif form == "array":
        _expect(value, list, kind, where, holder)
        inner = kind.inner
        assert inner is not None  # an array always has items
        for index, item in enumerate(value):
            value[index] = (
                inner.zero() if item is None else _read(inner, item, f"{path}[{index}]", where, holder, unknown)
            )
    elif form == "map":
        _expect(value, dict, kind, where, holder)
        inner = kind.inner
        assert inner is not None  # a map always has values
        for key, item in value.items():
            value[key] = inner.zero() if item is None else _read(inner, item, f"{path}.{key}", where, holder, unknown)
    elif form in _SCALARS:
        value = _SCALARS[form](kind, value, where, holder)
    return value


def _expect(value: Any, wanted: type | tuple[type, ...], kind: Type, where: str, holder: str) -> None:
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise _mismatch(value, kind, where, holder)


def _mismatch(value: Any, kind: Type, where: str, holder: str, more: str = "") -> Mistyped:
    found = next(name for types, name in _JSON_TYPES if isinstance(value, types))
    return Mistyped(f"json: cannot unmarshal {found}{more} into Go struct field {holder}.{where} of type {kind.go}")


def _text(kind: Type, value: Any, where: str, holder: str) -> Any:
    _expect(value, str, kind, where, holder)
    return value


def _flag(kind: Type, value: Any, where: str, holder: str) -> Any:
    _expect(value, bool, kind, where, holder)
    return value


def _whole(kind: Type, value: Any, where: str, holder: str) -> Any:
    _expect(value, (int, float), kind, where, holder)
    bits = 31 if kind.go == "int32" else 63
    if isinstance(value, float) or not -(2**bits) <= value < 2**bits:
        raise _mismatch(value, kind, where, holder, f" {value}")
    return value


def _number(kind: Type, value: Any, where: str, holder: str) -> Any:
    _expect(value, (int, float), kind, where, holder)
    return value


def _moment(kind: Type, value: Any, where: str, holder: str) -> Any:
    _expect(value, str, kind, where, holder)
    try:
        if datetime.fromisoformat(value).tzinfo is not None and "T" in value:
            return value
    except ValueError:
        pass
    layout = "2006-01-02T15:04:05Z07:00" if kind.go == "v1.Time" else "2006-01-02T15:04:05.000000Z07:00"
    raise Mistyped(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')


def _either(kind: Type, value: Any, where: str, holder: str) -> Any:
    if isinstance(value, str):
        return value
    wanted = Type("integer", "int32") if _is_number(value) else kind
    return _whole(wanted, value, where, holder)


def _amount(_: Type, value: Any, __: str, ___: str) -> Any:
    try:
        return canonical(value) if isinstance(value, str) or _is_number(value) else canonical("")
    except QuantityError as error:
        raise Mistyped(str(error)) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SCALARS: Mapping[str, Callable[[Type, Any, str, str], Any]] = {
    "string": _text,
    "boolean": _flag,
    "integer": _whole,
    "number": _number,
    "time": _moment,
    "quantity": _amount,
    "int-or-string": _either,
}
