"""What the cluster knows beats what a call says: every outcome is held against what was handed over, committed and run.

`Matrix` counts, row by row, what was true when a call ended so: the claim "0 definite answers contradicted" is its sum.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dispatch_kubeflow.backend.requests.resources import (
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from dispatch_kubeflow.machine.rules import rulebook
from dispatch_kubeflow.machine.values import ObjectRef

from .expect import Disagreement, expected, hold_of
from .wire import Exchange
from .world import KINDS, NAMESPACE, Outcome, World, annotation, label

MAIN = {
    "start": ("POST", "trainjobs"),
    "open": ("PATCH", "trainjobs"),
    "hold": ("PATCH", "trainjobs"),
    "release": ("PATCH", "trainjobs"),
    "stop": ("DELETE", None),
    "stop_job": ("DELETE", None),
}
"""The write that a call exists for."""
DENIES_MAIN = frozenset({"not-applied", "nothing-written", "no-trainjob"})
UNKNOWN_BY_SIGHT = frozenset({"start.exists", "start.leftover"})
"""ErrOutcomeUnknown because of what was seen, not because of a request without an answer."""


_UNFILLED = re.compile(r"\{[a-z_]+\??\}|\bNone\b")
"""What a sentence shows whose gaps were not filled."""


class Asking:
    """Whether it is the oracle that asks the tables just now, and not the code under test."""

    oracle = False


@contextmanager
def judging() -> Iterator[None]:
    """What is asked of the tables meanwhile is no visit of them."""
    Asking.oracle = True
    try:
        yield
    finally:
        Asking.oracle = False


class Lie(AssertionError):
    """A call said what the cluster knows to be otherwise."""


class Matrix:
    """Row by truth: how often each was seen together."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str, str]] = Counter()

    def add(self, outcome: Outcome, committed: str, running: str) -> None:
        self.counts[outcome.operation, outcome.row, committed, running] += 1

    def merge(self, other: Matrix) -> None:
        self.counts.update(other.counts)


def main_writes(outcome: Outcome) -> list[Exchange]:
    """The requests of a call that could have made what it exists for."""
    if outcome.operation not in MAIN:
        return []
    method, plural = MAIN[outcome.operation]
    return [each for each in outcome.exchanges if each.method == method and plural in (None, each.plural) and each.sent]


def judge(world: World, outcome: Outcome, *, exact: bool = True) -> None:
    """Hold one outcome against the tables and against what its own requests did. Raises Lie or Disagreement."""
    if outcome.strange is not None:
        raise Lie(f"{outcome.operation} raised what is not ours: {outcome.strange!r}") from outcome.strange
    if outcome.error is not None:
        _form(outcome)
    if exact:
        wanted = expected(outcome, outcome.context_ended)
        if wanted is not None and wanted != outcome.row:
            raise Disagreement(f"{outcome.operation}: {wanted} was expected, and it was {outcome}")
    _request_row(outcome)
    _preconditions(world, outcome)
    _made_anew(world, outcome)
    if outcome.error is not None:
        _sentinel(world, outcome)
        _concludes(world, outcome)
        _effects(world, outcome)
    elif not outcome.crashed:
        _success(world, outcome)


def _preconditions(world: World, outcome: Outcome) -> None:
    """Every write applies only to what was read; and what a Stop deletes is what it was asked to delete."""
    for each in outcome.exchanges:
        if not each.sent or each.plural == "configmaps" or each.verb == "read":
            continue
        meta = (each.body or {}).get("metadata") or {}
        if each.method == "PATCH" and not (meta.get("uid") and meta.get("resourceVersion")):
            raise Lie(f"{each} carries no uid or no resourceVersion")
        uid = ((each.body or {}).get("preconditions") or {}).get("uid")
        if each.method == "DELETE" and not uid:
            raise Lie(f"{each} carries no uid")
        wrong = each.method == "DELETE" and outcome.operation == "stop" and each.name == outcome.arguments[0].name
        if wrong and each.plural == "trainjobs" and uid != outcome.arguments[0].uid:
            raise Lie(f"{each} is of another uid than {outcome.arguments[0]}")
        if each.method == "DELETE" and each.body.get("propagationPolicy") != "Background":
            raise Lie(f"{each} is not in the background")


