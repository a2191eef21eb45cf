"""The ground truth behind the fault proxy: what was committed is known, because this says it.

`Upstream` is anything that turns a whole raw request into a whole raw answer. `Scripted` answers as it is told and
notes each commit; `Behind` passes the request on to a real server on a loopback port, so that the same faults can
stand before any cluster.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, Protocol

GROUP = {"trainjobs": ("trainer.kubeflow.org/v1alpha1", "TrainJob"), "pods": ("v1", "Pod"), "nodes": ("v1", "Node")}


@dataclass(frozen=True)
class Asked:
    """A request as the server got it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @classmethod
    def read(cls, raw: bytes) -> Asked:
        head, _, body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return cls(method, target, headers, body)


class Upstream(Protocol):
    def exchange(self, raw: bytes) -> bytes: ...


@dataclass
class Scripted:
    """Answers `status`, or what the request asks for if that is None; `chunked` or with a length."""

    status: int | None = None
    reason: str = ""
    chunked: bool = False
    headers: str = ""
    commits_anyway: bool = False
    payload: bytes | None = None
    asked: list[Asked] = field(default_factory=list)
    committed: list[Asked] = field(default_factory=list)

    def exchange(self, raw: bytes) -> bytes:
        asked = Asked.read(raw)
        self.asked.append(asked)
        if self.status is None or self.status < 300 or self.commits_anyway:
            self.committed.append(asked)
        status = self.status or (201 if asked.method == "POST" else 200)
        body = self.payload if self.payload is not None else self._body(asked, status)
        return answer(status, body, chunked=self.chunked, headers=self.headers)

    def _body(self, asked: Asked, status: int) -> bytes:
        if status >= 300:
            return json.dumps(status_object(status, self.reason, *_item(asked)), indent=1).encode()
        return right_answer(asked)


def _item(asked: Asked) -> tuple[str, str, str]:
    path = asked.target.partition("?")[0]
    found = re.search(r"/(trainjobs|pods|nodes)(?:/([^/]+))?", path)
    plural, name = (found[1], found[2]) if found else ("", None)
    group = "trainer.kubeflow.org" if plural == "trainjobs" else ""
    return plural, group, name or ""


def right_answer(asked: Asked) -> bytes:
    """What a cluster answers that does as it is asked."""
    path = asked.target.partition("?")[0]
    if path.endswith("/log"):
        return b"one line\nanother line\nthe last\n"
    if path.endswith("/v1alpha1"):
        said = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "trainer.kubeflow.org/v1alpha1"}
        return json.dumps({**said, "resources": []}).encode()
    plural, _, name = _item(asked)
    version, kind = GROUP.get(plural, ("v1", "Unknown"))
    if asked.method == "DELETE":
        return json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}).encode()
    if not name and asked.method == "GET" and plural:
        item = {"metadata": {"name": "a-1", "resourceVersion": "7"}}
        return json.dumps(
            {"apiVersion": version, "kind": f"{kind}List", "metadata": {"resourceVersion": "9"}, "items": [item]}
        ).encode()
    name = name or json.loads(asked.body or b"{}").get("metadata", {}).get("name", "")
    metadata = {"name": name, "namespace": "team-a", "uid": "u-1", "resourceVersion": "8"}
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"suspend": True}}).encode()


def status_object(status: int, reason: str, plural: str, group: str, name: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"{plural} {name!r}: {reason or status}",
        "reason": reason,
        "details": {"name": name, "group": group, "kind": plural},
        "code": status,
    }


def answer(status: int, body: bytes, *, chunked: bool = False, headers: str = "") -> bytes:
    """An answer's bytes."""
    head = f"HTTP/1.1 {status} Phrase\r\nContent-Type: application/json\r\nAudit-Id: 0f-1\r\n{headers}"
    if not chunked:
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    half = len(body) // 2
    parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:]) if part)
    return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + parts + b"0\r\n\r\n"


@dataclass
class Behind:
    """A real server on loopback with TLS, asked over a connection of its own each time."""

    address: tuple[str, int]

    def exchange(self, raw: bytes) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(self.address, 5) as plain, context.wrap_socket(plain) as sock:
            head, _, body = raw.partition(b"\r\n\r\n")
            sock.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
            got = bytearray()
            while piece := sock.recv(65_536):
                got += piece
        return bytes(got)
