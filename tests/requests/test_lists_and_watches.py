"""A list is whole or it is none; a watch is as if there had been one stream that never broke."""

from __future__ import annotations

import gzip
import json
import random
import threading
import time

import msgspec
import pytest

from dispatch_kubeflow.backend.requests import Event, Listed, lists, watches
from dispatch_kubeflow.backend.requests import door as doors
from dispatch_kubeflow.backend.requests.resources import PODS, TRAIN_JOBS
from dispatch_kubeflow.machine.context import Context

from . import slow
from .upstream import answer
from .watched import (
    END,
    KIND,
    VERSION,
    Little,
    Seen,
    bookmark,
    chunk,
    door_to,
    error,
    event,
    raw,
    refused,
    saying,
    some,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watches, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(watches, "LONGEST_PAUSE", 0.004)


@pytest.fixture
def little():
    return Little(objects={f"a-{number}": number for number in range(1, 9)})


def listed(door, ctx=None, kind=Seen, selector=None):
    return door.list(
        TRAIN_JOBS, ctx or Context.with_timeout(10), operation="find", namespace="team-a", selector=selector, type=kind
    )


def watching(door, ctx):
    return door.watch(TRAIN_JOBS, ctx, operation="watch", namespace="team-a", selector="a=b", type=Seen)


def names(items) -> list[str]:
    return [each.metadata.name for each in items]


# Lists.


def test_a_list_is_read_page_by_page(little):
    with door_to(little) as door:
        reply = listed(door, selector="a in (b)")
    assert names(reply.items) == sorted(little.objects)
    assert (reply.resource_version, reply.restarts, reply.failure) == ("10", 0, None)
    targets = [each.target.partition("?")[2] for each in little.asked]
    assert targets == [f"labelSelector=a+in+%28b%29&limit=500{more}" for more in ("", "&continue=3", "&continue=6")]


def test_a_list_whose_continuation_expired_begins_anew_three_times(little):
    little.answers.extend([None, refused(410, "Expired")] * 3)
    with door_to(little) as door:
        reply = listed(door)
    assert names(reply.items) == sorted(little.objects)
    assert reply.restarts == 3


def test_the_fourth_expiry_is_the_lists_failure(little):
    little.answers.extend([None, refused(410, "Expired")] * 4)
    with door_to(little) as door:
        reply = listed(door)
    assert reply.failure is not None
    assert (reply.failure.result, reply.failure.details["tries"], reply.items) == ("410", 4, ())
    assert len(little.asked) == 8


def test_trap_a_fresh_continuation_of_a_410_is_never_used(little):
    status = {"kind": "Status", "metadata": {"continue": "fresh"}, "reason": "Expired"}
    little.answers.extend([None, raw(410, status)])
    with door_to(little) as door:
        assert listed(door).failure is None
    assert not any("fresh" in each.target for each in little.asked)


def page(number: int, *items: dict[str, object], more: str = "") -> bytes:
    return raw(200, {**BASE, "metadata": {"resourceVersion": str(number), "continue": more}, "items": list(items)})


@pytest.mark.parametrize("tokens", [["a", "a"], ["a", "b", "a"]])
def test_a_list_that_comes_back_to_where_it_was_is_no_answer(little, tokens):
    little.answers.extend(page(7, {"metadata": {"name": "x"}}, more=token) for token in tokens)
    with door_to(little) as door:
        reply = listed(door, Context.background())
    assert reply.items == ()
    assert (reply.failure.result, reply.failure.sent) == ("lost", True)
    assert len(little.asked) == len(tokens)


def test_a_list_that_continues_for_ever_ends_without_an_answer(little, monkeypatch):
    monkeypatch.setattr(lists, "MOST_PAGES", 20)
    little.answers.extend(page(7, {"metadata": {"name": f"x-{number}"}}, more=str(number)) for number in range(100))
    with door_to(little) as door:
        reply = listed(door, Context.background())
    assert (reply.failure.result, len(little.asked)) == ("lost", 21)


def test_a_page_without_items_is_a_page(little):
    little.answers.extend([page(7, more="a"), page(7, more="b"), page(7, {"metadata": {"name": "x"}})])
    with door_to(little) as door:
        reply = listed(door)
    assert (names(reply.items), reply.failure) == (["x"], None)


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_a_page_that_is_refused_fails_the_whole_list(little, status):
    little.answers.extend([None, refused(status)])
    with door_to(little) as door:
        reply = listed(door)
    assert reply.items == ()
    assert reply.failure is not None
    assert reply.failure.details["status"] == status


BASE = {"apiVersion": VERSION, "kind": f"{KIND}List", "metadata": {"resourceVersion": "1"}}


@pytest.mark.parametrize(
    "body",
    [
        BASE,
        {**BASE, "metadata": {}, "items": []},
        {**BASE, "metadata": None, "items": []},
        {**BASE, "items": [{"metadata": {"name": 7}}]},
        {**BASE, "items": [None]},
        {"kind": "Status", "apiVersion": "v1", "status": "Failure"},
        [],
        b"",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_trap_a_list_that_is_not_whole_is_no_answer(little, body):
    little.answers.append(raw(200, body))
    with door_to(little) as door:
        reply = listed(door)
    assert reply.failure is not None
    assert reply.failure.result == "lost"


def test_a_list_of_another_kind_is_told_as_such(little):
    little.answers.append(raw(200, {**BASE, "kind": "PodList", "apiVersion": "v1", "items": []}))
    with door_to(little) as door:
        reply = listed(door)
    assert reply.failure is not None
    assert reply.failure.result == "wrong-kind"


def test_trap_an_empty_list_may_be_null(little):
    little.answers.append(raw(200, {**BASE, "items": None}))
    with door_to(little) as door:
        reply = listed(door)
    assert (reply.items, reply.failure) == ((), None)


def test_a_list_that_comes_packed_is_unpacked(little):
    body = gzip.compress(json.dumps({**BASE, "items": [{"metadata": {"name": "a-1"}}]}).encode())
    little.answers.append(answer(200, body, headers="Content-Encoding: gzip\r\n"))
    with door_to(little) as door:
        assert names(listed(door).items) == ["a-1"]
    assert little.asked[0].headers["accept-encoding"] == "gzip"


class Kinded(msgspec.Struct, frozen=True, rename="camel"):
    metadata: dict[str, str]
    api_version: str = ""
    kind: str = ""


def test_items_take_the_lists_kind(little):
    with door_to(little) as door:
        assert {(each.api_version, each.kind) for each in listed(door, kind=Kinded).items} == {(VERSION, KIND)}


def test_a_list_ends_with_its_context(little):
    with door_to(little) as door:
        reply = listed(door, Context.with_timeout(0))
    assert reply.failure is not None
    assert reply.failure.result == "context-deadline"


def test_a_long_list_takes_no_more_memory_than_what_is_kept_and_a_page(little):
    import tracemalloc

    filler = "x" * 3_000
    items = [
        {"metadata": {"name": f"a-{number}", "resourceVersion": "1", "annotations": {"filler": filler}}}
        for number in range(500)
    ]
    pages = [
        raw(
            200,
            {**BASE, "metadata": {"resourceVersion": "1", "continue": f"{page}" if page < 9 else ""}, "items": items},
        )
        for page in range(10)
    ]
    little.answers.extend(pages)
    with door_to(little) as door:
        tracemalloc.start()
        reply = listed(door)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(reply.items) == 5_000
    assert sum(map(len, pages)) > 15_000_000
    assert peak < 9_000_000


# Watches.


def take(watch, count: int) -> list[object]:
    return [next(watch) for _ in range(count)]


def ending(watch) -> object:
    for _ in watch:
        pass
    return watch.failure


def test_a_watch_gives_the_state_and_then_each_change(little):
    with door_to(little) as door:
        ctx = Context.with_timeout(10)
        watch = watching(door, ctx)
        first = next(watch)
        assert isinstance(first, Listed)
        assert names(first.items) == sorted(little.objects)
        little.change("ADDED", "b-1")
        little.change("MODIFIED", "b-1")
        little.change("DELETED", "b-1")
        seen = take(watch, 3)
        assert [(each.type, each.item.metadata.name, each.resource_version) for each in seen] == [
            ("ADDED", "b-1", "11"),
            ("MODIFIED", "b-1", "12"),
            ("DELETED", "b-1", "13"),
        ]
        ctx.cancel()
        failure = ending(watch)
    assert failure.result == "context-cancelled"
    query = little.asked[-1].target
    assert "watch=1&allowWatchBookmarks=true&resourceVersion=10&timeoutSeconds=290" in query


BREAKS = {
    "clean end": END,
    "cut": b"",
    "cut in a chunk": b"10\r\nabc",
    "cut in a line": chunk(b'{"type":"ADDED","obj') + END,
    "malformed": chunk(b"{]\n") + END,
    "not an event": chunk(b"[]\n") + END,
    "no object": chunk(b'{"type":"ADDED"}\n') + END,
    "no type": chunk(b'{"object":{}}\n') + END,
    "unknown type": chunk(event((99, "EXPLODED", "x"))) + END,
    "no version": chunk(
        json.dumps({"type": "ADDED", "object": {"apiVersion": VERSION, "kind": KIND}}).encode() + b"\n"
    ),
    "not text": chunk(b'{"type":"\xff"}\n') + END,
    "of another form": chunk(
        json.dumps({"type": "ADDED", "object": {"apiVersion": VERSION, "kind": KIND, "metadata": 7}}).encode() + b"\n"
    ),
    "html": chunk(b"<html>\n") + END,
    "chunk size": b"zz\r\n",
    "expired": chunk(error(410, "Expired")) + END,
    "gone without code": chunk(
        json.dumps({"type": "ERROR", "object": {"kind": "Status", "reason": "Gone"}}).encode() + b"\n"
    ),
    "error 500": chunk(error(500, "InternalError")) + END,
    "error 504": chunk(error(504, "Timeout")) + END,
    "error of no form": chunk(b'{"type":"ERROR","object":{}}\n') + END,
    "error that is none": chunk(b'{"type":"ERROR","object":7}\n') + END,
    "blank lines": chunk(b"\n \n\n") + END,
}


@pytest.mark.parametrize("how", BREAKS)
def test_trap_a_stream_that_breaks_loses_and_repeats_no_event(little, how):
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(20))
        little.streams.extend([some(1, BREAKS[how]), some(2, BREAKS[how]), some(0, BREAKS[how])])
        happenings = [next(watch)]
        for number in range(6):
            little.change("ADDED", f"b-{number}")
        last = little.version
        while position(happenings) < last:
            happenings.append(next(watch))
        watch.close()
    check_history(little, happenings)


def position(happenings: list[object]) -> int:
    return int(happenings[-1].resource_version)


def check_history(little: Little, happenings: list[object]) -> None:
    """Between two lists stand exactly the changes since the first, in order, each once; and the end is the truth."""
    at = 0
    state: dict[str, int] = {}
    for each in happenings:
        if isinstance(each, Listed):
            at = int(each.resource_version)
            state = {item.metadata.name: int(item.metadata.resource_version) for item in each.items}
            continue
        assert isinstance(each, Event)
        change = little.since(at)[0]
        assert (int(each.resource_version), each.type, each.item.metadata.name) == change
        at = change[0]
        if each.type == "DELETED":
            del state[change[2]]
        else:
            state[change[2]] = at
    assert state == little.objects


@pytest.mark.parametrize("seed", range(12))
def test_whatever_breaks_in_whatever_order_the_history_is_whole(little, seed):
    chance = random.Random(seed)
    breaks = list(BREAKS.values())
    for _ in range(12):
        little.streams.append(some(chance.randrange(4), chance.choice(breaks)))
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(20))
        happenings = [next(watch)]

        def change() -> None:
            for number in range(25):
                little.change("ADDED", f"c-{number}")
                if number % 3 == 0:
                    little.change("DELETED", f"c-{number}")
                time.sleep(0.002)

        thread = threading.Thread(target=change)
        thread.start()
        while position(happenings) < 10 + 25 + 9:
            happenings.append(next(watch))
        thread.join()
        watch.close()
    check_history(little, happenings)


def test_an_event_that_is_sent_twice_is_given_once(little):
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(10))
        first = event((11, "ADDED", "b-1"))
        little.streams.append(saying(chunk(first + first) + chunk(event((12, "ADDED", "b-2")) + first) + END))
        next(watch)
        little.change("ADDED", "b-1")
        little.change("ADDED", "b-2")
        little.change("ADDED", "b-3")
        assert [each.resource_version for each in take(watch, 3)] == ["11", "12", "13"]
        watch.close()


