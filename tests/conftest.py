"""Which clusters the tests of `tests/both` run on, and the one real control plane that a session shares."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.real.cluster import Cluster
    from tests.real.control_plane import ControlPlane

_COMPARED = Path(__file__).resolve().parent.parent / ".cache" / "compared.txt"
_RUNNING, _RUNNING_KUEUE = "DISPATCH_REAL_FOLDER", "DISPATCH_REAL_KUEUE_FOLDER"


def pytest_addoption(parser: pytest.Parser) -> None:
    choices = ("embedded", "real", "both")
    parser.addoption("--cluster", choices=choices, default="embedded", help="what tests/both runs on")


@pytest.fixture(scope="session")
def compared() -> Iterator[Counter[str]]:
    """How much the real control plane and the embedded cluster were compared by; written down at the end."""
    counts: Counter[str] = Counter()
    yield counts
    _COMPARED.parent.mkdir(parents=True, exist_ok=True)
    _COMPARED.write_text("Compared: " + ", ".join(f"{count} {what}" for what, count in counts.items()) + ".\n")


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One of the session's own, whose programs may be crashed and started again."""
    from tests.real.control_plane import ControlPlane

    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="session")
def kueue_plane() -> Iterator[ControlPlane]:
    """One more, that has Kueue: a cluster without it must stay one."""
    from tests.real.control_plane import ControlPlane

    with ControlPlane(kueue=True) as plane:
        yield plane


@pytest.fixture(scope="session")
def kueue_cluster(request: pytest.FixtureRequest) -> Cluster:
    """A handle on it, or on the one that runs in the folder `DISPATCH_REAL_KUEUE_FOLDER` names."""
    from tests.real.cluster import Cluster

    running = os.environ.get(_RUNNING_KUEUE)
    if running:
        return Cluster.at(Path(running))
    plane: ControlPlane = request.getfixturevalue("kueue_plane")
    return plane.cluster


@pytest.fixture(scope="session")
def real_cluster(request: pytest.FixtureRequest) -> Cluster:
    """A handle on the session's control plane, or on the one that runs in the folder `DISPATCH_REAL_FOLDER` names."""
    from tests.real.cluster import Cluster

    running = os.environ.get(_RUNNING)
    if running:
        return Cluster.at(Path(running))
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return plane.cluster
