from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.store import Store
from dispatch_kubeflow.backend.requests.resources import JOBS, PODS, TRAIN_JOBS, Resource

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NAMESPACE = "team-a"


class HandClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 29, 12, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.at.timestamp()

    def now(self) -> datetime:
        return self.at

    def wait(self, event: Any, timeout: float | None) -> bool:
        raise AssertionError("nothing waits here")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(clock: HandClock) -> Store:
    store = Store(clock, seed=7)
    store.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    return store


def train_job(name: str = "a-1", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE, **meta}, "spec": {"suspend": True}}


def pod(name: str = "p", node: str | None = "node-1", **meta: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "node", "image": "x:y"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "namespace": NAMESPACE, **meta}, "spec": spec}


def refusal(call: Any, *args: Any, **kwargs: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call(*args, **kwargs)
    return caught.value


def test_a_created_object_gets_its_system_fields(store: Store) -> None:
    made = store.create(TRAIN_JOBS, train_job())
    assert made["metadata"]["creationTimestamp"] == "2026-11-29T12:00:00Z"
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["resourceVersion"] == str(store.resource_version)
    assert len(made["metadata"]["uid"]) == 36


def test_what_is_handed_out_is_not_the_stored_object(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())["spec"]["suspend"] = "changed"
    store.get(TRAIN_JOBS, NAMESPACE, "a-1")["spec"]["suspend"] = "changed"
    store.list(TRAIN_JOBS)[0][0]["spec"]["suspend"] = "changed"
    assert store.get(TRAIN_JOBS, NAMESPACE, "a-1")["spec"] == {"suspend": True}


def test_what_is_handed_in_is_not_kept(store: Store) -> None:
    given = train_job()
    store.create(TRAIN_JOBS, given)
    given["spec"]["suspend"] = "changed"
    assert store.get(TRAIN_JOBS, NAMESPACE, "a-1")["spec"] == {"suspend": True}


def test_a_name_is_taken_once(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())
    error = refusal(store.create, TRAIN_JOBS, train_job())
    assert (error.status, error.reason) == (409, "AlreadyExists")


def test_an_absent_namespace_is_named(store: Store) -> None:
    error = refusal(store.create, TRAIN_JOBS, {"metadata": {"name": "a-1", "namespace": "nowhere"}})
    assert (error.status, error.details) == (404, {"name": "nowhere", "kind": "namespaces"})


def test_a_generated_name_is_short_and_new(store: Store) -> None:
    obj = {"metadata": {"generateName": "x" * 70 + "-", "namespace": NAMESPACE}}
    name = store.create(TRAIN_JOBS, obj)["metadata"]["name"]
    assert len(name) == 63


def test_create_with_a_version_is_an_error_without_a_reason(store: Store) -> None:
    error = refusal(store.create, TRAIN_JOBS, train_job(resourceVersion="1"))
    assert (error.status, error.reason) == (500, "")


def test_generation_counts_spec_changes_only(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())
    labelled = store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"metadata": {"labels": {"a": "b"}}})
    opened = store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"spec": {"suspend": False}})
    reported = store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"status": {"x": 1}}, subresource="status")
    assert [item["metadata"]["generation"] for item in (labelled, opened, reported)] == [1, 2, 2]


def test_a_write_of_the_object_leaves_status_alone(store: Store) -> None:
    store.create(TRAIN_JOBS, {**train_job(), "status": {"x": 1}})
    assert "status" not in store.get(TRAIN_JOBS, NAMESPACE, "a-1")
    assert "status" not in store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"status": {"x": 1}})


def test_a_write_of_status_leaves_the_rest_and_ignores_the_uid(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())
    patch = {"metadata": {"uid": "other", "labels": {"a": "b"}}, "spec": {"suspend": False}, "status": {"x": 1}}
    after = store.patch(TRAIN_JOBS, NAMESPACE, "a-1", patch, subresource="status")
    assert after["status"] == {"x": 1}
    assert after["spec"] == {"suspend": True}
    assert "labels" not in after["metadata"]


def test_a_write_that_changes_nothing_is_not_committed(store: Store) -> None:
    made = store.create(TRAIN_JOBS, train_job())
    after = store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"spec": {"suspend": True}})
    assert after == made
    assert len(store.commits) == 2


def test_a_dry_run_changes_nothing(store: Store) -> None:
    shown = store.create(TRAIN_JOBS, train_job(), dry_run=True)
    assert "uid" in shown["metadata"]
    assert store.find(TRAIN_JOBS, NAMESPACE, "a-1") is None


def test_a_stale_patch_is_a_conflict_whatever_its_uid(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())
    patch = {"metadata": {"uid": "other", "resourceVersion": "1"}}
    assert refusal(store.patch, TRAIN_JOBS, NAMESPACE, "a-1", patch).reason == "Conflict"


def test_another_uid_alone_is_invalid_and_said_twice(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())
    error = refusal(store.patch, TRAIN_JOBS, NAMESPACE, "a-1", {"metadata": {"uid": "other"}})
    assert (error.status, len(error.causes)) == (422, 2)
    assert error.message.count("metadata.uid") == 1


def test_put_needs_a_version_and_takes_the_uid_as_a_precondition(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())
    assert refusal(store.update, TRAIN_JOBS, train_job()).status == 422
    wrong = train_job(uid="other", resourceVersion=str(store.resource_version))
    assert refusal(store.update, TRAIN_JOBS, wrong).status == 409


def test_delete_preconditions_name_the_kind(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())
    for asked in ({"uid": "other"}, {"resource_version": "1"}):
        error = refusal(store.delete, TRAIN_JOBS, NAMESPACE, "a-1", **asked)
        assert (error.status, error.details["kind"]) == (409, "TrainJob")


