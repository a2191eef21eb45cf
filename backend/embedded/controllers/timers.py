"""Controllers act later (deadlines, back-offs, grace periods) without a thread or a poll; one heap on the cluster's
clock does it.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import Protocol


class Monotonic(Protocol):
    """The part of a clock that timers need."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        ...


class Timer:
    """One thing to do at `due` (seconds of the clock's `monotonic`)."""

    __slots__ = ("action", "cancelled", "due")

    def __init__(self, due: float, action: Callable[[], None]) -> None:
        self.due = due
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        """Never run the action; void after it has run."""
        self.cancelled = True


class Timers:
    """Actions in the order of their time; equal times in the order they were asked for. `changed` is called when a
    new one is the first.
    """

    def __init__(self, clock: Monotonic, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._lock = threading.Lock()

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Run `action` in the pump, `seconds` from now."""
        timer = Timer(self._clock.monotonic() + seconds, action)
        with self._lock:
            heapq.heappush(self._heap, (timer.due, next(self._count), timer))
            first = self._heap[0][2] is timer
        if first:
            self._changed()
        return timer

    def next_due(self) -> float | None:
        """When the first action is due; None when there is none."""
        with self._lock:
            while self._heap and self._heap[0][2].cancelled:
                heapq.heappop(self._heap)
            return self._heap[0][0] if self._heap else None

    def pop_due(self) -> Timer | None:
        """The first action whose time has come, taken out; None when there is none."""
        due = self.next_due()
        if due is None or due > self._clock.monotonic():
            return None
        with self._lock:
            return heapq.heappop(self._heap)[2]
