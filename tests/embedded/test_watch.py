from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded.apiserver import Apiserver
from dispatch_kubeflow.backend.embedded.messages import Request, Stream
from dispatch_kubeflow.backend.embedded.store import Store
from dispatch_kubeflow.backend.requests.resources import PODS, TRAIN_JOBS, Resource

NAMESPACE = "team-a"
PATH = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"
FRAMES = json.loads((Path(__file__).parent / "data" / "watch-frames.json").read_text())


class HandClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 11, 29, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def wait(self, event: Any, timeout: float | None) -> bool:
        raise AssertionError("nothing waits here")


class Scene:
    """The core without sockets, on a clock moved by hand."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.store = Store(self.clock, seed=3)
        self.store.create(
            Resource("", "v1", "namespaces", "Namespace", namespaced=False), {"metadata": {"name": NAMESPACE}}
        )
        kind = self.store.kind(TRAIN_JOBS)
        kind.verbs = ("create", "delete", "get", "list", "patch", "update", "watch")
        self.api = Apiserver(self.store)
        self.token = self.api.access.user("admin", groups=["system:masters"])

    def job(self, name: str, **labels: str) -> str:
        obj = {"metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": {"suspend": True}}
        return str(self.store.create(TRAIN_JOBS, obj)["metadata"]["resourceVersion"])

    def watch(self, query: str = "", path: str = PATH) -> Stream:
        answer = self.api.handle(
            Request("GET", f"{path}?watch=true&{query}", {"authorization": f"Bearer {self.token}"})
        )
        assert answer.stream is not None, answer.body
        return answer.stream

    def refused(self, query: str) -> Any:
        answer = self.api.handle(
            Request("GET", f"{PATH}?watch=true&{query}", {"authorization": f"Bearer {self.token}"})
        )
        assert answer.stream is None
        return json.loads(answer.body)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def lines(stream: Stream) -> list[Any]:
    return [json.loads(line) for line in stream.take()]


def told(stream: Stream) -> list[tuple[str, str]]:
    return [(line["type"], line["object"]["metadata"].get("name", "")) for line in lines(stream)]


def test_a_watch_without_a_version_begins_with_what_there_is(scene: Scene) -> None:
    scene.job("a-1")
    stream = scene.watch()
    scene.job("a-2")
    assert told(stream) == [("ADDED", "a-1"), ("ADDED", "a-2")]


def test_a_watch_from_a_version_tells_what_came_after_it_once(scene: Scene) -> None:
    scene.job("a-1")
    version = scene.job("a-2")
    scene.job("a-3")
    stream = scene.watch(f"resourceVersion={version}")
    scene.store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"spec": {"suspend": False}})
    scene.store.delete(TRAIN_JOBS, NAMESPACE, "a-2")
    assert told(stream) == [("ADDED", "a-3"), ("MODIFIED", "a-1"), ("DELETED", "a-2")]
    assert told(stream) == []


def test_a_watch_sees_its_own_namespace_alone(scene: Scene) -> None:
    other = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
    scene.store.create(other, {"metadata": {"name": "team-b"}})
    stream = scene.watch()
    scene.store.create(TRAIN_JOBS, {"metadata": {"name": "b-1", "namespace": "team-b"}})
    assert told(stream) == []


def test_a_label_taken_away_looks_like_a_deletion_and_given_back_like_a_creation(scene: Scene) -> None:
    version = scene.job("a-1", keep="yes")
    stream = scene.watch(f"resourceVersion={version}&labelSelector=keep=yes")
    scene.store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"metadata": {"labels": None}})
    gone = lines(stream)
    scene.store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"metadata": {"labels": {"keep": "yes"}}})
    assert [line["type"] for line in gone] == ["DELETED"]
    assert gone[0]["object"]["metadata"]["labels"] == {"keep": "yes"}
    assert int(gone[0]["object"]["metadata"]["resourceVersion"]) > int(version)
    assert told(stream) == [("ADDED", "a-1")]


def test_a_change_outside_the_selection_is_not_told(scene: Scene) -> None:
    version = scene.job("a-1")
    stream = scene.watch(f"resourceVersion={version}&labelSelector=keep=yes")
    scene.store.patch(TRAIN_JOBS, NAMESPACE, "a-1", {"spec": {"suspend": False}})
    scene.store.delete(TRAIN_JOBS, NAMESPACE, "a-1")
    assert told(stream) == []


def test_a_streaming_list_ends_with_its_mark(scene: Scene) -> None:
    scene.job("a-1")
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    first, mark = lines(scene.watch(query))
    wanted = json.loads(FRAMES["stream_end_of_initial_events"])
    wanted["object"]["metadata"]["resourceVersion"] = str(scene.store.resource_version)
    assert (first["type"], mark) == ("ADDED", wanted)


def test_a_watch_from_nowhere_in_particular_is_a_streaming_list(scene: Scene) -> None:
    scene.job("a-1")
    first, mark = lines(scene.watch("allowWatchBookmarks=true"))
    assert (first["type"], mark["object"]["metadata"]["annotations"]) == (
        "ADDED",
        {"k8s.io/initial-events-end": "true"},
    )
    assert scene.refused("continue=x")["code"] == 422


def test_a_streaming_list_without_bookmarks_has_no_mark(scene: Scene) -> None:
    scene.job("a-1")
    stream = scene.watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
    assert told(stream) == [("ADDED", "a-1")]


def test_a_streaming_list_needs_its_match(scene: Scene) -> None:
    assert scene.refused("sendInitialEvents=true") == json.loads(FRAMES["streaming_without_match"])


def test_a_compacted_version_is_an_error_line_and_the_end(scene: Scene) -> None:
    scene.job("a-1")
    scene.job("a-2")
    scene.store.compact()
    stream = scene.watch("resourceVersion=2")
    wanted = json.loads(FRAMES["too_old"])
    wanted["object"]["message"] = f"too old resource version: 2 ({scene.store.resource_version})"
    assert lines(stream) == [wanted]
    assert stream.ended


def test_an_open_watch_outlives_a_compaction(scene: Scene) -> None:
    stream = scene.watch()
    scene.job("a-1")
    scene.store.compact()
    assert told(stream) == [("ADDED", "a-1")]


def test_a_streaming_list_of_the_future_gives_up_after_three_seconds(scene: Scene) -> None:
    stream = scene.watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999")
    scene.clock.seconds = 2.9
    assert lines(stream) == []
    assert stream.due() == 3.0
    scene.clock.seconds = 3.0
    wanted = json.loads(FRAMES["future"])
    wanted["object"]["message"] = (
        f"Timeout: Too large resource version: 99999999, current: {scene.store.resource_version}"
    )
    assert lines(stream) == [wanted]
    assert stream.ended


def test_a_streaming_list_of_the_near_future_waits_for_it(scene: Scene) -> None:
    ahead = scene.store.resource_version + 1
    stream = scene.watch(f"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={ahead}")
    assert told(stream) == []
    scene.job("a-1")
    assert told(stream) == [("ADDED", "a-1")]


def test_a_plain_watch_from_the_future_waits_until_it_is_reached(scene: Scene) -> None:
    ahead = scene.store.resource_version + 1
    stream = scene.watch(f"resourceVersion={ahead}")
    scene.job("a-1")
    scene.job("a-2")
    assert told(stream) == [("ADDED", "a-2")]


def test_an_idle_watch_is_told_where_it_stands_every_minute(scene: Scene) -> None:
    stream = scene.watch(f"resourceVersion={scene.job('a-1')}&allowWatchBookmarks=true&timeoutSeconds=600")
    scene.clock.seconds = 59.9
    assert lines(stream) == []
    scene.clock.seconds = 60.0
    wanted = json.loads(FRAMES["bookmark"].splitlines()[0])
    wanted["object"]["metadata"]["resourceVersion"] = str(scene.store.resource_version)
    assert lines(stream) == [wanted]
    assert lines(stream) == []


def test_a_watch_ends_at_its_timeout_with_a_bookmark_two_seconds_before(scene: Scene) -> None:
    stream = scene.watch(f"resourceVersion={scene.job('a-1')}&allowWatchBookmarks=true&timeoutSeconds=10")
    assert stream.due() == 8.0
    scene.clock.seconds = 8.0
    assert told(stream) == [("BOOKMARK", "")]
    assert not stream.ended
    scene.clock.seconds = 10.0
    assert told(stream) == []
    assert stream.ended
    assert stream.due() is None


def test_without_being_asked_no_bookmark_is_sent(scene: Scene) -> None:
    stream = scene.watch("timeoutSeconds=70")
    scene.clock.seconds = 69.0
    assert lines(stream) == []


def test_a_watcher_is_woken_by_its_own_kind_alone(scene: Scene) -> None:
    stream = scene.watch()
    woken: list[bool] = []
    stream.listen(lambda: woken.append(True))
    pod = {"metadata": {"name": "p", "namespace": NAMESPACE}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    scene.store.create(PODS, pod)
    assert woken == []
    scene.job("a-1")
    assert woken == [True]


def test_a_closed_watch_is_not_woken(scene: Scene) -> None:
    stream = scene.watch()
    woken: list[bool] = []
    stream.listen(lambda: woken.append(True))
    stream.close()
    scene.job("a-1")
    assert woken == []


def test_a_pods_bookmark_has_the_fields_a_typed_one_has(scene: Scene) -> None:
    stream = scene.watch("allowWatchBookmarks=true&timeoutSeconds=3", f"/api/v1/namespaces/{NAMESPACE}/pods")
    scene.clock.seconds = 1.0
    assert lines(stream)[0]["object"]["spec"] == {"containers": None}
