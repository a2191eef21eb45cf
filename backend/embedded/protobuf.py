"""Objects as kubectl sends them: in Kubernetes' protobuf.

An object is `k8s\\0` and an `Unknown` message: its type, then its own message as bytes. Fields and their numbers are
those of Kubernetes' own documents (`schemas/structs.py`). Answers are JSON, which kubectl takes as well; only a refusal
to one who takes nothing else is told in protobuf.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from dispatch_kubeflow.backend.embedded.schemas.structs import Struct, Type

Object = dict[str, Any]

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_PLAIN = frozenset(
    {"generation", "hostIPC", "hostNetwork", "hostPID", "hostPort", "readOnly", "stdin", "stdinOnce", "tty"}
)
"""Numbers and flags that are no pointers in Go: to be 0 or false is to be unset."""


class Unreadable(ValueError):
    """Bytes that are no object in protobuf; the message says why."""


def read(body: bytes, component: str) -> Object:
    """The object of a component's struct that a body holds, as JSON would have it."""
    if not body.startswith(_MAGIC):
        raise Unreadable("the body is not in Kubernetes' protobuf")
    found: Object = {}
    raw = b""
    for number, value in _members(body[len(_MAGIC) :]):
        if number == 1:
            for inner, text in _members(_bytes(value)):
                found[{1: "apiVersion", 2: "kind"}.get(inner, "")] = _bytes(text).decode()
        elif number == 2:
            raw = _bytes(value)
    return {**found, **_message(raw, Struct.of(component))}


def status(body: Object) -> bytes:
    """A `Status` without details, as one who reads nothing but protobuf is told it."""
    metadata = _member(1, _member(1, b"") + _member(2, b"") + _member(3, b""))
    parts = [(2, body["status"]), (3, body["message"]), (4, body.get("reason", ""))]
    told = metadata + b"".join(_member(number, text.encode()) for number, text in parts)
    told += bytes([6 << 3]) + _number(body["code"])
    named = _member(1, b"v1") + _member(2, b"Status")
    return _MAGIC + _member(1, named) + _member(2, told) + _member(3, b"") + _member(4, b"")


def _member(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _number(len(data)) + data


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _message(message: bytes, struct: Struct) -> Object:
    found: Object = {}
    for number, value in _members(message):
        inline = struct.inline.get(number)
        if inline is not None:
            found |= _message(_bytes(value), Struct.of(inline))
            continue
        name = struct.numbers.get(number)
        if name is not None:
            _put(found, name, struct.fields[name], value)
    return found


def _put(found: Object, name: str, kind: Type, value: int | bytes) -> None:
    if kind.form == "map":
        entry = dict(_members(_bytes(value)))
        assert kind.inner is not None  # a map always has values
        key = _bytes(entry.get(1, b"")).decode()
        found.setdefault(name, {})[key] = _value(kind.inner, entry.get(2, b""))
    elif kind.form == "array":
        assert kind.inner is not None  # an array always has items
        found.setdefault(name, []).append(_value(kind.inner, value))
    else:
        made = _value(kind, value)
        # Go writes what was never set as empty, too.
        if made not in ("", {}, None) and (made or name not in _PLAIN):
            found[name] = made


def _value(kind: Type, value: int | bytes) -> Any:
    if kind.form == "struct":
        return _message(_bytes(value), Struct.of(kind.struct))
    if kind.form in ("boolean", "integer"):
        number = _whole(value)
        return bool(number) if kind.form == "boolean" else number
    data = _bytes(value)
    if kind.form == "time":
        return _moment(dict(_members(data)), kind.go == "v1.MicroTime")
    if kind.form == "quantity":
        return _bytes(dict(_members(data)).get(1, b"")).decode()
    if kind.form == "int-or-string":
        told = dict(_members(data))
        return _bytes(told.get(3, b"")).decode() if told.get(1) else _whole(told.get(2, 0))
    if kind.form == "any":
        return json.loads(_bytes(dict(_members(data)).get(1, b"")) or b"{}")
    return base64.b64encode(data).decode() if kind.go == "[]uint8" else data.decode()


def _moment(told: dict[int, int | bytes], fine: bool) -> str | None:
    if not told:
        return None
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=_whole(told.get(1, 0)))
        moment += timedelta(microseconds=_whole(told.get(2, 0)) // 1000)
    except OverflowError:
        raise Unreadable("a time that no calendar has") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if fine else "%Y-%m-%dT%H:%M:%SZ")


def _whole(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise Unreadable("a text or a message stands where a number belongs")
    return value - 2**64 if value >= 2**63 else value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise Unreadable("a number stands where a text or a message belongs")
    return value


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
            raise Unreadable(f"no field of these objects is of wire type {wire}")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message):
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return value, place
    raise Unreadable("the body ends in the midst of a number")
