"""A log that was cut must not look like a log that ended: so its end is given only where the server marked one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from .answers import failed
from .reply import Failure
from .request import Request
from .watches import Broken, Stream

_LONGEST_LINE = 1_048_576


def log_lines(request: Request, stream: Stream) -> Iterator[bytes | Failure]:
    """The log's lines as they come, without their ends; at last a Failure if the log was cut.

    A line longer than 1 MiB comes in parts. What stands after the last line end is given only if the log ended there.
    """
    rest = bytearray()
    try:
        with closing(stream):
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
    if rest:
        yield bytes(rest)
