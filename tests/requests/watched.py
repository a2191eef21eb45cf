"""A little cluster whose lists page and whose watches break as a test says, with every change on record."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from dispatch_kubeflow.backend.requests import ClusterAccess, Door
from dispatch_kubeflow.machine.context import SystemClock

from .proxy import _whole
from .slow import listening
from .upstream import Asked, answer, status_object

VERSION, KIND = "trainer.kubeflow.org/v1alpha1", "TrainJob"


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""


class Seen(msgspec.Struct, frozen=True):
    """What the tests keep of an object."""

    metadata: Metadata


Stream = Callable[["Little", socket.socket, int], None]


@dataclass
class Little:
    """Objects by name, the log of changes, and what happens to the next requests.

    `answers`: whole raw answers given instead, one a request. `streams`: how the next watches behave, one each; when
    none is left they are faithful.
    """

    page: int = 3
    objects: dict[str, int] = field(default_factory=dict)
    log: list[tuple[int, str, str]] = field(default_factory=list)
    version: int = 10
    asked: list[Asked] = field(default_factory=list)
    answers: deque[bytes | None] = field(default_factory=deque)
    streams: deque[Stream] = field(default_factory=deque)
    changed: threading.Condition = field(default_factory=threading.Condition)
    over: threading.Event | None = None

    def change(self, kind: str, name: str) -> int:
        with self.changed:
            self.version += 1
            if kind == "DELETED":
                del self.objects[name]
            else:
                self.objects[name] = self.version
            self.log.append((self.version, kind, name))
            self.changed.notify_all()
            return self.version

    def serve(self, sock: socket.socket, over: threading.Event) -> None:
        self.over = over
        while True:
            request = bytearray()
            while not _whole(request):
                piece = sock.recv(65_536)
                if not piece:
                    return
                request += piece
            asked = Asked.read(bytes(request))
            self.asked.append(asked)
            query = {key: values[0] for key, values in parse_qs(urlsplit(asked.target).query).items()}
            scripted = self.answers.popleft() if self.answers else None
            if scripted is not None:
                sock.sendall(scripted)
            elif "watch" in query:
                stream = self.streams.popleft() if self.streams else faithful
                sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                since = query["resourceVersion"]
                stream(self, sock, int(since) if since.isdigit() else self.version)
                return
            else:
                sock.sendall(self._listed(query))

    def _listed(self, query: dict[str, str]) -> bytes:
        with self.changed:
            version, names = self.version, sorted(self.objects)
        start = int(query.get("continue", "0"))
        items = [{"metadata": {"name": name, "resourceVersion": str(self.objects[name])}} for name in names]
        page = items[start : start + self.page]
        metadata: dict[str, str] = {"resourceVersion": str(version)}
        if start + self.page < len(items):
            metadata["continue"] = str(start + self.page)
        body = {"apiVersion": VERSION, "kind": f"{KIND}List", "metadata": metadata, "items": page}
        return answer(200, json.dumps(body).encode())

    def since(self, version: int) -> list[tuple[int, str, str]]:
        return [each for each in self.log if each[0] > version]


def event(change: tuple[int, str, str]) -> bytes:
    version, kind, name = change
    metadata = {"name": name, "resourceVersion": str(version)}
    return (
        json.dumps({"type": kind, "object": {"apiVersion": VERSION, "kind": KIND, "metadata": metadata}}).encode()
        + b"\n"
    )


def bookmark(version: int) -> bytes:
    return event((version, "BOOKMARK", ""))


def error(code: int, reason: str = "") -> bytes:
    status = status_object(code, reason, "trainjobs", "trainer.kubeflow.org", "")
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


END = b"0\r\n\r\n"


def faithful(little: Little, sock: socket.socket, since: int) -> None:
    """Every change from `since` on, until the server's end."""
    sock.settimeout(0.01)
    while little.over is not None and not little.over.is_set():
        for change in little.since(since):
            sock.sendall(chunk(event(change)))
            since = change[0]
        with little.changed:
            if not little.since(since):
                little.changed.wait(0.02)
        try:
            if sock.recv(1) == b"":
                return
        except TimeoutError:
            continue


def saying(*pieces: bytes) -> Stream:
    """Just these bytes, and the end of the connection."""

    def stream(little: Little, sock: socket.socket, since: int) -> None:
        for piece in pieces:
            sock.sendall(piece)

    return stream


def some(count: int, then: bytes) -> Stream:
    """The next changes, `count` at most, then these bytes and the end of the connection."""

    def stream(little: Little, sock: socket.socket, since: int) -> None:
        with little.changed:
            little.changed.wait_for(lambda: bool(little.since(since)), 0.05)
        for change in little.since(since)[:count]:
            sock.sendall(chunk(event(change)))
        sock.sendall(then)

    return stream


@contextmanager
def door_to(little: Little, *, timeout: float = 5.0) -> Iterator[Door]:
    with listening(little.serve) as port:
        door = Door(ClusterAccess.at(f"http://127.0.0.1:{port}"), request_timeout=timeout, clock=SystemClock())
        yield door
        door.close()


def raw(status: int, body: Any = b"") -> bytes:
    return answer(status, body if isinstance(body, bytes) else json.dumps(body).encode())


def refused(status: int, reason: str = "") -> bytes:
    return raw(status, status_object(status, reason, "trainjobs", "trainer.kubeflow.org", ""))
