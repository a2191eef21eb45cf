"""The hub by itself: its streams turned by hand, one step at a time, so that every order of happenings can be had."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest

from dispatch_kubeflow.backend.objects import seen
from dispatch_kubeflow.backend.operations.hub import REMEMBERED, Hub, Snapshot, StreamsEnded, Subscription
from dispatch_kubeflow.backend.operations.streams import Shelf, Steps, Stream, Threads
from dispatch_kubeflow.backend.requests import Event, Failure, Listed, ListReply, Reply
from dispatch_kubeflow.machine import Context, SystemClock
from dispatch_kubeflow.machine.values import Settings

SETTINGS = Settings(name="gpu", namespace="team-a", runtimes=("ClusterTrainingRuntime/torch-distributed",))  # type: ignore[arg-type]
KINDS = ("trainingruntimes", "pods", "jobs", "jobsets", "trainjobs")
LOST = Failure("lost", sent=True, facts={"result": "lost"})


def metadata(name: str, job: str = "job", uid: str | None = None, version: str = "1") -> seen.Metadata:
    labels = seen.Labels(backend="gpu", job=job, attempt="1")
    return seen.Metadata(name=name, uid=uid or f"uid-{name}", resource_version=version, labels=labels)


def trainjob(name: str = "job-1", job: str = "job", version: str = "1") -> seen.TrainJob:
    return seen.TrainJob(metadata=metadata(name, job, version=version))


def pod(name: str = "pod", job: str = "job") -> seen.Pod:
    return seen.Pod(metadata=metadata(name, job))


class Turns:
    """A driver in one thread: whoever waits has the steps done, in the order in which they were started."""

    def __init__(self) -> None:
        self.waiting: deque[Steps] = deque()

    def start(self, steps: Steps) -> None:
        self.waiting.append(steps)

    def wait(self, event: threading.Event, timeout: float | None) -> None:
        while not event.is_set() and self.turn():
            continue

    def turn(self) -> bool:
        """One step of the first that has one to do; False if nobody has."""
        for _ in range(len(self.waiting)):
            steps = self.waiting.popleft()
            if isinstance(steps, Stream) and not FEEDS[steps.name.rpartition(" ")[2]]:
                self.waiting.append(steps)
                continue
            if steps.step():
                self.waiting.append(steps)
            return True
        return False

    def join(self, steps: Iterable[Steps]) -> None:
        for each in list(steps):
            if each in self.waiting:
                self.waiting.remove(each)


FEEDS: dict[str, deque[Any]] = {}


class Feed:
    """What a Door's watch gives: what the test put there."""

    def __init__(self, plural: str) -> None:
        self.failure: Failure | None = None
        self._items = FEEDS[plural]

    def __next__(self) -> Any:
        happening = self._items.popleft()
        if isinstance(happening, Failure):
            self.failure = happening
            raise StopIteration
        if isinstance(happening, Exception):
            raise happening
        return happening


class Doorway:
    """A Door without a network: watches are fed, everything else fails."""

    def __init__(self) -> None:
        FEEDS.clear()
        FEEDS.update({plural: deque() for plural in KINDS})
        self.opened: list[str] = []

    def watch(self, resource: Any, _: Context, **__: Any) -> Feed:
        self.opened.append(resource.plural)
        return Feed(resource.plural)

    def send(self, request: Any, _: Context, **__: Any) -> Reply:
        return Reply(request, failure=LOST)

    def list(self, *_: Any, **__: Any) -> ListReply[Any]:
        return ListReply(failure=LOST)

    def feed(self, plural: str, *happenings: Any) -> None:
        FEEDS[plural].extend(happenings)

    def list_all(self, **items: tuple[Any, ...]) -> None:
        for plural in KINDS:
            self.feed(plural, Listed(items.get(plural, ()), "1"))


@pytest.fixture
def door() -> Doorway:
    return Doorway()


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def hub(door: Doorway, turns: Turns) -> Hub:
    return Hub(door, SETTINGS, SystemClock(), turns)  # type: ignore[arg-type]


def looked(subscription: Subscription, ctx: Context, seconds: float | None = 0.0) -> Snapshot:
    """The next snapshot, after all steps that can be done were done."""
    while True:
        subscription.wait(ctx, seconds)
        found = subscription.look()
        if found is not None:
            return found


