"""A proxy between the real client and the embedded cluster that can meddle with one chosen request.

It reads whole requests, so a test can say "the second PATCH of a TrainJob" and have its answer lost, its bytes never
forwarded, another answer given, or something done to the cluster just before or after it.
"""

from __future__ import annotations

import functools
import http.client
import json
import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclass
class Seen:
    """One request as the proxy read it, and what the cluster answered, if it was forwarded."""

    method: str
    path: str
    body: Any = None
    status: int | None = None


@dataclass
class Rule:
    """What to do with the `nth` request (from 1) of a method whose path and query match."""

    method: str
    path: re.Pattern[str]
    nth: int
    times: int
    before: Callable[[Seen], None] | None = None
    after: Callable[[Seen], None] | None = None
    forward: bool = True
    answer: Callable[[], tuple[int, dict[str, str], bytes]] | None = None
    silent: bool = False
    hang: threading.Event | None = None
    count: int = 0
    hit: threading.Event = field(default_factory=threading.Event)

    def matches(self, seen: Seen) -> bool:
        if seen.method != self.method or not self.path.search(seen.path):
            return False
        self.count += 1
        return self.nth <= self.count < self.nth + self.times


class Wire:
    """The proxy: `url` is where the client connects; `seen` is every request that arrived, in order."""

    def __init__(self, upstream: str, ca: str | None = None) -> None:
        self.upstream = urlsplit(upstream)
        self.context = ssl.create_default_context(cadata=ca) if ca else None
        self.seen: list[Seen] = []
        self.rules: list[Rule] = []
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        for rule in self.rules:
            if rule.hang is not None:
                rule.hang.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def on(self, method: str, path: str, *, nth: int = 1, times: int = 1, **what: Any) -> Rule:
        """Meddle with the nth matching request, and with so many in all."""
        rule = Rule(method, re.compile(path), nth, times, **what)
        self.rules.append(rule)
        return rule

    def lose_answer(self, method: str, path: str, **which: Any) -> Rule:
        """The cluster gets it and answers; the client hears nothing."""
        return self.on(method, path, silent=True, **which)

    def lose_request(self, method: str, path: str, **which: Any) -> Rule:
        """The client sends it; the cluster never gets it."""
        return self.on(method, path, silent=True, forward=False, **which)

    def answer(self, method: str, path: str, status: int, body: Any = None, **which: Any) -> Rule:
        """The cluster never gets it; the client is answered so."""
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        kind = {"Content-Type": "application/json"}
        return self.on(method, path, forward=False, answer=lambda: (status, kind, data), **which)

    def refuse(self, method: str, path: str, status: int, reason: str, message: str = "no", **which: Any) -> Rule:
        """The cluster never gets it; the client is answered with a Status."""
        return self.answer(method, path, status, status_body(status, reason, message), **which)

    def hang(self, method: str, path: str, **which: Any) -> Rule:
        """The client sends it and nothing ever comes."""
        return self.on(method, path, silent=True, forward=False, hang=threading.Event(), **which)

    def calls(self) -> list[str]:
        """Method and path (without the query) of every request so far."""
        return [f"{each.method} {urlsplit(each.path).path}" for each in self.seen]

    def rule(self, seen: Seen) -> Rule | None:
        with self.lock:
            self.seen.append(seen)
            found = [rule for rule in self.rules if rule.matches(seen)]
        return found[0] if found else None

    def dial(self, timeout: float | None = 30) -> http.client.HTTPConnection:
        host, port = self.upstream.hostname or "", self.upstream.port
        if self.context is None:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self.context)


class Handler(BaseHTTPRequestHandler):
    """One connection of the client, with one of its own to the cluster."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body go out in two writes

    def __init__(self, wire: Wire, *connection: Any) -> None:
        self.wire = wire
        super().__init__(*connection)

    def setup(self) -> None:
        super().setup()
        self.onward = self.wire.dial()

    def finish(self) -> None:
        self.onward.close()
        super().finish()

    def handle_any(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen = Seen(self.command, self.path, json.loads(data) if data else None)
        rule = self.wire.rule(seen)
        if rule is not None:
            self._meddle(rule, seen, data)
        elif "watch=" in self.path:
            self._stream(seen)
        else:
            self._answer(*self._forward(seen, data))

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any  # noqa: N815 - http.server's names

    def _meddle(self, rule: Rule, seen: Seen, data: bytes) -> None:
        if rule.before is not None:
            rule.before(seen)
        result = self._forward(seen, data) if rule.forward else None
        if rule.after is not None:
            rule.after(seen)
        rule.hit.set()
        if rule.hang is not None:
            rule.hang.wait(30)
        if rule.silent:
            self.close_connection = True
            return
        if rule.answer is not None:
            result = rule.answer()
        assert result is not None
        self._answer(*result)

    def _headers(self) -> dict[str, str]:
        return {key: value for key, value in self.headers.items() if key.lower() not in {"host", "connection"}}

    def _forward(self, seen: Seen, data: bytes) -> tuple[int, dict[str, str], bytes]:
        self.onward.request(seen.method, seen.path, data or None, self._headers())
        response = self.onward.getresponse()
        body = response.read()
        seen.status = response.status
        return response.status, {key: value for key, value in response.getheaders() if key.lower() not in HOP}, body

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if status != 204 and "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, seen: Seen) -> None:
        """A watch: bytes are passed on as they come."""
        connection = self.wire.dial(None)
        self.close_connection = True
        try:
            connection.request(seen.method, seen.path, None, self._headers())
            response = connection.getresponse()
            seen.status = response.status
            self.send_response_only(response.status)
            self.send_header("Content-Type", response.getheader("Content-Type") or "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while piece := response.read1(65536):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            return  # one of the two sides has gone; the other is closed with it
        finally:
            connection.close()

    def log_message(self, *_: Any) -> None:
        return


def status_body(status: int, reason: str, message: str = "no", **details: Any) -> dict[str, Any]:
    """A Status object as an apiserver answers with."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    }
    if details:
        body["details"] = details
    return body
