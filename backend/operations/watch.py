"""Watch: the views of a job as it changes. Its kinds come by streams of their own, so one may run ahead of another:
before something is called an orphan, a read must show that its TrainJob is absent; where pods stand beside a closed
gate, its TrainJob is read, for it may be the older; and where a TrainJob is complete before its JobSet, or failed
before its Jobs, those are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dispatch_kubeflow.backend.objects import causes, names, seen, state
from dispatch_kubeflow.backend.objects.found import Found, FoundObject
from dispatch_kubeflow.backend.objects.listing import Listing, views
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import JOB_SETS, JOBS, TRAIN_JOBS, Resource

from .call import Call, Got, outcome
from .describing import describer, in_flight
from .hub import Snapshot, StreamsEnded, Subscription

LOOK_AGAIN = 1.0
"""Seconds after which a view that time alone changes is looked at again: something in flight, a copy that grows old.
"""
READ_AGAIN = 5.0
"""Seconds after which it is read again whether a TrainJob exists that the streams do not show."""


def watch(call: Call, job_id: str) -> Iterator[Found]:
    """The views of a job, the first at once, then whenever it has changed; the newest, however slow the caller is.

    It ends only by raising: ErrUnreachable when its context ends or its Backend is closed, otherwise what table
    `request` says of the stream, or of the read for an orphan, that was refused.
    """
    keeps_notes = call.adapter.gates.access == "read-write"
    with call.adapter.hub.join(job_id, call.ctx, keeps_notes=keeps_notes) as subscription:
        yield from _Views(call, job_id, subscription).run()


@dataclass(frozen=True, slots=True)
class _Newer:
    """A TrainJob that was read because its stream may lag. `than`: the version at which the stream stood."""

    than: str
    trainjob: seen.TrainJob


@dataclass(frozen=True, slots=True)
class _Proof:
    """A kind that shows why a TrainJob ended, and may come later than its end: how a listing gives and takes it,
    whether it lags behind a TrainJob, and which of it are that TrainJob's.
    """

    resource: Resource
    type: type[seen.JobSet | seen.Job]
    given: Callable[[Listing], Sequence[seen.JobSet | seen.Job]]
    taken: Callable[[Listing, Any], Listing]
    lags: Callable[[state.View], bool]
    of: Callable[[state.View], tuple[seen.JobSet | seen.Job, ...]]


_PROOFS: Final = (
    _Proof(
        JOB_SETS,
        seen.JobSet,
        given=lambda listing: listing.jobsets,
        taken=lambda listing, found: replace(listing, jobsets=found),
        lags=lambda view: causes.unproven(view.trainjob, view.jobset),
        of=lambda view: () if view.jobset is None else (view.jobset,),
    ),
    _Proof(
        JOBS,
        seen.Job,
        given=lambda listing: listing.jobs,
        taken=lambda listing, found: replace(listing, jobs=found),
        lags=lambda view: causes.unexplained(view.trainjob, view.jobs),
        of=lambda view: tuple(view.jobs),
    ),
)


class _Views:
    """One watcher's views, each compared with the last."""

    def __init__(self, call: Call, job_id: str, subscription: Subscription) -> None:
        self._call = call
        self._job_id = job_id
        self._subscription = subscription
        self._describer = describer(call)
        self._orphans: set[str] = set()
        self._last: Found | None = None
        self._again: float | None = None
        self._newer: dict[str, _Newer] = {}
        self._proofs: dict[tuple[str, str], tuple[seen.JobSet | seen.Job, ...]] = {}

    def run(self) -> Iterator[Found]:
        while True:
            self._subscription.wait(self._call.ctx, self._again)
            if self._call.ctx.ended is not None:
                self._stopped()
            try:
                snapshot = self._subscription.look()
            except StreamsEnded as end:
                self._streams_ended(end)
            else:
                view = self._view(snapshot) if snapshot is not None else None
                if view is not None and view != self._last:
                    self._last = view
                    yield view

    def _view(self, snapshot: Snapshot) -> Found | None:
        """What the streams show, less what they can't show yet; None while a read has to be made again first."""
        listing = self._proven(self._current(snapshot.listing))
        if listing is None:
            self._again = LOOK_AGAIN
            return None
        before = self._last.in_flight if self._last is not None else ()
        found = self._describer.found(
            self._job_id,
            listing,
            now=self._call.adapter.clock.now(),
            in_flight=in_flight(self._call, self._job_id, listing, ()),
            gone=snapshot.gone,
        )
        ended = tuple(attempt for attempt in before if self._answered_unseen(attempt, found))
        doubtful = [each for each in found.objects if self._doubtful(each)]
        shown = tuple(each for each in found.objects if each not in doubtful or self._is_orphan(each, listing))
        hidden = len(shown) < len(found.objects) or bool(ended)
        found = replace(found, objects=shown, in_flight=tuple(sorted({*found.in_flight, *ended})))
        changes_alone = bool(found.in_flight) or any(each.state == "starting" for each in shown)
        self._again = READ_AGAIN if hidden else LOOK_AGAIN if changes_alone else None
        return found

    def _current(self, listing: Listing) -> Listing:
        """The listing with those TrainJobs read that its pods belie."""
        return replace(listing, trainjobs=tuple(self._now(view) for view in views(listing)))

    def _now(self, view: state.View) -> seen.TrainJob:
        """A TrainJob as its stream shows it, or as it was read since that stream last moved."""
        streamed = view.trainjob.metadata
        newer = self._newer.get(streamed.uid)
        if newer is not None and newer.than == streamed.resource_version:
            view = replace(view, trainjob=newer.trainjob)
        if state.belied(view):
            found = self._trainjob(streamed.name)
            if isinstance(found, seen.TrainJob) and found.metadata.uid == streamed.uid:
                self._newer[streamed.uid] = _Newer(streamed.resource_version, found)
                return found
        return view.trainjob

    def _proven(self, listing: Listing) -> Listing | None:
        """The listing with that read, once, which would show an end's cause and whose stream lags; None if it can't be.
        """
        for proof in _PROOFS:
            kind = proof.resource.kind
            keys = [(kind, view.trainjob.metadata.uid) for view in views(listing) if proof.lags(view)]
            unread = {key for key in keys if key not in self._proofs}
            if unread:
                selector = names.job_selector(self._call.adapter.settings.name, self._job_id)
                found = self._call.try_list(proof.resource, selector, proof.type)
                if isinstance(found, Failure):
                    self._unlearned(found)
                    return None
                for view in views(proof.taken(listing, found)):
                    key = (kind, view.trainjob.metadata.uid)
                    if key in unread:
                        self._proofs[key] = () if proof.lags(view) else proof.of(view)
            proofs = [each for key in keys for each in self._proofs[key]]
            proven = {each.metadata.name for each in proofs}
            others = [each for each in proof.given(listing) if each.metadata.name not in proven]
            listing = proof.taken(listing, (*others, *proofs))
        return listing

    def _answered_unseen(self, attempt: int, found: Found) -> bool:
        """Whether an attempt that was in flight exists by now, although the streams do not show it yet."""
        if attempt in found.in_flight or any(
            each.attempt == attempt and each.ref.kind == TRAIN_JOBS.kind for each in found.objects
        ):
            return False
        return self._trainjob(names.object_name(self._job_id, attempt)) != "absent"

    def _doubtful(self, each: FoundObject) -> bool:
        return each.state == "orphaned" and each.ref.uid not in self._orphans

    def _is_orphan(self, orphan: FoundObject, listing: Listing) -> bool:
        """Whether a read shows that no TrainJob has its name, or that the one the streams know is not its owner."""
        name = orphan.ref.name if orphan.attempt is None else names.object_name(self._job_id, orphan.attempt)
        found = self._trainjob(name)
        known = {each.metadata.uid for each in listing.trainjobs}
        if found != "absent" and (found is None or found.metadata.uid not in known):
            return False
        self._orphans.add(orphan.ref.uid)
        return True

    def _trainjob(self, name: str) -> seen.TrainJob | Literal["absent"] | None:
        """The TrainJob of a name, or `absent`; None where that could not be learned now."""
        found = self._call.try_get(TRAIN_JOBS, name, seen.TrainJob)
        if isinstance(found, Got):
            return found.seen
        if outcome(self._call.judge(found)) == "absent":
            return "absent"
        self._unlearned(found)
        return None

    def _unlearned(self, failure: Failure) -> None:
        """Nothing was learned: what is in doubt stays unsaid until a later look, as with a stream that breaks. A
        refusal ends the watch.
        """
        if outcome(self._call.judge(failure)) not in ("unsent", "lost", "context-ended"):
            self._call.refuse(failure)

    def _streams_ended(self, end: StreamsEnded) -> None:
        if end.failure is not None and outcome(self._call.judge(end.failure)) != "context-ended":
            self._call.refuse(end.failure)
        self._stopped()

    def _stopped(self) -> None:
        ended = self._call.ctx.ended
        if self._call.adapter.running.life != "open":
            why = "its Backend was closed"
        elif ended is None:
            why = "one of its streams ended in this process"
        else:
            why = "its context's deadline passed" if ended == "deadline" else "its context was cancelled"
        self._call.settle("read", finding="stopped-watching", details={"rule": why})
