"""A webhook reads an object into Go types before any schema is looked at, and refuses what does not fit with a 400
in Go's words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.quantities import QuantityError, value

Object = dict[str, Any]


class DecodeError(ValueError):
    """The object does not fit its Go type; the message is what the webhook answers."""


@dataclass(frozen=True)
class Struct:
    """A Go struct: its name, as messages show it, and the types of the fields that can be got wrong."""

    name: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class ListOf:
    """A Go slice."""

    item: Any


@dataclass(frozen=True)
class MapOf:
    """A Go map with string keys."""

    item: Any


QUANTITY = "quantity"
_ENV = ListOf(Struct("EnvVar", {"name": "string", "value": "string"}))
_RESOURCES = Struct("ResourceRequirements", {"limits": MapOf(QUANTITY), "requests": MapOf(QUANTITY)})
_STEP = {"storageUri": "string", "env": _ENV}
TRAIN_JOB = Struct(
    "TrainJob",
    {
        "spec": Struct(
            "TrainJobSpec",
            {
                "suspend": "bool",
                "managedBy": "string",
                "activeDeadlineSeconds": "int64",
                "runtimeRef": Struct("RuntimeRef", {"name": "string", "apiGroup": "string", "kind": "string"}),
                "initializer": Struct(
                    "Initializer",
                    {"dataset": Struct("DatasetInitializer", _STEP), "model": Struct("ModelInitializer", _STEP)},
                ),
                "trainer": Struct(
                    "Trainer",
                    {
                        "image": "string",
                        "command": ListOf("string"),
                        "args": ListOf("string"),
                        "env": _ENV,
                        "numNodes": "int32",
                        "numProcPerNode": "int32",
                        "resourcesPerNode": _RESOURCES,
                    },
                ),
                "runtimePatches": ListOf(Struct("RuntimePatch", {"manager": "string"})),
            },
        )
    },
)
JOB_SET = Struct(
    "JobSet",
    {
        "spec": Struct(
            "JobSetSpec",
            {
                "suspend": "bool",
                "managedBy": "string",
                "ttlSecondsAfterFinished": "int32",
                "failurePolicy": Struct("FailurePolicy", {"maxRestarts": "int32"}),
                "replicatedJobs": ListOf(Struct("ReplicatedJob", {"name": "string", "replicas": "int32"})),
            },
        )
    },
)
_LIMITS = {"int32": 2**31, "int64": 2**63}


def check(form: Struct, obj: Object) -> None:
    """Raise DecodeError where `obj` does not fit `form`; fields `form` does not name are not looked at."""
    _check(form, obj, form.name, "")


def quantities(form: Any, obj: Any) -> Iterator[tuple[Object, str]]:
    """Every place (map and key) of `obj` where `form` has a quantity."""
    if isinstance(form, Struct) and isinstance(obj, dict):
        for field, inner in form.fields.items():
            if field in obj:
                yield from quantities(inner, obj[field])
    elif isinstance(form, MapOf) and isinstance(obj, dict):
        for key, item in obj.items():
            if form.item == QUANTITY:
                yield obj, key
            else:
                yield from quantities(form.item, item)
    elif isinstance(form, ListOf) and isinstance(obj, list):
        for item in obj:
            yield from quantities(form.item, item)


def _check(form: Any, given: Any, struct: str, path: str) -> None:
    if given is None:
        return
    if isinstance(form, Struct):
        _expect(given, dict, struct, path, f"v1alpha1.{form.name}")
        for field, inner in form.fields.items():
            _check(inner, given.get(field), form.name, f"{path}.{field}")
    elif isinstance(form, ListOf):
        _expect(given, list, struct, path, f"[]{_go_name(form.item)}")
        for item in given:
            _check(form.item, item, struct, path)
    elif isinstance(form, MapOf):
        _expect(given, dict, struct, path, "map[string]interface {}")
        for item in given.values():
            _check(form.item, item, struct, path)
    else:
        _check_scalar(form, given, struct, path)


def _check_scalar(form: str, given: Any, struct: str, path: str) -> None:
    if form == QUANTITY:
        try:
            value(given if isinstance(given, str) else str(given))
        except QuantityError as error:
            raise DecodeError(str(error)) from error
    elif form == "bool":
        _expect(given, bool, struct, path, "bool")
    elif form == "string":
        _expect(given, str, struct, path, "string")
    else:
        if isinstance(given, bool) or not isinstance(given, int | float) or not float(given).is_integer():
            _refuse(given, struct, path, form)
        if not -_LIMITS[form] <= given < _LIMITS[form]:
            _refuse(given, struct, path, form, f"number {_number(given)}")


def _number(given: float) -> int:
    # Go shows a number that no int64 holds by the digits of its float.
    return int(given) if abs(given) < _LIMITS["int64"] else int(Decimal(repr(float(given))))


def _go_name(form: Any) -> str:
    return f"v1.{form.name}" if isinstance(form, Struct) else str(form)


def _expect(given: Any, kind: type, struct: str, path: str, name: str) -> None:
    if not isinstance(given, kind):
        _refuse(given, struct, path, name)


def _refuse(given: Any, struct: str, path: str, name: str, what: str | None = None) -> None:
    said = what or _json_name(given)
    raise DecodeError(f"json: cannot unmarshal {said} into Go struct field {struct}{path} of type {name}")


def _json_name(given: Any) -> str:
    if isinstance(given, bool):
        return "bool"
    if isinstance(given, str):
        return "string"
    if isinstance(given, int | float):
        return "number" if float(given).is_integer() else f"number {given}"
    return "array" if isinstance(given, list) else "object"
