"""Fixtures that give a test a cluster: the embedded one always, the real control plane under `--cluster=real`."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from dispatch_kubeflow.backend.embedded import KueueConfiguration
from tests.real.cluster import Cluster

from .embedded import EmbeddedCluster, embedded_cluster
from .queue_scene import QueueScene
from .scene import Scene


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `cluster`, or for one with Kueue, is performed on each that was chosen."""
    chosen = metafunc.config.getoption("--cluster")
    for name in ("cluster", "queue_cluster"):
        if name in metafunc.fixturenames:
            each = ["embedded", "real"] if chosen == "both" else [chosen]
            metafunc.parametrize(name, each, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The first test on a real control plane starts it, and where it is missing builds it."""
    if config.getoption("--cluster") != "embedded":
        for item in items:
            if item.path.parent == pathlib.Path(__file__).parent:
                item.add_marker(pytest.mark.timeout(3600, func_only=True))


@pytest.fixture(scope="session")
def own_embedded_cluster() -> Iterator[EmbeddedCluster]:
    with embedded_cluster() as made:
        yield made


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster under test, shared by the session."""
    named = {"embedded": "own_embedded_cluster", "real": "real_cluster"}[request.param]
    found: Cluster = request.getfixturevalue(named)
    return found


@pytest.fixture(scope="session")
def own_embedded_queue_cluster() -> Iterator[EmbeddedCluster]:
    with embedded_cluster(KueueConfiguration()) as made:
        yield made


@pytest.fixture(scope="session")
def queue_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster under test that has Kueue, shared by the session."""
    named = {"embedded": "own_embedded_queue_cluster", "real": "kueue_cluster"}[request.param]
    found: Cluster = request.getfixturevalue(named)
    return found


@pytest.fixture
def queue_scene(queue_cluster: Cluster, tmp_path: pathlib.Path) -> Iterator[QueueScene]:
    """A namespace of the test's own on it, with a queue of its own."""
    made = QueueScene(queue_cluster, tmp_path)
    yield made
    made.close()


@pytest.fixture
def scene(cluster: Cluster, tmp_path: pathlib.Path) -> Iterator[Scene]:
    """A namespace of the test's own on it."""
    made = Scene(cluster, tmp_path)
    yield made
    made.close()
