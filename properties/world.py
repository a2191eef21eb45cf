"""One world a schedule: a cluster on virtual time, callers on wires in memory, and whoever meddles; made in a
millisecond, decided by one seed.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from dispatch_kubeflow.backend.embedded import Cluster, KueueConfiguration
from dispatch_kubeflow.backend.embedded.kubelet import Script, ScriptedKubelet
from dispatch_kubeflow.backend.embedded.kubelet.base import Sandbox
from dispatch_kubeflow.backend.embedded.kubelet.status import ContainerState
from dispatch_kubeflow.backend.operations.adapter import Adapter, InFlight, Permissions
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.operations.gates import WRITES, Gates, Looked
from dispatch_kubeflow.backend.operations.hub import Hub
from dispatch_kubeflow.backend.requests import Door
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.machine import Context, DispatchError
from dispatch_kubeflow.machine.rules import rulebook
from dispatch_kubeflow.machine.values import JobSpec, ObjectRef, Settings

from .sockets import Sockets
from .turns import Abolished, Crash, Task, Turns, WorldClock
from .wire import Access, Actor, Exchange, Fault, Requests, Wire

NAMESPACE = "team-a"
RUNTIME = "ClusterTrainingRuntime/torch-distributed"
PREFIX = "dispatch-kubeflow.io/"
CALL_BOUND = 90.0
KINDS = {each.kind: each for each in (TRAIN_JOBS, TRAINING_RUNTIMES, JOB_SETS, JOBS, PODS, CONFIG_MAPS)}
LINES = ((0.0, "loss 0.5 " * 30), (0.0, "loss 0.4 " * 30), (0.0, "loss 0.3 " * 30))
"""What every container writes: enough for a log to be cut in the middle of it."""
Object = dict[str, Any]


@functools.cache
def settings(name: str = "gpu", read_only: bool = False) -> Settings:
    """The settings of every Backend here; checked once."""
    given = {"name": name, "namespace": NAMESPACE, "runtimes": [RUNTIME], "read_only": read_only}
    return Settings.parse({**given, "call_bound": CALL_BOUND, "stop_poll": 1.0, "request_timeout": 30.0})


@functools.cache
def job_spec(nodes: int = 2, deadline: int | None = None) -> JobSpec:
    """A job of so many nodes, with a deadline or without."""
    given = {
        "nodes": nodes,
        "command": ["train"],
        "extensions": {
            "dispatch/Image": "pytorch:2",
            "kubeflow/RuntimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
        },
    }
    return JobSpec.parse(given if deadline is None else {**given, "deadline_seconds": deadline})


@dataclass(frozen=True, slots=True)
class Start:
    """Ground truth: a container started while others of its job ran."""

    at: float
    job: str
    attempt: str
    index: str
    pod: str
    beside: tuple[tuple[str, str, str], ...]
    """Attempt, index and pod of each that ran."""
    jobset: str = ""
    """UID of the JobSet that the pod is of."""
    stopping: tuple[str, ...] = ()
    """The pods beside it that were told to stop, and still run."""


class Kubelet(ScriptedKubelet):
    """The kubelet that also tells the truth: who ran when a container started."""

    def __init__(self) -> None:
        super().__init__(Script(stop_after=0.4, lines=LINES))
        self.starts: list[Start] = []

    def started(self, sandbox: Sandbox, container: ContainerState) -> None:
        job, attempt, index = whose(sandbox.pod)
        others = [run for run in self.running() if run.uid != sandbox.uid and whose(run.pod)[0] == job]
        beside = tuple((*whose(run.pod)[1:], run.pod["metadata"]["name"]) for run in others)
        self.starts.append(
            Start(
                self.world.clock.monotonic(),
                job,
                attempt,
                index,
                sandbox.pod["metadata"]["name"],
                beside,
                jobset_of(sandbox.pod),
                tuple(run.pod["metadata"]["name"] for run in others if self._sandboxes[run.uid].stopping),
            )
        )
        super().started(sandbox, container)

    def live(self, job: str, attempt: str | None = None) -> list[str]:
        """Pods of a job whose containers really run, whatever the API says."""
        return [run.pod["metadata"]["name"] for run in self._alive(job, attempt)]

    def live_jobsets(self, job: str, attempt: str) -> set[str]:
        """UIDs of the JobSets whose containers of this attempt really run."""
        return {jobset_of(run.pod) for run in self._alive(job, attempt)}

    def _alive(self, job: str, attempt: str | None) -> list[Any]:
        return [run for run in self.running() if (of := whose(run.pod))[0] == job and attempt in (None, of[1])]


def jobset_of(pod: Object) -> str:
    """UID of the JobSet that a pod is of."""
    return str((pod["metadata"].get("labels") or {}).get("jobset.sigs.k8s.io/jobset-uid", ""))


def whose(pod: Object) -> tuple[str, str, str]:
    """Job, attempt and place of a pod, by the labels it was made with."""
    labels = pod["metadata"].get("labels") or {}
    place = (
        f"{labels.get('jobset.sigs.k8s.io/replicatedjob-name', '')}"
        f"/{labels.get('jobset.sigs.k8s.io/job-index', '')}"
        f"/{(pod['metadata'].get('annotations') or {}).get('batch.kubernetes.io/job-completion-index', '')}"
    )
    return labels.get(PREFIX + "job", ""), labels.get(PREFIX + "attempt", ""), place


class Trusting:
    """The schema of a kind, which judges what comes by the wire and believes what the cluster's own controllers write.

    They are not what is under test, and to judge each of their writes would take half of a schedule's time.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def decode(self, obj: Object, old: Object | None = None) -> list[str]:
        return self._schema.decode(obj, old) if Requests.served else []

    def default(self, obj: Object, old: Object | None = None) -> None:
        self._schema.default(obj, old)

    def validate(self, new: Object, old: Object | None, *, blocked: bool = False) -> list[Any]:
        return self._schema.validate(new, old, blocked=blocked) if Requests.served else []


