"""The Backend: every call of the contract's section 3, taken through the stages of its section 4 in their order.

Stage 1 asks the Backend itself, stage 2 what the caller gave, stage 3 what is supported, stage 4 the context; only then
does a call send anything. Iterators pass these stages when they are made, not when they are first asked for an item.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from dispatch_kubeflow.backend.objects.found import Capabilities, Capability, Cessation, Found
from dispatch_kubeflow.backend.objects.names import Identity, object_name
from dispatch_kubeflow.machine import Clock, Context, DispatchError, SystemClock
from dispatch_kubeflow.machine.identifiers import (
    check_attempt,
    check_context,
    check_instance,
    check_job_id,
    check_stream,
    check_tail,
)
from dispatch_kubeflow.machine.inputs import shown
from dispatch_kubeflow.machine.references import check_reference
from dispatch_kubeflow.machine.values import JobSpec, ObjectRef, Settings, Stream

from . import ceased, factory, find, hold_family, output, start, stop, stop_job, watch
from .adapter import Adapter
from .call import Call, running

T = TypeVar("T")
SpecLike = JobSpec | Mapping[str, Any] | str | os.PathLike[str]
RefLike = ObjectRef | str


def make_backend(
    settings: Settings | Mapping[str, Any] | str | os.PathLike[str],
    *,
    ctx: Context | None = None,
    clock: Clock | None = None,
) -> Backend:
    """Connect to a cluster and show that it and this user can keep what a Backend promises (the page's Factory).

    `settings`: a Settings, a mapping, or the path of a YAML file. ErrInvalid (C7, C8), ErrUnsupported (C13, C14),
    ErrUnauthorized (C15, A1, A5), ErrUnreachable (A9, A11).
    """
    if clock is None:
        clock = SystemClock() if not isinstance(ctx, Context) else ctx.clock
    if ctx is None:
        ctx = Context.background(clock=clock)
    check_context(ctx, operation="factory")
    return Backend(factory.connect(Settings.parse(settings), ctx.child(), clock))


class Backend:
    """One Backend of one namespace. Thread-safe; not to be used across a fork. Closed by `close` or by `with`.

    Every call takes `ctx`, a Context whose end it honours inside each request, within 50 ms. Every error is a
    DispatchError whose `row` is the rule that decided it.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    @property
    def name(self) -> str:
        """The Backend's name, as every reference to an object of its carries it."""
        return self._adapter.settings.name

    @property
    def settings(self) -> Settings:
        """The settings it was made with."""
        return self._adapter.settings

    # Calls of the contract, in its order.

    def capabilities(self, spec: SpecLike | None = None, *, ctx: Context | None = None) -> Capabilities:
        """What this Backend can do: hold, read output, show that pods have ceased; each yes, or no with a reason.

        Without a specification nothing is sent. With one, its limits, its extensions and its runtime are checked as
        Start would: ErrInvalid (C9), ErrUnsupported (C10, C11, C12).
        """

        def prepare() -> JobSpec | None:
            if spec is None:
                return None
            return self._checked_spec("capabilities", spec, None)

        with self._call("capabilities", ctx, prepare) as (call, checked):
            if checked is not None:
                start.read_source(call, checked, None)
            return self._capabilities()

    def start(self, job_id: str, attempt: int, spec: SpecLike, *, ctx: Context | None = None) -> ObjectRef:
        """Create the TrainJob of an attempt, gated: provably not running until it is opened. Contract section 6.

        A refused attempt is an ErrInvalid, ErrUnsupported or ErrRejected; after any other error its outcome is unknown
        (table S, `record_start`), and Find tells.
        """

        def prepare() -> tuple[Identity, JobSpec]:
            job = check_job_id(job_id, operation="start")
            number = check_attempt(attempt, operation="start")
            checked = self._checked_spec("start", spec, object_name(job, number))
            return Identity(self.name, job, number), checked

        subject = f"{_subject(job_id)}-{_subject(attempt)}"
        with self._call("start", ctx, prepare, subject=subject) as (call, (identity, checked)):
            return start.start(call, identity, checked)

    def find(self, job_id: str, *, ctx: Context | None = None) -> Found:
        """What there is of a job now: its TrainJobs, its orphans, and what is in flight here. Never writes."""

        def prepare() -> str:
            return check_job_id(job_id, operation="find")

        with self._call("find", ctx, prepare, subject=_subject(job_id)) as (call, job):
            return find.find(call, job)

    def watch(self, job_id: str, *, ctx: Context | None = None) -> Iterator[Found]:
        """What there is of a job, the first view at once, then whenever it changes; each a consistent view.

        It never ends by itself: the end of its context, or close, raises ErrUnreachable.
        """

        def prepare() -> str:
            return check_job_id(job_id, operation="watch")

        call, job = self._begin("watch", ctx, prepare, subject=_subject(job_id))
        return _iterate(call, watch.watch(call, job))

    def open(self, ref: RefLike, *, ctx: Context | None = None) -> None:
        """Lift the gate, for ever; with no hold in force the job runs. ErrRejected (C21, C22), ErrPodsRemain (C25)."""
        with self._hold_family("open", ref, ctx) as (call, target):
            hold_family.open_(call, target)

    def hold(self, ref: RefLike, instance: int, *, ctx: Context | None = None) -> None:
        """Stop the job under an instance number, from 1. ErrStaleHold (C24), ErrRejected (C23)."""
        with self._hold_family("hold", ref, ctx, instance) as (call, target):
            hold_family.hold(call, target, instance)

    def release(self, ref: RefLike, instance: int, *, ctx: Context | None = None) -> None:
        """End the hold of that instance. ErrStaleHold (C24) if it is not in force, ErrPodsRemain (C25): call again."""
        with self._hold_family("release", ref, ctx, instance) as (call, target):
            hold_family.release(call, target, instance)

    def stop(self, ref: RefLike, *, ctx: Context | None = None) -> None:
        """Delete one object by its UID. One that is gone already, or whose name is another's, is a success (C38)."""

        def prepare() -> ObjectRef:
            return self._reference("stop", ref)

        with self._call("stop", ctx, prepare, subject=_subject(ref)) as (call, target):
            stop.stop(call, target)

    def stop_job(self, job_id: str, *, ctx: Context | None = None) -> None:
        """Delete all of a job and see it gone. ErrUnreachable (C40) if the context ends before that."""

        def prepare() -> str:
            return check_job_id(job_id, operation="stop_job")

        with self._call("stop_job", ctx, prepare, subject=_subject(job_id)) as (call, job):
            stop_job.stop_job(call, job)

    def output(
        self,
        job_id: str,
        stream: Stream = Stream.STDOUT,
        *,
        tail: int | None = None,
        follow: bool = False,
        ctx: Context | None = None,
    ) -> Iterator[bytes]:
        """The lines of the newest rank 0 pod of the highest attempt, without their line ends.

        `tail`: only so many of the last lines. `follow`: go on as lines are written. ErrUnsupported (C34, C35),
        ErrNotFound (C36); ErrUnreachable after the lines it gave, where the stream was cut.
        """

        def prepare() -> str:
            job = check_job_id(job_id, operation="output")
            chosen = check_stream(stream, operation="output")
            check_tail(tail, operation="output")
            if chosen is Stream.STDERR:
                self._support("output", "stderr")
            capability = self._capabilities().output_read
            if not capability:
                self._support("output", "output-capability", capability=capability.reason)
            return job

        call, job = self._begin("output", ctx, prepare, subject=_subject(job_id))
        return _iterate(call, output.output(call, job, tail=tail, follow=bool(follow)))

    def ceased(self, ref: RefLike, *, ctx: Context | None = None) -> Cessation:
        """Whether everything of an object has provably stopped, with the evidence for each pod; never a bare yes."""

        def prepare() -> ObjectRef:
            target = self._checked_reference("ceased", ref)
            capability = self._capabilities().ceased
            if not capability:
                self._support("ceased", "ceased-capability", capability=capability.reason)
            return self._in_namespace("ceased", target)

        with self._call("ceased", ctx, prepare, subject=_subject(ref)) as (call, target):
            return ceased.ceased(call, target)

    def close(self) -> None:
        """End the Backend: running calls are cancelled, later ones are ErrUnreachable (C1). Again: no error."""
        if self._adapter.running.life == "forked":
            return
        if self._adapter.running.close():
            self._adapter.hub.close()
            self._adapter.door.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The stages.

    def _begin(
        self,
        operation: str,
        ctx: Context | None,
        prepare: Callable[[], T],
        *,
        subject: str | None = None,
    ) -> tuple[Call, T]:
        """Take a call through stages 1 to 4; what `prepare` made of its arguments."""
        adapter = self._adapter
        given = Context.background(clock=adapter.clock) if ctx is None else ctx
        stands = self._stands(operation)
        look_again = not stands and self._worth_a_look()
        if not stands and not look_again:
            self._settle_standing(operation, subject)
        try:
            # Stages 2 and 3; their own order is in `prepare`.
            check_context(given, operation=operation)
            prepared = prepare()
            call = Call(adapter, operation, given.child(), subject)
            call.check_context()
        except DispatchError:
            if look_again:
                # Stage 1 comes first; it was put off only to see whether this call is worth a look at the gates.
                self._settle_standing(operation, subject)
            raise
        if look_again:
            adapter.gates.look_again(call)
            self._settle_standing(operation, subject)
        if operation in ("open", "hold", "release") and adapter.gates.owes_dry_run:
            # Factory skipped it for a Backend that could not write; Start makes up for it with its own runtime (C14).
            factory.ensure_queueless(call)
        return call, prepared

    @contextmanager
    def _call(
        self,
        operation: str,
        ctx: Context | None,
        prepare: Callable[[], T],
        *,
        subject: str | None = None,
    ) -> Iterator[tuple[Call, T]]:
        call, prepared = self._begin(operation, ctx, prepare, subject=subject)
        with running(call):
            yield call, prepared

    @contextmanager
    def _hold_family(
        self, operation: str, ref: RefLike, ctx: Context | None, instance: int | None = None
    ) -> Iterator[tuple[Call, ObjectRef]]:
        def prepare() -> ObjectRef:
            if operation != "open":
                check_instance(instance, operation=operation)
            target = self._checked_reference(operation, ref)
            capability = self._capabilities().hold
            if operation != "open" and not capability:
                self._support(operation, "hold-capability", capability=capability.reason)
            self._in_namespace(operation, target)
            if target.kind != "TrainJob":
                self._support(operation, "orphan", subject=str(target))
            return target

        with self._call(operation, ctx, prepare, subject=_subject(ref)) as entered:
            yield entered

    def _worth_a_look(self) -> bool:
        """Whether a look at the gates could lift a refusal of stage 1, and it is this call's turn to look."""
        adapter = self._adapter
        return adapter.running.life == "open" and adapter.gates.take_turn(adapter.clock.monotonic())

    def _stands(self, operation: str) -> bool:
        facts = self._standing()
        rule = self._adapter.book.decide("backend", operation=operation, mode=self.settings.mode, **facts)
        return rule.sentinel == "none"

    def _settle_standing(self, operation: str, subject: str | None) -> None:
        self._adapter.book.settle(
            "backend",
            operation=operation,
            mode=self.settings.mode,
            facts=self._standing(),
            subject=subject,
            details={"missing_gate": self._adapter.gates.missing},
        )

    def _standing(self) -> dict[str, str]:
        return {"life": self._adapter.running.life, "access": self._adapter.gates.access}

    def _support(self, operation: str, problem: str, *, subject: str | None = None, **details: object) -> None:
        self._adapter.book.settle(
            "support",
            operation=operation,
            mode=self.settings.mode,
            facts={"problem": problem},
            subject=subject,
            details=details,
        )

    # What callers give.

    def _checked_spec(self, operation: str, spec: SpecLike, name: str | None) -> JobSpec:
        checked = JobSpec.parse(spec, operation=operation)
        checked.check(operation=operation, object_name=name)
        checked.check_support(operation=operation, mode=self.settings.mode)
        runtime = checked.runtime
        if runtime not in self.settings.runtimes:
            allowed = ", ".join(map(str, self.settings.runtimes))
            self._support(
                operation, "runtime-not-allowed", subject=str(runtime), value=str(runtime), rule=f"allowed: {allowed}"
            )
        return checked

    def _reference(self, operation: str, ref: RefLike) -> ObjectRef:
        return self._in_namespace(operation, self._checked_reference(operation, ref))

    def _checked_reference(self, operation: str, ref: RefLike) -> ObjectRef:
        return check_reference(ref, backend=self.name, operation=operation)

    def _in_namespace(self, operation: str, ref: ObjectRef) -> ObjectRef:
        if ref.namespace != self.settings.namespace:
            self._support(operation, "namespace", subject=_subject(ref), value=self.settings.namespace)
        return ref

    def _capabilities(self) -> Capabilities:
        settings, permissions = self.settings, self._adapter.permissions
        if not settings.output_read:
            output_read = Capability("no", "the settings say output_read: false")
        elif not permissions.log:
            output_read = Capability("no", "this user may not get pods/log")
        else:
            output_read = Capability("yes", "this user may get pods/log")
        if permissions.nodes:
            nodes = Capability("yes", "this user may get nodes")
        else:
            nodes = Capability("no", "this user may not get nodes")
        return Capabilities(hold=self._hold_capability(), output_read=output_read, ceased=nodes)

    def _hold_capability(self) -> Capability:
        gates = self._adapter.gates
        match gates.access:
            case "read-write" if gates.no_hold is not None:
                return Capability("no", gates.no_hold)
            case "read-write":
                return Capability("yes", "this Backend may write")
            case "read-only":
                return Capability("no", "the Backend is read-only")
            case "observe-only":
                return Capability("no", f"the Backend only observes, for it lacks {gates.missing}")


def _subject(value: object) -> str:
    """What a call is about, as its errors name it: whatever the caller gave, before it was found to be valid."""
    return value if isinstance(value, str) else str(value) if isinstance(value, ObjectRef) else shown(value)


def _iterate(call: Call, items: Iterator[T]) -> Iterator[T]:
    """The items of a call that runs for as long as they are asked for."""
    with running(call), closing(items):  # type: ignore[type-var] # every iterator here is a generator
        yield from items
