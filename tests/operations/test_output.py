"""Output: whose lines they are, and what becomes of a log that fails or is cut."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from dispatch_kubeflow.backend import Stream
from dispatch_kubeflow.backend.embedded import Script
from dispatch_kubeflow.backend.requests.resources import PODS
from dispatch_kubeflow.machine import Context

from .world import NAMESPACE, World, cancelled, ended, refused, rules_for, soon, start

LOG = r"/log\?"
LINES = (b"epoch 1", b"epoch 2", b"epoch 3")


def rank_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def speak(pod: dict[str, Any], _: str) -> Script:
    """Rank 0 says three lines, the others say who they are."""
    said = [line.decode() for line in LINES] if rank_of(pod) == "0" else [f"rank {rank_of(pod)}"]
    return Script(lines=tuple((0.0, line) for line in said), stop_after=0.05)


@pytest.fixture
def talking(tmp_path: pathlib.Path) -> Iterator[World]:
    made = World(tmp_path)
    made.cluster.kubelet.plan = speak  # type: ignore[attr-defined]
    yield made
    made.close()


def opened(world: World, attempt: int = 1) -> Any:
    backend = world.backends[0] if world.backends else world.backend()
    backend.open(start(backend, attempt=attempt), ctx=soon())
    world.running(f"job-{attempt}")
    return backend


def test_the_lines_of_rank_0_are_given_whole(talking: World) -> None:
    backend = opened(talking)
    talking.until(lambda: list(backend.output("job", ctx=soon())) == list(LINES))


def test_only_the_last_lines_are_asked_for(talking: World) -> None:
    backend = opened(talking)
    talking.until(lambda: len(list(backend.output("job", ctx=soon()))) == 3)
    assert list(backend.output("job", tail=1, ctx=soon())) == [b"epoch 3"]
    assert list(backend.output("job", tail=0, ctx=soon())) == []


def test_the_streams_own_parameter_is_never_sent(talking: World) -> None:
    backend = opened(talking)
    list(backend.output("job", Stream.STDOUT, tail=2, ctx=soon()))
    (sent,) = [each.path for each in talking.wire.seen if "/log" in each.path]
    query = sent.partition("?")[2]
    assert sorted(part.partition("=")[0] for part in query.split("&")) == ["container", "tailLines"]


def test_followed_lines_come_as_they_are_written(talking: World) -> None:
    backend = opened(talking)
    ctx = soon()
    lines = direct(talking).output("job", follow=True, ctx=ctx)
    assert [next(lines) for _ in LINES] == list(LINES)
    ctx.cancel()
    with refused("read.cut"):
        next(lines)
    assert backend is not None


def direct(world: World) -> Any:
    """A Backend that goes past the proxy, which passes on whole answers only."""
    path = world.folder / "direct"
    world.cluster.kubeconfig(path)
    return world.backend(kubeconfig=str(path))


def test_a_job_without_pods_has_no_rank_0(world: World) -> None:
    backend = world.backend()
    start(backend)
    with refused("read.no-rank-0"):
        list(backend.output("job", ctx=soon()))


def test_a_job_that_is_not_there_has_no_rank_0(world: World) -> None:
    with refused("read.no-rank-0"):
        list(world.backend().output("job", ctx=soon()))


def test_a_higher_attempt_without_pods_is_the_one_that_is_meant(talking: World) -> None:
    backend = opened(talking)
    start(backend, attempt=2)
    with refused("read.no-rank-0"):
        list(backend.output("job", ctx=soon()))


def test_the_newest_pod_of_rank_0_is_chosen(talking: World) -> None:
    backend = opened(talking)
    pod = next(pod for pod in talking.cluster.list(PODS, NAMESPACE) if rank_of(pod) == "0")
    newer = {**pod, "metadata": {**pod["metadata"], "name": "newer", "creationTimestamp": "2999-01-01T00:00:00Z"}}
    body = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": [newer, pod]}
    talking.wire.answer("GET", r"/pods\?", 200, body)
    with refused("request.not-found"):
        list(backend.output("job", ctx=soon()))
    assert any("/pods/newer/log" in each.path for each in talking.wire.seen)


def test_a_pod_that_is_not_scheduled_yet_has_said_nothing(talking: World) -> None:
    backend = opened(talking)
    talking.wire.answer("GET", LOG, 204, b"")
    assert list(backend.output("job", ctx=soon())) == []


@pytest.mark.parametrize(
    ("status", "reason", "rule"),
    [
        (400, "BadRequest", "request.log-invalid"),
        (401, "Unauthorized", "request.unauthenticated"),
        (403, "Forbidden", "request.forbidden"),
        (404, "NotFound", "request.path-not-found"),
        (422, "Invalid", "request.direct-other"),
        (500, "InternalError", "request.no-answer"),
    ],
)
def test_a_log_that_is_refused_says_so(talking: World, status: int, reason: str, rule: str) -> None:
    backend = opened(talking)
    talking.wire.refuse("GET", LOG, status, reason)
    with refused(rule, status=status):
        list(backend.output("job", ctx=soon()))


def test_a_log_without_an_answer_is_unreachable(talking: World) -> None:
    backend = opened(talking)
    talking.wire.lose_request("GET", LOG)
    with refused("request.no-answer"):
        list(backend.output("job", ctx=soon()))


def test_a_stream_that_is_cut_raises_after_the_lines_it_gave(talking: World) -> None:
    backend = opened(talking)
    # More is announced than ever comes.
    head = {"Content-Type": "text/plain", "Content-Length": "99", "Connection": "close"}
    talking.wire.on("GET", LOG, forward=False, answer=lambda: (200, head, b"epoch 1\nepoch"))
    lines = backend.output("job", ctx=soon())
    assert next(lines) == b"epoch 1"
    with refused("read.cut"):
        next(lines)


def test_its_deadline_cuts_a_followed_stream(talking: World) -> None:
    opened(talking)
    given: list[bytes] = []
    with refused("read.cut"):
        given.extend(direct(talking).output("job", follow=True, ctx=Context.with_timeout(0.7)))


def test_lists_that_fail_say_so(talking: World) -> None:
    backend = opened(talking)
    talking.wire.refuse("GET", r"/pods\?", 403, "Forbidden")
    with refused("request.forbidden"):
        list(backend.output("job", ctx=soon()))


def test_output_passes_the_stages_when_it_is_called(world: World) -> None:
    backend = world.backend()
    with refused("input.job-id"):
        backend.output("No_Job", ctx=ended())
    with refused("support.stderr"):
        backend.output("job", Stream.STDERR, ctx=ended())
    with refused("context.deadline"):
        backend.output("job", ctx=ended())
    with refused("context.cancelled"):
        backend.output("job", ctx=cancelled())
    assert world.requests() == []


def test_output_needs_its_capability(world: World) -> None:
    with refused("support.output-capability"):
        world.backend(output_read=False).output("job", ctx=soon())


def test_output_needs_the_permission_for_logs(world: World) -> None:
    kinds = [("", ["pods", "nodes", "configmaps"]), ("batch", ["jobs"]), ("jobset.x-k8s.io", ["jobsets"])]
    rules = [rules_for("get", "list", "watch", group=group, resources=names) for group, names in kinds]
    rules.append(
        rules_for(
            *("get", "list", "watch", "create", "patch", "delete"),
            group="trainer.kubeflow.org",
            resources=["trainjobs", "trainingruntimes", "clustertrainingruntimes"],
        )
    )
    backend = world.backend(token=world.cluster.user("no-logs", rules))
    with refused("support.output-capability"):
        backend.output("job", ctx=soon())