def judge_said(outcome: Outcome) -> None:
    """As `judge`, where somebody in between told of an absence that is none: the call may believe it, and the cluster
    cannot be asked.
    """
    if outcome.strange is not None:
        raise Lie(f"{outcome.operation} raised what is not ours: {outcome.strange!r}") from outcome.strange
    if outcome.error is not None:
        _form(outcome)
    wanted = expected(outcome, outcome.context_ended)
    if wanted is not None and wanted != outcome.row:
        raise Disagreement(f"{outcome.operation}: {wanted} was expected, and it was {outcome}")


def _form(outcome: Outcome) -> None:
    """Row, sentinel, operation, details and message are what the table says."""
    error = outcome.error
    assert error is not None
    rule = rulebook().tables.rule(error.row)
    if error.sentinel != rule.sentinel or error.operation != outcome.operation:
        raise Disagreement(f"{error.row} is {rule.sentinel}, and {error.sentinel} of {error.operation} was raised")
    if rule.operations and outcome.operation not in rule.operations:
        raise Disagreement(f"{error.row} does not speak for {outcome.operation}")
    if not set(rule.required) <= set(error.details) <= {*rule.required, *rule.optional}:
        raise Disagreement(f"{error.row}: its details are {sorted(error.details)}")
    if any(value is None for value in error.details.values()):
        raise Disagreement(f"{error.row}: a detail is empty: {dict(error.details)}")
    text = str(error)
    if not text.endswith(".") or _UNFILLED.search(text.replace(str(error.details.get("server_message")), "")):
        raise Disagreement(f"{error.row}: {text!r} is no sentence")
    last = outcome.exchanges[-1] if outcome.exchanges else None
    if error.row.startswith("request.") and last is not None and last.number >= 0 and not _ended_before(outcome, last):
        if error.__cause__ is None:
            raise Disagreement(f"{error.row}: the cause is not kept")
        if last.fault is not None and last.fault.kind == "tls" and "SSL" not in repr(error.__cause__):
            raise Disagreement(f"{error.row}: the cause is {error.__cause__!r}")


def _ended_before(outcome: Outcome, last: Exchange) -> bool:
    if outcome.context_ended is None:
        return False
    return outcome.row in _CONTEXT_ROWS or last.status is not None or not last.sent


_CONTEXT_ROWS = frozenset({"request.deadline", "request.deadline-hold-family", "request.cancelled"})


def _request_row(outcome: Outcome) -> None:
    """A row of table `request` is that of some request that failed so."""
    from .facts import facts, request_row

    if outcome.error is None or not outcome.error.row.startswith("request."):
        return
    rows = {request_row(each, outcome.operation).id for each in outcome.exchanges if facts(each) is not None}
    if outcome.context_ended is not None:
        rows |= _CONTEXT_ROWS
    if outcome.error.row not in rows:
        raise Disagreement(f"{outcome.error.row} was raised, and the requests gave {sorted(rows)}")


def _sentinel(world: World, outcome: Outcome) -> None:
    error = outcome.error
    assert error is not None
    if error.sentinel == "ErrOutcomeUnknown" and error.row not in UNKNOWN_BY_SIGHT:
        open_ones = [each for each in outcome.exchanges if each.verb == "write" and each.sent]
        if not open_ones:
            raise Lie(f"{error.row}: nothing of a write was handed over")
        if error.row == "request.outcome-unknown" and not any(unanswered(each) for each in open_ones):
            raise Lie(f"{error.row}: every write was answered")
    if error.row in UNKNOWN_BY_SIGHT and not _was_there(world, outcome):
        raise Lie(f"{error.row}: there was nothing of that name")


def unanswered(exchange: Exchange) -> bool:
    """Whether a request that was handed over had no definite answer."""
    from .facts import facts

    found = facts(exchange)
    return exchange.sent and found is not None and found["result"] in ("lost", "wrong-kind")


def _was_there(world: World, outcome: Outcome) -> bool:
    name = f"{outcome.arguments[0]}-{outcome.arguments[1]}"
    history = world.cluster.store.commits
    return any(each.name.startswith(name) and each.version > 0 for each in history)


