"""A name's look-up can hang in the C library for minutes, and nothing can interrupt it: so it runs beside the call.

At most four threads look names up, one a name. A call that gives up leaves its look-up running; the next call for that
name joins it instead of starting another.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .call import SLICE, Call

Address = tuple[socket.AddressFamily, socket.SocketKind, int, tuple[Any, ...]]
"""Family, kind, protocol and socket address."""

_THREADS = 4


class _Lookup:
    def __init__(self, host: str) -> None:
        self.host = host
        self.done = threading.Event()
        self.found: list[Any] = []
        self.error: Exception | None = None


class Resolver:
    """Names to addresses, bounded by the call that asks."""

    def __init__(self, lookup: Callable[..., list[Any]] = socket.getaddrinfo) -> None:
        self._lookup = lookup
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[_Lookup] = deque()
        self._by_host: dict[str, _Lookup] = {}

    def resolve(self, host: str, port: int, call: Call) -> list[Address]:
        """The addresses of `host`, in the system's order. Raises OSError, UnicodeError or Abandoned."""
        try:
            found = self._numeric(host)
        except socket.gaierror:
            found = self._named(host, call)
        return [
            (family, kind, protocol, (address[0], port, *address[2:])) for family, kind, protocol, _, address in found
        ]

    def _numeric(self, host: str) -> list[Any]:
        return socket.getaddrinfo(host, None, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)

    def _named(self, host: str, call: Call) -> list[Any]:
        lookup = self._join(host)
        while not lookup.done.wait(min(call.left(), SLICE)):
            pass
        if isinstance(lookup.error, socket.gaierror):
            raise socket.gaierror(*lookup.error.args)  # several calls may wait for this one: each gets its own
        if lookup.error is not None:
            raise OSError(f"{host!r} is not a name that can be looked up: {lookup.error}")
        return lookup.found

    def _join(self, host: str) -> _Lookup:
        with self._lock:
            lookup = self._by_host.get(host)
            if lookup is None:
                lookup = self._by_host[host] = _Lookup(host)
                self._waiting.append(lookup)
                if self._running < _THREADS:
                    self._running += 1
                    threading.Thread(target=self._work, name="dispatch-kubeflow-names", daemon=True).start()
        return lookup

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                lookup = self._waiting.popleft()
            try:
                lookup.found = self._lookup(lookup.host, None, 0, socket.SOCK_STREAM)
            except Exception as error:  # noqa: BLE001 - it belongs to the calls that wait, whatever it is
                lookup.error = error
            with self._lock:
                del self._by_host[lookup.host]
            lookup.done.set()
