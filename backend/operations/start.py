"""Start: a job is created gated, on a runtime copy of its own, and handed to its caller only when it was read back as
it was meant. Contract section 6, step by step; what a failure means at each step is in table `start`.

The order is the point. What is left of the name is looked for before anything is made; the copy exists before the
TrainJob that names it; and from the create on, a refusal is raised only where it was proved that nothing runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from dispatch_kubeflow.backend.objects import names, read_back, runtime_copy, runtime_rules, seen, trainjob
from dispatch_kubeflow.backend.objects.names import Identity, snapshot_name
from dispatch_kubeflow.backend.requests import Failure, Reply
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.machine.rules import Rule
from dispatch_kubeflow.machine.values import JobSpec, ObjectRef

from . import factory, notes, ownership, queued
from .call import TRIES, Call, Got, never, outcome, unreadable
from .stopping import Stopped, stop_refused
from .views import state_of

T = TypeVar("T", bound=Struct)
UNSEEN_FOR = 2.0
"""Seconds for which a webhook's denial is tried again whose cache has not seen the runtime copy yet."""
UNSEEN_PAUSE = 0.1
CREATES = 2
"""How often the copy's create is sent: once more where the copy that was in its way had gone."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The runtime copy that this Start will use, and whether this call made it."""

    name: str
    uid: str
    resource_version: str
    made_here: bool


def start(call: Call, identity: Identity, spec: JobSpec) -> ObjectRef:
    """Create the TrainJob of an attempt, gated; its reference. Every failure is a row of `start` or `request`."""
    source = read_source(call, spec, identity.name)
    _look_for_leftovers(call, identity)
    if call.mode == "kueue":
        queued.look_at_check(call)
    nonce = uuid.uuid4().hex
    copy = _make_copy(call, source, identity, spec, nonce)
    settings = call.adapter.settings
    written = trainjob.build(
        identity, spec, namespace=call.namespace, mode=settings.mode, nonce=nonce, queue=settings.queue
    )
    created = _create(call, identity, written, nonce, copy)
    _compare(call, written, created, created.seen, copy)
    _set_owner(call, created.seen, copy)
    _read_back(call, written, created.seen, copy)
    if call.mode == "kueue":
        _await_workload(call, created.seen, copy)
    notes.forget(call, identity.name)
    return ObjectRef(settings.name, call.namespace, TRAIN_JOBS.kind, identity.name, created.seen.metadata.uid)


def read_source(call: Call, spec: JobSpec, object_name: str | None) -> runtime_copy.Source:
    """Step 1: the runtime, which has to exist and keep every rule (C11, C12)."""
    reference = spec.runtime
    found = factory.read_runtime(call, reference)
    if found is None:
        call.settle("runtime", finding="runtime-absent", details={"value": str(reference)})
        never("an absent runtime is refused")
    source = runtime_copy.Source.of(found.body, reference.kind)
    if isinstance(source, seen.Unreadable):
        call.settle("runtime", finding="runtime-trainer-job", details={"key": "spec", "value": source.problem})
        never("a runtime without a spec is refused")
    problems = runtime_rules.problems(source.spec, spec, mode=call.adapter.settings.mode, object_name=object_name)
    for problem in problems:
        call.settle("runtime", finding=problem.rule, details={"key": problem.path, "value": problem.value})
    if call.operation == "start":
        factory.show_queueless(call, reference)
    return source


