"""Objects in Kubernetes' protobuf, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.embedded.protobuf import MEDIA, Unreadable, read

from .conftest import NAMESPACE, TRAIN_JOBS_PATH, Serving

_KINDS = "io.k8s.api.authorization.v1"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def field(number: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(data)]) + data


def sent(kind: str, spec: bytes) -> bytes:
    said = field(1, "authorization.k8s.io/v1") + field(2, kind)
    return b"k8s\x00" + field(1, said) + field(2, field(1, b"") + field(2, spec)) + field(3, "") + field(4, "")


def test_a_review_of_a_resource() -> None:
    spec = field(1, field(1, "team-a") + field(2, "get") + field(3, "batch") + field(5, "jobs") + field(7, "j"))
    review = read(sent("SelfSubjectAccessReview", spec), f"{_KINDS}.SelfSubjectAccessReview")
    asked = {"namespace": "team-a", "verb": "get", "group": "batch", "resource": "jobs", "name": "j"}
    assert review["spec"] == {"resourceAttributes": asked}
    assert review["kind"] == "SelfSubjectAccessReview"


def test_a_review_of_another_user() -> None:
    spec = field(2, field(1, "/version") + field(2, "get")) + field(3, "alice") + field(4, "one") + field(4, "two")
    review = read(sent("SubjectAccessReview", spec), f"{_KINDS}.SubjectAccessReview")
    assert review["spec"] == {
        "nonResourceAttributes": {"path": "/version", "verb": "get"},
        "user": "alice",
        "groups": ["one", "two"],
    }


def test_numbers_and_unknown_fields_are_passed_over() -> None:
    spec = b"\x38\xac\x02" + field(9, "x") + field(1, "team-a")
    review = read(sent("SelfSubjectRulesReview", spec), f"{_KINDS}.SelfSubjectRulesReview")
    assert review["spec"] == {"namespace": "team-a"}


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"k8s\x00\x0a", b"k8s\x00\x0a\x05a", b"k8s\x00\x0d\x00\x00\x00\x00", b"k8s\x00\x80"],
)
def test_what_is_no_review_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read(body, "io.k8s.api.core.v1.Pod")


@given(st.binary(max_size=40))
def test_any_bytes_are_a_review_or_unreadable(data: bytes) -> None:
    try:
        assert isinstance(read(b"k8s\x00" + field(2, data), "io.k8s.api.core.v1.Pod"), dict)
    except ValueError:
        return


def test_a_pod_with_numbers_quantities_times_maps_and_what_is_inline() -> None:
    wants = field(2, field(1, "cpu") + field(2, field(1, "2")))
    mounted = field(9, field(1, "v") + field(3, "/v") + b"\x10\x01")
    port = field(6, b"\x18\xbb\x03")
    container = field(1, "c") + field(2, "i") + field(8, wants) + mounted + port
    claim = field(10, field(1, "claim"))
    spec = (
        field(1, field(1, "v") + field(2, claim))
        + field(2, container)
        + b"\x20\x05"
        + field(7, field(1, "a") + field(2, "b"))
    )
    meta = field(1, "p") + field(8, b"\x08\x80\x01") + field(11, field(1, "k") + field(2, "v")) + field(14, "f")
    pod = b"k8s\x00" + field(1, field(1, "v1") + field(2, "Pod")) + field(2, field(1, meta) + field(2, spec))
    assert read(pod, "io.k8s.api.core.v1.Pod") == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "creationTimestamp": "1970-01-01T00:02:08Z",
            "labels": {"k": "v"},
            "finalizers": ["f"],
        },
        "spec": {
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}],
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"requests": {"cpu": "2"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
                    "ports": [{"containerPort": 443}],
                }
            ],
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": {"a": "b"},
        },
    }


def test_a_config_map_is_created_from_one_and_a_custom_resource_is_not(serving: Serving) -> None:
    made = field(1, field(1, "c")) + field(2, field(1, "a") + field(2, "b")) + b"\x20\x01"
    body = b"k8s\x00" + field(1, field(1, "v1") + field(2, "ConfigMap")) + field(2, made)
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    answer = serving.admin("POST", path, body, MEDIA)
    assert (answer.status, answer.json["data"], answer.json["immutable"]) == (201, {"a": "b"}, True)
    other = body.replace(b"ConfigMap", b"NoSuchMap")
    assert serving.admin("POST", path, other, MEDIA).status == 400
    assert serving.admin("POST", TRAIN_JOBS_PATH, body, MEDIA).status == 415


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
