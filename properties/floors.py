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

from .story import Story
from .truth import Asking

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

        def answered(lifecycle: Lifecycle, *given: Any, **facts: Any) -> Any:
            found = answer(lifecycle, *given, **facts)
            if isinstance(found, Edge):
                self.edges[found.id] += 1
            return found

        Rulebook.decide, Lifecycle.answer = counted, answered  # type: ignore[method-assign]
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
