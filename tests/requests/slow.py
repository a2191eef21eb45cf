"""Places where a request can hang for ever, one by one: for the tests and the benchmark of deadlines.

Each is a context manager that gives a `Door` whose next request hangs there, and whether it counts as sent then.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from dispatch_kubeflow.backend.requests import ClusterAccess, Door, Trust
from dispatch_kubeflow.backend.requests import connection as connecting
from dispatch_kubeflow.backend.requests.exec_plugin import ExecToken, Plugin
from dispatch_kubeflow.backend.requests.resolve import Resolver
from dispatch_kubeflow.backend.requests.tokens import Credential, Fixed
from dispatch_kubeflow.machine.context import SystemClock

from .certificates import Certificates

Served = Callable[[socket.socket, threading.Event], None]
Place = Callable[[Certificates], AbstractContextManager[Door]]


@contextmanager
def listening(served: Served) -> Iterator[int]:
    """A server on loopback that serves each connection by `served`, which gets an event that ends it; its port."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threads: list[threading.Thread] = []

    def one(sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            served(sock, over)

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threads[:] = [each for each in threads if each.is_alive()]
            thread = threading.Thread(target=one, args=(sock,), daemon=True)
            threads.append(thread)
            thread.start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [accepting, *threads]:
            thread.join(5)


def _door(server: str, certificates: Certificates, **more: object) -> Door:
    access = ClusterAccess(server, Fixed(Credential("Bearer a-token")), Trust(certificates.authority), **more)  # type: ignore[arg-type]
    return Door(access, request_timeout=60, clock=SystemClock())


def _told(*pieces: bytes, every: float | None = None) -> Served:
    """Read something, say the pieces; with `every`, then one more byte at such intervals until the end."""

    def served(sock: socket.socket, over: threading.Event) -> None:
        sock.settimeout(10)
        if not sock.recv(65_536):
            return
        for piece in pieces:
            sock.sendall(piece)
        while not over.wait(every or 0.02):
            if every is not None:
                sock.sendall(b"x")
            elif _gone(sock):
                return

    return served


def _gone(sock: socket.socket) -> bool:
    sock.settimeout(0)
    try:
        return sock.recv(65_536) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False


def _silent(sock: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.02):
        if _gone(sock):
            return


def _endless(sock: socket.socket, over: threading.Event) -> None:
    sock.recv(65_536)
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    sock.settimeout(0.05)
    while not over.is_set():
        sock.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
        time.sleep(0.001)


@contextmanager
def served_by(certificates: Certificates, served: Served, *, tls: bool = False) -> Iterator[Door]:
    with ExitStack() as stack:
        if tls:
            served = _secured(certificates.server_context(), served)
        port = stack.enter_context(listening(served))
        door = _door(f"http{'s' if tls else ''}://127.0.0.1:{port}", certificates)
        stack.callback(door.close)
        yield door


def dripping(certificates: Certificates, *pieces: bytes) -> AbstractContextManager[Door]:
    """An answer that begins with `pieces` and goes on for ever, a byte at a time."""
    return served_by(certificates, _told(*pieces, every=0.01))


def _secured(context: ssl.SSLContext, served: Served) -> Served:
    def secured(sock: socket.socket, over: threading.Event) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as safe:
            served(safe, over)

    return secured


@contextmanager
def name(certificates: Certificates) -> Iterator[Door]:
    """A name server that does not answer."""
    over = threading.Event()

    def hangs(*_: object) -> list[object]:
        over.wait(60)
        return []

    with pytest.MonkeyPatch.context() as patch:
        resolver = Resolver(hangs)
        patch.setattr(connecting, "_RESOLVERS", type("Same", (), {"of_this_process": lambda _: resolver})())
        door = _door("https://cluster.example", certificates)
        yield door
        door.close()
        over.set()


@contextmanager
def dial(certificates: Certificates) -> Iterator[Door]:
    """Three addresses that drop what is sent to them."""
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        port = first.getsockname()[1]
        for host in ("127.0.0.3", "127.0.0.4"):
            stack.enter_context(socket.create_server((host, port), backlog=0))
        for host in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            for _ in range(4):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex((host, port))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", 0)) for last in (2, 3, 4)]
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        resolver = Resolver(lambda *_: found)
        patch.setattr(connecting, "_RESOLVERS", type("Same", (), {"of_this_process": lambda _: resolver})())
        door = _door(f"https://cluster.example:{port}", certificates)
        stack.callback(door.close)
        yield door


def _tunnelled(served: Served) -> Place:
    @contextmanager
    def place(certificates: Certificates) -> Iterator[Door]:
        with listening(served) as port:
            door = _door("https://cluster.example", certificates, proxy=f"http://127.0.0.1:{port}")
            yield door
            door.close()

    return place


@contextmanager
def handshake_dripped(certificates: Certificates) -> Iterator[Door]:
    """TLS that comes a byte at a time."""
    with listening(_secured(certificates.server_context(), _silent)) as port:

        def dripping(sock: socket.socket, over: threading.Event) -> None:
            with socket.create_connection(("127.0.0.1", port)) as behind:
                behind.sendall(sock.recv(65_536))
                behind.settimeout(0.1)
                while not over.is_set() and (byte := behind.recv(1)):
                    sock.sendall(byte)
                    time.sleep(0.01)

        with listening(dripping) as front:
            door = _door(f"https://127.0.0.1:{front}", certificates)
            yield door
            door.close()


@contextmanager
def handshake_silent(certificates: Certificates) -> Iterator[Door]:
    """A server that accepts and never answers the handshake."""
    with listening(_silent) as port:
        door = _door(f"https://127.0.0.1:{port}", certificates)
        yield door
        door.close()


@contextmanager
def plugin(certificates: Certificates) -> Iterator[Door]:
    """A credential plugin that hangs, with a child that holds on to its output."""
    hangs = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); time.sleep(60)"
    source = ExecToken(Plugin(sys.executable, "client.authentication.k8s.io/v1", ("-S", "-c", hangs)), SystemClock())
    access = ClusterAccess("https://127.0.0.1:1", source, Trust(certificates.authority))
    door = Door(access, request_timeout=60, clock=SystemClock())
    yield door
    door.close()


