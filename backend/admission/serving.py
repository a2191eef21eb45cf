"""The three pages that a cluster asks of the controller: whether it lives, whether it is ready, and its metrics."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from .controller import Controller
from .metrics import CONTENT_TYPE, Metrics

PLAIN = "text/plain; charset=utf-8"


class Pages:
    """`/healthz`, `/readyz` and `/metrics` on one port; port 0 takes a free one. A context manager."""

    def __init__(self, controller: Controller, metrics: Metrics, *, host: str, port: int) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # seconds for a client to say what it wants

            def do_GET(self) -> None:
                status, kind, body = _page(self.path.partition("?")[0], controller, metrics)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="pages", daemon=True
        )

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _page(path: str, controller: Controller, metrics: Metrics) -> tuple[int, str, bytes]:
    match path:
        case "/healthz":
            return _said(controller.healthy, "alive", "a thread has died or hangs")
        case "/readyz":
            return _said(controller.ready, "ready", "not everything has been seen yet")
        case "/metrics":
            return 200, CONTENT_TYPE, metrics.text(controller)
        case _:
            return 404, PLAIN, b"there are /healthz, /readyz and /metrics\n"


def _said(good: bool, yes: str, no: str) -> tuple[int, str, bytes]:
    return (200 if good else 503), PLAIN, f"{yes if good else no}\n".encode()
