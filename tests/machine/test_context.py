import threading
from datetime import UTC, datetime

import pytest

from dispatch_kubeflow.machine import Context, ErrInvalid, SystemClock


class HeldClock:
    """A clock that moves only when told; whoever waits on it sees the time pass at once."""

    def __init__(self) -> None:
        self.time = 100.0
        self.waited: list[float | None] = []

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        self.waited.append(timeout)
        if not event.is_set():
            self.time += timeout or 0
        return event.is_set()


@pytest.fixture
def clock():
    return HeldClock()


def test_a_background_context_has_no_end(clock):
    ctx = Context.background(clock=clock)
    assert (ctx.ended, ctx.deadline, ctx.remaining()) == (None, None, None)


def test_a_timeout_counts_from_now(clock):
    ctx = Context.with_timeout(5, clock=clock)
    assert (ctx.deadline, ctx.remaining(), ctx.ended) == (105.0, 5.0, None)


def test_a_context_ends_at_its_deadline(clock):
    ctx = Context.with_deadline(101, clock=clock)
    clock.time = 101.0
    assert (ctx.ended, ctx.remaining()) == ("deadline", 0.0)


def test_what_remains_is_never_negative(clock):
    ctx = Context.with_timeout(-3, clock=clock)
    assert (ctx.ended, ctx.remaining()) == ("deadline", 0.0)


def test_a_cancelled_context_has_ended(clock):
    ctx = Context.background(clock=clock)
    ctx.cancel()
    assert ctx.ended == "cancelled"


def test_whichever_end_came_first_is_told(clock):
    cancelled_first, deadline_first = Context.with_timeout(1, clock=clock), Context.with_timeout(1, clock=clock)
    cancelled_first.cancel()
    clock.time += 2
    deadline_first.cancel()
    assert (cancelled_first.ended, deadline_first.ended) == ("cancelled", "deadline")


def test_a_child_ends_no_later_than_its_parent(clock):
    parent = Context.with_timeout(5, clock=clock)
    assert (parent.child(timeout=1).remaining(), parent.child(timeout=9).remaining()) == (1.0, 5.0)
    assert (parent.child().remaining(), Context.background(clock=clock).child(timeout=2).remaining()) == (5.0, 2.0)
    assert Context.background(clock=clock).child().remaining() is None


def test_a_child_has_its_parents_clock(clock):
    assert Context.background(clock=clock).child().clock is clock


def test_cancelling_a_parent_ends_its_child_and_not_the_other_way_round(clock):
    parent = Context.background(clock=clock)
    first, second = parent.child(), parent.child()
    first.cancel()
    assert (first.ended, second.ended, parent.ended) == ("cancelled", None, None)
    parent.cancel()
    assert second.ended == "cancelled"


def test_callbacks_run_once_in_the_order_given(clock):
    ctx, called = Context.background(clock=clock), []
    ctx.on_cancel(lambda: called.append(1))
    ctx.on_cancel(lambda: called.append(2))
    ctx.cancel()
    ctx.cancel()
    assert called == [1, 2]


def test_a_callback_on_a_child_runs_when_any_of_its_line_is_cancelled_and_once(clock):
    parent, called = Context.background(clock=clock), []
    child = parent.child()
    child.on_cancel(lambda: called.append("x"))
    parent.cancel()
    child.cancel()
    assert called == ["x"]


def test_a_callback_given_to_a_cancelled_context_runs_at_once(clock):
    parent, called = Context.background(clock=clock), []
    child = parent.child()
    parent.cancel()
    child.on_cancel(lambda: called.append(threading.current_thread()))
    assert called == [threading.current_thread()]


def test_an_undone_callback_does_not_run(clock):
    parent, called = Context.background(clock=clock), []
    child = parent.child()
    undo = child.on_cancel(lambda: called.append("x"))
    undo()
    undo()
    child.cancel()
    parent.cancel()
    assert called == []


def test_callbacks_run_in_the_cancelling_thread(clock):
    ctx, called = Context.background(clock=clock), []
    ctx.on_cancel(lambda: called.append(threading.current_thread()))
    thread = threading.Thread(target=ctx.cancel)
    thread.start()
    thread.join()
    assert called == [thread]


def test_a_callback_that_raises_does_not_keep_the_others_from_running(clock):
    ctx, called = Context.background(clock=clock), []

    def fail() -> None:
        raise RuntimeError("broken callback")

    ctx.on_cancel(fail)
    ctx.on_cancel(lambda: called.append("x"))
    with pytest.raises(RuntimeError, match="broken callback"):
        ctx.cancel()
    assert called == ["x"]


def test_waiting_takes_as_long_as_asked(clock):
    assert Context.with_timeout(5, clock=clock).wait(2) is False
    assert clock.time == 102.0


def test_waiting_takes_no_longer_than_the_context(clock):
    assert Context.with_timeout(5, clock=clock).wait(20) is True
    assert clock.time == 105.0


def test_waiting_without_a_bound_takes_until_the_deadline(clock):
    assert Context.with_timeout(5, clock=clock).wait(None) is True
    assert clock.waited == [5.0]


def test_an_ended_context_is_not_waited_for(clock):
    ctx = Context.background(clock=clock)
    ctx.cancel()
    assert ctx.wait(5) is True
    assert clock.waited == []


def test_cancelling_wakes_who_waits():
    parent = Context.background()
    results: list[bool] = []
    child = parent.child()
    waiting = threading.Event()

    class Telling(SystemClock):
        def wait(self, event: threading.Event, timeout: float | None) -> bool:
            waiting.set()
            return super().wait(event, timeout)

    child.clock = Telling()
    thread = threading.Thread(target=lambda: results.append(child.wait(None)))
    thread.start()
    assert waiting.wait(10)
    parent.cancel()
    thread.join(10)
    assert results == [True]


@pytest.mark.parametrize("wrong", [None, "5", True, float("nan"), 3 + 1j])
@pytest.mark.parametrize("make", [Context.with_timeout, Context.with_deadline])
def test_what_is_no_number_of_seconds_is_invalid(make, wrong):
    with pytest.raises(ErrInvalid) as error:
        make(wrong)
    assert error.value.row == "input.context"
    assert error.value.details["value"] == repr(wrong)


@pytest.mark.parametrize("make", [Context.with_timeout, Context.with_deadline])
def test_a_number_beyond_all_seconds_is_invalid(make):
    for huge in (10**400, -(10**5000)):
        with pytest.raises(ErrInvalid) as error:
            make(huge)
        assert error.value.row == "input.context"


def test_a_childs_timeout_is_checked_too():
    with pytest.raises(ErrInvalid, match="timeout is '1'"):
        Context.background().child(timeout="1")


def test_an_infinite_timeout_is_waited_for_until_the_event():
    event = threading.Event()
    event.set()
    assert SystemClock().wait(event, float("inf")) is True
    assert Context.with_timeout(float("inf")).ended is None


def test_the_system_clock_tells_utc_and_a_time_that_does_not_run_backwards():
    clock = SystemClock()
    assert clock.now().utcoffset().total_seconds() == 0
    assert clock.monotonic() <= clock.monotonic()


def test_the_system_clock_waits_no_longer_than_asked():
    assert SystemClock().wait(threading.Event(), 0.001) is False
