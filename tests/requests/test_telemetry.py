"""Each request is told of once, and nothing that is told is anyone's secret."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from dispatch_kubeflow.backend.requests import Request
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS
from dispatch_kubeflow.machine.context import Context

from .proxy import Plan
from .test_faults import NEW, REQUESTS

SECRET = "s3cret"


@pytest.fixture
def records(caplog):
    caplog.set_level(logging.DEBUG)
    return lambda: [each for each in caplog.records if each.name.startswith("dispatch_kubeflow")]


def test_one_record_a_request_says_what_was_asked_and_what_came(plain, upstream, open_door, records):
    door = open_door(plain, token=SECRET)
    door.send(REQUESTS["get"], Context.with_timeout(5), operation="find")
    upstream.status, upstream.reason = 409, "AlreadyExists"
    door.send(REQUESTS["create"], Context.with_timeout(5), operation="start")
    plain.plan = Plan("fin", answer_at=0)
    door.send(REQUESTS["patch"], Context.with_timeout(5), operation="hold")
    door.send(REQUESTS["delete"], Context.with_timeout(0), operation="stop")
    fields = ("operation", "verb", "path", "status", "sent", "result", "request_id")
    path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"
    assert [tuple(getattr(each, name) for name in fields) for each in records()] == [
        ("find", "GET", path + "/{name}", 200, True, "answered", "0f-1"),
        ("start", "POST", path, 409, True, "409", "0f-1"),
        ("hold", "PATCH", path + "/{name}", None, True, "lost", None),
        ("stop", "DELETE", path + "/{name}", None, False, "context-deadline", None),
    ]
    assert all(each.milliseconds >= 0 for each in records())


def test_lists_logs_and_discovery_are_told_of_too(plain, upstream, open_door, records):
    door = open_door(plain)
    list(door.log("team-a", "a-1", "node", Context.with_timeout(5), operation="output").lines)
    door.discover("trainer.kubeflow.org", "v1alpha1", Context.with_timeout(5), operation="factory")
    upstream.status = 403
    door.log("team-a", "a-1", "node", Context.with_timeout(5), operation="output")
    assert [(each.path.rpartition("/")[2], each.result) for each in records()] == [
        ("log", "answered"),
        ("v1alpha1", "answered"),
        ("log", "403"),
    ]


def test_no_token_value_name_or_body_is_ever_told(plain, upstream, open_door, caplog):
    caplog.set_level(logging.DEBUG)
    door = open_door(plain, token=SECRET + "-token")
    body = {**NEW, "spec": {"trainer": {"env": [{"name": "A", "value": SECRET + "-env"}], "args": [SECRET + "-args"]}}}
    for status in (None, 403, 500):
        upstream.status, upstream.reason = status, SECRET
        door.send(
            Request("POST", TRAIN_JOBS, "team-a", body=body, intent="write"), Context.with_timeout(5), operation="start"
        )
    told = "\n".join(f"{each.getMessage()} {each.__dict__}" for each in caplog.records if "dispatch" in each.name)
    assert told
    assert SECRET not in told
    assert "a-1" not in told


ONE_REQUEST = (
    "import sys; from dispatch_kubeflow.backend.requests import *; from dispatch_kubeflow.machine.context import *;"
    "from dispatch_kubeflow.backend.requests.resources import PODS;"
    "door = Door(ClusterAccess.at('http://127.0.0.1:1'), request_timeout=1, clock=SystemClock());"
    "door.send(Request('GET', PODS, 'ns', 'a'), Context.background(), operation='find');"
)


def test_without_any_logging_set_up_nothing_is_printed():
    done = subprocess.run([sys.executable, "-c", ONE_REQUEST], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


class Span:
    def __init__(self, name, kind, attributes):
        self.name, self.kind, self.attributes, self.status, self.ended = name, kind, dict(attributes), None, 0

    def set_attributes(self, more):
        self.attributes.update(more)

    def set_status(self, code, text):
        self.status = (code, text)

    def end(self):
        self.ended += 1


def test_an_application_with_opentelemetry_gets_one_span_a_request(plain, upstream, open_door, monkeypatch):
    from opentelemetry import trace

    spans: list[Span] = []

    class Tracer:
        def start_span(self, name, kind, attributes):
            spans.append(Span(name, kind, attributes))
            return spans[-1]

    monkeypatch.setattr(trace, "get_tracer", lambda _: Tracer())
    door = open_door(plain, token=SECRET)
    door.send(REQUESTS["get"], Context.with_timeout(5), operation="find")
    upstream.status = 503
    door.send(REQUESTS["create"], Context.with_timeout(5), operation="start")
    good, bad = spans
    assert (good.ended, bad.ended) == (1, 1)
    assert good.name == "GET /apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}"
    assert good.kind is trace.SpanKind.CLIENT
    assert good.status is None
    assert good.attributes["http.response.status_code"] == 200
    assert good.attributes["dispatch_kubeflow.request_id"] == "0f-1"
    assert bad.status == (trace.StatusCode.ERROR, "lost")
    assert bad.attributes["dispatch_kubeflow.sent"] is True
    assert SECRET not in str(good.attributes) + str(bad.attributes)


def test_an_application_without_opentelemetry_does_not_load_it():
    code = ONE_REQUEST + "print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"False\n"
