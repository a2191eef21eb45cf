"""The controller's threads: three that watch, one that campaigns for the lease, one that looks and writes.

One thread writes, so two attempts of a job are never judged side by side. Followers watch too, and so can go on at
once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from dispatch_kubeflow.backend.objects.seen import AdmissionCheck, TrainJob, Workload
from dispatch_kubeflow.backend.requests import Door
from dispatch_kubeflow.backend.requests.resources import ADMISSION_CHECKS, TRAIN_JOBS, WORKLOADS, Resource
from dispatch_kubeflow.machine.context import Clock, Context, SystemClock
from dispatch_kubeflow.machine.rules import rulebook

from .asking import OPERATION, Asker, Counts
from .leading import CLIENT_GO, Elector, LeaseTimes
from .queue import Key, WorkQueue
from .settling import Sees, Settler
from .watched import Watched

_LOG = logging.getLogger("dispatch_kubeflow.admission")
_IDLE = 1.0
"""Seconds after which the worker looks up although nothing is due."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a watch that was refused is tried again."""
GRACE = 5.0
"""Seconds that a stop leaves to the write that is under way."""
STALE = 120.0
"""Seconds without a sign of life from the worker after which it counts as dead."""


class Observer(Counts, Sees, Protocol):
    """Who wants to know what the controller does; metrics, as a rule."""

    def watching(self, resource: str) -> None:
        """A watch was begun, or begun anew."""
        ...

    def settled(self, seconds: float) -> None:
        """A change was dealt with, so long after it was seen."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where the lease is, and who campaigns for it."""

    namespace: str
    lease: str
    identity: str


class Controller:
    """Runs from `start` to `stop`. `door` is its own; the caller closes it afterwards."""

    def __init__(
        self,
        door: Door,
        place: Place,
        observer: Observer,
        *,
        times: LeaseTimes = CLIENT_GO,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._door = door
        self._observer = observer
        self._watching = Context.background(clock=self._clock)
        self._acting = Context.background(clock=self._clock)
        self._stopping = threading.Event()
        asker = Asker(door, rulebook(), observer)
        self.queue = WorkQueue(self._clock)
        self.watched = Watched()
        self.elector = Elector(
            asker, self._clock, namespace=place.namespace, name=place.lease, identity=place.identity, times=times
        )
        self._settler = Settler(asker, self.watched, self.elector, observer, self._clock)
        self._alive_at = self._clock.monotonic()
        self._threads = [
            self._watcher(WORKLOADS, Workload, self.watched.take_workloads),
            self._watcher(TRAIN_JOBS, TrainJob, self.watched.take_trainjobs),
            self._watcher(ADMISSION_CHECKS, AdmissionCheck, self.watched.take_checks),
            threading.Thread(target=self._campaign, name="lease", daemon=True),
        ]
        self._worker = threading.Thread(target=self._work, name="worker", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What it shows.

    @property
    def ready(self) -> bool:
        """Whether it has seen everything once, and so could lead."""
        return self.watched.complete and not self._stopping.is_set()

    @property
    def healthy(self) -> bool:
        """Whether its threads live and the worker has shown itself lately."""
        late = self._clock.monotonic() - self._alive_at > STALE
        return not late and all(each.is_alive() for each in (*self._threads, self._worker))

    # Life.

    def start(self) -> None:
        """Begin to watch and to campaign."""
        for each in (*self._threads, self._worker):
            each.start()

    def stop(self) -> None:
        """End: finish the write that is under way, write nothing more, give the lease back. Again: nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self.queue.wake()
        self._worker.join(GRACE)
        self._acting.cancel()
        self._worker.join()
        self._watching.cancel()
        for each in self._threads:
            each.join()
        self.elector.give_back(Context.with_timeout(GRACE, clock=self._clock))

    # The worker.

    def _work(self) -> None:
        led = False
        while not self._stopping.is_set():
            self._alive_at = self._clock.monotonic()
            leads = self.elector.leading and self.watched.complete
            if leads and not led:
                # Whatever was written, or left half written, before: all is looked at once.
                self.queue.add(self.watched.everything())
            led = leads
            if not leads:
                self._clock.wait(self.elector.changed, 0.1)
                self.elector.changed.clear()
                continue
            key = self.queue.take(_IDLE)
            if key is not None and not self._stopping.is_set():
                self._look(key)

    def _look(self, key: Key) -> None:
        try:
            found = self._settler.look(key, self._acting, waiting=self.queue.is_waiting(key))
        except Exception:  # noqa: BLE001 - logged, and tried again
            # A defect of this program; the other Workloads must not wait for it to be mended.
            _LOG.exception("%s %s/%s could not be judged", key.kind, key.namespace, key.name)
            found = "failed"
        match found:
            case "settled":
                seconds = self.queue.settled(key)
                if seconds is not None:
                    self._observer.settled(seconds)
            case "waits":
                self.queue.waits(key)
            case "failed":
                self.queue.failed(key)

    # The others.

    def _watcher(self, resource: Resource, kind: Any, take: Callable[[Any], Iterable[Key]]) -> threading.Thread:
        def watch() -> None:
            pause = _FIRST_PAUSE
            while self._watching.ended is None:
                self._observer.watching(resource.plural)
                happenings = self._door.watch(
                    resource, self._watching, operation=OPERATION, namespace=None, selector=None, type=kind
                )
                for happening in happenings:
                    pause = _FIRST_PAUSE
                    self.queue.add(take(happening))
                if happenings.failure is not None and not self._stopping.is_set():
                    _LOG.warning("the watch of %s ended: %s", resource.plural, happenings.failure.message)
                self._watching.wait(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause)

        return threading.Thread(target=watch, name=f"watch of {resource.plural}", daemon=True)

    def _campaign(self) -> None:
        while self._watching.ended is None:
            self._watching.wait(self.elector.campaign(self._watching))