@functools.cache
def _template(kueue: KueueConfiguration | None) -> Cluster:
    template = _cluster(WorldClock(), None, 0, kueue)
    for kind in template.store.kinds():
        if kind.schema is not None:
            template.store.install(replace(kind, schema=Trusting(kind.schema)))
    return template


def _cluster(clock: WorldClock, like: Cluster | None, seed: int, kueue: KueueConfiguration | None) -> Cluster:
    return Cluster(nodes=2, kubelet=Kubelet(), clock=clock, seed=seed, serve=False, kueue=kueue, like=like)


@dataclass(slots=True)
class Outcome:
    """What became of one call: a value, an error of ours, a crash, or anything else that was raised."""

    operation: str
    actor: str
    arguments: tuple[Any, ...]
    value: Any = None
    error: DispatchError | None = None
    crashed: bool = False
    strange: BaseException | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    version_before: int = 0
    timeout: float | None = None
    context_ended: str | None = None
    cancelled: bool = False

    @property
    def row(self) -> str:
        """The row that decided, or how it ended without one."""
        if self.error is not None:
            return self.error.row
        if self.crashed:
            return "crashed"
        return "success" if self.strange is None else f"strange: {self.strange!r}"

    def __str__(self) -> str:
        said = f"{self.error.sentinel} ({self.error.row}): {self.error}" if self.error else self.row
        if self.value is not None:
            said += f" {_short(self.value)}"
        return said


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 160 else f"{text[:157]}..."


