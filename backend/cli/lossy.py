"""A network that loses an answer at the worst moment: it forwards everything between client and server, and once, when
what it waits for has happened, throws the server's answer away and cuts the connection.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK = 65536


class LossyProxy:
    """A TCP proxy on a loopback port. It sees only what TLS lets it see, so it is told when to lose an answer."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._happened: Callable[[], bool] | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.lost = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, name="proxy", daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            everything = [self._listener, *self._open]
        for each in everything:
            _cut(each)
        for thread in list(self._threads):
            thread.join()
        for each in everything:
            each.close()

    def lose_answer_once(self, happened: Callable[[], bool]) -> None:
        """Throw away the first answer that comes after this has happened."""
        self._happened = happened

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            server = socket.create_connection(self._target)
            with self._lock:
                self._open |= {client, server}
            for source, sink, answers in ((client, server, False), (server, client, True)):
                thread = threading.Thread(target=self._pump, args=(source, sink, answers), name="proxy", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):  # one end is gone, so the other goes too
            while data := source.recv(CHUNK):
                if answers and self._loses():
                    break
                sink.sendall(data)
        _cut(source)
        _cut(sink)

    def _loses(self) -> bool:
        with self._lock:
            if self._happened is None or not self._happened():
                return False
            self._happened = None
        self.lost.set()
        return True


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # cut already
        connection.shutdown(socket.SHUT_RDWR)
