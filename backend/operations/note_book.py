"""Notes are believed only as far as they can't have missed anything. They count as complete if they began before the
gate was lifted, no event was lost, and they were *settled*: with the streams still at it, nothing could make a pod
any more and every pod that was there had been noted. Unsettled notes prove nothing once their watch has ended, for
pods may come afterwards.

One thing is beyond them: a pod that came and went while the stream of pods stood still, unnoticed, and the others did
not.

What was settled at one generation of a TrainJob holds while it is of that generation, for `suspend` can't change
without it; once it has completed, or is gone with all that it made, it holds for ever. A failed TrainJob is never
settled so while it stands, for Trainer makes its JobSet again if that goes. But while its JobSet is still the one that
had ended there can have been no other, and so a watch that begins then has missed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from dispatch_kubeflow.backend.objects import evidence, notes, seen, state
from dispatch_kubeflow.backend.objects.listing import Listing
from dispatch_kubeflow.backend.objects.names import Identity
from dispatch_kubeflow.backend.objects.notes import Notes, PodNote
from dispatch_kubeflow.backend.objects.resting import remains
from dispatch_kubeflow.backend.objects.trainjob import Mode

from .note_store import Stored


@dataclass(slots=True)
class Book:
    """The notes on one TrainJob, what is stored of them, and when something is next to be done about them."""

    identity: Identity
    uid: str
    notes: Notes
    generation: int | None = None
    stored: Stored | None = None
    write_at: float = 0.0
    settle_at: float | None = None
    refused: bool = False

    @property
    def dirty(self) -> bool:
        """Whether there is something to write, and it may be."""
        return not self.refused and (self.stored is None or self.stored.notes != self.notes)

    @property
    def due(self) -> float | None:
        """When to write or to settle; None for not at all."""
        times = [self.write_at] if self.dirty else []
        times += [self.settle_at] if self.settle_at is not None else []
        return min(times, default=None)

    def has(self, pod: seen.Pod) -> bool:
        """Whether a pod is of this TrainJob's name."""
        return pod.metadata.labels.jobset_name == self.identity.name

    def over(self, listing: Listing) -> bool:
        """Whether there is nothing more to note: all of it is gone and that is written, or its name is another's."""
        uids = {each.metadata.uid for each in listing.trainjobs}
        named = {each.metadata.name for each in listing.trainjobs}
        if self.uid in uids:
            return False
        if self.identity.name in named:
            return True
        return self.notes.settled == 0 and not self.dirty and not any(self.has(pod) for pod in listing.pods)

    def saw(self, trainjob: seen.TrainJob | None) -> None:
        """The TrainJob as it stands; of another generation, it may make pods again that are to be noted."""
        self.generation = None if trainjob is None else trainjob.metadata.generation
        if self.notes.settled not in {None, 0, self.generation}:
            self.notes = msgspec.structs.replace(self.notes, settled=None)

    def saw_deleted(self, trainjob: seen.TrainJob) -> None:
        """The TrainJob in its DELETED event."""
        if evidence.shows_never_opened(trainjob):
            self.notes = msgspec.structs.replace(self.notes, never_opened=True)

    def note(self, pods: Iterable[seen.Pod], nodes: Mapping[str, seen.Node | None], *, deleted: bool) -> None:
        """What is now seen of its pods."""
        known = {note.uid: note for note in self.notes.pods}
        for pod in pods:
            uid = pod.metadata.uid
            node = nodes.get(pod.spec.node_name or "")
            known[uid] = notes.noted(known.get(uid), pod, node=node, deleted=deleted)
        noted = tuple(known.values())
        if noted != self.notes.pods:
            self.notes = msgspec.structs.replace(self.notes, pods=noted)

    def settle(self, generation: int) -> None:
        """Nothing can make a pod at this generation, and all are noted; that is written at once."""
        self.notes = msgspec.structs.replace(self.notes, settled=generation)
        self.write_at = 0.0

    def settle_under(self, jobset: str) -> None:
        """Nothing can make a pod while this JobSet is there, and all are noted; that is written at once."""
        self.notes = msgspec.structs.replace(self.notes, under=jobset)
        self.write_at = 0.0


