"""Watch: shared streams, the newest view, orphans only after a read, and an end that is always an error."""

from __future__ import annotations

import itertools
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from dispatch_kubeflow.backend.embedded import Script
from dispatch_kubeflow.backend.objects.found import Found, FoundObject
from dispatch_kubeflow.backend.objects.names import Identity
from dispatch_kubeflow.backend.requests.resources import JOB_SETS, JOBS, TRAIN_JOBS
from dispatch_kubeflow.machine import Context, DispatchError, ErrOutcomeUnknown, SystemClock

from .wire import Seen, Wire
from .world import LIMIT, NAMESPACE, T_JOB, T_JOBS, World, cancelled, ended, refused, soon, start


def states(found: Found) -> list[tuple[str, str]]:
    return [(each.ref.kind, each.state) for each in found.objects]


def until(views: Iterator[Found], wanted: Callable[[Found], bool]) -> Found:
    """The first view that is as wanted; the watch's context bounds the waiting."""
    return next(view for view in views if wanted(view))


def state(wanted: str) -> Callable[[Found], bool]:
    return lambda found: any(each.state == wanted for each in found.objects)


def watches(wire: Wire) -> list[str]:
    return [each.path.partition("?")[0].rpartition("/")[2] for each in wire.seen if "watch=" in each.path]


@contextmanager
def watching(world: World, job: str = "job") -> Iterator[Iterator[Found]]:
    ctx = soon()
    views = world.backends[0].watch(job, ctx=ctx)
    try:
        yield views
    finally:
        ctx.cancel()
        with pytest.raises(DispatchError):
            list(views)


@contextmanager
def stopped(why: str) -> Iterator[None]:
    with refused("read.stopped-watching") as caught:
        yield
    assert why in caught[0].details["rule"]


def test_the_first_view_comes_at_once_even_of_nothing(world: World) -> None:
    world.backend()
    with watching(world) as views:
        assert next(views) == Found("job")


def test_the_first_view_is_what_find_shows(world: World) -> None:
    backend = world.backend()
    start(backend)
    world.until(lambda: world.names(JOB_SETS))
    with watching(world) as views:
        assert next(views) == backend.find("job", ctx=soon())


def test_trainjobs_are_listed_when_all_else_has_been(world: World) -> None:
    world.backend()
    with watching(world) as views:
        next(views)
    lists = [path.rpartition("/")[2] for path in world.wire.calls() if "configmaps" not in path]
    listed = [each for each, seen in zip(lists, [s for s in world.wire.seen if "configmaps" not in s.path], strict=True)
              if "watch=" not in seen.path]  # fmt: skip
    assert sorted(listed[:4]) == ["jobs", "jobsets", "pods", "trainingruntimes"]
    assert listed[4] == "trainjobs"


