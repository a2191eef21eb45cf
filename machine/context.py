"""A call must end when its caller says so, not when a server pleases; and tests must be able to say what time it is.

A `Context` carries a deadline and a cancellation down through a call, a `Clock` carries the time. Both are passed in,
never looked up, so that one process can hold many calls with different ends and a test can own the time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Literal, Protocol, Self

Ended = Literal["deadline", "cancelled"]


class Clock(Protocol):
    """Where a call reads the time and waits; the system's by default, a test's own where it wants to hold time."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        ...

    def now(self) -> datetime:
        """The date and time, in UTC."""
        ...

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait for the event, at most `timeout` seconds of this clock; whether the event is set."""
        ...


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    def now(self) -> datetime:
        """The date and time, in UTC."""
        return datetime.now(UTC)

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait for the event, at most `timeout` seconds; whether it is set."""
        # A longer wait than threads allow (some 292 years) is an endless one.
        return event.wait(None if timeout is None or timeout > threading.TIMEOUT_MAX else timeout)


_SYSTEM_CLOCK = SystemClock()


class Context:
    """A deadline and a cancellation, honoured inside every request of the call it is given to.

    Made by `background`, `with_timeout`, `with_deadline` or `child`. Thread-safe. A child ends when its parent does,
    and never later.
    """

    __slots__ = ("_line", "clock", "deadline")

    clock: Clock
    """The clock by which this context ends; a child has its parent's."""
    deadline: float | None
    """When it ends, in the clock's monotonic seconds; None for never."""

    def __init__(self, *, deadline: float | None, clock: Clock, above: tuple[_Cancellation, ...] = ()) -> None:
        self.clock = clock
        self.deadline = deadline
        # Its own and those of all its parents. Parents know of callbacks only, never of children: one that lives long
        # does not keep the contexts of finished calls.
        self._line = (_Cancellation(), *above)

    @classmethod
    def background(cls, *, clock: Clock = _SYSTEM_CLOCK) -> Self:
        """A context without a deadline; it ends only by `cancel`."""
        return cls(deadline=None, clock=clock)

    @classmethod
    def with_timeout(cls, seconds: float, *, clock: Clock = _SYSTEM_CLOCK) -> Self:
        """A context that ends `seconds` from now; zero or less has ended already. ErrInvalid if not a number."""
        return cls(deadline=clock.monotonic() + _number("seconds", seconds), clock=clock)

    @classmethod
    def with_deadline(cls, at: float, *, clock: Clock = _SYSTEM_CLOCK) -> Self:
        """A context that ends at `at`, in the clock's monotonic seconds. ErrInvalid if not a number."""
        return cls(deadline=_number("at", at), clock=clock)

    def child(self, *, timeout: float | None = None) -> Self:
        """A context that ends with this one, or `timeout` seconds from now if that is sooner."""
        deadline = self.deadline
        if timeout is not None:
            own = self.clock.monotonic() + _number("timeout", timeout)
            deadline = own if deadline is None else min(own, deadline)
        return type(self)(deadline=deadline, clock=self.clock, above=self._line)

    def cancel(self) -> None:
        """End it, and every child, now. Again: nothing. What `on_cancel` was given runs in this thread."""
        self._line[0].cancel(self.clock.monotonic())

    @property
    def ended(self) -> Ended | None:
        """How it ended, whichever came first; None while it has not."""
        cancelled_at = min((each.at for each in self._line if each.at is not None), default=None)
        if cancelled_at is not None:
            return "deadline" if self.deadline is not None and cancelled_at >= self.deadline else "cancelled"
        if self.deadline is not None and self.clock.monotonic() >= self.deadline:
            return "deadline"
        return None

    def remaining(self) -> float | None:
        """Seconds left until the deadline, never negative; None without one."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self.clock.monotonic())

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` run once, when this or a parent is cancelled; at once if it is. Returns how to undo that.

        Undoing does not wait for a callback that is already running in another thread.
        """
        once = _Once(callback)
        undo = [each.subscribe(once) for each in self._line]

        def unsubscribe() -> None:
            for each in undo:
                each()

        return unsubscribe

    def wait(self, seconds: float | None) -> bool:
        """Wait so long (None: until it ends), or until the context ends if that is sooner; whether it has ended."""
        if self.ended is not None:
            return True
        remaining = self.remaining()
        bounds = [bound for bound in (seconds, remaining) if bound is not None]
        cancelled = threading.Event()
        unsubscribe = self.on_cancel(cancelled.set)
        try:
            self.clock.wait(cancelled, min(bounds, default=None))
        finally:
            unsubscribe()
        return self.ended is not None


class _Cancellation:
    """The cancelling of one context: when, and who wants to know."""

    __slots__ = ("_callbacks", "_lock", "at")

    def __init__(self) -> None:
        self.at: float | None = None
        self._lock = threading.Lock()
        self._callbacks: dict[object, Callable[[], None]] = {}

    def cancel(self, at: float) -> None:
        with self._lock:
            if self.at is not None:
                return
            self.at = at
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        with ExitStack() as stack:  # one that raises does not keep the others from running
            for callback in reversed(callbacks):
                stack.callback(callback)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        key = object()
        with self._lock:
            cancelled = self.at is not None
            if not cancelled:
                self._callbacks[key] = callback
        if cancelled:
            callback()

        def unsubscribe() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return unsubscribe


class _Once:
    """A callback subscribed at several contexts of one line, that must run for the first cancellation only."""

    __slots__ = ("_callback", "_lock", "_ran")

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._lock = threading.Lock()
        self._ran = False

    def __call__(self) -> None:
        with self._lock:
            if self._ran:
                return
            self._ran = True
        self._callback()


def _number(name: str, value: object) -> float:
    seconds = _seconds(value)
    if math.isnan(seconds):
        from .inputs import refuse  # noqa: PLC0415 - importing the package must stay quick

        refuse("context", operation="parse", key=name, value=value, rule="a number of seconds")
    return seconds


def _seconds(value: object) -> float:
    """The number; not-a-number for what is none, or is beyond all numbers of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