def test_trap_a_bookmark_moves_the_watch_on(little):
    with door_to(little) as door:
        ctx = Context.with_timeout(10)
        little.streams.append(saying(chunk(bookmark(500)) + END))
        watch = watching(door, ctx)
        next(watch)
        little.version = 500
        threading.Timer(0.2, ctx.cancel).start()
        ending(watch)
    assert "resourceVersion=500" in little.asked[-1].target


@pytest.mark.parametrize("before", [True, False], ids=["before the stream", "in the stream"])
def test_trap_three_expiries_without_progress_list_anew_and_the_fourth_ends_it(little, before):
    if before:
        little.page = 100
        little.answers.extend([None, refused(410, "Expired")] * 4)
    else:
        little.streams.extend([saying(chunk(error(410, "Expired")) + END)] * 4)
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(10))
        assert len(list(watch)) == 4
        failure = watch.failure
    assert failure is not None
    assert (failure.result, failure.details["tries"]) == ("410", 4)


def test_trap_an_event_that_comes_again_before_each_expiry_is_no_progress(little):
    same = chunk(event((11, "ADDED", "b-1")))
    little.streams.extend([saying(same + chunk(error(410, "Expired")) + END)] * 10)
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(10))
        failure = ending(watch)
    assert failure.result == "410"
    assert len(little.streams) == 6


