"""What a call must answer, told by the contract and the tables from what its requests gave. It walks the requests in
the contract's order, so a request too many, too few or out of order is found as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from dispatch_kubeflow.backend.embedded.clock import START
from dispatch_kubeflow.machine.rules import rulebook

from .facts import request_row, word
from .wire import Exchange
from .world import CALL_BOUND, NAMESPACE, PREFIX, Outcome, annotation

Object = dict[str, Any]
READ_ONLY = ("find", "watch", "output", "ceased", "capabilities")


class Disagreement(AssertionError):
    """The call did not do, or did not say, what the contract has for these facts."""


class Crashed(Exception):
    """The caller died at this request: nothing more is to be expected."""


class Walk:
    """The requests of one call, taken one by one."""

    def __init__(self, outcome: Outcome, ended: str | None) -> None:
        self.outcome = outcome
        self.operation = outcome.operation
        self._ended = ended
        self._rest = iter(outcome.exchanges)
        self.last: Exchange | None = None

    def next(self, what: str, name: str | None = None) -> tuple[str, Exchange]:
        """The next request, which must be this one; and what it gave."""
        exchange = next(self._rest, None)
        if exchange is None:
            if self._ended is None:
                raise Disagreement(f"{what} {name or ''} was to come and did not: {self.outcome}")
            exchange = Exchange(-1, self.outcome.actor, 0, self.outcome.ended, ended=self._ended)
            exchange.method, _, exchange.plural = what.partition(" ")
            exchange.method = "GET" if exchange.method == "LIST" else exchange.method
            self.last = exchange
            return "context-ended", exchange
        self.last = exchange
        if exchange.fault is not None and exchange.fault.kind.startswith("crash"):
            raise Crashed
        if exchange.sent and (exchange.what != what or (name is not None and exchange.name != name)):
            raise Disagreement(f"{what} {name or ''} was to come, and {exchange} came")
        if not exchange.sent:
            # Nothing of it is known to the wire but what it would have been.
            exchange.method, _, exchange.plural = what.partition(" ")
            exchange.method = "GET" if exchange.method == "LIST" else exchange.method
            exchange.name = name or ""
        return word(exchange, self.operation), exchange

    def over(self) -> None:
        """No request may be left."""
        extra = next(self._rest, None)
        if extra is not None and extra.plural != "configmaps":
            raise Disagreement(f"nothing more was to come, and {extra} came")

    def row(self, exchange: Exchange) -> str:
        """What table `request` has for it."""
        return str(request_row(exchange, self.operation).id)

    def rule(self, family: str, **facts: str) -> Any:
        return rulebook().decide(family, operation=self.operation, mode="plain", **facts)


def expected(outcome: Outcome, ended: str | None) -> str | None:
    """The row that must decide, `success`, or None where nothing exact can be said. `ended`: how the context ended."""
    if outcome.cancelled or (outcome.timeout is not None and outcome.timeout <= 0):
        how = "cancelled" if outcome.cancelled and outcome.context_ended == "cancelled" else "deadline"
        return str(rulebook().decide("context", operation=outcome.operation, mode="plain", ended=how).id)
    oracle = _ORACLES.get(outcome.operation)
    if oracle is None:
        return None
    walk = Walk(outcome, ended)
    try:
        found: str | None = oracle(walk)
        walk.over()
    except Crashed:
        return "crashed"
    return found


# Find.


def _find(walk: Walk) -> str:
    for plural in ("trainingruntimes", "pods", "jobs", "jobsets", "trainjobs"):
        failed = _list(walk, plural)
        if failed is not None:
            return walk.row(failed)
    return "success"


def _list(walk: Walk, plural: str) -> Exchange | None:
    """A list: begun anew after a 410, three times; the failure, if it has one."""
    for restart in range(4):
        got, exchange = walk.next(f"LIST {plural}")
        if got == "ok":
            return None
        if exchange.status != 410 or restart == 3:
            return exchange
    return None


# Start.


def _start(walk: Walk) -> str:
    got, exchange = walk.next("GET clustertrainingruntimes")
    if got == "absent":
        return "runtime.absent"
    if got != "ok":
        return walk.row(exchange)
    job, attempt, _ = walk.outcome.arguments
    name = f"{job}-{attempt}"
    left = _leftovers(walk, name)
    if left is not None:
        return left
    copy = _copy(walk, name)
    if isinstance(copy, str):
        return copy
    return _created(walk, name, copy)


def _leftovers(walk: Walk, name: str) -> str | None:
    found = False
    for what, named in (("GET jobsets", name), ("GET configmaps", f"{name}-runtime-snapshot")):
        got, exchange = walk.next(what, named)
        if got not in ("ok", "absent", "wrong-kind"):
            result = "refused" if got == "conflict" else got
            rule = walk.rule("start", step="leftover", result=result, stopped="not-tried")
            return str(rule.id) if rule.sentinel != "none" else walk.row(exchange)
        found = found or got != "absent"
    if not found:
        return None
    got, exchange = walk.next("GET trainjobs", name)
    if got != "ok":
        return "start.leftover"
    _list(walk, "pods")  # only for the state that the error tells; one that fails tells it without
    return "start.exists"


def _copy(walk: Walk, name: str) -> tuple[Object, bool] | str:
    """The copy that is used and whether this call made it; or the row that ends the call."""
    for create in (1, 2):
        got, exchange = walk.next("POST trainingruntimes", name)
        if got == "ok":
            return exchange.answer, True
        rule = walk.rule("start", step="copy", result="refused" if got == "conflict" else got, stopped="not-tried")
        if rule.sentinel != "none":
            return str(rule.id)
        if rule.gives != "go-on":
            return walk.row(exchange)
        posted = exchange.body
        got, exchange = walk.next("GET trainingruntimes", name)
        if got == "ok":
            return _reused(walk, name, exchange.answer, posted)
        if got == "absent" and create == 2:
            return "start.copy-flickers"
        if got != "absent":
            rule = walk.rule(
                "start", step="copy-found", result="refused" if got == "conflict" else got, stopped="not-tried"
            )
            return str(rule.id) if rule.sentinel != "none" else walk.row(exchange)
    raise AssertionError("two creates at most")


def _reused(walk: Walk, name: str, found: Object, posted: Object) -> tuple[Object, bool] | str:
    for _ in range(8):
        meta = found["metadata"]
        if meta.get("ownerReferences"):
            return "start.copy-owned"
        if "deletionTimestamp" in meta:
            return "start.copy-deleting"
        ours = {key: value for key, value in posted["metadata"]["labels"].items() if key.startswith(PREFIX)}
        if any((meta.get("labels") or {}).get(key) != value for key, value in ours.items()):
            return "start.copy-differs"
        if _bare(posted["spec"]) != _bare(found["spec"]):
            return "start.copy-differs"
        got, exchange = walk.next("PATCH trainingruntimes", name)
        if got == "ok":
            return exchange.answer, False
        if got != "conflict":
            return walk.row(exchange)
        got, exchange = walk.next("GET trainingruntimes", name)
        if got != "ok":
            return walk.row(exchange)
        found = exchange.answer
    return "start.copy-flickers"


def _created(walk: Walk, name: str, copy: tuple[Object, bool]) -> str:
    tries = 0
    while True:
        got, exchange = walk.next("POST trainjobs", name)
        if got == "ok":
            created = exchange
            break
        if exchange.number < 0 and tries:
            return f"context.{exchange.ended}"
        tries += 1
        if got == "denied" and _runtime_unseen(exchange):
            if exchange.answered - _first(walk, "POST trainjobs").at >= 2.0:
                got = "runtime-unseen-late"
            else:
                continue
        rule = walk.rule("start", step="create", result="refused" if got == "conflict" else got, stopped="not-tried")
        if rule.sentinel != "none":
            return str(rule.id)
        row = walk.row(exchange)
        if rule.gives == "delete-copy" and copy[1]:
            walk.next("DELETE trainingruntimes", name)
        return row
    if not _same_job(created.body, created.answer):
        return _stopped(walk, "read-back", "differs", created.answer, created.answer)
    failed = _own(walk, name, copy[0], created.answer)
    if failed is not None:
        return _stopped(walk, "owner", failed, created.answer, None)
    got, exchange = walk.next("GET trainjobs", name)
    if got != "ok":
        result = "refused" if got in ("conflict", "exists") else got
        rule = walk.rule("start", step="read-back", result=result, stopped="not-tried")
        if rule.gives == "stop":
            return _stopped(walk, "read-back", result, created.answer, None)
        return str(rule.id) if rule.sentinel != "none" else walk.row(exchange)
    if exchange.answer["metadata"]["uid"] != created.answer["metadata"]["uid"]:
        return "start.other-uid"
    if not _same_job(created.body, exchange.answer):
        return _stopped(walk, "read-back", "differs", created.answer, exchange.answer)
    return "success"


def _first(walk: Walk, what: str) -> Exchange:
    return next(each for each in walk.outcome.exchanges if each.what == what)


def _runtime_unseen(exchange: Exchange) -> bool:
    message = str((exchange.answer or {}).get("message", "")).lower()
    return "runtime" in message and ("not found" in message or "must be created before" in message)


def _own(walk: Walk, name: str, copy: Object, trainjob: Object) -> str | None:
    """Step 5; None once the owner is set, else the word for why not."""
    got = ""
    for _ in range(8):
        got, _exchange = walk.next("PATCH trainingruntimes", name)
        if got == "ok":
            return None
        if got not in ("conflict", "lost"):
            return "refused" if got == "exists" else got
        read, exchange = walk.next("GET trainingruntimes", name)
        if read != "ok":
            found = got if got == "lost" else read
            return "refused" if found in ("conflict", "exists") else found
        meta = exchange.answer["metadata"]
        owners = meta.get("ownerReferences") or []
        if meta["uid"] != copy["metadata"]["uid"]:
            return "other-uid"
        if owners and all(each["uid"] == trainjob["metadata"]["uid"] for each in owners):
            return None
        if owners:
            return "owned"
        if got == "lost":
            return got
    return "refused" if got == "conflict" else got


def _stopped(walk: Walk, step: str, result: str, created: Object, found: Object | None) -> str:
    proved = _proved_stopped(walk, created, found)
    stopped = "proved" if proved else "not-proved"
    return str(walk.rule("start", step=step, result=result, stopped=stopped).id)


def _proved_stopped(walk: Walk, created: Object, found: Object | None) -> bool:
    """The contract's two proofs, by what the requests gave."""
    name, uid = created["metadata"]["name"], created["metadata"]["uid"]
    never_ran: bool | None = None
    for _ in range(8):
        if found is None:
            got, exchange = walk.next("GET trainjobs", name)
            if got == "absent":
                never_ran = False
                break
            if got == "wrong-kind":
                got, _x = walk.next("DELETE trainjobs", name)
                if got not in ("ok", "absent"):
                    return False
                never_ran = False
                break
            if got != "ok":
                return False
            found = exchange.answer
        assert found is not None
        if found["metadata"]["uid"] != uid:
            return False
        got, _exchange = walk.next("DELETE trainjobs", name)
        if got == "ok":
            meta = found["metadata"]
            never_ran = (
                meta.get("generation") == 1
                and found["spec"].get("suspend") is True
                and annotation(found, "gate") == "closed"
                and "deletionTimestamp" not in meta
            )
            break
        if got == "absent":
            never_ran = False
            break
        if got not in ("conflict", "lost"):
            return False
        found = None
    if never_ran is None:
        return False
    if not never_ran and not _seen_gone(walk, name):
        return False
    _copy_goes(walk, name, uid)
    return True


