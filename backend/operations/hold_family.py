"""Open, Hold and Release: the three calls that decide whether a job may run. Contract section 7.

Each try reads the TrainJob, lets table `object` and the hold register say whether the call is in force, and writes
the record and, in plain mode, `spec.suspend` in one patch that applies only to what was read. Before pods may start,
all that could still run is looked at, the pods last (C25). A conflict starts a new try from the first read, eight in
all.

In kueue mode `spec.suspend` is Kueue's, and nothing here makes a job run: Open and Release write the record alone, and
the admission controller does what C25 asks before it lets the job go. A hold is enforced on the Workload: `holding`.

In plain mode Open and Release read their TrainJob by listing those of its job, which costs no more than reading it
alone and shows the job's other attempts: pods take a moment to appear, so a list of pods says nothing of a TrainJob
just opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from msgspec import Struct

from dispatch_kubeflow.backend.objects import names, resting, runtime_copy, seen, state, trainjob, workload
from dispatch_kubeflow.backend.objects.admission import may_run
from dispatch_kubeflow.backend.objects.record import (
    CLOSED,
    LIFTED,
    Hold,
    Record,
    gates,
    read_record,
    record_patch,
    without_our_gate,
)
from dispatch_kubeflow.backend.requests import Failure, Request
from dispatch_kubeflow.backend.requests.resources import (
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
)
from dispatch_kubeflow.machine.rules.model import Edge
from dispatch_kubeflow.machine.values import ObjectRef

from . import holding, ownership
from .call import TRIES, Call, Got, never, outcome, unreadable
from .views import state_of


@dataclass(frozen=True, slots=True)
class Target:
    """The TrainJob of one try, with its record and what is known of its end."""

    got: Got[seen.TrainJob]
    others: tuple[seen.TrainJob, ...]
    record: Record
    ended: bool
    jobset: Got[seen.JobSet] | None
    jobset_read: bool
    workloads: tuple[seen.Workload, ...] = ()

    @property
    def metadata(self) -> seen.Metadata:
        return self.got.seen.metadata

    @property
    def suspended(self) -> bool:
        return self.got.seen.spec.suspend

    @property
    def gate(self) -> Literal["closed", "lifted"]:
        if self.record.gate is None:
            never("an unreadable record is refused before it is used")
        return self.record.gate

    @property
    def hold(self) -> Hold:
        if self.record.hold is None:
            never("an unreadable record is refused before it is used")
        return self.record.hold


@dataclass(frozen=True, slots=True)
class Write:
    """What a try writes; a part that already stands is None."""

    gate: Literal["lifted"] | None = None
    hold: Hold | None = None
    suspend: bool | None = None
    gated_by: str | None = None
    """Kueue mode: the admission gates as they stand, from which ours is taken."""

    @property
    def nothing(self) -> bool:
        return self == Write()


Plan = Callable[[Call, ObjectRef, Target], Write]


def open_(call: Call, ref: ObjectRef) -> None:
    """Lift the gate. A gate that is lifted, and a `suspend` that is right, are a success and write nothing."""
    _try(call, ref, None, _plan_open if call.mode == "plain" else _plan_open_queued)


def hold(call: Call, ref: ObjectRef, instance: int) -> None:
    """Stop the job under an instance number."""

    def plan(call: Call, _: ObjectRef, target: Target) -> Write:
        edge = _register(call, target, instance)
        kept = Hold(instance, held=True) if edge.does == "write-record" else None
        return Write(hold=kept, suspend=True if call.mode == "plain" and not target.suspended else None)

    target = _try(call, ref, instance, plan)
    if call.mode == "kueue":
        holding.enforce(call, target.metadata, instance, target.workloads)


def release(call: Call, ref: ObjectRef, instance: int) -> None:
    """End the hold of that instance; the gate stays as it is."""

    def plan(call: Call, ref: ObjectRef, target: Target) -> Write:
        edge = _register(call, target, instance)
        kept = Hold(instance, held=False) if edge.does == "write-record" else None
        if target.ended or call.mode == "kueue":
            return Write(hold=kept)
        wanted = target.gate == CLOSED
        if wanted == target.suspended:
            return Write(hold=kept)
        if not wanted:
            _check_rests(call, ref, target, looked_at_controllers=True)
        return Write(hold=kept, suspend=wanted)

    _try(call, ref, instance, plan)


def _plan_open(call: Call, ref: ObjectRef, target: Target) -> Write:
    lifts = target.gate == CLOSED
    wanted = target.hold.held
    if not lifts and wanted == target.suspended:
        return Write()
    _check_copy(call, ref, target)
    if lifts:
        _check_digest(call, target)
    starts = target.suspended and not wanted
    if starts:
        _check_rests(call, ref, target, looked_at_controllers=(target.metadata.generation or 2) > 1)
    return Write(gate=LIFTED if lifts else None, suspend=None if wanted == target.suspended else wanted)


def _plan_open_queued(call: Call, ref: ObjectRef, target: Target) -> Write:
    lifts = target.gate == CLOSED
    gated_by = target.metadata.annotations.gated_by
    ours = gated_by if names.KUEUE_GATE in gates(gated_by) else None
    if not lifts and ours is None:
        return Write()
    _check_copy(call, ref, target)
    if lifts:
        _check_digest(call, target)
    return Write(gate=LIFTED if lifts else None, gated_by=ours)


def _try(call: Call, ref: ObjectRef, instance: int | None, plan: Plan) -> Target:
    """Read, judge and write, again after each conflict; the target as it was read for what stands now."""
    last: Failure | None = None
    for _ in range(TRIES):
        target = _read(call, ref, instance)
        write = plan(call, ref, target)
        if write.nothing:
            return target
        metadata = target.metadata
        body = record_patch(
            metadata.uid,
            metadata.resource_version,
            gate=write.gate,
            hold=write.hold,
            suspend=write.suspend,
            gated_by=write.gated_by,
        )
        reply = call.patch(TRAIN_JOBS, ref.name, body)
        if reply.failure is None:
            _check_written(call, target, write, reply.object or {})
            return target
        last = reply.failure
        if outcome(call.judge(last)) != "conflict":
            call.refuse(last)
    call.settle(
        "open",
        copy="unread",
        digest="unread",
        rest="unread",
        tries="spent",
        details={"tries": TRIES},
        cause=None if last is None else last.cause,
    )
    return never("a call whose tries are spent is refused")


def _read(call: Call, ref: ObjectRef, instance: int | None) -> Target:
    """Read the TrainJob, and its JobSet where its end has to be told; refuse by table `object`."""
    got, others = _read_job(call, ref)
    found = got.seen
    same = found.metadata.uid == ref.uid
    jobset: Got[seen.JobSet] | None = None
    terminal = same and state.terminal(found) != "none"
    if terminal:
        jobset = call.look(JOB_SETS, ref.name, seen.JobSet)
    ended = found.metadata.deleting
    if terminal:
        ended = ended or state_of(call, found, None if jobset is None else jobset.seen) == "ended"
    kept = read_record(found.metadata.annotations)
    target = Target(got, others, kept, ended, jobset, terminal)
    if call.mode == "plain":
        _judge(call, target, same=same, instance=instance, found="present")
        return target
    _judge(call, target, same=same, instance=instance, found="unread")
    listed = call.list(WORKLOADS, names.workload_selector(ref.uid), seen.Workload)
    target = replace(target, workloads=workload.of(ref.uid, listed))
    _judge(call, target, same=same, instance=instance, found="present" if target.workloads else "absent")
    return target


def _read_job(call: Call, ref: ObjectRef) -> tuple[Got[seen.TrainJob], tuple[seen.TrainJob, ...]]:
    """The TrainJob of the reference and, for a call after which pods may start, the others of its job."""
    named = names.parse_name(ref.name)
    if call.operation == "hold" or call.mode == "kueue" or named is None:
        return call.get(TRAIN_JOBS, ref.name, seen.TrainJob), ()
    listed = call.list(TRAIN_JOBS, names.job_selector(call.adapter.settings.name, named[0]), Whole)
    bodies = [each.body() for each in listed]
    own = next((body for body in bodies if body["metadata"].get("name") == ref.name), None)
    if own is None:
        # Gone, or without the labels by which all that is ours is found: the name itself tells.
        return call.get(TRAIN_JOBS, ref.name, seen.TrainJob), ()
    target = seen.read(own, seen.TrainJob)
    if isinstance(target, seen.Unreadable):
        call.refuse(unreadable(Request("GET", TRAIN_JOBS, namespace=call.namespace, name=ref.name), target))
    return Got(own, target), tuple(_other(body) for body in bodies if body["metadata"].get("name") != ref.name)


class Whole(Struct):
    """A TrainJob of a list, whole: its digest is taken over all of its spec."""

    metadata: dict[str, Any]
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    def body(self) -> dict[str, Any]:
        """The object as a read of it alone gives it."""
        kind = {"apiVersion": TRAIN_JOBS.api_version, "kind": TRAIN_JOBS.kind}
        return {**kind, "metadata": self.metadata, "spec": self.spec, "status": self.status}


def _other(body: Mapping[str, Any]) -> seen.TrainJob:
    """Another TrainJob of the job; one that can't be read counts as one that may run."""
    found = seen.read(body, seen.TrainJob)
    if not isinstance(found, seen.Unreadable):
        return found
    return seen.TrainJob(metadata=seen.Metadata(name=str(body["metadata"].get("name"))))


