"""One look at one thing: what the watches showed says whether there is anything to do, and only then it is read anew,
judged by table `admission`, and written, the Workload's own version being the precondition.

Every request stands alone. Whoever dies between two of them leaves nothing that the next look would not do again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from dispatch_kubeflow.backend.objects import admission, names
from dispatch_kubeflow.backend.objects.admission import Rest
from dispatch_kubeflow.backend.objects.record import read_record
from dispatch_kubeflow.backend.objects.seen import AdmissionCheck, Job, JobSet, Pod, TrainJob, Workload
from dispatch_kubeflow.backend.objects.workload import hold_patch
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import (
    ADMISSION_CHECKS,
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    WORKLOADS,
)
from dispatch_kubeflow.machine.context import Clock, Context
from dispatch_kubeflow.machine.rules import Rule

from .asking import Asker
from .leading import Elector
from .queue import Key
from .watched import CHECK, Watched

_LOG = logging.getLogger("dispatch_kubeflow.admission")

Settled = Literal["settled", "waits", "failed"]


class Sees(Protocol):
    """Who wants to know what is decided and written."""

    def decided(self, rule: str) -> None:
        """A rule of table `admission` decided, of what was read for the purpose."""
        ...

    def wrote(self, does: str, outcome: str) -> None:
        """Something was written, with this outcome: `ok`, or what the request came to."""
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """A Workload as it was read for one decision, with the TrainJob of its owner's name."""

    workload: Workload
    trainjob: TrainJob | None
    ours: frozenset[str]


