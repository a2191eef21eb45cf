"""What Find, Watch, Ceased and Capabilities give back: frozen values that say what was seen and how it is known, and
that turn into JSON for whoever keeps a journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from dispatch_kubeflow.machine.values import ObjectRef

from . import causes, evidence, state
from .listing import Listing, Orphan, attempt_of, orphans, views
from .record import Hold
from .seen import Pod
from .state import Drift, PodCounts, View
from .trainjob import Mode
from .workload import Waiting

State = Literal["gated", "held", "opened", "ended", "orphaned", "starting"]
EvidenceKind = Literal["terminated", "never-bound", "node-rebooted", "node-gone", "never-opened", "not-shown"]
Answer = Literal["yes", "no"]

Decide = Callable[[str, Mapping[str, str]], str]
"""What a table gives for these facts: family and facts in, the rule's `gives` out."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a job ended, was evicted or waits: the coarse kind, and what it rests on.

    `evidence`: what was seen; `not_looked_at`: what was not, and might say otherwise. `row` is of table `causes`.
    """

    kind: str
    exit_code: int | None = None
    pod: str | None = None
    at: datetime | None = None
    evidence: tuple[str, ...] = ()
    not_looked_at: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "exit_code": self.exit_code,
            "pod": self.pod,
            "at": None if self.at is None else self.at.isoformat(),
            "evidence": list(self.evidence),
            "not_looked_at": list(self.not_looked_at),
        }


@dataclass(frozen=True, slots=True)
class FoundObject:
    """One TrainJob of a job, or one thing that is left without a TrainJob.

    `gate_lifted` is None where the record can't be read, and for an orphan; so is `hold_register`, which is also None
    where the job was never held. Of the flags, `collecting` is said of orphans only.
    """

    ref: ObjectRef
    state: State
    attempt: int | None
    gate_lifted: bool | None = None
    hold_register: Hold | None = None
    stopping: bool = False
    collecting: bool = False
    waiting: Waiting | None = None
    failing: bool = False
    drift: tuple[Drift, ...] = ()
    cause: Cause | None = None
    pods: PodCounts = PodCounts()

    def to_json(self) -> dict[str, Any]:
        hold, waiting = self.hold_register, self.waiting
        return {
            "ref": str(self.ref),
            "kind": self.ref.kind,
            "name": self.ref.name,
            "attempt": self.attempt,
            "state": self.state,
            "gate_lifted": self.gate_lifted,
            "hold_register": None if hold is None else {"instance": hold.instance, "held": hold.held},
            "stopping": self.stopping,
            "collecting": self.collecting,
            "waiting": None if waiting is None else {"reason": waiting.reason, "message": waiting.message},
            "failing": self.failing,
            "drift": [str(each) for each in self.drift],
            "cause": None if self.cause is None else self.cause.to_json(),
            "pods": {
                "total": self.pods.total,
                "pending": self.pods.pending,
                "running": self.pods.running,
                "succeeded": self.pods.succeeded,
                "failed": self.pods.failed,
                "unknown": self.pods.unknown,
                "terminating": self.pods.terminating,
            },
        }


@dataclass(frozen=True, slots=True)
class Found:
    """A consistent view of one job: its TrainJobs by attempt, then what is left without one.

    `in_flight`: the attempts whose create this very Backend sent and has no answer to.
    """

    job: str
    objects: tuple[FoundObject, ...] = ()
    in_flight: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "objects": [each.to_json() for each in self.objects],
            "in_flight": list(self.in_flight),
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows, or does not show, that one pod has stopped; `pod` is `unobserved` for those nobody saw, and None
    for the whole. `source`: read from the cluster now, or from the notes a watch kept.
    """

    kind: EvidenceKind
    pod: str | None
    uid: str | None = None
    source: Literal["cluster", "notes"] = "cluster"
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "pod": self.pod, "uid": self.uid, "source": self.source, "text": self.text}