def _concludes(world: World, outcome: Outcome) -> None:
    error = outcome.error
    assert error is not None
    concludes = rulebook().tables.rule(error.row).concludes
    match concludes:
        case "nothing-sent":
            if outcome.exchanges and all(each.sent for each in outcome.exchanges) and outcome.context_ended is None:
                raise Lie(f"{error.row}: {outcome.exchanges[-1]} was sent")
        case "refused" | "absent" | "absence-not-shown" | "nothing-learned":
            pass
        case "stopped":
            _is_stopped(world, outcome)
        case "left-gated":
            _is_gated(world, outcome)
        case "partly-stopped":
            if not error.details.get("left"):
                raise Lie(f"{error.row}: it does not say what is left")
            if error.row == "stop.left-kept":
                _is_kept(world, outcome)


def _is_kept(world: World, outcome: Outcome) -> None:
    """What would make things anew was there during the call, and no list of the job by its labels could show it."""
    assert outcome.error is not None
    job, backend = outcome.arguments[0], world.backends[outcome.actor].name
    for text in outcome.error.details["instead"].split(", "):
        ref = ObjectRef.parse(text)
        states = _states(world, KINDS[ref.kind], ref.name, outcome.version_before)
        if not any(
            each["metadata"]["uid"] == ref.uid and (label(each, "backend"), label(each, "job")) != (backend, job)
            for each in states
        ):
            raise Lie(f"{outcome.row}: {text} was not there, or carried the labels of {job}")


def _made_anew(world: World, outcome: Outcome) -> None:
    """Nothing is deleted whose TrainJob stood there when the call began and stood there still: it would come anew."""
    for each in outcome.exchanges:
        if each.method != "DELETE" or not each.committed or each.plural not in ("jobsets", "jobs"):
            continue
        name = each.name if each.plural == "jobsets" else each.name.removesuffix("-node-0")
        events = [
            event
            for event in world.cluster.store.events(TRAIN_JOBS, 0)
            if event.state.obj["metadata"]["name"] == name and event.version < each.committed
        ]
        if (
            events
            and events[-1].type != "DELETED"
            and events[-1].state.obj["metadata"]["uid"]
            in {event.state.obj["metadata"]["uid"] for event in events if event.version <= outcome.version_before}
        ):
            raise Lie(f"{outcome.operation} deleted {each.plural} {each.name}, which TrainJob {name} makes anew")


def settled(world: World, outcome: Outcome) -> None:
    """What holds for ever, asked once every late request has arrived: a definite "no" stays one."""
    error = outcome.error
    if error is None:
        return
    rule = rulebook().tables.rule(error.row)
    if outcome.operation not in MAIN or rule.sentinel == "ErrOutcomeUnknown":
        return
    writes = [each for each in main_writes(outcome) if each.committed is not None]
    if outcome.operation in ("stop", "stop_job"):
        # A delete is no write after which a call may only speak of it: the row is that of one request.
        writes = [each for each in writes if _says(each, outcome)]
    denies = rule.concludes in DENIES_MAIN or (
        rule.concludes in ("refused", "nothing-sent") and outcome.operation in ("open", "hold", "release", "start")
    )
    if denies and writes:
        raise Lie(f"{error.row} concludes {rule.concludes}, and {writes[0]} was committed")


def _says(exchange: Exchange, outcome: Outcome) -> bool:
    from .facts import facts, request_row

    return facts(exchange) is not None and request_row(exchange, outcome.operation).id == outcome.row


def owners_of(world: World, jobset: str) -> set[str]:
    """UIDs of the TrainJobs that a JobSet, by its UID, was ever made for."""
    return {
        owner["uid"]
        for event in world.cluster.store.events(JOB_SETS, 0)
        if event.state.obj["metadata"]["uid"] == jobset
        for owner in event.state.obj["metadata"].get("ownerReferences") or ()
    }


