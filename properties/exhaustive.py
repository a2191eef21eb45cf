"""Every single fault at every request of every operation, with the truth about each; then the recovery that the
contract promises: another process, Find, `call_bound`, and calls that lead to nothing left.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dispatch_kubeflow.backend.embedded.kubelet import Script
from dispatch_kubeflow.backend.requests.resources import JOB_SETS, PODS, TRAIN_JOBS, TRAINING_RUNTIMES
from dispatch_kubeflow.machine.values import ObjectRef

from . import truth
from .expect import remember_created, terminal
from .sockets import Sockets
from .wire import Fault
from .world import CALL_BOUND, NAMESPACE, Outcome, World, job_spec

SINGLE: tuple[Fault, ...] = (
    Fault("refused"),
    Fault("unresolved"),
    Fault("tls"),
    Fault("token"),
    Fault("slow-dial", seconds=10.0),
    Fault("slow-dial", seconds=31.0),
    Fault("slow-dial", seconds=500.0),
    Fault("cancel-dial"),
    Fault("stale"),
    Fault("reset-first"),
    Fault("reset-half"),
    Fault("drop"),
    Fault("lost"),
    Fault("late", seconds=0.0),
    Fault("late", seconds=20.0),
    Fault("late", seconds=59.0),
    Fault("cut", share=0.0),
    Fault("cut", share=0.05),
    Fault("cut", share=0.9),
    Fault("garbled", share=0.0),
    Fault("garbled", share=0.5),
    Fault("slow", seconds=5.0),
    Fault("slow", seconds=31.0),
    Fault("slow", seconds=500.0),
    Fault("cancel"),
    Fault("kind"),
    Fault("crash-before"),
    Fault("crash-lost"),
    Fault("crash-after"),
    *(Fault("answer", status) for status in (400, 401, 405, 406, 413, 415)),
    *(Fault("answer", status) for status in (302, 402, 408, 418)),
    *(Fault("answer", status) for status in (429, 500, 502, 503, 504)),
    Fault("answer", 400, webhook=True),
    Fault("answer", 403, "Forbidden"),
    Fault("answer", 403, "Forbidden", webhook=True),
    Fault("answer", 404, "NotFound", named=True),
    Fault("answer", 404, "NotFound", named=False),
    Fault("answer", 409, "AlreadyExists"),
    Fault("answer", 409, "Conflict"),
    Fault("answer", 409),
    Fault("answer", 410, "Expired"),
    Fault("answer", 422, "Invalid"),
    Fault("rewritten", 500),
    Fault("rewritten", 504),
    Fault("rewritten", 429),
)
PAIRED: tuple[Fault, ...] = (
    Fault("refused"),
    Fault("drop"),
    Fault("lost"),
    Fault("late", seconds=20.0),
    Fault("slow-dial", seconds=500.0),
    Fault("cancel"),
    Fault("answer", 500),
    Fault("rewritten", 504),
    Fault("answer", 403, "Forbidden"),
    Fault("answer", 404, "NotFound", named=False),
    Fault("answer", 409, "Conflict"),
    Fault("answer", 410, "Expired"),
    Fault("crash-before"),
    Fault("crash-after"),
)
ROUNDS = 14
"""Requests after which a call that waits has begun to repeat itself: StopJob's rounds are alike."""
LYING = frozenset({404})
"""Statuses that, made up by somebody in between, say what the cluster does not: an absence. They are believed."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A state of the cluster, and one call on it. `new`: after so many requests it goes on as another scene does, and
    before them it differs from that one in what the gravest faults tell.
    """

    name: str
    set_up: Callable[[World], Any]
    call: Callable[[World, Any], Outcome]
    new: int | None = None


def started(world: World, attempt: int = 1) -> ObjectRef:
    """A gated TrainJob."""
    outcome = world.call("a", "start", "job", attempt, job_spec(1))
    assert outcome.error is None, outcome
    ref: ObjectRef = outcome.value
    created = world.get(TRAIN_JOBS, ref.name)
    assert created is not None
    remember_created(created)
    return ref


