"""The only door to the network: one call here is at most one request, and what it gives is a value that can be judged.

Nothing is re-sent, nothing raised for what networks, servers, tokens and contexts do, and no thread, socket or process
outlives the call. What happened is told from this layer's own marker, never from the type of an exception.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

from .access import ClusterAccess
from .answers import WrongKind, failed, judge, refusal, wrong_kind
from .call import Abandoned, Call, Pause
from .http1 import AnswerCut, AnswerMalformed, Head, Reader, decoded, whole
from .lists import PAGE, page_reader, paged
from .logs import LogLines
from .reply import Failure, ListReply, LogReply, Reply
from .request import Request
from .resources import PODS, Resource
from .telemetry import Record
from .tokens import Credential, TokenFailed
from .watches import SERVER_SECONDS, SILENCE, Broken, Stream, Watch, Watcher

if TYPE_CHECKING:
    import msgspec

    from dispatch_kubeflow.machine.context import Clock, Context

    from .connection import Connections, _Steps

T = TypeVar("T", bound="msgspec.Struct")

# The longest answer that is read, in bytes: some hundred times what etcd stores of one object.
_LARGEST = 268_435_456


class _Exchange:
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


class Door:
    """Sends requests to one cluster. Safe for use from many threads, in the process that made it.

    `request_timeout` is the bound of one request in seconds, where the context has none nearer.
    """

    def __init__(self, cluster: ClusterAccess, *, request_timeout: float, clock: Clock) -> None:
        self._cluster = cluster
        self._timeout = request_timeout
        self._clock = clock
        self._process = os.getpid()
        self._calls: set[Call | Pause] = set()
        self._closed = False
        self._lock = threading.Lock()
        self._connections = cluster.connect()
        self._shown: tuple[tuple[str, str], Connections] | None = None
        self._common = self._common_headers()

    @property
    def forked(self) -> bool:
        """Whether this is another process than the one that made it: then nothing is sent."""
        return os.getpid() != self._process

    def send(self, request: Request, ctx: Context, *, operation: str) -> Reply:
        """Make one request. Never raises for what the network, the server, the token or the context does."""
        return self._exchanged(
            request,
            ctx,
            operation,
            lambda head, body, trouble: judge(request, head.status, head.headers, body, trouble),
        )

    def discover(self, group: str, version: str, ctx: Context, *, operation: str) -> Reply:
        """Ask whether a group-version is served: a 404, and nothing else, says that it is not."""
        resource = Resource(group, version, "", "")
        return self.send(Request("GET", resource, expect="discovery"), ctx, operation=operation)

    def list(
        self,
        resource: Resource,
        ctx: Context,
        *,
        operation: str,
        namespace: str | None,
        selector: str | None,
        type: type[T],  # noqa: A002 - what the items are read as, in the contract's word
    ) -> ListReply[T]:
        """The whole list, of which only what `type` keeps is kept."""
        template = Request("GET", resource, namespace, query=_selected(selector), expect="list")
        read = page_reader(template, type)

        def ask(continuation: str) -> tuple[Any, Failure | None]:
            query: dict[str, str | int | bool] = {**template.query, "limit": PAGE}
            if continuation:
                query["continue"] = continuation
            request = Request("GET", resource, namespace, query=query, expect="list")
            return self._page(request, ctx, operation, read)

        return paged(ask)

    def watch(
        self,
        resource: Resource,
        ctx: Context,
        *,
        operation: str,
        namespace: str | None,
        selector: str | None,
        type: type[T],  # noqa: A002 - as in list
    ) -> Watch[T]:
        """What happens to a resource from now on, the present state first. See `Watch`."""
        template = Request("GET", resource, namespace, query=_selected(selector), expect="list")

        def listed() -> ListReply[T]:
            return self.list(resource, ctx, operation=operation, namespace=namespace, selector=selector, type=type)

        def opened(since: str) -> Stream | Failure:
            query: dict[str, str | int | bool] = {
                **template.query,
                "watch": 1,
                "allowWatchBookmarks": True,
                "resourceVersion": since,
                "timeoutSeconds": SERVER_SECONDS,
            }
            request = Request("GET", resource, namespace, query=query, expect="list")
            return self._stream(request, ctx, operation, SILENCE, SERVER_SECONDS + self._timeout)

        return Watch(Watcher[T](template, type, ctx, listed, opened, lambda seconds: self._paused(ctx, seconds)).run())

    def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        ctx: Context,
        *,
        operation: str,
        tail: int | None = None,
        follow: bool = False,
    ) -> LogReply:
        """A container's log; `tail`: its last lines only; `follow`: and what is written from now on."""
        query: dict[str, str | int | bool] = {"container": container}
        if tail is not None:
            query["tailLines"] = tail
        if follow:
            query["follow"] = True
        request = Request("GET", PODS, namespace, pod, "log", query, expect="log")
        stream = self._stream(request, ctx, operation, math.inf if follow else self._timeout, math.inf)
        if isinstance(stream, Failure):
            return LogReply(failure=stream)
        return LogReply(LogLines(request, stream))

    def close(self) -> None:
        """Cancel what is under way and close every idle connection. Again: nothing."""
        self._closed = True
        if not self.forked:
            # A forked child shares its parent's sockets, and to shut one down would end the parent's request.
            for call in tuple(self._calls):
                call.cancel()
        with self._lock:
            shown, self._shown = self._shown, None
        for connections in (self._connections, shown[1] if shown is not None else None):
            if connections is not None:
                connections.close()

    # One request, from the checks in front of it to its answer.

    def _exchanged(
        self,
        request: Request,
        ctx: Context,
        operation: str,
        read: Callable[[Head, bytes | None, Exception | None], Reply],
    ) -> Reply:
        record = Record(request, operation)
        exchange = self._begun(request, ctx, record)
        if isinstance(exchange, Failure):
            return Reply(request, failure=exchange)
        try:
            body, trouble = self._body(exchange)
            reply = read(exchange.head, body, trouble)
            if reply.failure is not None and exchange.head.status < 300:
                # Not what was asked for: whose answer it was is anyone's guess, so the next one is not read here.
                exchange.reader.reusable = False
        finally:
            self._over(exchange)
        record.told(reply.status, sent=True, failure=reply.failure)
        return reply

    def _body(self, exchange: _Exchange) -> tuple[bytes | None, Exception | None]:
        """The whole body, or what kept it from being whole."""
        try:
            return decoded(exchange.head, whole(exchange.reader.body(exchange.head), _LARGEST), _LARGEST), None
        except (AnswerCut, AnswerMalformed, Abandoned, OSError) as error:
            return None, _beneath(error, exchange.call)

    def _begun(self, request: Request, ctx: Context, record: Record) -> _Exchange | Failure:
        """The exchange once the answer's head is there, or the failure that says why it is not."""
        ended = ctx.ended
        if ended is not None:
            return self._told(record, _not_begun(request, ended))
        if self.forked:
            failure = failed(request, "unsent", sent=False, details={"message": FORKED}, cause=RuntimeError(FORKED))
            return self._told(record, failure)
        call = Call(ctx, self._timeout)
        self._calls.add(call)
        exchange: _Exchange | None = None
        try:
            if self._closed:
                call.cancel()
            exchange = self._sent(request, call)
            record.answered(exchange.head.headers)
            if exchange.head.status == 401:
                self._cluster.source.refused()
        except Exception as error:  # noqa: BLE001 - whatever it is, the marker says what it means
            self._finished(call)
            return self._told(record, _failure(request, call, error))
        except BaseException:
            self._finished(call)
            raise
        return exchange

    def _sent(self, request: Request, call: Call) -> _Exchange:
        credential = self._cluster.source.credential(call)
        connections = self._with(credential)
        data = self._written(request, connections.prefix, credential)
        connection = connections.take(call)
        exchange = _Exchange(call, connections, connection)
        try:
            exchange.begin(data)
        except BaseException:
            exchange.end()
            raise
        return exchange

    def _stream(
        self, request: Request, ctx: Context, operation: str, silence: float, longest: float
    ) -> Stream | Failure:
        """An open stream after a 2xx; a failure otherwise.

        Each of its waits is at most `silence` seconds, all of it at most `longest`.
        """
        record = Record(request, operation)
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

    def _refused(self, request: Request, exchange: _Exchange, record: Record) -> Failure:
        try:
            body, trouble = self._body(exchange)
        finally:
            self._over(exchange)
        failure = refusal(request, exchange.head.status, exchange.head.headers, body, trouble)
        record.told(exchange.head.status, sent=True, failure=failure)
        return failure

    def _pieces(self, exchange: _Exchange, silence: float, longest: float) -> Iterator[bytes]:
        call = exchange.call
        until = time.monotonic() + longest
        pieces = exchange.reader.body(exchange.head)
        try:
            while True:
                call.allow(min(silence, until - time.monotonic()))
                piece = next(pieces, None)
                if piece is None:
                    if exchange.reader.ended_by_close:
                        raise Broken("the stream's end is not marked") from None
                    return
                yield piece
        except (AnswerCut, AnswerMalformed, Abandoned, OSError) as error:
            raise Broken(str(error)) from _beneath(error, call)
        finally:
            self._over(exchange)

    def _page(
        self, request: Request, ctx: Context, operation: str, read: Callable[[bytes], Any]
    ) -> tuple[Any, Failure | None]:
        pages: list[Any] = []

        def judged(head: Head, body: bytes | None, trouble: Exception | None) -> Reply:
            if not 200 <= head.status < 300:
                return judge(request, head.status, head.headers, body, trouble)
            try:
                if trouble is not None:
                    raise trouble
                pages.append(read(body or b""))
            except WrongKind as error:
                failure = wrong_kind(request, error, head.status)
            except (AnswerCut, AnswerMalformed, Abandoned, OSError) as error:
                failure = failed(
                    request, "lost", sent=True, cause=error, details={"status": head.status, "message": str(error)}
                )
            else:
                return Reply(request, head.status)
            return Reply(request, head.status, failure=failure)

        reply = self._exchanged(request, ctx, operation, judged)
        return (pages[0] if pages else None), reply.failure

    def _paused(self, ctx: Context, seconds: float) -> bool:
        pause = Pause(ctx)
        self._calls.add(pause)
        try:
            return self._closed or pause.wait(seconds)
        finally:
            self._calls.discard(pause)

    def _over(self, exchange: _Exchange) -> None:
        try:
            exchange.end()
        finally:
            self._finished(exchange.call)

    def _finished(self, call: Call) -> None:
        call.close()
        self._calls.discard(call)

    def _told(self, record: Record, failure: Failure) -> Failure:
        record.told(None, sent=failure.sent, failure=failure)
        return failure

    # What goes on the wire.

    def _with(self, credential: Credential) -> Connections:
        """The connections that show the credential's certificate, if it has one."""
        pair = credential.certificate
        if pair is None:
            return self._connections
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
        try:
            release = version("dispatch-kubeflow")
        except PackageNotFoundError:
            release = "unknown"
        headers: list[tuple[str, str]] = [
            ("Host", self._cluster.host),
            ("User-Agent", f"dispatch-kubeflow/{release}"),
            ("Accept", "application/json, */*"),
        ]
        headers += [(name, each) for name, value in self._cluster.headers.items() for each in value.split("\0")]
        return "".join(f"{name}: {value}\r\n" for name, value in headers)


