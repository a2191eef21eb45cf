from __future__ import annotations

from typing import Any

import pytest

from dispatch_kubeflow.backend.requests.resources import Resource

from .conftest import MERGE, NAMESPACE, TRAIN_JOBS_PATH, Serving, train_job

RBAC = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1"
READ = {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["get", "list"]}


def review(serving: Serving, token: str, **attributes: str) -> Any:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    asked = {"group": "trainer.kubeflow.org", "resource": "trainjobs", "namespace": NAMESPACE, **attributes}
    answer = serving.caller(token)(
        "POST", f"{REVIEWS}/selfsubjectaccessreviews", {**body, "spec": {"resourceAttributes": asked}}
    )
    assert answer.status == 201
    return answer.json["status"]


def bind(serving: Serving, role: dict[str, Any], *, cluster: bool, subject: dict[str, str]) -> None:
    prefix = "cluster" if cluster else ""
    kind = "ClusterRole" if cluster else "Role"
    meta = {"name": "r", **({} if cluster else {"namespace": NAMESPACE})}
    serving.store.create(Resource(RBAC, "v1", f"{prefix}roles", kind, not cluster), {"metadata": meta, "rules": [role]})
    serving.store.create(
        Resource(RBAC, "v1", f"{prefix}rolebindings", f"{kind}Binding", not cluster),
        {"metadata": meta, "subjects": [subject], "roleRef": {"apiGroup": RBAC, "kind": kind, "name": "r"}},
    )


def test_a_user_may_what_its_rules_say_and_nothing_else(serving: Serving) -> None:
    reader = serving.caller(serving.apiserver.access.user("reader", [READ]))
    assert reader("GET", TRAIN_JOBS_PATH).status == 200
    assert reader("POST", TRAIN_JOBS_PATH, train_job()).json["reason"] == "Forbidden"
    assert reader("GET", f"{TRAIN_JOBS_PATH}?watch=1").status == 403
    assert reader("GET", f"/api/v1/namespaces/{NAMESPACE}/pods").status == 403


def test_a_rule_on_a_resource_does_not_cover_its_subresource(serving: Serving) -> None:
    rule = {**READ, "verbs": ["patch"]}
    writer = serving.caller(serving.apiserver.access.user("writer", [rule]))
    answer = writer("PATCH", f"{TRAIN_JOBS_PATH}/sa-1/status", {}, MERGE)
    assert 'cannot patch resource "trainjobs/status"' in answer.json["message"]


def test_a_rule_may_hold_for_names_and_for_one_namespace(serving: Serving) -> None:
    serving.store.create(Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"), train_job())
    rule = {**READ, "resourceNames": ["sa-1"], "namespace": NAMESPACE}
    named = serving.caller(serving.apiserver.access.user("named", [rule]))
    assert named("GET", f"{TRAIN_JOBS_PATH}/sa-1").status == 200
    assert named("GET", f"{TRAIN_JOBS_PATH}/sa-2").status == 403
    assert named("GET", f"{TRAIN_JOBS_PATH}?fieldSelector=metadata.name=sa-1").status == 200
    assert named("GET", f"{TRAIN_JOBS_PATH.replace(NAMESPACE, 'team-b')}/sa-1").status == 403


@pytest.mark.parametrize("cluster", [True, False])
def test_roles_stored_in_the_cluster_hold_at_once(serving: Serving, cluster: bool) -> None:
    token = serving.apiserver.access.user("late")
    assert review(serving, token, verb="get")["allowed"] is False
    bind(serving, READ, cluster=cluster, subject={"kind": "User", "name": "late", "apiGroup": RBAC})
    status = review(serving, token, verb="get")
    kind = "ClusterRole" if cluster else "Role"
    where = "r" if cluster else f"r/{NAMESPACE}"
    assert status == {
        "allowed": True,
        "reason": f'RBAC: allowed by {kind}Binding "{where}" of {kind} "r" to User "late"',
    }


def test_groups_and_service_accounts_are_subjects_too(serving: Serving) -> None:
    grouped = serving.apiserver.access.user("one", groups=["readers"])
    account = serving.apiserver.access.user(f"system:serviceaccount:{NAMESPACE}:runner")
    bind(serving, READ, cluster=True, subject={"kind": "Group", "name": "readers", "apiGroup": RBAC})
    bind(serving, READ, cluster=False, subject={"kind": "ServiceAccount", "name": "runner", "namespace": NAMESPACE})
    assert review(serving, grouped, verb="list")["allowed"]
    assert review(serving, account, verb="list")["allowed"]


def test_a_revoked_token_is_unknown(serving: Serving) -> None:
    token = serving.apiserver.access.user("gone", [READ])
    serving.apiserver.access.revoke(token)
    assert serving.caller(token)("GET", TRAIN_JOBS_PATH).status == 401


@pytest.mark.parametrize("header", ["Basic eDp5", "Bearer ", "Bearer"])
def test_what_is_no_bearer_token_is_nobodys(serving: Serving, header: str) -> None:
    answer = serving.caller(None)("GET", TRAIN_JOBS_PATH, Authorization=header)
    assert (answer.status, "system:anonymous" in answer.json["message"]) == (403, True)


def test_everybody_known_may_discover_and_review_and_nobody_else(serving: Serving) -> None:
    known = serving.caller(serving.apiserver.access.user("nobody-special"))
    assert [known("GET", path).status for path in ("/apis", "/api/v1", "/version", "/openapi/v3", "/metrics")] == [
        200,
        200,
        200,
        200,
        403,
    ]
    stranger = serving.caller(None)
    assert [stranger("GET", path).status for path in ("/version", "/healthz", "/apis")] == [200, 200, 403]
    assert stranger("GET", "/apis").json["details"] == {}


def test_a_review_of_nothing_is_invalid(serving: Serving) -> None:
    answer = serving.admin("POST", f"{REVIEWS}/selfsubjectaccessreviews", {"spec": {}})
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    both = {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"verb": "get", "path": "/"}}
    assert serving.admin("POST", f"{REVIEWS}/selfsubjectaccessreviews", {"spec": both}).status == 422


def test_a_review_can_be_of_another_user_and_of_a_path(serving: Serving) -> None:
    serving.apiserver.access.user("reader", [READ])
    spec = {
        "user": "reader",
        "resourceAttributes": {"verb": "get", "group": "trainer.kubeflow.org", "resource": "trainjobs"},
    }
    answer = serving.admin("POST", f"{REVIEWS}/subjectaccessreviews", {"spec": spec})
    assert answer.json["status"]["allowed"] is True
    path = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}, "user": "reader"}
    assert serving.admin("POST", f"{REVIEWS}/subjectaccessreviews", {"spec": path}).json["status"]["allowed"] is False
    local = f"{REVIEWS}/namespaces/{NAMESPACE}/localsubjectaccessreviews"
    assert serving.admin("POST", local, {"spec": spec}).status == 422


def test_a_rules_review_lists_what_holds(serving: Serving) -> None:
    token = serving.apiserver.access.user("reader", [READ, {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    answer = serving.caller(token)("POST", f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": NAMESPACE}})
    assert READ in answer.json["status"]["resourceRules"]
    assert {"nonResourceURLs": ["/metrics"], "verbs": ["get"]} in answer.json["status"]["nonResourceRules"]


def test_a_review_is_not_listed(serving: Serving) -> None:
    assert serving.admin("GET", f"{REVIEWS}/selfsubjectaccessreviews").status == 405