def _judge(
    call: Call,
    target: Target,
    *,
    same: bool,
    instance: int | None,
    found: Literal["unread", "present", "absent"],
) -> None:
    annotations = target.metadata.annotations
    kept = target.record
    compared = "newer" if instance is None or kept.hold is None else kept.hold.compare(instance)
    unread = []
    if annotations.mode is None:
        unread.append(f"{names.MODE} is absent")
    if kept.gate is None:
        unread.append(f"{names.GATE} is {annotations.gate!r}")
    if kept.hold is None:
        unread.append(f"{names.HOLD} is {annotations.hold!r}")
    other_mode = annotations.mode is not None and annotations.mode != call.mode
    labelled = target.metadata.labels.backend
    ours = labelled == call.adapter.settings.name
    call.settle(
        "object",
        uid="same" if same else "other",
        backend="ours" if ours else "other",
        ended="yes" if target.ended else "no",
        written_for="other-mode" if other_mode else "this-mode",
        gate="unreadable" if annotations.mode is None else kept.gate_fact,
        hold=kept.hold_fact,
        instance=compared,
        workload=found,
        details={
            "seen": _instead(target.metadata, same=same, ours=ours),
            "state": "being deleted" if target.metadata.deleting else "ended",
            "difference": "; ".join(unread),
            "instance": instance,
            "instance_in_force": "none" if kept.hold is None or kept.hold.instance == 0 else kept.hold.instance,
        },
    )


