from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from dispatch_kubeflow.backend.requests.resources import PODS, TRAIN_JOBS

from .conftest import NAMESPACE, TRAIN_JOBS_PATH, Serving, train_job

PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


@pytest.fixture
def five(serving: Serving) -> Serving:
    for index in range(5):
        job = train_job(f"a-{index}")
        job["metadata"]["labels"] = {"even": str(index % 2 == 0).lower(), "n": str(index)}
        serving.store.create(TRAIN_JOBS, job)
    return serving


def test_pages_make_up_the_list_as_it_stood_at_the_first(five: Serving) -> None:
    first = five.admin("GET", f"{TRAIN_JOBS_PATH}?limit=2").json
    five.store.delete(TRAIN_JOBS, NAMESPACE, "a-3")
    five.store.create(TRAIN_JOBS, train_job("a-9"))
    second = five.admin("GET", f"{TRAIN_JOBS_PATH}?limit=2&continue={first['metadata']['continue']}").json
    third = five.admin("GET", f"{TRAIN_JOBS_PATH}?limit=2&continue={second['metadata']['continue']}").json
    assert names(first) + names(second) + names(third) == ["a-0", "a-1", "a-2", "a-3", "a-4"]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert first["metadata"]["remainingItemCount"] == 3


def test_pages_go_on_across_namespaces(five: Serving) -> None:
    cluster_wide = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
    first = five.admin("GET", f"{cluster_wide}?limit=3").json
    rest = five.admin("GET", f"{cluster_wide}?limit=3&continue={first['metadata']['continue']}").json
    assert names(first) + names(rest) == ["a-0", "a-1", "a-2", "a-3", "a-4"]


def test_a_compacted_page_is_410_with_a_token_for_the_rest(five: Serving) -> None:
    first = five.admin("GET", f"{TRAIN_JOBS_PATH}?limit=2").json
    five.store.create(TRAIN_JOBS, train_job("a-9"))
    five.store.compact()
    expired = five.admin("GET", f"{TRAIN_JOBS_PATH}?limit=2&continue={first['metadata']['continue']}")
    assert (expired.status, expired.json["reason"]) == (410, "Expired")
    rest = five.admin("GET", f"{TRAIN_JOBS_PATH}?continue={expired.json['metadata']['continue']}").json
    assert names(rest) == ["a-2", "a-3", "a-4", "a-9"]
    assert rest["metadata"]["resourceVersion"] == str(five.store.resource_version)


def test_an_exact_version_shows_the_past_until_it_is_compacted(five: Serving) -> None:
    then = five.store.resource_version
    five.store.delete(TRAIN_JOBS, NAMESPACE, "a-0")
    path = f"{TRAIN_JOBS_PATH}?resourceVersion={then}&resourceVersionMatch=Exact"
    assert len(five.admin("GET", path).json["items"]) == 5
    five.store.create(TRAIN_JOBS, train_job("a-9"))
    five.store.compact()
    assert five.admin("GET", path).json["reason"] == "Expired"
    assert five.admin("GET", f"{TRAIN_JOBS_PATH}?resourceVersion={then}").status == 200


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Newest",
        "sendInitialEvents=true",
    ],
)
def test_options_that_contradict_each_other_are_invalid(serving: Serving, query: str) -> None:
    answer = serving.admin("GET", f"{TRAIN_JOBS_PATH}?{query}")
    assert (answer.status, answer.json["details"]["kind"]) == (422, "ListOptions")


