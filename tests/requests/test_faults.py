"""Each verb, answered in each way, cut at each boundary in each way: the result must be the predicted one.

The prediction knows only what the proxy sent before it acted. By default the boundaries are those of the answer's
parts; with DISPATCH_EVERY_BYTE=1 they are all of its bytes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import msgspec
import pytest

from dispatch_kubeflow.backend.requests import Door, Failure, Request
from dispatch_kubeflow.backend.requests.resources import PODS, TRAIN_JOBS, Resource
from dispatch_kubeflow.machine.context import Context

from .proxy import FaultProxy, Plan
from .upstream import Scripted

EVERY_BYTE = os.environ.get("DISPATCH_EVERY_BYTE") == "1"

NEW = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "a-1"}}
REQUESTS = {
    "get": Request("GET", TRAIN_JOBS, "team-a", "a-1"),
    "list": Request("GET", TRAIN_JOBS, "team-a", query={"limit": 500}, expect="list"),
    "create": Request("POST", TRAIN_JOBS, "team-a", body=NEW, intent="write"),
    "patch": Request(
        "PATCH",
        TRAIN_JOBS,
        "team-a",
        "a-1",
        body={"spec": {"suspend": False}},
        content_type="application/merge-patch+json",
        intent="write",
    ),
    "delete": Request("DELETE", TRAIN_JOBS, "team-a", "a-1", body={"kind": "x"}, intent="write", expect="delete"),
    "discovery": Request("GET", Resource("trainer.kubeflow.org", "v1alpha1", "", ""), expect="discovery"),
    "log": Request("GET", PODS, "team-a", "a-1", "log", {"container": "node"}, expect="log"),
}
ANSWERS = {
    "success": (None, ""),
    "exists": (409, "AlreadyExists"),
    "absent": (404, "NotFound"),
    "invalid": (422, "Invalid"),
    "busy": (429, "TooManyRequests"),
    "down": (503, "ServiceUnavailable"),
}
ROWS = {400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422}


@dataclass(frozen=True)
class Got:
    """What the layer said: "answer" or the failure's result, and the facts that depend on the body."""

    result: str
    sent: bool
    reason: str = "other"
    absence: str = "other"


def ask(door: Door, request: Request, ctx: Context) -> Got:
    if request.expect == "log":
        reply = door.log("team-a", "a-1", "node", ctx, operation="output")
        failure = reply.failure
        lines = list(reply.lines)
        if lines and isinstance(lines[-1], Failure):
            failure = lines[-1]
        if failure is None:
            assert lines == [b"one line", b"another line", b"the last"]
    else:
        failure = door.send(request, ctx, operation="start").failure
    if failure is None:
        return Got("answer", True)
    return Got(failure.result, failure.sent, failure.facts["reason"], failure.facts["absence"])


def boundaries(answer: bytes) -> list[int]:
    """Where an answer is cut: in and around each of its parts."""
    if EVERY_BYTE:
        return list(range(len(answer) + 1))
    first, head = answer.index(b"\r\n"), answer.index(b"\r\n\r\n")
    body = head + 4
    middle = (body + len(answer)) // 2
    places = {0, 1, 5, 9, 10, first, first + 1, first + 2, first + 9, head, head + 2, head + 3}
    places |= {body, body + 1, middle, len(answer) - 3, len(answer) - 1, len(answer)}
    return sorted(places)


def predicted(request: Request, scripted: Scripted, answer: bytes, at: int, action: str) -> Got:
    """What may be said, knowing that the answer's first `at` bytes came whole."""
    head = answer.index(b"\r\n\r\n") + 4
    status = int(answer[9:12])
    whole = at >= len(answer)
    if at < head:
        return Got("lost", True)
    if status < 300:
        return Got("answer" if whole else "lost", True)
    if status not in ROWS:
        return Got("lost", True)
    said = scripted.reason if whole else ""
    reason = "AlreadyExists" if said == "AlreadyExists" else "other"
    absence = "named" if said == "NotFound" and request.name is not None else "other"
    return Got(str(status), True, reason, absence)


@pytest.mark.parametrize("action", ["fin", "rst", "stall", "garble"])
@pytest.mark.parametrize("chunked", [False, True], ids=["counted", "chunked"])
@pytest.mark.parametrize("said", ANSWERS)
@pytest.mark.parametrize("verb", REQUESTS)
def test_an_answer_that_goes_wrong_at_any_boundary_gives_the_predicted_result(
    server, upstream, open_door, verb, said, chunked, action
):
    upstream.status, upstream.reason = ANSWERS[said]
    upstream.chunked = chunked
    request = REQUESTS[verb]
    door = open_door(server)
    answer = clean_answer(server, upstream, door, request)
    for at in boundaries(answer):
        if action == "garble" and (at == len(answer) or (verb == "log" and in_log_data(answer, at))):
            continue
        before = (server.requests, len(upstream.committed))
        got = with_fault(server, door, request, Plan(action, answer_at=at))
        assert got == predicted(request, upstream, answer, at, action), f"{action} at {at} of {answer!r}"
        assert server.requests == before[0] + 1, f"{action} at {at}: more than one request"
        if got.result == "answer":
            assert len(upstream.committed) == before[1] + 1
        elif got.result != "lost":
            assert len(upstream.committed) == before[1]
        if action != "stall":
            assert server.plan.done.wait(5)
    # What went wrong on one connection must not reach the next request; one that just stalls cannot be told from a slow
    # server, so that is left alone.
    server.plan = Plan()
    if action == "stall":
        door = open_door(server)
    assert ask(door, request, Context.with_timeout(5)) == predicted(request, upstream, answer, len(answer), "none")


def clean_answer(server: FaultProxy, upstream: Scripted, door: Door, request: Request) -> bytes:
    """The bytes the upstream answers with, found by asking once without a fault."""
    seen: list[bytes] = []
    exchange = upstream.exchange

    def noted(raw: bytes) -> bytes:
        seen.append(exchange(raw))
        return seen[-1]

    server.upstream = type("Noted", (), {"exchange": staticmethod(noted)})
    server.plan = Plan()
    ask(door, request, Context.with_timeout(5))
    server.upstream = upstream
    return seen[-1]


def with_fault(server: FaultProxy, door: Door, request: Request, plan: Plan) -> Got:
    """Ask once under the plan; a server that stalls is given up by a cancellation as soon as it does."""
    server.plan = plan
    ctx = Context.with_timeout(5)
    if plan.action != "stall":
        return ask(door, request, ctx)
    server.plan = replace(plan, on_stall=ctx.cancel)
    return ask(door, request, ctx)


def in_log_data(answer: bytes, at: int) -> bool:
    """Whether a byte is one of a log's own: what it says cannot be checked."""
    return answer.startswith(b"HTTP/1.1 200") and at >= answer.index(b"\r\n\r\n") + 4


class Item(msgspec.Struct):
    """What these tests keep of an object."""

    metadata: dict[str, str]
