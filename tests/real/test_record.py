"""That the record still holds: the real control plane answers every case as it is written down."""

from __future__ import annotations

import pytest

from .cluster import Cluster
from .compare import against
from .expand import load_all
from .targets import RealTarget

QUEUES = "queues/*"


@pytest.mark.timeout(3600, func_only=True)
@pytest.mark.parametrize("name", [file.name for file in load_all()])
def test_the_real_control_plane_answers_as_recorded(cluster: Cluster, name: str) -> None:
    found = against(RealTarget(cluster), name)
    assert [str(each) for each in found] == []


@pytest.mark.timeout(3600, func_only=True)
@pytest.mark.parametrize("name", [file.name for file in load_all(QUEUES)])
def test_the_real_kueue_answers_as_recorded(kueue_cluster: Cluster, name: str) -> None:
    found = against(RealTarget(kueue_cluster), f"queues/{name}")
    assert [str(each) for each in found] == []
