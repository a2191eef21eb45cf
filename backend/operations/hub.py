"""Watching many jobs must not cost the apiserver many watches: so a Backend shares one stream a kind among all its
watchers.

The streams run from the first watcher to the last. What they bring is kept by job; a watcher is told that something
of its job changed, and takes the whole of it when it is ready to: the newest view, never a queue, and all kinds at
one moment.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.objects.listing import Listing
from dispatch_kubeflow.backend.objects.names import Identity
from dispatch_kubeflow.backend.objects.notes import Notes
from dispatch_kubeflow.backend.objects.seen import Pod, Workload
from dispatch_kubeflow.backend.requests import Door, Event, Failure, Listed, Watch
from dispatch_kubeflow.machine.context import Clock, Context
from dispatch_kubeflow.machine.settings import Settings

from .listed import WORKLOAD_KIND, ListedKind, listed_kinds, listing_of, selector
from .note_keeper import News, NoteKeeper
from .streams import Driver, Shelf, Stream, Threads

OPERATION = "watch"
REMEMBERED = 256
"""How many jobs' notes, and TrainJobs stopped unopened, are remembered after their watch ended."""
GONE = 2000
"""How many deleted pods of a job are remembered for its cause."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of one job at one moment, and the last states of its pods that were seen deleted."""

    listing: Listing
    gone: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """A ConfigMap of notes that this Backend wrote."""

    identity: Identity
    uid: str


class StreamsEnded(Exception):
    """The streams ended; `failure` says why, and is None where nothing of the cluster was the reason."""

    def __init__(self, failure: Failure | None) -> None:
        super().__init__("the streams of a watch ended")
        self.failure = failure


class Subscription:
    """One watcher of one job. `keeps_notes`: whether its Backend may write them."""

    def __init__(self, session: Session, job: str, driver: Driver, *, keeps_notes: bool) -> None:
        self.session = session
        self.job = job
        self.keeps_notes = keeps_notes
        self._driver = driver
        self._news = threading.Event()

    def tell(self) -> None:
        """Something may be new: changed, ended, or cancelled."""
        self._news.set()

    def wait(self, ctx: Context, seconds: float | None) -> None:
        """Wait until something may be new, the context has ended, or so many seconds have passed."""
        bounds = [bound for bound in (seconds, ctx.remaining()) if bound is not None]
        if ctx.ended is None:
            self._driver.wait(self._news, min(bounds, default=None))
        self._news.clear()

    def look(self) -> Snapshot | None:
        """The job now; None while not every kind has been listed. Raises StreamsEnded."""
        return self.session.look(self.job)


