"""The embedded apiserver on a loopback port: TLS, a thread a connection, streams as long-lived as their clients."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import ssl
import struct
import threading
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

from dispatch_kubeflow.backend.embedded import wire
from dispatch_kubeflow.backend.embedded.access import User
from dispatch_kubeflow.backend.embedded.apiserver import Apiserver
from dispatch_kubeflow.backend.embedded.certificates import Authority
from dispatch_kubeflow.backend.embedded.messages import Answer, Stream

_GONE = (OSError, ValueError)
_LOOK_EVERY = 0.25


class Server:
    """Serves an `Apiserver` until stopped; a context manager.

    `stop` ends it as SIGTERM ends a real one: new connections are refused, requests under way are answered, open
    watches get their clean end. `kill` ends it as SIGKILL does: every connection is reset where it stands. After either
    it can be started again on the same port.
    """

    def __init__(self, apiserver: Apiserver, *, host: str = "127.0.0.1", authority: Authority | None = None) -> None:
        self.apiserver = apiserver
        self.authority = authority or Authority()
        self._host = host
        self._port = 0
        self._context = self.authority.context()
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._connections: set[_Connection] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    @property
    def port(self) -> int:
        """The port, which stays the same over a restart."""
        return self._port

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"https://{self._host}:{self._port}"

    def kubeconfig(self, token: str, *, namespace: str = "default", user: str = "user") -> dict[str, Any]:
        """A kubeconfig, as data, for a user's token."""
        authority = base64.b64encode(self.authority.certificate).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "embedded", "cluster": {"server": self.url, "certificate-authority-data": authority}}
            ],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [
                {"name": "embedded", "context": {"cluster": "embedded", "user": user, "namespace": namespace}}
            ],
            "current-context": "embedded",
        }

    def start(self) -> Self:
        """Listen and answer."""
        self._stopping.clear()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self._host, self._port))
        listener.listen(128)
        self._port = listener.getsockname()[1]
        self._listener = listener
        self._thread = threading.Thread(target=self._accept, args=(listener,), name="embedded-apiserver", daemon=True)
        self._thread.start()
        return self

    def stop(self, grace: float = 5.0) -> None:
        """End in order, at most `grace` seconds for what is under way."""
        self._close_listener()
        with self._lock:
            left = list(self._connections)
        for connection in left:
            connection.finish()
        for connection in left:
            connection.join(grace)
        self._reset()

    def kill(self) -> None:
        """End at once, in mid-answer."""
        # Cut first: a stream that only saw the server stop would take its leave properly.
        with self._lock:
            for connection in self._connections:
                connection.reset()
        self._close_listener()
        self._reset()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def forget(self, connection: _Connection) -> None:
        """A connection has ended."""
        with self._lock:
            self._connections.discard(connection)

    @property
    def stopping(self) -> bool:
        """Whether no new work is taken on."""
        return self._stopping.is_set()

    def _close_listener(self) -> None:
        self._stopping.set()
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with contextlib.suppress(OSError):
            # Closing alone would leave the thread in accept.
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        if self._thread is not None:
            self._thread.join()

    def _reset(self) -> None:
        with self._lock:
            left = list(self._connections)
        for connection in left:
            connection.reset()
        for connection in left:
            connection.join(5.0)

    def _accept(self, listener: socket.socket) -> None:
        while not self.stopping:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            connection = _Connection(self, sock, self._context)
            with self._lock:
                self._connections.add(connection)
            connection.start()


