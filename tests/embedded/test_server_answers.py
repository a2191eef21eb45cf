from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded.admission import Denial, undecodable
from dispatch_kubeflow.backend.requests.resources import PODS, TRAIN_JOBS, Resource

from .conftest import MERGE, NAMESPACE, TRAIN_JOBS_PATH, Reply, Serving, train_job

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
OTHER_UID = "00000000-0000-0000-0000-000000000000"
SAMPLED_POD = "sb-1-node-0-0-r4mnk"
SAMPLED_UID = "26bcb4e0-514b-4039-abe1-c0a0bd6de110"
POD_LOG = f"/api/v1/namespaces/{NAMESPACE}/pods/{SAMPLED_POD}/log"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"


def _stale(serving: Serving) -> Reply:
    patch = {"metadata": {"resourceVersion": "1"}}
    return serving.admin("PATCH", f"{TRAIN_JOBS_PATH}/sa-1", patch, MERGE)


def _other_uid(serving: Serving) -> Reply:
    return serving.admin("PATCH", f"{TRAIN_JOBS_PATH}/sa-1", {"metadata": {"uid": OTHER_UID}}, MERGE)


def _immutable(serving: Serving) -> Reply:
    return serving.admin("PATCH", f"{TRAIN_JOBS_PATH}/sa-1", {"spec": {"trainer": {"numNodes": 5}}}, MERGE)


def _denied(answer: Denial, name: str) -> Callable[[Serving], Reply]:
    def ask(serving: Serving) -> Reply:
        serving.admission.validating(name, TRAIN_JOBS, lambda _: answer)
        return serving.admin("POST", TRAIN_JOBS_PATH, train_job("sx-1"))

    return ask


def _over_schema(serving: Serving) -> Reply:
    return serving.admin("POST", TRAIN_JOBS_PATH, train_job("sx-1", trainer={"image": "x" * 501}))


def _strict(serving: Serving) -> Reply:
    job = train_job("sx-1", trainer={"bogus": 1})
    return serving.admin("POST", f"{TRAIN_JOBS_PATH}?fieldValidation=Strict", job)


def _unbound(serving: Serving) -> str:
    """A user bound to a ClusterRole and a Role that are not there, as the one the samples were taken with."""
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "User", "name": "dispatch", "apiGroup": group}
    for plural, kind, role, namespaced in (
        ("clusterrolebindings", "ClusterRoleBinding", "ClusterRole", False),
        ("rolebindings", "RoleBinding", "Role", True),
    ):
        meta = {"name": "d", **({"namespace": NAMESPACE} if namespaced else {})}
        binding = {"metadata": meta, "subjects": [subject], "roleRef": {"apiGroup": group, "kind": role, "name": "d"}}
        serving.store.create(Resource(group, "v1", plural, kind, namespaced), binding)
    return serving.apiserver.access.user("dispatch")


def _rbac_create(serving: Serving) -> Reply:
    return serving.caller(_unbound(serving))("POST", TRAIN_JOBS_PATH, train_job("sx-1"))


def _rbac_get(serving: Serving) -> Reply:
    return serving.caller(_unbound(serving))("GET", f"{TRAIN_JOBS_PATH}/sa-1")


def _stale_workload(serving: Serving) -> Reply:
    name = "trainjob-sa-1-d17c0"
    template = {"spec": {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"podSets": [{"name": "node", "count": 1, "template": template}]},
    }
    assert serving.admin("POST", WORKLOADS, workload).status == 201
    return serving.admin("PATCH", f"{WORKLOADS}/{name}/status", {"metadata": {"resourceVersion": "1"}}, MERGE)


def _with_pod(query: str) -> Callable[[Serving], Reply]:
    def ask(serving: Serving) -> Reply:
        spec = {"nodeName": "node-1", "containers": [{"name": "node", "image": "x:y"}]}
        serving.store.create(PODS, {"metadata": {"name": SAMPLED_POD, "namespace": NAMESPACE}, "spec": spec})
        return serving.admin("GET", f"{POD_LOG}{query}")

    return ask