def _seen_gone(walk: Walk, name: str) -> bool:
    while True:
        left = False
        for plural in ("trainjobs", "jobsets"):
            got, _ = walk.next(f"GET {plural}", name)
            if got in ("ok", "wrong-kind"):
                left = True
                break
            if got != "absent":
                return False
        if left:
            continue
        for plural in ("jobs", "pods"):
            failed = _list(walk, plural)
            if failed is not None:
                return False
            assert walk.last is not None
            if walk.last.answer["items"]:
                left = True
                break
        if not left:
            return True


def _copy_goes(walk: Walk, name: str, uid: str) -> None:
    got, exchange = walk.next("GET trainingruntimes", name)
    if got != "ok":
        return
    meta = exchange.answer["metadata"]
    posted = next((e for e in walk.outcome.exchanges if e.what == "POST trainingruntimes" and e.status == 201), None)
    if posted is not None and posted.answer and posted.answer["metadata"]["uid"] != meta["uid"]:
        return
    if not meta.get("ownerReferences") and "deletionTimestamp" not in meta:
        walk.next("DELETE trainingruntimes", name)


def _same_job(written: Object, read: Object) -> bool:
    """Whether a TrainJob is still what was written, as strictly as one can say it without the code under test."""
    seen = {key: value for key, value in read["metadata"].items() if key not in _SERVERS}
    if seen != written["metadata"]:
        return False
    spec = {key: value for key, value in read["spec"].items() if key != "runtimePatches" or value}
    return bool(spec == written["spec"])


