"""That a pod has ceased can often be shown only by what was seen while it lived. Watch sees it, so it takes notes;
and as to read Nodes and to write takes time, that is done here, apart from the streams and from those who watch.

What makes notes worth believing is that they say what they may have missed; `note_book` has that part. Here is when
they are taken, and by which requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dispatch_kubeflow.backend.objects import evidence, names, notes, seen
from dispatch_kubeflow.backend.objects.listing import Listing
from dispatch_kubeflow.backend.objects.names import Identity
from dispatch_kubeflow.backend.objects.notes import Notes
from dispatch_kubeflow.backend.requests import Door, Failure
from dispatch_kubeflow.backend.requests.resources import JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS
from dispatch_kubeflow.machine.context import Clock, Context
from dispatch_kubeflow.machine.settings import Settings

from .note_book import Around, Book, begun, node_would_say, settled_at, settled_under
from .note_store import NoteStore, Stored, joined
from .streams import Driver

BETWEEN_WRITES = 1.0
"""Seconds between two writes of the same notes, unless they have just been settled."""
AGAIN = 5.0
"""Seconds after which what failed is tried again."""
LAST_WRITES = 0.4
"""Seconds that the last writes may take when the Backend is closed."""
CONFLICTS = 3
REFUSED = frozenset({"401", "403"})


@dataclass(frozen=True, slots=True)
class News:
    """A job as the streams show it now. `deleted`: objects in their DELETED events. `missed`: events may have been.

    `first`: it is the streams' first listing, its TrainJobs listed after the streams of all else had begun.
    """

    listing: Listing
    deleted: tuple[Any, ...] = ()
    missed: bool = False
    first: bool = False


@dataclass(slots=True)
class Inbox:
    """What has come of one job since it was last looked at."""

    listing: Listing | None = None
    deleted: tuple[Any, ...] = ()
    missed: bool = False
    first: bool = False
    news: bool = False
    ended: bool = False

    def put(self, news: News) -> None:
        """Add to what has come."""
        self.listing = news.listing
        self.deleted += news.deleted
        self.missed = self.missed or news.missed
        self.first = self.first or news.first
        self.news = True


class NoteKeeper:
    """Keeps the notes of the jobs that are watched. Its thread lives while there is one."""

    name = "notes of watch"

    def __init__(
        self,
        door: Door,
        settings: Settings,
        clock: Clock,
        driver: Driver,
        *,
        remember: Callable[[Notes], None],
        wanted: Callable[[Identity], bool],
        wrote: Callable[[Identity, str], None],
    ) -> None:
        self._store = NoteStore(door, settings.namespace)
        self._settings = settings
        self._clock = clock
        self._driver = driver
        self._remember = remember
        self._wanted = wanted
        self._wrote = wrote
        self._ctx = Context.background(clock=clock)
        self._lock = threading.RLock()
        self._work = threading.Event()
        self._inboxes: dict[str, Inbox] = {}
        self._books: dict[str, dict[str, Book]] = {}
        self._running = False
        self._swept = False
        self._nodes_refused = False
        self._finished = False

    # What the streams say; quick, for it holds them up.

    def begin(self, job: str, listing: Listing | None) -> None:
        """Take notes of a job from now on. `listing`: what is known of it, if the streams have been there before."""
        with self._lock:
            inbox = self._inboxes.setdefault(job, Inbox())
            inbox.ended = False
            inbox.missed = True
            if listing is not None:
                inbox.put(News(listing))
            start, self._running = not self._running, True
        if start:
            self._driver.start(self)
        self._work.set()

    def changed(self, job: str, news: News) -> None:
        """Something of a job is new."""
        with self._lock:
            if job in self._inboxes:
                self._inboxes[job].put(news)
        self._work.set()

    def end(self, job: str) -> None:
        """Nobody watches the job any more: what is known of it is written, and that was it."""
        with self._lock:
            if job in self._inboxes:
                self._inboxes[job].ended = True
        self._work.set()

    def finish(self) -> None:
        """Write what is left, and stop. What is being asked or written right now is given up. Again: nothing."""
        with self._lock:
            if self._finished:
                return
            under_way, self._ctx = self._ctx, Context.with_timeout(LAST_WRITES, clock=self._clock)
            self._finished = True
        under_way.cancel()
        self._work.set()

    # One step: what has come is noted, what is due is written.

    def step(self) -> bool:
        """Wait for work and do it; False once nothing is watched."""
        self._driver.wait(self._work, self._until_due())
        self._work.clear()
        last = self._finished
        with self._lock:
            inboxes = self._inboxes
            self._inboxes = {job: Inbox(each.listing) for job, each in inboxes.items() if not (last or each.ended)}
        for job, inbox in inboxes.items():
            if inbox.news or inbox.ended or last or self._is_due(job):
                self._look(job, inbox, last=last or inbox.ended)
        if not self._swept and not last:
            self._swept = True
            self._sweep(names.backend_selector(self._settings.name))
        with self._lock:
            self._running = bool(self._inboxes)
            return self._running

    def _until_due(self) -> float | None:
        if self._finished:
            return 0.0
        due = [at for books in self._books.values() for book in books.values() if (at := book.due) is not None]
        return max(0.0, min(due) - self._clock.monotonic()) if due else None

    def _is_due(self, job: str) -> bool:
        now = self._clock.monotonic()
        return any(book.due is not None and book.due <= now for book in self._books.get(job, {}).values())

    def _look(self, job: str, inbox: Inbox, *, last: bool) -> None:
        listing = inbox.listing
        if listing is not None:
            known = job in self._books and not inbox.missed
            books = self._books.setdefault(job, {})
            before = list(books.values())
            for book in before:
                if inbox.missed and self._may_have_missed(book):
                    book.notes = book.notes.with_gap()
            for trainjob in listing.trainjobs:
                if trainjob.metadata.uid not in books:
                    self._open(books, trainjob, from_birth=known, later_than_pods=inbox.first)
            for book in list(books.values()):
                self._keep(book, Around.of(book, listing), inbox, last=last)
                if book.over(listing):
                    del books[book.uid]
        if last:
            self._books.pop(job, None)

    def _keep(self, book: Book, around: Around, inbox: Inbox, *, last: bool) -> None:
        book.saw(around.trainjob)
        for each in inbox.deleted:
            if isinstance(each, seen.TrainJob) and each.metadata.uid == book.uid:
                book.saw_deleted(each)
        deleted = [each for each in inbox.deleted if isinstance(each, seen.Pod) and book.has(each)]
        book.note(around.pods, self._nodes(book, around.pods), deleted=False)
        book.note(deleted, self._nodes(book, deleted), deleted=True)
        self._settle(book, around, last=last)
        self._remember(book.notes)
        self._write(book, last=last)

    # Beginning.

    def _open(
        self, books: dict[str, Book], trainjob: seen.TrainJob, *, from_birth: bool, later_than_pods: bool
    ) -> None:
        """Begin the notes of a TrainJob, or go on with those that were left."""
        identity = names.named_identity(trainjob.metadata)
        if identity is None:
            return
        book = Book(identity, trainjob.metadata.uid, notes.begin(trainjob, gate_closed=False))
        fresh: seen.TrainJob | None = trainjob
        if not (from_birth or later_than_pods):
            fresh = self._fresh(book)
        unopened = fresh is not None and evidence.shows_never_opened(fresh)
        stored = self._store.stored(identity, book.uid, self._ctx)
        if isinstance(stored, Stored):
            book.stored = stored
        book.refused = isinstance(stored, Failure) and stored.facts.get("result") in REFUSED
        kept = stored.notes if isinstance(stored, Stored) else None
        under = None if kept is None or kept.under is None else self._jobset_uid(identity.name)
        book.notes = begun(trainjob, kept, from_start=from_birth or unopened, fresh=fresh, jobset=under)
        books[book.uid] = book
        self._sweep(names.job_selector(identity.backend, identity.job), {identity.job: identity.attempt})

    def _sweep(self, selector: str, below: dict[str, int] | None = None) -> None:
        """Delete what nobody will ask for, but for what is being kept."""
        keep = {names.notes_name(book.identity.name) for books in self._books.values() for book in books.values()}
        self._store.sweep(selector, self._clock.now(), self._ctx, below=below or {}, keep=keep)

    def _fresh(self, book: Book) -> seen.TrainJob | None:
        found = self._store.get(TRAIN_JOBS, book.identity.name, seen.TrainJob, self._ctx)
        return found if isinstance(found, seen.TrainJob) and found.metadata.uid == book.uid else None

    def _may_have_missed(self, book: Book) -> bool:
        """Whether pods may have come and gone while events were lost."""
        fresh = self._fresh(book)
        if fresh is not None and evidence.shows_never_opened(fresh):
            return False
        if book.notes.complete_at(None if fresh is None else fresh.metadata.generation):
            return False
        return book.notes.under is None or not book.notes.complete_under(self._jobset_uid(book.identity.name))

    def _jobset_uid(self, name: str) -> str | None:
        found = self._store.get(JOB_SETS, name, seen.JobSet, self._ctx)
        return found.metadata.uid if isinstance(found, seen.JobSet) else None

    def _nodes(self, book: Book, pods: list[seen.Pod]) -> dict[str, seen.Node | None]:
        """The Nodes that say something new of these pods, read after the pods were seen so."""
        known = {note.uid: note for note in book.notes.pods}
        wanted = {pod.spec.node_name for pod in pods if node_would_say(known.get(pod.metadata.uid), pod)}
        return {name: self._node(name) for name in sorted(filter(None, wanted))}

    def _node(self, name: str) -> seen.Node | None:
        if self._nodes_refused:
            return None
        found = self._store.get(NODES, name, seen.Node, self._ctx)
        if isinstance(found, Failure):
            self._nodes_refused = found.facts.get("result") in REFUSED
            return None
        return found

    # Settling.

    def _settle(self, book: Book, around: Around, *, last: bool) -> None:
        """Where by the streams nothing can make a pod any more, see whether the cluster says the same."""
        book.settle_at = None
        if not book.notes.complete or book.notes.settled is not None:
            return
        generation, under = self._settled_at(around), settled_under(around)
        if generation is None and (under is None or under == book.notes.under):
            return
        now = self._settled_now(book, around)
        settled = None if now is None else self._settled_at(now)
        ended = None if now is None else settled_under(now)
        if settled is not None:
            book.settle(settled)
        if ended is not None:
            book.settle_under(ended)
        unsure = (generation is not None and settled is None) or (under is not None and ended is None)
        if unsure and not last:
            book.settle_at = self._clock.monotonic() + AGAIN

    def _settled_at(self, around: Around) -> int | None:
        return settled_at(around, mode=self._settings.mode)

    def _settled_now(self, book: Book, around: Around) -> Around | None:
        """The same by reads of now, the pods last; None where they fail, or a pod is there that was not noted."""
        name, ctx = book.identity.name, self._ctx
        ours = f"{names.JOBSET_NAME}={name}"
        trainjob = self._store.get(TRAIN_JOBS, name, seen.TrainJob, ctx)
        jobset = self._store.get(JOB_SETS, name, seen.JobSet, ctx)
        jobs = self._store.list(JOBS, ours, seen.Job, ctx)
        pods = self._store.list(PODS, ours, seen.Pod, ctx)
        if isinstance(trainjob, Failure) or isinstance(jobset, Failure):
            return None
        if isinstance(jobs, Failure) or isinstance(pods, Failure):
            return None
        known = {note.uid for note in book.notes.pods}
        if any(pod.metadata.uid not in known for pod in pods):
            return None
        now = Around(book.identity.attempt, trainjob, jobset, list(jobs), list(pods))
        return now if now.same_trainjob(around) else None

    # Writing.

    def _write(self, book: Book, *, last: bool) -> None:
        now = self._clock.monotonic()
        book.refused = book.refused or not self._wanted(book.identity)
        if not book.dirty or (book.write_at > now and not last):
            return
        book.write_at = now + BETWEEN_WRITES
        for _ in range(CONFLICTS):
            written = self._store.write(book.identity, book.notes, book.stored, self._clock.now(), self._ctx)
            if isinstance(written, Stored):
                book.stored = written
                self._wrote(book.identity, written.uid)
                return
            if written.facts.get("result") in REFUSED:
                book.refused = True
                return
            # Somebody else wrote them, or deleted them: what is there now is read, and joined.
            stored = self._store.stored(book.identity, book.uid, self._ctx)
            if isinstance(stored, Failure):
                break
            book.stored = stored
            book.notes = joined(book.notes, stored.notes if stored is not None else None, book.generation)
        book.write_at = now + AGAIN