@pytest.mark.parametrize("where", ["before the stream", "in the stream"])
def test_a_version_that_the_server_does_not_have_is_given_up_for_a_new_list(little, where):
    little.page = 100
    if where == "in the stream":
        little.streams.extend([saying(chunk(error(504, "Timeout")) + END)] * 3)
    else:
        little.answers.extend([None, *[refused(504, "Timeout")] * 3])
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(10))
        assert [type(each) for each in take(watch, 2)] == [Listed, Listed]
        watch.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 413, 415, 422])
@pytest.mark.parametrize("where", ["list", "stream", "resume", "line"])
def test_a_refusal_ends_a_watch_wherever_it_comes(little, where, status):
    little.page = 100
    if where == "line":
        little.streams.append(saying(chunk(error(status)) + END))
    else:
        little.answers.extend([None] * {"list": 0, "stream": 1, "resume": 2}[where] + [refused(status)])
        little.streams.append(saying(END))
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(10))
        failure = ending(watch)
    assert failure.result == str(status)
    assert list(watch) == []


def test_an_object_of_another_kind_ends_a_watch(little):
    other = {"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": "99"}}}
    little.streams.append(saying(chunk(json.dumps(other).encode() + b"\n") + END))
    with door_to(little) as door:
        failure = ending(watching(door, Context.with_timeout(10)))
    assert failure.result == "wrong-kind"


