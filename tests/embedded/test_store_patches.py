from __future__ import annotations

from typing import Any, ClassVar

import pytest

from dispatch_kubeflow.backend.embedded import patches
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.store import Store
from dispatch_kubeflow.backend.requests.resources import CONFIG_MAPS, JOBS, PODS, WORKLOADS

from .test_store import NAMESPACE, HandClock, clock, pod, refusal, store, train_job

__all__ = ["HandClock", "clock", "store"]


@pytest.mark.parametrize(
    ("current", "patch", "after"),
    [
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
        ({}, [1], [1]),
    ],
)
def test_merge_patch(current: Any, patch: Any, after: Any) -> None:
    assert patches.merge(current, patch) == after


@pytest.mark.parametrize(
    ("operations", "after"),
    [
        ([{"op": "add", "path": "/b", "value": 1}], {"a": [1, 2], "b": 1}),
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ([{"op": "replace", "path": "/a", "value": 0}], {"a": 0}),
        ([{"op": "copy", "from": "/a/0", "path": "/c"}], {"a": [1, 2], "c": 1}),
        ([{"op": "move", "from": "/a", "path": "/x~1y"}], {"x/y": [1, 2]}),
        ([{"op": "test", "path": "/a/0", "value": 1}, {"op": "test", "path": "/zz", "value": None}], {"a": [1, 2]}),
        ([{"op": "replace", "path": "", "value": {"n": 1}}], {"n": 1}),
        ([{"op": "replace", "path": "/zz", "value": 1}, {"op": "remove", "path": "/a"}], {"zz": 1}),
        ([{"op": "replace", "path": "/a/0", "value": 3}], {"a": [3, 2]}),
    ],
)
def test_json_patch(operations: list[Any], after: Any) -> None:
    assert patches.json_patch({"a": [1, 2]}, operations) == after


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 1},
        {"op": "test", "path": "/zz", "value": 1},
        {"op": "test", "path": "/b", "value": 1},
        {"op": "remove", "path": "/zz"},
        {"op": "add", "path": "/a/9", "value": 1},
        {"op": "add", "path": "/zz/y", "value": 1},
        {"op": "add", "path": "/b/y", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/c"},
        {"op": "replace", "path": "/a/9", "value": 1},
        {"op": "replace", "path": "/zz/y", "value": 1},
        {"op": "zz", "path": "/a"},
        {"op": "add", "value": 1},
    ],
)
def test_a_json_patch_that_fails_is_422_and_changes_nothing(operation: Any) -> None:
    document = {"a": [1], "b": True}
    with pytest.raises(ApiError) as caught:
        patches.json_patch(document, [{"op": "add", "path": "/x", "value": 1}, operation])
    assert (caught.value.status, caught.value.body()["details"]) == (422, {})
    assert document == {"a": [1], "b": True}


@pytest.mark.parametrize(
    ("patch", "status"), [({}, 400), (["x"], 400), ([{"op": "test", "path": "/a", "value": 1}] * 10_001, 413)]
)
def test_what_is_no_json_patch_is_refused(patch: Any, status: int) -> None:
    assert refusal(patches.json_patch, {"a": 1}, patch).status == status


