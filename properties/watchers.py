"""A watch is as if there had been one stream that never broke: whatever is cut, compacted or delayed on the way, its
views only move on, and the last one shows what there is.
"""

from __future__ import annotations

from random import Random
from typing import Any

from dispatch_kubeflow.backend.requests.resources import PODS, TRAIN_JOBS
from dispatch_kubeflow.machine.values import ObjectRef

from .exhaustive import opened, started
from .story import Broken, not_back
from .wire import Fault
from .world import NAMESPACE, World

FAULTS = (
    Fault("refused"),
    Fault("lost"),
    Fault("cut", share=0.5),
    Fault("garbled", share=0.5),
    Fault("answer", 500),
    Fault("answer", 429),
    Fault("slow", seconds=3.0),
)


class Watched:
    """One schedule of a watcher, with changes, broken streams and a history that is forgotten meanwhile."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.world = World(seed)
        self.world.backend("a")
        self.ref: ObjectRef = self.chance.choice((started, opened))(self.world)
        self.world.backend("w")
        self.views: list[Any] = []
        self.error: BaseException | None = None
        self._over = False

    def run(self) -> None:
        """Play, and compare the last view with what there is."""
        world = self.world
        watcher = world.turns.spawn("w", self._watch)
        world.turns.catch_up()
        world.advance(1.0)
        for _ in range(self.chance.randint(3, 8)):
            self._happens()
            world.advance(self.chance.choice((0.0, 0.3, 2.0, 8.0)))
        world.faultless()
        self._cut()
        world.advance(30.0)
        last = self.views[-1] if self.views else None
        self._over = True
        world.actors["w"].ctx.cancel()  # type: ignore[union-attr] # the watch has begun
        world.turns.run([watcher])
        if self.error is not None:
            raise self.error
        self._compare(last)

    def _watch(self) -> None:
        def act(backend: Any, ctx: Any) -> None:
            for view in backend.watch("job", ctx=ctx):
                if self.views:
                    not_back(self.views[-1], view)
                self.views.append(view)

        outcome = self.world.call("w", "watch", "job", timeout=None, act=act)
        if outcome.strange is not None:
            self.error = outcome.strange
        elif outcome.row != "read.stopped-watching" or not self._over:
            self.error = Broken(f"the watch ended: {outcome}")

    def _happens(self) -> None:
        world = self.world
        match self.chance.choice(("call", "call", "touch", "cut", "cut", "faults", "finish", "gone")):
            case "call":
                what = self.chance.choice(("open", "hold", "release", "stop"))
                more = (1,) if what in ("hold", "release") else ()
                world.call("a", what, self.ref, *more)
            case "touch":
                if world.get(TRAIN_JOBS, self.ref.name) is not None:
                    world.cluster.patch(TRAIN_JOBS, self.ref.name, {"metadata": {"annotations": {"n": "1"}}}, NAMESPACE)
            case "cut":
                self._cut()
            case "faults":
                world.wire.plan = self._plan
            case "finish":
                for pod in world.of_job(PODS, "job"):
                    world.kubelet.end(pod["metadata"]["uid"], 1)
            case _:
                # What nobody is told of: streams are cut, things change, and the history of it is forgotten.
                self._cut()
                world.call("a", "stop", self.ref)
                world.cluster.store.compact()

    def _plan(self, exchange: Any) -> Fault | None:
        faulty = exchange.actor == "w" and exchange.number > 20 and self.chance.random() < 0.15
        return self.chance.choice(FAULTS) if faulty else None

    def _cut(self) -> None:
        """Every open stream of the watcher ends in the middle."""
        for sock in list(self.world.wire.streams):
            sock.break_off()

    def _compare(self, last: Any) -> None:
        found = self.world.call("a", "find", "job").value
        seen = {} if last is None else {each.ref.uid: each for each in last.objects}
        there = {each.ref.uid: each for each in found.objects}
        if seen.keys() != there.keys():
            raise Broken(f"the last view shows {sorted(seen)}, and there is {sorted(there)}")
        for uid, each in there.items():
            if (seen[uid].state, seen[uid].hold_register) != (each.state, each.hold_register):
                raise Broken(f"the last view shows {seen[uid]}, and there is {each}")

    def close(self) -> None:
        self.world.close()
