"""The pure room: the errors, the values, the clock, and the rules that decide; no network, no Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .context import Clock, Context, SystemClock
from .errors import (
    CauseSummary,
    DispatchError,
    ErrAdmissionDenied,
    ErrInvalid,
    ErrNotFound,
    ErrOutcomeUnknown,
    ErrPodsRemain,
    ErrReadOnly,
    ErrRejected,
    ErrStaleHold,
    ErrUnauthorized,
    ErrUnreachable,
    ErrUnsupported,
)

if TYPE_CHECKING:
    from .record import Recorded, record_start

__all__ = [
    "CauseSummary",
    "Clock",
    "Context",
    "DispatchError",
    "ErrAdmissionDenied",
    "ErrInvalid",
    "ErrNotFound",
    "ErrOutcomeUnknown",
    "ErrPodsRemain",
    "ErrReadOnly",
    "ErrRejected",
    "ErrStaleHold",
    "ErrUnauthorized",
    "ErrUnreachable",
    "ErrUnsupported",
    "Recorded",
    "SystemClock",
    "record_start",
]


def __getattr__(name: str) -> Any:
    # The tables are read for these two alone, and importing the package must stay quick.
    if name not in {"Recorded", "record_start"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import record  # noqa: PLC0415 - as said

    return getattr(record, name)
