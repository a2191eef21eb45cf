"""What an answer means: real answers first, then everything that only looks like one."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.requests import Request, ServerAnswer
from dispatch_kubeflow.backend.requests.answers import ROWS, judge
from dispatch_kubeflow.backend.requests.http1 import AnswerMalformed
from dispatch_kubeflow.backend.requests.resources import ACCESS_REVIEWS, CONFIG_MAPS, PODS, TRAIN_JOBS, Resource
from dispatch_kubeflow.machine.context import Context
from dispatch_kubeflow.machine.rules import rulebook

from .proxy import Plan
from .test_faults import NEW, REQUESTS, ask

SAMPLES = Path(__file__).parent / "http-answers.json"
GET = REQUESTS["get"]
STORED = {**NEW, "metadata": {**NEW["metadata"], "uid": "u-1", "resourceVersion": "8"}}
NAMED = ["get", "create", "patch", "delete"]


def said(request: Request, status: int, body: object, headers: dict[str, str] | None = None):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return judge(request, status, headers or {}, raw)


def status_of(message: str = "", reason: str = "", **details: object) -> dict[str, object]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
    }


# Answers of a real apiserver.

REAL = {
    "create, name exists": ("create", "409", {"reason": "AlreadyExists"}),
    "create, runtime absent": ("create", "403", {"admission": "webhook"}),
    "create, reserved env": ("create", "403", {"admission": "webhook"}),
    "create, over schema": ("create", "422", {}),
    "create, numNodes too large for int32": ("create", "400", {"admission": "webhook"}),
    "create, bad quantity": ("create", "400", {"admission": "webhook"}),
    "create, strict, unknown field": ("create", "400", {}),
    "patch, stale resourceVersion": ("patch", "409", {}),
    "patch, other uid": ("patch", "422", {}),
    "patch, absent": ("patch", "404", {"absence": "named"}),
    "delete, wrong uid": ("delete", "409", {}),
    "delete, absent": ("delete", "404", {"absence": "named"}),
    "create, RBAC": ("create", "403", {}),
    "get, RBAC": ("get", "403", {}),
    "no token": ("get", "403", {}),
    "unknown token": ("get", "401", {}),
    "list, continue nonsense": ("list", "400", {}),
    "list, Exact version of the future": ("list", "lost", {}),
    "log, pod absent": ("log", "404", {"absence": "named"}),
    "log, container unknown": ("log", "400", {}),
    "log, stream asked for": ("log", "422", {}),
    "log, the pod's node object is gone": ("log", "404", {}),
    "delete, success": ("delete", None, {}),
}
NAMES = {
    "patch, absent": "absent-1",
    "delete, absent": "absent-1",
    "log, pod absent": "absent",
    "delete, success": "sa-1",
}


@pytest.mark.parametrize("case", REAL)
def test_what_a_real_apiserver_answered_is_understood(case):
    sample = next(each for each in json.loads(SAMPLES.read_text()) if each["case"] == case)
    verb, result, facts = REAL[case]
    model = REQUESTS[verb]
    name = NAMES.get(case, model.name)
    request = Request(
        model.method,
        model.resource,
        "team-a",
        name,
        model.subresource,
        {},
        model.body,
        intent=model.intent,
        expect=model.expect,
    )
    failure = said(request, sample["status"], sample["body"], sample["headers"]).failure
    if result is None:
        assert failure is None
        return
    assert failure is not None
    assert failure.result == result
    expected = {"reason": "other", "admission": "none", "absence": "other", **facts}
    assert {key: failure.facts[key] for key in expected} == expected
    rule = rulebook().decide("request", operation="start" if verb != "log" else "output", mode="plain", **failure.facts)
    assert all(key in failure.details for key in rule.required)


def test_a_denial_names_its_webhook_and_hides_the_values():
    sample = next(each for each in json.loads(SAMPLES.read_text()) if each["case"] == "create, reserved env")
    failure = said(REQUESTS["create"], 403, sample["body"]).failure
    assert failure is not None
    assert failure.webhook == "validator.trainjob.trainer.kubeflow.org"
    assert '"value":"1"' not in failure.details["server_message"]
    assert "PET_NNODES" in failure.details["server_message"]
    assert "<redacted>" in failure.details["server_message"]


def test_a_webhook_that_could_not_be_called_is_named_and_nothing_is_known():
    message = 'Internal error occurred: failed calling webhook "vtrainjob.kb.io": no endpoints'
    failure = said(REQUESTS["create"], 500, status_of(message, "InternalError")).failure
    assert failure is not None
    assert (failure.result, failure.webhook, failure.facts["admission"]) == ("lost", "vtrainjob.kb.io", "none")


@pytest.mark.parametrize("channel", [GET, Request("GET", PODS, "team-a", "a-1", "log", expect="log")])
def test_an_unknown_path_is_404_without_a_status_and_shows_no_absence(channel):
    failure = said(channel, 404, b"404 page not found\n").failure
    assert failure is not None
    assert (failure.result, failure.facts["absence"]) == ("404", "other")


@pytest.mark.parametrize(
    "details",
    [
        {"name": "b-1", "group": "trainer.kubeflow.org", "kind": "trainjobs"},
        {"name": "a-1", "group": "batch", "kind": "trainjobs"},
        {"name": "a-1", "group": "trainer.kubeflow.org", "kind": "namespaces"},
        {"name": "a-1", "kind": "trainjobs"},
        {},
    ],
)
def test_absence_is_believed_only_of_the_very_object(details):
    failure = said(GET, 404, status_of("not found", "NotFound", **details)).failure
    assert failure is not None
    assert failure.facts["absence"] == "other"
    right = {"name": "a-1", "group": "trainer.kubeflow.org", "kind": "trainjobs"}
    for body, absence in [(status_of("", "NotFound", **right), "named"), (status_of("", "Other", **right), "other")]:
        failure = said(GET, 404, body).failure
        assert failure is not None
        assert failure.facts["absence"] == absence


def test_discovery_of_an_absent_group_version_is_told_by_its_channel():
    failure = said(REQUESTS["discovery"], 404, b"404 page not found\n").failure
    assert failure is not None
    assert failure.facts["channel"] == "discovery"
    assert rulebook().decide("request", operation="factory", mode="plain", **failure.facts).sentinel == "none"


def test_trap_a_503_of_discovery_never_says_not_served():
    failure = said(REQUESTS["discovery"], 503, status_of("busy", "ServiceUnavailable")).failure
    assert failure is not None
    assert failure.result == "lost"


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"null", b"[]", b"7", b'"x"', b"{}", b'{"kind":"Status"', b"\xff", b"[" * 100_000]
)
@pytest.mark.parametrize("status", sorted(ROWS))
def test_a_row_needs_its_status_alone(status, body):
    failure = said(REQUESTS["create"], status, body).failure
    assert failure is not None
    assert failure.result == str(status)
    assert failure.facts["reason"] == "other"


@pytest.mark.parametrize(
    "status", [300, 301, 304, 402, 406 + 1, 408, 412, 418, 425, 429, 451, 499, 500, 501, 502, 503, 504, 599, 600, 999]
)
def test_a_status_without_a_row_is_no_answer_and_is_told(status):
    failure = said(REQUESTS["create"], status, status_of("busy", "Busy", retryAfterSeconds=2)).failure
    assert failure is not None
    assert failure.result == "lost"
    assert (failure.details["status"], failure.reason, failure.details["retry_after"]) == (status, "Busy", 2)


def test_the_code_decides_and_not_the_reason():
    failure = said(REQUESTS["create"], 500, status_of("", "AlreadyExists")).failure
    assert failure is not None
    assert (failure.result, failure.facts["reason"]) == ("lost", "other")
    failure = said(REQUESTS["create"], 403, status_of("", "AlreadyExists")).failure
    assert failure is not None
    assert (failure.result, failure.facts["reason"]) == ("403", "other")


# 2xx.

BROKEN = [
    b"",
    b"null",
    b"[]",
    b"7",
    b"true",
    b'"text"',
    b"{}",
    b"<html>ok</html>",
    b'{"apiVersion":"trainer',
    b"\xff\xfe",
    b'{"kind":"TrainJob"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"ok\n",
    b'{"metadata":{"name":"a-1"}}',
    b'{"apiVersion":"v1","kind":"Status","status":"Failure","metadata":{"name":"a-1"}}',
]


@pytest.mark.parametrize("body", BROKEN, ids=range(len(BROKEN)))
@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
@pytest.mark.parametrize("verb", ["get", "list", "create", "patch", "delete", "discovery"])
def test_trap_a_2xx_without_what_was_asked_for_is_no_answer(verb, status, body):
    failure = said(REQUESTS[verb], status, body).failure
    assert failure is not None
    assert failure.result == "lost"
    assert failure.details["status"] == status


def test_a_readable_object_of_another_kind_answers_a_read_only():
    other = {"apiVersion": "trainer.kubeflow.org/v2", "kind": "TrainJob", "metadata": {"name": "a-1"}}
    read, write = said(GET, 200, other).failure, said(REQUESTS["create"], 201, other).failure
    assert read is not None
    assert write is not None
    assert (read.result, write.result) == ("wrong-kind", "lost")
    assert read.details["seen"].startswith("TrainJob of trainer.kubeflow.org/v2")
    assert said(GET, 200, {**other, "metadata": {"name": "b-1"}}).failure.facts["result"] == "lost"
    listed = said(REQUESTS["list"], 200, {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []}).failure
    assert listed is not None
    assert listed.result == "wrong-kind"


@pytest.mark.parametrize("metadata", [{"name": "b-1"}, {"name": "a-1", "namespace": "other"}, None, "a-1", {}])
def test_an_object_of_another_name_is_no_answer(metadata):
    body = {**NEW, "metadata": metadata}
    for verb in ("get", "create", "patch", "delete"):
        failure = said(REQUESTS[verb], 200, body).failure
        assert failure is not None
        assert failure.result == "lost"


@pytest.mark.parametrize("verb", NAMED)
@pytest.mark.parametrize("uid", [None, "", 5, []])
def test_an_object_without_a_uid_is_no_answer(verb, uid):
    """It would be taken for another object of the name, and what was asked about for gone."""
    assert said(REQUESTS[verb], 200, STORED).failure is None
    for metadata in ({**NEW["metadata"], "resourceVersion": "8"}, {**STORED["metadata"], "uid": uid}):
        failure = said(REQUESTS[verb], 200, {**STORED, "metadata": metadata}).failure
        assert failure is not None
        assert failure.result == "lost"


@pytest.mark.parametrize("verb", ["get", "create", "patch"])
def test_an_object_without_a_version_is_no_answer(verb):
    """A write by that version would be one without a precondition."""
    for version in ("", None, 5):
        failure = said(REQUESTS[verb], 200, {**STORED, "metadata": {**STORED["metadata"], "resourceVersion": version}})
        assert failure.failure is not None
        assert failure.failure.result == "lost"


@pytest.mark.parametrize("verb", NAMED)
@pytest.mark.parametrize(
    "odd",
    [
        {"generation": "1"},
        {"generation": 1.5},
        {"ownerReferences": None},
        {"ownerReferences": [{"uid": 5}]},
        {"ownerReferences": ["x"]},
        {"labels": {"dispatch-kubeflow.io/job": 5}},
        {"labels": []},
        {"annotations": 5},
        {"annotations": {"a": None}},
        {"finalizers": {}},
        {"deletionTimestamp": 0},
        {"deletionGracePeriodSeconds": "30"},
        {"creationTimestamp": {}},
    ],
)
def test_an_object_whose_metadata_no_reader_could_take_is_no_answer(verb, odd):
    failure = said(REQUESTS[verb], 200, {**STORED, "metadata": {**STORED["metadata"], **odd}}).failure
    assert failure is not None
    assert failure.result == "lost"


def test_a_dry_run_is_answered_by_an_object_that_was_never_stored():
    create = REQUESTS["create"]
    dry = Request("POST", create.resource, create.namespace, query={"dryRun": "All"}, body=NEW)
    assert said(dry, 201, NEW).failure is None
    assert said(dry, 201, {**NEW, "metadata": {**NEW["metadata"], "labels": 5}}).failure.facts["result"] == "lost"


@pytest.mark.parametrize("kind", [["trainjobs"], {}, 5, None])
def test_an_absence_that_names_no_kind_is_not_believed(kind):
    body = status_of("not found", "NotFound", name="a-1", group="trainer.kubeflow.org", kind=kind)
    assert said(GET, 404, body).failure.facts["absence"] == "other"


def test_a_reason_that_a_webhook_made_up_is_hidden_and_cut_as_its_message_is():
    request = Request("POST", TRAIN_JOBS, "team-a", body={**NEW, "spec": {"args": ["s3cret-value"]}}, intent="write")
    failure = said(request, 403, status_of("no", "no s3cret-value " + "x" * 100_000)).failure
    assert failure.reason.startswith("no <redacted>(12) xxx")
    assert len(failure.reason) < 5_000
    assert said(request, 403, status_of("no", "Forbidden")).failure.reason == "Forbidden"


def test_a_delete_is_answered_by_the_object_or_by_success():
    delete = REQUESTS["delete"]
    assert said(delete, 200, STORED).failure is None
    success = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
    assert said(delete, 200, success).failure is None
    assert said(delete, 200, {**success, "details": {"name": "a-1"}}).failure is None
    for body in (
        {**success, "details": {"name": "b-1"}},
        {**success, "status": "Failure"},
        {**success, "status": None},
    ):
        failure = said(delete, 200, body).failure
        assert failure is not None
        assert failure.result == "lost"


def test_a_review_and_a_generated_name_need_the_kind_alone():
    review = Request("POST", ACCESS_REVIEWS, body={"spec": {}})
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": {"allowed": True}}
    assert said(review, 201, body).object == body
    assert said(review, 201, {**body, "kind": "Pod"}).failure.facts["result"] == "wrong-kind"


def test_an_empty_list_may_be_null_but_not_absent():
    base = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJobList", "metadata": {}}
    assert said(REQUESTS["list"], 200, {**base, "items": None}).object == {**base, "items": []}
    for body in (base, {**base, "items": {}}, {**base, "metadata": None, "items": []}):
        failure = said(REQUESTS["list"], 200, body).failure
        assert failure is not None
        assert failure.result == "lost"


def test_discovery_must_name_the_group_version():
    discovery = REQUESTS["discovery"]
    body = {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "trainer.kubeflow.org/v1alpha1",
        "resources": [],
    }
    assert said(discovery, 200, body).failure is None
    for wrong in ({**body, "groupVersion": "batch/v1"}, {**body, "resources": None}, {**body, "kind": "APIGroup"}):
        assert said(discovery, 200, wrong).failure is not None


def test_warnings_are_told():
    headers = {"warning": '299 - "unknown field \\"spec.a\\"", 299 - "deprecated"'}
    reply = said(REQUESTS["create"], 201, NEW, headers)
    assert reply.warnings == ('unknown field "spec.a"', "deprecated")


def test_the_cause_beneath_a_refusal_is_the_answer_and_pickles():
    cause = said(GET, 403, status_of("no", "Forbidden")).failure.cause
    assert isinstance(cause, ServerAnswer)
    assert str(pickle.loads(pickle.dumps(cause))) == str(cause) == "403 Forbidden: no"


# Secrets.

SECRETS = [
    'spec.trainer.args[0]: Invalid value: "s3cret-value": no',
    'spec.trainer.args: Invalid value: ["s3cret-value","b"]: no',
    'spec.trainer.command: Invalid value: []string{"s3cret-value", "b"}: no',
    'spec.trainer.env[0].value: Invalid value: "s3cret-value": no',
    'spec.trainer.env: Invalid value: [{"name":"A","value":"s3cret-value"}]: no',
    'spec.trainer.env: Invalid value: []v1.EnvVar{v1.EnvVar{Name:"A", Value:"s3cret-value"}}: no',
    'spec: Invalid value: {"trainer":{"args":["s3cret-value"],"env":[{"name":"A","value":"s3cret-value"}]}}: no',
    'spec: Invalid value: "{\\"trainer\\":{\\"args\\":[\\"s3cret-value\\"]}}": no',
    'spec: Invalid value: "{\\"env\\":[{\\"name\\":\\"A\\",\\"value\\":\\"s3cret-value\\"}]}": no',
    'spec: Invalid value: map[string]interface {}{"command":[]interface {}{"s3cret-value"}}: no',
    "spec: Invalid value: map[args:[s3cret-value b] env:[map[name:A value:s3cret-value]]]: no",
    'spec.trainer.args: Invalid value: ["s3cret-value", "cut',
    "spec.trainer.command: Invalid value: s3cret-value",
    'spec.trainer.env[0]: Duplicate value: {"name":"A","value":"s3cret-value"}',
]


@pytest.mark.parametrize("message", SECRETS)
def test_values_under_env_args_and_command_are_hidden_by_their_place(message):
    failure = said(GET, 422, status_of(message, "Invalid")).failure
    assert failure is not None
    shown = str(dict(failure.details)) + str(failure.cause)
    assert "s3cret" not in shown
    assert "<redacted>" in shown
    assert "spec" in shown


@given(st.text(st.characters(codec="ascii", categories=["L"]), min_size=4, max_size=30))
def test_values_of_the_request_are_hidden_wherever_they_stand(secret):
    env = [{"name": "A", "value": secret}]
    body = {**NEW, "spec": {"trainer": {"env": env, "args": [secret + "-b"], "command": ["c-" + secret]}}}
    request = Request("POST", TRAIN_JOBS, "team-a", body=body, intent="write")
    failure = said(request, 422, status_of(f"odd words around -{secret}- and no more", "Invalid")).failure
    assert failure is not None
    if secret not in "odd words around -- and no more<redacted>(0123456789)":
        assert secret not in failure.details["server_message"]


def test_other_values_are_shown():
    message = 'spec.trainer.image: Invalid value: "repo/image": no; metadata.annotations[a]: Invalid value: "b": no'
    failure = said(GET, 422, status_of(message, "Invalid")).failure
    assert failure is not None
    assert failure.details["server_message"] == message


# Bytes.

BAD_HEADS = {
    "no version": b"200 OK\r\n\r\n",
    "garbage": b"\x00\x01\x02\r\n\r\n",
    "other version": b"HTTP/9.9 200 OK\r\n\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "short status": b"HTTP/1.1 40\r\n\r\n",
    "long status": b"HTTP/1.1 4090 X\r\n\r\n",
    "signed status": b"HTTP/1.1 +40 X\r\n\r\n",
    "zero status": b"HTTP/1.1 009 X\r\n\r\n",
    "spaced": b"HTTP/1.1  409 X\r\n\r\n",
    "line feeds": b"HTTP/1.1 409 X\nContent-Length: 0\n\n",
    "no colon": b"HTTP/1.1 409 X\r\nContent\r\n\r\n",
    "spaced name": b"HTTP/1.1 409 X\r\nContent-Length : 0\r\n\r\n",
    "folded": b"HTTP/1.1 409 X\r\nA: b\r\n c\r\n\r\n",
    "bare return": b"HTTP/1.1 409 X\r\nA: b\rc\r\n\r\n",
    "huge": b"HTTP/1.1 409 X\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    "endless line": b"HTTP/1.1 409 " + b"X" * 100_000,
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@pytest.mark.parametrize("how", BAD_HEADS)
@pytest.mark.parametrize("verb", ["get", "create", "log"])
def test_trap_a_head_that_cannot_be_read_strictly_is_no_answer(plain, open_door, verb, how):
    plain.plan = Plan("fin", answer=BAD_HEADS[how])
    got = ask(open_door(plain), REQUESTS[verb], Context.with_timeout(5))
    assert (got.result, got.sent) == ("lost", True)
    assert plain.requests == 1


RIGHT = json.dumps(STORED).encode()
BAD_BODIES = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + RIGHT,
    "length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "length no number": b"Content-Length: x\r\n\r\n" + RIGHT,
    "negative length": b"Content-Length: -1\r\n\r\n" + RIGHT,
    "endless length": b"Content-Length: 99999999999999999999\r\n\r\n" + RIGHT,
    "longer than there is": b"Content-Length: %d\r\n\r\n%s" % (len(RIGHT) + 1, RIGHT),
    "shorter than there is": b"Content-Length: %d\r\n\r\n%s" % (len(RIGHT) - 1, RIGHT),
    "other coding": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunk size no number": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + RIGHT,
    "chunk too long": b"Transfer-Encoding: chunked\r\n\r\n5\r\n%s\r\n0\r\n\r\n" % RIGHT,
    "chunk too short": b"Transfer-Encoding: chunked\r\n\r\nfff\r\n%s\r\n0\r\n\r\n" % RIGHT,
    "no last chunk": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(RIGHT), RIGHT),
    "no end of trailers": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(RIGHT), RIGHT),
    "broken gzip": b"Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + b"x" * 20,
    "cut gzip": b"Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + gzip.compress(RIGHT)[:20],
    "gzip and more": b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(RIGHT) + b"x",
    "unknown encoding": b"Content-Encoding: br\r\nContent-Length: 20\r\n\r\n" + b"x" * 20,
    "cut to its end by the close": b"\r\n" + RIGHT[:-5],
}


@pytest.mark.parametrize("how", BAD_BODIES)
@pytest.mark.parametrize("status", [200, 409, 500])
def test_trap_a_body_that_is_not_whole_leaves_the_status_alone(plain, open_door, how, status):
    plain.plan = Plan("fin", answer=b"HTTP/1.1 %d X\r\n%s" % (status, BAD_BODIES[how]))
    got = ask(open_door(plain), REQUESTS["create"], Context.with_timeout(5))
    assert got.result == ("409" if status == 409 else "lost")
    assert plain.requests == 1


GOOD_BODIES = {
    "two equal lengths": b"Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s" % (len(RIGHT), len(RIGHT), RIGHT),
    "chunk extensions and trailers": b"Transfer-Encoding: Chunked\r\n\r\n%x;a=b\r\n%s\r\n0\r\nA: b\r\n\r\n"
    % (len(RIGHT), RIGHT),
    "gzip": b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
    % (len(gzip.compress(RIGHT)), gzip.compress(RIGHT)),
    "until the close": b"\r\n" + RIGHT,
    "padded header": b"Content-Length:\t %d \t\r\n\r\n%s" % (len(RIGHT), RIGHT),
}


@pytest.mark.parametrize("how", GOOD_BODIES)
def test_every_right_way_to_frame_a_body_is_read(plain, open_door, how):
    plain.plan = Plan("fin", answer=b"HTTP/1.1 201 X\r\n" + GOOD_BODIES[how])
    assert ask(open_door(plain), REQUESTS["create"], Context.with_timeout(5)).result == "answer"


def test_an_answer_of_the_older_version_is_read_and_its_connection_not_kept(plain, open_door):
    plain.plan = Plan(answer=b"HTTP/1.0 201\r\nContent-Length: %d\r\n\r\n%s" % (len(RIGHT), RIGHT))
    door = open_door(plain)
    for _ in range(2):
        assert ask(door, REQUESTS["create"], Context.with_timeout(5)).result == "answer"
    assert len(plain.connections) == 2


def test_an_answer_longer_than_any_is_not_gathered(plain, open_door, monkeypatch):
    from dispatch_kubeflow.backend.requests import sender as module

    monkeypatch.setattr(module, "_LARGEST", 10)
    assert ask(open_door(plain), REQUESTS["create"], Context.with_timeout(5)).result == "lost"
    plain.plan = Plan("fin", answer=b"HTTP/1.1 201 X\r\n" + GOOD_BODIES["gzip"])
    assert ask(open_door(plain), REQUESTS["create"], Context.with_timeout(5)).result == "lost"


@given(st.binary(max_size=200), st.integers(100, 999))
def test_no_bytes_at_all_make_a_2xx_an_answer_or_raise(body, status):
    for request in (GET, REQUESTS["list"], REQUESTS["create"], REQUESTS["delete"], REQUESTS["discovery"]):
        reply = judge(request, status, {}, body)
        assert reply.failure is not None
        assert reply.failure.result in {"lost", str(status)}


def test_trouble_while_the_body_came_keeps_a_row_and_undoes_a_success():
    trouble = AnswerMalformed("cut")
    assert judge(GET, 200, {}, None, trouble).failure.facts["result"] == "lost"
    refused = judge(GET, 404, {}, None, trouble).failure
    assert (refused.result, refused.cause) == ("404", trouble)


def test_subjects_are_told_in_words():
    assert GET.subject == "TrainJob a-1 in team-a"
    assert REQUESTS["create"].subject == "TrainJob a-1 in team-a"
    assert REQUESTS["list"].subject == "trainjobs.trainer.kubeflow.org in team-a"
    assert REQUESTS["log"].subject == "log of Pod a-1 in team-a"
    assert REQUESTS["discovery"].subject == "the group-version trainer.kubeflow.org/v1alpha1"
    assert Request("GET", CONFIG_MAPS, "ns").template == "/api/v1/namespaces/{namespace}/configmaps"
    assert Request("GET", Resource("", "v1", "", ""), expect="discovery").template == "/api/v1"
