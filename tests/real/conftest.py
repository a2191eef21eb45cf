"""Fixtures that give a test a real control plane: one a session, a fresh namespace a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import Cluster
from .control_plane import ControlPlane

_RUNNING = "DISPATCH_REAL_FOLDER"


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One of the session's own, whose programs may be crashed and started again."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A handle on the session's control plane, or on the one that runs in the folder `DISPATCH_REAL_FOLDER` names."""
    running = os.environ.get(_RUNNING)
    if running:
        return Cluster.at(Path(running))
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return plane.cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own; it is deleted afterwards, and not waited for."""
    name = cluster.new_namespace()
    yield name
    cluster.delete_namespace(name)