_SERVERS = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")


def _bare(value: Any) -> Any:
    """Without its nulls, which the cluster does not keep: a copy is read whole, so it has no default to gain."""
    if isinstance(value, dict):
        return {key: _bare(each) for key, each in value.items() if each is not None}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def _holds(wanted: Any, found: Any) -> bool:
    """Whether all that was wanted stands there, defaults beside it allowed."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and _holds(of, found[key]) for key, of in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(_holds, wanted, found))
    return bool(wanted == found)


# The hold family.


def _hold_family(walk: Walk) -> str:
    ref = walk.outcome.arguments[0]
    instance = walk.outcome.arguments[1] if walk.operation != "open" else None
    for _ in range(8):
        found = _read_job(walk, ref)
        if isinstance(found, str):
            return found
        job, others = found
        same = job["metadata"]["uid"] == ref.uid
        jobset: Object | None = None
        looked = same and terminal(job) is not None
        if looked:
            got, exchange = walk.next("GET jobsets", ref.name)
            if got not in ("ok", "absent"):
                return walk.row(exchange)
            jobset = exchange.answer if got == "ok" else None
        ended = "deletionTimestamp" in job["metadata"] or (looked and has_ended(job, jobset))
        rule = _object_rule(walk, ref, job, instance, same=same, ended=ended)
        if rule.sentinel != "none":
            return str(rule.id)
        done = _plan(walk, ref, job, others, instance, ended=ended, jobset=jobset, looked=looked)
        if done is not None:
            return done
        got, exchange = walk.next("PATCH trainjobs", ref.name)
        if exchange.sent:
            _check_body(walk, exchange, job, instance, ended=ended)
        if got == "ok":
            return "success"
        if got != "conflict":
            return walk.row(exchange)
    return "open.conflicts"


def _check_body(walk: Walk, exchange: Exchange, job: Object, instance: int | None, *, ended: bool) -> None:
    """The patch writes the record and `suspend` as contract section 7 has it, on what was read, and nothing else."""
    meta, held = job["metadata"], hold_of(job)
    assert held is not None
    closed = annotation(job, "gate") == "closed"
    match walk.operation:
        case "open":
            record, stopped = {"gate": "lifted"} if closed else {}, held[1] == "held"
        case "hold":
            record, stopped = {"hold": f"{instance}/held"}, True
        case _:
            record, stopped = {"hold": f"{instance}/released"}, closed
    wanted = {PREFIX + key: value for key, value in record.items() if annotation(job, key) != value}
    spec = {}
    if bool(job["spec"].get("suspend")) != stopped and not (ended and walk.operation == "release"):
        spec = {"suspend": stopped}
    said = exchange.body["metadata"]
    found = said.get("annotations") or {}, exchange.body.get("spec") or {}
    if found != (wanted, spec) or (said.get("uid"), said.get("resourceVersion")) != (
        meta["uid"],
        meta["resourceVersion"],
    ):
        raise Disagreement(
            f"{walk.operation} was to write {wanted} and {spec} on {meta['resourceVersion']}, not {found}"
        )


def _read_job(walk: Walk, ref: Any) -> tuple[Object, list[Object]] | str:
    """The TrainJob and, for Open and Release, the others of its job."""
    if walk.operation != "hold":
        failed = _list(walk, "trainjobs")
        if failed is not None:
            return walk.row(failed)
        assert walk.last is not None
        every = walk.last.answer["items"]
        own = [each for each in every if each["metadata"]["name"] == ref.name]
        if own:
            return own[0], [each for each in every if each["metadata"]["name"] != ref.name]
    got, exchange = walk.next("GET trainjobs", ref.name)
    return (exchange.answer, []) if got == "ok" else walk.row(exchange)


def terminal(job: Object) -> Object | None:
    """The TrainJob's terminal condition."""
    found = [each for each in (job.get("status") or {}).get("conditions") or () if each["status"] == "True"]
    return next((each for each in found if each["type"] in ("Complete", "Failed")), None)