FORKED = "this process was forked from the one that made the Backend, and its connections cannot be shared"


def _selected(selector: str | None) -> Mapping[str, str | int | bool]:
    return {} if not selector else {"labelSelector": selector}


def _not_begun(request: Request, ended: str) -> Failure:
    message = "the context's deadline passed" if ended == "deadline" else "the context was cancelled"
    return failed(request, f"context-{ended}", sent=False, details={"message": f"{message} before the request"})


def _failure(request: Request, call: Call, error: Exception) -> Failure:
    """What a request without an answer is: by the marker and by how the call ended, and by nothing else."""
    if isinstance(error, TimeoutError):
        call.timed_out()
    cause = _beneath(error, call)
    if call.sent:
        message = f"no answer came: {call.why() if call.ended else error}"
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
    # What is wrong with a token is the rule it breaks, in the tables' word.
    rule = said if result == "token-failed" else None
    return failed(request, result, sent=False, cause=cause, details={"message": said, "rule": rule})


def _beneath(error: Exception, call: Call) -> Exception:
    """The cause to keep: without the frames it came through, for they hold the connection and the token."""
    if isinstance(error, TimeoutError):
        call.timed_out()
    cause: Exception = TimeoutError(call.why()) if isinstance(error, Abandoned) or call.ended == "timeout" else error
    cause.__context__ = None
    return cause.with_traceback(None)
