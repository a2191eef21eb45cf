"""An admission webhook may change a TrainJob between our hand and the store, and a changed job must not run: so it is
read back and compared, field by field, with what was written.

Exactly Trainer's `time` stamps, Kueue's own `runtimePatches` entry and another spelling of the same quantity are
allowed. A webhook may also keep a copy of what it read somewhere else, so what is secret is hidden by its place and,
wherever it stands, by its value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dispatch_kubeflow.machine.inputs import LONGEST_SHOWN, SECRET_KEYS, redacted
from dispatch_kubeflow.machine.secrets import hidden, values

from . import names, quantities
from .trainjob import our_spec

_SERVER_SET: Final = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"}
)
_KEYED_BY: Final = {"env": "name", "runtimePatches": "manager"}
_RESOURCES: Final = ("spec", "trainer", "resourcesPerNode")

_ABSENT: Final = object()
_Found = tuple[tuple[str, ...], object, object]
"""A path, and what was written and read there."""


class _Order(str):
    """The keys of a list, in its order."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that was written one way and read another; both as they may be shown."""

    path: str
    written: str
    read: str

    def __str__(self) -> str:
        return f"{self.path}: written {self.written}, read {self.read}"


def differences(written: Mapping[str, Any], read: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Where a TrainJob as read differs from the one written, the gravest first; empty if nowhere."""
    secrets = values(written)
    found = [
        Difference(_text(path, one), _shown(path, one, secrets), _shown(path, other, secrets))
        for path, one, other in _compare((), _comparable(written), _comparable(read))
    ]
    return tuple(sorted(found, key=lambda each: (_weight(each.path), each.path)))


def _weight(path: str) -> int:
    """What would make the job run, or queue, unasked is named before all else."""
    return 0 if path in {"spec.suspend", f"metadata.labels[{names.QUEUE_NAME}]"} else 1


def _comparable(trainjob: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in trainjob.items() if key != "status"}
    metadata = kept.get("metadata")
    if isinstance(metadata, Mapping):
        kept["metadata"] = {key: value for key, value in metadata.items() if key not in _SERVER_SET}
    kept["spec"] = our_spec(kept.get("spec"), keep_suspend=True)
    return kept


def _compare(path: tuple[str, ...], written: object, read: object) -> Iterator[_Found]:
    if isinstance(written, Mapping) and isinstance(read, Mapping):
        for key in sorted({*written, *read}):
            yield from _compare((*path, key), written.get(key, _ABSENT), read.get(key, _ABSENT))
    elif isinstance(written, list | tuple) and isinstance(read, list | tuple):
        yield from _compare_lists(path, written, read)
    elif not _same(path, written, read):
        yield path, written, read


def _compare_lists(
    path: tuple[str, ...], written: list[Any] | tuple[Any, ...], read: list[Any] | tuple[Any, ...]
) -> Iterator[_Found]:
    key = _KEYED_BY.get(path[-1]) if path else None
    if key is not None:
        first, second = _by_key(written, key), _by_key(read, key)
        if first is not None and second is not None:
            yield from _compare(path, first, second)
            if list(first) != list(second) and set(first) == set(second):
                yield path, _Order(", ".join(first)), _Order(", ".join(second))
            return
    for index in range(max(len(written), len(read))):
        one = written[index] if index < len(written) else _ABSENT
        other = read[index] if index < len(read) else _ABSENT
        yield from _compare((*path, str(index)), one, other)


def _by_key(items: list[Any] | tuple[Any, ...], key: str) -> dict[str, Any] | None:
    """The items by their key, in their order; None if that would lose one."""
    found: dict[str, Any] = {}
    for item in items:
        name = item.get(key) if isinstance(item, Mapping) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = item
    return found


def _same(path: tuple[str, ...], written: object, read: object) -> bool:
    if len(path) == len(_RESOURCES) + 2 and path[: len(_RESOURCES)] == _RESOURCES:
        return quantities.same(written, read)
    if isinstance(written, bool) or isinstance(read, bool):
        return written is read
    return written == read


def _text(path: tuple[str, ...], written: object) -> str:
    """A path as people write it; keys that hold a dot or a slash, and places in a list, in brackets."""
    text = ""
    for part in path:
        if part.isdigit() or "." in part or "/" in part or not part:
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return f"{text} (order)" if isinstance(written, _Order) else text


def _shown(path: tuple[str, ...], value: object, secrets: frozenset[str]) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, _Order):
        return value
    if not SECRET_KEYS.isdisjoint(path):
        return redacted(value)
    text = json.dumps(_redacted_within(value, secrets), sort_keys=True, default=str)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text)} characters)"


def _redacted_within(value: object, secrets: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: redacted(each) if key in SECRET_KEYS else _redacted_within(each, secrets)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted_within(each, secrets) for each in value]
    return hidden(value, secrets) if isinstance(value, str) else value
