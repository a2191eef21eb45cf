"""Schedules by the thousand, each decided by its seed; a failure is shrunk and told."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .drawing import Drawer
from .expect import forget_created
from .floors import Floors
from .sockets import Sockets
from .story import Step, Story, text
from .truth import Matrix


@dataclass(slots=True)
class Failure:
    """A schedule that went wrong: its seed, what was wrong, and the fewest steps that still are."""

    seed: int
    error: BaseException
    steps: list[Step]
    story: list[str]

    @property
    def replay(self) -> str:
        """The line that plays it again."""
        return f"python -m properties replay --seed {self.seed} '{text(self.steps)}'"

    def __str__(self) -> str:
        kind = type(self.error).__name__
        return f"{kind}: {self.error}\nreplay: {self.replay}\n" + "\n".join(self.story)


@dataclass(slots=True)
class Run:
    """What a run of schedules came to."""

    schedules: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    matrix: Matrix = field(default_factory=Matrix)
    floors: Floors = field(default_factory=Floors)

    @property
    def line(self) -> str:
        """The last line of a fuzz."""
        rate = self.schedules / self.seconds if self.seconds else 0.0
        return f"{self.schedules:,} schedules, {len(self.failures)} violations, {rate:.0f} schedules/s"


def one(seed: int, on: Sockets | None = None) -> tuple[Story, BaseException | None]:
    """Draw and play one schedule, in memory or on sockets."""
    story = Story(seed, on)
    try:
        Drawer(seed).play(story)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this schedule's result
        return story, error
    return story, None


def play(seed: int, steps: list[Step]) -> tuple[Story, BaseException | None]:
    """Play given steps; without a way out they may end anywhere."""
    story = Story(seed)
    try:
        story.play(steps)
    except Exception as error:  # noqa: BLE001 - as above
        return story, error
    return story, None


def run(
    seeds: Iterator[int], *, until: Callable[[Run], bool], shrinks: bool = True, on: Sockets | None = None
) -> Run:
    """Play schedules until told to end. One that goes wrong on sockets is told as it was; in memory it is shrunk."""
    done = Run()
    begun = time.perf_counter()
    with quiet_collector(), done.floors.counting():
        for seed in seeds:
            story, error = one(seed, on)
            done.schedules += 1
            done.matrix.merge(story.matrix)
            done.floors.add(story)
            if error is not None:
                done.failures.append(shrunk(seed, story, error) if shrinks and on is None else told(seed, story, error))
            story.close()
            if done.schedules % 100 == 0:
                gc.collect()
            done.seconds = time.perf_counter() - begun
            if until(done):
                break
    forget_created()
    return done


@contextmanager
def quiet_collector() -> Iterator[None]:
    """What is there stays: it need not be looked through after every thousand objects."""
    gc.collect()
    gc.freeze()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()


def told(seed: int, story: Story, error: BaseException) -> Failure:
    """A failure as it happened."""
    return Failure(seed, error, list(story.steps), list(story.world.story))


def shrunk(seed: int, story: Story, error: BaseException, tries: int = 200) -> Failure:
    """The fewest steps, and the fewest faults in them, that still go wrong in the same way."""
    best = told(seed, story, error)
    for candidate in _smaller(best.steps):
        if tries <= 0:
            break
        tries -= 1
        again, wrong = play(seed, candidate)
        again.close()
        if wrong is not None and type(wrong) is type(error):
            smaller = told(seed, again, wrong)
            smaller.steps = candidate
            return _smallest(smaller, shrunk_from(smaller, tries))
    return best


def shrunk_from(failure: Failure, tries: int) -> Failure:
    """Shrink further from what was found."""
    for candidate in _smaller(failure.steps):
        if tries <= 0:
            return failure
        tries -= 1
        again, wrong = play(failure.seed, candidate)
        again.close()
        if wrong is not None and type(wrong) is type(failure.error):
            smaller = told(failure.seed, again, wrong)
            smaller.steps = candidate
            return shrunk_from(smaller, tries)
    return failure


def _smallest(one_failure: Failure, other: Failure) -> Failure:
    return min(one_failure, other, key=lambda each: len(text(each.steps)))


def _smaller(steps: list[Step]) -> Iterator[list[Step]]:
    for index in range(len(steps) - 1, -1, -1):
        yield steps[:index] + steps[index + 1 :]
    for index, step in enumerate(steps):
        for key in ("faults", "deeds"):
            for place in step.get(key) or {}:
                fewer = {other: what for other, what in step[key].items() if other != place}
                yield [*steps[:index], {**step, key: fewer}, *steps[index + 1 :]]
        if step["do"] == "race":
            yield [*steps[:index], *step["calls"], *steps[index + 1 :]]
