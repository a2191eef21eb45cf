"""The fence: holders that know nothing of each other, that die, come back late and have their requests replayed, still
see one register. Each history must be one that the register of contract section 7 could have given, one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS
from dispatch_kubeflow.machine.values import ObjectRef

from . import truth
from .exhaustive import held, opened, started
from .expect import forget_created, hold_of
from .story import Broken
from .wire import Exchange, Fault
from .world import NAMESPACE, Outcome, World

State = tuple[int, bool]
"""Instance on record and whether it is held; (0, False) is a job never held."""
FAULTS = (
    Fault("lost"),
    Fault("drop"),
    Fault("late", seconds=0.0),
    Fault("late", seconds=5.0),
    Fault("late", seconds=40.0),
    Fault("slow", seconds=8.0),
    Fault("refused"),
    Fault("answer", 500),
    Fault("rewritten", 504),
    Fault("answer", 409, "Conflict"),
    Fault("crash-before"),
    Fault("crash-lost"),
    Fault("crash-after"),
    Fault("cancel"),
)
STALE = frozenset({"ErrStaleHold"})


@dataclass(frozen=True, slots=True)
class Event:
    """One call of the history: when it began and ended, in steps of the schedule, and what it said.

    `said`: `done`, `stale`, `not-done` (a definite refusal of another kind) or `unknown`.
    """

    begin: int
    end: int
    operation: str
    instance: int
    said: str


def apply(state: State, operation: str, instance: int) -> State | None:
    """The register of contract section 7: the state after it, or None where it is stale."""
    number, is_held = state
    if operation == "hold":
        if is_held:
            return state if instance == number else None
        return (instance, True) if instance > number else None
    if number == 0 or instance != number:
        return None
    return (number, False)


def linearizable(history: list[Event], first: State, last: State) -> bool:
    """Whether some order of the calls, each between its beginning and its end, gives what was said and what stands."""
    events = tuple(history)
    everything = (1 << len(events)) - 1
    dead: set[tuple[int, State]] = set()

    def search(done: int, state: State) -> bool:
        if (done, state) in dead:
            return False
        # What may still happen for ever, or never, need not happen.
        must = [each for index, each in enumerate(events) if not done >> index & 1 and each.said != "unknown"]
        if not must and state == last:
            return True
        horizon = min((each.end for each in must), default=1 << 60)
        for index, each in enumerate(events):
            if done >> index & 1 or each.begin > horizon:
                continue
            if any(search(done | 1 << index, after) for after in _after(each, state)):
                return True
        dead.add((done, state))
        return done == everything and state == last

    return search(0, first)


def _after(event: Event, state: State) -> Iterator[State]:
    after = apply(state, event.operation, event.instance)
    match event.said:
        case "done":
            if after is not None:
                yield after
        case "stale":
            if after is None:
                yield state
        case "not-done":
            yield state
        case _:
            if after is not None:
                yield after


class Fence:
    """One schedule of holders. `holders`: how many, at least three."""

    def __init__(self, seed: int, holders: int = 3) -> None:
        forget_created()
        self.chance = Random(seed)
        self.world = World(seed)
        self.world.backend("a")
        self.ref: ObjectRef = self.chance.choice((started, opened, held))(self.world)
        self.first = self._register()
        self.holders = [f"h{number}" for number in range(holders)]
        self.history: list[Event] = []
        self._clock = 0
        self.replayed = 0

    def run(self) -> None:
        """Play, and check the history."""
        world = self.world
        for holder in self.holders:
            world.backend(holder)
        world.wire.plan = self._plan
        calls = [(holder, lambda holder=holder: self._live(holder)) for holder in self.holders]
        tasks = world.concurrently([*calls, ("replayer", self._replay)], self.chance.choice)
        for task in tasks:
            if task.error is not None:
                raise task.error
        world.faultless()
        world.advance(65.0)
        last = self._register()
        if not linearizable(self.history, self.first, last):
            lines = "\n".join(map(str, self.history))
            raise Broken(f"no register could have said this, from {self.first} to {last}:\n{lines}")

    def _register(self) -> State:
        job = self.world.cluster.get(TRAIN_JOBS, self.ref.name, NAMESPACE)
        assert job is not None
        found = hold_of(job)
        assert found is not None
        return found[0], found[1] == "held"

    def _plan(self, _: Exchange) -> Fault | None:
        return self.chance.choice(FAULTS) if self.chance.random() < 0.12 else None

    def _live(self, holder: str) -> None:
        for _ in range(self.chance.randint(2, 4)):
            operation = self.chance.choice(("hold", "release"))
            newest = max([self.first[0], *(event.instance for event in self.history)])
            instance = max(1, newest + self.chance.choice((-1, 0, 0, 0, 1, 1)))
            self._one(holder, operation, instance)

    def _one(self, holder: str, operation: str, instance: int) -> None:
        self._clock += 1
        begin = self._clock
        outcome = self.world.call(holder, operation, self.ref, instance)
        self._clock += 1
        said = said_of(outcome)
        self.history.append(Event(begin, 1 << 59 if said == "unknown" else self._clock, operation, instance, said))
        truth.judge(self.world, outcome)

    def _replay(self) -> None:
        """Writes that were sent once come again."""
        for _ in range(3):
            self.world.turns.pause()
            self.world.turns.sleep(self.chance.choice((0.0, 1.0, 7.0)))
            writes = [each for each in self.world.wire.exchanges if each.method == "PATCH" and each.raw]
            if writes:
                chosen = self.chance.choice(writes)
                before = chosen.committed
                again = self.world.wire.replay(chosen)
                self.replayed += 1
                if before is not None and again is not None:
                    raise Broken(f"a replayed request took effect twice: {chosen}")

    def close(self) -> None:
        self.world.close()


def said_of(outcome: Outcome) -> str:
    """What a call told its caller of the register."""
    if outcome.crashed:
        return "unknown"
    if outcome.error is None:
        return "done"
    if outcome.error.sentinel in STALE:
        return "stale"
    return "unknown" if outcome.error.sentinel == "ErrOutcomeUnknown" else "not-done"
