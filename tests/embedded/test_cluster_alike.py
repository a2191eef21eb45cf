"""A cluster that begins as another one stands: what a thousand schedules a minute need."""

from __future__ import annotations

from dispatch_kubeflow.backend.embedded import Cluster
from dispatch_kubeflow.backend.embedded.clock import VirtualClock
from dispatch_kubeflow.backend.embedded.kubelet import ScriptedKubelet
from dispatch_kubeflow.backend.requests.resources import CONFIG_MAPS, NODES


def _cluster(like: Cluster | None = None) -> Cluster:
    return Cluster(kubelet=ScriptedKubelet(), clock=VirtualClock(), seed=1, serve=False, like=like)


def test_a_cluster_like_another_begins_with_what_that_has_and_goes_its_own_way():
    first = _cluster()
    second = _cluster(first)
    second.create(CONFIG_MAPS, {"metadata": {"name": "new", "namespace": "team-a"}})
    second.settle()

    assert second.store.kinds() == first.store.kinds()
    assert len(second.list(NODES)) == len(first.list(NODES)) == 2
    assert second.get(CONFIG_MAPS, "new", "team-a") is not None
    assert first.get(CONFIG_MAPS, "new", "team-a") is None