class Session:
    """The streams from the first watcher to the last, and what they brought."""

    def __init__(self, door: Door, settings: Settings, clock: Clock, driver: Driver, keeper: NoteKeeper) -> None:
        # Re-entrant, as every lock that a watcher takes when it leaves: one that was dropped may leave at any moment.
        self._lock = threading.RLock()
        self._ctx = Context.background(clock=clock)
        self._subscriptions: list[Subscription] = []
        self._gone: dict[str, OrderedDict[str, Pod]] = {}
        self._failure: Failure | None = None
        self._keeper = keeper
        self.over = False
        self._kinds = listed_kinds(settings.mode)
        self._shelves = {kind.field: Shelf(_key(kind)) for kind in self._kinds}
        self._early: list[Pod] = []
        self._driver = driver
        self.streams = [self._stream(door, settings, kind) for kind in self._kinds]
        # TrainJobs are listed when all else has been: what is then seen of one is later than what is seen of its pods.
        self._last: Stream | None = self.streams[-1]
        for stream in self.streams[:-1]:
            driver.start(stream)

    def _stream(self, door: Door, settings: Settings, kind: ListedKind) -> Stream:
        def open_watch() -> Watch[Any]:
            return door.watch(
                kind.resource,
                self._ctx,
                operation=OPERATION,
                namespace=settings.namespace,
                selector=selector(kind, names.backend_selector(settings.name)),
                type=kind.type,
            )

        def happened(happening: Listed[Any] | Event[Any]) -> None:
            self._keep(kind, happening)

        return Stream(f"watch of {kind.resource.plural}", open_watch, happened, self._ended)

    def add(self, subscription: Subscription) -> None:
        """One watcher more."""
        with self._lock:
            if subscription.keeps_notes and subscription.job not in self._noted():
                self._keeper.begin(subscription.job, self._listing(subscription.job) if self._ready else None)
            self._subscriptions.append(subscription)
        subscription.tell()

    def remove(self, subscription: Subscription) -> bool:
        """One watcher less; whether it was the last."""
        with self._lock:
            self._subscriptions.remove(subscription)
            if not any(each.job == subscription.job for each in self._subscriptions):
                self._gone.pop(subscription.job, None)
            if subscription.keeps_notes and subscription.job not in self._noted():
                self._keeper.end(subscription.job)
            return not self._subscriptions

    def cancel(self) -> None:
        """End the streams."""
        self.over = True
        self._ctx.cancel()

    def look(self, job: str) -> Snapshot | None:
        """The job at this moment, all kinds together; None while not every kind was listed. Raises StreamsEnded."""
        with self._lock:
            if self.over:
                raise StreamsEnded(self._failure)
            if not self._ready:
                return None
            return Snapshot(self._listing(job), tuple(self._gone.get(job, {}).values()))

    @property
    def _ready(self) -> bool:
        return all(shelf.listed for shelf in self._shelves.values())

    def _listing(self, job: str) -> Listing:
        found = {field: shelf.of(job) for field, shelf in self._shelves.items() if field != WORKLOAD_KIND.field}
        workloads = self._shelves.get(WORKLOAD_KIND.field)
        if workloads is not None:
            owners = [trainjob.metadata.uid for trainjob in found["trainjobs"]]
            found[WORKLOAD_KIND.field] = tuple(each for uid in owners for each in workloads.of(uid))
        return listing_of(found)

    # What the streams bring, each in its own thread.

    def _keep(self, kind: ListedKind, happening: Listed[Any] | Event[Any]) -> None:
        with self._lock:
            was_ready = self._ready
            shelf = self._shelves[kind.field]
            if isinstance(happening, Listed):
                changed = shelf.replace(happening.items)
            elif happening.type == "DELETED":
                changed = shelf.remove(happening.item)
                self._remember(happening.item)
            else:
                changed = shelf.put(happening.item)
            if self._ready:
                self._note(happening, changed, first=not was_ready)
                anyone = not was_ready or kind is WORKLOAD_KIND
                for each in self._subscriptions:
                    if anyone or each.job in changed:
                        each.tell()
            elif self._last is not None and all(self._shelves[each.field].listed for each in self._kinds[:-1]):
                last, self._last = self._last, None
                self._driver.start(last)

    def _remember(self, item: Any) -> None:
        if isinstance(item, Pod) and not self._ready:
            self._early.append(item)
        job = _job_key(item)
        if isinstance(item, Pod) and job is not None and any(each.job == job for each in self._subscriptions):
            gone = self._gone.setdefault(job, OrderedDict())
            gone[item.metadata.uid] = item
            if len(gone) > GONE:
                gone.popitem(last=False)

    def _noted(self) -> set[str]:
        return {each.job for each in self._subscriptions if each.keeps_notes}

    def _note(self, happening: Listed[Any] | Event[Any], changed: set[str], *, first: bool) -> None:
        """Hand on what the notes need: the job as it is, and what can be seen only now."""
        deleted = [happening.item] if isinstance(happening, Event) and happening.type == "DELETED" else []
        if first:
            deleted, self._early = [*self._early, *deleted], []
        missed = isinstance(happening, Listed) and not first
        for job in self._noted() if first or missed else self._noted() & changed:
            news = News(self._listing(job), tuple(each for each in deleted if _job_key(each) == job), missed, first)
            self._keeper.changed(job, news)

    def _ended(self, failure: Failure | None) -> None:
        """One stream has ended, and with it all: a view without one of its kinds would not be one."""
        with self._lock:
            if not self.over:
                self._failure = failure
            self.over = True
            subscriptions = list(self._subscriptions)
        self._ctx.cancel()
        for each in subscriptions:
            each.tell()


