"""A property that never meets a rule proves nothing of it: so every rule, state, edge and request is counted, and a run
that visits one too seldom fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dispatch_kubeflow.machine.lifecycle import Lifecycle
from dispatch_kubeflow.machine.rules import Rule, rulebook
from dispatch_kubeflow.machine.rules.decide import Rulebook
from dispatch_kubeflow.machine.rules.model import Edge

from .story import Step, Story
from .truth import Asking
from .wire import Fault

PLAIN_FAMILIES = ("request", "start", "object", "open", "stop", "states", "in_flight", "backend", "context")
"""The families that schedules of plain mode can reach; inputs, settings and kueue mode have tests of their own."""


class Floors:
    """Visits of one run."""

    def __init__(self) -> None:
        self.rules: Counter[str] = Counter()
        self.edges: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what the tables are asked, as long as this lasts."""
        decide, answer = Rulebook.decide, Lifecycle.answer

        def counted(book: Rulebook, family: str, /, **facts: Any) -> Rule:
            found = decide(book, family, **facts)
            if Asking.oracle:
                return found
            self.rules[found.id] += 1
            if family == "states" and found.gives:
                self.states[found.gives] += 1
            return found

        def answered(lifecycle: Lifecycle, state: str, operation: str, **guards: str) -> Edge | Rule:
            found = answer(lifecycle, state, operation, **guards)
            if isinstance(found, Edge):
                self.edges[found.id] += 1
            return found

        Rulebook.decide, Lifecycle.answer = counted, answered  # type: ignore[method-assign, assignment] # as methods are
        try:
            yield
        finally:
            Rulebook.decide, Lifecycle.answer = decide, answer  # type: ignore[method-assign]

    def add(self, story: Story) -> None:
        """Count the requests of a schedule."""
        for each in story.world.wire.exchanges:
            if each.sent:
                self.requests[each.what] += 1

    def below(self, floor: int, ids: list[str]) -> dict[str, int]:
        """The rules of these that were visited less often than the floor."""
        return {each: self.rules[each] for each in ids if self.rules[each] < floor}


def reachable() -> list[str]:
    """The rules that schedules must meet."""
    tables = rulebook().tables
    return [
        rule.id
        for family in PLAIN_FAMILIES
        for rule in tables.families[family].rules
        if "plain" in (rule.modes or ("plain",))
    ]


_MINE: dict[str, Any] = {"by": "a", "job": "alpha", "attempt": 1}
_START: Step = {"do": "start", **_MINE}
_OPEN: Step = {"do": "open", **_MINE}
_SOON: Step = {"do": "advance", "seconds": 3.0}
_HOLD: Step = {"do": "hold", "n": 1, **_MINE}
_RELEASE: Step = {"do": "release", "n": 1, **_MINE}
_FIND: Step = {"do": "find", "by": "a", "job": "alpha"}
_STOP: Step = {"do": "stop", **_MINE}
_REFUSED = {"kind": "refused"}
_DROPPED = {"kind": "drop"}
_CONFLICT = {"kind": "answer", "status": 409, "reason": "Conflict"}
_LIST_FAULT = {"kind": "slow-dial", "seconds": 500.0}


def _kubectl(deed: str) -> Step:
    return {"do": "kubectl", "deed": deed, "job": "alpha", "attempt": 1}


_ORPHAN = _kubectl("orphan")


def _lacks(*pairs: list[str]) -> Step:
    return {"do": "rbac", "by": "b", "lacks": list(pairs)}


