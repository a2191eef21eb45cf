"""What Find shows, read for one attempt: what a supervisor needs to know, and one line for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from .exits import Exit

if TYPE_CHECKING:
    from dispatch_kubeflow.backend.objects.found import Found, FoundObject

RUNS = {"TrainJob", "JobSet", "Job", "Pod"}
"""Kinds of which something may run. A runtime copy alone does not count."""


@dataclass(frozen=True)
class Seen:
    """One attempt's objects in one view."""

    objects: tuple[FoundObject, ...]

    @cached_property
    def trainjob(self) -> FoundObject | None:
        """Its TrainJob, if it is there."""
        return next((each for each in self.objects if each.ref.kind == "TrainJob"), None)

    @property
    def anything_may_run(self) -> bool:
        """Whether anything is there besides a runtime copy."""
        return any(each.ref.kind in RUNS for each in self.objects)

    @property
    def gate_lifted(self) -> bool:
        """Whether its gate was ever lifted."""
        return self.trainjob is not None and bool(self.trainjob.gate_lifted)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.trainjob is not None and self.trainjob.state == "ended"

    @property
    def exit_status(self) -> int:
        """The exit status that its end gives `run`."""
        cause = None if self.trainjob is None else self.trainjob.cause
        if cause is None:
            return Exit.ENDED_WITHOUT_STATUS
        if cause.kind == "succeeded":
            return Exit.OK
        if cause.kind == "application" and cause.exit_code:
            return int(cause.exit_code)
        return Exit.ENDED_WITHOUT_STATUS

    @property
    def cause_is_known(self) -> bool:
        """Whether it is shown why it ended."""
        cause = None if self.trainjob is None else self.trainjob.cause
        return cause is not None and cause.kind != "unknown"

    @property
    def cause(self) -> str:
        """Why it ended, in words."""
        cause = None if self.trainjob is None else self.trainjob.cause
        if cause is None:
            return "unknown"
        shown = [*cause.evidence, *(f"not looked at: {each}" for each in cause.not_looked_at)]
        return f"{cause.kind} ({'; '.join(shown)})" if shown else cause.kind

    @property
    def summary(self) -> str:
        """One line for people."""
        return "; ".join(object_line(each) for each in self.objects) or "nothing is there"


def of_attempt(found: Found, number: int) -> Seen:
    """The part of a view that is of this attempt."""
    return Seen(tuple(each for each in found.objects if each.attempt == number))


def object_line(seen: FoundObject) -> str:
    """An object as Find shows it, in one line."""
    return " · ".join((f"{seen.ref.kind} {seen.ref.name}", seen.state, *hold_and_pods(seen), *_beside(seen)))


def hold_and_pods(seen: FoundObject) -> Iterator[str]:
    """The hold on record, and how many pods there are of which phase."""
    if seen.hold_register is not None:
        yield f"hold {seen.hold_register.instance} {'in force' if seen.hold_register.held else 'released'}"
    phases = ("pending", "running", "succeeded", "failed", "unknown", "terminating")
    pods = [f"{number} {phase}" for phase in phases if (number := getattr(seen.pods, phase))]
    if pods:
        yield f"pods: {', '.join(pods)}"


def _beside(seen: FoundObject) -> Iterator[str]:
    """What else stands beside the state."""
    for flag in ("stopping", "collecting", "failing"):
        if getattr(seen, flag):
            yield flag
    if seen.waiting is not None:
        yield f"waiting: {seen.waiting.reason} {seen.waiting.message}".rstrip()
    for drift in seen.drift:
        yield f"drift: {drift}"
    if seen.cause is not None and seen.cause.kind != "none":
        yield f"cause: {seen.cause.kind}" + (
            "" if seen.cause.exit_code is None else f" (exit code {seen.cause.exit_code})"
        )
