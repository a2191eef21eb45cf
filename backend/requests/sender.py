"""How one request goes: what is looked at before its first byte, what is written, and what is left when it is over.

Every way out of here says what the marker of the call says, whatever exception ended it, and gives the connection back
or closes it.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from .access import ClusterAccess
from .answers import failed, refusal
from .call import Abandoned, Call, Pause
from .http1 import AnswerCut, AnswerMalformed, Head, Reader, decoded, whole
from .reply import Failure, Reply
from .request import Request, Unwritable
from .telemetry import Record
from .tokens import Credential, TokenFailed
from .watches import Broken, Stream

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.context import Clock, Context

    from .connection import Connections, _Steps

# The longest answer that is read, in bytes: some hundred times what etcd stores of one object.
_LARGEST = 268_435_456
# The longest body of a refusal: more than the apiserver takes of a request, and little enough to be read at once.
_LARGEST_REFUSAL = 4_194_304

FORKED = "this process was forked from the one that made the Backend, and its connections cannot be shared"

Read = Callable[[Head, bytes | None, Exception | None], Reply]
"""Makes the reply of an answer: its head, and its body or what kept that from being whole."""


class Exchange:
    """One request under way: its call, its connection, and the answer's head once it came."""

    def __init__(self, call: Call, connections: Connections, connection: _Steps) -> None:
        self.call = call
        self._connections = connections
        self._connection: _Steps | None = connection
        self._sock = connection.sock
        self.reader = Reader(connection.sock, call)
        self.head = Head(b"1", 0, {})

    def begin(self, data: bytes) -> None:
        """Send the request and read the answer's head."""
        try:
            self.call.send(self._sock, data)
        except (BrokenPipeError, ConnectionResetError):
            # The server may have answered before it had read all, and closed: its answer is there to be read.
            self.head = self.reader.head()
            self.head.headers["connection"] = "close"
            return
        self.head = self.reader.head()

    def end(self) -> None:
        """Keep the connection if the answer was read to a clean end, close it otherwise."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self.reader.reusable and self.call.ended is None:
            self._connections.give_back(connection)
        else:
            self._connections.discard(connection)

    def body(self) -> tuple[bytes | None, Exception | None]:
        """The whole body, or what kept it from being whole."""
        largest = _LARGEST if 200 <= self.head.status < 300 else _LARGEST_REFUSAL
        try:
            return decoded(self.head, whole(self.reader.body(self.head), largest), largest), None
        except (AnswerCut, AnswerMalformed, Abandoned, OSError) as error:
            return None, beneath(error, self.call)


class Sender:
    """Makes requests to one cluster, each at most once. Safe for use from many threads, in the process that made it."""

    def __init__(self, cluster: ClusterAccess, timeout: float, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self.timeout = timeout
        self._process = os.getpid()
        self._under_way: set[Call | Pause] = set()
        self._closed = False
        self._lock = threading.Lock()
        self._connections = cluster.connect()
        self._shown: tuple[tuple[str, str], Connections] | None = None
        self._common = self._common_headers()

    @property
    def forked(self) -> bool:
        """Whether this is another process than the one that made it: then nothing is sent."""
        return os.getpid() != self._process

    def close(self) -> None:
        """Cancel what is under way and close every idle connection. Again: nothing."""
        self._closed = True
        if not self.forked:
            # A forked child shares its parent's sockets, and to shut one down would end the parent's request.
            for call in tuple(self._under_way):
                call.cancel()
        with self._lock:
            shown, self._shown = self._shown, None
        for connections in (self._connections, shown[1] if shown is not None else None):
            if connections is not None:
                connections.close()

    def exchange(
        self,
        request: Request,
        ctx: Context,
        operation: str,
        read: Read,
    ) -> Reply:
        """Make the request, read its whole answer, and make the reply of it by `read`."""
        record = Record(request, operation, self._clock)
        begun = self._begun(request, ctx, record)
        if isinstance(begun, Failure):
            return Reply(request, failure=begun)
        try:
            body, trouble = begun.body()
            reply = read(begun.head, body, trouble)
            if reply.failure is not None and begun.head.status < 300:
                # Not what was asked for: whose answer it was is anyone's guess, so the next one is not read here.
                begun.reader.reusable = False
        finally:
            self._over(begun)
        record.told(reply.status, sent=True, failure=reply.failure)
        return reply

    def stream(
        self, request: Request, ctx: Context, operation: str, silence: float, longest: float
    ) -> Stream | Failure:
        """An open stream after a 2xx; a failure otherwise.

        Each of its waits is at most `silence` seconds, all of it at most `longest`.
        """
        record = Record(request, operation, self._clock)
        exchange = self._begun(request, ctx, record)
        if isinstance(exchange, Failure):
            return exchange
        status = exchange.head.status
        if not 200 <= status < 300:
            return self._refused(request, exchange, record)
        if "content-encoding" in exchange.head.headers:
            self._over(exchange)
            failure = failed(request, "lost", sent=True, details={"status": status, "message": "the stream is encoded"})
            record.told(status, sent=True, failure=failure)
            return failure
        record.told(status, sent=True, failure=None)
        return Stream(self._pieces(exchange, silence, longest), lambda: self._over(exchange))

    def _refused(self, request: Request, exchange: Exchange, record: Record) -> Failure:
        try:
            body, trouble = exchange.body()
        finally:
            self._over(exchange)
        failure = refusal(request, exchange.head.status, exchange.head.headers, body, trouble)
        record.told(exchange.head.status, sent=True, failure=failure)
        return failure

    def _pieces(self, exchange: Exchange, silence: float, longest: float) -> Iterator[bytes]:
        call = exchange.call
        monotonic = self._connections.monotonic
        left = longest
        pieces = exchange.reader.body(exchange.head)
        try:
            while True:
                # What the reader of the stream does in between is no waiting for the server.
                asked = monotonic()
                call.allow(min(silence, left))
                piece = next(pieces, None)
                left -= monotonic() - asked
                if piece is None:
                    if exchange.reader.ended_by_close:
                        raise Broken("the stream's end is not marked") from None
                    return
                yield piece
        except (AnswerCut, AnswerMalformed, Abandoned, OSError) as error:
            raise Broken(str(error)) from beneath(error, call)
        finally:
            self._over(exchange)

    def _begun(self, request: Request, ctx: Context, record: Record) -> Exchange | Failure:
        """The exchange once the answer's head is there, or the failure that says why it is not."""
        ended = ctx.ended
        if ended is not None:
            return self._told(record, not_begun(request, ended))
        if self.forked:
            failure = failed(request, "unsent", sent=False, details={"message": FORKED}, cause=RuntimeError(FORKED))
            return self._told(record, failure)
        call = Call(ctx, self.timeout, self._connections.monotonic)
        self._under_way.add(call)
        exchange: Exchange | None = None
        try:
            if self._closed:
                call.cancel()
            exchange = self._sent(request, call)
            record.answered(exchange.head.headers)
            if exchange.head.status == 401:
                self._cluster.source.refused()
        except Exception as error:  # noqa: BLE001 - whatever it is, the marker says what it means
            self._finished(call)
            return self._told(record, unanswered(request, call, error, self._cluster.host))
        except BaseException:
            self._finished(call)
            raise
        return exchange

    def _sent(self, request: Request, call: Call) -> Exchange:
        credential = self._cluster.source.credential(call)
        connections = self._with(credential)
        data = self._written(request, connections.prefix, credential)
        connection = connections.take(call)
        exchange = Exchange(call, connections, connection)
        try:
            exchange.begin(data)
        except BaseException:
            exchange.end()
            raise
        return exchange

    def pause(self, ctx: Context, seconds: float) -> bool:
        """Wait between two requests; whether the context, or this, has ended."""
        pause = Pause(ctx)
        self._under_way.add(pause)
        try:
            return self._closed or pause.wait(seconds)
        finally:
            self._under_way.discard(pause)

    def _over(self, exchange: Exchange) -> None:
        try:
            exchange.end()
        finally:
            self._finished(exchange.call)

    def _finished(self, call: Call) -> None:
        call.close()
        self._under_way.discard(call)

    def _told(self, record: Record, failure: Failure) -> Failure:
        record.told(None, sent=failure.sent, failure=failure)
        return failure

    # What goes on the wire.

    def _with(self, credential: Credential) -> Connections:
        """The connections that show the credential's certificate, if it has one."""
        pair = credential.certificate
        if pair is None:
            return self._connections
        if not self._cluster.server.startswith("https:"):
            raise TokenFailed("the plugin gave a client certificate, which a server without TLS never sees")
        with self._lock:
            if self._shown is None or self._shown[0] != pair:
                try:
                    fresh = self._cluster.connect(pair)
                except (OSError, ValueError) as error:
                    raise TokenFailed(
                        f"the plugin's client certificate cannot be used: {type(error).__name__}"
                    ) from error
                old, self._shown = self._shown, (pair, fresh)
                if old is not None:
                    old[1].close()
            return self._shown[1]

    def _written(self, request: Request, prefix: str, credential: Credential) -> bytes:
        body = request.payload()
        head = f"{request.method} {prefix}{self._cluster.base}{request.target()} HTTP/1.1\r\n{self._common}"
        if request.expect == "list" and "watch" not in request.query:
            head += "Accept-Encoding: gzip\r\n"
        if credential.authorization is not None:
            head += f"Authorization: {credential.authorization}\r\n"
        if body:
            head += f"Content-Type: {request.content_type}\r\n"
        if body or request.method in {"POST", "PUT", "PATCH"}:
            head += f"Content-Length: {len(body)}\r\n"
        return (head + "\r\n").encode("latin-1") + body

    def _common_headers(self) -> str:
        headers: list[tuple[str, str]] = [
            ("Host", self._cluster.host),
            ("User-Agent", f"dispatch-kubeflow/{_release()}"),
            ("Accept", "application/json, */*"),
        ]
        headers += [(name, each) for name, value in self._cluster.headers.items() for each in value.split("\0")]
        return "".join(f"{name}: {value}\r\n" for name, value in headers)