class Settler:
    """Looks at one thing at a time. Only the leader's is asked to."""

    def __init__(self, asker: Asker, watched: Watched, elector: Elector, sees: Sees, clock: Clock) -> None:
        self._asker = asker
        self._watched = watched
        self._elector = elector
        self._sees = sees
        self._clock = clock

    def look(self, key: Key, ctx: Context, *, waiting: bool = False) -> Settled:
        """Do what there is to do. `waiting`: the last look found that it has to wait."""
        if key.kind == CHECK:
            return self._check(key, ctx)
        seen_last = self._watched.workload(key)
        if seen_last is None:
            return "settled"
        case = Case(seen_last, self._watched.trainjob(seen_last), self._watched.ours)
        expected = self._decide(case)
        if expected.gives == "nothing":
            return "settled"
        if expected.gives == "look" and waiting and self._pods_remain(case, ctx):
            return "waits"
        return self._settle(key, ctx)

    def _decide(self, case: Case, rest: str = "unread") -> Rule:
        facts = admission.facts(case.workload, case.trainjob, case.ours)
        return self._asker.book.decide("admission", **facts, rest=rest)

    def _settle(self, key: Key, ctx: Context) -> Settled:
        case = self._read(key, ctx)
        if isinstance(case, Failure):
            return self._failed(key, "read", case)
        if case is None:
            return "settled"
        rule = self._decide(case)
        rest = Rest("unread")
        if rule.gives == "look":
            found = self._rest(case, ctx)
            if isinstance(found, Failure):
                return self._failed(key, "read", found)
            rest = found
            rule = self._decide(case, rest.fact)
        self._sees.decided(rule.id)
        match rule.gives:
            case "nothing":
                return "settled"
            case "wait":
                _LOG.debug("Workload %s/%s waits (%s): %s", key.namespace, key.name, rule.id, ", ".join(rest.left))
                return "waits"
            case _:
                return self._write(key, case, rule, ctx)

    # Reading, in the order that section 7 gives: the Workload first, the pods last.

    def _read(self, key: Key, ctx: Context) -> Case | Failure | None:
        workload = self._asker.look(WORKLOADS, key.name, key.namespace, Workload, ctx)
        if workload is None or isinstance(workload, Failure):
            return workload
        owner = admission.owner(workload)
        trainjob: TrainJob | Failure | None = None
        if owner is not None:
            trainjob = self._asker.look(TRAIN_JOBS, owner.name, key.namespace, TrainJob, ctx)
        return trainjob if isinstance(trainjob, Failure) else Case(workload, trainjob, self._watched.ours)

    def _rest(self, case: Case, ctx: Context) -> Rest | Failure:
        """Whether anything of the job can still run (C25), the pods listed last."""
        trainjob, selector = _own(case)
        namespace, name = trainjob.metadata.namespace, trainjob.metadata.name
        asked = self._asker
        attempts = asked.list(TRAIN_JOBS, namespace, selector, TrainJob, ctx)
        if isinstance(attempts, Failure):
            return attempts
        others = [each for each in attempts if each.metadata.uid != trainjob.metadata.uid]
        uids = ",".join(each.metadata.uid for each in others)
        theirs = asked.list(WORKLOADS, namespace, f"{names.JOB_UID} in ({uids})", Workload, ctx) if others else ()
        if isinstance(theirs, Failure):
            return theirs
        jobset = asked.look(JOB_SETS, name, namespace, JobSet, ctx)
        if isinstance(jobset, Failure):
            return jobset
        jobsets = asked.list(JOB_SETS, namespace, selector, JobSet, ctx)
        if isinstance(jobsets, Failure):
            return jobsets
        jobs = asked.list(JOBS, namespace, selector, Job, ctx)
        if isinstance(jobs, Failure):
            return jobs
        pods = asked.list(PODS, namespace, selector, Pod, ctx)
        if isinstance(pods, Failure):
            return pods
        return admission.rest(
            trainjob,
            case.ours,
            others=others,
            other_workloads=theirs,
            jobset=jobset,
            jobsets=jobsets,
            jobs=jobs,
            pods=pods,
        )

    def _pods_remain(self, case: Case, ctx: Context) -> bool:
        """Whether pods alone show that it has to go on waiting: one request instead of eight."""
        trainjob, selector = _own(case)
        pods = self._asker.list(PODS, trainjob.metadata.namespace, selector, Pod, ctx)
        return not isinstance(pods, Failure) and admission.pods_rest(pods).fact == "pods-remain"

    # Writing.

    def _write(self, key: Key, case: Case, rule: Rule, ctx: Context) -> Settled:
        bounded = self._elector.context(ctx)
        if bounded is None:
            return "failed"  # whoever leads next looks at everything; should it be this one, soon enough at this
        workload = case.workload
        answer: Workload | Failure
        if rule.gives == "ready":
            body = admission.ready_apply(
                workload, case.ours, message=_message(rule), at=self._now(), api_version=WORKLOADS.api_version
            )
            answer = self._asker.apply_status(WORKLOADS, key.name, key.namespace, body, Workload, bounded)
        else:
            body = _BODIES[rule.gives or ""](case)
            answer = self._asker.patch(WORKLOADS, key.name, key.namespace, body, Workload, bounded)
        return self._written(key, rule.gives or "", answer, rule.id)

    def _written(self, key: Key, does: str, answer: Workload | AdmissionCheck | Failure, why: str) -> Settled:
        if isinstance(answer, Failure):
            self._sees.wrote(does, self._asker.outcome(answer))
            return self._failed(key, does, answer)
        self._sees.wrote(does, "ok")
        _LOG.info("%s %s/%s: %s (%s)", key.kind, key.namespace, key.name, does, why)
        return "settled"

    def _failed(self, key: Key, what: str, failure: Failure) -> Settled:
        outcome = self._asker.outcome(failure)
        # A conflict is how a look learns that it came too late; the others may need somebody's help.
        level = logging.DEBUG if outcome == "conflict" else logging.WARNING
        _LOG.log(level, "%s %s/%s: %s failed: %s", key.kind, key.namespace, key.name, what, failure.message)
        return "failed"

    def _check(self, key: Key, ctx: Context) -> Settled:
        """Keep an AdmissionCheck of ours active: without that its queues admit nothing."""
        seen_last = self._watched.check(key)
        if seen_last is None or admission.is_active(seen_last):
            return "settled"
        found = self._asker.look(ADMISSION_CHECKS, key.name, None, AdmissionCheck, ctx)
        if isinstance(found, Failure):
            return self._failed(key, "read", found)
        if found is None or found.spec.controller_name != names.CHECK_CONTROLLER or admission.is_active(found):
            return "settled"
        bounded = self._elector.context(ctx)
        if bounded is None:
            return "failed"
        body = admission.active_apply(found, at=self._now(), api_version=ADMISSION_CHECKS.api_version)
        answer = self._asker.apply_status(ADMISSION_CHECKS, key.name, None, body, AdmissionCheck, bounded)
        return self._written(key, "serve", answer, "its condition Active was not True")

    def _now(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def _own(case: Case) -> tuple[TrainJob, str]:
    """The TrainJob of a case that table `admission` calls ours, and the selector of all of its job."""
    identity = None if case.trainjob is None else names.named_identity(case.trainjob.metadata)
    if case.trainjob is None or identity is None:
        raise AssertionError("a TrainJob that is not ours is never looked into")
    return case.trainjob, names.job_selector(identity.backend, identity.job)


def _message(rule: Rule) -> str:
    """What the check says of itself."""
    return "The job was opened and nothing of it can still run" if rule.id == "admission.start" else "Not a job of ours"


def _deactivate(case: Case) -> dict[str, Any]:
    hold = None if case.trainjob is None else read_record(case.trainjob.metadata.annotations).hold
    if hold is None:
        raise AssertionError("a record that cannot be read holds nothing")
    return hold_patch(case.workload, hold.instance)


_BODIES: dict[str, Callable[[Case], dict[str, Any]]] = {
    "deactivate": _deactivate,
    "activate": lambda case: admission.activate_patch(case.workload),
    "forget": lambda case: admission.forget_patch(case.workload),
}
