"""The wire between a caller and the cluster, in memory: it carries the very bytes that a socket would, breaks where the
schedule says, and keeps the truth about every request: handed over or not, committed or not, answered or not.

The request layer above it is the real one; only the pool of TLS connections is replaced.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from dispatch_kubeflow.backend.embedded import wire as http
from dispatch_kubeflow.backend.embedded.messages import Answer, Request, of_object
from dispatch_kubeflow.backend.requests.tokens import Credential, TokenFailed

from .turns import Crash, Turns

if TYPE_CHECKING:
    from dispatch_kubeflow.backend.embedded.apiserver import Apiserver
    from dispatch_kubeflow.backend.requests.call import Call
    from dispatch_kubeflow.machine.context import Context

BEFORE_SENDING = frozenset({"refused", "unresolved", "tls", "token", "slow-dial", "cancel-dial", "crash-before"})
"""Faults after which not a byte was handed over."""
UNDELIVERED = frozenset({"reset-first", "reset-half", "drop", "answer", "crash-lost", "late"})
"""Faults after which a byte was handed over, and the cluster did not get the request now."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request.

    refused, unresolved, tls, token: no connection, no credential. slow-dial: connecting takes `seconds`. cancel-dial:
    the caller cancels meanwhile. stale: the pooled connection was closed by its peer. reset-first, reset-half: the
    connection breaks after the first byte, or in the middle. drop: all is handed over, and nobody ever gets it. late:
    the same, but the cluster gets it after `seconds`. lost: it is done, and the answer never comes. cut: the answer
    breaks off after `share` of it. garbled: a byte of its body is damaged there. slow: the answer takes `seconds`.
    cancel: the caller cancels before the answer comes. answer: somebody in between answers `status`. rewritten: it is
    done, and somebody answers `status` instead. kind: the answer is of another kind. crash-before, crash-lost,
    crash-after: the caller's process dies before the request, after handing it over undelivered, after it was done.
    """

    kind: str
    status: int = 0
    reason: str = ""
    seconds: float = 0.0
    share: float = 0.5
    webhook: bool = False
    named: bool = True

    def __str__(self) -> str:
        parts = [self.kind]
        if self.status:
            parts.append(f"{self.status}{' ' + self.reason if self.reason else ''}")
        if self.webhook:
            parts.append("by a webhook")
        if self.kind == "answer" and self.status == 404:
            parts.append("of the object" if self.named else "of the path")
        if self.seconds:
            parts.append(f"{self.seconds:g} s")
        if self.kind in ("cut", "garbled"):
            parts.append(f"at {self.share:.0%}")
        return " ".join(parts)


@dataclass(slots=True)
class Exchange:
    """One request as the wire knows it.

    `sent`: a byte was handed over. `delivered`: the cluster got it, now or later. `status` and `answer` are what came
    back to the caller whole; `believed` says whether that was a definite answer. `committed`: the version it made.
    """

    number: int
    actor: str
    call: int
    at: float
    fault: Fault | None = None
    method: str = ""
    path: str = ""
    query: str = ""
    body: Any = None
    sent: bool = False
    delivered: bool = False
    whole: bool = False
    status: int | None = None
    body_given: bytes | None = None
    committed: int | None = None
    plural: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    ended: str | None = None
    answered: float = 0.0
    process: int = 0
    raw: bytes = b""

    @property
    def answer(self) -> Any:
        """The object that came back; read only where somebody asks."""
        return decoded(self.body_given)

    @property
    def verb(self) -> str:
        """What the tables call it: dry runs and reviews are reads."""
        if self.method == "GET" or "dryRun" in self.query or self.group == "authorization.k8s.io":
            return "read"
        return "write"

    @property
    def what(self) -> str:
        """Method and kind, as contract and stories name it."""
        return f"{self.method} {self.plural}" if self.name or self.method == "POST" else f"LIST {self.plural}"

    def __str__(self) -> str:
        fault = f" [{self.fault}]" if self.fault else ""
        outcome = "no answer" if self.status is None else str(self.status)
        if not self.sent:
            outcome = "nothing sent"
        made = f", committed {self.committed}" if self.committed else ""
        return f"{self.what} {self.name or ''}{fault} -> {outcome}{made}"


class Requests:
    """Whether a request is being answered just now; what the cluster does otherwise, it does by itself."""

    served = False


Plan = Callable[[Exchange], Fault | None]


class Wire:
    """All callers' way to one cluster. `plan` gives the next request its fault; `before` runs in front of each."""

    def __init__(self, apiserver: Apiserver, turns: Turns) -> None:
        self.apiserver = apiserver
        self.turns = turns
        self.exchanges: list[Exchange] = []
        self.current: Exchange | None = None
        self.pending: list[Exchange] = []
        self.streams: list[MemorySocket] = []
        self.plan: Plan = lambda _: None
        self.before: Callable[[Exchange], None] = lambda _: None
        self.after: Callable[[Exchange], None] = lambda _: None
        self.later: Callable[[float, Callable[[], None]], object] = lambda _seconds, act: act()

    def deliver(self, exchange: Exchange, request: bytes) -> Answer:
        """The cluster gets the request."""
        head, _, body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        Requests.served = True
        try:
            answer = self.apiserver.handle(Request(method, target, headers, body))
        finally:
            Requests.served = False
        exchange.delivered = True
        exchange.committed = self.apiserver.requests[-1].committed
        return answer

    def replay(self, exchange: Exchange) -> int | None:
        """Somebody in between sends a request again, long after; the version it committed, if it did."""
        again = Exchange(-1, exchange.actor, -1, self.turns.clock.monotonic())
        self.deliver(again, exchange.raw)
        return again.committed