def _place(served: Served, *, tls: bool = False) -> Place:
    return lambda certificates: served_by(certificates, served, tls=tls)


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

# Where it hangs, and whether the request counts as sent then.
PLACES: dict[str, tuple[Place, bool]] = {
    "name": (name, False),
    "dial": (dial, False),
    "proxy-silent": (_tunnelled(_silent), False),
    "proxy-dripped": (_tunnelled(_told(b"HTTP/1.1 200 OK\r\nX: ", every=0.005)), False),
    "handshake-silent": (handshake_silent, False),
    "handshake-dripped": (handshake_dripped, False),
    "plugin": (plugin, False),
    "silent": (_place(_silent), True),
    "silent-tls": (_place(_silent, tls=True), True),
    "head-dripped": (_place(_told(b"HTTP/1.1 200 OK\r\nX: ", every=0.005)), True),
    "head-dripped-tls": (_place(_told(b"HTTP/1.1 200 OK\r\nX: ", every=0.005), tls=True), True),
    "body-dripped": (_place(_told(_HEAD + b"Content-Length: 100000\r\n\r\n", every=0.005)), True),
    "body-dripped-tls": (_place(_told(_HEAD + b"Content-Length: 100000\r\n\r\n", every=0.005), tls=True), True),
    "body-stalled": (_place(_told(_HEAD + b'Content-Length: 100\r\n\r\n{"a":')), True),
    "body-endless": (_place(_endless), True),
    "body-endless-tls": (_place(_endless, tls=True), True),
}
