"""A watch is a chain of streams that break all the time; what is watched must be as if there had been one that did not.

So it keeps the last resourceVersion it has given out and goes on from there, lists anew when that is no longer served,
takes a line it cannot read for a broken stream, never for an event it may leave out, and waits longer and longer while
nothing new comes. It ends only when the server refuses, the token cannot be had, or its context ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from .answers import ROWS, WrongKind, failed, refusal, require_kind, wrong_kind
from .http1 import AnswerMalformed
from .lists import with_tries
from .reply import Event, Failure, Listed, ListReply
from .request import Request

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.context import Context

T = TypeVar("T")

FIRST_PAUSE = 0.05
"""Seconds before a stream is opened again when the last one brought nothing; doubled each time."""
LONGEST_PAUSE = 5.0
SERVER_SECONDS = 290
"""How long the server is asked to keep one stream."""
SILENCE = 75.0
"""Seconds without a byte after which a stream is given up: bookmarks come every 60."""
# After so many 410 in a row it gives up; after so many streams in vain, unreadable or refused, it lists anew.
_GONE = 3
_IN_VAIN = 3
# Results after which a later request may fare better: no answer came, or one that says nothing.
_PASSING = frozenset({"lost", "unsent"})


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    metadata: _Metadata = _Metadata()


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class Gone(Exception):
    """The resourceVersion is no longer served."""


class Broken(Exception):
    """The stream broke; what came before it stands."""


@dataclass(slots=True)
class Stream:
    """One open stream: its pieces as they come (which raise when it breaks), and how to end it."""

    pieces: Iterator[bytes]
    close: Callable[[], None]


class Watch(Generic[T]):
    """The happenings of a watch: first a `Listed`, then `Event`s, and `Listed` again where events were missed.

    It ends by StopIteration with a Failure, which is kept in `failure`. One thread reads it; it is ended from another
    by cancelling its context.
    """

    def __init__(self, happenings: Generator[Listed[T] | Event[T], None, Failure]) -> None:
        self._happenings = happenings
        self.failure: Failure | None = None

    def __iter__(self) -> Watch[T]:
        return self

    def __next__(self) -> Listed[T] | Event[T]:
        try:
            return next(self._happenings)
        except StopIteration as end:
            self.failure = self.failure or end.value
            raise

    def close(self) -> None:
        """End it and close its connection; only between two happenings."""
        self._happenings.close()


@dataclass(slots=True)
class _Position:
    """Where the watch stands: the last version given out, and what has gone wrong since something new came."""

    version: str = ""
    newest: str = ""
    pause: float = 0.0
    gone: int = 0
    in_vain: int = 0

    def moved(self, version: str) -> None:
        """Something came. It is progress if it had not come before: a server may repeat itself after each 410."""
        self.version = version
        if not self.newest or _newer(version, self.newest):
            self.newest = version
            self.pause = 0.0
            self.gone = self.in_vain = 0

    def longer(self) -> float:
        """The pause to make now."""
        self.pause = min(LONGEST_PAUSE, self.pause * 2 or FIRST_PAUSE)
        return self.pause


def _newer(version: str, than: str) -> bool:
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return version != than


class Watcher(Generic[T]):
    """Runs one watch of `request`.

    `listed` lists anew, `opened` opens a stream from a version, `pause` waits and says whether the watch has ended.
    """

    def __init__(
        self,
        request: Request,
        kind: Any,
        ctx: Context,
        listed: Callable[[], ListReply[T]],
        opened: Callable[[str], Stream | Failure],
        pause: Callable[[float], bool],
    ) -> None:
        self._request = request
        self._ctx = ctx
        self._listed = listed
        self._opened = opened
        self._pause = pause
        self._lines = msgspec.json.Decoder(_Line)
        self._objects = msgspec.json.Decoder(_Object)
        self._items = msgspec.json.Decoder(kind)

    def run(self) -> Generator[Listed[T] | Event[T], None, Failure]:
        """The happenings, and at the end the failure that it could not go on from."""
        at = _Position()
        reply = self._listed()
        failure = reply.failure
        while failure is None or (at.version and failure.result in _PASSING):
            if failure is None:
                at.version = reply.resource_version
                yield Listed(reply.items, reply.resource_version)
                ended = yield from self._follow(at)
                if ended is not None:
                    return ended
            if self._pause(at.longer()):
                return self._ended()
            reply = self._listed()
            failure = reply.failure
        return failure

    def _follow(self, at: _Position) -> Generator[Event[T], None, Failure | None]:
        """Streams from `at` on, until one is gone (None) or refused."""
        while True:
            opened = self._opened(at.version)
            failure = opened if isinstance(opened, Failure) else (yield from self._read(opened, at))
            if failure is not None and failure.result == "410":
                at.gone += 1
                return with_tries(failure, at.gone) if at.gone > _GONE else None
            if failure is not None and failure.result not in _PASSING:
                return failure
            if failure is not None and "status" in failure.details:
                # It was told, and not just cut off: from a version of the future, as after a restore, it always is.
                at.in_vain += 1
            if at.in_vain >= _IN_VAIN:
                at.in_vain = 0
                return None
            if self._pause(at.longer()):
                return self._ended()

    def _ended(self) -> Failure:
        ended = self._ctx.ended or "cancelled"
        return failed(self._request, f"context-{ended}", sent=False, details={"message": f"the context ended: {ended}"})

    def _read(self, stream: Stream, at: _Position) -> Generator[Event[T], None, Failure | None]:
        try:
            with closing(stream):
                for line in lines(stream.pieces):
                    event = self._event(line, at)
                    if isinstance(event, Failure):
                        return event
                    if event is not None:
                        yield event
        except AnswerMalformed:
            at.in_vain += 1
        except WrongKind as error:
            return wrong_kind(self._request, error)
        except Broken:
            return None
        return None

    def _event(self, line: bytes, at: _Position) -> Event[T] | Failure | None:
        try:
            str(line, "utf-8")  # what is left out is not looked at, and a damaged key would be left out
            said = self._lines.decode(line)
            if said.type == "ERROR":
                return self._error(bytes(said.object))
            seen = self._objects.decode(said.object)
            version = seen.metadata.resource_version
            self._require(said.type, seen, version)
            if said.type == "BOOKMARK":
                if _newer(version, at.version):
                    at.moved(version)
                return None
            if not _newer(version, at.version):
                return None
            item = self._items.decode(said.object)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise AnswerMalformed(f"a line of the watch cannot be read: {type(error).__name__}") from None
        at.moved(version)
        return Event(said.type, item, version)  # type: ignore[arg-type] # one of the three: looked at above

    def _require(self, kind: str, seen: _Object, version: str) -> None:
        resource = self._request.resource
        require_kind(seen.api_version, seen.kind, resource.api_version, resource.kind)
        if kind not in {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"} or not version:
            raise AnswerMalformed("a line of the watch is of no known type, or has no version")

    def _error(self, status: bytes) -> Failure:
        said = msgspec.json.decode(status, type=_Ending)
        code = 410 if said.reason in {"Expired", "Gone"} else said.code
        # The server's own end of a stream, by a Status: as if it had answered the request so.
        return refusal(self._request, code if code in ROWS else 500, {}, status)


class _Ending(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""


def lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines, blank ones left out. Raises AnswerMalformed if the stream ends within one."""
    rest = bytearray()
    for piece in pieces:
        rest += piece
        at = rest.rfind(b"\n")
        if at < 0:
            continue
        whole = bytes(rest[:at])
        del rest[: at + 1]
        for line in whole.split(b"\n"):
            if line.strip():
                yield line
    if rest.strip():
        raise AnswerMalformed("the stream ended in the middle of a line")