def _instead(metadata: seen.Metadata, *, same: bool, ours: bool) -> str:
    """What was found where something else was looked for."""
    if not same:
        return f"uid {metadata.uid}"
    return f"mode {metadata.annotations.mode}" if ours else f"backend {metadata.labels.backend}"


def _register(call: Call, target: Target, instance: int) -> Edge:
    """The edge that the hold register takes; its refusals are table `object`'s, and were raised there."""
    lifecycle = call.adapter.book.lifecycle("hold_register")
    answer = lifecycle.answer(target.hold.fact, call.operation, instance=target.hold.compare(instance))
    if not isinstance(answer, Edge):
        never(f"{answer.id} refuses what table object let pass")
    return answer


def _check_copy(call: Call, ref: ObjectRef, target: Target) -> None:
    """The runtime copy has to be there, as Start wrote it, and this TrainJob's; an unowned one is given its owner."""
    found = call.look(TRAINING_RUNTIMES, ref.name, seen.Runtime)
    fact, details = _judge_copy(call, ref, target, found)
    if fact == "ours":
        return
    call.settle("open", copy=fact, digest="unread", rest="unread", tries="left", details={"name": ref.name, **details})


def _judge_copy(
    call: Call, ref: ObjectRef, target: Target, found: Got[seen.Runtime] | None
) -> tuple[str, dict[str, object]]:
    if found is None:
        return "absent", {"state": "gone"}
    metadata = found.seen.metadata
    if metadata.deleting:
        return "deleting", {"state": "being deleted"}
    if names.named_identity(metadata) != names.named_identity(target.metadata):
        return "changed", {"state": "not this attempt's, by its labels"}
    if runtime_copy.spec_digest(found.body) != metadata.annotations.digest:
        return "changed", {"state": "not what Start wrote, by its digest"}
    if ownership.is_owner(metadata, target.metadata.uid):
        return "ours", {}
    if not ownership.unowned(found):
        owners = ", ".join(f"{owner.kind} {owner.name}" for owner in metadata.owner_references)
        return "other-owner", {"state": "owned by another", "seen": owners}
    uid = target.metadata.uid
    failed = ownership.set_owner(call, ref.name, metadata.uid, metadata.resource_version, ref.name, uid)
    if isinstance(failed, Failure):
        call.refuse(failed)
    return ("ours", {}) if failed is None else ("other-owner", {"state": "another's by now", **failed.details})


