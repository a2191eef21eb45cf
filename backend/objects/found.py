"""What Find, Watch, Ceased and Capabilities give back: frozen values that say what was seen and how it is known, and
that turn into JSON for whoever keeps a journal.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from dispatch_kubeflow.machine.values import ObjectRef

from .record import Hold
from .state import NO_PODS, Drift, PodCounts
from .workload import Waiting

State = Literal["gated", "held", "opened", "ended", "orphaned", "starting"]
EvidenceKind = Literal["terminated", "never-bound", "node-rebooted", "node-gone", "never-opened", "not-shown"]
Answer = Literal["yes", "no"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a job ended, was evicted or waits: the coarse kind, and what it rests on.

    `evidence`: what was seen; `not_looked_at`: what was not, and might say otherwise.
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
    pods: PodCounts = NO_PODS

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
