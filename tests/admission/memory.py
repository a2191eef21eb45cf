"""A door to an embedded cluster without a socket: the request layer is the real one, its bytes never leave the process.

What happens to the nth request is the test's to say: the controller dies before it, or after it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dispatch_kubeflow.backend.embedded import Cluster
from dispatch_kubeflow.backend.embedded.messages import Answer, Request
from dispatch_kubeflow.backend.requests import Door
from dispatch_kubeflow.backend.requests.tokens import Credential


class Crash(BaseException):
    """The process that made the request is gone."""


class Memory:
    """What a Door needs of a cluster's access; `requests` are the method and path of each that was begun."""

    host = "memory"
    server = "https://memory"
    base = ""
    prefix = ""
    headers: Mapping[str, str] = {}

    def __init__(self, cluster: Cluster, token: str) -> None:
        self.cluster = cluster
        self.token = token
        self.source = self
        self.monotonic = cluster.clock.monotonic
        self.requests: list[str] = []
        self.before: Callable[[int], None] = lambda _: None
        self.after: Callable[[int], None] = lambda _: None

    def door(self) -> Door:
        return Door(self, request_timeout=30, clock=self.cluster.clock)  # type: ignore[arg-type] # as much as it asks of one

    def credential(self, call: Any) -> Credential:
        call.left()
        return Credential(f"Bearer {self.token}")

    def refused(self) -> None:
        return

    def connect(self, _pair: Any = None) -> Memory:
        return self

    def take(self, call: Any) -> Connection:
        return Connection(self, call)

    def give_back(self, connection: Connection) -> None:
        connection.call.detach()

    discard = give_back

    def close(self) -> None:
        return


class Connection:
    """One request and the bytes of its answer; connection and socket in one."""

    def __init__(self, memory: Memory, call: Any) -> None:
        self.memory = memory
        self.call = call
        self.sock = self
        self.answer = bytearray()

    def settimeout(self, _seconds: float | None) -> None:
        return

    def send(self, data: memoryview) -> int:
        memory = self.memory
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        number = len(memory.requests)
        memory.requests.append(f"{method} {target}")
        memory.before(number)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        headers.pop("accept-encoding", None)
        self.answer += written(memory.cluster.apiserver.handle(Request(method, target, headers, body)))
        memory.after(number)
        return len(data)

    def recv(self, size: int) -> bytes:
        piece = bytes(self.answer[:size])
        del self.answer[:size]
        return piece


def written(answer: Answer) -> bytes:
    """An answer as it comes over a wire."""
    head = f"HTTP/1.1 {answer.status} Some\r\nContent-Type: {answer.content_type}\r\n"
    return f"{head}Content-Length: {len(answer.body)}\r\n\r\n".encode() + answer.body