def test_strategic_merge_goes_by_the_keys_of_lists() -> None:
    current = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}
    patch = {"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "c"}, {"name": "a", "$patch": "delete"}]}}
    assert patches.strategic(current, patch, "pods")["spec"]["containers"] == [
        {"name": "c"},
        {"name": "b", "image": "2"},
    ]


def test_strategic_merge_obeys_its_directives() -> None:
    current = {"metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]}, "spec": {"emptyDir": {}, "name": "v"}}
    patch = {
        "metadata": {"labels": {"$patch": "replace", "c": "d"}, "$deleteFromPrimitiveList/finalizers": ["x/y"]},
        "spec": {"$retainKeys": ["name"], "name": "w", "$setElementOrder/x": []},
    }
    after = patches.strategic(current, patch, "pods")
    assert after == {"metadata": {"labels": {"c": "d"}, "finalizers": []}, "spec": {"name": "w"}}
    assert patches.strategic(current, {"$patch": "delete"}, "pods") == {}


def test_strategic_merge_adds_to_sets_and_replaces_atomic_lists() -> None:
    current = {"metadata": {"finalizers": ["a/b"]}, "status": {"conditions": [{"type": "A"}]}, "args": ["x"]}
    patch = {"metadata": {"finalizers": ["c/d"]}, "status": {"conditions": [{"type": "B"}]}, "args": ["y"]}
    after = patches.strategic(current, patch, "jobs")
    assert after == {
        "metadata": {"finalizers": ["a/b", "c/d"]},
        "status": {"conditions": [{"type": "B"}]},
        "args": ["y"],
    }
    replaced = {"status": {"conditions": [{"$patch": "replace"}, {"type": "C"}]}}
    assert patches.strategic(current, replaced, "pods")["status"]["conditions"] == [{"type": "C"}]


def test_a_strategic_item_without_its_key_is_500_where_there_is_something_to_merge_with() -> None:
    current = {"containers": [{"name": "a"}]}
    assert refusal(patches.strategic, current, {"containers": [{"image": "x"}]}, "pods").status == 500
    assert patches.strategic({}, {"containers": [{"image": "x"}]}, "pods") == {"containers": [{"image": "x"}]}


def test_ports_merge_by_the_key_their_kind_has() -> None:
    pods = {"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]}
    after = patches.strategic(
        pods, {"containers": [{"name": "a", "ports": [{"containerPort": 1, "name": "x"}]}]}, "pods"
    )
    assert after["containers"][0]["ports"] == [{"containerPort": 1, "name": "x"}]


def workload(store: Store) -> None:
    store.create(WORKLOADS, {"metadata": {"name": "w", "namespace": NAMESPACE}, "spec": {}})


def checks(*entries: tuple[str, str]) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": name, "status": state} for name, state in entries]}}


def applied(store: Store, patch: dict[str, Any], manager: str, *, force: bool = False) -> dict[str, str]:
    after = store.patch(WORKLOADS, NAMESPACE, "w", patch, "apply", "status", manager=manager, force=force)
    return {item["type"]: item["status"] for item in after.get("status", {}).get("conditions", [])}


@pytest.fixture
def shaped(store: Store) -> Store:
    class Shaped:
        structure: ClassVar[Any] = {
            "properties": {
                "status": {
                    "properties": {
                        "conditions": {
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["type"],
                            "items": {},
                        }
                    }
                }
            }
        }

        def decode(self, obj: Any, old: Any = None) -> list[str]:
            return []

        def default(self, obj: Any, old: Any = None) -> None:
            return None

        def validate(self, new: Any, old: Any, *, blocked: bool) -> list[Any]:
            return []

    store.kind(WORKLOADS).schema = Shaped()
    workload(store)
    return store


def test_an_apply_touches_its_own_entries_alone(shaped: Store) -> None:
    shaped.patch(WORKLOADS, NAMESPACE, "w", checks(("a", "Pending"), ("b", "Ready")), subresource="status")
    assert applied(shaped, checks(("a", "Ready")), "me", force=True) == {"a": "Ready", "b": "Ready"}


def test_an_apply_conflicts_with_another_managers_value_unless_forced(shaped: Store) -> None:
    applied(shaped, checks(("a", "Pending")), "one")
    error = refusal(applied, shaped, checks(("a", "Ready")), "two")
    assert (error.status, error.reason) == (409, "Conflict")
    assert error.causes == (
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "one" with subresource "status"',
            "field": '.status.conditions[type="a"].status',
        },
    )
    assert applied(shaped, checks(("a", "Ready")), "two", force=True) == {"a": "Ready"}
    assert refusal(applied, shaped, checks(("a", "Pending")), "one").status == 409


def test_several_conflicts_are_listed_by_manager(shaped: Store) -> None:
    applied(shaped, checks(("a", "Pending"), ("b", "Pending")), "one")
    error = refusal(applied, shaped, checks(("a", "Ready"), ("b", "Ready")), "two")
    assert error.message.startswith(
        'Apply failed with 2 conflicts: conflicts with "one" with subresource "status":\n- .'
    )


def test_two_managers_may_agree(shaped: Store) -> None:
    applied(shaped, checks(("a", "Ready")), "one")
    assert applied(shaped, checks(("a", "Ready")), "two") == {"a": "Ready"}
    assert applied(shaped, {"status": {}}, "one") == {"a": "Ready"}
    assert applied(shaped, {"status": {}}, "two") == {}


def test_what_a_manager_applies_no_more_is_taken_away(shaped: Store) -> None:
    applied(shaped, checks(("a", "Ready"), ("b", "Ready")), "me")
    assert applied(shaped, checks(("b", "Ready")), "me") == {"b": "Ready"}


def test_an_update_takes_over_what_it_changes(shaped: Store) -> None:
    applied(shaped, checks(("a", "Ready")), "me")
    shaped.patch(WORKLOADS, NAMESPACE, "w", checks(("a", "Pending")), subresource="status", manager="kueue")
    error = refusal(applied, shaped, checks(("a", "Ready")), "me")
    assert 'conflict with "kueue" with subresource "status" using kueue.x-k8s.io/v1beta2: ' in error.message


def test_an_apply_creates_what_is_absent_but_no_status(store: Store) -> None:
    made = store.patch(WORKLOADS, NAMESPACE, "new", {"metadata": {"labels": {"a": "b"}}}, "apply", manager="me")
    assert made["metadata"]["managedFields"][0]["fieldsV1"] == {"f:metadata": {"f:labels": {"f:a": {}}}}
    assert (
        refusal(store.patch, WORKLOADS, NAMESPACE, "no", {"status": {}}, "apply", "status", manager="me").status == 404
    )
    uid = {"metadata": {"uid": "x"}}
    assert refusal(store.patch, WORKLOADS, NAMESPACE, "no", uid, "apply", manager="me").status == 409


def test_an_apply_that_changes_nothing_is_not_committed(store: Store) -> None:
    patch = {"metadata": {"labels": {"a": "b"}}}
    first = store.patch(WORKLOADS, NAMESPACE, "w", patch, "apply", manager="me")
    assert store.patch(WORKLOADS, NAMESPACE, "w", patch, "apply", manager="me") == first


def test_an_apply_that_is_no_object_or_carries_ownership_is_refused(store: Store) -> None:
    assert refusal(store.patch, WORKLOADS, NAMESPACE, "w", [], "apply").status == 400
    owned = {"metadata": {"managedFields": [{}]}}
    assert refusal(store.patch, WORKLOADS, NAMESPACE, "w", owned, "apply").status == 400


def test_a_pods_spec_is_fixed_but_for_its_images(store: Store) -> None:
    store.create(PODS, pod())
    changed = store.patch(PODS, NAMESPACE, "p", {"spec": {"containers": [{"name": "node", "image": "z"}]}}, "strategic")
    assert changed["metadata"]["generation"] == 2
    assert refusal(store.patch, PODS, NAMESPACE, "p", {"spec": {"nodeName": "other"}}).status == 422


def test_a_binding_places_a_pod_without_another_generation(store: Store) -> None:
    made = store.create(PODS, pod(node=None))
    placed = store.update(
        PODS, {**made, "spec": {**made["spec"], "nodeName": "n"}, "status": {"message": "x"}}, "binding"
    )
    assert (placed["spec"]["nodeName"], placed["status"], placed["metadata"]["generation"]) == (
        "n",
        {"message": "x"},
        1,
    )


def job(**spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]},
    }
    return {"metadata": {"name": "j", "namespace": NAMESPACE}, "spec": {"template": template, **spec}}