@pytest.mark.parametrize(
    "token",
    ["!!", base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v2", "rv": 1, "start": "a"}).encode()).decode()],
)
def test_a_token_the_server_did_not_write_is_a_bad_request(serving: Serving, token: str) -> None:
    assert serving.admin("GET", f"{TRAIN_JOBS_PATH}?continue={token}").json["reason"] == "BadRequest"


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("even=true", ["a-0", "a-2", "a-4"]),
        ("even!=true", ["a-1", "a-3"]),
        ("n%20in%20(1,2)", ["a-1", "a-2"]),
        ("n%20notin%20(1,2,3)", ["a-0", "a-4"]),
        ("even,n%3E2", ["a-3", "a-4"]),
        ("!even", []),
        ("even==true,n=2", ["a-2"]),
    ],
)
def test_label_selectors_select(five: Serving, selector: str, found: list[str]) -> None:
    assert names(five.admin("GET", f"{TRAIN_JOBS_PATH}?labelSelector={selector}").json) == found


@pytest.mark.parametrize("selector", ["a%20b", "=", "a=b=c", "a=" + "x" * 64, "-a=b"])
def test_a_label_selector_that_cannot_be_read_is_a_bad_request(five: Serving, selector: str) -> None:
    assert five.admin("GET", f"{TRAIN_JOBS_PATH}?labelSelector={selector}").status == 400


def test_field_selectors_know_the_name_and_a_pods_node_and_phase(five: Serving) -> None:
    for name, node in (("p-1", "node-1"), ("p-2", None)):
        spec = {"containers": [{"name": "c", "image": "x"}], **({"nodeName": node} if node else {})}
        five.store.create(PODS, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    assert names(five.admin("GET", f"{TRAIN_JOBS_PATH}?fieldSelector=metadata.name=a-1").json) == ["a-1"]
    assert names(five.admin("GET", f"{PODS_PATH}?fieldSelector=spec.nodeName=node-1").json) == ["p-1"]
    assert names(five.admin("GET", f"{PODS_PATH}?fieldSelector=status.phase=Pending,spec.nodeName!=node-1").json) == [
        "p-2"
    ]
    assert five.admin("GET", f"{TRAIN_JOBS_PATH}?fieldSelector=spec.suspend=true").status == 400


def test_items_of_a_built_in_list_do_not_repeat_their_kind(five: Serving) -> None:
    pod = {"metadata": {"name": "p", "namespace": NAMESPACE}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    five.store.create(PODS, pod)
    assert "kind" not in five.admin("GET", PODS_PATH).json["items"][0]
    assert five.admin("GET", TRAIN_JOBS_PATH).json["items"][0]["kind"] == "TrainJob"


def test_kubectls_table_and_bare_metadata_are_served(five: Serving) -> None:
    table = five.admin("GET", TRAIN_JOBS_PATH, Accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert [row["cells"][0] for row in table.json["rows"]] == ["a-0", "a-1", "a-2", "a-3", "a-4"]
    bare = five.admin(
        "GET", f"{TRAIN_JOBS_PATH}/a-1", Accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    )
    assert (bare.json["kind"], "spec" in bare.json) == ("PartialObjectMetadata", False)


def test_a_whole_collection_can_be_deleted(five: Serving) -> None:
    assert five.admin("DELETE", f"{TRAIN_JOBS_PATH}?labelSelector=even=true").status == 200
    assert names(five.admin("GET", TRAIN_JOBS_PATH).json) == ["a-1", "a-3"]


def test_discovery_names_groups_versions_and_resources(serving: Serving) -> None:
    groups = {group["name"] for group in serving.admin("GET", "/apis").json["groups"]}
    assert {"trainer.kubeflow.org", "jobset.x-k8s.io", "kueue.x-k8s.io", "batch"} <= groups
    resources = serving.admin("GET", "/apis/trainer.kubeflow.org/v1alpha1").json["resources"]
    assert {"trainjobs", "trainjobs/status", "trainingruntimes"} <= {item["name"] for item in resources}
    assert serving.admin("GET", "/apis/trainer.kubeflow.org/v1").status == 404
    assert serving.admin("GET", "/version").json["gitVersion"] == "v1.36.3"
    assert serving.admin("GET", "/openapi/v3/apis/jobset.x-k8s.io/v1alpha2").json["openapi"] == "3.0.0"
