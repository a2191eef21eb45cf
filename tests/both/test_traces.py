"""The embedded cluster's controllers show, scenario by scenario, what the real ones were recorded to show."""

from __future__ import annotations

import pytest

from tests.real.traces.facets import differences, merged, settled, turns
from tests.real.traces.queues import QUEUE_SCENARIOS
from tests.real.traces.record import QUEUES_RECORDED, recorded
from tests.real.traces.scenarios import SCENARIOS

from .stage import EmbeddedQueueStage, EmbeddedStage


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_embedded_cluster_shows_what_the_real_one_did(name: str) -> None:
    stage = EmbeddedStage()
    try:
        SCENARIOS[name](stage)
        found = differences(recorded()[name], settled(name, stage.trace()))
    finally:
        stage.close()
    assert found == []


@pytest.mark.parametrize("name", QUEUE_SCENARIOS)
def test_the_embedded_kueue_shows_what_the_real_one_did(name: str) -> None:
    stage = EmbeddedQueueStage()
    try:
        QUEUE_SCENARIOS[name](stage)
        found = differences(recorded(QUEUES_RECORDED)[name], stage.trace())
    finally:
        stage.close()
    assert found == []


def test_every_scenario_is_recorded_and_nothing_else() -> None:
    assert set(recorded()) == set(SCENARIOS)
    assert set(recorded(QUEUES_RECORDED)) == set(QUEUE_SCENARIOS)


def test_of_a_count_only_the_turning_points_are_kept() -> None:
    assert turns([0, 1, 2, 1, 0]) == [0, 2, 0]
    assert turns([0, 2]) == [0, 2]
    assert turns([None, "a", "b"]) == [None, "a", "b"]


def test_a_facet_that_is_new_missing_or_other_is_a_difference() -> None:
    kept = merged([{"a": [1, 2], "b": [1]}, {"a": [1, 2], "b": [2]}])
    assert differences(kept, {"a": [1, 2], "b": [2]}) == []
    assert differences(kept, {"a": [2, 1], "b": [1]}) == ["a: recorded [1, 2], here [2, 1]"]
    assert len(differences(kept, {"b": [1], "c": [1]})) == 2
