"""Callers act on *which* error came, so each failure is exactly one of a few documented classes: the sentinels.

They are named as the specification page names them. Nothing here decides when one is raised: the tables do, and
`rules.Rulebook.settle` is the one place that raises. A sentinel says what the caller may now believe; its `row` says
which table row decided it, and `__cause__` keeps what lay beneath.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self


class DispatchError(Exception):
    """The base of every sentinel; never raised itself.

    `row` is the stable id of the table row that decided (`request.conflict`), `operation` the call's name, `subject`
    the job id, reference or setting concerned, `details` exactly what that row lists. `str(error)` is one full
    sentence. Errors pickle and copy; a cause that does not is replaced by a `CauseSummary` in the copy.
    """

    sentinel: ClassVar[str] = "DispatchError"

    def __init__(
        self,
        message: str,
        *,
        row: str,
        operation: str,
        subject: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.row = row
        self.operation = operation
        self.subject = subject
        self.details: Mapping[str, Any] = MappingProxyType(dict(details or {}))

    def __init_subclass__(cls) -> None:
        cls.sentinel = cls.__name__

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"{self.sentinel}({self.row}: {self.message})"

    def __copy__(self) -> Self:
        twin = type(self)(
            self.message, row=self.row, operation=self.operation, subject=self.subject, details=self.details
        )
        twin.__cause__ = self.__cause__
        for note in getattr(self, "__notes__", ()):
            twin.add_note(note)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin: Self = pickle.loads(pickle.dumps(self))  # noqa: S301 - our own bytes, of a moment ago
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        details = {key: _portable_value(value) for key, value in self.details.items()}
        causes = tuple(_portable_cause(cause) for cause in _chain(self.__cause__))
        notes = tuple(getattr(self, "__notes__", ()))
        given = {
            "message": self.message,
            "row": self.row,
            "operation": self.operation,
            "subject": self.subject,
            "details": details,
        }
        return _rebuild, (type(self), given, causes, notes)


class ErrInvalid(DispatchError):
    """The caller's input is wrong; nothing was sent."""


class ErrUnsupported(DispatchError):
    """This cluster, or this adapter as it is set up, cannot do what was asked."""


class ErrReadOnly(DispatchError):
    """A write was asked of a Backend that may only read."""


class ErrUnauthorized(DispatchError):
    """The credentials could not be had, or do not allow the request."""


class ErrAdmissionDenied(ErrUnauthorized):
    """An admission webhook denied the request (page row A5: still ErrUnauthorized)."""


class ErrNotFound(DispatchError):
    """The object, or this instance of it, is not there."""


class ErrRejected(DispatchError):
    """A definite refusal: what was asked has not been done."""


class ErrStaleHold(ErrRejected):
    """The hold instance named is not the one in force (page row C24)."""


class ErrUnreachable(DispatchError):
    """The request in question was provably not sent, or was a read that got no answer."""


class ErrPodsRemain(ErrUnreachable):
    """Something of the job can still run; nothing was written, the hold stays in force (page rows C25, C41)."""


class ErrOutcomeUnknown(DispatchError):
    """A write got no definite answer: it may have taken effect."""


class CauseSummary(Exception):
    """What stands in for a cause that could not be pickled: the name of its type, and its text."""

    def __init__(self, type: str, text: str) -> None:  # noqa: A002 - the contract's name
        super().__init__(type, text)
        self.type = type
        self.text = text

    def __str__(self) -> str:
        return f"{self.type}: {self.text}"


def sentinels() -> Mapping[str, type[DispatchError]]:
    """Every sentinel by name; the base is not one of them, for it is never raised."""
    found: dict[str, type[DispatchError]] = {}
    waiting = list(DispatchError.__subclasses__())
    while waiting:
        each = waiting.pop(0)
        if each.__module__ == __name__:  # a user's own subclass is no sentinel of ours
            found[each.sentinel] = each
            waiting.extend(each.__subclasses__())
    return MappingProxyType(found)


def _chain(cause: BaseException | None) -> Iterator[BaseException]:
    """The cause, its cause, and so on; one of our own errors carries its own chain, so it ends this one."""
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = None if isinstance(cause, DispatchError) else cause.__cause__


def _portable_cause(cause: BaseException) -> BaseException:
    """The cause itself if it survives pickling; its summary if not, for an exception's pickling is often broken."""
    try:
        twin = pickle.loads(pickle.dumps(cause))  # noqa: S301 - our own bytes, of a moment ago
    except Exception:  # noqa: BLE001 - any code at all may run here, and the answer to all of it is the summary
        twin = None
    return cause if type(twin) is type(cause) else CauseSummary(type(cause).__qualname__, str(cause))


def _portable_value(value: object) -> object:
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - as above: what cannot be pickled is told in words
        return repr(value)
    return value


def _rebuild(
    cls: type[DispatchError],
    given: Mapping[str, Any],
    causes: tuple[BaseException, ...],
    notes: tuple[str, ...],
) -> DispatchError:
    error = cls(**given)
    above: BaseException = error
    for cause in causes:
        above.__cause__ = cause
        above = cause
    for note in notes:
        error.add_note(note)
    return error
