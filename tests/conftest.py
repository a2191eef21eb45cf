"""Which clusters the tests of `tests/both` run on, and the one real control plane that a session shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.real.cluster import Cluster
    from tests.real.control_plane import ControlPlane

_RUNNING = "DISPATCH_REAL_FOLDER"


def pytest_addoption(parser: pytest.Parser) -> None:
    choices = ("embedded", "real", "both")
    parser.addoption("--cluster", choices=choices, default="embedded", help="what tests/both runs on")


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One of the session's own, whose programs may be crashed and started again."""
    from tests.real.control_plane import ControlPlane

    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def real_cluster(request: pytest.FixtureRequest) -> Cluster:
    """A handle on the session's control plane, or on the one that runs in the folder `DISPATCH_REAL_FOLDER` names."""
    from tests.real.cluster import Cluster

    running = os.environ.get(_RUNNING)
    if running:
        return Cluster.at(Path(running))
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return plane.cluster
