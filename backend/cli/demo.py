"""To believe what the library promises one wants to see it: a real job through its whole life, then a create whose
answer is lost. Everything that is told is checked, so that the demonstration cannot tell a tale.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from ruamel.yaml import YAML

from dispatch_kubeflow.backend import JobSpec, ObjectRef, factory
from dispatch_kubeflow.backend.embedded import Cluster
from dispatch_kubeflow.backend.embedded.apiserver import Received
from dispatch_kubeflow.backend.objects.found import Found, FoundObject
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS
from dispatch_kubeflow.machine import Context, DispatchError, ErrOutcomeUnknown, ErrPodsRemain, ErrStaleHold

from .exits import Exit, Refusal
from .lossy import LossyProxy
from .output import OutputFollower
from .seen import hold_and_pods, object_line
from .terminal import Terminal

NAMESPACE = "default"
PATIENCE = 30.0  # seconds for any one thing to happen; each takes a second or two


def show(terminal: Terminal, mode: str = "plain") -> int:
    """Play the demonstration of a mode. Returns 0; a Refusal with code 1 says where it differed from what it tells."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dispatch-kubeflow-demo-") as folder, _path_to_this_python():
        stage = Stage(terminal, Path(folder))
        if mode == "kueue":
            from .demo_queue import play  # noqa: PLC0415 - it stands on this module

            play(stage)
        else:
            _play(stage)
    stage.act(f"All of it was as told, in {time.monotonic() - began:.0f} s")
    return Exit.OK


def _play(stage: Stage) -> None:
    stage.act("An embedded cluster: an HTTPS apiserver, Trainer 2.3.0, JobSet, Job controller, kubelet")
    with Cluster(nodes=2, kubelet="processes") as cluster:
        stage.tell(f"it serves {_url(cluster)}; its kubelet runs containers as local processes")
        _a_whole_life(stage, cluster)
        _a_lost_answer(stage, cluster)


def _a_whole_life(stage: Stage, cluster: Cluster) -> None:
    """Gated, recorded, opened, held, released, succeeded."""
    stage.act("A job of two nodes fits a line together: docs/examples/fit.yaml")
    spec = example()
    settings = stage.settings(cluster)
    with factory(settings, ctx=seconds()) as backend, Watched(backend, "fit") as watched:
        ref = backend.start("fit", 1, spec, ctx=seconds())
        gated = watched.until("the job is gated", lambda job: job.state == "gated")
        stage.state("gated", gated, "created, and provably not running")
        stage.check(gated.pods.total == 0, "a gated job has no pods")

        journal = stage.folder / "journal"
        journal.write_text(f"{ref}\n")
        stage.step("recorded", f"its reference is written down: {ref}")

        with OutputFollower(backend, "fit", Context.background(), stage.output, stage.tell) as lines:
            watched.on_view = lambda _: lines.look()
            backend.open(ref, ctx=seconds())
            stage.state(
                "opened", watched.until("the job is opened", lambda job: job.state == "opened"), "its gate is lifted"
            )
            stage.until_output("step 15 of 60")

            backend.hold(ref, 1, ctx=seconds())
            stage.state(
                "held",
                watched.until("the held job has no pods", lambda job: job.state == "held" and not job.pods.total),
                "both processes were told to stop, saved and ended",
            )
            stopped = stage.until_output("rank 0: stopped at step ")
            stale_release(stage, backend, ref)

            _release(backend, ref)
            resumed = stage.until_output("rank 0 of 2: from step ", after=stopped)
            stage.state(
                "released", watched.until("the job is released", lambda job: job.state == "opened"), "it goes on"
            )
            at, again = (number_of(stage.outputs[index]) for index in (stopped, resumed))
            stage.check(at == again > 0, f"it goes on from its checkpoint: stopped at step {at}, on from step {again}")
            stage.until_output("fitted: y = 3.0", after=resumed)

            ended = watched.until("the job has succeeded", has_succeeded)
            stage.state("succeeded", ended, "the line is found")
        stage.check(_falling(stage.outputs), "the loss fell from the first line to the last")
        _stop(stage, cluster, backend, ref)


