"""Sent or unsent is what this layer did, whatever an exception is called: the server's record of bytes is the judge."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
import warnings

import pytest

from dispatch_kubeflow.backend.requests import ClusterAccess, Door, Failure, Request, Trust, refuse
from dispatch_kubeflow.backend.requests import connection as connecting
from dispatch_kubeflow.backend.requests.call import Abandoned, Call
from dispatch_kubeflow.backend.requests.resolve import Resolver
from dispatch_kubeflow.backend.requests.resources import ACCESS_REVIEWS, NODES, PODS, TRAIN_JOBS, Resource
from dispatch_kubeflow.backend.requests.tokens import Credential, Fixed
from dispatch_kubeflow.machine.context import Context, SystemClock
from dispatch_kubeflow.machine.errors import ErrOutcomeUnknown, ErrUnreachable
from dispatch_kubeflow.machine.rules import rulebook

from .proxy import FaultProxy, Plan
from .slow import listening
from .test_faults import NEW, REQUESTS, ask
from .upstream import Scripted, answer

WRITES = ("create", "patch", "delete")


def send(door: Door, request: Request = REQUESTS["create"], ctx: Context | None = None) -> Failure | None:
    return door.send(request, ctx or Context.with_timeout(5), operation="start").failure


@pytest.mark.parametrize("action", ["fin", "rst", "stall"])
@pytest.mark.parametrize("verb", REQUESTS)
def test_a_request_cut_at_any_of_its_bytes_is_lost_and_made_once(server, upstream, open_door, verb, action):
    door = open_door(server)
    request = REQUESTS[verb]
    send_first = door._sender._written(request, "", Credential("Bearer a-token"))
    places = [1, 2, 10, len(send_first) // 2, len(send_first) - 1, len(send_first)]
    for at in places:
        before = len(server.connections)
        ctx = Context.with_timeout(5)
        server.plan = Plan(action, request_at=at, on_stall=ctx.cancel)
        got = ask(door, request, ctx)
        assert (got.result, got.sent) == ("lost", True), f"{action} after {at} bytes"
        assert len(server.connections) == before + 1
        assert upstream.asked == []


@pytest.mark.parametrize("verb", REQUESTS)
def test_an_early_refusal_is_an_answer_and_ends_the_connection(server, upstream, open_door, verb):
    door = open_door(server)
    server.plan = Plan(request_at=10, early=True, answer=answer(413, b"", headers="Connection: close\r\n"))
    assert ask(door, REQUESTS[verb], Context.with_timeout(5)).result == "413"
    assert upstream.committed == []
    server.plan = Plan()
    assert ask(door, REQUESTS[verb], Context.with_timeout(5)).result == "answer"
    assert len(server.connections) == 2


@pytest.mark.parametrize("body", [{"a": "\ud800"}, {"a": float("inf")}, {"a": object()}])
def test_a_request_that_cannot_be_written_says_so(plain, open_door, body):
    failure = send(open_door(plain), Request("POST", TRAIN_JOBS, "team-a", body=body, intent="write"))
    assert (failure.result, failure.sent) == ("unsent", False)
    assert failure.details["rule"].startswith("the body cannot be written as JSON")
    assert plain.connections == []


def test_a_refusal_longer_than_any_is_read_by_its_status_alone(plain, open_door, monkeypatch):
    from dispatch_kubeflow.backend.requests import sender as module

    monkeypatch.setattr(module, "_LARGEST_REFUSAL", 100)
    plain.plan = Plan(
        answer=answer(409, b'{"kind": "Status", "reason": "AlreadyExists", "message": "%s"}' % (b"x" * 100))
    )
    failure = send(open_door(plain))
    assert (failure.result, failure.facts["reason"]) == ("409", "other")


def test_trap_a_refusal_while_a_large_body_is_being_sent_is_salvaged(plain, open_door):
    large = {**NEW, "metadata": {"name": "a-1", "annotations": {"a": "x" * 8_000_000}}}
    request = Request("POST", TRAIN_JOBS, "team-a", body=large, intent="write")
    plain.plan = Plan(request_at=10, early=True, answer=answer(413, b"", headers="Connection: close\r\n"))
    failure = send(open_door(plain), request)
    assert failure is not None
    assert failure.result == "413"


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_an_answer_is_read_although_the_rest_of_the_request_was_not_taken(plain, open_door, monkeypatch, error):
    said = Call.send

    def cut_short(self, sock, data):
        said(self, sock, data)
        raise error

    door = open_door(plain)
    monkeypatch.setattr(Call, "send", cut_short)
    assert ask(door, REQUESTS["create"], Context.with_timeout(5)).result == "answer"
    assert ask(door, REQUESTS["create"], Context.with_timeout(5)).result == "answer"
    assert len(plain.connections) == 2, "a connection that was cut short is not used again"


@pytest.mark.parametrize("action", ["fin", "rst"])
@pytest.mark.parametrize("verb", REQUESTS)
def test_a_connection_closed_before_it_was_asked_is_unsent_unless_a_byte_was_handed_over(
    server, open_door, verb, action
):
    server.plan = Plan(action, accepted=True)
    got = ask(open_door(server), REQUESTS[verb], Context.with_timeout(5))
    assert got.result == ("lost" if got.sent else "unsent")
    assert server.plan.done.wait(5)
    if not got.sent:
        assert server.received == 0
    assert server.requests == 0


@pytest.mark.parametrize("said", [answer(409, b""), b""], ids=["speaks", "closes"])
def test_trap_a_peer_that_speaks_or_closes_before_it_was_asked_is_not_believed(said):
    ours, theirs = socket.socketpair()
    connecting._require_silence(ours)
    theirs.sendall(said)
    theirs.close()
    with pytest.raises(connecting.SpokeFirst):
        connecting._require_silence(ours)
    ours.close()


def test_trap_a_refused_connection_is_unsent(open_door, plain):
    plain.close()
    failure = send(open_door(plain))
    assert failure is not None
    assert (failure.result, failure.sent) == ("unsent", False)
    assert isinstance(failure.cause, ConnectionRefusedError)


@pytest.mark.parametrize("error", [socket.gaierror(-2, "unknown"), socket.gaierror(-3, "again"), ValueError("odd")])
def test_trap_a_name_that_cannot_be_looked_up_is_unsent(monkeypatch, error):
    def fails(*_):
        raise error

    resolver = Resolver(fails)
    monkeypatch.setattr(connecting, "_RESOLVERS", type("Same", (), {"of_this_process": lambda _: resolver})())
    door = Door(ClusterAccess.at("https://cluster.example"), request_timeout=5, clock=SystemClock())
    failure = send(door)
    assert failure is not None
    assert (failure.result, failure.sent) == ("unsent", False)


def test_trap_a_host_with_an_empty_label_is_unsent():
    door = Door(ClusterAccess.at("https://a..b"), request_timeout=5, clock=SystemClock())
    failure = send(door)
    assert failure is not None
    assert failure.result == "unsent"


def test_an_address_that_refuses_is_followed_by_the_next(monkeypatch, plain):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("127.0.0.9", "127.0.0.1")]
    resolver = Resolver(lambda *_: found)
    monkeypatch.setattr(connecting, "_RESOLVERS", type("Same", (), {"of_this_process": lambda _: resolver})())
    access = ClusterAccess.at(f"http://cluster.example:{plain.port}")
    door = Door(access, request_timeout=5, clock=SystemClock())
    assert send(door) is None
    resolver._lookup = lambda *_: []
    other = Door(access, request_timeout=5, clock=SystemClock())
    failure = send(other)
    assert failure is not None
    assert failure.result == "unsent"


def test_an_address_that_drops_everything_takes_its_share_and_no_more(monkeypatch, plain):
    from dispatch_kubeflow.backend.requests import dial

    monkeypatch.setattr(dial, "_LEAST", 0.01)
    with socket.create_server(("127.0.0.9", plain.port), backlog=0), contextlib.ExitStack() as fillers:
        for _ in range(4):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.9", plain.port))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("127.0.0.9", "127.0.0.1")]
        resolver = Resolver(lambda *_: found)
        monkeypatch.setattr(connecting, "_RESOLVERS", type("Same", (), {"of_this_process": lambda _: resolver})())
        access = ClusterAccess.at(f"http://cluster.example:{plain.port}")
        door = Door(access, request_timeout=0.6, clock=SystemClock())
        began = time.monotonic()
        assert send(door) is None
        assert 0.2 < time.monotonic() - began < 0.6
        door.close()


# TLS.


def tls_failure(server_context: ssl.SSLContext, trust: Trust, upstream: Scripted, host: str = "127.0.0.1") -> Failure:
    proxy = FaultProxy(upstream, server_context)
    access = ClusterAccess(f"https://{host}:{proxy.port}", Fixed(Credential("Bearer t")), trust)
    door = Door(access, request_timeout=5, clock=SystemClock())
    failure = send(door)
    door.close()
    proxy.close()
    assert failure is not None
    assert proxy.received == 0
    return failure


def test_trap_a_failed_handshake_is_unsent(certificates, upstream):
    untrusted = tls_failure(certificates.server_context(stranger=True), Trust(certificates.authority), upstream)
    wrong = Trust(certificates.authority, server_name="other.example")
    misnamed = tls_failure(certificates.server_context(), wrong, upstream)
    for failure in (untrusted, misnamed):
        assert (failure.result, failure.sent) == ("unsent", False)
        assert isinstance(failure.cause, ssl.SSLCertVerificationError)


def test_a_server_name_of_its_own_is_verified(certificates, upstream):
    proxy = FaultProxy(upstream, certificates.server_context())
    access = ClusterAccess(proxy.url, Fixed(Credential()), Trust(certificates.authority, server_name="localhost"))
    door = Door(access, request_timeout=5, clock=SystemClock())
    assert send(door) is None
    door.close()
    proxy.close()


def test_verification_can_be_skipped_without_a_warning(certificates, upstream):
    proxy = FaultProxy(upstream, certificates.server_context(stranger=True))
    door = Door(
        ClusterAccess(proxy.url, Fixed(Credential()), Trust(verify=False)), request_timeout=5, clock=SystemClock()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert send(door) is None
    door.close()
    proxy.close()


def test_trap_a_plain_peer_is_unsent_to_tls(certificates):
    def plainly(sock: socket.socket, over: threading.Event) -> None:
        sock.recv(65_536)
        sock.sendall(answer(409, b""))

    with listening(plainly) as port:
        access = ClusterAccess.at(f"https://127.0.0.1:{port}", authorities=certificates.authority)
        failure = send(Door(access, request_timeout=5, clock=SystemClock()))
    assert failure is not None
    assert (failure.result, failure.sent) == ("unsent", False)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_trap_a_handshake_that_is_cut_is_unsent(certificates, how):
    def cuts(sock: socket.socket, over: threading.Event) -> None:
        sock.recv(1 if how == "rst" else 65_536)  # what is left unread makes the close a reset

    with listening(cuts) as port:
        access = ClusterAccess.at(f"https://127.0.0.1:{port}", authorities=certificates.authority)
        failure = send(Door(access, request_timeout=5, clock=SystemClock()))
    assert failure is not None
    assert (failure.result, failure.sent) == ("unsent", False)


@pytest.mark.parametrize(
    "bad", [b"\x17\x03\x03\x00\x20" + b"x" * 32, b"\x15\x03\x03\x00\x02\x02\x28", b"HTTP/1.1 409 No\r\n\r\n"]
)
def test_trap_tls_that_breaks_after_the_request_is_lost_and_made_once(certificates, bad):
    context = certificates.server_context()
    requests = []

    def breaks(sock: socket.socket, over: threading.Event) -> None:
        with contextlib.suppress(OSError):
            safe = context.wrap_socket(sock, server_side=True)
            requests.append(safe.recv(65_536))
            os.write(safe.fileno(), bad)
            over.wait(5)
            safe.close()

    with listening(breaks) as port:
        access = ClusterAccess.at(f"https://127.0.0.1:{port}", authorities=certificates.authority)
        door = Door(access, request_timeout=5, clock=SystemClock())
        for verb in ("get", *WRITES):
            failure = send(door, REQUESTS[verb])
            assert failure is not None
            assert (failure.result, failure.sent) == ("lost", True)
        door.close()
    assert len(requests) == 4


def test_trap_a_client_certificate_that_is_not_accepted_is_never_a_definite_answer(certificates, upstream):
    context = certificates.server_context(client_wanted=True)
    proxy = FaultProxy(upstream, context)
    door = Door(ClusterAccess.at(proxy.url, authorities=certificates.authority), request_timeout=5, clock=SystemClock())
    for _ in range(10):
        failure = send(door)
        assert failure is not None
        assert failure.result == ("lost" if failure.sent else "unsent")
    assert upstream.asked == []
    door.close()
    proxy.close()


# Never re-sent, and no answer of another's.


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("verb", REQUESTS)
def test_trap_redirects_are_not_followed(server, upstream, open_door, verb, status):
    upstream.status, upstream.headers = status, f"Location: {server.url}/elsewhere\r\n"
    got = ask(open_door(server), REQUESTS[verb], Context.with_timeout(5))
    assert (got.result, got.sent) == ("lost", True)
    assert server.requests == 1


@pytest.mark.parametrize("status", [413, 429, 503])
@pytest.mark.parametrize("verb", REQUESTS)
def test_trap_retry_after_is_told_and_not_slept(server, upstream, open_door, verb, status):
    upstream.status, upstream.headers = status, "Retry-After: 3\r\n"
    door = open_door(server)
    if verb == "log":
        failure = door.log("team-a", "a-1", "node", Context.with_timeout(5), operation="output").failure
    else:
        failure = send(door, REQUESTS[verb])
    assert failure is not None
    assert failure.details["retry_after"] == 3
    assert failure.result == ("413" if status == 413 else "lost")
    assert server.requests == 1


@pytest.mark.parametrize("given", ["soon", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "9" * 20])
def test_trap_a_retry_after_that_is_no_number_changes_nothing(plain, upstream, open_door, given):
    upstream.status, upstream.headers = 429, f"Retry-After: {given}\r\n"
    failure = send(open_door(plain))
    assert failure is not None
    assert "retry_after" not in failure.details
    assert failure.details["status"] == 429


@pytest.mark.parametrize("interim", [101, 102, 103])
@pytest.mark.parametrize("verb", REQUESTS)
def test_trap_an_interim_answer_is_none_and_its_connection_is_never_used_again(
    server, upstream, open_door, verb, interim
):
    door = open_door(server)
    server.plan = Plan(prefix=f"HTTP/1.1 {interim} Wait\r\n\r\n".encode())
    got = ask(door, REQUESTS[verb], Context.with_timeout(5))
    assert (got.result, got.sent) == ("lost", True)
    server.plan = Plan()
    assert ask(door, REQUESTS["get"], Context.with_timeout(5)).result == "answer"
    assert len(server.connections) == 2


@pytest.mark.parametrize("verb", REQUESTS)
def test_an_invitation_to_go_on_is_followed_by_the_answer(server, upstream, open_door, verb):
    door = open_door(server)
    server.plan = Plan(prefix=b"HTTP/1.1 100 Continue\r\n\r\n" * 2)
    assert ask(door, REQUESTS[verb], Context.with_timeout(5)).result == "answer"
    server.plan = Plan()
    assert ask(door, REQUESTS[verb], Context.with_timeout(5)).result == "answer"
    assert len(server.connections) == 2


@pytest.mark.parametrize("verb", REQUESTS)
def test_trap_an_answer_sent_twice_is_not_the_next_requests_answer(server, upstream, open_door, verb):
    door = open_door(server)
    server.plan = Plan("twice")
    assert ask(door, REQUESTS[verb], Context.with_timeout(5)).result == "answer"
    server.plan = Plan()
    other = Request("GET", PODS, "team-a", "another")
    reply = door.send(other, Context.with_timeout(5), operation="find")
    assert reply.object is not None
    assert reply.object["metadata"]["name"] == "another"


def test_an_answer_that_belongs_to_another_request_is_none(plain, upstream, open_door):
    upstream.payload = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"another","namespace":"team-a"}}'
    reply = open_door(plain).send(Request("GET", PODS, "team-a", "mine"), Context.with_timeout(5), operation="find")
    assert reply.failure is not None
    assert reply.failure.result == "lost"


@pytest.mark.parametrize("verb", REQUESTS)
def test_an_answer_that_drips_is_read_to_its_end(plain, upstream, open_door, verb):
    upstream.chunked = True
    plain.plan = Plan("drip")
    assert ask(open_door(plain), REQUESTS[verb], Context.with_timeout(5)).result == "answer"


# Connections.


def test_a_connection_is_used_again_by_all_threads(server, open_door):
    door = open_door(server)
    failures = []

    def several() -> None:
        failures.extend(send(door, REQUESTS["get"]) for _ in range(25))

    several()
    assert len(server.connections) == 1
    threads = [threading.Thread(target=several) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(failures) == {None}
    assert len(server.connections) <= 9
    assert server.requests == 225


def test_sixteen_threads_never_get_each_others_answers(server, open_door):
    door = open_door(server)
    wrong: list[str] = []

    def several(who: int) -> None:
        for turn in range(30):
            name = f"pod-{who}-{turn}"
            reply = door.send(Request("GET", PODS, "team-a", name), Context.with_timeout(10), operation="find")
            if reply.object is None or reply.object["metadata"]["name"] != name:
                wrong.append(name)

    threads = [threading.Thread(target=several, args=(who,)) for who in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("verb", REQUESTS)
def test_a_pooled_connection_that_was_closed_costs_one_reconnect_and_no_error(server, open_door, verb):
    door = open_door(server)
    for action in ("fin", "rst"):
        server.plan = plan = Plan(action)  # a whole answer, and then the end
        assert ask(door, REQUESTS[verb], Context.with_timeout(5)).result == "answer"
        assert plan.done.wait(5)
    assert len(server.connections) == 2
    assert server.requests == 2


def test_trap_the_close_that_crosses_the_request_is_lost_for_every_verb(server, open_door):
    door = open_door(server)
    for verb in REQUESTS:
        server.plan = Plan()
        assert ask(door, REQUESTS[verb], Context.with_timeout(5)).result == "answer"
        server.plan = Plan("fin", request_at=1)
        before = server.requests
        got = ask(door, REQUESTS[verb], Context.with_timeout(5))
        assert (got.result, got.sent) == ("lost", True)
        assert server.requests == before


def test_a_server_that_asks_for_the_end_is_obeyed(plain, upstream, open_door):
    upstream.headers = "Connection: close\r\n"
    door = open_door(plain)
    assert send(door, REQUESTS["get"]) is None
    assert send(door, REQUESTS["get"]) is None
    assert len(plain.connections) == 2


def test_a_forked_process_sends_nothing_and_harms_nothing(server, open_door):
    door = open_door(server)
    assert send(door, REQUESTS["get"]) is None
    assert not door.forked
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # the forked process
        said = b"no"
        with contextlib.suppress(BaseException):
            failure = send(door, REQUESTS["get"])
            right = door.forked and failure is not None and not failure.sent and failure.result == "unsent"
            said = b"yes" if right and "fork" in failure.details["message"] else b"no"
            door.close()
        os.write(write, said)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"yes"
    os.close(read)
    os.close(write)
    assert send(door, REQUESTS["get"]) is None
    assert len(server.connections) == 1


# The marker.


class Quiet:
    """A socket that takes what it is given."""

    def __init__(self) -> None:
        self.got = b""

    def settimeout(self, value: float | None, /) -> None:
        pass

    def send(self, data: memoryview, /) -> int:
        self.got += bytes(data[:7])
        return len(data[:7])


def test_trap_an_abandoned_call_can_never_send_later():
    ctx = Context.with_timeout(60)
    call, sock = Call(ctx, 60), Quiet()
    ctx.cancel()
    with pytest.raises(Abandoned):
        call.send(sock, b"a request")
    assert (call.sent, sock.got) == (False, b"")


def test_the_deadline_is_looked_at_in_front_of_the_first_byte():
    call, sock = Call(Context.with_timeout(0.0), 60), Quiet()
    with pytest.raises(Abandoned):
        call.send(sock, b"a request")
    assert (call.sent, sock.got, call.ended) == (False, b"", "deadline")


def test_a_cancellation_and_the_first_byte_never_both_win():
    for _ in range(300):
        ctx = Context.background()
        call, sock = Call(ctx, 60), Quiet()
        barrier = threading.Barrier(2)

        def cancel(ctx=ctx, barrier=barrier):
            barrier.wait()
            ctx.cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        barrier.wait()
        with contextlib.suppress(Abandoned):
            call.send(sock, b"a longer request than one send takes")
        thread.join()
        assert call.sent == bool(sock.got)


def test_a_cancelled_connection_is_shut_down_once_and_not_for_its_next_user():
    ours, theirs = socket.socketpair()
    ctx = Context.background()
    call = Call(ctx, 60)
    call.attach(ours)
    call.detach()
    ctx.cancel()
    theirs.sendall(b"x")
    assert ours.recv(1) == b"x"
    other = Call(Context.background(), 60)
    other.attach(ours)
    other.cancel()
    assert theirs.recv(1) == b""
    late = Call(ctx, 60)
    with pytest.raises(Abandoned):
        late.attach(ours)
    with pytest.raises(Abandoned):
        late.stop_with(lambda: None)
    ours.close()
    theirs.close()


# What is written.


@pytest.mark.parametrize(
    "name",
    ["..", ".", "", "a/b", "a?dryRun=All", "a#x", "a%2f", "A", "-a", "a-", "a b", "a\r\nb", "a" * 254, "ä", "a/status"],
)
def test_trap_a_name_that_is_none_never_enters_a_url(plain, open_door, name):
    door = open_door(plain)
    for request in (
        Request("DELETE", PODS, "ns", name, intent="write", expect="delete"),
        Request("GET", PODS, name, "a"),
        Request("GET", Resource(name or "..", "v1", "", ""), expect="discovery"),
    ):
        failure = send(door, request)
        assert failure is not None
        assert (failure.result, failure.sent) == ("unsent", False)
    assert plain.connections == []


def test_paths_and_queries_are_written_as_the_server_reads_them(plain, upstream, open_door):
    door = open_door(plain)
    send(door, Request("GET", PODS, "ns", "a.b-1", "log", {"labelSelector": "a=b,c in (d)", "follow": True}))
    send(door, Request("GET", NODES, None, "node-1"))
    door.discover("", "v1", Context.with_timeout(5), operation="factory")
    door.discover("batch", "v1", Context.with_timeout(5), operation="factory")
    assert [each.target for each in upstream.asked] == [
        "/api/v1/namespaces/ns/pods/a.b-1/log?labelSelector=a%3Db%2Cc+in+%28d%29&follow=true",
        "/api/v1/nodes/node-1",
        "/api/v1",
        "/apis/batch/v1",
    ]


@pytest.mark.parametrize(
    "body", [{"a": float("nan")}, {"a": [float("inf")]}, {"a": object()}, {"a": 1j}, {"a": {2j: 1}}]
)
def test_trap_a_body_that_json_cannot_say_is_not_sent(plain, open_door, body):
    failure = send(open_door(plain), Request("POST", TRAIN_JOBS, "ns", body=body, intent="write"))
    assert failure is not None
    assert (failure.result, failure.sent) == ("unsent", False)
    assert plain.connections == []


def test_headers_say_what_is_sent(plain, upstream, open_door):
    send(open_door(plain), REQUESTS["patch"])
    asked = upstream.asked[0]
    assert asked.headers["content-type"] == "application/merge-patch+json"
    assert asked.headers["content-length"] == str(len(asked.body))
    assert asked.headers["host"] == f"127.0.0.1:{plain.port}"
    assert asked.headers["user-agent"].startswith("dispatch-kubeflow/")
    assert asked.body == b'{"spec":{"suspend":false}}'


def test_a_server_with_a_path_gets_it_in_front(plain, upstream):
    access = ClusterAccess.at(f"{plain.url}/k8s/clusters/c-1")
    door = Door(access, request_timeout=5, clock=SystemClock())
    send(door, REQUESTS["get"])
    assert upstream.asked[0].target.startswith("/k8s/clusters/c-1/apis/")
    door.close()


def test_a_review_is_a_read_although_it_is_a_post():
    review = Request("POST", ACCESS_REVIEWS, body={"spec": {}}, intent="read")
    assert (review.verb, review.channel, review.named) == ("read", "api", None)


def test_a_failure_becomes_the_error_of_the_tables(plain, open_door):
    plain.plan = Plan("fin", request_at=1)
    failure = send(open_door(plain))
    assert failure is not None
    with pytest.raises(ErrOutcomeUnknown) as raised:
        refuse(failure, book=rulebook(), operation="start", mode="plain", subject="a")
    assert raised.value.row == "request.outcome-unknown"
    assert raised.value.__cause__ is failure.cause
    plain.close()
    unsent = send(open_door(plain))
    assert unsent is not None
    with pytest.raises(ErrUnreachable) as raised_unsent:
        refuse(unsent, book=rulebook(), operation="start", mode="plain", subject="a")
    assert raised_unsent.value.row == "request.unsent"


def test_a_failure_says_what_happened_in_words(plain, open_door):
    failure = send(open_door(plain), ctx=Context.with_timeout(0))
    assert failure is not None
    assert failure.message == "the context's deadline passed before the request"


def test_an_interrupt_passes_and_leaves_nothing_open(certificates, monkeypatch):
    from .left_behind import descriptors
    from .slow import PLACES

    for place in ("silent", "body-stalled", "plugin", "handshake-silent"):
        with PLACES[place][0](certificates) as door:
            before = descriptors()

            def interrupt(self):
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(Call, "left", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    send(door)
            assert descriptors() <= before + 2
            assert door._sender._under_way == set()
