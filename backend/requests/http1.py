"""An answer counts only when it is whole: so its head and body are read strictly, and a cut is never taken for an end.

http.client takes headers cut by a closed connection for complete ones, hands on bytes that belong to another answer,
and urllib3 waits one socket operation at a time. This reader does none of that: HTTP/1.1 as a server must speak it,
each byte within the bound of the call.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any

from .call import Call

_LONGEST_HEAD = 65_536
_LONGEST_LINE = 8_192
_RECEIVE = 65_536

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")


class AnswerCut(Exception):
    """The answer ended before it was whole."""


class AnswerMalformed(Exception):
    """The answer is not HTTP/1.1 that can be read with certainty."""


class Head:
    """A complete status line and complete headers, names in lower case; repeated ones joined by a comma."""

    __slots__ = ("headers", "minor", "status")

    def __init__(self, minor: bytes, status: int, headers: dict[str, str]) -> None:
        self.minor = minor
        self.status = status
        self.headers = headers

    @property
    def lasting(self) -> bool:
        """Whether the peer keeps the connection open after this answer."""
        said = self.headers.get("connection", "").lower()
        return self.minor == b"1" and "close" not in said


def parse_head(raw: bytes) -> Head:
    """Read a head without its closing empty line. Raises AnswerMalformed."""
    lines = raw.split(b"\r\n")
    first = _STATUS_LINE.fullmatch(lines[0])
    if first is None:
        raise AnswerMalformed("the status line cannot be read")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise AnswerMalformed("a header line cannot be read")
        name = header[1].decode("ascii").lower()
        value = header[2].rstrip(b" \t").decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Head(first[1], int(first[2]), headers)


class Reader:
    """Reads one answer from a socket, within the bound of its call.

    `reusable` is True once the answer was read to an end that HTTP itself marks and nothing followed it.
    """

    __slots__ = ("_buffer", "_call", "_interim", "_sock", "ended_by_close", "reusable")

    def __init__(self, sock: Any, call: Call) -> None:
        self._sock = sock
        self._call = call
        self._buffer = bytearray()
        self._interim = False
        self.reusable = False
        self.ended_by_close = False

    def head(self) -> Head:
        """The head of the final answer. Raises AnswerCut, AnswerMalformed, OSError or Abandoned."""
        while True:
            head = parse_head(self._until(b"\r\n\r\n", _LONGEST_HEAD))
            if head.status != 100:
                return head
            # "Go on" says nothing about the request; but a connection that carried it is not used again.
            self._interim = True

    def body(self, head: Head) -> Iterator[bytes]:
        """The body in pieces as they come. Raises AnswerCut, AnswerMalformed, OSError or Abandoned."""
        if head.status < 200 or head.status in {204, 304}:
            pass
        elif "transfer-encoding" in head.headers:
            if head.headers["transfer-encoding"].lower() != "chunked" or "content-length" in head.headers:
                raise AnswerMalformed("the answer does not say clearly where it ends")
            yield from self._chunks()
        elif "content-length" in head.headers:
            yield from self._counted(_length(head.headers["content-length"]))
        else:
            self.ended_by_close = True
            yield from self._rest()
            return
        self.reusable = head.status >= 200 and head.lasting and not self._interim and not self._buffer

    def _counted(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._buffer:
                self._more()
            piece = bytes(self._buffer[:size])
            del self._buffer[:size]
            size -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            line = _SIZE.fullmatch(self._until(b"\r\n", _LONGEST_LINE))
            if line is None:
                raise AnswerMalformed("a chunk's size cannot be read")
            size = int(line[1], 16)
            if size == 0:
                break
            yield from self._counted(size)
            if self._until(b"\r\n", 0) != b"":
                raise AnswerMalformed("a chunk is longer than it said")
        while self._until(b"\r\n", _LONGEST_LINE):
            pass  # trailers say nothing that is used

    def _rest(self) -> Iterator[bytes]:
        while True:
            if self._buffer:
                piece = bytes(self._buffer)
                self._buffer.clear()
                yield piece
            try:
                self._more()
            except AnswerCut:
                self._call.left()  # our own end closes it too, and is no end of the answer
                return

    def _until(self, end: bytes, longest: int) -> bytes:
        seen = 0
        while True:
            at = self._buffer.find(end, seen)
            if 0 <= at <= longest:
                found = bytes(self._buffer[:at])
                del self._buffer[: at + len(end)]
                return found
            if at > longest or len(self._buffer) > longest + len(end):
                raise AnswerMalformed("a line or a head is longer than any server's")
            seen = max(0, len(self._buffer) - len(end) + 1)
            self._more()

    def _more(self) -> None:
        self._sock.settimeout(self._call.left())
        piece = self._sock.recv(_RECEIVE)
        if not piece:
            raise AnswerCut("the connection was closed before the answer was whole")
        self._buffer += piece


def _length(value: str) -> int:
    lengths = {each.strip() for each in value.split(",")}
    if len(lengths) != 1:
        raise AnswerMalformed("the answer has two lengths")
    length = lengths.pop()
    if not length.isascii() or not length.isdigit() or len(length) > 15:
        raise AnswerMalformed("the answer's length is not a number")
    return int(length)


def whole(pieces: Iterator[bytes], most: int) -> bytes:
    """The pieces as one, at most `most` bytes. Raises AnswerMalformed beyond that, and what reading raises."""
    gathered = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise AnswerMalformed(f"the answer is longer than {most} bytes")
        gathered.append(piece)
    return gathered[0] if len(gathered) == 1 else b"".join(gathered)


def decoded(head: Head, body: bytes, most: int) -> bytes:
    """The body without its content encoding. Raises AnswerMalformed if it is broken or one we did not ask for."""
    encoding = head.headers.get("content-encoding", "identity").lower()
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise AnswerMalformed("the answer has an encoding that was not asked for")
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(body, most)
    except zlib.error as error:
        raise AnswerMalformed("the answer's gzip is broken") from error
    if not unpacker.eof or unpacker.unused_data or unpacker.unconsumed_tail:
        raise AnswerMalformed("the answer's gzip is cut, too long, or followed by something")
    return plain
