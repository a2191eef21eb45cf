"""Factory and Capabilities in kueue mode: the queue, our check on it, and what a Backend may do with Workloads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests.resources import CLUSTER_QUEUES, LOCAL_QUEUES

from .queue_world import CHECK, CLUSTER_QUEUE, QUEUE, QueueWorld, queued
from .world import NAMESPACE, refused, soon

READS = ["get", "list", "watch"]
WRITES = ["create", "patch", "delete"]


def _user(queue: QueueWorld, *, without: Iterable[str] = (), patches_workloads: bool = True) -> str:
    """Who may do all that a Backend needs, but to read `without` of Kueue's kinds."""
    kueue = [each for each in ("workloads", "localqueues", "clusterqueues", "admissionchecks") if each not in without]
    rules: list[dict[str, Any]] = [
        {"apiGroups": ["trainer.kubeflow.org"], "resources": ["*"], "verbs": [*READS, *WRITES]},
        {"apiGroups": ["", "batch", "jobset.x-k8s.io"], "resources": ["*"], "verbs": READS},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": kueue, "verbs": READS},
    ]
    if patches_workloads:
        rules.append({"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]})
    return queue.cluster.user("narrow", rules)


def test_a_factory_looks_at_the_queue_and_makes_no_dry_run(queue: QueueWorld) -> None:
    backend = queue.connect(token=_user(queue))
    sent = [each.rpartition("/")[2] for each in queue.wire.calls() if not each.endswith("selfsubjectaccessreviews")]
    assert sent == ["v1alpha1", "v1alpha2", "v1beta2", QUEUE, CLUSTER_QUEUE]
    assert (backend.capabilities().hold.answer, backend.capabilities().hold.reason) == ("yes", "this Backend may write")
    queued(backend)


@pytest.mark.rule("factory.group-version-absent")
def test_a_cluster_without_kueue_is_unsupported(queue: QueueWorld) -> None:
    queue.wire.answer("GET", "/apis/kueue.x-k8s.io/v1beta2$", 404, b"404 page not found\n")
    with refused("factory.group-version-absent", group_version="kueue.x-k8s.io/v1beta2"):
        queue.connect()


@pytest.mark.rule("factory.read-permission-missing")
def test_every_missing_read_permission_of_kueue_is_named(queue: QueueWorld) -> None:
    kinds = ("workloads", "localqueues", "clusterqueues", "admissionchecks")
    with refused("factory.read-permission-missing") as caught:
        queue.connect(token=_user(queue, without=kinds, patches_workloads=False))
    assert caught[0].details["missing"].split(", ") == [
        "list workloads.kueue.x-k8s.io",
        "watch workloads.kueue.x-k8s.io",
        "get localqueues.kueue.x-k8s.io",
        "get clusterqueues.kueue.x-k8s.io",
        "get admissionchecks.kueue.x-k8s.io",
    ]


# Write gates.


def _stop_job(backend: Backend) -> None:
    backend.stop_job("job", ctx=soon())


@pytest.mark.rule("backend.observe-only-start", "backend.observe-only-write")
@pytest.mark.parametrize("lacking", ["LocalQueue lq", "ClusterQueue cq of LocalQueue lq", "AdmissionCheck dispatch on"])
def test_without_a_queue_and_our_check_on_it_a_backend_only_observes(queue: QueueWorld, lacking: str) -> None:
    if lacking.startswith("LocalQueue"):
        queue.cluster.delete(LOCAL_QUEUES, QUEUE, NAMESPACE)
    elif lacking.startswith("ClusterQueue"):
        queue.wire.answer("GET", f"/clusterqueues/{CLUSTER_QUEUE}$", 404, _gone())
    else:
        queue.list_checks()
    backend = queue.backend()
    with refused("backend.observe-only-start", missing_gate=lacking):
        queued(backend)
    with refused("backend.observe-only-write", missing_gate=lacking):
        _stop_job(backend)
    assert queue.wire.calls() == []
    assert backend.find("job", ctx=soon()).objects == ()
    assert lacking in backend.capabilities().hold.reason


def _gone() -> dict[str, Any]:
    details = {"name": CLUSTER_QUEUE, "group": "kueue.x-k8s.io", "kind": "clusterqueues"}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404}
    return {**status, "reason": "NotFound", "message": "not found", "details": details}


@pytest.mark.rule("backend.observe-only-start")
def test_a_queue_that_is_being_deleted_is_none(queue: QueueWorld) -> None:
    found = queue.cluster.get(CLUSTER_QUEUES, CLUSTER_QUEUE)
    assert found is not None
    going = {**found, "metadata": {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    queue.wire.answer("GET", f"/clusterqueues/{CLUSTER_QUEUE}$", 200, going)
    with refused("backend.observe-only-start", missing_gate="ClusterQueue cq"):
        queued(queue.backend())


@pytest.mark.parametrize(
    ("status", "reason", "rule"),
    [(403, "Forbidden", "request.forbidden"), (500, "InternalError", "request.no-answer")],
)
@pytest.mark.parametrize("path", ["/localqueues/", "/clusterqueues/"])
def test_a_queue_that_cannot_be_read_is_what_the_request_says(
    queue: QueueWorld, path: str, status: int, reason: str, rule: str
) -> None:
    queue.wire.refuse("GET", path, status, reason)
    with refused(rule, status=status):
        queue.connect()


@pytest.mark.rule("request.no-answer")
@pytest.mark.parametrize("nth", [30, 31])
def test_a_review_of_a_write_without_an_answer_is_unreachable(queue: QueueWorld, nth: int) -> None:
    """The last but one is of the runtime copies, the last of the Workloads."""
    queue.wire.lose_answer("POST", "selfsubjectaccessreviews", nth=nth)
    with refused("request.no-answer"):
        queue.connect()
    assert len([each for each in queue.wire.calls() if each.endswith("selfsubjectaccessreviews")]) == nth


class Minutes:
    """A clock that tests move; waiting is the system's."""

    def __init__(self, backend: Backend) -> None:
        self._clock = backend._adapter.clock
        self.moved = 0.0

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.moved

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


@pytest.mark.rule("backend.observe-only-start")
def test_a_check_put_on_the_queue_is_found_after_a_minute(queue: QueueWorld) -> None:
    queue.list_checks()
    backend = queue.backend()
    minutes = backend._adapter.clock = Minutes(backend)
    queue.list_checks({"name": CHECK})
    with refused("backend.observe-only-start"):
        queued(backend)
    minutes.moved = 61
    queue.wire.refuse("GET", "/localqueues/", 503, "ServiceUnavailable")
    with refused("backend.observe-only-start"):
        queued(backend)
    minutes.moved = 122
    queued(backend)


# C5.


@pytest.mark.rule("support.hold-capability")
@pytest.mark.parametrize("operation", ["hold", "release"])
def test_without_permission_to_patch_workloads_there_is_no_hold(queue: QueueWorld, operation: str) -> None:
    backend = queue.backend(token=_user(queue, patches_workloads=False))
    ref = queued(backend)
    assert backend.capabilities().hold.answer == "no"
    queue.wire.seen.clear()
    with refused("support.hold-capability", capability="patch workloads.kueue.x-k8s.io"):
        getattr(backend, operation)(ref, 1, ctx=soon())
    assert queue.wire.calls() == []
    backend.open(ref, ctx=soon())


@pytest.mark.rule("support.hold-capability")
def test_a_check_on_some_flavors_only_is_no_hold(queue: QueueWorld) -> None:
    queue.list_checks({"name": CHECK, "onFlavors": ["default"]})
    backend = queue.backend()
    assert backend.capabilities().hold.answer == "no"
    with refused("support.hold-capability", capability="for some flavors only"):
        backend.hold(queued(backend), 1, ctx=soon())


def test_a_read_only_backend_asks_for_no_queue(queue: QueueWorld) -> None:
    queue.cluster.delete(LOCAL_QUEUES, QUEUE, NAMESPACE)
    with queue.connect(read_only=True) as backend:
        assert backend.capabilities().hold.reason == "the Backend is read-only"
        assert not [each for each in queue.wire.calls() if "queues" in each]