class Hub:
    """The shared streams of one Backend. Nothing runs in it while nobody watches."""

    def __init__(self, door: Door, settings: Settings, clock: Clock, driver: Driver | None = None) -> None:
        self._door = door
        self._settings = settings
        self._clock = clock
        self._driver: Driver = Threads(clock) if driver is None else driver
        self._lock = threading.RLock()
        self._session: Session | None = None
        self._keeper: NoteKeeper | None = None
        self._closed = False
        self._notes: OrderedDict[str, Notes] = OrderedDict()
        self._unopened: OrderedDict[str, None] = OrderedDict()
        self._written: OrderedDict[str, Written] = OrderedDict()
        self._started: OrderedDict[str, int] = OrderedDict()
        self._memory = threading.Lock()

    @contextmanager
    def join(self, job: str, ctx: Context, *, keeps_notes: bool) -> Iterator[Subscription]:
        """Watch a job for as long as this lasts; the first watcher opens the streams and the last one ends them."""
        with self._lock:
            session = self._session
            if session is None or session.over:
                if session is not None:
                    self._end(session)
                session = self._session = self._begin()
            subscription = Subscription(session, job, self._driver, keeps_notes=keeps_notes)
            session.add(subscription)
        unsubscribe: Callable[[], None] = ctx.on_cancel(subscription.tell)
        try:
            yield subscription
        finally:
            unsubscribe()
            with self._lock:
                if session.remove(subscription):
                    self._end(session)

    def close(self) -> None:
        """End the streams and what keeps notes, for good. Again: nothing."""
        with self._lock:
            self._closed = True
            if self._session is not None:
                self._end(self._session)
            keeper = self._keeper
        if keeper is not None:
            # Not in the lock of the hub: who watches leaves through it, and must not wait for the last notes.
            keeper.finish()
            self._driver.join([keeper])

    def _begin(self) -> Session:
        # In the lock of the hub: no stream is opened before the last ones of that kind have ended.
        if self._keeper is None:
            self._keeper = NoteKeeper(
                self._door,
                self._settings,
                self._clock,
                self._driver,
                remember=self.remember,
                wanted=self._wanted,
                wrote=self._wrote,
            )
        session = Session(self._door, self._settings, self._clock, self._driver, self._keeper)
        if self._closed:
            session.cancel()
        return session

    def _end(self, session: Session) -> None:
        session.cancel()
        self._driver.join(session.streams)
        if self._session is session:
            self._session = None

    # What this Backend saw itself, for Ceased.

    def remember(self, notes: Notes) -> None:
        """The notes on one TrainJob as they stand now."""
        with self._memory:
            _put(self._notes, notes.trainjob, notes)

    def notes(self, trainjob_uid: str) -> Notes | None:
        """The notes that a watch of this Backend took of a TrainJob, if there was one."""
        with self._memory:
            return self._notes.get(trainjob_uid)

    def notes_on_pod(self, uid: str) -> Notes | None:
        """The notes that a watch of this Backend took and that have this pod, if there are any."""
        with self._memory:
            return next((each for each in self._notes.values() if each.pod(uid) is not None), None)

    def _wrote(self, identity: Identity, uid: str) -> None:
        with self._memory:
            _put(self._written, identity.name, Written(identity, uid))

    def _wanted(self, identity: Identity) -> bool:
        with self._memory:
            return identity.attempt >= self._started.get(identity.job, 0)

    def forget_below(self, job: str, attempt: int) -> tuple[Written, ...]:
        """An attempt has started: no notes of earlier ones are written any more, and these were; given once."""
        with self._memory:
            _put(self._started, job, attempt)
            found = [each for each in self._written.values() if each.identity.job == job]
            found = [each for each in found if each.identity.attempt < attempt]
            for each in found:
                del self._written[each.identity.name]
        return tuple(found)

    def stopped_unopened(self, trainjob_uid: str) -> None:
        """A TrainJob was deleted here by a delete that could only apply while it had never been opened."""
        with self._memory:
            _put(self._unopened, trainjob_uid, None)

    def was_unopened(self, trainjob_uid: str) -> bool:
        """Whether this Backend stopped that TrainJob so."""
        with self._memory:
            return trainjob_uid in self._unopened


def _put(memory: OrderedDict[str, Any], key: str, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)


def _key(kind: ListedKind) -> Callable[[Any], str | None]:
    return _workload_key if kind is WORKLOAD_KIND else _job_key


def _job_key(item: Any) -> str | None:
    job: str | None = item.metadata.labels.job
    return job


def _workload_key(item: Workload) -> str | None:
    return item.metadata.labels.job_uid