def test_a_finalizer_keeps_a_deleted_object_until_it_is_taken_away(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job(finalizers=["a/b"]))
    begun = store.delete(TRAIN_JOBS, NAMESPACE, "a-1")
    assert not begun.gone
    assert begun.object["metadata"]["deletionTimestamp"] == "2026-11-29T12:00:00Z"
    assert (
        refusal(store.patch, TRAIN_JOBS, NAMESPACE, "a-1", {"metadata": {"finalizers": ["a/b", "c/d"]}}).status == 422
    )
    store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"metadata": {"finalizers": None}})
    assert store.find(TRAIN_JOBS, NAMESPACE, "a-1") is None


@pytest.mark.parametrize(
    ("propagation", "finalizers"),
    [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"]), ("Background", None)],
)
def test_propagation_is_left_to_the_collector_as_a_finalizer(
    store: Store, propagation: Any, finalizers: list[str] | None
) -> None:
    store.create(TRAIN_JOBS, train_job())
    done = store.delete(TRAIN_JOBS, NAMESPACE, "a-1", propagation=propagation)
    assert done.object["metadata"].get("finalizers") == finalizers
    assert done.gone == (finalizers is None)


def test_a_job_orphans_its_pods_by_default(store: Store) -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "x:y"}]}}}
    store.create(JOBS, {"metadata": {"name": "j", "namespace": NAMESPACE}, "spec": spec})
    assert store.delete(JOBS, NAMESPACE, "j").object["metadata"]["finalizers"] == ["orphan"]


def test_a_running_pods_deletion_lies_ahead_by_its_grace(store: Store) -> None:
    store.create(PODS, pod())
    begun = store.delete(PODS, NAMESPACE, "p")
    assert not begun.gone
    assert begun.object["metadata"]["deletionTimestamp"] == "2026-11-29T12:00:30Z"
    assert begun.object["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_pods_grace_can_only_be_shortened(store: Store, clock: HandClock) -> None:
    store.create(PODS, pod())
    store.delete(PODS, NAMESPACE, "p", grace_seconds=20)
    clock.at += timedelta(seconds=5)
    longer = store.delete(PODS, NAMESPACE, "p", grace_seconds=60)
    assert longer.object["metadata"]["deletionGracePeriodSeconds"] == 20
    shorter = store.delete(PODS, NAMESPACE, "p", grace_seconds=10)
    assert shorter.object["metadata"]["deletionTimestamp"] == "2026-11-29T12:00:10Z"


def test_a_forced_or_unbound_pod_goes_at_once(store: Store) -> None:
    store.create(PODS, pod("bound"))
    store.create(PODS, pod("unbound", node=None))
    assert store.delete(PODS, NAMESPACE, "bound", grace_seconds=0).gone
    assert store.delete(PODS, NAMESPACE, "unbound").gone


def test_a_pod_with_a_finalizer_outlives_its_grace(store: Store) -> None:
    store.create(PODS, pod(finalizers=["batch.kubernetes.io/job-tracking"]))
    assert not store.delete(PODS, NAMESPACE, "p", grace_seconds=0).gone
    store.patch(PODS, NAMESPACE, "p", {"metadata": {"finalizers": None}})
    assert store.find(PODS, NAMESPACE, "p") is None


def test_events_come_in_the_order_of_commits_and_only_for_what_was_asked(store: Store) -> None:
    seen = store.subscribe(TRAIN_JOBS)
    store.create(TRAIN_JOBS, train_job())
    store.create(PODS, pod())
    store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"spec": {"suspend": False}})
    store.delete(TRAIN_JOBS, NAMESPACE, "a-1")
    assert [event.type for event in seen.drain()] == ["ADDED", "MODIFIED", "DELETED"]


def test_events_caused_while_draining_are_drained_too(store: Store) -> None:
    seen = store.subscribe(TRAIN_JOBS)
    store.create(TRAIN_JOBS, train_job())
    names = []
    for event in seen.drain():
        names.append(event.peek["metadata"]["name"])
        if len(names) == 1:
            store.create(TRAIN_JOBS, train_job("a-2"))
    assert names == ["a-1", "a-2"]


def test_a_deleted_event_carries_the_last_state_at_the_version_of_the_deletion(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())
    seen = store.subscribe(TRAIN_JOBS)
    store.delete(TRAIN_JOBS, NAMESPACE, "a-1")
    event = seen.next()
    assert event is not None
    assert event.object["metadata"]["resourceVersion"] == str(store.resource_version)


def test_a_list_can_look_back_to_a_version(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job("a-1"))
    store.create(TRAIN_JOBS, train_job("a-2"))
    then = store.resource_version
    store.delete(TRAIN_JOBS, NAMESPACE, "a-1")
    store.patch(TRAIN_JOBS, NAMESPACE, "a-2", {"spec": {"suspend": False}})
    store.create(TRAIN_JOBS, train_job("a-3"))
    past = store.states(TRAIN_JOBS, at=then)
    assert [(item.place[1], item.obj["spec"]["suspend"]) for item in past] == [("a-1", True), ("a-2", True)]


def test_commits_record_what_took_effect(store: Store) -> None:
    store.create(TRAIN_JOBS, train_job())
    store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"spec": {"suspend": False}}, manager="me")
    commit = store.commits[-1]
    assert (commit.verb, commit.name, commit.manager, commit.version) == ("patch", "a-1", "me", store.resource_version)


def test_two_controllers_of_one_object_are_invalid(store: Store) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    other = {**owner, "name": "q"}
    assert refusal(store.create, TRAIN_JOBS, train_job(ownerReferences=[owner, other])).status == 422
    made = store.create(TRAIN_JOBS, train_job(ownerReferences=[owner, owner]))
    assert made["metadata"]["ownerReferences"] == [owner]