def _is_stopped(world: World, outcome: Outcome) -> None:
    created = [each for each in outcome.exchanges if each.what == "POST trainjobs" and each.committed]
    job, attempt = str(outcome.arguments[0]), str(outcome.arguments[1])
    for each in created:
        now = world.get(TRAIN_JOBS, each.name)
        same = now is not None and now["metadata"]["uid"] == each.answer["metadata"]["uid"]
        if now is not None and same and "deletionTimestamp" not in now["metadata"]:
            raise Lie(f"{outcome.row}: {each.name} still stands")
    # Pods of an earlier TrainJob of the name, which another call left, may still stop: nothing is said of them.
    mine = {each.answer["metadata"]["uid"] for each in created}
    if any(owners_of(world, uid) & mine for uid in world.kubelet.live_jobsets(job, attempt)):
        raise Lie(f"{outcome.row}: a container of {job}-{attempt} runs")
    ran = any(
        each.job == job
        and each.attempt == attempt
        and each.at >= outcome.began
        and owners_of(world, each.jobset) & mine
        for each in world.kubelet.starts
    )
    if ran and "never ran" in str(outcome.error):
        raise Lie(f"{outcome.row} says that it never ran, and a container of {job}-{attempt} did")


def _is_gated(world: World, outcome: Outcome) -> None:
    job, attempt = str(outcome.arguments[0]), str(outcome.arguments[1])
    if any(each.job == job and each.attempt == attempt and each.at >= outcome.began for each in world.kubelet.starts):
        raise Lie(f"{outcome.row}: a container of {job}-{attempt} ran")
    if not any(each.what == "POST trainjobs" and each.committed for each in outcome.exchanges):
        raise Lie(f"{outcome.row}: no TrainJob was created")


def _effects(world: World, outcome: Outcome) -> None:
    error = outcome.error
    assert error is not None
    effects = rulebook().tables.rule(error.row).effects
    if "in-flight-marked" in effects:
        backend = world.backends[outcome.actor]
        attempts = [each.attempt for each in backend._adapter.in_flight.of_job(outcome.arguments[0])]
        if outcome.arguments[1] not in attempts:
            raise Lie(f"{error.row}: the attempt is not in flight")
    if "hold-kept" in effects and any(each.committed for each in main_writes(outcome)):
        raise Lie(f"{error.row}: the record was written")


def _success(world: World, outcome: Outcome) -> None:
    match outcome.operation:
        case "start":
            _started(world, outcome)
        case "open" | "hold" | "release":
            _written(world, outcome)
        case "find":
            _found(world, outcome)
        case "stop":
            _is_deleted(world, outcome)
        case "stop_job":
            _nothing_left(world, outcome)
        case "ceased":
            _has_ceased(world, outcome)
        case "output":
            if any(each.subresource == "log" and _was_cut(each) for each in outcome.exchanges):
                raise Lie("output ended as if it were complete, and its stream was cut")


def _states(world: World, resource: Any, name: str, since: int) -> list[dict[str, Any]]:
    """Every state an object of this name had from a version on, the one that stood then first."""
    events = world.cluster.store.events(resource, since)
    mine = [each for each in events if each.state.obj["metadata"]["name"] == name]
    first = [mine[0].before.obj] if mine and mine[0].before is not None else []
    if not mine:
        states = world.cluster.store.states(resource, NAMESPACE)
        first = [each.obj for each in states if each.obj["metadata"]["name"] == name]
    return first + [each.state.obj for each in mine if each.type != "DELETED"]


def _started(world: World, outcome: Outcome) -> None:
    ref = outcome.value
    states = [
        each
        for each in _states(world, TRAIN_JOBS, ref.name, outcome.version_before)
        if each["metadata"]["uid"] == ref.uid
    ]
    if not states or states[0]["spec"]["suspend"] is not True or annotation(states[0], "gate") != "closed":
        raise Lie(f"start of {ref.name} succeeded, and it was not created gated")
    copies = _states(world, TRAINING_RUNTIMES, ref.name, outcome.version_before)
    if not any(owner["uid"] == ref.uid for each in copies for owner in each["metadata"].get("ownerReferences") or ()):
        raise Lie(f"start of {ref.name} succeeded, and its copy was never owned by it")


