"""StopJob: all of a job is deleted and *seen gone*. What is left is named, with the gravest reason for which it is.

Each round lists the job anew, deletes what nothing above it will take, and waits. Garbage collection is given its
time, for what it is at needs no help; and what was definitely refused is not waited for.

Labels can be edited by hand, so that the lists show an object and not the one above it, which would make it anew for
ever. What seems to have lost its owner is therefore deleted only once a read has shown that nothing above it lives.

A foreground deletion, which others may ask for, does not end where Trainer is quicker than the collector, or its
webhook refuses the collector's write. A second delete, in the background, takes that finalizer off, and no webhook has
a say in it.

A round lists owners after what they own, and so an owner that goes meanwhile may leave behind what it made last. Hence
a round that shows nothing lists once more from the top: once there is no owner, nothing new can come below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

from msgspec import Struct

from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.backend.objects.listing import Listing
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.machine.values import ObjectRef

from .call import Call, Got, outcome
from .describing import in_flight, marked
from .listed import ListedKind, listed_kinds, listing_of, selector
from .owners import living_owner
from .stop import never_opened

COLLECTED_WITHIN = 30.0
"""Seconds that garbage collection is given for what has lost its owner; then it is deleted here."""
UNANSWERED = 3
"""Deletes of one object without a definite answer, after which it counts as left if it still stands there."""
FROM_THE_TOP = tuple(each for each in reversed(listed_kinds("plain")) if each.field in {"jobsets", "jobs", "pods"})
"""What TrainJobs, which are listed last, may have left below them."""
CONFLICTS = 8
"""Deletes of one object that met a conflict, after which it counts as left."""
COLLECTORS = frozenset({"foregroundDeletion", "orphan"})
"""Finalizers by which the collector keeps an object that is being deleted, until it has seen to what that owns."""

Left = Literal["unknown-left", "unreachable-left", "denied-left", "refused-left"]
GRAVEST: tuple[Left, ...] = ("unknown-left", "unreachable-left", "denied-left", "refused-left")


@dataclass(frozen=True, slots=True)
class _Item:
    """One object of the job. `kept_by`: UID of what is above it and still there; None for what nothing keeps."""

    resource: Resource
    metadata: seen.Metadata
    attempt: str | None
    kept_by: str | None = None
    collecting: bool = False
    unopened: bool = False

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def goes(self) -> bool:
        """Whether its deletion has begun, and another delete would do nothing."""
        metadata = self.metadata
        return metadata.deleting and not (self.resource is TRAIN_JOBS and COLLECTORS.intersection(metadata.finalizers))


@dataclass(slots=True)
class _Trouble:
    """What came of the deletes of one object: the last failure, how it counts, and whether it is over with."""

    failure: Failure
    left: Left
    unanswered: int = 0
    conflicts: int = 0

    @property
    def final(self) -> bool:
        if self.left in {"unknown-left", "unreachable-left"}:
            return self.unanswered >= UNANSWERED
        return self.conflicts == 0 or self.conflicts >= CONFLICTS


@dataclass(slots=True)
class _Round:
    """What one set of lists shows of the attempts that are this call's business."""

    items: tuple[_Item, ...] = ()
    in_flight: frozenset[int] = frozenset()
    attempts: frozenset[str | None] = frozenset()


def stop_job(call: Call, job_id: str) -> None:
    """Delete all of a job's attempts that its first lists show or that are in flight here, and see them gone.

    ErrUnreachable if the context ends before (C40) or a list fails so; what is left otherwise is the gravest of
    ErrOutcomeUnknown, ErrUnreachable, ErrUnauthorized (C39) and ErrRejected, naming each. ErrRejected too for what an
    object would make anew whose labels do not say that it is the job's.
    """
    _StopJob(call, job_id).run()