DIRECTED: tuple[tuple[Step, ...], ...] = (
    # What seeds meet too seldom, each a schedule of its own.
    ({"do": "blind", "on": True}, _START, {"do": "blind", "on": False}, _START),
    (_START, {"do": "lag", "controller": "collector", "seconds": 50.0}, _ORPHAN, _OPEN),
    (_START, _lacks(["delete", "trainjobs"]), {"do": "stop_job", "by": "b", "job": "alpha"}),
    (_START, _OPEN, _SOON, _ORPHAN, _SOON, _lacks(["delete", "jobsets"]), {**_STOP, "by": "b", "kind": "JobSet"}),
    (_START, {"do": "hold", **_MINE, "n": 1, "faults": {str(place): _CONFLICT for place in range(1, 16, 2)}}),
    (_START, _OPEN, _SOON, {"do": "down", "program": "jobset"}, _HOLD, _RELEASE),
    (_START, _OPEN, {"do": "pace", "pace": "still"}, _HOLD, _RELEASE),
    (_START, _HOLD, _RELEASE, _HOLD),
    (_START, _kubectl("ajar"), _OPEN),
    (_START, _kubectl("junk"), _OPEN),
    (_START, _kubectl("mode"), _OPEN),
    (_START, _kubectl("backend"), _OPEN),
    (_START, _kubectl("queue"), _OPEN),
    (_START, _kubectl("limit"), _OPEN),
    (_START, _OPEN, _SOON, _kubectl("limit"), {"do": "advance", "seconds": 10.0}, _FIND),
    ({**_START, "deadline": 3}, _OPEN, {"do": "advance", "seconds": 10.0}, _FIND),
    (_START, _kubectl("again"), _OPEN, _STOP),
    (_START, _kubectl("copy"), _OPEN),
    (_START, _STOP, _STOP),
    (_START, _kubectl("backend"), _STOP),
    (_START, _OPEN, _SOON, {"do": "output", **_MINE, "faults": {"2": {"kind": "answer", "status": 400}}}),
    ({**_START, "faults": {"4": _DROPPED}}, _kubectl("recopy"), _START),
    ({"do": "down", "program": "kube-controller-manager"}, _START, _OPEN, _SOON,
     {"do": "down", "program": "jobset"}, _HOLD, _SOON, _RELEASE),
    (_START, _OPEN, _SOON, {"do": "finish", "job": "alpha", "code": 0}, _SOON, _kubectl("jobset"), _SOON, _FIND),
    ({**_START, "faults": {"4": _DROPPED}}, {"do": "advance", "seconds": 100.0}, _FIND),
    ({**_START, "deeds": {"6": _kubectl("touch")}},),
    ({**_START, "faults": {"8": {"kind": "drop"}}, "deeds": {"6": _kubectl("touch")}},),
    ({**_START, "faults": {"7": {"kind": "answer", "status": 403}}, "deeds": {"6": _kubectl("touch")}},),
    (_START, {**_STOP, "faults": {str(place): _CONFLICT for place in range(1, 16, 2)}}),
    (_START, _OPEN, _SOON, {"do": "stop_job", "by": "a", "job": "alpha", "faults": {"5": _LIST_FAULT}}),
    ({**_START, "faults": {"6": {"kind": "kind"}}},),
    ({**_START, "timeout": 20.0, "faults": {"6": _LIST_FAULT}},),
    ({**_START, "faults": {"6": {"kind": "answer", "status": 403, "reason": "Forbidden"}}},),
    ({**_START, "deeds": {"6": {"do": "kubectl", "deed": "delete", "job": "alpha", "attempt": 1}}},),
    ({**_START, "deeds": {"6": {"do": "kubectl", "deed": "again", "job": "alpha", "attempt": 1}}},),
    (_START, {**_OPEN, "timeout": 20.0, "faults": {"1": _LIST_FAULT}}),
    (_START, {"do": "find", **_MINE, "timeout": 20.0, "faults": {"1": _LIST_FAULT}}),
    (_START, {"do": "stop_job", "by": "a", "job": "alpha", "faults": {str(place): _REFUSED for place in (5, 11, 17)}}),
    (_START, {"do": "stop_job", "by": "a", "job": "alpha", "faults": {str(place): _DROPPED for place in (5, 11, 17)}}),
)  # fmt: skip
EXCUSED = {
    "request.group-version-absent": "only Factory asks for discovery, and here Backends are made without it",
    "start.check-not-asked": "plain mode has no such step, and nothing asks",
    "start.no-workload-step": "plain mode has no such step, and nothing asks",
    "start.owner-stop": "Start stops without asking whether to",
    "start.owner-stop-unanswered": "Start stops without asking whether to",
    "start.copy-deleting": "a copy that is being deleted and stays needs a finalizer of somebody else's",
    "start.copy-gone-again": "the copy has to go between two requests of one Start, made by another",
    "start.copy-flickers": "as above, twice",
    "in_flight.elsewhere": "a Backend asks only for creates it made itself",
    "in_flight.answered": "an answered create is no longer remembered",
    "backend.forked": "a fork of the process that plays is no schedule",
}
"""Rules that no schedule of plain mode can meet, and why."""
FLOOR = 2


def visit_all() -> Floors:
    """A run that has to meet everything: scenes with the gravest faults, directed schedules, and some of the drawn."""
    from . import exhaustive, runner

    floors = Floors()
    with floors.counting():
        for scene in exhaustive.SCENES:
            for place in range(exhaustive.requests(scene)):
                for fault in _GRAVE:
                    world, _ = exhaustive.run(scene, {place: fault})
                    world.close()
        for steps in DIRECTED * FLOOR:
            story, error = runner.play(0, list(steps))
            floors.add(story)
            story.close()
            if error is not None:
                raise error
    drawn = runner.run(iter(range(5000, 5400)), until=lambda _: False)
    for mine, theirs in (
        (floors.rules, drawn.floors.rules),
        (floors.edges, drawn.floors.edges),
        (floors.states, drawn.floors.states),
        (floors.requests, drawn.floors.requests),
    ):
        mine.update(theirs)
    return floors


_GRAVE = (
    Fault("lost"),
    Fault("token"),
    Fault("kind"),
    Fault("slow-dial", seconds=500.0),
    Fault("answer", 404, named=False),
    Fault("answer", 409, "AlreadyExists"),
    Fault("answer", 409, "Conflict"),
    Fault("answer", 410, "Expired"),
)
