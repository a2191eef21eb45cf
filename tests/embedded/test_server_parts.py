from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded import wire
from dispatch_kubeflow.backend.embedded.admission import Denial, Review
from dispatch_kubeflow.backend.embedded.bodies import LIMIT
from dispatch_kubeflow.backend.embedded.crds.remake import remake
from dispatch_kubeflow.backend.embedded.messages import Answer
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS, Resource

from .conftest import MERGE, NAMESPACE, TRAIN_JOBS_PATH, Serving, train_job

SERVICES = Resource("", "v1", "services", "Service")
SECRETS = Resource("", "v1", "secrets", "Secret")


def head(text: bytes) -> wire.Head:
    read = wire.read_head(io.BytesIO(text))
    assert read is not None
    return read


def test_a_head_is_read_with_its_headers_joined() -> None:
    read = head(b"\r\nGET /x?y=1 HTTP/1.1\r\nAccept: a\r\naccept: b\r\n\r\n")
    assert (read.method, read.target, read.headers, read.keeps) == ("GET", "/x?y=1", {"accept": "a, b"}, True)


@pytest.mark.parametrize(
    ("line", "keeps"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", False),
    ],
)
def test_whether_a_connection_is_kept(line: bytes, keeps: bool) -> None:
    assert head(line).keeps is keeps


def test_a_closed_stream_has_no_head() -> None:
    assert wire.read_head(io.BytesIO(b"")) is None


@pytest.mark.parametrize(
    "text",
    [
        b"GET /\r\n\r\n",
        b"GET / SPDY/1\r\n\r\n",
        b"GET / HTTP/1.1",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n : x\r\n\r\n",
    ],
)
def test_what_is_no_head_is_malformed(text: bytes) -> None:
    with pytest.raises(wire.MalformedError):
        wire.read_head(io.BytesIO(text))


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"Content-Length: x", b""),
        (b"Content-Length: 5", b"abc"),
        (b"Transfer-Encoding: chunked", b"zz\r\n"),
    ],
)
def test_a_body_that_is_not_as_announced_is_malformed(headers: bytes, body: bytes) -> None:
    with pytest.raises(wire.MalformedError):
        wire.read_body(io.BytesIO(body), head(b"PUT / HTTP/1.1\r\n" + headers + b"\r\n\r\n"))


