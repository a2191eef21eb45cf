"""Whether a request was sent must be known, never inferred: so one object a request says where it stands.

A `Call` is one attempt at one request. It holds the marker ("the first byte was handed to a connected socket"), the
bound until which anything of this request may take time, and the cancellation. Marker and end are taken under one lock:
a call that has ended can never send later, and a call that has sent can never be called unsent.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.context import Context

Ended = Literal["deadline", "cancelled", "timeout"]
"""How a call ended early: its context's deadline, its context's cancellation, or the bound of one request."""

# Waits that a cancellation cannot wake by itself (a name's look-up, a dial, a plugin) look up this often, in seconds.
SLICE = 0.01
# The longest timeout handed to a socket, in seconds: an endless one would be refused by the C library.
LONGEST = 86_400.0


class Abandoned(Exception):
    """The call ended before what was being waited for came."""


class Sending(Protocol):
    """What the marker needs of a socket, TLS or not."""

    def settimeout(self, value: float | None, /) -> None: ...

    def send(self, data: memoryview, /) -> int: ...


class Call:
    """One attempt at one request: its bound, its cancellation, its marker.

    `limit` is the bound of this request in seconds, however far away the context's deadline is; `monotonic` the time by
    which its connection waits.
    """

    __slots__ = (
        "_bound",
        "_context_bound",
        "_killer",
        "_lock",
        "_monotonic",
        "_nearer",
        "_stop",
        "_unsubscribe",
        "ended",
        "sent",
    )

    def __init__(self, ctx: Context, limit: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        # Re-entrant: a signal handler may cancel in the very thread that is handing over the first byte.
        self._lock = threading.RLock()
        self._killer: socket.socket | None = None
        self._stop: Callable[[], None] | None = None
        self.sent = False
        self.ended: Ended | None = None
        remaining = ctx.remaining()
        # Sockets wait by the machine's own time, whatever clock the context has.
        self._monotonic = monotonic
        self._context_bound = math.inf if remaining is None else monotonic() + remaining
        self._nearer: Ended = "timeout"
        self._bound = 0.0
        self.allow(limit)
        self._unsubscribe = ctx.on_cancel(self.cancel)

    def allow(self, limit: float) -> None:
        """Let what follows take `limit` seconds from now, but never past the context's deadline."""
        own = self._monotonic() + limit
        self._nearer = "timeout" if own < self._context_bound else "deadline"
        self._bound = min(own, self._context_bound)

    def left(self) -> float:
        """Seconds left, above zero; raises Abandoned when there are none or the call was cancelled."""
        if self.ended is None:
            left = self._bound - self._monotonic()
            if left > 0:
                return min(left, LONGEST)
            self.expire()
        raise Abandoned(self.why())

    def expire(self) -> None:
        """Note that the bound has passed, unless the call ended otherwise before."""
        with self._lock:
            if self.ended is None:
                self.ended = self._nearer

    def timed_out(self) -> None:
        """A socket's own timer fired: it was set to what was left, so the bound has passed, clock granularity aside."""
        if self._bound - self._monotonic() < SLICE:
            self.expire()

    def why(self) -> str:
        """What ended the call, as part of a sentence."""
        return {
            "deadline": "the context's deadline passed",
            "cancelled": "the context was cancelled",
            "timeout": "the bound of one request passed",
            None: "the request was given up",
        }[self.ended]

    def cancel(self) -> None:
        """End the call now: whatever its thread is blocked in returns at once. From any thread."""
        with self._lock:
            if self.ended is None:
                self.ended = "cancelled"
            if self._stop is not None:
                self._stop()
            if self._killer is not None:
                _shut(self._killer)

    def attach(self, killer: socket.socket) -> None:
        """Say which connection a cancellation shuts down; raises Abandoned if it came before."""
        with self._lock:
            self._killer = killer
        if self.ended is not None:
            raise Abandoned(self.why())

    def stop_with(self, stop: Callable[[], None] | None) -> None:
        """Say what else a cancellation stops (a child process); raises Abandoned if it came before."""
        with self._lock:
            self._stop = stop
        if stop is not None and self.ended is not None:
            raise Abandoned(self.why())

    def detach(self) -> None:
        """Let go of the connection: a late cancellation must not hit whoever uses it next."""
        with self._lock:
            self._killer = None

    def close(self) -> None:
        """The call is over; its context forgets it."""
        self._unsubscribe()
        self.detach()

    def send(self, sock: Sending, data: bytes) -> None:
        """Hand the whole request over; from the first byte on, the call counts as sent.

        Raises Abandoned, with `sent` still False, if the call ended before that byte.
        """
        view = memoryview(data)
        with self._lock:
            # One lock over the last check, the mark and the first hand-over: nothing can end the call in between. The
            # socket has just been connected or found idle, so its buffer is empty and this does not block.
            sock.settimeout(self.left())
            self.sent = True
            done = sock.send(view)
        while done < len(view):
            sock.settimeout(self.left())
            done += sock.send(view[done:])


class Pause:
    """A wait between two requests that ends with its context, or by `cancel`."""

    __slots__ = ("_cancelled", "_ctx")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """End the wait now. From any thread."""
        self._cancelled.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long by the context's clock, or until it ends; whether it, or this, has ended."""
        remaining = self._ctx.remaining()
        unsubscribe = self._ctx.on_cancel(self._cancelled.set)
        try:
            self._ctx.clock.wait(self._cancelled, seconds if remaining is None else min(seconds, remaining))
        finally:
            unsubscribe()
        return self._cancelled.is_set() or self._ctx.ended is not None


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Not connected yet, or no longer: there is nothing to wake, and the thread's next step sees `ended`.
        return