@dataclass(slots=True)
class Actor:
    """One process with one Backend, as its connections know it."""

    name: str
    token: str
    process: int = 0
    call: int = 0
    operation: str = ""
    bound: float = 30.0
    """Seconds that one request may take."""
    ctx: Context | None = None
    pending: Exchange | None = None


class Source:
    """The actor's token; the fault `token` is met here, and the request is begun here."""

    def __init__(self, wire: Wire, actor: Actor) -> None:
        self._wire = wire
        self._actor = actor

    def credential(self, call: Call) -> Credential:
        call.left()
        wire, actor = self._wire, self._actor
        wire.turns.pause()
        task = wire.turns.current
        # What streams and notes do on their own is a call's only while somebody watches.
        own = task is not None and task.background and actor.operation != "watch"
        call_number = -1 if own else actor.call
        exchange = Exchange(len(wire.exchanges), actor.name, call_number, wire.turns.clock.monotonic())
        wire.exchanges.append(exchange)
        wire.before(exchange)
        exchange.process = actor.process
        exchange.fault = None if own else wire.plan(exchange)
        actor.pending = wire.current = exchange
        if exchange.fault is not None and exchange.fault.kind == "crash-before":
            raise Crash
        if exchange.fault is not None and exchange.fault.kind == "token":
            raise TokenFailed("the token file is empty")
        return Credential(f"Bearer {actor.token}")

    def refused(self) -> None:
        """The token is what it is."""


class Access:
    """What a Sender needs of a cluster's access."""

    host = "memory"
    base = ""
    headers: Mapping[str, str] = {}

    def __init__(self, wire: Wire, actor: Actor) -> None:
        self.source = Source(wire, actor)
        self._connections = MemoryConnections(wire, actor)

    def connect(self, certificate: Any = None) -> MemoryConnections:
        return self._connections


class MemoryConnections:
    """The pool: an idle connection that its peer closed is replaced, as urllib3's does."""

    prefix = ""

    def __init__(self, wire: Wire, actor: Actor) -> None:
        self._wire = wire
        self._actor = actor
        self._idle: list[MemoryConnection] = []
        self.monotonic = wire.turns.clock.monotonic

    def take(self, call: Call) -> MemoryConnection:
        exchange = self._actor.pending
        assert exchange is not None
        self._dial(exchange, call)
        connection = self._idle.pop() if self._idle else MemoryConnection(self._wire)
        if exchange.fault is not None and exchange.fault.kind == "stale":
            connection = MemoryConnection(self._wire)
        connection.sock = MemorySocket(self._wire, exchange, self._actor)
        call.attach(connection.sock)  # type: ignore[arg-type] # it shuts down as a socket does
        connection.call = call
        return connection

    def _dial(self, exchange: Exchange, call: Call) -> None:
        match exchange.fault.kind if exchange.fault else "":
            case "refused":
                raise ConnectionRefusedError(111, "Connection refused")
            case "unresolved":
                raise OSError(-2, "Name or service not known")
            case "tls":
                raise ssl.SSLError(1, "certificate verify failed")
            case "slow-dial":
                assert exchange.fault is not None
                remaining = self._actor.ctx.remaining() if self._actor.ctx is not None else None
                if remaining is not None and remaining <= min(exchange.fault.seconds, self._actor.bound):
                    exchange.ended = "deadline"
                self._wire.turns.sleep(min(exchange.fault.seconds, call.left()))
            case "cancel-dial":
                assert self._actor.ctx is not None
                exchange.ended = "cancelled"
                self._actor.ctx.cancel()
        call.left()

    def give_back(self, connection: MemoryConnection) -> None:
        connection.release()
        self._idle.append(connection)

    def discard(self, connection: MemoryConnection) -> None:
        connection.close()

    def close(self) -> None:
        self._idle.clear()


