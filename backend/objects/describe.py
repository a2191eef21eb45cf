"""From a job's listed objects to what Find gives back: facts are found, the tables name the state and the cause, and
the two are put together. Find and Watch say the same of the same objects because both say it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from dispatch_kubeflow.machine.values import ObjectRef

from . import causes, evidence, state
from .found import Cause, Cessation, Evidence, EvidenceKind, Found, FoundObject, State
from .listing import Listing, Orphan, attempt_of, orphans, views
from .seen import Pod
from .state import View
from .trainjob import Mode

Decide = Callable[[str, Mapping[str, str]], str]
"""What a table gives for these facts: family and facts in, the rule's `gives` out."""


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
