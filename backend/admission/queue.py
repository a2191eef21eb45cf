"""What is to be looked at, each thing once and at its time: a change at once, what failed or waits later and later.

Only what is looked at again is held back, by a delay of its own and by a bound for all together; a change never is.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from dispatch_kubeflow.machine.context import Clock

FIRST_FAILURE, LONGEST_FAILURE = 0.05, 30.0
"""Seconds after the first failure; doubled each time, up to the longest."""
SHORTEST_WAIT, LONGEST_WAIT, SHARE = 0.1, 10.0, 0.1
"""Seconds between looks at what waits: a share of the time it has waited, within these bounds."""
AGAIN_PER_SECOND, AGAIN_AT_ONCE = 20.0, 100.0
"""How many looks are made again a second, and how many in a burst, of all things together."""


class Key(NamedTuple):
    """A thing to look at; the namespace is "" for what has none."""

    kind: str
    namespace: str
    name: str


@dataclass(slots=True)
class _Again:
    """How a thing has fared since it was last settled."""

    failures: int = 0
    waits_since: float | None = None


class WorkQueue:
    """Keys by the time at which they are due. One thread takes, any thread adds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._heap: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._since: dict[Key, float] = {}
        self._again: dict[Key, _Again] = {}
        self._count = 0
        self._tokens = AGAIN_AT_ONCE
        self._filled = clock.monotonic()

    def __len__(self) -> int:
        return len(self._due)

    @property
    def waiting(self) -> int:
        """How many wait for something to end."""
        return sum(each.waits_since is not None for each in tuple(self._again.values()))

    def add(self, keys: Iterable[Key]) -> None:
        """Look at these now."""
        now = self._clock.monotonic()
        with self._lock:
            for key in keys:
                self._since.setdefault(key, now)
                self._put(key, now)

    def take(self, seconds: float) -> Key | None:
        """The next that is due, within so many seconds; None if none is, or if it was woken."""
        until = self._clock.monotonic() + seconds
        while True:
            self._woken.clear()
            now = self._clock.monotonic()
            with self._lock:
                key = self._pop(now)
                due = self._heap[0][0] if self._heap else until
            if key is not None or now >= until:
                return key
            if self._clock.wait(self._woken, min(due, until) - now):
                with self._lock:
                    return self._pop(self._clock.monotonic())

    def settled(self, key: Key) -> float | None:
        """It needs no further look until it changes. Gives the seconds since it was first to be looked at."""
        with self._lock:
            self._again.pop(key, None)
            if key in self._due:
                return None
            since = self._since.pop(key, None)
        return None if since is None else self._clock.monotonic() - since

    def failed(self, key: Key) -> None:
        """Look again, later after each failure."""
        with self._lock:
            again = self._again.setdefault(key, _Again())
            again.waits_since = None
            delay = min(LONGEST_FAILURE, FIRST_FAILURE * 2**again.failures)
            again.failures = min(again.failures + 1, 30)
            self._put(key, self._clock.monotonic() + self._held_back(delay))

    def waits(self, key: Key) -> None:
        """Look again; the longer it has waited, the later."""
        now = self._clock.monotonic()
        with self._lock:
            again = self._again.setdefault(key, _Again())
            again.failures = 0
            if again.waits_since is None:
                again.waits_since = now
            delay = min(LONGEST_WAIT, max(SHORTEST_WAIT, SHARE * (now - again.waits_since)))
            self._put(key, now + self._held_back(delay))

    def is_waiting(self, key: Key) -> bool:
        """Whether the last look found that it has to wait."""
        again = self._again.get(key)
        return again is not None and again.waits_since is not None

    def wake(self) -> None:
        """Let `take` return."""
        self._woken.set()

    def _put(self, key: Key, due: float) -> None:
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))
        self._woken.set()

    def _pop(self, now: float) -> Key | None:
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) != due:
                heapq.heappop(self._heap)  # it has been brought forward since
            elif due > now:
                return None
            else:
                heapq.heappop(self._heap)
                del self._due[key]
                return key
        return None

    def _held_back(self, delay: float) -> float:
        """The delay, or the time until a token is there, whichever is longer."""
        now = self._clock.monotonic()
        self._tokens = min(AGAIN_AT_ONCE, self._tokens + (now - self._filled) * AGAIN_PER_SECOND)
        self._filled = now
        self._tokens -= 1
        return delay if self._tokens >= 0 else max(delay, -self._tokens / AGAIN_PER_SECOND)
