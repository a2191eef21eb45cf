"""Access reviews in Kubernetes' protobuf, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.embedded.protobuf import MEDIA, Unreadable, review

from .conftest import Serving

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def field(number: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(data)]) + data


def sent(kind: str, spec: bytes) -> bytes:
    said = field(1, "authorization.k8s.io/v1") + field(2, kind)
    return b"k8s\x00" + field(1, said) + field(2, field(1, b"") + field(2, spec)) + field(3, "") + field(4, "")


def test_a_review_of_a_resource() -> None:
    spec = field(1, field(1, "team-a") + field(2, "get") + field(3, "batch") + field(5, "jobs") + field(7, "j"))
    read = review(sent("SelfSubjectAccessReview", spec))
    asked = {"namespace": "team-a", "verb": "get", "group": "batch", "resource": "jobs", "name": "j"}
    assert read["spec"] == {"resourceAttributes": asked}
    assert read["kind"] == "SelfSubjectAccessReview"


def test_a_review_of_another_user() -> None:
    spec = field(2, field(1, "/version") + field(2, "get")) + field(3, "alice") + field(4, "one") + field(4, "two")
    read = review(sent("SubjectAccessReview", spec))["spec"]
    assert read == {
        "nonResourceAttributes": {"path": "/version", "verb": "get"},
        "user": "alice",
        "groups": ["one", "two"],
    }


def test_numbers_and_unknown_fields_are_passed_over() -> None:
    assert review(sent("SelfSubjectRulesReview", b"\x38\xac\x02" + field(9, "x") + field(1, "team-a")))["spec"] == {
        "namespace": "team-a"
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", sent("Pod", b""), b"k8s\x00\x0a", b"k8s\x00\x0a\x05a", b"k8s\x00\x0d\x00\x00\x00\x00", b"k8s\x00\x80"],
)
def test_what_is_no_review_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        review(body)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_review_or_unreadable(data: bytes) -> None:
    try:
        assert "spec" in review(b"k8s\x00" + data)
    except (Unreadable, UnicodeDecodeError):
        return


def test_the_server_answers_one_in_json(serving: Serving) -> None:
    spec = field(1, field(2, "list") + field(5, "pods"))
    answer = serving.admin("POST", _REVIEWS, sent("SelfSubjectAccessReview", spec), MEDIA)
    assert (answer.status, answer.json["status"]["allowed"]) == (201, True)
    refused = serving.admin("POST", _REVIEWS, b"nonsense", MEDIA)
    assert (refused.status, refused.json["reason"]) == (400, "BadRequest")


def test_each_kind_that_can_be_patched_says_that_the_server_validates_fields(serving: Serving) -> None:
    paths = serving.admin("GET", "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").json["paths"]
    (patch,) = [path["patch"] for name, path in paths.items() if name.endswith("/trainjobs/{name}")]
    assert "fieldValidation" in [each["name"] for each in patch["parameters"]]
    reviews = serving.admin("GET", "/openapi/v3/apis/authorization.k8s.io/v1").json["paths"]
    assert set(map(str, reviews.values())) == {"{}"}