def _written(world: World, outcome: Outcome) -> None:
    """At some moment of the call the object was as the call says it is."""
    ref = outcome.arguments[0]
    states = [
        each
        for each in _states(world, TRAIN_JOBS, ref.name, outcome.version_before)
        if each["metadata"]["uid"] == ref.uid
    ]

    def holds(job: dict[str, Any]) -> bool:
        held = hold_of(job)
        match outcome.operation:
            case "open":
                return annotation(job, "gate") == "lifted"
            case "hold":
                return held == (outcome.arguments[1], "held") and bool(job["spec"].get("suspend"))
            case _:
                return held == (outcome.arguments[1], "released")

    if not any(map(holds, states)):
        raise Lie(f"{outcome.operation} of {ref.name} succeeded, and it never was so")


def _found(world: World, outcome: Outcome) -> None:
    """Find misses no TrainJob that stood there all the time, and shows none that never was."""
    job = outcome.arguments[0]
    shown = {each.ref.uid for each in outcome.value.objects}
    backend = world.backends[outcome.actor].name
    for each in world.of_job(TRAIN_JOBS, job):
        mine = label(each, "backend") == backend
        uid, name = each["metadata"]["uid"], each["metadata"]["name"]
        events = world.cluster.store.events(TRAIN_JOBS, outcome.version_before)
        stood = not any(e.type == "ADDED" and e.state.obj["metadata"]["uid"] == uid for e in events)
        if mine and stood and uid not in shown:
            raise Lie(f"find of {job} misses {name}")
    _deadlines(world, outcome)
    if any(world.cluster.store.events(each, outcome.version_before) for each in (TRAIN_JOBS, JOB_SETS)):
        return
    # Nothing moved meanwhile: whatever has the name of an attempt and no TrainJob is an orphan that has to be shown.
    names = {each.obj["metadata"]["name"] for each in world.cluster.store.states(TRAIN_JOBS, NAMESPACE)}
    for state in world.cluster.store.states(JOB_SETS, NAMESPACE):
        meta = state.obj["metadata"]
        ours = meta["name"].rpartition("-")[0] == job and meta["name"] not in names and "deletionTimestamp" not in meta
        if meta["uid"] in world.relabelled:
            continue
        if ours and backend == "gpu" and meta["uid"] not in shown and not meta.get("ownerReferences"):
            raise Lie(f"find of {job} misses the orphan {meta['name']}")
    every = {
        each.state.obj["metadata"]["uid"]
        for resource in (TRAIN_JOBS, TRAINING_RUNTIMES, JOB_SETS, JOBS, PODS)
        for each in world.cluster.store.events(resource, 0)
    }
    if not shown <= every:
        raise Lie(f"find of {job} shows what never was: {shown - every}")
    _alone(world, outcome, shown)


def _alone(world: World, outcome: Outcome, shown: set[str]) -> None:
    """Find misses nothing of what carries the job's labels and has nobody above it."""
    if any(world.cluster.store.events(each, outcome.version_before) for each in (TRAINING_RUNTIMES, JOBS, PODS)):
        return
    job, backend = outcome.arguments[0], world.backends[outcome.actor].name
    kinds = (TRAIN_JOBS, TRAINING_RUNTIMES, JOB_SETS, JOBS, PODS)
    there = {each.obj["metadata"]["uid"] for kind in kinds for each in world.cluster.store.states(kind, NAMESPACE)}
    trainjobs = {each.obj["metadata"]["name"] for each in world.cluster.store.states(TRAIN_JOBS, NAMESPACE)}
    for kind in kinds[1:]:
        for each in world.of_job(kind, job):
            meta = each["metadata"]
            owned = any(owner["uid"] in there for owner in meta.get("ownerReferences") or ())
            named = f"{job}-{label(each, 'attempt')}" in trainjobs
            if label(each, "backend") == backend and not owned and not named and meta["uid"] not in shown:
                raise Lie(f"find of {job} misses {each['kind']} {meta['name']}, which is alone")