def has_ended(job: Object, jobset: Object | None) -> bool:
    """Contract section 8."""
    condition = terminal(job)
    if condition is None:
        return False
    if condition["type"] == "Failed" and condition.get("reason") == "DeadlineExceeded":
        return True
    gone = jobset is None or "deletionTimestamp" in jobset["metadata"]
    if not gone:
        assert jobset is not None
        owners = jobset["metadata"].get("ownerReferences") or []
        return any(each["uid"] == job["metadata"]["uid"] for each in owners)
    return condition["type"] == "Complete" and annotation(job, "gate") == "lifted"


def hold_of(job: Object) -> tuple[int, str] | None:
    """The hold register: instance and `none`, `held` or `released`; None where it cannot be read."""
    text = annotation(job, "hold")
    if text == "none":
        return 0, "none"
    number, slash, said = (text or "").partition("/")
    if slash and said in ("held", "released") and number.isdigit() and number[0] != "0" and int(number) < 2**63:
        return int(number), said
    return None


def _object_rule(walk: Walk, ref: Any, job: Object, instance: int | None, *, same: bool, ended: bool) -> Any:
    gate, mode, hold = annotation(job, "gate"), annotation(job, "mode"), hold_of(job)
    compared = "newer"
    if instance is not None and hold is not None:
        compared = "same" if instance == hold[0] else "newer" if instance > hold[0] else "older"
    return walk.rule(
        "object",
        uid="same" if same else "other",
        backend="ours" if (job["metadata"].get("labels") or {}).get(PREFIX + "backend") == ref.backend else "other",
        ended="yes" if ended else "no",
        written_for="this-mode" if mode in (None, "plain") else "other-mode",
        gate=gate if gate in ("closed", "lifted") and mode is not None else "unreadable",
        hold="unreadable" if hold is None else hold[1],
        instance=compared,
        workload="present",
    )


