"""Every controller is the same machine (events make keys dirty, a dirty key is reconciled, a failure is retried later)
on one thread.

Nothing here polls or sleeps: a cluster at rest costs nothing, and a given order of events always gives the same writes.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from dispatch_kubeflow.backend.embedded.controllers.conditions import stamp
from dispatch_kubeflow.backend.embedded.controllers.timers import Timer, Timers
from dispatch_kubeflow.backend.embedded.controllers.view import Change, View
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.requests.resources import Resource
from dispatch_kubeflow.machine.context import Clock

Object = dict[str, Any]
Propagation = Literal["Background", "Foreground", "Orphan"]

LOG = logging.getLogger(__name__)
FIRST_RETRY = 0.005
LONGEST_RETRY = 1000.0
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Api(Protocol):
    """What controllers ask of the apiserver. Every write raises ApiError as a request would be refused."""

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object as the store has it, to read only; None when absent."""
        ...

    def create(self, resource: Resource, obj: Object, manager: str) -> Object:
        """Create."""
        ...

    def update(self, resource: Resource, obj: Object, manager: str, subresource: str | None = None) -> Object:
        """Replace the object, or its status, if `metadata.resourceVersion` still holds."""
        ...

    def delete(
        self,
        resource: Resource,
        obj: Object,
        *,
        propagation: Propagation | None = None,
        grace: int | None = None,
        manager: str = "embedded",
    ) -> None:
        """Delete this very object (by UID); absent or another of its name: void."""
        ...


@dataclass(frozen=True)
class World:
    """What all controllers of one cluster share."""

    api: Api
    view: View
    clock: Clock
    timers: Timers
    chance: random.Random
    soon: Callable[[Callable[[], None]], None]
    """Run something in the pump, from any thread."""

    def now(self) -> str:
        """The present moment as Kubernetes writes it."""
        return stamp(self.clock.now())

    def suffix(self, length: int = 5) -> str:
        """Random letters, as `generateName` appends."""
        return "".join(self.chance.choices(SUFFIX_LETTERS, k=length))


class Controller:
    """A work queue of dirty keys over the shared view; `down` and `lag` are for tests.

    While `down` it sees and does nothing; back up, it looks at everything again, as a restarted one does. `lag` delays
    each key by so many seconds of the cluster's clock.
    """

    name: ClassVar[str] = ""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lag = 0.0
        self._down = False
        self.dirty: dict[Hashable, None] = {}
        self._later: dict[Hashable, Timer] = {}
        self._failures: dict[Hashable, int] = {}

    @property
    def down(self) -> bool:
        """Whether the controller is stopped."""
        return self._down

    @down.setter
    def down(self, down: bool) -> None:
        was, self._down = self._down, down
        if down:
            self.dirty.clear()
            self._failures.clear()
            for timer in self._later.values():
                timer.cancel()
            self._later.clear()
        elif was:
            self.relist()

    def relist(self) -> None:
        """Look at everything again."""
        for entry in self.world.view.entries():
            self.see(Change("ADDED", entry.resource, entry.obj, None))

    def see(self, change: Change) -> None:
        """Take one event in, unless down."""
        if not self._down:
            self.handle(change)

    def handle(self, change: Change) -> None:
        """Make the keys dirty that an event concerns."""
        raise NotImplementedError

    def reconcile(self, key: Any) -> None:
        """Bring what `key` names one step nearer to what it should be."""
        raise NotImplementedError

    def enqueue(self, key: Hashable, after: float = 0.0) -> None:
        """Reconcile `key` as soon as possible, or `after` seconds from now; an earlier appointment stands."""
        delay = after + self.lag
        if delay <= 0.0:
            self.dirty[key] = None
            return
        if key in self.dirty:
            return
        earlier = self._later.get(key)
        if earlier is not None:
            if earlier.due <= self.world.clock.monotonic() + delay:
                return
            earlier.cancel()
        self._later[key] = self.world.timers.after(delay, lambda: self._due(key))

    def _due(self, key: Hashable) -> None:
        self._later.pop(key, None)
        if not self._down:
            self.dirty[key] = None

    def busy(self) -> bool:
        """Whether any key is dirty."""
        return bool(self.dirty)

    def step(self) -> bool:
        """Reconcile the key that has been dirty longest; False when there is none."""
        if not self.dirty:
            return False
        key = next(iter(self.dirty))
        del self.dirty[key]
        try:
            self.reconcile(key)
        except ApiError as error:
            self._retry(key, error)
        else:
            self._failures.pop(key, None)
        return True

    def _retry(self, key: Hashable, error: ApiError) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        LOG.debug("%s: %s: %s", self.name, key, error.message)
        self.enqueue(key, min(FIRST_RETRY * 2**failures, LONGEST_RETRY))
