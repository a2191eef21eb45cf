"""Every committed write in order, for watches resume from it and lists look back through it until it is compacted."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from dispatch_kubeflow.backend.embedded.copying import copied
from dispatch_kubeflow.backend.requests.resources import Resource

Object = dict[str, Any]
EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Key = tuple[str, str]
"""A resource as the store keys it: group and plural, whatever the version."""

_ENCODER = msgspec.json.Encoder()


class Stored:
    """One committed state of one object. `obj` is never changed after the commit, so its encoding is kept."""

    __slots__ = ("_bare", "_encoded", "obj", "place", "version")

    def __init__(self, obj: Object, place: tuple[str, str], version: int) -> None:
        self.obj = obj
        self.place = place
        self.version = version
        self._encoded: bytes | None = None
        self._bare: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The object as JSON."""
        if self._encoded is None:
            self._encoded = encode(self.obj)
        return self._encoded

    @property
    def bare(self) -> bytes:
        """The object as JSON without its kind, as the lists of built-in kinds hold it."""
        if self._bare is None:
            self._bare = encode({key: value for key, value in self.obj.items() if key not in ("apiVersion", "kind")})
        return self._bare


def encode(value: Any) -> bytes:
    """Compact JSON; a lone surrogate, which JSON text may name and UTF-8 cannot, is escaped."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Event:
    """One committed change. `state` is the object after it, for a deletion its last state; `before` the one before."""

    type: EventType
    resource: Resource
    state: Stored
    before: Stored | None

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def object(self) -> Object:
        """A copy of the object, free to change."""
        return copied(self.state.obj)  # type: ignore[no-any-return]  # a dict's copy is a dict

    @property
    def peek(self) -> Object:
        """The stored object itself, to read and never to change."""
        return self.state.obj


@dataclass(frozen=True, slots=True)
class Commit:
    """Ground truth: one write that took effect, its version and who asked for it."""

    version: int
    verb: str
    resource: Resource
    namespace: str
    name: str
    uid: str
    subresource: str | None
    manager: str
    request: str | None


@dataclass(slots=True)
class History:
    """The events of one store, by resource, down to the version they were compacted at."""

    limit: int
    compacted: int = 0
    by_key: dict[Key, list[Event]] = field(default_factory=dict)

    def append(self, event: Event) -> None:
        events = self.by_key.setdefault((event.resource.group, event.resource.plural), [])
        events.append(event)
        if len(events) > 2 * self.limit:
            self.compact(events[-self.limit - 1].version)

    def after(self, key: Key, version: int) -> list[Event]:
        """The events of a resource later than a version, oldest first."""
        events = self.by_key.get(key, [])
        return events[bisect_right(events, version, key=_version) :]

    def compact(self, version: int) -> None:
        """Forget everything up to and including a version."""
        self.compacted = max(self.compacted, version)
        for key, events in self.by_key.items():
            self.by_key[key] = events[bisect_right(events, version, key=_version) :]

    def rewound(self, key: Key, now: dict[tuple[str, str], Stored], version: int) -> dict[tuple[str, str], Stored]:
        """The objects of a resource as they stood at a version not yet compacted."""
        then = dict(now)
        for event in reversed(self.after(key, version)):
            if event.before is None:
                then.pop(event.state.place, None)
            else:
                then[event.state.place] = event.before
        return then


def _version(event: Event) -> int:
    return event.state.version


class Subscription:
    """A controller's ordered queue of events. Nothing runs by itself: who holds it takes from it when it likes."""

    def __init__(self, keys: frozenset[Key] | None, wake: Callable[[], None] | None) -> None:
        self._keys = keys
        self._wake = wake
        self._queue: deque[Event] = deque()

    def offer(self, event: Event) -> None:
        """Add an event if it is of a resource asked for, and wake the holder."""
        if self._keys is None or (event.resource.group, event.resource.plural) in self._keys:
            self._queue.append(event)
            if self._wake is not None:
                self._wake()

    def __len__(self) -> int:
        return len(self._queue)

    def next(self) -> Event | None:
        """The oldest event not yet taken, or None."""
        return self._queue.popleft() if self._queue else None

    def drain(self) -> Iterator[Event]:
        """Events until there is none left, those included that are caused by what the caller does meanwhile."""
        while (event := self.next()) is not None:
            yield event
