"""That the record of traces still holds: the real control plane shows what is written down, scenario by scenario."""

from __future__ import annotations

from collections import Counter

import pytest

from .cluster import Cluster
from .traces.facets import differences, settled
from .traces.record import recorded
from .traces.scenarios import SCENARIOS
from .traces.stage import RealStage


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
