"""Performs a sequence on both sides and says where they disagree."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.real.compare import differences

from .sides import EmbeddedSide, RealSide, Run, fresh_name
from .steps import Step

_RENEW = 40


@dataclass
class Both:
    """The two sides, and how much of them has been compared."""

    real: RealSide
    embedded: EmbeddedSide
    sequences: int = 0
    requests: int = 0
    events: int = 0
    _numbers: Any = field(default_factory=lambda: itertools.count(100000))
    _namespace: str = ""

    def disagreements(self, steps: Sequence[Step]) -> list[str]:
        """Every value of every answer and of every event in which they differ."""
        if self.sequences % _RENEW == 0:
            self._namespace = fresh_name()
            for side in (self.real, self.embedded):
                side.begin(self._namespace)
        self.sequences += 1
        sequence = f"s{next(self._numbers)}"
        runs = [Run(side, self._namespace, sequence) for side in (self.real, self.embedded)]
        found: list[str] = []
        for number, step in enumerate(steps):
            one, other = (run.perform(step) for run in runs)
            self.requests += 1
            found += [
                f"{number}: {step}\n    {path}: real {here!r}, embedded {there!r}"
                for path, here, there in differences(one, other)
            ]
        events = [run.events() for run in runs]
        self.events += len(events[0])
        if not found:
            found += [
                f"events: {path}: real {here!r}, embedded {there!r}"
                for path, here, there in differences({"events": events[0]}, {"events": events[1]})
            ]
        return found