def _plan(
    walk: Walk,
    ref: Any,
    job: Object,
    others: list[Object],
    instance: int | None,
    *,
    ended: bool,
    jobset: Object | None,
    looked: bool,
) -> str | None:
    """What the call does beside its patch: None where it patches now, else the row or `success`."""
    suspended = bool(job["spec"].get("suspend"))
    closed = annotation(job, "gate") == "closed"
    held = hold_of(job)
    assert held is not None
    match walk.operation:
        case "hold":
            return "success" if held == (instance, "held") and suspended else None
        case "release":
            stands = held == (instance, "released")
            if ended or closed == suspended:
                return "success" if stands else None
            return None if closed else _rests(walk, ref, others, jobset, controllers=True, looked=looked)
        case _:
            wanted = held[1] == "held"
            if not closed and wanted == suspended:
                return "success"
            lost = _open_copy(walk, ref, job)
            if lost is not None:
                return lost
            if closed and not _digest_holds(job):
                return "open.changed"
            if suspended and not wanted:
                ran = (job["metadata"].get("generation") or 2) > 1
                return _rests(walk, ref, others, jobset, controllers=ran, looked=looked)
            return None


def _open_copy(walk: Walk, ref: Any, job: Object) -> str | None:
    got, exchange = walk.next("GET trainingruntimes", ref.name)
    if got == "absent":
        return "open.copy-lost"
    if got != "ok":
        return walk.row(exchange)
    meta = exchange.answer["metadata"]
    owners = meta.get("ownerReferences") or []
    made = _CREATED.get(meta["uid"])
    if "deletionTimestamp" in meta or (made is not None and made[1] != exchange.answer["spec"]):
        return "open.copy-lost"
    if owners:
        return None if all(each["uid"] == ref.uid for each in owners) else "open.copy-lost"
    failed = _own(walk, ref.name, exchange.answer, job)
    if failed is None:
        return None
    if failed in ("other-uid", "owned"):
        return "open.copy-lost"
    last = walk.last
    assert last is not None
    if failed == "lost" and last.method == "GET":
        patches = [each for each in walk.outcome.exchanges if each.what == "PATCH trainingruntimes"]
        last = patches[-1]
    return walk.row(last)