def _look_for_leftovers(call: Call, identity: Identity) -> None:
    """Step 2: nothing of this name may be left, for Trainer takes a JobSet by its name alone."""
    found = [
        _leftover(call, identity, JOB_SETS, identity.name, seen.JobSet, "a JobSet"),
        _leftover(call, identity, CONFIG_MAPS, snapshot_name(identity.name), seen.ConfigMap, "a runtime snapshot"),
    ]
    what = next((each for each in found if each is not None), None)
    if what is None:
        return
    left = call.try_get(TRAIN_JOBS, identity.name, seen.TrainJob)
    if isinstance(left, Got):
        jobset = what[1] if isinstance(what[1], seen.JobSet) else None
        pods = call.try_list(PODS, f"{names.JOBSET_NAME}={identity.name}", seen.Pod)
        workloads = queued.workloads_of(call, left.seen.metadata.uid) if call.mode == "kueue" else ()
        state = state_of(call, left.seen, jobset, () if isinstance(pods, Failure) else pods, workloads)
        _settle(call, "leftover", "trainjob-there", details={"name": identity.name, "state": state})
    # Whatever else that read gave: something of the name is left, and may run.
    _settle(call, "leftover", "leftover-there", details={"name": identity.name, "seen": what[0]})


def _leftover(
    call: Call, identity: Identity, resource: Resource, name: str, kind: type[T], what: str
) -> tuple[str, T | None] | None:
    """What is left of one kind, in words and as it was read; None only where its absence is believed."""
    found = call.try_get(resource, name, kind)
    if isinstance(found, Got):
        return what, found.seen
    result = _result(call, found)
    if result == "absent":
        return None
    if result == "wrong-kind":
        return f"{what} of another version", None
    details = {**found.details, "name": identity.name, "seen": f"{resource.kind} {name}"}
    _settle(call, "leftover", result, details=details, cause=found.cause)
    return call.refuse(found)


def _make_copy(call: Call, source: runtime_copy.Source, identity: Identity, spec: JobSpec, nonce: str) -> Copy:
    """Step 3: the runtime copy, made or found to be this attempt's own (C32, C33)."""
    body = runtime_copy.build(source, identity, spec, namespace=call.namespace, nonce=nonce)
    for create in range(1, CREATES + 1):
        reply = call.post(TRAINING_RUNTIMES, body)
        if reply.failure is None:
            return _copy(call, reply, made_here=True)
        result = _result(call, reply.failure)
        rule = _settle(call, "copy", result, details=reply.failure.details, cause=reply.failure.cause)
        if rule.gives != "go-on":
            call.refuse(reply.failure)
        found = call.try_get(TRAINING_RUNTIMES, identity.name, seen.Runtime)
        if isinstance(found, Got):
            return _reuse(call, found, body, nonce)
        result = _result(call, found)
        if result == "absent" and create == CREATES:
            result = "vanished-twice"
        rule = _settle(call, "copy-found", result, details={"name": identity.name, **found.details})
        if rule.gives != "again":
            call.refuse(found)
    return never("the last try of a create returns or is refused")


def _reuse(call: Call, found: Got[seen.Runtime], body: Mapping[str, Any], nonce: str) -> Copy:
    """A copy that is there: this attempt's own from an earlier try, or somebody else's."""
    name = found.seen.metadata.name
    for _ in range(TRIES):
        _judge_copy(call, found, body)
        metadata = found.seen.metadata
        patch = runtime_copy.nonce_patch(metadata.uid, metadata.resource_version, nonce)
        patched = call.patch(TRAINING_RUNTIMES, name, patch)
        if patched.failure is None:
            return _copy(call, patched, made_here=False)
        if outcome(call.judge(patched.failure)) != "conflict":
            call.refuse(patched.failure)
        # Another Start of this attempt may have used it meanwhile: judge it anew.
        found = call.get(TRAINING_RUNTIMES, name, seen.Runtime)
    _settle(call, "copy-found", "vanished-twice", details={"name": name})
    return never("a copy that keeps changing is refused")


def _judge_copy(call: Call, found: Got[seen.Runtime], body: Mapping[str, Any]) -> None:
    """Whether a copy that is there may be re-used (C32)."""
    why = runtime_copy.not_reusable(found.body, body)
    metadata = found.seen.metadata
    details: dict[str, Any] = {"name": metadata.name}
    match why:
        case None:
            result = "fit"
        case "owned":
            result = "owned"
            details["seen"] = ownership.owners(metadata)
        case "deleting":
            result = "deleting"
        case _:
            result = "differs"
            details["difference"] = _copy_difference(why)
    _settle(call, "copy-found", result, details=details)