class _Connection:
    """One client's connection and the thread that answers it."""

    def __init__(self, server: Server, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._server = server
        self._raw = sock
        self._context = context
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._cut = False
        self._thread = threading.Thread(target=self._run, name="embedded-connection", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def wake(self) -> None:
        """Look at the stream again."""
        with contextlib.suppress(OSError):
            # Full means that it is awake already; closed, that nobody needs to be.
            self._waker.send(b"x")

    def finish(self) -> None:
        """Answer what is under way and close; a connection that waits for a request closes at once."""
        self.wake()
        with contextlib.suppress(OSError):
            _stop_reading(self._raw)

    def reset(self) -> None:
        """Cut the connection where it stands; its own thread closes it, which with a linger of 0 is a reset."""
        self._cut = True
        with contextlib.suppress(OSError):
            self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.socket.shutdown(self._raw, socket.SHUT_RDWR)
        self.wake()

    def _run(self) -> None:
        try:
            self._raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._context.wrap_socket(self._raw, server_side=True) as sock:
                self._raw = sock
                self._converse(sock)
        except _GONE:
            # The client left, or was cut off: there is nobody to tell.
            return
        finally:
            self._waker.close()
            self._woken.close()
            self._raw.close()
            self._server.forget(self)

    def _converse(self, sock: ssl.SSLSocket) -> None:
        # The socket stays open as long as a file of it does.
        with cast("BinaryIO", sock.makefile("rb")) as source:
            self._answer_all(sock, source)

    def _answer_all(self, sock: ssl.SSLSocket, source: BinaryIO) -> None:
        certified = _certified(sock)
        while not self._server.stopping:
            try:
                head = wire.read_head(source)
                if head is None:
                    return
                if head.expects_continue:
                    sock.sendall(wire.CONTINUE)
                body = wire.read_body(source, head)
            except wire.MalformedError:
                sock.sendall(wire.MALFORMED)
                return
            answer = self._server.apiserver.handle(wire.request(head, body, certified))
            keeps = head.keeps and not self._server.stopping
            self._send(sock, head.method, answer, keeps=keeps)
            if not keeps:
                return

    def _send(self, sock: ssl.SSLSocket, method: str, answer: Answer, *, keeps: bool) -> None:
        head = wire.head_of(answer, keeps=keeps)
        if method == "HEAD":
            sock.sendall(head)
        elif answer.stream is not None:
            sock.sendall(head)
            self._serve(sock, answer.stream)
        elif answer.chunks is not None:
            sock.sendall(head)
            for piece in answer.chunks:
                sock.sendall(wire.chunk([piece]))
            sock.sendall(wire.LAST_CHUNK)
        else:
            sock.sendall(head + answer.body)

    def _serve(self, sock: ssl.SSLSocket, stream: Stream) -> None:
        stream.listen(self.wake)
        try:
            while True:
                if self._cut:
                    return
                sock.sendall(wire.chunk(stream.take()))
                if stream.ended or self._server.stopping:
                    sock.sendall(wire.LAST_CHUNK)
                    return
                if not self._rest(sock, stream):
                    return
        finally:
            stream.close()

    def _rest(self, sock: ssl.SSLSocket, stream: Stream) -> bool:
        """Wait until there may be something to send; False when the client has left."""
        due = stream.due()
        clock = self._server.apiserver.store.clock
        # A clock that a test moves cannot interrupt a wait on sockets, so it is looked at again and again.
        timeout = _LOOK_EVERY if due is None else min(max(due - clock.monotonic(), 0.0), _LOOK_EVERY)
        readable, _, _ = select.select([sock, self._woken], [], [], timeout)
        if self._woken in readable:
            self._woken.recv(4096)
        return sock not in readable or self._server.stopping or _is_there(sock)


def _stop_reading(sock: socket.socket) -> None:
    # A TLS socket's own shutdown would drop its TLS, and what is sent after it would go out in the clear.
    socket.socket.shutdown(sock, socket.SHUT_RD)


def _is_there(sock: ssl.SSLSocket) -> bool:
    sock.setblocking(False)
    try:
        # A client has nothing to say while it watches: anything but an incomplete record is its end.
        return bool(sock.recv(1))
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return True
    finally:
        sock.setblocking(True)


def _certified(sock: ssl.SSLSocket) -> User | None:
    subject: Any = (sock.getpeercert() or {}).get("subject")
    if not subject:
        return None
    fields = [pair for entry in subject for pair in entry]
    name = next((value for key, value in fields if key == "commonName"), "")
    groups = {value for key, value in fields if key == "organizationName"}
    return User(name, frozenset({"system:authenticated", *groups}))