def _digest_holds(job: Object) -> bool:
    """Whether the TrainJob is what it was created as; the world keeps what that was."""
    made = _CREATED.get(job["metadata"]["uid"])
    if made is None:
        return True
    labels = {key: value for key, value in (job["metadata"].get("labels") or {}).items() if key in _DIGESTED}
    spec = {key: value for key, value in job["spec"].items() if key != "suspend" and (key != "runtimePatches" or value)}
    return (labels, spec) == made and annotation(job, "digest") == _DIGESTS.get(job["metadata"]["uid"])


_DIGESTED = (PREFIX + "backend", PREFIX + "job", PREFIX + "attempt", "kueue.x-k8s.io/queue-name")
_CREATED: dict[str, tuple[Object, Object]] = {}
_DIGESTS: dict[str, str | None] = {}


def remember_created(job: Object) -> None:
    """Keep what a TrainJob was when it was created, to tell later whether it was changed."""
    uid = job["metadata"]["uid"]
    labels = {key: value for key, value in (job["metadata"].get("labels") or {}).items() if key in _DIGESTED}
    _CREATED[uid] = labels, {key: each for key, each in job["spec"].items() if key != "suspend"}
    _DIGESTS[uid] = annotation(job, "digest")


def remember_copy(copy: Object) -> None:
    """Keep what a runtime copy was when it was created."""
    _CREATED[copy["metadata"]["uid"]] = {}, copy["spec"]


def forget_created() -> None:
    _CREATED.clear()
    _DIGESTS.clear()


def _rests(
    walk: Walk, ref: Any, others: list[Object], jobset: Object | None, *, controllers: bool, looked: bool
) -> str | None:
    """C25 in full."""
    if any(not each["spec"].get("suspend") and terminal(each) is None for each in others):
        return "open.other-attempt"
    active = False
    attempt = ref.name.rpartition("-")[2]
    if controllers:
        if not looked:
            got, exchange = walk.next("GET jobsets", ref.name)
            if got not in ("ok", "absent"):
                return walk.row(exchange)
            jobset = exchange.answer if got == "ok" else None
        active = jobset is not None and _makes_jobs(jobset)
    lists = [*(("jobsets",) if others else ()), *(("jobs",) if controllers or others else ()), "pods"]
    found: dict[str, list[Object]] = {}
    for plural in lists:
        failed = _list(walk, plural)
        if failed is not None:
            return walk.row(failed)
        assert walk.last is not None
        found[plural] = walk.last.answer["items"]
    beside = [each for each in found.get("jobsets", ()) if each["metadata"]["name"] != ref.name]
    active = active or any(map(_makes_jobs, beside)) or any(map(makes_pods, found.get("jobs", ())))
    restless = [each for each in found["pods"] if not rests(each)]
    of_others = [each for each in restless if each["metadata"]["labels"].get(PREFIX + "attempt") != attempt]
    if len(of_others) < len(restless):
        return "open.pods-remain"
    if of_others:
        return "open.other-attempt"
    return "open.controller-active" if active else None


def rests(pod: Object) -> bool:
    """A pod that provably runs no more: phase ended, not being deleted, every container's end told by a kubelet."""
    status = pod.get("status") or {}
    if "deletionTimestamp" in pod["metadata"] or status.get("phase") not in ("Succeeded", "Failed"):
        return False
    told = {each["name"]: (each.get("state") or {}).get("terminated") for each in status.get("containerStatuses") or ()}
    names = {each["name"] for each in pod["spec"]["containers"]} | set(told)
    return bool(names) and all(
        (end := told.get(name)) and end.get("containerID") and end.get("reason") != "ContainerStatusUnknown"
        for name in names
    )