def test_nothing_is_shown_before_every_kind_was_listed(hub: Hub, door: Doorway, turns: Turns) -> None:
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=False) as watcher:
        door.feed("trainingruntimes", Listed((), "1"))
        door.feed("jobs", Listed((), "1"))
        door.feed("jobsets", Listed((), "1"))
        while turns.turn():
            assert watcher.look() is None
        assert "trainjobs" not in door.opened
        door.feed("pods", Listed((), "1"))
        assert turns.turn()
        door.feed("trainjobs", Listed((trainjob(),), "1"))
        assert turns.turn()
        found = watcher.look()
    assert found is not None
    assert [each.metadata.name for each in found.listing.trainjobs] == ["job-1"]


def test_only_whose_job_changed_is_told(hub: Hub, door: Doorway) -> None:
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=False) as one, hub.join("other", ctx, keeps_notes=False) as other:
        door.list_all()
        looked(one, ctx)
        looked(other, ctx)
        door.feed("trainjobs", Event("ADDED", trainjob(), "2"))
        one.wait(ctx, None)
        assert one.look() == Snapshot(one.look().listing)  # type: ignore[union-attr]
        assert not other._news.is_set()
        assert [each.metadata.name for each in one.look().listing.trainjobs] == ["job-1"]  # type: ignore[union-attr]
        assert other.look().listing.trainjobs == ()  # type: ignore[union-attr]


def test_a_list_anew_replaces_all_and_tells_those_it_concerns(hub: Hub, door: Doorway) -> None:
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=False) as one, hub.join("other", ctx, keeps_notes=False) as other:
        door.list_all(trainjobs=(trainjob(), trainjob("other-1", "other")))
        looked(one, ctx)
        looked(other, ctx)
        door.feed("trainjobs", Listed((trainjob("other-1", "other"),), "9"))
        one.wait(ctx, None)
        assert one.look().listing.trainjobs == ()  # type: ignore[union-attr]
        assert not other._news.is_set()


def test_a_deleted_pod_is_remembered_for_the_cause_of_a_watched_job_alone(hub: Hub, door: Doorway) -> None:
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=False) as one:
        door.list_all(pods=(pod(), pod("stranger", "other")))
        looked(one, ctx)
        door.feed("pods", Event("DELETED", pod("stranger", "other"), "2"), Event("DELETED", pod(), "3"))
        one.wait(ctx, None)
        found = one.look()
        assert found is not None
        assert (found.listing.pods, [each.metadata.name for each in found.gone]) == ((), ["pod"])
    with hub.join("job", ctx, keeps_notes=False) as again:
        door.list_all()
        assert looked(again, ctx).gone == ()


def test_a_stream_that_fails_ends_all_of_them(hub: Hub, door: Doorway) -> None:
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=False) as one, hub.join("other", ctx, keeps_notes=False) as other:
        door.list_all()
        looked(one, ctx)
        looked(other, ctx)
        door.feed("jobs", LOST)
        one.wait(ctx, None)
        for each in (one, other):
            with pytest.raises(StreamsEnded) as ended:
                each.look()
            assert ended.value.failure is LOST


def test_a_stream_that_breaks_in_this_process_ends_them_without_a_failure(hub: Hub, door: Doorway) -> None:
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=False) as one:
        door.list_all()
        looked(one, ctx)
        door.feed("jobs", RuntimeError("a defect"))
        with pytest.raises(RuntimeError):
            one.wait(ctx, None)
        with pytest.raises(StreamsEnded) as ended:
            one.look()
        assert ended.value.failure is None


def test_whoever_comes_after_streams_that_failed_gets_new_ones(hub: Hub, door: Doorway) -> None:
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=False) as one:
        door.list_all()
        looked(one, ctx)
        door.feed("jobs", LOST)
        one.wait(ctx, None)
        FEEDS["jobs"].clear()
        with hub.join("job", ctx, keeps_notes=False) as another:
            door.list_all()
            looked(another, ctx)
            assert another.session is not one.session
    assert hub._session is None


def test_a_hub_that_is_closed_gives_nothing_more(hub: Hub) -> None:
    ctx = Context.background()
    hub.close()
    hub.close()
    with hub.join("job", ctx, keeps_notes=False) as one, pytest.raises(StreamsEnded):
        one.look()


