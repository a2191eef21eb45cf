"""Two thousand schedules, each decided by its seed: no violation, and a failure that anybody can play again."""

from __future__ import annotations

import json

import pytest

from . import planted, runner

SCHEDULES = 2000
SLICES = 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(SLICES))
def test_no_schedule_violates_anything(part: int) -> None:
    size = SCHEDULES // SLICES
    done = runner.run(iter(range(part * size, (part + 1) * size)), until=lambda run: len(run.failures) >= 2)
    assert not done.failures, "\n\n".join(map(str, done.failures))
    assert done.schedules == size


def test_the_same_seed_gives_the_same_schedule() -> None:
    first, _ = runner.one(77)
    second, _ = runner.one(77)
    assert first.steps == second.steps
    assert first.world.story == second.world.story
    first.close()
    second.close()


def test_a_failure_is_shrunk_and_its_line_plays_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = next(each for each in planted.PLANTED if each.name == "a hold that only writes its record")
    bug.plant(monkeypatch.setattr)
    seeds = iter(range(400))
    done = runner.run(seeds, until=lambda run: bool(run.failures))
    failure = done.failures[0]

    line = failure.replay
    steps = json.loads(line[line.index("'") + 1 : -1])
    again, error = runner.play(failure.seed, steps)
    again.close()
    assert type(error) is type(failure.error)
    assert len(steps) <= 4
    assert "=>" in "\n".join(failure.story)
    assert done.line.startswith(f"{done.schedules:,} schedules, 1 violations, ")