def _deadlines(world: World, outcome: Outcome) -> None:
    """A deadline is told as the cause if one passed, and where nothing moved meanwhile only then is another told."""
    moved = any(world.cluster.store.events(each, outcome.version_before) for each in (TRAIN_JOBS, JOBS))
    for each in outcome.value.objects:
        if each.ref.kind != "TrainJob" or each.cause is None:
            continue
        told, passed = each.cause.kind == "deadline", _past_deadline(world, each.ref.name, each.ref.uid)
        if told and not passed:
            raise Lie(f"find says that {each.ref.name} passed its deadline, and it did not")
        if passed and not told and not moved and each.state == "ended":
            raise Lie(f"find says {each.cause.kind} of {each.ref.name}, and it passed its deadline")


def _past_deadline(world: World, name: str, uid: str) -> bool:
    """Whether a TrainJob, or a Job of its name, ever showed that its deadline has passed."""
    jobs = [
        each.state.obj
        for each in world.cluster.store.events(JOBS, 0)
        if each.state.obj["metadata"]["name"].startswith(f"{name}-")
    ]
    own = [
        each.state.obj for each in world.cluster.store.events(TRAIN_JOBS, 0) if each.state.obj["metadata"]["uid"] == uid
    ]
    return any(
        condition.get("reason") == "DeadlineExceeded"
        for obj in (*jobs, *own)
        for condition in (obj.get("status") or {}).get("conditions") or ()
    )


def _was_cut(exchange: Exchange) -> bool:
    # Damage within a log's own text nobody can see.
    return not exchange.whole and not (exchange.fault is not None and exchange.fault.kind == "garbled")


def _has_ceased(world: World, outcome: Outcome) -> None:
    ref = outcome.arguments[0]
    if outcome.value.ceased and ref.kind == "TrainJob":
        job, _, attempt = ref.name.rpartition("-")
        live = world.kubelet.live(job, attempt)
        if live:
            raise Lie(f"ceased says that {ref.name} has, and {live} run")


def _is_deleted(world: World, outcome: Outcome) -> None:
    ref = outcome.arguments[0]
    now = world.get(KINDS[ref.kind], ref.name)
    if now is not None and now["metadata"]["uid"] == ref.uid and "deletionTimestamp" not in now["metadata"]:
        raise Lie(f"stop of {ref} succeeded, and it stands")


def _nothing_left(world: World, outcome: Outcome) -> None:
    job = outcome.arguments[0]
    flying = [
        each
        for each in world.wire.pending
        if each.process == world.actors[outcome.actor].process and each.name.rpartition("-")[0] == job
    ]
    if any(each.what == "POST trainjobs" for each in flying):
        raise Lie(f"stop_job of {job} succeeded, and a create of its own Backend is on its way")
    for state in world.cluster.store.states(JOB_SETS, NAMESPACE):
        meta = state.obj["metadata"]
        old = int(meta["resourceVersion"]) <= outcome.version_before and meta["uid"] not in world.relabelled
        if meta["name"].rpartition("-")[0] == job and old and outcome.value is None:
            raise Lie(f"stop_job of {job} succeeded, and JobSet {meta['name']} stands")
    backend = world.backends[outcome.actor].name
    for resource in (TRAIN_JOBS, JOB_SETS, JOBS, PODS, TRAINING_RUNTIMES):
        for each in world.of_job(resource, job):
            if label(each, "backend") != backend:
                continue
            uid = each["metadata"]["uid"]
            events = world.cluster.store.events(resource, outcome.version_before)
            if not any(e.type == "ADDED" and e.state.obj["metadata"]["uid"] == uid for e in events):
                raise Lie(f"stop_job of {job} succeeded, and {each['kind']} {each['metadata']['name']} stands")


def note(world: World, outcome: Outcome, matrix: Matrix) -> None:
    """Enter an outcome into the matrix."""
    writes = main_writes(outcome)
    committed = "committed" if any(each.committed for each in writes) else "not committed" if writes else "not sent"
    job = attempt = None
    if outcome.arguments:
        first = outcome.arguments[0]
        if isinstance(first, str):
            job, attempt = first, str(outcome.arguments[1]) if outcome.operation == "start" else None
        else:
            job, _, attempt = first.name.rpartition("-")
    running = "running" if job and world.kubelet.live(job, attempt) else "not running"
    matrix.add(outcome, committed, running)