@dataclass(frozen=True, slots=True)
class Cessation:
    """Whether everything of a job has provably stopped, and the evidence for each pod.

    `may_make_pods`: what could still start a pod, in words; with anything in it `ceased` is false.
    """

    ceased: bool
    evidence: tuple[Evidence, ...] = ()
    may_make_pods: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "ceased": self.ceased,
            "evidence": [each.to_json() for each in self.evidence],
            "may_make_pods": list(self.may_make_pods),
        }


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether a Backend can do something, and why, or why not."""

    answer: Answer
    reason: str

    def __bool__(self) -> bool:
        return self.answer == "yes"

    def to_json(self) -> dict[str, Any]:
        return {"answer": self.answer, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a Backend can do here."""

    hold: Capability
    output_read: Capability
    ceased: Capability

    def to_json(self) -> dict[str, Any]:
        return {
            "hold": self.hold.to_json(),
            "output_read": self.output_read.to_json(),
            "ceased": self.ceased.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Describer:
    """Turns a job's listed objects into what Find gives back, by the tables `states` and `causes`."""

    backend: str
    namespace: str
    mode: Mode
    decide: Decide
    call_bound: float
    check_name: str | None = None

    def found(
        self,
        job: str,
        listing: Listing,
        *,
        now: datetime,
        in_flight: Iterable[int] = (),
        gone: Sequence[Pod] = (),
    ) -> Found:
        """The view of one job. `gone`: the last states of pods that a watch saw deleted."""
        objects = [self.trainjob(view, gone=gone) for view in views(listing)]
        objects += [
            self.orphan(each, listing, gone=gone) for each in orphans(listing, now=now, call_bound=self.call_bound)
        ]
        return Found(job, tuple(objects), tuple(sorted(set(in_flight))))

    def state(self, view: View) -> State:
        """The state of a TrainJob, by table `states`."""
        facts = state.facts(view, mode=self.mode, check_name=self.check_name)
        return cast("State", self.decide("states", facts.facts))

    def trainjob(self, view: View, *, gone: Sequence[Pod] = ()) -> FoundObject:
        """One TrainJob with all that was listed of it."""
        trainjob, record = view.trainjob, view.record
        found = self.state(view)
        ended = found == "ended"
        attempt = attempt_of(trainjob)
        facts = causes.facts(
            trainjob,
            jobset=view.jobset,
            jobs=view.jobs,
            pods=view.pods,
            workloads=view.workloads,
            gone=[pod for pod in gone if pod.metadata.labels.attempt == trainjob.metadata.labels.attempt],
        )
        hold = record.hold
        return FoundObject(
            ref=self._ref("TrainJob", trainjob.metadata.name, trainjob.metadata.uid),
            state=found,
            attempt=attempt,
            gate_lifted=None if record.gate is None else record.gate == "lifted",
            hold_register=None if hold is None or hold.instance == 0 else hold,
            stopping=trainjob.metadata.deleting,
            waiting=None if ended else state.waiting(view),
            failing=not ended and state.failing(view.jobs),
            drift=state.drift(view, mode=self.mode, ended=ended, check_name=self.check_name),
            cause=self._cause(facts),
            pods=state.count(view.pods),
        )

    def orphan(self, orphan: Orphan, listing: Listing, *, gone: Sequence[Pod] = ()) -> FoundObject:
        """Something that is left without a TrainJob."""
        metadata = orphan.metadata
        pods = [pod for pod in listing.pods if _under(pod, orphan)]
        cause = None
        if orphan.kind != "TrainingRuntime":
            uids = {owner.uid for pod in pods for owner in pod.metadata.owner_references} | {metadata.uid}
            facts = causes.facts(
                None,
                jobs=[job for job in listing.jobs if job.metadata.uid in uids],
                pods=pods,
                gone=[pod for pod in gone if pod.metadata.labels.attempt == metadata.labels.attempt],
            )
            cause = self._cause(facts)
        return FoundObject(
            ref=self._ref(orphan.kind, metadata.name, metadata.uid),
            state=orphan.state,
            attempt=orphan.attempt,
            stopping=metadata.deleting,
            collecting=orphan.collecting,
            cause=cause,
            pods=state.count(pods),
        )

    def _cause(self, facts: causes.CauseFacts) -> Cause | None:
        kind = self.decide("causes", facts.facts)
        if kind == "none":
            return None
        return Cause(kind, facts.exit_code, facts.pod_name, facts.at, facts.evidence, facts.not_looked_at)

    def _ref(self, kind: str, name: str, uid: str) -> ObjectRef:
        return ObjectRef(self.backend, self.namespace, kind, name, uid)


def _under(pod: Pod, orphan: Orphan) -> bool:
    """Whether a pod is the orphan, or goes with it."""
    if orphan.kind == "Pod":
        return pod.metadata.uid == orphan.metadata.uid
    if orphan.kind == "Job":
        return any(owner.uid == orphan.metadata.uid for owner in pod.metadata.owner_references)
    return orphan.kind == "JobSet" and pod.metadata.labels.jobset_uid == orphan.metadata.uid


def conclude(
    facts: Sequence[evidence.PodFacts], *, decide: Decide, never_opened: bool, complete: bool, may_make: Sequence[str]
) -> Cessation:
    """The whole from what is known of each pod: ceased only if nothing is not shown and nothing can make a pod."""
    if never_opened:
        kind = cast("EvidenceKind", decide("evidence", evidence.NEVER_OPENED_FACTS))
        found = [Evidence(kind, None, text="gate closed, suspended, generation 1: it never had a pod")]
    else:
        found = [_evidence(each, decide) for each in facts]
        if not complete:
            text = "pods may have come and gone unseen: no notes from before the gate was lifted, or a gap in them"
            found.append(Evidence("not-shown", evidence.UNOBSERVED, text=text))
    ceased = not may_make and all(each.kind != "not-shown" for each in found)
    return Cessation(ceased, tuple(found), tuple(may_make))


def _evidence(facts: evidence.PodFacts, decide: Decide) -> Evidence:
    kind = cast("EvidenceKind", decide("evidence", facts.facts))
    return Evidence(kind, facts.name, facts.uid, facts.source, facts.text)
