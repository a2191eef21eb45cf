"""What a supervisor journals decides whether it may start another attempt, so that too is a table, and total."""

from __future__ import annotations

import enum

from .errors import DispatchError
from .rules import rulebook


class Recorded(enum.Enum):
    """How a supervisor records the attempt whose Start raised."""

    REFUSED = "refused"
    """Nothing of it runs, or ever will."""
    UNKNOWN = "unknown"
    """It may run; only Find can tell."""


def record_start(error: BaseException) -> Recorded:
    """How to record a Start that raised this (page rows S0 to S6); total over every exception, our own or not."""
    book = rulebook()
    asked = next(each for each in book.families["record"].inputs if each.name == "error")
    # As Python tries except clauses: ErrStaleHold is an ErrRejected.
    names = [each.__name__ for each in type(error).__mro__] if isinstance(error, DispatchError) else []
    name = next((each for each in names if each in asked.values), "other")
    return Recorded(book.decide("record", operation="record", error=name).gives)