def test_a_body_over_the_limit_is_cut_off_and_ends_the_connection() -> None:
    read = head(b"PUT / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (LIMIT + 100))
    assert len(wire.read_body(io.BytesIO(b"x" * (LIMIT + 100)), read)) == LIMIT + 1
    assert not read.keeps


def test_chunks_over_the_limit_are_read_and_dropped() -> None:
    pieces = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    read = head(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert LIMIT < len(wire.read_body(io.BytesIO(pieces * 5 + b"0\r\n\r\n"), read)) <= LIMIT + 0x100000


def test_a_header_cannot_break_out_of_its_line() -> None:
    text = wire.head_of(Answer(200, headers=[("Warning", "a\r\nSet-Cookie: b")]), keeps=True)
    assert b"\r\nSet-Cookie" not in text


def test_an_answer_without_content_says_nothing_of_its_length() -> None:
    assert b"Content-Length" not in wire.head_of(Answer(204, content_type=""), keeps=True)


def test_a_mutating_webhook_changes_what_is_stored_and_is_asked_before_the_schema(serving: Serving) -> None:
    asked: list[Review] = []

    def default(review: Review) -> dict[str, Any] | None:
        asked.append(review)
        assert review.new is not None
        review.new["spec"]["suspend"] = False
        review.new["spec"]["unknown"] = 1
        return review.new

    serving.admission.mutating("defaulter", TRAIN_JOBS, default, operations=("CREATE",))
    serving.admission.mutating("another", TRAIN_JOBS, lambda _: None)
    made = serving.admin("POST", TRAIN_JOBS_PATH, train_job())
    assert (made.json["spec"]["suspend"], "unknown" in made.json["spec"]) == (False, False)
    assert (asked[0].operation, asked[0].name, asked[0].user, asked[0].old) == ("CREATE", "sa-1", "admin", None)
    serving.admin("PATCH", f"{TRAIN_JOBS_PATH}/sa-1", {"spec": {"suspend": True}}, MERGE)
    assert len(asked) == 1


def test_a_webhook_may_refuse_a_delete_and_give_no_reason(serving: Serving) -> None:
    serving.store.create(TRAIN_JOBS, train_job())
    serving.admission.validating("keeper", TRAIN_JOBS, lambda _: Denial("", 400, ""), operations=("DELETE",))
    answer = serving.admin("DELETE", f"{TRAIN_JOBS_PATH}/sa-1")
    assert answer.json["message"] == 'admission webhook "keeper" denied the request without explanation'
    assert serving.store.find(TRAIN_JOBS, NAMESPACE, "sa-1") is not None


def test_only_the_webhooks_of_one_name_are_down(serving: Serving) -> None:
    serving.admission.validating("one", TRAIN_JOBS, lambda _: None)
    serving.admission.set_down(True, name="other")
    assert serving.admin("POST", TRAIN_JOBS_PATH, train_job()).status == 201


def test_a_dry_run_passes_admission_and_stores_nothing(serving: Serving) -> None:
    dry: list[bool] = []
    serving.admission.validating("v", TRAIN_JOBS, lambda review: dry.append(review.dry_run))
    assert serving.admin("POST", f"{TRAIN_JOBS_PATH}?dryRun=All", train_job()).status == 201
    assert (dry, serving.store.find(TRAIN_JOBS, NAMESPACE, "sa-1")) == ([True], None)


def test_services_and_secrets_get_their_defaults(serving: Serving) -> None:
    meta = {"name": "s", "namespace": NAMESPACE}
    service = serving.store.create(SERVICES, {"metadata": meta, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}})
    assert service["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert service["spec"]["clusterIPs"] == ["None"]
    assert serving.store.create(SECRETS, {"metadata": meta})["type"] == "Opaque"


def test_groups_paths_and_schemas_can_be_discovered(serving: Serving) -> None:
    assert serving.admin("GET", "/apis/batch").json["preferredVersion"]["version"] == "v1"
    assert "/apis/batch/v1" in serving.admin("GET", "/").json["paths"]
    assert "apis/batch/v1" in serving.admin("GET", "/openapi/v3").json["paths"]
    assert serving.admin("GET", "/openapi/v3/apis/nowhere/v1").status == 404
    pods = {item["name"] for item in serving.admin("GET", "/api/v1").json["resources"]}
    assert {"pods/log", "pods/eviction", "pods/binding", "namespaces/finalize"} <= pods
    assert serving.admin("POST", "/version", {}).status == 405


def test_the_data_files_can_be_made_again(tmp_path: Path) -> None:
    source = tmp_path / "originals" / "jobset-v0.12.0" / "a.yaml"
    source.parent.mkdir(parents=True)
    source.write_text("a: 1\n")
    assert list(remake(tmp_path / "originals", tmp_path / "made")) == [tmp_path / "made/jobset-v0.12.0/a.json.gz"]


@pytest.mark.parametrize(
    ("meta", "field"),
    [
        ({"name": "..", "labels": {"a/b/c": "x"}}, "metadata.labels"),
        ({"annotations": {"/x": "y"}}, "metadata.annotations"),
        ({"annotations": {"x/": "y"}}, "metadata.annotations"),
        ({"labels": {"x" * 64: "y"}}, "metadata.labels"),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, "metadata.finalizers"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]},
            "metadata.ownerReferences",
        ),
        ({"namespace": "A"}, "metadata.namespace"),
    ],
)
def test_metadata_that_breaks_its_rules_is_named(serving: Serving, meta: dict[str, Any], field: str) -> None:
    namespaces = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
    serving.store.kind(namespaces).name_check = lambda _: []
    serving.store.create(namespaces, {"metadata": {"name": "A"}})
    job = train_job()
    job["metadata"] |= meta
    path = TRAIN_JOBS_PATH.replace(NAMESPACE, job["metadata"]["namespace"])
    answer = serving.admin("POST", path, job)
    assert field in [cause["field"] for cause in answer.json["details"]["causes"]]