def test_a_job_is_given_its_selector_and_labels(store: Store) -> None:
    made = store.create(JOBS, job())
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    assert made["spec"]["template"]["metadata"]["labels"]["job-name"] == "j"
    assert made["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == uid
    assert (made["spec"]["backoffLimit"], made["spec"]["podReplacementPolicy"]) == (6, "TerminatingOrFailed")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parallelism": -1}, "spec.parallelism"),
        ({"completionMode": "Indexed", "parallelism": 1}, "spec.completions"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.restartPolicy"),
    ],
)
def test_a_job_that_cannot_be_is_invalid(store: Store, spec: dict[str, Any], field: str) -> None:
    assert field in [cause["field"] for cause in refusal(store.create, JOBS, job(**spec)).causes]


def test_a_jobs_template_changes_only_while_it_is_suspended_and_has_no_pods(store: Store) -> None:
    store.create(JOBS, job(suspend=True))
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    store.patch(JOBS, NAMESPACE, "j", patch)
    store.patch(JOBS, NAMESPACE, "j", {"spec": {"suspend": False}})
    again = {"spec": {"template": {"spec": {"nodeSelector": {"a": "c"}}}, "completions": 3}}
    assert {cause["field"] for cause in refusal(store.patch, JOBS, NAMESPACE, "j", again).causes} == {
        "spec.template",
        "spec.completions",
    }


def test_a_config_map_holds_text_under_file_names(store: Store) -> None:
    def config(data: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {"name": "c", "namespace": NAMESPACE}, "data": data}

    assert refusal(store.create, CONFIG_MAPS, config({"a": 1})).status == 400
    assert refusal(store.create, CONFIG_MAPS, config({"a b": "x"})).status == 422
    store.create(CONFIG_MAPS, config({"a": "x"}))
    assert refusal(store.patch, CONFIG_MAPS, NAMESPACE, "c", {"data": {"a": 1}}).status == 422
    assert store.update(CONFIG_MAPS, config({"b": "y"}))["data"] == {"b": "y"}


def test_metadata_of_the_wrong_types_cannot_be_decoded(store: Store) -> None:
    for meta in ({"name": True}, {"labels": {"a": 1}}, {"labels": []}, {"finalizers": "x"}):
        obj = {"metadata": {"name": "a", "namespace": NAMESPACE, **meta}}
        assert refusal(store.create, WORKLOADS, obj).status == 400
    assert refusal(store.create, WORKLOADS, {"metadata": "x"}).status == 400
    store.create(WORKLOADS, {"metadata": {"name": "a", "namespace": NAMESPACE}})
    assert refusal(store.patch, WORKLOADS, NAMESPACE, "a", {"metadata": {"labels": {"a": 1}}}).status == 422


def test_a_namespace_stays_until_its_content_is_said_to_be_gone(store: Store) -> None:
    from .test_store import NAMESPACES

    begun = store.delete(NAMESPACES, None, NAMESPACE)
    assert (begun.gone, begun.object["status"]["phase"]) == (False, "Terminating")
    error = refusal(store.create, WORKLOADS, train_job())
    assert (error.status, error.causes[0]["reason"]) == (403, "NamespaceTerminating")
    store.update(NAMESPACES, {**begun.object, "spec": {"finalizers": []}}, "finalize")
    assert store.find(NAMESPACES, None, NAMESPACE) is None
