"""What the watches have shown, small enough to keep: it tells which Workloads a change concerns, and which of them need
no look at all, so that requests grow with changes and not with Workloads.

Nothing is written by it. It may be old; a later event then brings up the Workload again.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

from dispatch_kubeflow.backend.objects import admission, names
from dispatch_kubeflow.backend.objects.seen import AdmissionCheck, Metadata, TrainJob, Workload
from dispatch_kubeflow.backend.requests import Event, Listed

from .queue import Key

T = TypeVar("T", Workload, TrainJob, AdmissionCheck)
Place: TypeAlias = tuple[str, str]
"""Namespace and name."""

WORKLOAD, CHECK = "Workload", "AdmissionCheck"


class _Store(Generic[T]):
    """The objects of one kind; `None` where none was listed yet."""

    def __init__(self) -> None:
        self.items: dict[Place, T] = {}
        self.listed = False

    def take(self, happening: Listed[T] | Event[T]) -> Iterator[tuple[T | None, T | None]]:
        """Before and after of all that changed."""
        if isinstance(happening, Event):
            after = None if happening.type == "DELETED" else happening.item
            yield self._put(_place(happening.item.metadata), after), after
            return
        self.listed = True
        present = {_place(each.metadata): each for each in happening.items}
        for place in [each for each in self.items if each not in present]:
            yield self._put(place, None), None
        for place, item in present.items():
            yield self._put(place, item), item

    def _put(self, place: Place, item: T | None) -> T | None:
        before = self.items.get(place)
        if item is None:
            self.items.pop(place, None)
        else:
            self.items[place] = item
        return before


class Watched:
    """The Workloads that carry a check, all TrainJobs, and our AdmissionChecks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workloads = _Store[Workload]()
        self._trainjobs = _Store[TrainJob]()
        self._checks = _Store[AdmissionCheck]()
        self._owned: dict[Place, set[Place]] = defaultdict(set)
        self._attempts: dict[tuple[str, str, str], set[Place]] = defaultdict(set)

    @property
    def complete(self) -> bool:
        """Whether every kind was listed once."""
        return self._workloads.listed and self._trainjobs.listed and self._checks.listed

    @property
    def ours(self) -> frozenset[str]:
        """The names of our AdmissionChecks."""
        with self._lock:
            return frozenset(name for _, name in self._checks.items)

    def __len__(self) -> int:
        return len(self._workloads.items)

    def workload(self, key: Key) -> Workload | None:
        """The Workload as it was last seen."""
        return self._workloads.items.get((key.namespace, key.name))

    def check(self, key: Key) -> AdmissionCheck | None:
        """The AdmissionCheck as it was last seen, if it is ours."""
        return self._checks.items.get(("", key.name))

    def trainjob(self, workload: Workload) -> TrainJob | None:
        """The TrainJob of the name that controls a Workload, as it was last seen."""
        owner = admission.owner(workload)
        return None if owner is None else self._trainjobs.items.get((workload.metadata.namespace, owner.name))

    def everything(self) -> list[Key]:
        """All there is to look at."""
        with self._lock:
            keys = [Key(CHECK, *place) for place in self._checks.items]
            return keys + [Key(WORKLOAD, *place) for place in self._workloads.items]

    def take_workloads(self, happening: Listed[Workload] | Event[Workload]) -> list[Key]:
        """What a happening of the Workloads has to have looked at."""
        found = []
        with self._lock:
            for before, after in self._workloads.take(_carrying(happening)):
                self._index(before, after)
                if after is not None:
                    found.append(Key(WORKLOAD, *_place(after.metadata)))
        return found

    def take_trainjobs(self, happening: Listed[TrainJob] | Event[TrainJob]) -> list[Key]:
        """What a happening of the TrainJobs has to have looked at: the Workloads of all attempts of their jobs."""
        places: set[Place] = set()
        with self._lock:
            for before, after in self._trainjobs.take(happening):
                for each, put in ((before, False), (after, True)):
                    if each is not None:
                        places |= self._place_attempt(each, put=put)
            return [Key(WORKLOAD, *each) for place in places for each in self._owned.get(place, ())]

    def take_checks(self, happening: Listed[AdmissionCheck] | Event[AdmissionCheck]) -> list[Key]:
        """What a happening of the AdmissionChecks has to have looked at: with a new one of ours, all that carry it."""
        found = []
        with self._lock:
            for before, after in self._checks.take(_answering(happening)):
                if after is None:
                    continue
                name = after.metadata.name
                found.append(Key(CHECK, "", name))
                if before is None:
                    found += [
                        Key(WORKLOAD, *place)
                        for place, each in self._workloads.items.items()
                        if admission.checks_of(each, {name})
                    ]
        return found

    def _index(self, before: Workload | None, after: Workload | None) -> None:
        for each, put in ((before, False), (after, True)):
            owner = None if each is None else admission.owner(each)
            if each is None or owner is None:
                continue
            place = (each.metadata.namespace, owner.name)
            if put:
                self._owned[place].add(_place(each.metadata))
            else:
                self._owned[place].discard(_place(each.metadata))
                if not self._owned[place]:
                    del self._owned[place]

    def _place_attempt(self, trainjob: TrainJob, *, put: bool) -> set[Place]:
        place = _place(trainjob.metadata)
        identity = names.identity(trainjob.metadata.labels)
        if identity is None:
            return {place}
        job = (trainjob.metadata.namespace, identity.backend, identity.job)
        attempts = self._attempts[job]
        if put:
            attempts.add(place)
        else:
            attempts.discard(place)
            if not attempts:
                del self._attempts[job]
        return {place, *attempts}


def _place(metadata: Metadata) -> Place:
    return (metadata.namespace, metadata.name)


def _carrying(happening: Listed[Workload] | Event[Workload]) -> Listed[Workload] | Event[Workload]:
    """The happening as far as it concerns Workloads that carry a check, of whomever: ours may be seen later."""
    if isinstance(happening, Listed):
        return Listed(tuple(_only(happening.items, _has_checks)), happening.resource_version)
    return happening if _has_checks(happening.item) else Event("DELETED", happening.item, happening.resource_version)


def _answering(
    happening: Listed[AdmissionCheck] | Event[AdmissionCheck],
) -> Listed[AdmissionCheck] | Event[AdmissionCheck]:
    """The happening as far as it concerns checks that are ours to answer for."""
    if isinstance(happening, Listed):
        return Listed(tuple(_only(happening.items, _is_ours)), happening.resource_version)
    return happening if _is_ours(happening.item) else Event("DELETED", happening.item, happening.resource_version)


def _only(items: Iterable[T], wanted: object) -> Iterator[T]:
    assert callable(wanted)
    return (each for each in items if wanted(each))


def _has_checks(workload: Workload) -> bool:
    return bool(workload.status.admission_checks)


def _is_ours(check: AdmissionCheck) -> bool:
    return check.spec.controller_name == names.CHECK_CONTROLLER and not check.metadata.deleting
