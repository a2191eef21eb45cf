"""What the calls of one Backend share: its settings, its tables, its one door to the network, and how it stands.

A Backend remembers little, and nothing of any job's state: whether it is closed, which write gates it lacks, and which
creates it sent and never heard of.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dispatch_kubeflow.backend.objects.names import Identity
from dispatch_kubeflow.backend.requests import Door
from dispatch_kubeflow.machine.context import Clock, Context
from dispatch_kubeflow.machine.rules import Rulebook
from dispatch_kubeflow.machine.settings import Settings

if TYPE_CHECKING:
    from .gates import Gates
    from .hub import Hub

Life = Literal["open", "closed", "forked"]


@dataclass(frozen=True, slots=True)
class Permissions:
    """What access reviews showed of the permissions that no call can do without asking for."""

    log: bool
    """get pods/log: Output."""
    nodes: bool
    """get nodes: Ceased."""


class Running:
    """The contexts of the calls that run, so that close can cancel them; and whether it did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts: set[Context] = set()
        self._closed = False
        self._process = os.getpid()

    @property
    def life(self) -> Life:
        """Whether the Backend may be used at all."""
        if os.getpid() != self._process:
            return "forked"
        return "closed" if self._closed else "open"

    def enter(self, ctx: Context) -> None:
        """A call begins; on a Backend closed meanwhile its context is cancelled at once."""
        with self._lock:
            closed = self._closed
            self._contexts.add(ctx)
        if closed:
            ctx.cancel()

    def leave(self, ctx: Context) -> None:
        """A call has ended."""
        with self._lock:
            self._contexts.discard(ctx)

    def close(self) -> bool:
        """Cancel every running call; whether this was the first close."""
        with self._lock:
            first, self._closed = not self._closed, True
            contexts = list(self._contexts)
        for ctx in contexts:
            ctx.cancel()
        return first


@dataclass(slots=True)
class Mark:
    """One create of a TrainJob that this Backend sent: no answer to it is known (rows B1, B2)."""

    identity: Identity
    nonce: str
    gave_up: float | None = None
    """When its call gave up, in monotonic seconds; None while it runs."""


class InFlight:
    """The creates that may still commit. In memory only: another process does not know of them."""

    def __init__(self, book: Rulebook, clock: Clock, call_bound: float, mode: str) -> None:
        self._book = book
        self._clock = clock
        self._call_bound = call_bound
        self._mode = mode
        self._lock = threading.Lock()
        self._marks: dict[str, Mark] = {}

    def begin(self, identity: Identity, nonce: str) -> Mark:
        """Set the mark, in front of the create's first byte."""
        mark = Mark(identity, nonce)
        with self._lock:
            self._marks[nonce] = mark
        return mark

    def give_up(self, mark: Mark) -> None:
        """The call ended without a definite answer; call_bound counts from now."""
        mark.gave_up = self._clock.monotonic()

    def answered(self, mark: Mark) -> None:
        """A definite answer came, or the create was provably not sent."""
        with self._lock:
            self._marks.pop(mark.nonce, None)

    def of_job(self, job: str, seen: frozenset[str] = frozenset()) -> tuple[Identity, ...]:
        """The attempts of a job that are in flight. `seen`: nonces of TrainJobs that exist; they end their marks."""
        with self._lock:
            marks = [mark for mark in self._marks.values() if mark.identity.job == job]
            counting = [mark for mark in marks if self._counts(mark, seen)]
            for mark in marks:
                if mark not in counting:
                    del self._marks[mark.nonce]
        return tuple(sorted({mark.identity for mark in counting}, key=lambda identity: identity.attempt))

    def _counts(self, mark: Mark, seen: frozenset[str]) -> bool:
        now = self._clock.monotonic()
        running = mark.gave_up is None or now - mark.gave_up < self._call_bound
        rule = self._book.decide(
            "in_flight",
            operation="find",
            mode=self._mode,
            create="unanswered",
            nonce="seen" if mark.nonce in seen else "not-seen",
            bound="running" if running else "passed",
        )
        return rule.gives == "yes"


@dataclass(slots=True)
class Adapter:
    """One Backend's parts, as its operations use them."""

    settings: Settings
    book: Rulebook
    clock: Clock
    door: Door
    permissions: Permissions
    gates: Gates
    hub: Hub
    in_flight: InFlight
    running: Running = field(default_factory=Running)
