"""A schedule must be decided by its seed alone, so nothing here runs by itself: time moves only while everybody waits,
and of several callers one at a time has its turn, at points that the schedule knows.

A caller is a thread that holds the baton or sleeps. The thread that made the world hands the baton out; where there is
nobody else it simply moves the time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dispatch_kubeflow.backend.embedded.clock import VirtualClock

if TYPE_CHECKING:
    from dispatch_kubeflow.backend.embedded import Cluster

Choose = Callable[[Sequence["Task"]], "Task"]
LONGEST = 7200.0
"""Virtual seconds that one wait may take; a longer one is a call that hangs."""


class Stuck(AssertionError):
    """Everybody waits for what never comes."""


class Crash(BaseException):
    """The process of a caller dies here."""


class Abolished(BaseException):
    """The world ends while a task still waits."""


class Task:
    """One caller on a thread of its own, which runs only when it is its turn."""

    def __init__(self, turns: Turns, name: str, work: Callable[[], Any], *, background: bool = False) -> None:
        self.name = name
        self.background = background
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.ready: Callable[[], bool] | None = None
        self.until: float | None = None
        self.abolished = False
        self._turns = turns
        self._work = work
        self._go = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._begun = False

    def give(self) -> None:
        """Let it run until it waits, pauses or ends."""
        if not self._begun:
            self._begun = True
            self._thread.start()
        else:
            self._go.release()
        self._turns.back.acquire()

    def wait_turn(self) -> None:
        """Give the baton back and sleep until it comes again."""
        self._turns.back.release()
        self._go.acquire()
        if self.abolished:
            raise Abolished

    def is_ready(self, now: float) -> bool:
        """Whether its turn may come now."""
        if self.ready is None or (self.until is not None and now >= self.until):
            return True
        return self.ready()

    def _run(self) -> None:
        self._turns.here.task = self
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever asks for the result
            self.error = error
        finally:
            self.done = True
            self._turns.back.release()


class Turns:
    """Who runs, and when time moves. `choose` picks among those who could run."""

    def __init__(self, clock: WorldClock) -> None:
        self.clock = clock
        self.cluster: Cluster | None = None
        self.back = threading.Semaphore(0)
        self.here = threading.local()
        self.tasks: list[Task] = []
        self.choose: Choose = lambda ready: ready[0]
        self.interleaved = False

    @property
    def current(self) -> Task | None:
        return getattr(self.here, "task", None)

    def spawn(self, name: str, work: Callable[[], Any], *, background: bool = False) -> Task:
        """A new task; it runs when its turn comes."""
        task = Task(self, name, work, background=background)
        self.tasks.append(task)
        return task

    def pause(self) -> None:
        """A point at which somebody else may have a turn."""
        task = self.current
        if task is not None and self.interleaved:
            task.ready, task.until = None, None
            task.wait_turn()

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        self.park(_never, self.clock.monotonic() + seconds)

    def park(self, ready: Callable[[], bool], until: float | None) -> bool:
        """Wait until something holds (True) or a moment has come (False)."""
        task = self.current
        if task is None:
            return self._hand_out(ready, until)
        if ready():
            return True
        task.ready, task.until = ready, until
        task.wait_turn()
        task.ready, task.until = None, None
        return ready()

    def run(self, tasks: Sequence[Task]) -> None:
        """Give turns until these tasks have ended."""
        self._hand_out(lambda: all(task.done for task in tasks), None)

    def catch_up(self) -> None:
        """Let everybody do what can be done at this moment."""
        while (task := self._next()) is not None:
            task.give()

    def abolish(self) -> None:
        """End every task where it waits."""
        for task in self.tasks:
            task.abolished = True
        for task in self.tasks:
            while not task.done and task._begun:
                task.give()
        self.tasks.clear()

    def _next(self) -> Task | None:
        self.tasks = [task for task in self.tasks if not task.done]
        now = self.clock.monotonic()
        ready = [task for task in self.tasks if task.is_ready(now)]
        return self.choose(ready) if ready else None

    def _hand_out(self, ready: Callable[[], bool], until: float | None) -> bool:
        begun = self.clock.monotonic()
        while not ready():
            now = self.clock.monotonic()
            if until is not None and now >= until:
                return False
            if self.tasks and (task := self._next()) is not None:
                task.give()
                continue
            if now - begun > LONGEST:
                raise Stuck(f"a wait of more than {LONGEST:g} s")
            self._move(until)
        return True

    def _move(self, until: float | None) -> None:
        assert self.cluster is not None
        self.cluster.settle()
        times = [task.until for task in self.tasks if task.until is not None]
        if until is not None:
            times.append(until)
        due = self.cluster._manager.timers.next_due()
        if due is not None:
            times.append(due)
        if not times:
            if any(task.is_ready(self.clock.monotonic()) for task in self.tasks):
                return
            raise Stuck("nobody can go on, and no time will change that")
        self.cluster.advance(max(0.0, min(times) - self.clock.monotonic()))


class WorldClock(VirtualClock):
    """The cluster's clock, by which callers wait too: a wait moves the time."""

    turns: Turns

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        until = None if timeout is None else self.monotonic() + timeout
        return self.turns.park(event.is_set, until)


def _never() -> bool:
    return False