@functools.cache
def _release() -> str:
    # Looked up on the disk, so once a process: a Backend that is made again and again should not ask each time.
    try:
        return version("dispatch-kubeflow")
    except PackageNotFoundError:
        return "unknown"


def not_begun(request: Request, ended: str) -> Failure:
    """What a request is whose context had ended before it began."""
    message = "the context's deadline passed" if ended == "deadline" else "the context was cancelled"
    return failed(request, f"context-{ended}", sent=False, details={"message": f"{message} before the request"})


def unanswered(request: Request, call: Call, error: Exception, host: str) -> Failure:
    """What a request to `host` without an answer is: by the marker and by how the call ended, and by nothing else."""
    if isinstance(error, TimeoutError):
        call.timed_out()
    cause = beneath(error, call)
    if call.sent:
        message = f"no answer came from {host}: {call.why() if call.ended else error}"
        return failed(request, "lost", sent=True, cause=cause, details={"message": message})
    if call.ended in {"deadline", "cancelled"}:
        return failed(
            request,
            f"context-{call.ended}",
            sent=False,
            cause=cause,
            details={"message": f"{call.why()} before the request was sent"},
        )
    result = "token-failed" if isinstance(error, TokenFailed) else "unsent"
    said = str(error) or type(error).__name__
    # What is wrong with a token, or with the request itself, is the rule it breaks, in the tables' word.
    rule = said if isinstance(error, TokenFailed | Unwritable) else None
    message = said if rule is not None else f"{host}: {said}"
    return failed(request, result, sent=False, cause=cause, details={"message": message, "rule": rule})


def beneath(error: Exception, call: Call) -> Exception:
    """The cause to keep: without the frames it came through, for they hold the connection and the token."""
    if isinstance(error, TimeoutError):
        call.timed_out()
    cause: Exception = TimeoutError(call.why()) if isinstance(error, Abandoned) or call.ended == "timeout" else error
    cause.__context__ = None
    return cause.with_traceback(None)