def stale_release(stage: Stage, backend: Backend, ref: ObjectRef) -> None:
    """The fence: whoever names another instance than the one in force changes nothing."""
    try:
        backend.release(ref, 7, ctx=seconds())
    except ErrStaleHold as error:
        stage.error(error)
    else:
        raise _differs("a release of an instance that is not in force must be refused")


def _release(backend: Backend, ref: ObjectRef) -> None:
    ctx = seconds()
    while True:
        try:
            backend.release(ref, 1, ctx=ctx)
        except ErrPodsRemain:
            if ctx.wait(0.2):
                raise
        else:
            return


def _stop(stage: Stage, cluster: Cluster, backend: Backend, ref: ObjectRef) -> None:
    backend.stop_job("fit", ctx=seconds())
    cessation = backend.ceased(ref, ctx=seconds())
    kinds = ", ".join(sorted({each.kind for each in cessation.evidence}))
    stage.step("stopped", f"everything of it is gone; evidence that it ceased: {kinds}")
    stage.check(cessation.ceased, "each of its pods is shown to have ceased")
    stage.check(not _trainjobs(cluster), "no TrainJob is left")


def _a_lost_answer(stage: Stage, cluster: Cluster) -> None:
    """The apiserver creates the TrainJob, and the answer never arrives."""
    stage.act("A create whose answer is lost: a proxy cuts the connection once the TrainJob is committed")
    address = urlsplit(_url(cluster))
    assert address.hostname is not None
    assert address.port is not None
    with (
        LossyProxy(address.hostname, address.port) as proxy,
        factory(stage.settings(cluster, port=proxy.port), ctx=seconds()) as backend,
    ):
        proxy.lose_answer_once(lambda: "lost-1" in _trainjobs(cluster))
        try:
            backend.start("lost", 1, example(), ctx=seconds())
        except ErrOutcomeUnknown as error:
            stage.check(proxy.lost.is_set(), "the proxy threw the answer away")
            stage.error(error)
        else:
            raise _differs("a create without an answer must be ErrOutcomeUnknown")
        found = backend.find("lost", ctx=seconds())
        stage.check([each.ref.name for each in found.objects] == ["lost-1"], "Find shows it: it had been created")
        stage.state("gated", found.objects[0], "gated, so nothing of it runs; it can be recorded now and opened")
        backend.stop_job("lost", ctx=seconds())
        left = backend.find("lost", ctx=seconds())
        stage.check(not left.objects, "stopped, and nothing is left")
    created = [each for each in cluster.requests if _creates_trainjob(each)]
    stage.check(len(created) == 2, "exactly one TrainJob was ever created for each job: no create was repeated")


def has_succeeded(job: FoundObject) -> bool:
    """Whether a job is shown to have succeeded."""
    return job.state == "ended" and job.cause is not None and job.cause.kind == "succeeded"


def _creates_trainjob(request: Received) -> bool:
    return request.method == "POST" and request.path.endswith("/trainjobs") and request.committed is not None


def _trainjobs(cluster: Cluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.list(TRAIN_JOBS, NAMESPACE)]


def _url(cluster: Cluster) -> str:
    url = cluster.url
    assert url is not None  # of a cluster that serves
    return url


def example() -> JobSpec:
    """The example job, installed beside the package; shorter, for nobody has to type here."""
    text = files("dispatch_kubeflow.examples").joinpath("fit.yaml").read_text(encoding="utf-8")
    return replace(JobSpec.parse_yaml(text), env={"FIT_STEPS": "60"})


