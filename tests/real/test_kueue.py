"""What a job without a queue becomes by how the real Kueue is configured, and what is left while it is down.

These configure and stop the session's Kueue, so each leaves it as it found it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from dispatch_kubeflow.backend import factory
from dispatch_kubeflow.machine import Context, ErrUnsupported

from .api import Object, has
from .cluster import Cluster
from .control_plane import ControlPlane
from .training import hardened_copy, train_job

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
VERSION = "kueue.x-k8s.io/v1beta2"
pytestmark = pytest.mark.timeout(3600, func_only=True)


@pytest.fixture
def place(kueue_plane: ControlPlane) -> Iterator[tuple[Cluster, str]]:
    """The control plane that has Kueue and a namespace of the test's own, with a runtime `plain`."""
    cluster = kueue_plane.cluster
    namespace = cluster.new_namespace("kueue")
    cluster.api.post(cluster.runtimes(namespace), hardened_copy(cluster, "plain", {}))
    yield cluster, namespace
    cluster.delete_namespace(namespace)


def tried(cluster: Cluster, namespace: str) -> Object:
    """What a dry run makes of an unsuspended TrainJob without a queue."""
    job = train_job("plain", suspend=False)
    answer = cluster.api.send("POST", cluster.train_jobs(namespace), job, query={"dryRun": "All"})
    assert answer.status == 201, answer.text()
    made: Object = answer.json()
    return made


def settings(cluster: Cluster, namespace: str, folder: pathlib.Path) -> dict[str, Any]:
    return {
        "name": "gpu",
        "namespace": namespace,
        "runtimes": ["TrainingRuntime/plain"],
        "kubeconfig": str(cluster.kubeconfig(folder / "kubeconfig")),
    }


def test_a_job_without_a_queue_is_left_alone(place: tuple[Cluster, str], tmp_path: pathlib.Path) -> None:
    made = tried(*place)
    assert made["spec"]["suspend"] is False
    assert [each["manager"] for each in made["spec"]["runtimePatches"]] == ["kueue.x-k8s.io/manager"]
    factory(settings(*place, tmp_path), ctx=Context.with_timeout(30)).close()


def test_with_a_default_queue_it_is_queued(place: tuple[Cluster, str], tmp_path: pathlib.Path) -> None:
    cluster, namespace = place
    queue = {"apiVersion": VERSION, "kind": "LocalQueue", "metadata": {"name": "default"}}
    queues = f"{KUEUE}/namespaces/{namespace}/localqueues"
    cluster.api.post(queues, {**queue, "spec": {"clusterQueue": "nobodys"}})
    cluster.wait(queues, "default", has("Active", "False"))
    made = tried(cluster, namespace)
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "default"}
    with pytest.raises(ErrUnsupported):
        factory(settings(cluster, namespace, tmp_path), ctx=Context.with_timeout(30))


def test_managed_without_a_name_it_is_suspended(
    kueue_plane: ControlPlane, place: tuple[Cluster, str], tmp_path: pathlib.Path
) -> None:
    kueue_plane.manage_jobs_without_queue_name(True)
    try:
        assert tried(*place)["spec"]["suspend"] is True
        with pytest.raises(ErrUnsupported):
            factory(settings(*place, tmp_path), ctx=Context.with_timeout(30))
    finally:
        kueue_plane.manage_jobs_without_queue_name(False)


def test_while_it_is_down_no_train_job_can_be_written_but_each_deleted(
    kueue_plane: ControlPlane, place: tuple[Cluster, str]
) -> None:
    cluster, namespace = place
    cluster.api.post(cluster.train_jobs(namespace), train_job("plain"))
    path = f"{cluster.train_jobs(namespace)}/plain"
    kueue_plane.crash("kueue")
    try:
        answer = cluster.api.send(
            "PATCH", path, {"spec": {"suspend": False}}, content_type="application/merge-patch+json"
        )
        assert (answer.status, answer.json()["reason"]) == (500, "InternalError")
        assert answer.json()["message"].startswith('Internal error occurred: failed calling webhook "vtrainjob.kb.io"')
        cluster.api.expect("DELETE", path)
    finally:
        kueue_plane.start_again("kueue")