CASES: dict[str, Callable[[Serving], Reply]] = {
    "create, name exists": lambda s: s.admin("POST", TRAIN_JOBS_PATH, train_job()),
    "create, runtime absent": _denied(Denial("runtime 'absent' not found"), "vtrainjob.kb.io"),
    "create, numNodes too large for int32": _denied(
        undecodable(
            "json: cannot unmarshal number 2147483648 into Go struct field Trainer.spec.trainer.numNodes of type int32"
        ),
        "defaulter.trainjob.trainer.kubeflow.org",
    ),
    "create, over schema": _over_schema,
    "create, strict, unknown field": _strict,
    "patch, stale resourceVersion": _stale,
    "patch, other uid": _other_uid,
    "patch, immutable": _immutable,
    "patch, absent": lambda s: s.admin("PATCH", f"{TRAIN_JOBS_PATH}/absent-1", {}, MERGE),
    "delete, wrong uid": lambda s: s.admin("DELETE", f"{TRAIN_JOBS_PATH}/sa-1", {"preconditions": {"uid": OTHER_UID}}),
    "delete, absent": lambda s: s.admin("DELETE", f"{TRAIN_JOBS_PATH}/absent-1"),
    "create, RBAC": _rbac_create,
    "get, RBAC": _rbac_get,
    "no token": lambda s: s.caller(None)("GET", f"{TRAIN_JOBS_PATH}/sa-1"),
    "unknown token": lambda s: s.caller("nobody")("GET", f"{TRAIN_JOBS_PATH}/sa-1"),
    "list, Exact version of the future": lambda s: s.admin(
        "GET", f"{TRAIN_JOBS_PATH}?resourceVersion=999999999&resourceVersionMatch=Exact"
    ),
    "workload status, stale version": _stale_workload,
    "log, pod absent": lambda s: s.admin("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/absent/log"),
    "delete, success": lambda s: s.admin("DELETE", f"{TRAIN_JOBS_PATH}/sa-1"),
    "log, container unknown": _with_pod("?container=zz"),
    "log, stream asked for": _with_pod("?stream=Stdout"),
    "log, tail negative": _with_pod("?tailLines=-1"),
    "log, the pod's node object is gone": _with_pod(""),
}


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_the_real_ones_word_for_word(serving: Serving, samples: dict[str, Any], case: str) -> None:
    made = serving.store.create(TRAIN_JOBS, train_job())
    answer = CASES[case](serving)
    sample = samples[case]
    wanted = _as_here(sample["body"], made["metadata"]["uid"], str(serving.store.resource_version))
    assert (answer.status, answer.json) == (sample["status"], wanted)
    assert {key: answer.headers.get(key) for key in sample["headers"]} == sample["headers"]


def _as_here(value: Any, uid: str, version: str) -> Any:
    """A sample with what differs from run to run replaced: a uid, a current version."""
    if isinstance(value, dict):
        return {key: _as_here(item, uid, version) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_here(item, uid, version) for item in value]
    if isinstance(value, str):
        return value.replace(SAMPLED_UID, uid).replace("current: 26994", f"current: {version}")
    return value


def test_a_continue_token_of_nonsense_is_a_bad_request(serving: Serving, samples: dict[str, Any]) -> None:
    answer = serving.admin("GET", f"{TRAIN_JOBS_PATH}?continue=z25z")
    assert (answer.status, answer.json) == (400, samples["list, continue nonsense"]["body"])


def test_an_unknown_field_is_dropped_and_warned_of(serving: Serving, samples: dict[str, Any]) -> None:
    answer = serving.admin("POST", TRAIN_JOBS_PATH, train_job(trainer={"bogus": 1}))
    assert (answer.status, answer.headers["warning"]) == (
        201,
        samples["create, warn, unknown field"]["headers"]["warning"],
    )
    assert answer.json["spec"]["trainer"] == {}


def test_duplicate_keys_are_warned_of_and_the_last_wins(serving: Serving) -> None:
    text = (
        b'{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"d-1"},'
        b'"spec":{"runtimeRef":{"name":"t"},"suspend":false,"suspend":true}}'
    )
    answer = serving.admin("POST", TRAIN_JOBS_PATH, text)
    assert (answer.status, answer.json["spec"]["suspend"]) == (201, True)
    assert answer.headers["warning"] == '299 - "duplicate field \\"spec.suspend\\""'
    assert serving.admin("POST", f"{TRAIN_JOBS_PATH}?fieldValidation=Strict", text).status == 400


@pytest.mark.parametrize("prefix", ["/apis/nowhere.example/v1", "/apis/trainer.kubeflow.org/v9", "/nothing"])
def test_an_unknown_path_is_answered_in_plain_text(serving: Serving, prefix: str) -> None:
    answer = serving.admin("GET", f"{prefix}/things/x")
    assert (answer.status, answer.body) == (404, b"404 page not found\n")


def test_an_unknown_resource_of_a_built_in_group_is_answered_in_json(serving: Serving) -> None:
    assert serving.admin("GET", "/api/v1/things").json["reason"] == "NotFound"


def test_post_on_an_items_path_is_a_create(serving: Serving) -> None:
    serving.store.create(TRAIN_JOBS, train_job())
    assert serving.admin("POST", f"{TRAIN_JOBS_PATH}/sa-1", train_job()).json["reason"] == "AlreadyExists"


def test_create_with_a_version_is_500_without_a_reason(serving: Serving) -> None:
    job = train_job()
    job["metadata"]["resourceVersion"] = "5"
    answer = serving.admin("POST", TRAIN_JOBS_PATH, job)
    assert (answer.status, "reason" in answer.json) == (500, False)