@dataclass
class Stage:
    """Tells what happens, and sees that it does."""

    terminal: Terminal
    folder: Path
    outputs: list[str] = field(default_factory=list)
    _arrived: threading.Condition = field(default_factory=threading.Condition)

    def act(self, title: str) -> None:
        """A new part begins."""
        self.terminal.say(f"\n{title}", "bold")

    def tell(self, text: str) -> None:
        """A remark."""
        self.terminal.say(f"  {text}", "dim")

    def step(self, name: str, text: str) -> None:
        """One step of the job's life."""
        self.terminal.say(f"  {name.upper():<10}{text}", "green")

    def state(self, name: str, job: FoundObject, text: str) -> None:
        """The state that was seen, under the name the story gives it, and what it means."""
        self.step(name, " · ".join((text, *hold_and_pods(job))))

    def error(self, error: DispatchError) -> None:
        """An error that was meant to come."""
        self.terminal.say(f"  {error.sentinel}: {error} (row {error.row})", "yellow")

    def check(self, holds: bool, text: str) -> None:
        """Say what was checked. Refused if it does not hold."""
        if not holds:
            raise _differs(text)
        self.terminal.say(f"  ✓ {text}", "dim green")

    def output(self, line: bytes) -> None:
        """A line of the job."""
        text = line.decode(errors="replace")
        self.terminal.say(f"    | {text}", "cyan")
        with self._arrived:
            self.outputs.append(text)
            self._arrived.notify_all()

    def until_output(self, start: str, after: int = -1) -> int:
        """Wait for a line that starts so, behind line number `after`; its number."""

        def arrived() -> int | None:
            numbered = enumerate(self.outputs)
            return next((number for number, line in numbered if number > after and line.startswith(start)), None)

        with self._arrived:
            if not self._arrived.wait_for(lambda: arrived() is not None, PATIENCE):
                raise _differs(f"the job prints “{start}…”")
            number = arrived()
        assert number is not None
        return number

    def settings(self, cluster: Cluster, port: int | None = None) -> dict[str, Any]:
        """Settings for this cluster, or for a port in front of it."""
        path = self.folder / f"kubeconfig-{port or 'direct'}"
        cluster.kubeconfig(path)
        if port is not None:
            yaml = YAML(typ="safe")
            config = yaml.load(path)
            for each in config["clusters"]:
                each["cluster"]["server"] = f"https://127.0.0.1:{port}"
            yaml.dump(config, path)
        return {
            "name": "demo",
            "namespace": NAMESPACE,
            "runtimes": ["ClusterTrainingRuntime/torch-distributed"],
            "kubeconfig": str(path),
        }


class Watched:
    """The newest view of a job, from one watch that begins before the job does."""

    def __init__(self, backend: Backend, job_id: str) -> None:
        self._ctx = Context.background()
        self._views = backend.watch(job_id, ctx=self._ctx)
        self._job: FoundObject | None = None
        self._changed = threading.Condition()
        self._failure: DispatchError | None = None
        self._thread = threading.Thread(target=self._watch, name=f"watch of {job_id}", daemon=True)
        self.on_view: Callable[[Found], None] = lambda _: None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ctx.cancel()
        self._thread.join()

    def until(self, text: str, shown: Callable[[FoundObject], bool]) -> FoundObject:
        """Wait until the job is shown so."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: self._failure is not None or (self._job is not None and shown(self._job)), PATIENCE
            )
            if self._failure is not None:
                raise self._failure
            if not arrived or self._job is None:
                raise _differs(f"{text}; Watch shows {object_line(self._job) if self._job else 'nothing'}")
            return self._job

    def _watch(self) -> None:
        try:
            for found in self._views:
                with self._changed:
                    self._job = next((each for each in found.objects if each.ref.kind == "TrainJob"), None)
                    self._changed.notify_all()
                self.on_view(found)
        except DispatchError as error:
            if self._ctx.ended is None:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()


def _falling(lines: list[str]) -> bool:
    losses = [float(line.rpartition(" ")[2]) for line in lines if ": loss " in line]
    return len(losses) > 5 and losses == sorted(losses, reverse=True)


def number_of(line: str) -> int:
    """The step that a line of the example names."""
    return int("".join(character for character in line.partition(" step ")[2] if character.isdigit()))


def seconds() -> Context:
    """The context of one call."""
    return Context.with_timeout(PATIENCE)


def _differs(text: str) -> Refusal:
    return Refusal(f"the demonstration saw something else than: {text}", Exit.DIFFERS)


@contextmanager
def _path_to_this_python() -> Iterator[None]:
    """The example's command is `python3`, and there may be no other one on the path than the one that runs this."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
