"""A log that was cut must not look like a log that ended: so its end is given only where the server marked one."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterator

from .answers import failed
from .reply import Failure
from .request import Request
from .watches import Broken, Stream

LONGEST_LOG = 600.0
"""Seconds of waiting for a log that is not followed; a reader may take as long as it likes."""
_LONGEST_LINE = 1_048_576


class LogLines(Iterator[bytes | Failure]):
    """The lines of a log as they come, without their ends; at last a Failure if the log was cut.

    A line longer than 1 MiB comes in parts. What stands after the last line end is given only if the log ended there.
    Its connection is closed at the end, by `close`, or when nobody holds it any more.
    """

    def __init__(self, request: Request, stream: Stream) -> None:
        self._lines = _lines(request, stream)
        self._finalizer = weakref.finalize(self, stream.close)

    def __next__(self) -> bytes | Failure:
        return next(self._lines)

    def close(self) -> None:
        """Close the connection; there are no more lines then."""
        self._lines.close()
        self._finalizer()


def _lines(request: Request, stream: Stream) -> Generator[bytes | Failure, None, None]:
    rest = bytearray()
    try:
        for piece in stream.pieces:
            rest += piece
            *whole, last = rest.split(b"\n")
            yield from map(bytes, whole)
            while len(last) > _LONGEST_LINE:
                yield bytes(last[:_LONGEST_LINE])
                del last[:_LONGEST_LINE]
            rest = last
    except Broken as error:
        cause = error.__cause__ or error
        yield failed(request, "lost", sent=True, cause=cause, details={"message": f"the log was cut: {error}"})
        return
    finally:
        stream.close()
    if rest:
        yield bytes(rest)