def test_a_version_that_is_no_number_is_500_in_a_patch_and_a_watch_and_400_in_a_list(serving: Serving) -> None:
    serving.store.create(TRAIN_JOBS, train_job())
    patched = serving.admin("PATCH", f"{TRAIN_JOBS_PATH}/sa-1", {"metadata": {"resourceVersion": "x"}}, MERGE)
    watched = serving.admin("GET", f"{TRAIN_JOBS_PATH}?watch=1&resourceVersion=x")
    listed = serving.admin("GET", f"{TRAIN_JOBS_PATH}?resourceVersion=x")
    assert [item.status for item in (patched, watched, listed)] == [500, 500, 400]
    assert "reason" not in patched.json
    assert "reason" not in watched.json


def test_put_of_another_uid_is_a_conflict_and_without_a_version_invalid(serving: Serving) -> None:
    made = serving.store.create(TRAIN_JOBS, train_job())
    made["metadata"]["uid"] = OTHER_UID
    assert serving.admin("PUT", f"{TRAIN_JOBS_PATH}/sa-1", made).json["reason"] == "Conflict"
    assert serving.admin("PUT", f"{TRAIN_JOBS_PATH}/sa-1", train_job()).status == 422


def test_put_under_another_name_is_a_bad_request(serving: Serving) -> None:
    made = serving.store.create(TRAIN_JOBS, train_job())
    assert serving.admin("PUT", f"{TRAIN_JOBS_PATH}/sa-2", made).status == 400


@pytest.mark.parametrize(
    ("accept", "status"),
    [("application/json", 200), ("*/*", 200), ("text/html", 406), ("application/vnd.kubernetes.protobuf", 406)],
)
def test_what_cannot_be_served_is_not_acceptable(serving: Serving, accept: str, status: int) -> None:
    assert serving.admin("GET", TRAIN_JOBS_PATH, Accept=accept).status == status


def test_a_strategic_patch_of_a_custom_resource_is_an_unsupported_media_type(serving: Serving) -> None:
    serving.store.create(TRAIN_JOBS, train_job())
    answer = serving.admin("PATCH", f"{TRAIN_JOBS_PATH}/sa-1", {}, "application/strategic-merge-patch+json")
    assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")


def test_a_body_over_the_limit_is_too_large(serving: Serving) -> None:
    answer = serving.admin("POST", TRAIN_JOBS_PATH, b"x" * (3 * 1024 * 1024 + 1))
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"kind":"TrainJob"}', b'{"a":NaN}'])
def test_a_body_that_is_no_object_is_a_bad_request(serving: Serving, body: bytes) -> None:
    answer = serving.admin("POST", TRAIN_JOBS_PATH, body)
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


def test_an_object_of_another_version_is_a_bad_request(serving: Serving) -> None:
    answer = serving.admin("POST", TRAIN_JOBS_PATH, {**train_job(), "apiVersion": "batch/v1"})
    assert answer.json["message"] == (
        "the API version in the data (batch/v1) does not match the expected API version (trainer.kubeflow.org/v1alpha1)"
    )


def test_a_webhook_whose_server_is_down_fails_every_write_it_would_see(serving: Serving) -> None:
    serving.admission.validating("vtrainjob.kb.io", TRAIN_JOBS, lambda _: None)
    serving.admission.set_down(True, group="trainer.kubeflow.org")
    answer = serving.admin("POST", TRAIN_JOBS_PATH, train_job())
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    assert 'failed calling webhook "vtrainjob.kb.io"' in answer.json["message"]
    assert serving.store.find(TRAIN_JOBS, NAMESPACE, "sa-1") is None


def test_large_answers_are_compressed_when_asked_and_small_ones_never(serving: Serving) -> None:
    for index in range(4):
        serving.store.create(TRAIN_JOBS, train_job(f"big-{index}", trainer={"args": ["x" * 50_000]}))
    large = serving.admin("GET", TRAIN_JOBS_PATH, Accept_Encoding="gzip")
    small = serving.admin("GET", f"{TRAIN_JOBS_PATH}?limit=1", Accept_Encoding="gzip")
    assert (large.headers.get("content-encoding"), small.headers.get("content-encoding")) == ("gzip", None)


def test_the_servers_own_faults_are_answered_and_kept(serving: Serving) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError("broken webhook")

    serving.admission.validating("broken", TRAIN_JOBS, broken)
    assert serving.admin("POST", TRAIN_JOBS_PATH, train_job()).status == 500
    assert "broken webhook" in serving.apiserver.failures.pop()


def test_every_request_is_recorded_with_its_answer_and_what_it_committed(serving: Serving) -> None:
    serving.admin("POST", TRAIN_JOBS_PATH, train_job())
    serving.admin("POST", TRAIN_JOBS_PATH, train_job())
    seen = [(item.method, item.path, item.status, item.committed) for item in serving.apiserver.requests]
    assert seen == [
        ("POST", TRAIN_JOBS_PATH, 201, serving.store.resource_version),
        ("POST", TRAIN_JOBS_PATH, 409, None),
    ]
    assert serving.store.commits[-1].request == serving.apiserver.requests[0].id
