"""HTTP/1.1 as bytes: a request read from a stream, an answer's head and its chunks.

It reads from anything with `readline` and `read`, so a test can drive it with bytes in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Protocol

from dispatch_kubeflow.backend.embedded.access import User
from dispatch_kubeflow.backend.embedded.bodies import LIMIT
from dispatch_kubeflow.backend.embedded.messages import Answer, Request

_LINE = 64 * 1024
_HEADERS = 1024 * 1024

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MALFORMED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
)
LAST_CHUNK = b"0\r\n\r\n"


class MalformedError(Exception):
    """What came is no HTTP request."""


class Source(Protocol):
    """Where bytes come from."""

    def readline(self, limit: int, /) -> bytes: ...

    def read(self, size: int, /) -> bytes: ...


class Head:
    """A request's line and headers. `keeps` is whether the connection may be used again."""

    __slots__ = ("headers", "keeps", "method", "target")

    def __init__(self, method: str, target: str, headers: dict[str, str], *, keeps: bool) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.keeps = keeps

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for a go-ahead before its body."""
        return self.headers.get("expect", "").lower() == "100-continue"


def read_head(source: Source) -> Head | None:
    """The next request's head; None where the client has closed."""
    line = source.readline(_LINE)
    while line in (b"\r\n", b"\n"):
        line = source.readline(_LINE)
    if not line:
        return None
    parts = line.decode("latin-1").split()
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not line.endswith(b"\n"):
        raise MalformedError(line)
    headers = _headers(source)
    connection = headers.get("connection", "").lower()
    keeps = connection != "close" and (parts[2] != "HTTP/1.0" or connection == "keep-alive")
    return Head(parts[0], parts[1], headers, keeps=keeps)


def read_body(source: Source, head: Head) -> bytes:
    """The body, cut off just past the apiserver's limit."""
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        return b"".join(_chunks(source))
    text = head.headers.get("content-length", "0")
    if not text.isdigit():
        raise MalformedError(text)
    length = int(text)
    body = source.read(min(length, LIMIT + 1))
    if len(body) < min(length, LIMIT + 1):
        raise MalformedError("body cut short")
    if length > LIMIT:
        head.keeps = False
    return body


def request(head: Head, body: bytes, certified: User | None) -> Request:
    """The request as the core takes it."""
    return Request(head.method, head.target, head.headers, body, certified)


def head_of(answer: Answer, *, keeps: bool, now: datetime | None = None) -> bytes:
    """An answer's status line and headers."""
    phrase = HTTPStatus(answer.status).phrase
    lines = [f"HTTP/1.1 {answer.status} {phrase}"]
    lines += [f"{name}: {_one_line(value)}" for name, value in answer.headers]
    if answer.content_type:
        lines.append(f"Content-Type: {answer.content_type}")
    lines.append(f"Date: {format_datetime(now or datetime.now(UTC), usegmt=True)}")
    if answer.stream is not None or answer.chunks is not None:
        lines.append("Transfer-Encoding: chunked")
    elif answer.status != 204:
        lines.append(f"Content-Length: {len(answer.body)}")
    if not keeps:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


def chunk(pieces: Iterable[bytes]) -> bytes:
    """One chunk that holds the pieces; nothing for none, for an empty chunk ends a body."""
    data = b"".join(pieces)
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def _headers(source: Source) -> dict[str, str]:
    headers: dict[str, str] = {}
    size = 0
    while True:
        line = source.readline(_LINE)
        size += len(line)
        if line in (b"\r\n", b"\n"):
            return headers
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip() or size > _HEADERS:
            raise MalformedError(line)
        key = name.lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()


def _chunks(source: Source) -> Iterable[bytes]:
    total = 0
    while True:
        try:
            size = int(source.readline(_LINE).partition(b";")[0], 16)
        except ValueError as error:
            raise MalformedError("chunk size") from error
        if size == 0:
            _headers(source)
            return
        piece = source.read(size)
        source.readline(_LINE)
        if total <= LIMIT:
            yield piece
        total += size


def _one_line(value: str) -> str:
    return value.replace("\r", " ").replace("\n", " ")