def test_a_life_is_seen_as_it_goes(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    with watching(world) as views:
        until(views, state("gated"))
        backend.open(ref, ctx=soon())
        until(views, lambda found: found.objects[0].pods.running == 2)
        backend.hold(ref, 1, ctx=soon())
        held = until(views, state("held"))
        assert held.objects[0].hold_register is not None
        backend.stop_job("job", ctx=soon())
        until(views, lambda found: not found.objects)


def test_no_view_is_given_twice_in_a_row(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    seen: list[Found] = []
    with watching(world) as views:
        seen.append(next(views))
        backend.open(ref, ctx=soon())
        while seen[-1].objects[0].pods.running != 2:
            seen.append(next(views))
    assert all(one != other for one, other in itertools.pairwise(seen))


def test_many_watchers_share_one_stream_a_kind(world: World) -> None:
    backend = world.backend()
    ctx = soon()
    watchers = [backend.watch(job, ctx=ctx) for job in ("one", "two", "two", "three")]
    for views in watchers:
        next(views)
    world.until(lambda: len(watches(world.wire)) >= 5)
    assert sorted(watches(world.wire)) == ["jobs", "jobsets", "pods", "trainingruntimes", "trainjobs"]
    ctx.cancel()


def test_each_watcher_sees_its_own_job(world: World) -> None:
    backend = world.backend()
    ctx = soon()
    one, two = backend.watch("one", ctx=ctx), backend.watch("two", ctx=ctx)
    assert (next(one).objects, next(two).objects) == ((), ())
    start(backend, job="two")
    found = until(two, state("gated"))
    assert {each.ref.name for each in found.objects} == {"two-1"}
    start(backend, job="one")
    assert {each.ref.name for each in until(one, state("gated")).objects} == {"one-1"}
    ctx.cancel()


def test_a_slow_watcher_gets_the_newest_view_and_holds_up_nobody(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    ctx = soon()
    slow, quick = backend.watch("job", ctx=ctx), backend.watch("job", ctx=ctx)
    until(slow, state("gated"))
    backend.open(ref, ctx=soon())
    until(quick, lambda found: bool(found.objects) and found.objects[0].pods.running == 2)
    newest = next(slow)
    assert (newest.objects[0].state, newest.objects[0].pods.running) == ("opened", 2)
    ctx.cancel()


def test_streams_end_with_the_last_watcher_and_begin_anew_with_the_next(world: World) -> None:
    backend = world.backend()
    hub = backend._adapter.hub
    one, other = soon(), soon()
    first, second = backend.watch("job", ctx=one), backend.watch("job", ctx=other)
    next(first)
    next(second)
    session = hub._session
    first.close()  # type: ignore[attr-defined]
    assert hub._session is session
    second.close()  # type: ignore[attr-defined]
    assert hub._session is None
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("watch of")]
    again = backend.watch("job", ctx=soon())
    assert next(again) == Found("job")
    world.until(lambda: watches(world.wire).count("pods") == 2)


def test_its_deadline_ends_a_watch_as_an_error(world: World) -> None:
    backend = world.backend()
    views = backend.watch("job", ctx=Context.with_timeout(0.4))
    next(views)
    with stopped("deadline"):
        next(views)


def test_its_cancellation_ends_a_watch_at_once(world: World) -> None:
    backend = world.backend()
    ctx = Context.background()
    views = backend.watch("job", ctx=ctx)
    next(views)
    threading.Timer(0.1, ctx.cancel).start()
    with stopped("cancelled"):
        next(views)


def test_close_ends_a_watch(world: World) -> None:
    backend = world.backend()
    views = backend.watch("job", ctx=Context.background())
    next(views)
    threading.Timer(0.1, backend.close).start()
    with stopped("closed"):
        next(views)


def test_close_ends_a_watch_at_once_though_a_request_for_its_notes_hangs(world: World) -> None:
    backend = world.backend()
    start(backend)
    hangs = world.wire.hang("GET", r"configmaps", times=99)
    views = backend.watch("job", ctx=soon())
    next(views)
    assert hangs.hit.wait(LIMIT)
    ended_at: list[float] = []

    def watch_on() -> None:
        with stopped("its Backend was closed"):
            list(views)
        ended_at.append(time.monotonic())

    watcher = threading.Thread(target=watch_on)
    watcher.start()
    began = time.monotonic()
    backend.close()
    closed = time.monotonic()
    watcher.join(LIMIT)
    assert ended_at[0] - began < 0.3
    assert closed - began < 1.0


def test_a_watch_ends_at_its_deadline_though_its_backend_is_being_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatch_kubeflow.backend.operations.note_keeper.LAST_WRITES", 2.0)
    backend = world.backend()
    start(backend)
    hangs = world.wire.hang("GET", r"configmaps", times=99)
    first = backend.watch("job", ctx=soon())
    next(first)
    assert hangs.hit.wait(LIMIT)
    second = backend.watch("job", ctx=soon())
    closing = threading.Thread(target=backend.close)
    closing.start()
    world.until(lambda: backend._adapter.running.life != "open")
    began = time.monotonic()
    for views in (first, second):
        with pytest.raises(DispatchError):
            list(views)
    assert time.monotonic() - began < 0.5
    closing.join(LIMIT)


def test_a_watch_whose_backend_was_closed_before_its_first_view_says_so(world: World) -> None:
    backend = world.backend()
    views = backend.watch("job", ctx=soon())
    backend.close()
    with stopped("closed"):
        next(views)


def test_the_stages_are_passed_when_the_call_is_made(world: World) -> None:
    backend = world.backend()
    with refused("input.job-id"):
        backend.watch("No_Job", ctx=soon())
    with refused("context.deadline"):
        backend.watch("job", ctx=ended())
    with refused("context.cancelled"):
        backend.watch("job", ctx=cancelled())
    backend.close()
    with refused("backend.closed"):
        backend.watch("job", ctx=soon())
    assert world.requests() == []


def test_a_stream_that_is_refused_ends_every_watch_with_its_row(world: World) -> None:
    backend = world.backend()
    start(backend)
    go = threading.Event()
    world.wire.refuse("GET", r"/pods\?.*watch=1", 403, "Forbidden", before=lambda _: go.wait(LIMIT))
    ctx = soon()
    one, two = backend.watch("job", ctx=ctx), backend.watch("other", ctx=ctx)
    next(one)
    next(two)
    go.set()
    with refused("request.forbidden", status=403):
        list(one)
    with refused("request.forbidden", status=403):
        list(two)
    ctx.cancel()


def test_a_watch_begins_anew_after_one_that_was_refused(world: World) -> None:
    backend = world.backend()
    world.wire.refuse("GET", r"/pods\?.*watch=1", 401, "Unauthorized")
    with refused("request.unauthenticated"):
        list(backend.watch("job", ctx=soon()))
    assert next(backend.watch("job", ctx=soon())) == Found("job")


def test_the_first_list_failing_is_the_watch_failing(world: World) -> None:
    backend = world.backend()
    world.wire.lose_request("GET", r"/jobsets\?")
    with refused("request.no-answer"):
        next(backend.watch("job", ctx=soon()))


def test_a_broken_stream_is_resumed_and_misses_nothing(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    broken = world.wire.answer("GET", r"/pods\?.*watch=1", 200, b"", times=2)
    torn = world.wire.answer("GET", r"/trainjobs\?.*watch=1", 200, b'{"type": "MODIF')
    with watching(world) as views:
        until(views, state("gated"))
        assert broken.hit.wait(LIMIT)
        assert torn.hit.wait(LIMIT)
        backend.open(ref, ctx=soon())
        until(views, lambda found: found.objects[0].pods.running == 2)


def orphan(found: Found) -> list[FoundObject]:
    return [each for each in found.objects if each.state == "orphaned"]


def test_an_orphan_is_reported_only_after_a_read_shows_its_trainjob_absent(world: World) -> None:
    backend = world.backend()
    start(backend)
    world.until(lambda: world.names(JOB_SETS))
    with watching(world) as views:
        until(views, state("gated"))
        world.wire.seen.clear()
        world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE, propagation="Orphan")
        found = until(views, lambda found: bool(orphan(found)))
        reads = [path for path in world.wire.calls() if path.endswith("/trainjobs/job-1")]
        assert reads
        assert {each.ref.name for each in orphan(found)} >= {"job-1"}


def test_what_runs_ahead_of_its_trainjob_is_not_called_an_orphan(world: World) -> None:
    backend = world.backend()
    # The streams of all kinds but TrainJobs show the job at once; that of TrainJobs never does.
    world.wire.hang("GET", r"/trainjobs\?.*watch=1", times=9)
    views = backend.watch("job", ctx=soon(1.5))
    assert next(views) == Found("job")
    start(backend)
    seen: list[Found] = []
    with stopped("deadline"):
        seen.extend(views)
    assert not [found for found in seen if orphan(found)]
    reads = [path for path in world.wire.calls() if path.endswith("/trainjobs/job-1")]
    assert len(reads) > 1, "Start reads it once, and the watch must have read it too"


def test_a_trainjob_whose_stream_lags_behind_its_pods_is_read(world: World) -> None:
    backend = world.backend()
    ref = start(backend)
    world.wire.hang("GET", r"/trainjobs\?.*watch=", times=9)
    with watching(world) as views:
        assert states(next(views)) == [("TrainJob", "gated")]
        backend.open(ref, ctx=soon())
        (one,) = until(views, lambda found: found.objects[0].pods.running == 2).objects
        assert (one.state, one.gate_lifted, one.drift) == ("opened", True, ())
        # And once read, it is not forgotten again when its pods have gone.
        backend.hold(ref, 1, ctx=soon())
        (one,) = until(views, lambda found: found.objects[0].pods.total == 0).objects
        assert one.gate_lifted


@pytest.mark.parametrize("lost", [True, False])
def test_a_success_whose_jobset_stream_lags_is_no_unknown_end(tmp_path: pathlib.Path, lost: bool) -> None:
    with closing(World(tmp_path, Script(run=0.3))) as world:
        watch_a_success(world, lost)


def watch_a_success(world: World, lost: bool) -> None:
    backend = world.backend()
    ref = start(backend)
    world.wire.hang("GET", r"/jobsets\?.*watch=", times=9)
    with watching(world) as views:
        assert states(next(views)) == [("TrainJob", "gated")]
        if lost:
            world.wire.lose_answer("GET", r"/jobsets\?(?!.*watch=)", times=1)
        backend.open(ref, ctx=soon())
        (one,) = until(views, state("ended")).objects
        assert one.cause is not None
        assert one.cause.kind == "succeeded"


def test_a_failure_whose_job_stream_lags_is_no_unknown_end(world: World) -> None:
    backend = world.backend()
    ref = start(backend, deadline_seconds=1)
    world.until(lambda: world.get(JOBS, "job-1-node-0"))
    world.wire.hang("GET", r"/jobs\?.*watch=", times=9)
    with watching(world) as views:
        assert states(next(views)) == [("TrainJob", "gated")]
        backend.open(ref, ctx=soon())
        (one,) = until(views, state("ended")).objects
        assert one.cause is not None
        assert one.cause.kind == "deadline"


@pytest.mark.parametrize("lost", [True, False])
def test_pods_beside_a_closed_gate_are_no_gated_job(world: World, lost: bool) -> None:
    backend = world.backend()
    start(backend)
    if lost:
        world.wire.lose_request("GET", T_JOB, times=99)
    with watching(world) as views:
        next(views)
        world.cluster.patch(TRAIN_JOBS, "job-1", {"spec": {"suspend": False}}, NAMESPACE)
        (one,) = until(views, lambda found: found.objects[0].pods.running == 2).objects
        assert (one.state, one.gate_lifted, "pods" in [each.path for each in one.drift]) == ("opened", False, True)


def test_a_read_for_an_orphan_that_is_refused_ends_the_watch(world: World) -> None:
    backend = world.backend()
    start(backend)
    world.until(lambda: world.names(JOB_SETS))
    views = backend.watch("job", ctx=soon())
    until(views, state("gated"))
    world.wire.refuse("GET", r"/trainjobs/job-1$", 403, "Forbidden", times=9)
    world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE, propagation="Orphan")
    with refused("request.forbidden"):
        list(views)


def test_a_read_for_an_orphan_without_an_answer_is_made_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatch_kubeflow.backend.operations.watch.READ_AGAIN", 0.05)
    backend = world.backend()
    start(backend)
    world.until(lambda: world.names(JOB_SETS))
    with watching(world) as views:
        until(views, state("gated"))
        lost = world.wire.lose_request("GET", r"/trainjobs/job-1$")
        world.cluster.delete(TRAIN_JOBS, "job-1", NAMESPACE, propagation="Orphan")
        until(views, lambda found: bool(orphan(found)))
        assert lost.hit.is_set()


def test_an_attempt_stays_in_flight_until_its_trainjob_is_seen_or_shown_absent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatch_kubeflow.backend.operations.watch.LOOK_AGAIN", 0.05)
    monkeypatch.setattr("dispatch_kubeflow.backend.operations.watch.READ_AGAIN", 0.05)
    backend = world.backend()
    hold_back = threading.Event()

    def wait(_: Seen) -> None:
        hold_back.wait(LIMIT)

    with watching(world) as views:
        next(views)
        world.wire.on("POST", T_JOBS, after=wait, silent=True)
        failed: list[DispatchError] = []

        def try_to_start() -> None:
            try:
                start(backend)
            except DispatchError as error:
                failed.append(error)

        thread = threading.Thread(target=try_to_start)
        thread.start()
        seen = until(views, lambda found: bool(found.in_flight) or state("gated")(found))
        hold_back.set()
        while not state("gated")(seen):
            assert seen.in_flight == (1,)
            seen = next(views)
        assert seen.in_flight == ()
        thread.join()
        assert isinstance(failed[0], ErrOutcomeUnknown)


def test_a_read_only_backend_watches_and_writes_nothing(world: World) -> None:
    start(world.backend())
    watcher = world.backend(read_only=True)
    ctx = soon()
    views = watcher.watch("job", ctx=ctx)
    until(views, state("gated"))
    ctx.cancel()
    assert {each.method for each in world.cluster.requests} == {"GET"}


def marked(world: World) -> tuple[Iterator[Found], Callable[[], None]]:
    """A watch that shows an attempt in flight, and how its create is answered."""
    marks = world.backends[0]._adapter.in_flight
    mark = marks.begin(Identity("gpu", "job", 1), "nonce")
    views = world.backends[0].watch("job", ctx=soon())
    assert next(views).in_flight == (1,)
    return views, lambda: marks.answered(mark)


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatch_kubeflow.backend.operations.watch.LOOK_AGAIN", 0.05)
    monkeypatch.setattr("dispatch_kubeflow.backend.operations.watch.READ_AGAIN", 0.05)


@pytest.mark.usefixtures("prompt")
def test_an_attempt_whose_create_was_refused_is_in_flight_no_more_once_a_read_shows_it_absent(world: World) -> None:
    world.backend()
    views, answer = marked(world)
    answer()
    assert next(views) == Found("job")
    assert [path for path in world.wire.calls() if path.endswith("/trainjobs/job-1")]


@pytest.mark.usefixtures("prompt")
def test_while_that_read_has_no_answer_the_attempt_stays_in_flight(world: World) -> None:
    world.backend()
    views, answer = marked(world)
    lost = world.wire.lose_request("GET", r"/trainjobs/job-1$", times=2)
    answer()
    assert next(views) == Found("job")
    assert lost.hit.is_set()
    assert len([path for path in world.wire.calls() if path.endswith("/trainjobs/job-1")]) == 3


class Ahead(SystemClock):
    """Call_bound has passed by this clock."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=91)


@pytest.mark.usefixtures("prompt")
def test_a_copy_grows_old_without_any_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = world.backend()
    world.wire.lose_request("POST", T_JOBS)
    with pytest.raises(ErrOutcomeUnknown):
        start(backend)
    later = world.backend()
    views = later.watch("job", ctx=soon())
    until(views, state("starting"))
    monkeypatch.setattr(later._adapter, "clock", Ahead())
    assert states(next(views)) == [("TrainingRuntime", "orphaned")]


def test_a_stream_that_breaks_in_this_process_ends_the_watch(world: World) -> None:
    backend = world.backend()
    views = backend.watch("job", ctx=soon())
    next(views)
    session = backend._adapter.hub._session
    assert session is not None
    session._ended(None)
    with stopped("in this process"):
        next(views)
