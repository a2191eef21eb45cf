"""The pure room: the errors, the values, the clock, and the rules that decide; no network, no Kubernetes."""

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
    "SystemClock",
]
