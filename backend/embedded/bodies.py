"""Bodies read as Go reads them: what a bad one is answered, and keys that come twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dispatch_kubeflow.backend.embedded import protobuf
from dispatch_kubeflow.backend.embedded.errors import ApiError, bad_request, too_large, unregistered, unsupported_media
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.schemas.structs import StructSchema, struct_schema
from dispatch_kubeflow.backend.requests.resources import Resource

Object = dict[str, Any]

LIMIT = 3 * 1024 * 1024
_OBJECT_TYPES = ("application/json", "application/yaml")


class _Pairs(list[tuple[str, Any]]):
    """An object's members as written, duplicates and all."""


def media_type(headers: Mapping[str, str]) -> str:
    """The content type without its parameters; JSON when none is said."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() or "application/json"


def check_object_type(headers: Mapping[str, str]) -> str:
    """The content type of an object; 415 for one that cannot be read."""
    media = media_type(headers)
    if media not in (*_OBJECT_TYPES, protobuf.MEDIA):
        raise unsupported_media([*_OBJECT_TYPES, protobuf.MEDIA])
    return media


def check_size(body: bytes) -> None:
    """413 for a body over the apiserver's limit."""
    if len(body) > LIMIT:
        raise too_large()


def object_body(kind: Kind, headers: Mapping[str, str], body: bytes) -> tuple[Object, list[str]]:
    """The object a create or a put carries, and the duplicate fields in it; 413, 415 or 400."""
    media = check_object_type(headers)
    check_size(body)
    resource = kind.resource
    if media == protobuf.MEDIA:
        return _of_protobuf(kind, body), []
    try:
        obj, twice = decoded(body, yaml=media == "application/yaml")
    except ValueError as error:
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {error}", body) from None
    if obj is not None and not isinstance(obj, dict):
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {_not_typed(obj)}", body)
    obj = obj or {}
    said_kind, said_version = obj.get("kind") or "", obj.get("apiVersion") or ""
    if not said_kind and kind.custom:
        raise _unrecognized(kind, f"Object 'Kind' is missing in '{body.decode(errors='replace')}'", body)
    known = (said_kind or resource.kind, said_version or resource.api_version)
    if not kind.custom and known != (resource.kind, resource.api_version):
        head = f'{known[0]} in version "{resource.version}" cannot be handled as a {resource.kind}'
        raise bad_request(f"{head}: {_foreign(kind, *known)}")
    if kind.custom and said_version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({said_version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    return obj, twice


def _of_protobuf(kind: Kind, body: bytes) -> Object:
    schema = kind.schema
    if not isinstance(schema, StructSchema):
        raise unsupported_media(_OBJECT_TYPES)
    try:
        obj = protobuf.read(body, schema.component)
    except ValueError as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.resource.kind}): {error}"
        ) from None
    if obj.get("kind") != kind.resource.kind:
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.resource.kind})")
    return obj


def _foreign(kind: Kind, said: str, version: str) -> str:
    """What is said of an object of another kind: that Kubernetes has none such, or cannot make one of the other."""
    group, _, short = version.rpartition("/")
    if struct_schema(Resource(group, short, "", said)) is None:
        return unregistered(said, version)
    home = kind.resource.group.partition(".")[0] or "core"
    return f"converting ({short}.{said}) to ({home}.{kind.resource.kind}): unknown conversion"


def decoded(body: bytes, *, yaml: bool = False) -> tuple[Any, list[str]]:
    """A body's value and the paths of its duplicate fields; ValueError says why it cannot be read."""
    try:
        text = body.decode()
        duplicated: list[bool] = []
        value = json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, duplicated), parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        if not yaml:
            raise ValueError(_go_words(body, error)) from None
        return _yaml(body), []
    if not duplicated:
        return value, []
    twice: list[str] = []
    _find_twice(json.loads(text, object_pairs_hook=_Pairs), "", twice)
    return value, twice


def _object(pairs: list[tuple[str, Any]], duplicated: list[bool]) -> Object:
    members = dict(pairs)
    if len(members) != len(pairs):
        duplicated.append(True)
    return members


def _find_twice(value: Any, path: str, twice: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            where = f"{path}.{key}" if path else key
            if key in seen:
                twice.append(where)
            seen.add(key)
            _find_twice(item, where, twice)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _find_twice(item, f"{path}[{index}]", twice)


def _yaml(body: bytes) -> Any:
    try:
        reader = YAML(typ="safe", pure=True)
        reader.version = (1, 1)
        return reader.load(body.decode())
    except (YAMLError, ValueError) as error:
        raise ValueError(f"error converting YAML to JSON: {error}") from None


def _refused(constant: str) -> Any:
    raise ValueError(f"invalid character '{constant[0]}' looking for beginning of value")


def _go_words(body: bytes, error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"invalid character '{chr(body[error.start])}' looking for beginning of value"
    position = getattr(error, "pos", None)
    text = body.decode(errors="replace")
    if position is None or position >= len(text) or str(error).startswith("Unterminated string"):
        return "unexpected end of JSON input" if position is not None else str(error)
    return f"invalid character '{text[position]}' looking for beginning of value"


def _unrecognized(kind: Kind, why: str, body: bytes) -> ApiError:
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind.resource.kind}): {why} ({_summary(body)})"
    )


def _not_typed(value: Any) -> str:
    names: dict[type, str] = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
    return (
        f"json: cannot unmarshal {names[type(value)]} into Go value of type "
        'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
    )


def _summary(body: bytes) -> str:
    if not body:
        return "<empty>"
    if body.startswith(b"{"):
        text = body.decode(errors="replace")
        return text if len(text) <= 30 else f"{text[:30]} ..."
    return body.hex() if len(body) <= 30 else f"{body[:30].hex()} ..."