def opened(world: World) -> ObjectRef:
    ref = started(world)
    outcome = world.call("a", "open", ref)
    assert outcome.error is None, outcome
    world.advance(3)
    assert world.kubelet.live("job")
    return ref


def held(world: World) -> ObjectRef:
    ref = opened(world)
    outcome = world.call("a", "hold", ref, 5)
    assert outcome.error is None, outcome
    world.advance(5)
    assert not world.kubelet.live("job")
    return ref


def ended(world: World) -> ObjectRef:
    ref = opened(world)
    for pod in world.of_job(PODS, "job"):
        world.kubelet.end(pod["metadata"]["uid"], 0)
    world.advance(3)
    return ref


def orphaned(world: World) -> ObjectRef:
    """A JobSet whose TrainJob is gone."""
    ref = opened(world)
    world.cluster.delete(TRAIN_JOBS, ref.name, NAMESPACE, propagation="Orphan")
    world.advance(3)
    jobset = world.get(JOB_SETS, ref.name)
    assert jobset is not None
    return world.ref(jobset)


def copy_left(world: World) -> None:
    """The copy of a Start whose create was never answered, and never arrived."""
    world.faulty({4: Fault("drop")})
    outcome = world.call("a", "start", "job", 1, job_spec(1))
    world.faultless()
    assert outcome.row == "start.create-unanswered", outcome
    assert world.get(TRAINING_RUNTIMES, "job-1") is not None


def unowned(world: World) -> ObjectRef:
    """A TrainJob found after a Start whose answer was lost: its copy has no owner yet."""
    world.faulty({4: Fault("lost")})
    outcome = world.call("a", "start", "job", 1, job_spec(1))
    world.faultless()
    assert outcome.row == "start.create-unanswered", outcome
    created = world.get(TRAIN_JOBS, "job-1")
    assert created is not None
    remember_created(created)
    return world.ref(created)


def held_at_its_end(world: World) -> ObjectRef:
    """Held just after its containers had ended, and before anybody said so: a job that has ended, with a hold."""
    ref = opened(world)
    world.cluster.controllers["trainer"].lag = 5.0
    for pod in world.of_job(PODS, "job"):
        world.kubelet.end(pod["metadata"]["uid"], 0)
    world.advance(1.0)
    outcome = world.call("a", "hold", ref, 5)
    assert outcome.error is None, outcome
    world.cluster.controllers["trainer"].lag = 0.0
    world.advance(10.0)
    assert terminal(world.get(TRAIN_JOBS, ref.name) or {}) is not None
    return ref