def test_the_first_list_is_not_tried_again(little):
    little.answers.append(refused(503))
    with door_to(little) as door:
        failure = ending(watching(door, Context.with_timeout(10)))
    assert failure.result == "lost"
    assert len(little.asked) == 1


def test_a_later_list_is_tried_until_it_comes(little):
    little.page = 100
    little.answers.extend([None, refused(410, "Expired"), refused(503), refused(500), None])
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(10))
        assert [type(each) for each in take(watch, 2)] == [Listed, Listed]
        watch.close()


def test_a_list_that_is_refused_later_ends_it(little):
    little.page = 100
    little.answers.extend([None, refused(410, "Expired"), refused(403)])
    with door_to(little) as door:
        failure = ending(watching(door, Context.with_timeout(10)))
    assert failure.result == "403"


def test_trap_streams_that_bring_nothing_are_opened_more_and_more_slowly(little, monkeypatch):
    monkeypatch.setattr(watches, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(watches, "LONGEST_PAUSE", 5.0)
    little.streams.extend([saying(END)] * 100)
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(0.9))
        failure = ending(watch)
    assert failure.result == "context-deadline"
    assert 4 <= 100 - len(little.streams) <= 5  # after 0, 0.05, 0.15, 0.35 and 0.75 seconds


def test_the_pause_ends_with_the_context_and_with_the_door(little, monkeypatch):
    monkeypatch.setattr(watches, "FIRST_PAUSE", 30.0)
    monkeypatch.setattr(watches, "LONGEST_PAUSE", 30.0)
    little.streams.extend([saying(END)] * 2)
    with door_to(little) as door:
        for end in ("cancel", "close"):
            ctx = Context.background()
            watch = watching(door, ctx)
            next(watch)
            timer = threading.Timer(0.1, ctx.cancel if end == "cancel" else door.close)
            timer.start()
            began = time.monotonic()
            failure = ending(watch)
            assert failure.result == "context-cancelled"
            assert time.monotonic() - began < 5
            timer.join()
        after = ending(watching(door, Context.background()))
    assert after.result == "context-cancelled"