@dataclass(slots=True)
class _StopJob:
    call: Call
    job_id: str
    round: _Round | None = None
    collecting_since: dict[str, float] = field(default_factory=dict)
    troubles: dict[str, _Trouble] = field(default_factory=dict)
    snapshots_gone: set[str] = field(default_factory=set)
    left: list[_Item] = field(default_factory=list)
    let_go: set[str] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)
    above: dict[tuple[str, str], Got[Any] | None] = field(default_factory=dict)
    """`let_go`: UIDs above which nothing lived when last looked. `kept`: in this round, what would make an object anew.
    `above`: what this round read of such owners.
    """

    def run(self) -> None:
        while True:
            self.round = round_ = self._look(self.round)
            self.left = list(round_.items)
            self.kept.clear()
            self.above.clear()
            for item in round_.items:
                self._delete(item)
            self.left = left = [*round_.items, *self._snapshots(round_)]
            if not left and not round_.in_flight:
                self.call.settle("stop", finding="nothing-left")
                return
            if not round_.in_flight and not any(self._is_waited_for(each, left) for each in left):
                self._refuse(left)
            self.call.ctx.wait(self.call.adapter.settings.stop_poll)
            if self.call.ctx.ended is not None:
                self._ended(left)

    # Looking.

    def _look(self, last: _Round | None) -> _Round:
        before = marked(self.call, self.job_id)
        listing = self._list(last, listed_kinds("plain"))
        flying = in_flight(self.call, self.job_id, listing, before)
        round_ = self._of(last, listing, flying)
        if round_.items or round_.in_flight:
            return round_
        return self._of(last, self._list(last, FROM_THE_TOP), flying)

    def _of(self, last: _Round | None, listing: Listing, flying: frozenset[int]) -> _Round:
        items = tuple(_items(listing))
        if last is None:
            attempts = frozenset({each.attempt for each in items} | {str(attempt) for attempt in flying})
        else:
            attempts = last.attempts
        ours = tuple(each for each in items if each.attempt in attempts)
        uids = {each.uid for each in ours}
        return _Round(
            # What keeps an object and is of no attempt of this call's is nothing that will go.
            tuple(each if each.kept_by in uids else replace(each, kept_by=None) for each in ours),
            frozenset(attempt for attempt in flying if str(attempt) in attempts),
            attempts,
        )

    def _list(self, last: _Round | None, kinds: Iterable[ListedKind]) -> Listing:
        """Some of Find's lists without the Workloads, which go with their TrainJobs. One that fails ends the call."""
        ours = names.job_selector(self.call.adapter.settings.name, self.job_id)
        found = {}
        for kind in kinds:
            items = self.call.try_list(kind.resource, selector(kind, ours), kind.type)
            if isinstance(items, Failure):
                if last is not None:
                    self._check_ended(self.left)
                self.call.refuse(items)
            found[kind.field] = items
        return listing_of(found)

    def _is_kept(self, item: _Item) -> bool:
        """Whether something lives that would make an object anew, though the lists show nothing above it.

        What is being collected is looked at once, and again before it is deleted.
        """
        if item.resource is TRAIN_JOBS or (item.uid in self.let_go and not self._is_due(item)):
            return False
        name = item.name if item.resource is not CONFIG_MAPS else f"{self.job_id}-{item.attempt}"
        owner = living_owner(self._read_above, item.resource.kind, name, item.metadata)
        if owner is None:
            self.let_go.add(item.uid)
            return False
        if not self._is_our_business(owner.metadata.labels):
            self.kept[item.uid] = self._ref_of(owner.resource, owner.metadata)
        return True

    def _is_our_business(self, labels: seen.Labels) -> bool:
        """Whether the next lists will show an object that these did not."""
        assert self.round is not None
        ours = labels.backend == self.call.adapter.settings.name and labels.job == self.job_id
        return ours and labels.attempt in self.round.attempts

    def _read_above(self, resource: Resource, name: str, kind: type[Struct]) -> Got[Any] | None:
        place = resource.kind, name
        if place not in self.above:
            found = self.call.try_get(resource, name, kind)
            if isinstance(found, Failure):
                if outcome(self.call.judge(found)) != "absent":
                    self._check_ended(self.left)
                    self.call.refuse(found)
                self.above[place] = None
            else:
                self.above[place] = found
        return self.above[place]

    # Deleting.

    def _delete(self, item: _Item) -> None:
        """Delete an object, if nothing above it will take it and its time has come."""
        if item.kept_by is not None or item.goes or self._is_final(item) or self._is_kept(item):
            return
        if self._is_due(item):
            self._delete_one(item)

    def _is_due(self, item: _Item) -> bool:
        if not item.collecting:
            return True
        now = self.call.adapter.clock.monotonic()
        return now - self.collecting_since.setdefault(item.uid, now) >= COLLECTED_WITHIN

    def _delete_one(self, item: _Item) -> None:
        version = item.metadata.resource_version if item.unopened or item.resource is not TRAIN_JOBS else None
        reply = self.call.delete(item.resource, item.metadata.name, uid=item.uid, resource_version=version)
        failure = reply.failure
        if failure is None:
            self.troubles.pop(item.uid, None)
            if item.unopened:
                self.call.adapter.hub.stopped_unopened(item.uid)
            return
        before = self.troubles.get(item.uid)
        unanswered, conflicts = (before.unanswered, before.conflicts) if before is not None else (0, 0)
        match outcome(self.call.judge(failure)):
            case "absent":
                self.troubles.pop(item.uid, None)
            case "lost":
                self.troubles[item.uid] = _Trouble(failure, "unknown-left", unanswered + 1, conflicts)
            case "unsent" | "context-ended":
                # An earlier delete without an answer may yet apply, and is graver than this one.
                left: Left = "unreachable-left" if before is None or before.left != "unknown-left" else "unknown-left"
                self.troubles[item.uid] = _Trouble(failure, left, unanswered + 1, conflicts)
            case "conflict":
                self.troubles[item.uid] = _Trouble(failure, "refused-left", unanswered, conflicts + 1)
            case "denied":
                self.troubles[item.uid] = _Trouble(failure, "denied-left")
            case _:
                self.troubles[item.uid] = _Trouble(failure, "refused-left")

    def _snapshots(self, round_: _Round) -> list[_Item]:
        """The ConfigMaps in which Trainer kept the runtimes, of attempts of which nothing else is left.

        Garbage collection takes what is owned; it is deleted here where it has no owner, or had its time. A user who
        may not see them is not kept waiting for them.
        """
        standing = {each.attempt for each in round_.items}
        self.snapshots_gone -= {names.snapshot_name(f"{self.job_id}-{attempt}") for attempt in standing}
        found = []
        for attempt in sorted(filter(None, round_.attempts - standing)):
            name = names.snapshot_name(f"{self.job_id}-{attempt}")
            if name in self.snapshots_gone:
                continue
            got = self.call.try_get(CONFIG_MAPS, name, seen.ConfigMap)
            if isinstance(got, Got):
                metadata = got.seen.metadata
                item = _Item(CONFIG_MAPS, metadata, attempt, collecting=bool(metadata.owner_references))
                found.append(item)
                self.left.append(item)
                self._delete(item)
                continue
            rule = self.call.judge(got)
            if outcome(rule) in ("absent", "denied"):
                self.snapshots_gone.add(name)
            elif self.call.ctx.ended is not None:
                self._ended([*round_.items, *found], unseen=(f"ConfigMap {name} (not looked at)",))
            else:
                self.call.refuse(got)
        return found

    # What is left.

    def _is_final(self, item: _Item) -> bool:
        trouble = self.troubles.get(item.uid)
        return item.uid in self.kept or (trouble is not None and trouble.final)

    def _is_waited_for(self, item: _Item, left: list[_Item]) -> bool:
        """Not where it was refused, nor where something above it was, which keeps it."""
        above: _Item | None = item
        while above is not None:
            if self._is_final(above) and not above.metadata.deleting:
                return False
            above = next((each for each in left if each.uid == above.kept_by), None) if above.kept_by else None
        return True

    def _refuse(self, left: list[_Item]) -> NoReturn:
        troubles = [(each, trouble) for each in left if (trouble := self.troubles.get(each.uid)) is not None]
        if not troubles:
            instead = ", ".join(dict.fromkeys(self.kept[each.uid] for each in left if each.uid in self.kept))
            self.call.settle("stop", finding="kept-left", details={**self._left(left), "instead": instead})
        gravest = next(kind for kind in GRAVEST if any(trouble.left == kind for _, trouble in troubles))
        item, trouble = next((item, trouble) for item, trouble in troubles if trouble.left == gravest)
        details = {**trouble.failure.details, **self._left(left)}
        finding: str = gravest
        if gravest == "denied-left" and item.resource is not TRAIN_JOBS:
            finding = "orphan-denied"
        self.call.settle("stop", finding=finding, details=details, cause=trouble.failure.cause)
        raise AssertionError("what is left is refused")

    def _check_ended(self, left: list[_Item]) -> None:
        if self.call.ctx.ended is not None:
            self._ended(left)

    def _ended(self, left: list[_Item], unseen: tuple[str, ...] = ()) -> NoReturn:
        """The context has ended: row C40, unless deletes without an answer among what is left are graver."""
        unknown = any(
            trouble.left == "unknown-left" for each in left if (trouble := self.troubles.get(each.uid)) is not None
        )
        if unknown:
            self._refuse(left)
        self.call.settle("stop", finding="context-ended", details=self._left(left, unseen))
        raise AssertionError("a context that ended is refused")

    def _left(self, left: list[_Item], unseen: tuple[str, ...] = ()) -> dict[str, object]:
        failures = {
            self._ref(each): trouble.failure.message
            for each in left
            if (trouble := self.troubles.get(each.uid)) is not None
        }
        kept = [each for each in left if each.uid in self.kept]
        failures |= {self._ref(each): f"{self.kept[each.uid]} would make it anew" for each in kept}
        flying = sorted(self.round.in_flight) if self.round is not None else ()
        named = [*(self._ref(each) for each in left), *unseen]
        named += [f"{self.job_id}-{attempt} (in flight)" for attempt in flying]
        return {"left": tuple(named), "failures": failures}

    def _ref(self, item: _Item) -> str:
        return self._ref_of(item.resource, item.metadata)

    def _ref_of(self, resource: Resource, metadata: seen.Metadata) -> str:
        backend = self.call.adapter.settings.name
        return str(ObjectRef(backend, self.call.namespace, resource.kind, metadata.name, metadata.uid))


