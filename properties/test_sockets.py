"""Over real sockets the same schedules come to the same end as in memory, whose wire they vouch for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import exhaustive, planted, runner, truth
from .expect import forget_created
from .sockets import FAULTS, Sockets

BY_NAME = {scene.name: scene for scene in exhaustive.SCENES}
PLACES = {"start": 4, "stop": 1, "find": 2, "output": 1}
"""A request of each of these calls: a create, a delete, a list, a log."""


@pytest.fixture(scope="module")
def sockets() -> Iterator[Sockets]:
    with Sockets() as made:
        yield made


def test_no_schedule_over_sockets_violates_anything(sockets: Sockets) -> None:
    done = runner.run(iter(range(8)), until=lambda run: bool(run.failures), on=sockets)
    assert not done.failures, str(done.failures[0])
    assert done.schedules == 8


@pytest.mark.parametrize("name", PLACES)
def test_a_fault_on_a_socket_ends_a_call_as_it_does_in_memory(sockets: Sockets, name: str) -> None:
    for fault in {each.kind: each for each in exhaustive.SINGLE if each.kind in FAULTS}.values():
        rows = []
        for on in (None, sockets):
            world, outcome = exhaustive.run(BY_NAME[name], {PLACES[name]: fault}, on=on)
            truth.judge(world, outcome)
            world.close()
            rows.append(outcome.row)
        assert rows[0] == rows[1], fault
    forget_created()


def test_every_fault_that_a_socket_can_have_is_drawn() -> None:
    assert {each.kind for each in exhaustive.SINGLE} >= FAULTS


def test_a_bug_is_found_over_sockets_too(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = next(each for each in planted.PLANTED if each.name == "delete by name alone")
    bug.plant(monkeypatch.setattr)
    with pytest.raises(truth.Lie):
        truth.judge(*exhaustive.run(BY_NAME["stop"], {}, on=sockets))