def test_trap_a_silent_peer_is_noticed(little, monkeypatch):
    from dispatch_kubeflow.backend.requests import door as module

    monkeypatch.setattr(module, "SILENCE", 0.1)

    def silent(_, sock, __):
        sock.settimeout(5)
        sock.recv(1)

    little.streams.extend([silent, silent])
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(10))
        next(watch)
        little.change("ADDED", "b-1")
        assert next(watch).resource_version == "11"
        watch.close()
    assert not little.streams


def test_a_stream_that_never_ends_is_given_up_after_its_time(little, monkeypatch):
    from dispatch_kubeflow.backend.requests import door as module

    monkeypatch.setattr(module, "SERVER_SECONDS", 0.1)

    def spinning(_, sock, __):
        while True:
            sock.sendall(chunk(b"\n"))
            time.sleep(0.005)

    little.streams.append(spinning)
    with door_to(little, timeout=0.1) as door:
        watch = watching(door, Context.with_timeout(10))
        next(watch)
        little.change("ADDED", "b-1")
        assert next(watch).resource_version == "11"
        watch.close()


def test_closing_a_watch_closes_its_connection(little):
    with door_to(little) as door:
        watch = watching(door, Context.background())
        next(watch)
        little.change("ADDED", "b-1")
        next(watch)
        assert len(door._sender._under_way) == 1
        watch.close()
        assert door._sender._under_way == set()
        assert list(watch) == []


def test_versions_that_are_no_numbers_are_only_told_apart(little):
    odd = json.dumps(
        {"type": "ADDED", "object": {"apiVersion": VERSION, "kind": KIND, "metadata": {"resourceVersion": "x-1"}}}
    ).encode()
    little.streams.append(saying(chunk(odd + b"\n" + odd + b"\n") + END))
    with door_to(little) as door:
        ctx = Context.with_timeout(0.3)
        watch = watching(door, ctx)
        happenings = list(watch)
    assert [each.resource_version for each in happenings] == ["10", "x-1"]


def test_a_large_chunk_of_many_events_is_read_in_time(little):
    many = b"".join(event((number, "ADDED", f"b-{number}")) for number in range(11, 20_011))
    little.streams.append(saying(chunk(many) + END))
    with door_to(little) as door:
        watch = watching(door, Context.with_timeout(30))
        began = time.process_time()
        assert len(take(watch, 20_001)) == 20_001
        assert time.process_time() - began < 5
        watch.close()


# Logs.


def log_of(door, ctx=None, **more):
    return door.log("team-a", "a-1", "node", ctx or Context.with_timeout(10), operation="output", **more)


def test_a_log_is_given_line_by_line(little):
    little.answers.append(raw(200, b"one\n\ntwo\r\nthree"))
    with door_to(little) as door:
        assert list(log_of(door, tail=5, follow=True).lines) == [b"one", b"", b"two\r", b"three"]
    assert little.asked[0].target == "/api/v1/namespaces/team-a/pods/a-1/log?container=node&tailLines=5&follow=true"


def test_a_log_of_a_pod_that_is_not_scheduled_is_empty(little):
    little.answers.append(b"HTTP/1.1 204 No Content\r\n\r\n")
    with door_to(little) as door:
        assert list(log_of(door).lines) == []