class MemoryConnection:
    """A connection of the pool."""

    def __init__(self, wire: Wire) -> None:
        self.sock: MemorySocket | None = None
        self.call: Call | None = None

    def release(self) -> None:
        if self.call is not None:
            self.call.detach()
            self.call = None

    def close(self) -> None:
        self.release()
        if self.sock is not None:
            self.sock.close()


class MemorySocket:
    """The bytes of one request, and those of its answer."""

    def __init__(self, wire: Wire, exchange: Exchange, actor: Actor) -> None:
        self._wire = wire
        self._exchange = exchange
        self._actor = actor
        self._fault = exchange.fault
        self._timeout: float | None = None
        self._request = b""
        self._answer = bytearray()
        self._from = 0.0
        self._stream: Any = None
        self._silent = False
        self._shut = False
        self._read = False

    # What the request layer does to it.

    def settimeout(self, value: float | None) -> None:
        self._timeout = value

    def send(self, data: memoryview) -> int:
        exchange, kind = self._exchange, self._fault.kind if self._fault else ""
        exchange.sent = True
        if not self._request:
            describe(exchange, bytes(data))
        if kind == "reset-first":
            raise ConnectionResetError(104, "Connection reset by peer")
        if kind == "reset-half" and not self._request:
            self._request = bytes(data[: len(data) // 2])
            return len(self._request)
        if kind == "reset-half":
            raise BrokenPipeError(32, "Broken pipe")
        self._request = exchange.raw = bytes(data)
        self._sent_whole()
        return len(data)

    def recv(self, size: int) -> bytes:
        if self._fault is not None and self._fault.kind in ("crash-after", "crash-lost"):
            raise Crash
        if self._fault is not None and self._fault.kind == "reset-half":
            raise ConnectionResetError(104, "Connection reset by peer")
        self._wait()
        if self._shut:
            return b""
        piece = bytes(self._answer[:size])
        del self._answer[:size]
        return piece

    def shutdown(self, how: int) -> None:
        self._shut = True

    def close(self) -> None:
        self._shut = True
        self._end_stream()

    def break_off(self) -> None:
        """The connection of a stream ends in the middle."""
        self._shut = True
        self._answer.clear()
        self._end_stream()

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self in self._wire.streams:
            self._wire.streams.remove(self)

    # The other end.

    def _sent_whole(self) -> None:
        exchange, fault = self._exchange, self._fault
        kind = fault.kind if fault else ""
        self._from = self._wire.turns.clock.monotonic()
        if kind in ("drop", "crash-lost", "reset-half", "reset-first"):
            return
        if kind == "late":
            assert fault is not None
            self._wire.pending.append(exchange)
            self._wire.later(fault.seconds, self._late)
            return
        if kind == "answer":
            assert fault is not None
            answer = made(exchange, fault)
        else:
            answer = self._wire.deliver(exchange, self._request)
            self._wire.after(exchange)
        if kind in ("lost", "crash-after"):
            return
        if kind == "cancel":
            assert self._actor.ctx is not None
            self._silent = True
            self._actor.ctx.cancel()
            return
        if kind == "rewritten":
            assert fault is not None
            answer = made(exchange, fault)
        if kind == "kind" and answer.status < 300:
            answer = of_object({**decoded(answer.body), "apiVersion": "example.com/v7", "kind": "Another"})
        self._put(answer)
        if fault is not None and kind == "slow":
            self._from += fault.seconds
        exchange.answered = self._from

    def _late(self) -> None:
        self._wire.pending.remove(self._exchange)
        self._wire.deliver(self._exchange, self._request)
        self._wire.after(self._exchange)

    def _put(self, answer: Answer) -> None:
        head = _head(answer)
        fault = self._fault
        if answer.stream is not None:
            self._stream = answer.stream
            self._wire.streams.append(self)
            self._answer += head
            return
        body = (
            b"".join(http.chunk([each]) for each in answer.chunks) + http.LAST_CHUNK if answer.chunks else answer.body
        )
        whole = head + body
        damaged = fault is not None and fault.kind in ("cut", "garbled")
        if fault is not None and fault.kind == "cut":
            whole = whole[: int(len(whole) * fault.share)]
        elif fault is not None and fault.kind == "garbled":
            at = min(len(whole) - 1, len(head) + int(len(body) * fault.share)) if body else 0
            whole = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        self._answer += whole
        note(self._exchange, answer, damaged=damaged, head_whole=whole[: len(head)] == head)

    def _has_something(self) -> bool:
        if self._shut:
            return True
        if self._silent:
            return False
        if self._stream is not None and not self._answer:
            # A stream that ended says so; until then it is looked at whenever anything has happened.
            self._pull()
        return bool(self._answer) and self._wire.turns.clock.monotonic() >= self._from

    def _pull(self) -> None:
        lines = self._stream.take()
        if lines:
            self._answer += http.chunk(lines)
        if self._stream.ended:
            self._answer += http.LAST_CHUNK
            self._end_stream()

    def _over(self) -> bool:
        """Whether nothing will ever come, because the connection is closed."""
        if self._answer or self._silent or self._stream is not None:
            return False
        return self._fault is None or self._fault.kind not in ("drop", "late")

    def _wait(self) -> None:
        turns = self._wire.turns
        if self._over():
            return
        now = turns.clock.monotonic()
        until = None if self._timeout is None else now + self._timeout
        while not self._has_something():
            wake = [each for each in (until, self._from if self._from > now and not self._silent else None) if each]
            if self._stream is not None and (due := self._stream.due()) is not None:
                wake.append(due)
            turns.park(self._has_something, min(wake, default=None))
            if until is not None and turns.clock.monotonic() >= until and not self._has_something():
                self._exchange.status = None
                raise TimeoutError("timed out")


def note(exchange: Exchange, answer: Answer, *, damaged: bool, head_whole: bool) -> None:
    """What the caller gets of an answer."""
    exchange.whole = not damaged
    # A row that needs the status alone does not need the body: a damaged head is no answer, a damaged body may be.
    if not damaged or (head_whole and answer.status >= 300):
        exchange.status = answer.status
        exchange.body_given = answer.body if not damaged else None


def describe(exchange: Exchange, data: bytes) -> None:
    """Enter into an exchange what the bytes of its request say."""
    head, _, body = data.partition(b"\r\n\r\n")
    exchange.method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    exchange.path, _, exchange.query = target.partition("?")
    exchange.body = msgspec.json.decode(body) if body else None
    parts = exchange.path.strip("/").split("/")
    exchange.group = "" if parts[0] == "api" else parts[1]
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        exchange.namespace, rest = rest[1], rest[2:]
    exchange.plural = rest[0] if rest else ""
    exchange.name = rest[1] if len(rest) > 1 else ""
    exchange.subresource = rest[2] if len(rest) > 2 else ""
    if exchange.method == "POST" and not exchange.name and isinstance(exchange.body, dict):
        exchange.name = (exchange.body.get("metadata") or {}).get("name", "")


def made(exchange: Exchange, fault: Fault) -> Answer:
    """What somebody in between answers."""
    message = "no"
    if fault.webhook:
        message = 'admission webhook "policy.example.com" denied the request: no'
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "code": fault.status,
    }
    if fault.reason:
        body["reason"] = fault.reason
    if fault.status == 404 and fault.named and exchange.method != "POST":
        body |= {"reason": "NotFound", "details": {"name": exchange.name, "kind": exchange.plural}}
        if exchange.group:
            body["details"]["group"] = exchange.group
    return of_object(body, fault.status)


def decoded(body: bytes | None) -> Any:
    """A body's JSON; None for what is none."""
    try:
        return msgspec.json.decode(body) if body else None
    except ValueError:
        return None


def _head(answer: Answer) -> bytes:
    """Status line and headers, without the date, which nobody reads."""
    lines = [f"HTTP/1.1 {answer.status} Some", *(f"{name}: {value}" for name, value in answer.headers)]
    lines.append(f"Content-Type: {answer.content_type}")
    if answer.stream is not None or answer.chunks is not None:
        lines.append("Transfer-Encoding: chunked")
    else:
        lines.append(f"Content-Length: {len(answer.body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