def foreign_end(world: World) -> ObjectRef:
    """A TrainJob that shows the end of a JobSet that is not its own: an orphan's, of its name."""
    ref = opened(world)
    saved = world.get(TRAIN_JOBS, ref.name)
    assert saved is not None
    world.cluster.delete(TRAIN_JOBS, ref.name, NAMESPACE, propagation="Orphan")
    world.advance(1.0)
    for pod in world.of_job(PODS, "job"):
        world.kubelet.end(pod["metadata"]["uid"], 0)
    world.advance(2.0)
    meta = {key: saved["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    world.cluster.create(TRAIN_JOBS, {"metadata": meta, "spec": saved["spec"]}, NAMESPACE)
    world.advance(2.0)
    again = world.get(TRAIN_JOBS, ref.name)
    assert again is not None
    assert terminal(again) is not None
    return world.ref(again)


def stale_owner(world: World) -> ObjectRef:
    """A copy whose owner has the name of the TrainJob and another UID; the collector has not seen it yet."""
    ref = started(world)
    world.cluster.controllers["collector"].down = True
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": ref.name, "uid": "0-stale"}
    world.cluster.patch(TRAINING_RUNTIMES, ref.name, {"metadata": {"ownerReferences": [owner]}}, NAMESPACE)
    return ref


def two_attempts(world: World) -> ObjectRef:
    """A second attempt, gated, while the first one runs."""
    opened(world)
    return started(world, 2)


def after_an_end(world: World) -> ObjectRef:
    """A second attempt, gated, while the pods of the first one lie there, ended."""
    ended(world)
    return started(world, 2)


def relabelled(world: World) -> None:
    """A running TrainJob whose backend label a user has taken off."""
    world.relabel(TRAIN_JOBS, opened(world).name, backend=None)


def unlabelled(world: World) -> None:
    """A JobSet whose TrainJob is gone and whose labels a user has taken off; its Job and pods have theirs."""
    world.relabel(JOB_SETS, orphaned(world).name, backend=None, job=None)


def foreground(world: World) -> ObjectRef:
    """A TrainJob that a user deletes in the foreground: its copy went first, and so the deletion can never end."""
    ref = opened(world)
    world.cluster.delete(TRAIN_JOBS, ref.name, NAMESPACE, propagation="Foreground")
    world.advance(30.0)
    assert world.get(TRAIN_JOBS, ref.name) is not None
    return ref


def old_pods(world: World) -> ObjectRef:
    """Held, and its JobSet made anew, while a pod of the old one does not end."""
    ref = opened(world)
    world.kubelet.plan = Script(stop_after=None, hang=True)
    world.kubelet._scripts = {key: Script(hang=True) for key in world.kubelet._scripts}
    outcome = world.call("a", "hold", ref, 5)
    assert outcome.error is None, outcome
    world.advance(1.0)
    world.cluster.delete(JOB_SETS, ref.name, NAMESPACE, propagation="Background")
    world.advance(3.0)
    assert world.kubelet.live("job")
    return ref


def let_go(world: World) -> None:
    """Whatever hangs may end."""
    world.cluster.controllers["collector"].down = False
    for run in list(world.kubelet.running()):
        world.kubelet.unhang(run.uid)


def _nothing(_: World) -> None:
    return None


def _call(operation: str, *more: Any) -> Callable[[World, Any], Outcome]:
    return lambda world, ref: world.call("a", operation, ref, *more)


def _job(operation: str) -> Callable[[World, Any], Outcome]:
    return lambda world, _: world.call("a", operation, "job")


def _output(world: World, _: Any) -> Outcome:
    return world.call("a", "output", "job", act=lambda backend, ctx: list(backend.output("job", ctx=ctx)))


def _watch_once(world: World, _: Any) -> Outcome:
    def act(backend: Any, ctx: Any) -> Any:
        views = backend.watch("job", ctx=ctx)
        try:
            return next(views)
        finally:
            views.close()

    return world.call("a", "watch", "job", act=act)


SCENES: tuple[Scene, ...] = (
    Scene("start", _nothing, lambda world, _: world.call("a", "start", "job", 1, job_spec(1))),
    Scene("start again", copy_left, lambda world, _: world.call("a", "start", "job", 1, job_spec(1))),
    Scene("start over a TrainJob", started, lambda world, _: world.call("a", "start", "job", 1, job_spec(1))),
    Scene("start over an orphan", orphaned, lambda world, _: world.call("a", "start", "job", 1, job_spec(1))),
    Scene("open", started, _call("open")),
    Scene("open found", unowned, _call("open")),
    Scene("open again", opened, _call("open")),
    Scene("open ended", ended, _call("open")),
    Scene("hold gated", started, _call("hold", 1)),
    Scene("hold", opened, _call("hold", 1)),
    Scene("hold stale", held, _call("hold", 4)),
    Scene("hold ended", ended, _call("hold", 1)),
    Scene("release", held, _call("release", 5)),
    Scene("release stale", held, _call("release", 4)),
    Scene("release unheld", opened, _call("release", 1)),
    Scene("release ended", held_at_its_end, _call("release", 5)),
    Scene("hold beside a foreign end", foreign_end, _call("hold", 5)),
    Scene("open with a stale owner", stale_owner, _call("open")),
    Scene("open beside a running attempt", two_attempts, _call("open")),
    Scene("open beside an ended attempt", after_an_end, _call("open")),
    Scene("release beside old pods", old_pods, _call("release", 5)),
    Scene("stop gated", started, _call("stop")),
    Scene("stop", opened, _call("stop")),
    Scene("stop found", unowned, _call("stop")),
    Scene("stop an orphan", orphaned, _call("stop")),
    Scene("stop_job", opened, _job("stop_job")),
    Scene("stop_job of an orphan", orphaned, _job("stop_job")),
    Scene("stop_job of a relabelled TrainJob", relabelled, _job("stop_job")),
    Scene("stop_job of an unlabelled orphan", unlabelled, _job("stop_job"), new=7),
    Scene("stop a foreground deletion", foreground, _call("stop")),
    Scene("stop_job of a foreground deletion", foreground, _job("stop_job"), new=6),
    Scene("find", opened, _job("find")),
    Scene("find an orphan", orphaned, _job("find")),
    Scene("output", opened, _output),
    Scene("ceased", opened, _call("ceased")),
    Scene("watch", opened, _watch_once),
)


def run(scene: Scene, faults: dict[int, Fault], seed: int = 0, on: Sockets | None = None) -> tuple[World, Outcome]:
    """The scene's call with these faults, by the place of the request; in memory, or on sockets."""
    world = World(seed, on)
    world.backend("a")
    ref = scene.set_up(world)
    world.faulty(faults)
    outcome = scene.call(world, ref)
    world.faultless()
    return world, outcome


@functools.cache
def requests(scene: Scene) -> int:
    """How many requests its call makes when all goes well."""
    world, outcome = run(scene, {})
    world.close()
    return len(outcome.exchanges)


def singles(scene: Scene) -> Iterator[dict[int, Fault]]:
    """Every single fault at every request; where a call looks again and again, later rounds have the gravest alone."""
    for place in range(requests(scene) if scene.new is None else scene.new):
        for fault in SINGLE if place < ROUNDS and scene.new is None else PAIRED:
            yield {place: fault}


Group = tuple[Scene, int, Fault]


def groups() -> list[Group]:
    """All first faults, each the head of its pairs, in an order that stays: a long run is cut and taken up by them."""
    return [
        (scene, place, fault)
        for scene in SCENES
        for place in range(requests(scene) if scene.new is None else scene.new)
        for fault in PAIRED
    ]


def pairs(group: Group) -> Iterator[dict[int, Fault]]:
    """Every second fault at a request that still comes after the first one.

    Where the first ends the call there is none, and where a request does not come the pair is that single fault: both
    are cut. What StopJob's later rounds ask is what its first ones did, so a call that waits is cut four requests after
    its usual end.
    """
    scene, place, fault = group
    world, outcome = run(scene, {place: fault})
    world.close()
    for second in range(place + 1, min(len(outcome.exchanges), requests(scene) + 4)):
        for other in PAIRED:
            yield {place: fault, second: other}


def check(scene: Scene, faults: dict[int, Fault], matrix: truth.Matrix) -> Outcome:
    """Judge one case: the outcome, then what holds once late requests have arrived, then the way out."""
    world, outcome = run(scene, faults)
    try:
        lying = any(fault.kind == "answer" and fault.status in LYING for fault in faults.values())
        if lying:
            truth.judge_said(outcome)
        else:
            truth.judge(world, outcome)
        truth.note(world, outcome, matrix)
        recover(world)
        truth.settled(world, outcome)
    except AssertionError as error:
        story = "\n".join(world.story)
        said = ", ".join(f"{place}: {fault}" for place, fault in faults.items())
        raise type(error)(f"{scene.name} with {said}: {error}\n{story}") from error
    finally:
        world.close()
    return outcome


def recover(world: World) -> None:
    """No state is a dead end: another process finds what there is, waits for what may come, and stops it all."""
    let_go(world)
    world.put_right()
    world.backend("b")
    world.advance(CALL_BOUND)
    found = world.call("b", "find", "job")
    truth.judge(world, found)
    stopped = world.call("b", "stop_job", "job", timeout=600)
    truth.judge(world, stopped)
    if stopped.error is not None:
        raise truth.Lie(f"nothing leads on from here: {stopped}")
    left = world.call("b", "find", "job")
    truth.judge(world, left)
    if left.value.objects:
        raise truth.Lie(f"stop_job left {left.value.objects}")