def _items(listing: Listing) -> list[_Item]:
    """The objects of a listing in the order in which they are stopped, each with what is above it and still there."""
    trainjobs = {each.metadata.name: each.metadata.uid for each in listing.trainjobs}
    jobsets = {each.metadata.uid for each in listing.jobsets}
    jobs = {each.metadata.uid for each in listing.jobs}
    items = [
        _Item(TRAIN_JOBS, each.metadata, each.metadata.labels.attempt, unopened=never_opened(each))
        for each in listing.trainjobs
    ]
    items += [_below(JOB_SETS, each.metadata, trainjobs, set()) for each in listing.jobsets]
    items += [_below(JOBS, each.metadata, trainjobs, jobsets) for each in listing.jobs]
    items += [_below(PODS, each.metadata, {}, jobs) for each in listing.pods]
    items += [_below(TRAINING_RUNTIMES, each.metadata, trainjobs, set()) for each in listing.runtimes]
    return items


def _below(resource: Resource, metadata: seen.Metadata, trainjobs: dict[str, str], owners: set[str]) -> _Item:
    """An object below others: kept by its owner, if that is there, or by the TrainJob of its name."""
    identity = names.identity(metadata.labels)
    name = metadata.labels.jobset_name or (metadata.name if identity is None else identity.name)
    kept_by = next((owner.uid for owner in metadata.owner_references if owner.uid in owners), None)
    collecting = bool(metadata.owner_references) and kept_by is None
    return _Item(resource, metadata, metadata.labels.attempt, kept_by or trainjobs.get(name), collecting)
