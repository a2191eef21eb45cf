"""The same schedules over real sockets: urllib3's pool, TLS on the loopback and the embedded cluster's own server take
the place of the stream in memory, and the oracle stays. Time is still virtual; what is left out is what a server cannot
do to its clients (faults of dialling, of the caller's own process, of slowness) and watches, which wait in real time.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dispatch_kubeflow.backend.embedded.messages import Answer, Request, of_object
from dispatch_kubeflow.backend.embedded.server import Server
from dispatch_kubeflow.backend.requests.access import ClusterAccess

from .wire import Access, Actor, Exchange, Wire, decoded, describe, made, note

if TYPE_CHECKING:
    from collections.abc import Mapping

FAULTS = frozenset(
    {
        *("token", "crash-before", "stale", "reset-first", "drop", "lost", "late"),
        *("cut", "garbled", "answer", "rewritten", "kind"),
    }
)
"""The faults that are met here; a schedule's others are passed over."""
CALLS_LEFT_OUT = frozenset({"watch"})


class Sockets:
    """One server for all worlds, one after the other; a context manager."""

    def __init__(self) -> None:
        self.other_end = OtherEnd()
        self._server = Server(self.other_end)  # type: ignore[arg-type] # as much of one as a server uses
        self._pools: list[Any] = []

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_pools()
        self._server.stop()

    def access(self, wire: Wire, actor: Actor) -> SocketAccess:
        """A caller's way to the server, which from here on serves the world of this wire."""
        self.other_end.wire = wire
        found = SocketAccess(self, wire, actor)
        self._pools.append(found.pool)
        return found

    def address(self) -> ClusterAccess:
        return ClusterAccess.at(self._server.url, authorities=self._server.authority.certificate.decode())

    def close_pools(self) -> None:
        """No connection outlives its world."""
        for pool in self._pools:
            pool.close()
        self._pools.clear()

    def drop_idle(self) -> None:
        """Every connection is reset, as by a server that restarts: what idles in a pool is stale."""
        for connection in list(self._server._connections):
            connection.reset()
            connection.join(5.0)


class SocketAccess(Access):
    """As `Access`, by the pool that the official client makes."""

    def __init__(self, sockets: Sockets, wire: Wire, actor: Actor) -> None:
        super().__init__(wire, actor)
        address = sockets.address()
        self.host, self.headers = address.host, {}
        self.pool = SocketConnections(sockets, actor, address.connect())
        self.pool.monotonic = wire.turns.clock.monotonic

    headers: Mapping[str, str]

    def connect(self, certificate: Any = None) -> Any:
        return self.pool


class SocketConnections:
    """The real pool, with the schedule's time, and with connections that were closed while they were idle."""

    def __init__(self, sockets: Sockets, actor: Actor, pool: Any) -> None:
        self._sockets = sockets
        self._actor = actor
        self._pool = pool
        self.prefix = pool.prefix
        self.give_back, self.discard, self.close = pool.give_back, pool.discard, pool.close
        self.monotonic = pool.monotonic

    def take(self, call: Any) -> Any:
        exchange = self._actor.pending
        if exchange is not None and exchange.fault is not None and exchange.fault.kind == "stale":
            self._sockets.drop_idle()
        return self._pool.take(call)


class OtherEnd:
    """What the server asks in the place of an apiserver: the one request under way gets its fault, or its answer."""

    wire: Wire

    @property
    def store(self) -> Any:
        return self.wire.apiserver.store

    def handle(self, request: Request) -> Answer:
        """Raises OSError where the connection is to break; the server closes it then."""
        wire = self.wire
        exchange = wire.current
        assert exchange is not None
        raw = f"{request.method} {request.target} HTTP/1.1\r\n".encode("latin-1")
        raw += b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in request.headers.items())
        raw += b"\r\n" + request.body
        describe(exchange, raw)
        exchange.sent, exchange.raw = True, raw
        exchange.answered = wire.turns.clock.monotonic()
        kind = exchange.fault.kind if exchange.fault is not None else ""
        if kind in ("reset-first", "drop"):
            raise ConnectionResetError(kind)
        if kind == "late":
            assert exchange.fault is not None
            wire.pending.append(exchange)
            wire.later(exchange.fault.seconds, lambda: self._late(exchange))
            raise ConnectionResetError(kind)
        return self._answered(exchange, raw, kind)

    def _answered(self, exchange: Exchange, raw: bytes, kind: str) -> Answer:
        wire, fault = self.wire, exchange.fault
        if kind == "answer":
            assert fault is not None
            answer = made(exchange, fault)
        else:
            answer = wire.deliver(exchange, raw)
            wire.after(exchange)
        if kind == "lost":
            raise ConnectionResetError(kind)
        if kind == "rewritten":
            assert fault is not None
            answer = made(exchange, fault)
        if kind == "kind" and answer.status < 300:
            answer = of_object({**decoded(answer.body), "apiVersion": "example.com/v7", "kind": "Another"})
        return self._given(exchange, answer, kind)

    def _given(self, exchange: Exchange, answer: Answer, kind: str) -> Answer:
        """The answer as it goes out, whole or damaged; and what of it the caller gets."""
        if answer.chunks is not None:
            answer.body, answer.chunks = b"".join(answer.chunks), None
        damaged = kind in ("cut", "garbled") and bool(answer.body)
        note(exchange, answer, damaged=damaged, head_whole=True)
        if not damaged:
            return answer
        assert exchange.fault is not None
        at = min(len(answer.body) - 1, int(len(answer.body) * exchange.fault.share))
        if kind == "garbled":
            body = answer.body[:at] + bytes([answer.body[at] ^ 0xFF]) + answer.body[at + 1 :]
            return Answer(answer.status, body, answer.content_type, answer.headers)
        return Answer(
            answer.status, content_type=answer.content_type, headers=answer.headers, chunks=_cut(answer.body[:at])
        )

    def _late(self, exchange: Exchange) -> None:
        self.wire.pending.remove(exchange)
        self.wire.deliver(exchange, exchange.raw)
        self.wire.after(exchange)


def _cut(body: bytes) -> Iterator[bytes]:
    if body:
        yield body
    raise ConnectionResetError("cut")
