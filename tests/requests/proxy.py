"""A server that goes wrong at any byte one names, and keeps a record of every byte it got: the judge of these tests.

A `FaultProxy` listens on loopback, plain or with TLS, and stands before an `Upstream`. What it does with the next
request is a `Plan`: where in the request, or in the answer, it does what.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from .upstream import Upstream

Action = Literal["none", "fin", "rst", "stall", "drip", "garble", "twice"]


@dataclass(frozen=True)
class Plan:
    """What goes wrong. `request_at`: after so many bytes of the request; `answer_at`: after so many of the answer.

    `answer` is sent instead of the upstream's; `prefix` in front of it; with `early`, after `request_at` bytes and
    without asking the upstream. `accepted`: before anything was read. `on_stall` is called when it stalls.
    """

    action: Action = "none"
    accepted: bool = False
    request_at: int | None = None
    answer_at: int | None = None
    answer: bytes | None = None
    prefix: bytes = b""
    early: bool = False
    on_stall: Callable[[], None] | None = field(default=None, compare=False)
    done: threading.Event = field(default_factory=threading.Event, compare=False)


@dataclass
class Connection:
    """The record of one connection: every byte of requests received, how many whole ones, every byte sent."""

    received: bytearray = field(default_factory=bytearray)
    requests: int = 0
    sent: int = 0


class FaultProxy:
    """Listens until closed; one thread a connection."""

    def __init__(self, upstream: Upstream, tls: ssl.SSLContext | None = None) -> None:
        self.upstream = upstream
        self.plan = Plan()
        self.connections: list[Connection] = []
        self._tls = tls
        self._open: set[socket.socket] = set()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def received(self) -> int:
        """Bytes of requests that were received, in all."""
        return sum(len(each.received) for each in self.connections)

    @property
    def requests(self) -> int:
        """Whole requests that were received, in all."""
        return sum(each.requests for each in self.connections)

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()

    def _serve(self, raw: socket.socket) -> None:
        record = Connection()
        self.connections.append(record)
        sock = raw
        plan: Plan | None = None
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(raw, server_side=True)
                self._open.discard(raw)
                self._open.add(sock)
            plan = self.plan if self.plan.accepted else None
            if plan is not None:
                self._act(sock, record, plan)
                return
            while (plan := self._one(sock, record)) is None:
                pass
        except (OSError, ValueError):
            return  # the client went away, as it may
        finally:
            self._open.discard(sock)
            sock.close()
            if plan is not None:
                plan.done.set()

    def _one(self, sock: socket.socket, record: Connection) -> Plan | None:
        """Serve one request; the plan that ended the connection, None if it goes on."""
        request = bytearray()
        while True:
            plan = self.plan
            if plan.request_at is not None and request and len(request) >= plan.request_at:
                if plan.early and plan.answer is not None:
                    sock.sendall(plan.answer)
                    self._drain(sock, record)
                    return plan
                self._act(sock, record, plan)
                return plan
            if _whole(request):
                break
            most = 65_536 if plan.request_at is None or not request else max(1, plan.request_at - len(request))
            if plan.request_at is not None and not request:
                most = max(1, plan.request_at)
            piece = sock.recv(most)
            if not piece:
                return plan
            request += piece
            record.received += piece
        record.requests += 1
        answer = plan.prefix + (plan.answer if plan.answer is not None else self.upstream.exchange(bytes(request)))
        return self._answer(sock, record, answer, plan)

    def _answer(self, sock: socket.socket, record: Connection, answer: bytes, plan: Plan) -> Plan | None:
        at = len(answer) if plan.answer_at is None else plan.answer_at
        if plan.action == "drip":
            for byte in answer:
                sock.sendall(bytes([byte]))
            return None
        if plan.action == "twice":
            sock.sendall(answer + answer)
            return None
        if plan.action == "garble":
            sock.sendall(answer[:at] + b"\0" + answer[at + 1 :])
            self._finish(sock, record, plan)
            return plan
        sock.sendall(answer[:at])
        record.sent += at
        if plan.action == "none":
            return None
        self._act(sock, record, plan)
        return plan

    def _act(self, sock: socket.socket, record: Connection, plan: Plan) -> None:
        match plan.action:
            case "fin":
                self._finish(sock, record, plan)
            case "rst":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            case _:
                if plan.on_stall is not None:
                    plan.on_stall()
                self._drain(sock, record)

    def _finish(self, sock: socket.socket, record: Connection, plan: Plan) -> None:
        if isinstance(sock, ssl.SSLSocket):
            # Half a close: the peer sees the end, and what it still sends is noted.
            socket.socket.shutdown(sock, socket.SHUT_WR)
        else:
            sock.shutdown(socket.SHUT_WR)
        plan.done.set()
        self._drain(sock, record)

    def _drain(self, sock: socket.socket, record: Connection) -> None:
        while piece := sock.recv(65_536):
            record.received += piece


def _whole(request: bytearray) -> bool:
    head, found, body = request.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return True
