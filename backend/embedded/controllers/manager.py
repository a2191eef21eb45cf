"""All controllers of a cluster run on one thread, in an order that a test can repeat; this is that thread's work,
step by step.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from dispatch_kubeflow.backend.embedded.clock import VirtualClock
from dispatch_kubeflow.backend.embedded.controllers.base import Controller, World
from dispatch_kubeflow.backend.embedded.controllers.client import StoreApi
from dispatch_kubeflow.backend.embedded.controllers.timers import Timers
from dispatch_kubeflow.backend.embedded.controllers.view import Change, View
from dispatch_kubeflow.backend.embedded.store import Store
from dispatch_kubeflow.machine.context import Clock

Object = dict[str, Any]

LOG = logging.getLogger(__name__)
RUNAWAY = 1_000_000


class Restless(RuntimeError):
    """The controllers do not come to rest: two of them undo each other's work for ever."""


class Manager:
    """The pump: events into the view and the controllers, due timers, one key at a time of the first controller that
    has one.
    """

    def __init__(self, store: Store, clock: Clock, chance: Any) -> None:
        self.clock = clock
        self._wake = threading.Event()
        self._soon: deque[Callable[[], None]] = deque()
        self._pumping = threading.RLock()
        self._stop = False
        self._thread: threading.Thread | None = None
        self.timers = Timers(clock, self._wake.set)
        self.view = View()
        self.world = World(StoreApi(store), self.view, clock, self.timers, chance, self.soon)
        self.controllers: list[Controller] = []
        self.failures: list[str] = []
        self._events = store.subscribe(replay=True, wake=self._wake.set)

    def add(self, controller: Controller) -> None:
        """Run one more controller, after those there are; it sees everything there is already."""
        self.controllers.append(controller)
        controller.relist()

    def soon(self, action: Callable[[], None]) -> None:
        """Run `action` in the pump; from any thread."""
        self._soon.append(action)
        self._wake.set()

    def _drain(self) -> bool:
        worked = False
        while self._soon:
            self._soon.popleft()()
            worked = True
        while (timer := self.timers.pop_due()) is not None:
            timer.action()
            worked = True
        while (event := self._events.next()) is not None:
            before = None if event.before is None else event.before.obj
            change = Change(event.type, event.resource, event.peek, before)
            self.view.apply(change)
            for controller in self.controllers:
                controller.see(change)
            worked = True
        return worked

    def settle(self) -> None:
        """Pump until nothing is left to do at the present moment; raises Restless when that never comes."""
        with self._pumping:
            for _ in range(RUNAWAY):
                worked = self._drain()
                first = next((controller for controller in self.controllers if controller.dirty), None)
                if first is not None:
                    first.step()
                elif not worked:
                    return
        raise Restless(f"still busy: {[controller.name for controller in self.controllers if controller.busy()]}")

    def advance(self, seconds: float) -> None:
        """Move a VirtualClock on, stopping at every moment at which something is due."""
        clock = self.clock
        if not isinstance(clock, VirtualClock):
            raise TypeError("only a VirtualClock can be moved")
        with self._pumping:
            target = clock.monotonic() + seconds
            self.settle()
            while (due := self.timers.next_due()) is not None and due <= target:
                clock.move_to(due)
                self.settle()
            clock.move_to(target)
            self.settle()

    def run(self) -> None:
        """Pump in a thread, on a clock that runs by itself."""
        self._thread = threading.Thread(target=self._loop, name="embedded-cluster", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop:
            self._wake.clear()
            try:
                self.settle()
            except Exception:
                # A controller that stumbles over an object nobody foresaw must not stop the cluster; a test may ask.
                LOG.exception("a controller failed")
                self.failures.append(traceback.format_exc())
                self._wake.set()
            due = self.timers.next_due()
            timeout = None if due is None else max(0.0, due - self.clock.monotonic())
            self.clock.wait(self._wake, timeout)

    def stop(self) -> None:
        """End the thread, if there is one."""
        self._stop = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
