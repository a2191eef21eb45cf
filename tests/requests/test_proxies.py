"""Behind a proxy, what is sent and what is not must be told as exactly as without one."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import contextmanager

import pytest

from dispatch_kubeflow.backend.requests import ClusterAccess, Door, Trust
from dispatch_kubeflow.backend.requests.connection import TunnelRefused
from dispatch_kubeflow.backend.requests.tokens import Credential, Fixed
from dispatch_kubeflow.machine.context import Context, SystemClock

from .proxy import FaultProxy, Plan
from .slow import _secured, listening
from .test_faults import REQUESTS, ask


def tunnelling(heads: list[bytes]):
    """A proxy that does as CONNECT says."""

    def served(sock: socket.socket, over: threading.Event) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(1)
        heads.append(head)
        host, _, port = head.split(b" ")[1].decode().rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), 5) as behind:
            behind.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(b"HTTP/1.1 200 Connection established\r\nVia: a proxy\r\n\r\n")
            back = threading.Thread(target=copy, args=(behind, sock), daemon=True)
            back.start()
            copy(sock, behind)
            back.join(5)

    return served


def copy(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65_536):
            to.sendall(piece)
    for each in (source, to):
        with contextlib.suppress(OSError):
            socket.socket.shutdown(each, socket.SHUT_RDWR)


@contextmanager
def door_through(served, server: str, certificates, *, tls: bool = False, user: str = ""):
    if tls:
        served = _secured(certificates.server_context(), served)
    with listening(served) as port:
        proxy = f"http{'s' if tls else ''}://{user}127.0.0.1:{port}"
        access = ClusterAccess(server, Fixed(Credential("Bearer t")), Trust(certificates.authority), proxy)
        door = Door(access, request_timeout=5, clock=SystemClock())
        yield door
        door.close()


@pytest.fixture
def secure(upstream, certificates):
    proxy = FaultProxy(upstream, certificates.server_context())
    yield proxy
    proxy.close()


@pytest.mark.parametrize("tls", [False, True], ids=["http-proxy", "https-proxy"])
def test_tls_goes_through_connect(secure, certificates, tls):
    heads: list[bytes] = []
    with door_through(tunnelling(heads), secure.url, certificates, tls=tls, user="me:pa%24s@") as door:
        for verb, request in REQUESTS.items():
            assert ask(door, request, Context.with_timeout(5)).result == "answer", verb
    assert len(heads) == 1
    assert heads[0].startswith(f"CONNECT 127.0.0.1:{secure.port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic bWU6cGEkcw==\r\n" in heads[0].replace(
        b"proxy-authorization", b"Proxy-Authorization"
    )
    assert b"Bearer" not in heads[0]
    assert all(b"roxy-" not in each.received for each in secure.connections)


@pytest.mark.parametrize("tls", [False, True], ids=["http-proxy", "https-proxy"])
@pytest.mark.parametrize("action", ["fin", "rst"])
@pytest.mark.parametrize("verb", REQUESTS)
def test_trap_a_tunnelled_request_that_is_cut_is_lost_and_made_once(secure, upstream, certificates, verb, action, tls):
    with door_through(tunnelling([]), secure.url, certificates, tls=tls) as door:
        secure.plan = Plan(action, answer_at=0)
        got = ask(door, REQUESTS[verb], Context.with_timeout(5))
    assert (got.result, got.sent) == ("lost", True)
    assert secure.requests == 1


@pytest.mark.parametrize("verb", REQUESTS)
def test_through_a_tunnel_a_deadline_and_a_cancellation_are_kept(secure, certificates, verb):
    for tls in (False, True):
        with door_through(tunnelling([]), secure.url, certificates, tls=tls) as door:
            ctx = Context.with_timeout(5)
            secure.plan = Plan("stall", answer_at=20, on_stall=ctx.cancel)
            assert ask(door, REQUESTS[verb], ctx).result == "lost"
            assert ask(door, REQUESTS[verb], Context.with_timeout(0.05)).result in {"lost", "context-deadline"}


REFUSALS = {
    "407": b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
    "502": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
    "503": b"HTTP/1.0 503 No\r\n\r\n",
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "garbage": b"garbage\r\n\r\n",
    "one word": b"HTTP/1.1\r\n\r\n",
    "cut": b"HTTP/1.1 200 OK\r\nX",
    "nothing": b"",
    "endless": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    "409": b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("how", REFUSALS)
@pytest.mark.parametrize("verb", REQUESTS)
def test_trap_a_connect_that_is_refused_is_unsent_whatever_its_status(secure, certificates, verb, how):
    def refuses(sock: socket.socket, over: threading.Event) -> None:
        sock.recv(65_536)
        sock.sendall(REFUSALS[how])

    with door_through(refuses, secure.url, certificates) as door:
        got = ask(door, REQUESTS[verb], Context.with_timeout(5))
        failure = door.send(REQUESTS["get"], Context.with_timeout(5), operation="find").failure
    assert (got.result, got.sent) == ("unsent", False)
    assert secure.connections == []
    assert failure is not None
    assert how in {"cut", "nothing", "endless"} or isinstance(failure.cause, TunnelRefused)


def test_trap_a_proxy_that_cannot_be_reached_is_unsent(secure, certificates):
    with door_through(lambda *_: None, secure.url, certificates) as door:
        pass
    got = ask(
        Door(door._sender._cluster, request_timeout=5, clock=SystemClock()), REQUESTS["create"], Context.with_timeout(5)
    )
    assert (got.result, got.sent) == ("unsent", False)


def test_a_proxy_with_tls_is_verified(secure, certificates):
    stranger = certificates.server_context(stranger=True)

    def served(sock: socket.socket, over: threading.Event) -> None:
        with contextlib.suppress(OSError):
            stranger.wrap_socket(sock, server_side=True)

    with listening(served) as port:
        access = ClusterAccess(
            secure.url, Fixed(Credential()), Trust(certificates.authority), f"https://127.0.0.1:{port}"
        )
        got = ask(Door(access, request_timeout=5, clock=SystemClock()), REQUESTS["create"], Context.with_timeout(5))
    assert (got.result, got.sent) == ("unsent", False)


def forwarding(heads: list[bytes], behind: FaultProxy, *, cut: bool = False):
    """A forwarding proxy: it is told the whole URL."""

    def served(sock: socket.socket, over: threading.Event) -> None:
        head = sock.recv(65_536)
        heads.append(head)
        if cut:
            return
        with socket.create_connection(("127.0.0.1", behind.port), 5) as to:
            to.sendall(head.replace(behind.url.encode(), b"", 1))
            copy(to, sock)

    return served


def test_a_plain_server_is_asked_through_a_forwarding_proxy(plain, certificates):
    heads: list[bytes] = []
    plain.plan = Plan("fin")
    with door_through(forwarding(heads, plain), plain.url, certificates) as door:
        assert ask(door, REQUESTS["get"], Context.with_timeout(5)).result == "answer"
    assert heads[0].startswith(f"GET {plain.url}/apis/".encode())


def test_trap_a_forwarding_proxy_that_cuts_leaves_it_unknown(plain, certificates):
    heads: list[bytes] = []
    with door_through(forwarding(heads, plain, cut=True), plain.url, certificates) as door:
        for verb in ("create", "patch", "delete", "get"):
            got = ask(door, REQUESTS[verb], Context.with_timeout(5))
            assert (got.result, got.sent) == ("lost", True)
    assert len(heads) == 4


def test_trap_a_502_of_a_forwarding_proxy_is_no_definite_answer(plain, upstream, certificates):
    upstream.status = 502
    plain.plan = Plan("fin")
    with door_through(forwarding([], plain), plain.url, certificates) as door:
        got = ask(door, REQUESTS["create"], Context.with_timeout(5))
    assert (got.result, got.sent) == ("lost", True)


def test_an_address_of_the_sixth_version_is_written_in_brackets(certificates):
    heads: list[bytes] = []

    def served(sock: socket.socket, over: threading.Event) -> None:
        heads.append(sock.recv(65_536))

    with door_through(served, "https://[::1]:6443", certificates) as door:
        ask(door, REQUESTS["get"], Context.with_timeout(5))
    assert heads[0].startswith(b"CONNECT [::1]:6443 HTTP/1.1\r\nHost: [::1]:6443\r\n")
