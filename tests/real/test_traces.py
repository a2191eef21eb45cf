"""That the record of traces still holds: the real control plane shows what is written down, scenario by scenario."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from .api import Refused
from .cluster import Cluster
from .traces.facets import Trace, differences, settled
from .traces.queues import QUEUE_SCENARIOS
from .traces.record import QUEUES_RECORDED, recorded
from .traces.scenarios import SCENARIOS
from .traces.stage import RealQueueStage, RealStage


@pytest.mark.timeout(3600, func_only=True)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_real_control_plane_shows_what_was_recorded(cluster: Cluster, name: str, compared: Counter[str]) -> None:
    kept = recorded()[name]
    with RealStage(cluster) as stage:
        SCENARIOS[name](stage)
        trace = settled(name, stage.trace_when(lambda trace: not differences(kept, settled(name, trace))))
    compared["scenarios"] += 1
    compared["facets"] += len(trace)
    assert differences(kept, trace) == []


TRIES = 3
"""A busy machine's webhook may not know a runtime yet, or Kueue an owner: such a scenario is played again."""


def played_in_queues(cluster: Cluster, name: str) -> Trace:
    kept = recorded(QUEUES_RECORDED)[name]
    for last in (*[False] * (TRIES - 1), True):
        try:
            with RealQueueStage(cluster) as stage:
                QUEUE_SCENARIOS[name](stage)
                trace = stage.trace_when(lambda trace: not differences(kept, trace))
        except Refused:
            if last:
                raise
            continue
        if last or not differences(kept, trace):
            return trace
    raise AssertionError("the last try returns or raises")


@pytest.fixture(scope="module")
def queues(kueue_cluster: Cluster) -> Iterator[dict[str, Future[Trace]]]:
    """Every scenario on the control plane that has Kueue, four at once: they wait more than they work."""
    with ThreadPoolExecutor(4) as pool:
        yield {name: pool.submit(played_in_queues, kueue_cluster, name) for name in QUEUE_SCENARIOS}


@pytest.mark.timeout(3600, func_only=True)
@pytest.mark.parametrize("name", QUEUE_SCENARIOS)
def test_the_real_kueue_shows_what_was_recorded(
    queues: dict[str, Future[Trace]], name: str, compared: Counter[str]
) -> None:
    kept, trace = recorded(QUEUES_RECORDED)[name], queues[name].result()
    compared["scenarios"] += 1
    compared["facets"] += len(trace)
    assert differences(kept, trace) == []