def _copy_difference(why: str) -> str:
    match why:
        case "another":
            return "it is of another backend, job or attempt"
        case "differs":
            return "its spec is not the one this Start would write"
        case _:
            return "it can't be read"


def _copy(call: Call, reply: Reply, *, made_here: bool) -> Copy:
    found = seen.read(reply.object or {}, seen.Runtime)
    if isinstance(found, seen.Unreadable):
        # Written, and answered in a form that can't be read: as good as no answer.
        failure = unreadable(reply.request, found)
        _settle(call, "copy", "lost", details=failure.details)
        return never("a copy without a readable answer is refused")
    metadata = found.metadata
    return Copy(metadata.name, metadata.uid, metadata.resource_version, made_here)


def _create(call: Call, identity: Identity, written: Mapping[str, Any], nonce: str, copy: Copy) -> Got[seen.TrainJob]:
    """Step 4: the TrainJob. Unanswered, the attempt is in flight (B1); refused, the copy made here goes again."""
    unseen_until = call.adapter.clock.monotonic() + UNSEEN_FOR
    while True:
        reply = _post_marked(call, identity, written, nonce)
        if reply.failure is None:
            return _created(reply)
        failure = reply.failure
        result = _result(call, failure)
        if result == "denied" and _runtime_unseen(failure):
            late = call.adapter.clock.monotonic() >= unseen_until
            result = "runtime-unseen-late" if late else "runtime-unseen"
        rule = _settle(call, "create", result, details=failure.details, cause=failure.cause)
        match rule.gives:
            case "again":
                call.ctx.wait(UNSEEN_PAUSE)
                call.check_context()
            case "delete-copy":
                left = _delete_own_copy(call, copy)
                call.refuse(failure, copy_left=left)
            case _:
                call.refuse(failure)


def _post_marked(call: Call, identity: Identity, written: Mapping[str, Any], nonce: str) -> Reply:
    """The create, marked in flight before its first byte; the mark outlives an interrupt."""
    marks = call.adapter.in_flight
    mark = marks.begin(identity, nonce)
    try:
        reply = call.post(TRAIN_JOBS, written)
    except BaseException:
        marks.give_up(mark)
        raise
    if reply.failure is not None and outcome(call.judge(reply.failure)) == "lost":
        marks.give_up(mark)
    else:
        marks.answered(mark)
    return reply


def _created(reply: Reply) -> Got[seen.TrainJob]:
    body = reply.object or {}
    found = seen.read(body, seen.TrainJob)
    if isinstance(found, seen.Unreadable):
        # Created, but in a form that can't be read: its name and its uid are all that stopping it needs.
        metadata = body.get("metadata", {})
        found = seen.TrainJob(metadata=seen.Metadata(name=str(metadata.get("name")), uid=str(metadata.get("uid"))))
    return Got(body, found)


def _runtime_unseen(failure: Failure) -> bool:
    """Whether a webhook denied the TrainJob because its cache has not seen the runtime copy yet."""
    message = str(failure.details.get("server_message", "")).lower()
    return (
        failure.webhook is not None
        and "runtime" in message
        and ("not found" in message or "must be created before" in message)
    )


def _delete_own_copy(call: Call, copy: Copy) -> str | None:
    """Delete the copy if this call made it; why it is left where that could not be shown."""
    return ownership.delete_copy(call, copy.name, copy.uid, copy.resource_version) if copy.made_here else None


def _set_owner(call: Call, created: seen.TrainJob, copy: Copy) -> None:
    """Step 5: the TrainJob becomes the copy's owner, so that the copy goes when it goes (C28)."""
    metadata = created.metadata
    failed = ownership.set_owner(call, copy.name, copy.uid, copy.resource_version, metadata.name, metadata.uid)
    if failed is None:
        return
    result = _result(call, failed) if isinstance(failed, Failure) else failed.result
    details = dict(failed.details)
    _stop_and_refuse(
        call, "owner", result, created, copy, details, failed.cause if isinstance(failed, Failure) else None
    )