class World:
    """A cluster and everybody around it. `seed` decides names, UIDs and whatever the world draws.

    `sockets`: callers reach it by these; in memory otherwise. `kueue`: how the cluster's Kueue is configured, if it has
    one.
    """

    def __init__(
        self, seed: int = 0, sockets: Sockets | None = None, *, kueue: KueueConfiguration | None = None
    ) -> None:
        template = _template(kueue)
        clock = WorldClock()
        self.clock = clock
        self.turns = clock.turns = Turns(clock)
        self.chance = random.Random(seed)
        self.cluster = _cluster(clock, template, seed, kueue)
        self.turns.cluster = self.cluster
        self.cluster.settle()
        self.kubelet: Kubelet = self.cluster.kubelet  # type: ignore[assignment] # made above
        self.wire = Wire(self.cluster.apiserver, self.turns)
        self.wire.later = self.cluster._manager.timers.after
        self.admin = self.cluster._tokens["admin"]
        self.actors: dict[str, Actor] = {}
        self.backends: dict[str, Backend] = {}
        self.outcomes: list[Outcome] = []
        self.story: list[str] = []
        self.pace = "settle"
        self.relabelled: dict[str, tuple[Resource, str, dict[str, str]]] = {}
        self.wire.before = self._between
        self.sockets = sockets
        self._calls = 0
        self._processes = 0

    def close(self) -> None:
        for backend in self.backends.values():
            backend._adapter.running.close()
        self.turns.abolish()
        if self.sockets is not None:
            self.sockets.close_pools()

    # Callers.

    def settings(self, of: str, *, read_only: bool) -> Settings:
        """The settings of a Backend of this name."""
        return settings(of, read_only)

    def backend(
        self,
        name: str = "a",
        *,
        of: str = "gpu",
        read_only: bool = False,
        lacking: bool = False,
        token: str | None = None,
    ) -> Backend:
        """A Backend in a process of its own; made anew it is another process that remembers nothing."""
        given = self.settings(of, read_only=read_only)
        self._processes += 1
        actor = self.actors[name] = Actor(name, token or self.admin, self._processes)
        access = Access(self.wire, actor) if self.sockets is None else self.sockets.access(self.wire, actor)
        door = Door(access, request_timeout=given.request_timeout, clock=self.clock)  # type: ignore[arg-type] # as much of it as a Sender uses
        gates = Gates(
            read_only=read_only,
            looked=Looked((str(WRITES[0]),)) if lacking else Looked(),
            looked_at=self.clock.monotonic(),
            queueless=True,
        )
        book = rulebook()
        adapter = Adapter(
            settings=given,
            book=book,
            clock=self.clock,
            door=door,
            permissions=Permissions(log=True, nodes=True),
            gates=gates,
            hub=Hub(door, given, self.clock, TaskDriver(self.turns, name)),
            in_flight=InFlight(book, self.clock, given.call_bound, given.mode),
        )
        backend = self.backends[name] = Backend(adapter)
        return backend

    def call(
        self,
        actor: str,
        operation: str,
        *arguments: Any,
        timeout: float | None = 120.0,
        act: Callable[[Backend, Context], Any] | None = None,
        cancelled: bool = False,
    ) -> Outcome:
        """One public call of one caller, to its end."""
        self._calls += 1
        one = self.actors[actor]
        one.call, one.operation = self._calls, operation
        # The hold family wants a deadline; so do all who do not want to wait for ever.
        ctx = (
            Context.with_timeout(timeout, clock=self.clock)
            if timeout is not None
            else Context.background(clock=self.clock)
        )
        one.ctx = ctx
        if cancelled:
            ctx.cancel()
        outcome = Outcome(operation, actor, arguments, began=self.clock.monotonic(), timeout=timeout)
        outcome.cancelled = cancelled
        outcome.version_before = self.cluster.store.resource_version
        first = len(self.wire.exchanges)
        backend = self.backends[actor]
        try:
            if act is not None:
                outcome.value = act(backend, ctx)
            else:
                outcome.value = getattr(backend, operation)(*arguments, ctx=ctx)
        except DispatchError as error:
            outcome.error = error
        except Crash:
            outcome.crashed = True
        except Abolished:
            raise
        except BaseException as error:  # noqa: BLE001 - nothing else may leave the package, so it is judged
            outcome.strange = error
        one.operation = ""
        outcome.ended = self.clock.monotonic()
        outcome.context_ended = ctx.ended
        number = one.call
        outcome.exchanges = [
            each for each in self.wire.exchanges[first:] if each.actor == actor and each.call == number
        ]
        self.outcomes.append(outcome)
        self._tell(outcome)
        if outcome.crashed:
            self.backend(actor)
        return outcome

    def _tell(self, outcome: Outcome) -> None:
        given = ", ".join(_short(each) for each in outcome.arguments if not isinstance(each, JobSpec))
        self.story.append(f"{outcome.began:8.2f} s  {outcome.actor}: {outcome.operation}({given})")
        self.story.extend(f"{'':12}{each}" for each in outcome.exchanges)
        self.story.append(f"{'':12}=> {outcome}")

    def tell(self, text: str) -> None:
        """A line of the story."""
        self.story.append(f"{self.clock.monotonic():8.2f} s  {text}")

    def concurrently(self, calls: Iterable[tuple[str, Callable[[], Any]]], choose: Callable[[Any], Any]) -> list[Task]:
        """Run calls of several callers beside each other, their requests in the order that `choose` gives."""
        tasks = [self.turns.spawn(name, work) for name, work in calls]
        self.turns.interleaved, self.turns.choose = True, choose
        try:
            self.turns.run(tasks)
        finally:
            self.turns.interleaved, self.turns.choose = False, lambda ready: ready[0]
        return tasks

    def _between(self, _: Exchange) -> None:
        """What the controllers do between two requests: all they can, or nothing."""
        if self.pace == "settle":
            self.cluster.settle()

    # Faults.

    def faulty(self, faults: dict[int, Fault]) -> None:
        """Meddle with requests by their place, counted from the next one."""
        first = len(self.wire.exchanges)
        self.wire.plan = lambda exchange: faults.get(exchange.number - first)

    def faultless(self) -> None:
        self.wire.plan = lambda _: None

    # What the cluster knows.

    def get(self, resource: Resource, name: str) -> Object | None:
        return self.cluster.get(resource, name, NAMESPACE if resource.namespaced else None)

    def of_job(self, resource: Resource, job: str) -> list[Object]:
        """Objects that carry the labels of a job."""
        states = self.cluster.store.states(resource, NAMESPACE)
        return [each.obj for each in states if label(each.obj, "job") == job]

    def ref(self, obj: Object, of: str = "gpu") -> ObjectRef:
        meta = obj["metadata"]
        return ObjectRef(of, NAMESPACE, obj["kind"], meta["name"], meta["uid"])

    def relabel(self, resource: Resource, name: str, **labels: str | None) -> None:
        """A user edits labels of ours by hand; what they were is remembered for `put_right`."""
        obj = self.get(resource, name)
        assert obj is not None
        was = {key: value for key, value in (obj["metadata"].get("labels") or {}).items() if key.startswith(PREFIX)}
        self.cluster.patch(
            resource, name, {"metadata": {"labels": {PREFIX + key: value for key, value in labels.items()}}}, NAMESPACE
        )
        self.relabelled.setdefault(obj["metadata"]["uid"], (resource, name, was))

    def put_right(self) -> None:
        """The user takes the edits of labels back."""
        for uid, (resource, name, labels) in self.relabelled.items():
            obj = self.get(resource, name)
            if obj is not None and obj["metadata"]["uid"] == uid:
                self.cluster.patch(resource, name, {"metadata": {"labels": labels}}, NAMESPACE)
        self.relabelled.clear()

    def advance(self, seconds: float) -> None:
        """Let time pass for everybody."""
        self.turns.sleep(seconds)
        self.cluster.settle()


def label(obj: Object, key: str) -> str | None:
    return (obj["metadata"].get("labels") or {}).get(PREFIX + key)


def annotation(obj: Object, key: str) -> str | None:
    return (obj["metadata"].get("annotations") or {}).get(PREFIX + key)


class TaskDriver:
    """The streams of a watch, each a task that has its turn when there is something for it."""

    def __init__(self, turns: Turns, actor: str) -> None:
        self._turns = turns
        self._actor = actor
        self._tasks: dict[Any, Task] = {}

    def start(self, steps: Any) -> None:
        def work() -> None:
            while steps.step():
                pass

        self._tasks[steps] = self._turns.spawn(f"{self._actor} {steps.name}", work, background=True)

    def wait(self, event: Any, timeout: float | None) -> None:
        until = None if timeout is None else self._turns.clock.monotonic() + timeout
        self._turns.park(event.is_set, until)

    def join(self, steps: Iterable[Any]) -> None:
        tasks = [task for each in steps if (task := self._tasks.get(each)) is not None]
        self._turns.park(lambda: all(task.done for task in tasks), None)