def _check_digest(call: Call, target: Target) -> None:
    """What is about to run has to be what was written: so a TrainJob found after an unknown Start becomes safe."""
    wanted = target.metadata.annotations.digest
    found = trainjob.written_digest(target.got.body)
    difference = f"digest {found}, written {wanted}"
    call.settle(
        "open",
        copy="ours",
        digest="same" if wanted == found else "changed",
        rest="unread",
        tries="left",
        details={"difference": difference},
    )


def _check_rests(call: Call, ref: ObjectRef, target: Target, *, looked_at_controllers: bool) -> None:
    """Nothing of the job may still run when its pods are about to start (C25)."""
    identity = names.named_identity(target.metadata)
    job, attempt = (identity.job, identity.attempt) if identity is not None else names.parse_name(ref.name) or ("", 0)
    selector = names.job_selector(call.adapter.settings.name, job)
    running = [each.metadata.name for each in target.others if may_run(each)]
    if running:
        _settle_rest(call, "other-attempt", [f"TrainJob {name}" for name in running])
    own: seen.JobSet | None = None
    jobsets: tuple[seen.JobSet, ...] = ()
    jobs: tuple[seen.Job, ...] = ()
    if looked_at_controllers:
        read = target.jobset if target.jobset_read else call.look(JOB_SETS, ref.name, seen.JobSet)
        own = None if read is None else read.seen
    if target.others:
        jobsets = call.list(JOB_SETS, selector, seen.JobSet)
    if looked_at_controllers or target.others:
        jobs = call.list(JOBS, selector, seen.Job)
    pods = call.list(PODS, selector, seen.Pod)
    others = [each for each in jobsets if each.metadata.name != ref.name]
    remains = resting.remains(attempt, jobset=own, jobs=jobs, pods=pods, others=others)
    _settle_rest(call, remains.fact, list(map(str, remains.items)))


def _settle_rest(call: Call, fact: str, left: list[str]) -> None:
    details = {"left": tuple(left)}
    call.settle("open", copy="ours", digest="same", rest=fact, tries="left", details=details)


def _check_written(call: Call, target: Target, write: Write, answer: Mapping[str, Any]) -> None:
    """The answer has to show what was written, for a webhook may change it on the way."""
    found = seen.read(answer, seen.TrainJob)
    if isinstance(found, seen.Unreadable):
        differences = [found.problem]
    else:
        stands = read_record(found.metadata.annotations)
        pairs: list[tuple[str, object, object]] = [
            (names.GATE, write.gate or target.gate, stands.gate),
            (names.HOLD, write.hold or target.hold, stands.hold),
            ("spec.suspend", target.suspended if write.suspend is None else write.suspend, found.spec.suspend),
        ]
        if write.gated_by is not None:
            pairs.append(
                (names.ADMISSION_GATED_BY, without_our_gate(write.gated_by), found.metadata.annotations.gated_by)
            )
        differences = [f"{path}: meant {meant}, answered {got}" for path, meant, got in pairs if meant != got]
    call.settle(
        "written",
        answer="changed" if differences else "as-written",
        details={"difference": "; ".join(differences)},
    )