def _read_back(call: Call, written: Mapping[str, Any], created: seen.TrainJob, copy: Copy) -> None:
    """Step 6: the TrainJob as it stands has to be the one that was written (C27, C17, C20)."""
    found = call.try_get(TRAIN_JOBS, created.metadata.name, seen.TrainJob)
    if isinstance(found, Failure):
        result = _result(call, found)
        rule = _settle(call, "read-back", result, details=found.details, cause=found.cause)
        if rule.gives == "stop":
            _stop_and_refuse(call, "read-back", result, created, copy, dict(found.details), found.cause)
        call.refuse(found)
    if found.seen.metadata.uid != created.metadata.uid:
        _settle(call, "read-back", "other-uid", details={"seen": f"uid {found.seen.metadata.uid}"})
    _compare(call, written, found, created, copy)


def _compare(
    call: Call, written: Mapping[str, Any], found: Got[seen.TrainJob], created: seen.TrainJob, copy: Copy
) -> None:
    """Refuse a TrainJob that is not the one that was written; the create's own answer shows that first (C27)."""
    differences = read_back.differences(written, found.body)
    if differences:
        details = {"difference": "; ".join(map(str, differences))}
        _settle(call, "read-back", "differs", details=details)
        _stop_and_refuse(call, "read-back", "differs", created, copy, details, None, found)


def _await_workload(call: Call, created: seen.TrainJob, copy: Copy) -> None:
    """Step 7, in kueue mode: its Workload has to come, with gate and check (C29, C30)."""
    found = queued.await_workload(call, created.metadata.uid)
    if found is None:
        return
    if isinstance(found, queued.Incomplete):
        result, details, cause = found.result, {"seen": found.seen}, None
    elif call.ctx.ended is not None:
        # What this attempts can't be sent: the TrainJob remains, gated, and Find shows it.
        stopped = stop_refused(call, created.metadata, None, copy_name=copy.name, copy_uid=copy.uid)
        _settle(call, "workload", "context-ended", details={}, cause=stopped.cause)
        never("a wait whose context ended is refused")
    else:
        result, details, cause = _result(call, found), dict(found.details), found.cause
    rule = _settle(call, "workload", result, details=details, cause=cause)
    if rule.gives == "stop" or not isinstance(found, Failure):
        _stop_and_refuse(call, "workload", result, created, copy, details, cause)
    call.refuse(found)


def _stop_and_refuse(
    call: Call,
    step: str,
    result: str,
    created: seen.TrainJob,
    copy: Copy,
    details: dict[str, Any],
    cause: BaseException | None,
    found: Got[seen.TrainJob] | None = None,
) -> NoReturn:
    """Stop the TrainJob that is to be refused, and refuse it by what that proved (S0, C31)."""
    refusal = call.decide("start", step=step, result=result, stopped="proved")
    stopped: Stopped = stop_refused(call, created.metadata, found, copy_name=copy.name, copy_uid=copy.uid)
    if stopped.copy_left is not None:
        details["copy_left"] = stopped.copy_left
    _settle(
        call,
        step,
        result,
        details={**details, "refusal": refusal.id},
        cause=cause or stopped.cause,
        stopped="proved" if stopped.proved else "not-proved",
    )
    never("a stopped Start is refused")


def _settle(
    call: Call,
    step: str,
    result: str,
    *,
    details: Mapping[str, Any],
    cause: BaseException | None = None,
    stopped: str = "not-tried",
) -> Rule:
    """What table `start` says of a step's result."""
    return call.settle("start", step=step, result=result, stopped=stopped, details=details, cause=cause)


def _result(call: Call, failure: Failure) -> str:
    """A failed request in the words of table `start`."""
    found = outcome(call.judge(failure))
    return "refused" if found == "conflict" else found
