"""Fixtures that give a test a real control plane: one a session (tests/conftest.py), a fresh namespace a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cluster import Cluster


@pytest.fixture(scope="session")
def cluster(real_cluster: Cluster) -> Cluster:
    """A handle on the session's control plane."""
    return real_cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own; it is deleted afterwards, and not waited for."""
    name = cluster.new_namespace()
    yield name
    cluster.delete_namespace(name)
