"""A proxy between the real client and the embedded cluster that can meddle with one chosen request.

It reads whole requests, so a test can say "the second PATCH of a TrainJob" and have its answer lost, its bytes never
forwarded, another answer given, or something done to the cluster just before or after it.
"""

from __future__ import annotations

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
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
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

    def _rule(self, seen: Seen) -> Rule | None:
        with self.lock:
            self.seen.append(seen)
            found = [rule for rule in self.rules if rule.matches(seen)]
        return found[0] if found else None

    def _dial(self, timeout: float | None = 30) -> http.client.HTTPConnection:
        host, port = self.upstream.hostname or "", self.upstream.port
        if self.context is None:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        return http.client.HTTPSConnection(host, port, timeout=timeout, context=self.context)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # headers and body go out in two writes

            def setup(self) -> None:
                super().setup()
                self.forward = wire._dial()

            def finish(self) -> None:
                self.forward.close()
                super().finish()

            def _forward(
                self, seen: Seen, headers: dict[str, str], data: bytes
            ) -> tuple[int, dict[str, str], bytes]:
                self.forward.request(seen.method, seen.path, data or None, headers)
                response = self.forward.getresponse()
                body = response.read()
                return response.status, {k: v for k, v in response.getheaders() if k.lower() not in HOP}, body

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                data = self.rfile.read(length)
                seen = Seen(self.command, self.path, json.loads(data) if data else None)
                rule = wire._rule(seen)
                if rule is None and "watch=" in self.path:
                    wire._stream(self, seen, data)
                    return
                if rule is not None and rule.before is not None:
                    rule.before(seen)
                result: tuple[int, dict[str, str], bytes] | None = None
                if rule is None or rule.forward:
                    headers = {k: v for k, v in self.headers.items() if k.lower() not in {"host", "connection"}}
                    result = self._forward(seen, headers, data)
                    seen.status = result[0]
                if rule is not None and rule.after is not None:
                    rule.after(seen)
                if rule is not None:
                    rule.hit.set()
                    if rule.hang is not None:
                        rule.hang.wait(30)
                    if rule.silent:
                        self.close_connection = True
                        return
                    if rule.answer is not None:
                        result = rule.answer()
                assert result is not None
                self._send(*result)

            def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response_only(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                if status != 204 and "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any

            def log_message(self, *_: Any) -> None:
                return

        return Handler

    def _stream(self, handler: BaseHTTPRequestHandler, seen: Seen, data: bytes) -> None:
        """A watch: bytes are passed on as they come."""
        headers = {k: v for k, v in handler.headers.items() if k.lower() not in {"host", "connection"}}
        connection = self._dial(None)
        handler.close_connection = True
        try:
            connection.request(seen.method, seen.path, data or None, headers)
            response = connection.getresponse()
            seen.status = response.status
            handler.send_response_only(response.status)
            handler.send_header("Content-Type", response.getheader("Content-Type") or "application/json")
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            while piece := response.read1(65536):
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                handler.wfile.flush()
            handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            return  # one of the two sides has gone; the other is closed with it
        finally:
            connection.close()


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
