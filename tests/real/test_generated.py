"""Thousands of drawn sequences of requests, answered alike by the real control plane and by the embedded cluster.

The sequences are the same in every run; `DISPATCH_DRAW=SEED` draws others. A disagreement is shrunk by Hypothesis to
the shortest sequence that shows it; those found so far are tried first.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from .cluster import Cluster
from .generated.compare import Both
from .generated.found import FOUND
from .generated.sides import EmbeddedSide, RealSide
from .generated.steps import Step, sequences

SEQUENCES = 2000
_SEED = os.environ.get("DISPATCH_DRAW")
pytestmark = pytest.mark.timeout(3600, func_only=True)


@pytest.fixture(scope="module")
def both(cluster: Cluster, compared: Counter[str]) -> Iterator[Both]:
    made = Both(RealSide(cluster), EmbeddedSide())
    yield made
    made.real.close()
    made.embedded.close()
    compared.update(sequences=made.sequences, requests=made.requests, events=made.events)


@pytest.mark.parametrize("name", FOUND)
def test_what_once_disagreed_agrees(both: Both, name: str) -> None:
    assert both.disagreements(FOUND[name]) == []


def test_drawn_sequences_are_answered_alike(both: Both) -> None:
    @settings(
        max_examples=SEQUENCES,
        deadline=None,
        database=None,
        derandomize=_SEED is None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(sequences())
    def alike(steps: list[Step]) -> None:
        found = both.disagreements(steps)
        assert found == [], "\n".join(["", *map(str, steps), *found])

    performed = alike if _SEED is None else seed(int(_SEED))(alike)
    performed()
    assert both.embedded.failures == []
    assert both.sequences >= SEQUENCES
