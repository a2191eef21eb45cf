import threading

import pytest

from dispatch_kubeflow.backend.admission import queue as queues
from dispatch_kubeflow.backend.admission.queue import Key, WorkQueue
from dispatch_kubeflow.backend.embedded import VirtualClock

A, B = Key("Workload", "team-a", "a"), Key("Workload", "team-a", "b")


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def queue(clock):
    return WorkQueue(clock)


def taken(queue):
    return queue.take(0)


def test_what_is_added_twice_is_looked_at_once_and_in_order(queue):
    queue.add([A, B])
    queue.add([A])
    assert [taken(queue), taken(queue), taken(queue)] == [A, B, None]


def test_a_change_during_a_look_is_looked_at_again(queue):
    queue.add([A])
    assert taken(queue) == A
    queue.add([A])
    assert queue.settled(A) is None
    assert taken(queue) == A
    assert queue.settled(A) == 0


def test_failures_come_back_later_and_later(queue, clock):
    queue.add([A])
    delays = []
    for _ in range(12):
        assert taken(queue) == A
        queue.failed(A)
        began = clock.monotonic()
        while taken(queue) is None:
            clock.advance(0.025)
        delays.append(clock.monotonic() - began)
        queue.add([A])
    assert delays[:4] == pytest.approx([0.05, 0.1, 0.2, 0.4], abs=0.03)
    assert delays[-1] == pytest.approx(queues.LONGEST_FAILURE, abs=0.03)


def test_a_change_does_not_wait_for_the_next_try(queue, clock):
    queue.add([A])
    for _ in range(8):
        taken(queue)
        queue.failed(A)
        clock.advance(60)
    queue.failed(A)
    assert taken(queue) == A
    queue.failed(A)
    assert taken(queue) is None
    queue.add([A])
    assert taken(queue) == A


def test_what_waits_is_looked_at_after_a_tenth_of_the_time_it_has_waited(queue, clock):
    queue.add([A])
    looks = 0
    while clock.monotonic() < 300:
        if taken(queue) == A:
            looks += 1
            queue.waits(A)
            assert queue.is_waiting(A)
            assert queue.waiting == 1
        clock.advance(0.05)
    assert 50 < looks < 80
    queue.settled(A)
    assert not queue.is_waiting(A)


def test_looks_again_are_bounded_for_all_together(queue, clock):
    keys = [Key("Workload", "team-a", str(number)) for number in range(500)]
    queue.add(keys)
    looks = 0
    for _ in range(100):
        while (key := taken(queue)) is not None:
            looks += 1
            queue.waits(key)
        clock.advance(0.1)
    # Each once as a change; from then on the burst, and so many a second.
    assert looks <= 500 + queues.AGAIN_AT_ONCE + 10 * queues.AGAIN_PER_SECOND + 1


def test_the_time_until_it_was_settled_includes_all_tries(queue, clock):
    queue.add([A])
    taken(queue)
    queue.failed(A)
    clock.advance(1)
    assert taken(queue) == A
    assert queue.settled(A) == 1


def test_taking_ends_when_it_is_woken(clock):
    queue = WorkQueue(clock)
    found = []
    thread = threading.Thread(target=lambda: found.append(queue.take(5)))
    thread.start()
    queue.add([B])
    thread.join(10)
    assert found == [B]
    thread = threading.Thread(target=lambda: found.append(queue.take(5)))
    thread.start()
    while thread.is_alive():
        queue.wake()
        thread.join(0.01)
    assert found == [B, None]