def _true(obj: Object, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _makes_jobs(jobset: Object) -> bool:
    if _true(jobset, "Completed") or _true(jobset, "Failed"):
        return False
    return not (jobset["spec"].get("suspend") and _true(jobset, "Suspended"))


def makes_pods(job: Object) -> bool:
    """Whether a Job's controller could still make a pod, or counts one that was not seen to end."""
    status = job.get("status") or {}
    uncounted = status.get("uncountedTerminatedPods") or {}
    if status.get("active") or status.get("terminating") or uncounted.get("succeeded") or uncounted.get("failed"):
        return True
    if _true(job, "Complete") or _true(job, "Failed"):
        return False
    return not (job["spec"].get("suspend") and _true(job, "Suspended"))


# Stop.


def _stop(walk: Walk) -> str:
    ref = walk.outcome.arguments[0]
    if ref.kind != "TrainJob":
        return _stop_other(walk, ref)
    for tries in range(1, 10):
        got, exchange = walk.next("GET trainjobs", ref.name)
        if got == "absent":
            return _forgotten_copy(walk, ref)
        if got != "ok":
            return walk.row(exchange)
        if exchange.answer["metadata"]["uid"] != ref.uid:
            return "success"
        if not _ours(exchange.answer, ref):
            return "stop.other-backend"
        unopened, version = never_opened(exchange.answer), exchange.answer["metadata"]["resourceVersion"]
        got, exchange = walk.next("DELETE trainjobs", ref.name)
        said = ((exchange.body or {}).get("preconditions") or {}).get("resourceVersion")
        if exchange.sent and said != (version if unopened else None):
            raise Disagreement(
                f"stop was to delete {ref.name} as read ({version}, never opened: {unopened}), not {said}"
            )
        if got == "ok":
            return _stop_copy(walk, ref.name)
        if got == "conflict" and unopened and tries < 8:
            continue
        return _failed_delete(walk, ref, "trainjobs", got, exchange)
    raise Disagreement("more than eight tries")


def never_opened(job: Object) -> bool:
    """Gate closed, suspended, generation 1, not being deleted: it provably never ran."""
    meta = job["metadata"]
    return (
        annotation(job, "gate") == "closed"
        and job["spec"].get("suspend") is True
        and meta.get("generation") == 1
        and "deletionTimestamp" not in meta
    )


def _failed_delete(walk: Walk, ref: Any, plural: str, got: str, exchange: Exchange) -> str:
    if got == "absent":
        return "success"
    if got == "conflict":
        got, exchange = walk.next(f"GET {plural}", ref.name)
        if got == "absent" or (got == "ok" and exchange.answer["metadata"]["uid"] != ref.uid):
            return "success"
        return "stop.conflict" if got == "ok" else walk.row(exchange)
    if ref.kind != "TrainJob" and walk.row(exchange) == "request.forbidden":
        return "stop.orphan-denied"
    return walk.row(exchange)


def _ours(obj: Object, ref: Any) -> bool:
    """Whether an object says itself that the Backend of the reference made it."""
    return bool((obj["metadata"].get("labels") or {}).get(PREFIX + "backend") == ref.backend)


def _forgotten_copy(walk: Walk, ref: Any) -> str:
    """The copy of a TrainJob that is gone: this attempt's own, unowned, and not so young that a Start may be at it."""
    got, exchange = walk.next("GET trainingruntimes", ref.name)
    if got == "absent":
        return "success"
    if got != "ok":
        return walk.row(exchange)
    meta = exchange.answer["metadata"]
    labels = meta.get("labels") or {}
    ours = labels.get(PREFIX + "backend") == ref.backend
    named = f"{labels.get(PREFIX + 'job')}-{labels.get(PREFIX + 'attempt')}" == ref.name
    made = (datetime.fromisoformat(meta["creationTimestamp"]) - START).total_seconds()
    if not (ours and named) or exchange.answered - made < CALL_BOUND:
        return "success"
    return _delete_unowned(walk, ref.name, meta)


def _stop_copy(walk: Walk, name: str) -> str:
    got, exchange = walk.next("GET trainingruntimes", name)
    if got == "absent":
        return "success"
    if got != "ok":
        return walk.row(exchange)
    return _delete_unowned(walk, name, exchange.answer["metadata"])


def _delete_unowned(walk: Walk, name: str, meta: Object) -> str:
    if meta.get("ownerReferences") or "deletionTimestamp" in meta:
        return "success"
    got, exchange = walk.next("DELETE trainingruntimes", name)
    return "success" if got in ("ok", "absent", "conflict") else walk.row(exchange)


_PLURALS = {"TrainingRuntime": "trainingruntimes", "JobSet": "jobsets", "Job": "jobs", "Pod": "pods"}


def _stop_other(walk: Walk, ref: Any) -> str:
    plural = _PLURALS[ref.kind]
    got, exchange = walk.next(f"GET {plural}", ref.name)
    if got == "absent" or (got == "ok" and exchange.answer["metadata"]["uid"] != ref.uid):
        return "success"
    if got != "ok":
        return walk.row(exchange)
    if not _ours(exchange.answer, ref):
        return "stop.other-backend"
    lives = _owner_lives(walk, ref, exchange.answer)
    if lives is not None:
        return lives
    got, exchange = walk.next(f"DELETE {plural}", ref.name)
    if got != "ok":
        return _failed_delete(walk, ref, plural, got, exchange)
    return _snapshot(walk, ref) if ref.kind in ("JobSet", "TrainingRuntime") else "success"


def _snapshot(walk: Walk, ref: Any) -> str:
    name = f"{ref.name}-runtime-snapshot"
    got, exchange = walk.next("GET configmaps", name)
    if got == "ok":
        got, exchange = walk.next("DELETE configmaps", name)
    return "success" if got in ("ok", "absent", "conflict", "denied") else walk.row(exchange)


def _owner(obj: Object, kind: str) -> Object | None:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((each for each in owners if each["kind"] == kind), None)


def _owner_lives(walk: Walk, ref: Any, obj: Object) -> str | None:
    if ref.kind == "Pod":
        owner = _owner(obj, "Job")
        if owner is None:
            return None
        got, exchange = walk.next("GET jobs", owner["name"])
        if got == "absent" or (got == "ok" and exchange.answer["metadata"]["uid"] != owner["uid"]):
            return None
        if got != "ok":
            return walk.row(exchange)
        return _above(walk, exchange.answer, None) or "stop.owner-lives"
    return _above(walk, obj, ref.name if ref.kind != "Job" else None)


def _above(walk: Walk, obj: Object, itself: str | None) -> str | None:
    jobset = _owner(obj, "JobSet")
    labels = obj["metadata"].get("labels") or {}
    name = itself or labels.get("jobset.sigs.k8s.io/jobset-name") or (jobset["name"] if jobset else None)
    if name is None:
        return None
    got, exchange = walk.next("GET trainjobs", name)
    if got == "ok":
        return "stop.owner-lives"
    if got != "absent":
        return walk.row(exchange)
    if jobset is None:
        return None
    got, exchange = walk.next("GET jobsets", jobset["name"])
    if got == "absent" or (got == "ok" and exchange.answer["metadata"]["uid"] != jobset["uid"]):
        return None
    return "stop.owner-lives" if got == "ok" else walk.row(exchange)


# Output.


def _output(walk: Walk) -> str | None:
    found: dict[str, list[Object]] = {}
    for plural in ("trainjobs", "pods"):
        failed = _list(walk, plural)
        if failed is not None:
            return walk.row(failed)
        assert walk.last is not None
        found[plural] = walk.last.answer["items"]
    highest = max((_attempt(each) for each in (*found["trainjobs"], *found["pods"])), default=0)
    pods = [each for each in found["pods"] if _attempt(each) == highest]
    if not pods:
        return "read.no-rank-0"
    newest = max(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["uid"]))
    got, exchange = walk.next("GET pods", newest["metadata"]["name"])
    if got == "ok":
        return "success"
    if exchange.sent and exchange.status is None and exchange.fault is not None:
        # A stream that breaks gives what came before; how much that was depends on where.
        return None if exchange.fault.kind in ("cut", "garbled") else walk.row(exchange)
    return walk.row(exchange)


def _attempt(obj: Object) -> int:
    text = (obj["metadata"].get("labels") or {}).get(PREFIX + "attempt", "")
    return int(text) if text.isdigit() else 0


# StopJob: its waiting depends on time, so only its failures are told from its requests.


def _stop_job(walk: Walk) -> str | None:
    list(walk._rest)
    return None


_ORACLES: dict[str, Any] = {
    "find": _find,
    "start": _start,
    "open": _hold_family,
    "hold": _hold_family,
    "release": _hold_family,
    "stop": _stop,
    "output": _output,
}


def requests_of(outcome: Outcome) -> Iterator[Exchange]:
    """The requests of a call that reached for the network."""
    return iter(outcome.exchanges)


__all__ = ["NAMESPACE", "Disagreement", "expected"]
