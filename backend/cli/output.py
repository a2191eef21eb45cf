"""The lines of a job are followed beside its states, and across its pods: a held job has others when it is released.

A stream does not say whose lines it gives, and one that was cut begins anew; so what a stream repeats of the one before
it is left out by comparing lines.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

from dispatch_kubeflow.machine import Context, DispatchError, ErrNotFound, ErrRejected, ErrUnreachable


class Outputs(Protocol):
    """The part of a Backend that gives a job's lines."""

    def output(self, job_id: str, *, follow: bool = ..., ctx: Context | None = ...) -> Iterator[bytes]:
        """The lines of rank 0."""
        ...


class OutputFollower:
    """Gives each line of rank 0 to `line`, in a thread of its own, until it is finished."""

    def __init__(
        self, backend: Outputs, job_id: str, ctx: Context, line: Callable[[bytes], None], say: Callable[[str], None]
    ) -> None:
        self._backend = backend
        self._job_id = job_id
        self._ctx = ctx.child()
        self._line = line
        self._say = say
        self._wanted = threading.Event()
        self._finishing = False
        self._given = _Given()
        self._thread = threading.Thread(target=self._follow, name=f"output of {job_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ctx.cancel()
        self._thread.join()

    def look(self) -> None:
        """The job's pods have changed: there may be something to read."""
        self._wanted.set()

    def finish(self, seconds: float) -> None:
        """The job has ended: wait at most so long for its last lines."""
        self._finishing = True
        self._wanted.set()
        self._thread.join(seconds)

    def _follow(self) -> None:
        unsubscribe = self._ctx.on_cancel(self._wanted.set)
        try:
            while True:
                self._wanted.wait()
                self._wanted.clear()
                last = self._finishing
                if self._ctx.ended is not None:
                    return
                cut = self._one_stream()
                if cut:
                    self._ctx.wait(1)
                    self._wanted.set()
                elif last:
                    return
        finally:
            unsubscribe()

    def _one_stream(self) -> bool:
        """Give what one stream has anew; whether it was cut."""
        self._given.again()
        try:
            for line in self._backend.output(self._job_id, follow=True, ctx=self._ctx):
                for new in self._given.news(line):
                    self._line(new)
        except (ErrNotFound, ErrRejected):
            return False  # no pod of rank 0, or its container does not run yet: the next look may find it
        except ErrUnreachable as error:
            if self._ctx.ended is None:
                self._say(f"the output was cut and is read again: {error}")
                return True
        except DispatchError as error:
            self._say(f"no more output: {error}")
            self._ctx.cancel()
        return False


class _Given:
    """The lines given so far, by their hashes, for a job may print more than there is memory for."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._repeated = 0  # lines of this stream that the one before it had at the same place
        self._withheld: list[bytes] | None = None  # those lines, while there are no others; None after

    def again(self) -> None:
        """A stream begins."""
        self._repeated = 0
        self._withheld = []

    def news(self, line: bytes) -> list[bytes]:
        """What this line of the stream adds: nothing, or itself, and with it those that were withheld as repeated."""
        value = hash(line)
        if self._withheld is not None and self._repeated < len(self._hashes):
            if self._hashes[self._repeated] == value:
                self._repeated += 1
                self._withheld.append(line)
                return []
            del self._hashes[self._repeated :]  # another pod's stream, that began alike
            self._hashes.append(value)
            withheld, self._withheld = self._withheld, None
            return [*withheld, line]
        self._withheld = None
        self._hashes.append(value)
        return [line]
