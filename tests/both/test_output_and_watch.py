"""Output and Watch."""

from __future__ import annotations

from collections.abc import Iterator

from dispatch_kubeflow.machine import Context
from tests.operations.world import refused

from .scene import FOREVER, Scene, soon, view, watched


def rank_0(scene: Scene) -> str:
    (pod,) = [each for each in scene.running() if each["metadata"]["labels"][_INDEX] == "0"]
    name: str = pod["metadata"]["name"]
    return name


_INDEX = "batch.kubernetes.io/job-completion-index"


def followed(scene: Scene, lines: list[str]) -> tuple[Iterator[bytes], Context]:
    """The output of a job of one node, followed from the moment at which the cluster serves its first line."""
    backend = scene.backends[0]
    scene.say(rank_0(scene), lines)
    ctx = soon()
    return backend.output("job", follow=True, ctx=ctx), ctx


def test_output_gives_whole_lines_and_the_last_ones(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.run(backend)
    lines, ctx = followed(scene, ["epoch 1", "épo\u2028que 2", "epoch 3"])
    assert [next(lines) for _ in range(3)] == [b"epoch 1", "épo\u2028que 2".encode(), b"epoch 3"]
    ctx.cancel()
    assert list(backend.output("job", tail=1, ctx=soon())) == [b"epoch 3"]
    assert list(backend.output("job", tail=0, ctx=soon())) == []


def test_followed_output_goes_on_until_the_context_ends(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.run(backend)
    lines, ctx = followed(scene, ["epoch 1"])
    assert next(lines) == b"epoch 1"
    scene.say(rank_0(scene), ["epoch 2"])
    assert next(lines) == b"epoch 2"
    ctx.cancel()
    with refused("read.cut"):
        next(lines)
    assert scene.found(backend) == [("TrainJob", "job-1", "opened")]


def test_a_gated_job_has_no_output(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    scene.start(backend)
    with refused("read.no-rank-0"):
        list(backend.output("job", ctx=soon()))


def test_a_pod_that_is_not_scheduled_has_an_empty_output(scene: Scene) -> None:
    scene.steer(FOREVER, selector={"scene": "no-such-node"})
    backend = scene.backend()
    backend.open(scene.start(backend), ctx=soon())
    scene.cluster.wait_list(scene.pods, lambda pods: len(pods) == 2)
    assert list(backend.output("job", ctx=soon())) == []


def test_a_watch_shows_a_job_from_nothing_to_nothing(scene: Scene) -> None:
    scene.steer(FOREVER)
    backend = scene.backend()
    with watched(backend) as views:
        ref = scene.start(backend)
        view(views, lambda found: [each.state for each in found.objects] == ["gated"])
        backend.open(ref, ctx=soon())
        view(views, lambda found: [each.state for each in found.objects] == ["opened"])
        view(views, lambda found: found.objects[0].pods.running == 2)
        backend.hold(ref, 1, ctx=soon())
        view(views, lambda found: [each.state for each in found.objects] == ["held"])
        view(views, lambda found: found.objects[0].pods.total == 0)
        scene.at_rest()
        backend.release(ref, 1, ctx=soon())
        view(views, lambda found: found.objects[0].pods.running == 2)
        backend.stop(ref, ctx=soon())
        view(views, lambda found: not found.objects)


def test_a_watch_and_find_agree_about_a_job_at_rest(scene: Scene) -> None:
    scene.steer({"kubelet.test/runs": "0s"})
    backend = scene.backend()
    backend.open(scene.start(backend), ctx=soon())
    ended = scene.ended(backend)
    # The Job's last counts may still come; what both say of the job no longer changes.
    (found,) = backend.find("job", ctx=soon()).objects
    assert (found.ref, found.state, found.attempt) == (ended.ref, ended.state, ended.attempt)
    assert found.cause is not None
    assert ended.cause is not None
    assert (found.cause.kind, found.cause.exit_code) == (ended.cause.kind, ended.cause.exit_code)
