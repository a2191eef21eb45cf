from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from .queue_world import QueueWorld
from .world import World


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    """A cluster with two nodes whose containers run until they are told to stop."""
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def queue(tmp_path: pathlib.Path) -> Iterator[QueueWorld]:
    """The same with Kueue, a queue and our check on it."""
    made = QueueWorld(tmp_path)
    yield made
    made.close()