def test_trap_a_log_that_looks_like_json_or_is_not_text_is_given_as_it_is(little):
    little.answers.append(raw(200, b'{"a": 1}\n\xff\xfe\n'))
    with door_to(little) as door:
        assert list(log_of(door).lines) == [b'{"a": 1}', b"\xff\xfe"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 500, 503])
def test_a_log_that_is_refused_gives_no_lines(little, status):
    little.answers.append(refused(status))
    with door_to(little) as door:
        reply = log_of(door)
    assert reply.failure is not None
    assert reply.failure.details["status"] == status
    assert reply.failure.facts["channel"] == "log"
    assert list(reply.lines) == []


CUTS = {
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"one\ntwo\nthr"),
    "counted": b"Content-Length: 100\r\n\r\none\ntwo\nthr",
    "closed": b"\r\none\ntwo\nthr",
    "malformed": b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"one\ntwo\nthr") + b"zz\r\n",
}


@pytest.mark.parametrize("how", CUTS)
def test_trap_a_log_that_is_cut_says_so_after_its_whole_lines(plain, open_door, how):
    from .proxy import Plan

    plain.plan = Plan("fin", answer=b"HTTP/1.1 200 OK\r\n" + CUTS[how])
    *lines, last = log_of(open_door(plain)).lines
    assert lines == [b"one", b"two"]
    assert (last.result, last.sent) == ("lost", True)


def test_a_log_that_is_encoded_is_none(little):
    little.answers.append(answer(200, gzip.compress(b"one\n"), headers="Content-Encoding: gzip\r\n"))
    with door_to(little) as door:
        failure = log_of(door).failure
    assert failure is not None
    assert failure.result == "lost"


def test_a_log_that_is_followed_ends_with_its_context(little):
    little.answers.append(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"one\n"))
    with door_to(little, timeout=0.05) as door:
        ctx = Context.background()
        lines = log_of(door, ctx, follow=True).lines
        assert next(lines) == b"one"
        threading.Timer(0.2, ctx.cancel).start()
        began = time.monotonic()
        failure = next(lines)
        assert time.monotonic() - began > 0.1, "a quiet log is followed beyond the bound of one request"
        assert failure.result == "lost"
        assert list(lines) == []


def test_a_log_that_drips_for_ever_is_cut(certificates, monkeypatch):
    monkeypatch.setattr(doors, "LONGEST_LOG", 0.2)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\none\n"
    with slow.dripping(certificates, head) as door:
        *lines, last = log_of(door, Context.background()).lines
    assert lines == [b"one"]
    assert last.result == "lost"


def test_a_reader_of_a_log_may_take_its_time(little):
    body = b"one\n" * 40_000
    little.answers.append(raw(200, body))
    with door_to(little) as door:
        passed = 0.0
        door._sender._connections.monotonic = lambda: time.monotonic() + passed
        given = []
        for line in log_of(door, Context.background()).lines:
            given.append(line)
            passed += 1.0
    assert given == [b"one"] * 40_000


def test_a_log_that_is_left_closes_its_connection(little):
    little.answers.append(raw(200, b"one\ntwo\n"))
    with door_to(little) as door:
        lines = log_of(door).lines
        next(lines)
        lines.close()
        assert door._sender._under_way == set()
        little.answers.append(raw(200, b"one\n"))
        unread = log_of(door)
        assert len(door._sender._under_way) == 1
        del unread
        assert door._sender._under_way == set()


def test_a_line_without_an_end_comes_in_parts(little):
    little.answers.append(raw(200, b"x" * 2_500_000 + b"\nend"))
    with door_to(little) as door:
        parts = list(log_of(door).lines)
    assert b"".join(parts[:-1]) == b"x" * 2_500_000
    assert max(map(len, parts)) <= 2 * 1_048_576
    assert parts[-1] == b"end"


def test_pods_are_listed_in_the_core_group(little):
    little.answers.append(
        raw(200, {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []})
    )
    with door_to(little) as door:
        reply = door.list(PODS, Context.with_timeout(5), operation="find", namespace="team-a", selector=None, type=Seen)
    assert reply.failure is None
    assert little.asked[0].target == "/api/v1/namespaces/team-a/pods?limit=500"
