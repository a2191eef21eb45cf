"""However many jobs are watched, a Backend holds one watch a kind: what those streams bring is kept here, by job.

A stream is a loop of steps, each of which waits for one happening and keeps it. Who calls the steps is the driver's
affair: a thread for each stream, or something that turns them one by one and so has everything happen in an order it
knows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from dispatch_kubeflow.backend.requests import Event, Failure, Listed, Watch
from dispatch_kubeflow.machine.context import Clock

JOINED_WITHIN = 2.0
"""Seconds to wait for the threads of streams that were cancelled; they end within some 50 ms."""


class Steps(Protocol):
    """Something that is done step by step, in the background."""

    name: str

    def step(self) -> bool:
        """Wait for the next thing and do it; False once there is none any more."""
        ...


class Driver(Protocol):
    """Who does the steps, and how one waits meanwhile."""

    def start(self, steps: Steps) -> None:
        """Have the steps done until there are no more."""
        ...

    def wait(self, event: threading.Event, timeout: float | None) -> None:
        """Wait for the event at most so many seconds, while steps are being done."""
        ...

    def join(self, steps: Iterable[Steps]) -> None:
        """Wait until these, which were told to end, have ended."""
        ...


class Threads:
    """A thread for each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: dict[Steps, threading.Thread] = {}

    def start(self, steps: Steps) -> None:
        """Begin a thread that does the steps; it keeps no process from ending."""
        thread = threading.Thread(target=self._run, args=(steps,), name=steps.name, daemon=True)
        with self._lock:
            self._threads[steps] = thread
        thread.start()

    def wait(self, event: threading.Event, timeout: float | None) -> None:
        """Wait by the Backend's clock."""
        self._clock.wait(event, timeout)

    def join(self, steps: Iterable[Steps]) -> None:
        """Wait for their threads, unless one of them is this very one."""
        with self._lock:
            threads = [thread for each in steps if (thread := self._threads.get(each)) is not None]
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(JOINED_WITHIN)

    def _run(self, steps: Steps) -> None:
        try:
            while steps.step():
                pass
        finally:
            with self._lock:
                # What has been started anew meanwhile has another thread.
                if self._threads.get(steps) is threading.current_thread():
                    del self._threads[steps]


class Shelf:
    """The objects of one kind as its stream last showed them, by UID and by key: the job, or a Workload's owner."""

    def __init__(self, key: Callable[[Any], str | None]) -> None:
        self._key = key
        self._by_uid: dict[str, Any] = {}
        self._by_key: dict[str, dict[str, Any]] = {}
        self.listed = False

    def of(self, key: str) -> Sequence[Any]:
        """What is kept under a key, in the order in which it came."""
        return tuple(self._by_key.get(key, {}).values())

    def replace(self, items: Iterable[Any]) -> set[str]:
        """Keep these instead of all; the keys under which something came, went or changed."""
        before = self._by_key
        self._by_uid, self._by_key = {}, {}
        for item in items:
            self.put(item)
        self.listed = True
        return {key for key in before.keys() | self._by_key.keys() if before.get(key) != self._by_key.get(key)}

    def put(self, item: Any) -> set[str]:
        """Keep an item, in its old place if it had one; the keys whose objects changed."""
        key = self._key(item)
        kept = self._by_uid.get(item.metadata.uid)
        changed = self.remove(kept) if kept is not None and self._key(kept) != key else set()
        self._by_uid[item.metadata.uid] = item
        if key is not None:
            self._by_key.setdefault(key, {})[item.metadata.uid] = item
            changed.add(key)
        return changed

    def remove(self, item: Any) -> set[str]:
        """Keep it no longer."""
        kept = self._by_uid.pop(item.metadata.uid, None)
        key = None if kept is None else self._key(kept)
        if key is None:
            return set()
        under = self._by_key[key]
        del under[item.metadata.uid]
        if not under:
            del self._by_key[key]
        return {key}


class Stream:
    """One kind's stream: every happening is handed to `happened`, and at the end its failure to `ended`."""

    def __init__(
        self,
        name: str,
        open_watch: Callable[[], Watch[Any]],
        happened: Callable[[Listed[Any] | Event[Any]], None],
        ended: Callable[[Failure | None], None],
    ) -> None:
        self.name = name
        self._open = open_watch
        self._happened = happened
        self._ended = ended
        self._watch: Watch[Any] | None = None

    def step(self) -> bool:
        """Wait for one happening and hand it on; False once the stream has ended.

        Should anything else be raised in it, those who watch must not wait for ever: that too is an end.
        """
        failure: Failure | None = None
        over = True
        try:
            self._watch = watch = self._watch or self._open()
            happening = next(watch, None)
            if happening is None:
                failure = watch.failure
            else:
                self._happened(happening)
                over = False
        finally:
            if over:
                self._ended(failure)
        return not over