@dataclass(frozen=True, slots=True)
class Around:
    """One TrainJob of a job with what it made, by its name."""

    attempt: int
    trainjob: seen.TrainJob | None
    jobset: seen.JobSet | None
    jobs: list[seen.Job]
    pods: list[seen.Pod]

    @classmethod
    def of(cls, book: Book, listing: Listing) -> Around:
        """What a listing shows of it."""
        name = book.identity.name
        return cls(
            attempt=book.identity.attempt,
            trainjob=next((each for each in listing.trainjobs if each.metadata.uid == book.uid), None),
            jobset=next((each for each in listing.jobsets if each.metadata.name == name), None),
            jobs=[each for each in listing.jobs if each.metadata.labels.jobset_name == name],
            pods=[each for each in listing.pods if book.has(each)],
        )

    def same_trainjob(self, other: Around) -> bool:
        """Whether the TrainJob is the same, of the same generation, or gone in both."""
        one, two = self.trainjob, other.trainjob
        if one is None or two is None:
            return one is two
        return one.metadata.uid == two.metadata.uid and one.metadata.generation == two.metadata.generation


def begun(
    trainjob: seen.TrainJob,
    kept: Notes | None,
    *,
    from_start: bool,
    fresh: seen.TrainJob | None,
    jobset: str | None = None,
) -> Notes:
    """The notes as a watch begins. `kept`: those that another left. `fresh`: the TrainJob as it stands, where known;
    `jobset`: the UID of its JobSet, read since the streams began.

    Of pods that came while nobody took notes nothing is known, unless there can have been none.
    """
    if from_start:
        begun_now = notes.begin(trainjob, gate_closed=True)
        return begun_now if kept is None else msgspec.structs.replace(begun_now, pods=kept.pods)
    if kept is None:
        return notes.begin(trainjob, gate_closed=False)
    generation = None if fresh is None else fresh.metadata.generation
    return kept if kept.complete_at(generation) or kept.complete_under(jobset) else kept.with_gap()


def node_would_say(before: PodNote | None, pod: seen.Pod) -> bool:
    """Whether the pod's Node, read now, could add something to its note."""
    if not pod.spec.node_name or (before is not None and before.ends):
        return False
    if pod.metadata.deleting:
        return before is None or not before.out_of_service
    return notes.running(pod) and (before is None or before.boot_id is None)


def settled_at(around: Around, *, mode: Mode) -> int | None:
    """The generation of the TrainJob at which nothing can make a pod; 0 for ever; None where something can."""
    trainjob, jobset = around.trainjob, around.jobset
    if trainjob is None:
        return None if jobset is not None or around.jobs else 0
    left = remains(around.attempt, jobset=jobset, jobs=around.jobs, pods=())
    if evidence.may_make_pods(trainjob, jobset=state.jobset_fact(trainjob, jobset), remains=left, mode=mode):
        return None
    completed = state.terminal(trainjob) == "complete" and jobset is not None and state.owns(trainjob, jobset)
    return 0 if completed else trainjob.metadata.generation


def settled_under(around: Around) -> str | None:
    """The UID of the TrainJob's JobSet, if that has ended with all its Jobs: it makes no pod any more. Else None."""
    trainjob, jobset = around.trainjob, around.jobset
    if trainjob is None or jobset is None or not state.owns(trainjob, jobset) or not _ended(jobset.status.conditions):
        return None
    if remains(around.attempt, jobset=jobset, jobs=around.jobs, pods=()):
        return None
    return jobset.metadata.uid or None if all(_ended(job.status.conditions) for job in around.jobs) else None


def _ended(conditions: Iterable[seen.Condition]) -> bool:
    return any(seen.is_true(conditions, each) for each in ("Complete", "Completed", "Failed"))
