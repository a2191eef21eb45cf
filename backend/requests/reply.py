"""A failed request is a value, not an exception: the facts of what happened, for the tables to judge.

Nothing here names a sentinel. A `Failure` carries the keyword facts of the `request` table, the details an error may
show, and the exception beneath; `refuse` hands them to the rulebook, which raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from .request import Request

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.rules import Rule, Rulebook

T = TypeVar("T")

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no answer that could be used.

    `result` is the fact of that name in the `request` table; `reason` the Status object's reason, `webhook` the webhook
    that refused, where known. `sent`: whether the first byte was handed to a connected socket. `details`: status,
    reason, retry_after, webhook and message, those that are known. `cause`: the exception beneath, if there was one.
    `facts`: the keyword facts of the `request` table.
    """

    result: str
    sent: bool
    reason: str | None = None
    webhook: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    cause: BaseException | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """What happened, as part of a sentence."""
        return str(self.details.get("message", self.result))


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request gave: an object that was asked for, or a failure. `warnings` are the server's, if it sent any.

    `status` is the status that was received, also with a failure; None if none was.
    """

    request: Request
    status: int | None = None
    object: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ListReply(Generic[T]):
    """What a list gave: all of its items and their resourceVersion, or a failure.

    `restarts`: how often it began anew because its continuation had expired.
    """

    items: tuple[T, ...] = ()
    resource_version: str = ""
    failure: Failure | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class LogReply:
    """A log: its lines without their line ends, read as they are asked for; or a failure.

    If the log is cut, the last thing `lines` gives is a Failure.
    """

    lines: Iterator[bytes | Failure] = field(default_factory=lambda: iter(()))
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """The whole state at a resourceVersion. After the first one it means that events in between were not seen."""

    items: tuple[T, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """One change. `item` is the object after it; of a deletion, its last state."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    item: T
    resource_version: str


class ServerAnswer(Exception):
    """The cause beneath a refusal: the answer itself, its status, reason and message."""

    def __init__(self, status: int, reason: str | None, message: str) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.status} {self.reason or '(no reason)'}: {self.message or '(no message)'}"


def refuse(
    failure: Failure,
    *,
    book: Rulebook,
    operation: str,
    mode: str,
    subject: str | None,
    extra_details: Mapping[str, Any] = _NOTHING,
) -> Rule:
    """Raise the error that the `request` table has for `failure`; the rule, should it have none."""
    return book.settle(
        "request",
        operation=operation,
        mode=mode,
        facts=failure.facts,
        subject=subject,
        details={**failure.details, **extra_details},
        cause=failure.cause,
    )