def test_closing_ends_the_streams_that_run(hub: Hub, door: Doorway) -> None:
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=True) as one:
        door.list_all(trainjobs=(trainjob(),))
        looked(one, ctx)
        hub.close()
        with pytest.raises(StreamsEnded):
            one.look()


def test_an_ended_context_does_not_wait(hub: Hub) -> None:
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=False) as one:
        ctx.cancel()
        one.wait(ctx, None)


def test_what_is_remembered_has_an_end(hub: Hub) -> None:
    for index in range(REMEMBERED + 1):
        hub.stopped_unopened(f"uid-{index}")
    assert not hub.was_unopened("uid-0")
    assert hub.was_unopened("uid-1")


def by_job(item: Any) -> str | None:
    return item.metadata.labels.job  # type: ignore[no-any-return]


def test_a_shelf_keeps_an_object_in_its_place_and_moves_it_with_its_key() -> None:
    shelf = Shelf(by_job)
    shelf.replace([pod("a"), pod("b")])
    assert shelf.put(seen.Pod(metadata=metadata("a", version="2"))) == {"job"}
    assert [each.metadata.name for each in shelf.of("job")] == ["a", "b"]
    assert shelf.put(seen.Pod(metadata=metadata("a", job="other"))) == {"job", "other"}
    assert [each.metadata.name for each in shelf.of("other")] == ["a"]


def test_a_shelf_forgets_what_it_never_knew_without_a_word() -> None:
    shelf = Shelf(by_job)
    assert shelf.remove(pod()) == set()
    unlabelled = seen.Pod(metadata=seen.Metadata(name="x", uid="x"))
    assert shelf.put(unlabelled) == set()
    assert shelf.remove(unlabelled) == set()


def test_a_list_anew_says_which_jobs_it_changed() -> None:
    shelf = Shelf(by_job)
    assert shelf.replace([pod("a"), pod("b", "other")]) == {"job", "other"}
    assert shelf.replace([pod("a"), pod("b", "third")]) == {"other", "third"}


class Counting:
    name = "counting"

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.done = threading.Event()

    def step(self) -> bool:
        self.left -= 1
        if self.left == 0:
            self.done.set()
        return self.left > 0


def test_threads_do_all_steps_and_are_gone_afterwards() -> None:
    threads = Threads(SystemClock())
    counting = Counting(3)
    threads.start(counting)
    threads.join([counting])
    assert counting.done.is_set()
    assert threads._threads == {}
    threads.join([counting])


def test_in_kueue_mode_a_job_has_the_workloads_of_its_trainjobs(turns: Turns) -> None:
    door = Doorway()
    FEEDS["workloads"] = deque()
    settings = Settings(
        name="gpu",
        namespace="team-a",
        runtimes=("ClusterTrainingRuntime/torch-distributed",),  # type: ignore[arg-type]
        mode="kueue",
        queue="queue",
        admission_check="check",
    )
    hub = Hub(door, settings, SystemClock(), turns)  # type: ignore[arg-type]
    ctx = Context.background()

    def workload(name: str, owner: str) -> seen.Workload:
        return seen.Workload(metadata=seen.Metadata(name=name, uid=name, labels=seen.Labels(job_uid=owner)))

    with hub.join("job", ctx, keeps_notes=False) as one:
        door.feed("workloads", Listed((workload("ours", "uid-job-1"), workload("other", "x")), "1"))
        door.list_all(trainjobs=(trainjob(),))
        assert [each.metadata.name for each in looked(one, ctx).listing.workloads] == ["ours"]
        door.feed("workloads", Event("ADDED", workload("second", "uid-job-1"), "2"))
        one.wait(ctx, None)
        assert len(one.look().listing.workloads) == 2  # type: ignore[union-attr]


def test_of_very_many_deleted_pods_the_last_are_remembered(
    hub: Hub, door: Doorway, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatch_kubeflow.backend.operations.hub.GONE", 2)
    ctx = Context.background()
    with hub.join("job", ctx, keeps_notes=False) as one:
        door.list_all()
        looked(one, ctx)
        door.feed("pods", *(Event("DELETED", pod(f"pod-{index}"), str(index)) for index in range(2, 5)))
        while turns.turn():
            continue
        assert [each.metadata.name for each in one.look().gone] == ["pod-3", "pod-4"]  # type: ignore[union-attr]
