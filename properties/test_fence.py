"""Concurrent holders see one register, whatever dies, comes late or comes again."""

from __future__ import annotations

import pytest

from .fence import Event, Fence, linearizable

NEVER: tuple[int, bool] = (0, False)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(4))
def test_every_history_of_holders_is_one_that_a_register_could_give(part: int) -> None:
    replayed = 0
    for seed in range(part * 50, (part + 1) * 50):
        fence = Fence(seed, holders=3 + seed % 2)
        try:
            fence.run()
        finally:
            fence.close()
        replayed += fence.replayed
    assert replayed


def test_a_history_in_which_two_instances_hold_at_once_is_none() -> None:
    history = [Event(1, 2, "hold", 1, "done"), Event(3, 4, "hold", 2, "done")]
    assert not linearizable(history, NEVER, (2, True))


def test_a_history_in_which_a_release_overtakes_a_newer_hold_is_none() -> None:
    history = [
        Event(1, 2, "hold", 1, "done"),
        Event(3, 4, "release", 1, "done"),
        Event(5, 6, "hold", 2, "done"),
        Event(7, 8, "release", 1, "done"),
    ]
    assert not linearizable(history, NEVER, (2, True))


def test_an_answer_that_was_lost_may_have_been_or_not() -> None:
    lost = Event(1, 1 << 59, "hold", 1, "unknown")
    assert linearizable([lost, Event(3, 4, "release", 1, "done")], NEVER, (1, False))
    assert linearizable([lost, Event(3, 4, "release", 1, "stale")], NEVER, NEVER)
    assert linearizable([lost, Event(3, 4, "release", 1, "stale")], NEVER, (1, True))


def test_calls_beside_each_other_may_stand_in_either_order() -> None:
    history = [Event(1, 4, "hold", 1, "done"), Event(2, 3, "release", 1, "stale")]
    assert linearizable(history, NEVER, (1, True))
    assert not linearizable([Event(1, 2, "hold", 1, "done"), Event(3, 4, "release", 1, "stale")], NEVER, (1, True))
