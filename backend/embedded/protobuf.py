"""Access reviews as kubectl sends them: in Kubernetes' protobuf, which nothing else of this server reads.

An object is `k8s\\0` and an `Unknown` message: its type, then its own message as bytes. Only the fields of the reviews
are known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
Fields = dict[int, tuple[str, Any]]

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_RESOURCE: Fields = {
    number: (name, str)
    for number, name in enumerate(("namespace", "verb", "group", "version", "resource", "subresource", "name"), 1)
}
_ATTRIBUTES: Fields = {
    1: ("resourceAttributes", _RESOURCE),
    2: ("nonResourceAttributes", {1: ("path", str), 2: ("verb", str)}),
}
_OTHERS: Fields = {**_ATTRIBUTES, 3: ("user", str), 4: ("groups", [str]), 6: ("uid", str)}
_SPECS: dict[str, Fields] = {
    "SelfSubjectAccessReview": _ATTRIBUTES,
    "SubjectAccessReview": _OTHERS,
    "LocalSubjectAccessReview": _OTHERS,
    "SelfSubjectRulesReview": {1: ("namespace", str)},
}


class Unreadable(ValueError):
    """Bytes that are no review in protobuf; the message says why."""


def review(body: bytes) -> Object:
    """The review that a body holds, as JSON would have it."""
    if not body.startswith(_MAGIC):
        raise Unreadable("the body is not in Kubernetes' protobuf")
    unknown = _read(body[len(_MAGIC) :], {1: ("type", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)})
    said: Object = unknown.get("type") or {}
    fields = _SPECS.get(said.get("kind", ""))
    if fields is None:
        raise Unreadable(f"no review is of kind {said.get('kind')!r}")
    return {**said, "spec": _read(unknown.get("raw") or b"", {2: ("spec", fields)}).get("spec") or {}}


def _read(message: bytes, fields: Fields) -> Object:
    found: Object = {}
    for number, value in _members(message):
        name, kind = fields.get(number, ("", None))
        if kind is None or not isinstance(value, bytes):
            continue
        if isinstance(kind, dict):
            found[name] = _read(value, kind)
        elif isinstance(kind, list):
            found.setdefault(name, []).append(value.decode())
        else:
            found[name] = value.decode() if kind is str else value
    return found


def _members(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The members of a message: field number, and a number or the bytes of a length-delimited one."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        wire = tag & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield tag >> 3, value
        elif wire == 2:
            length, place = _varint(message, place)
            if place + length > len(message):
                raise Unreadable("the body ends in the midst of a field")
            yield tag >> 3, message[place : place + length]
            place += length
        else:
            raise Unreadable(f"no field of a review is of wire type {wire}")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message):
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return value, place
    raise Unreadable("the body ends in the midst of a number")
