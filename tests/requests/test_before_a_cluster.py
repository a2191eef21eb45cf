"""The same faults before the embedded cluster, whose own record says what was committed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from dispatch_kubeflow.backend.embedded import Cluster
from dispatch_kubeflow.backend.requests import ClusterAccess, Door, Request
from dispatch_kubeflow.backend.requests.resources import CONFIG_MAPS
from dispatch_kubeflow.machine.context import Context, SystemClock

from .proxy import FaultProxy, Plan
from .upstream import Behind

RULES = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


@dataclass
class Before:
    """A fault proxy before a cluster, and a door to the proxy."""

    cluster: Cluster
    proxy: FaultProxy
    door: Door
    numbers: Iterator[int]

    def fresh(self) -> str:
        """The name of a ConfigMap that has just been made, behind the door's back."""
        name = self.absent()
        self.cluster.create(CONFIG_MAPS, config_map(name), "default")
        return name

    def absent(self) -> str:
        return f"cm-{next(self.numbers)}"


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


@pytest.fixture(scope="module")
def running():
    with Cluster(nodes=0) as cluster:
        address = urlsplit(cluster.url)
        proxy = FaultProxy(Behind((address.hostname, address.port)))
        yield cluster, proxy, cluster.user("tester", RULES), itertools.count()
        proxy.close()


@pytest.fixture
def before(running):
    cluster, proxy, token, numbers = running
    door = Door(ClusterAccess.at(proxy.url, token=token), request_timeout=5, clock=SystemClock())
    yield Before(cluster, proxy, door, numbers)
    door.close()


def patch(name: str, version: str | None = None) -> Request:
    metadata = {} if version is None else {"resourceVersion": version}
    body = {"metadata": metadata, "data": {"a": "c"}}
    kind = "application/merge-patch+json"
    return Request("PATCH", CONFIG_MAPS, "default", name, body=body, content_type=kind, intent="write")


def delete(name: str) -> Request:
    return Request("DELETE", CONFIG_MAPS, "default", name, intent="write", expect="delete")


def create(name: str) -> Request:
    return Request("POST", CONFIG_MAPS, "default", body=config_map(name), intent="write")


# What is asked, and the result of a whole answer.
OPERATIONS = {
    "create": (lambda at: create(at.absent()), "answer"),
    "create again": (lambda at: create(at.fresh()), "409"),
    "patch": (lambda at: patch(at.fresh()), "answer"),
    "patch, stale": (lambda at: patch(at.fresh(), "1"), "409"),
    "patch, absent": (lambda at: patch(at.absent()), "404"),
    "delete": (lambda at: delete(at.fresh()), "answer"),
    "delete, absent": (lambda at: delete(at.absent()), "404"),
    "get": (lambda at: Request("GET", CONFIG_MAPS, "default", at.fresh()), "answer"),
    "get, absent": (lambda at: Request("GET", CONFIG_MAPS, "default", at.absent()), "404"),
}
CUTS = [0, 1, 9, 12, 17, 40, 80, 0.3, 0.5, 0.8, 0.99, 1.0]


@pytest.mark.parametrize("action", ["fin", "rst", "stall", "garble"])
@pytest.mark.parametrize("what", OPERATIONS)
def test_no_definite_answer_is_ever_contradicted_by_the_cluster(before, what, action):
    make, whole = OPERATIONS[what]
    length = 0
    for cut in CUTS:
        request = make(before)
        sizes: list[int] = []
        upstream = before.proxy.upstream
        before.proxy.upstream = Sized(upstream, sizes)
        count = len(before.cluster.requests)
        ctx = Context.with_timeout(5)
        at = cut if isinstance(cut, int) else int(cut * length)
        before.proxy.plan = Plan() if length == 0 else Plan(action, answer_at=at, on_stall=ctx.cancel)
        failure = before.door.send(request, ctx, operation="start").failure
        before.proxy.upstream = upstream
        if before.proxy.plan.action in {"fin", "rst", "garble"}:
            assert before.proxy.plan.done.wait(5)  # else the next request could still meet this connection's end
        seen = before.cluster.requests[count:]
        assert len(seen) == 1, f"{what}, {action} at {at}: {failure}"
        result = "answer" if failure is None else failure.result
        if length == 0:
            assert result == whole
        assert result in {whole, "lost"}
        committed = seen[0].committed is not None
        if request.intent == "write" and result != "lost":
            assert committed == (result == "answer"), f"{what}, {action} at {at}: {result}, but {seen[0]}"
        length = sizes[0]


class Sized:
    """Notes how long each answer was."""

    def __init__(self, upstream, sizes):
        self.upstream = upstream
        self.sizes = sizes

    def exchange(self, raw: bytes) -> bytes:
        answer = self.upstream.exchange(raw)
        self.sizes.append(len(answer))
        return answer


@pytest.mark.parametrize("action", ["fin", "rst"])
@pytest.mark.parametrize("what", OPERATIONS)
def test_a_request_cut_on_its_way_never_reaches_the_cluster(before, what, action):
    request = OPERATIONS[what][0](before)
    before.proxy.plan = Plan(action, request_at=50)
    count = len(before.cluster.requests)
    failure = before.door.send(request, Context.with_timeout(5), operation="start").failure
    assert failure is not None
    assert (failure.result, failure.sent) == ("lost", True)
    assert len(before.cluster.requests) == count
