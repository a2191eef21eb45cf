"""Open, Hold and Release: the three calls that decide whether a job may run. Contract section 7.

Each try reads the TrainJob, lets table `object` and the hold register say whether the call is in force, and writes the
record and, in plain mode, `spec.suspend` in one patch that applies only to what was read. Before pods may start, all
that could still run is looked at, the pods last (C25). A conflict starts a new try from the first read, eight in all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dispatch_kubeflow.backend.objects import names, resting, seen, state, trainjob
from dispatch_kubeflow.backend.objects.record import CLOSED, LIFTED, Hold, Record, read_record, record_patch
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS, TRAINING_RUNTIMES
from dispatch_kubeflow.machine.rules.model import Edge
from dispatch_kubeflow.machine.values import ObjectRef

from . import ownership
from .call import Call, Got, never, outcome
from .views import state_of

TRIES = 8


@dataclass(frozen=True, slots=True)
class Target:
    """The TrainJob of one try, with its record and what is known of its end."""

    got: Got[seen.TrainJob]
    record: Record
    ended: bool
    jobset: Got[seen.JobSet] | None
    jobset_read: bool

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

    @property
    def nothing(self) -> bool:
        return self == Write()


Plan = Callable[[Call, ObjectRef, Target], Write]


def open_(call: Call, ref: ObjectRef) -> None:
    """Lift the gate. A gate that is lifted, and a `suspend` that is right, are a success and write nothing."""
    _try(call, ref, None, _plan_open)


def hold(call: Call, ref: ObjectRef, instance: int) -> None:
    """Stop the job under an instance number."""

    def plan(call: Call, _: ObjectRef, target: Target) -> Write:
        edge = _register(call, target, instance)
        kept = Hold(instance, held=True) if edge.does == "write-record" else None
        return Write(hold=kept, suspend=None if target.suspended else True)

    _try(call, ref, instance, plan)


def release(call: Call, ref: ObjectRef, instance: int) -> None:
    """End the hold of that instance; the gate stays as it is."""

    def plan(call: Call, ref: ObjectRef, target: Target) -> Write:
        edge = _register(call, target, instance)
        kept = Hold(instance, held=False) if edge.does == "write-record" else None
        if target.ended:
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


def _try(call: Call, ref: ObjectRef, instance: int | None, plan: Plan) -> None:
    last: Failure | None = None
    for _ in range(TRIES):
        target = _read(call, ref, instance)
        write = plan(call, ref, target)
        if write.nothing:
            return
        metadata = target.metadata
        body = record_patch(
            metadata.uid, metadata.resource_version, gate=write.gate, hold=write.hold, suspend=write.suspend
        )
        reply = call.patch(TRAIN_JOBS, ref.name, body)
        if reply.failure is None:
            return
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


def _read(call: Call, ref: ObjectRef, instance: int | None) -> Target:
    """Read the TrainJob, and its JobSet where its end has to be told; refuse by table `object`."""
    got = call.get(TRAIN_JOBS, ref.name, seen.TrainJob)
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
    target = Target(got, kept, ended, jobset, terminal)
    _judge(call, target, same=same, instance=instance)
    return target


def _judge(call: Call, target: Target, *, same: bool, instance: int | None) -> None:
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
    call.settle(
        "object",
        uid="same" if same else "other",
        ended="yes" if target.ended else "no",
        written_for="other-mode" if other_mode else "this-mode",
        gate="unreadable" if annotations.mode is None else kept.gate_fact,
        hold=kept.hold_fact,
        instance=compared,
        workload="present",
        details={
            "seen": f"mode {annotations.mode}" if same else f"uid {target.metadata.uid}",
            "state": "being deleted" if target.metadata.deleting else "ended",
            "difference": "; ".join(unread),
            "instance": instance,
            "instance_in_force": "none" if kept.hold is None or kept.hold.instance == 0 else kept.hold.instance,
        },
    )


def _register(call: Call, target: Target, instance: int) -> Edge:
    """The edge that the hold register takes; its refusals are table `object`'s, and were raised there."""
    lifecycle = call.adapter.book.lifecycle("hold_register")
    answer = lifecycle.answer(target.hold.fact, call.operation, instance=target.hold.compare(instance))
    if not isinstance(answer, Edge):
        never(f"{answer.id} refuses what table object let pass")
    return answer


def _check_copy(call: Call, ref: ObjectRef, target: Target) -> None:
    """The runtime copy has to be there and this TrainJob's; one that nobody owns is given its owner first."""
    found = call.look(TRAINING_RUNTIMES, ref.name, seen.Runtime)
    details = {"name": ref.name}
    if found is None:
        fact, details["state"] = "absent", "gone"
    elif found.seen.metadata.deleting:
        fact, details["state"] = "deleting", "being deleted"
    elif ownership.is_owner(found.seen.metadata, target.metadata.uid):
        return
    elif ownership.unowned(found):
        failed = ownership.set_owner(
            call, ref.name, found.seen.metadata.uid, found.seen.metadata.resource_version, ref.name, target.metadata.uid
        )
        if failed is None:
            return
        if isinstance(failed, Failure):
            call.refuse(failed)
        fact, details["state"] = "other-owner", "another's by now"
        details |= failed.details
    else:
        owners = ", ".join(f"{owner.kind} {owner.name}" for owner in found.seen.metadata.owner_references)
        fact, details["state"], details["seen"] = "other-owner", "owned by another", owners
    call.settle("open", copy=fact, digest="unread", rest="unread", tries="left", details=details)


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
    settings = call.adapter.settings
    identity = names.named_identity(target.metadata)
    job = ref.name.rpartition("-")[0] if identity is None else identity.job
    attempt = (names.parse_name(ref.name) or ("", 0))[1]
    selector = names.job_selector(settings.name, job)
    jobset: seen.JobSet | None = None
    jobs: tuple[seen.Job, ...] = ()
    if looked_at_controllers:
        read = target.jobset if target.jobset_read else call.look(JOB_SETS, ref.name, seen.JobSet)
        jobset = None if read is None else read.seen
        jobs = call.list(JOBS, selector, seen.Job)
    pods = call.list(PODS, selector, seen.Pod)
    remains = resting.remains(attempt, jobset=jobset, jobs=jobs, pods=pods)
    call.settle(
        "open",
        copy="ours",
        digest="same",
        rest=remains.fact,
        tries="left",
        details={"left": tuple(map(str, remains.items))},
    )
