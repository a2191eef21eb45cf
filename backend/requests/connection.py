"""urllib3 connects, tunnels and speaks TLS well, but its waits are one socket operation long: these end in time.

The classes here are urllib3's connections and pools with each wait of `connect` bounded by the call it serves: the
name's look-up, all addresses together, the proxy's CONNECT, the TLS handshake with the proxy and with the server. They
send no request themselves: a connection that leaves here has not carried a byte of one.
"""

from __future__ import annotations

import importlib
import os
import socket
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from .access import ClusterAccess, Trust, proxy_authorization, without_user
from .call import Call
from .dial import dial
from .resolve import Resolver

_LONGEST_TUNNEL_ANSWER = 8_192
# Idle connections kept. More may be in use at once; urllib3 would log a warning for each that it does not keep.
_KEPT = 64


class TunnelRefused(ConnectionError):
    """The proxy answered CONNECT with something else than 200: nothing reached the server."""


class SpokeFirst(ConnectionError):
    """The peer sent bytes, or closed, before anything was asked of it: no answer on this connection can be believed."""


class _Resolvers:
    """One resolver a process: a Backend that is made again and again must not hang up four threads each time."""

    def __init__(self) -> None:
        self._made = (0, Resolver())

    def of_this_process(self) -> Resolver:
        # A forked child has none of its parent's threads, so it starts anew.
        process, resolver = self._made
        if process != os.getpid():
            resolver = Resolver()
            self._made = (os.getpid(), resolver)
        return resolver


_RESOLVERS = _Resolvers()


class _Bounded:
    """A socket whose every operation ends with the call: for TLS inside the TLS of a proxy, which loops over them."""

    def __init__(self, sock: ssl.SSLSocket, owner: _Steps) -> None:
        self._sock = sock
        self._owner = owner

    def _arm(self) -> None:
        if self._owner.call is not None:
            self._sock.settimeout(self._owner.call.left())

    def recv(self, size: int = 1024, flags: int = 0) -> bytes:
        self._arm()
        return self._sock.recv(size, flags)

    def send(self, data: memoryview) -> int:
        self._arm()
        return self._sock.send(data)

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self.send(view) :]

    def settimeout(self, value: float | None) -> None:
        self._sock.settimeout(value)

    def gettimeout(self) -> float | None:
        return self._sock.gettimeout()

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()


class _Steps(HTTPConnection):
    """The bounded steps of a connection. `call` is whom it serves now; `killer` a second handle on its socket."""

    call: Call | None = None
    killer: socket.socket | None = None
    sock: Any  # a plain socket, a TLS one, or TLS in TLS

    def serve(self, call: Call) -> None:
        """From here on this connection works for `call`, which can shut it down. Raises Abandoned if it has ended."""
        self.call = call
        if self.killer is not None:
            call.attach(self.killer)

    def release(self) -> None:
        """This connection works for nobody now."""
        if self.call is not None:
            self.call.detach()
            self.call = None

    def _new_conn(self) -> socket.socket:
        call = self._caller()
        addresses = _RESOLVERS.of_this_process().resolve(self._dns_host, self.port, call)
        sock = dial(addresses, call, self.socket_options or ())
        # A handle of its own: TLS takes the descriptor over, and a descriptor closed in one thread may be another
        # connection's by the time a cancellation shuts it down.
        self.killer = sock.dup()
        try:
            call.attach(self.killer)
            sock.settimeout(call.left())
        except BaseException:
            sock.close()
            raise
        return sock

    def _tunnel(self) -> None:
        call = self._caller()
        host = f"[{self._tunnel_host}]" if ":" in (self._tunnel_host or "") else self._tunnel_host
        lines = [f"CONNECT {host}:{self._tunnel_port} HTTP/1.1", f"Host: {host}:{self._tunnel_port}"]
        headers: dict[str, str] = self._tunnel_headers  # type: ignore[attr-defined] # http.client's, set by set_tunnel
        lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "host"]
        request = memoryview(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        while request:
            self.sock.settimeout(call.left())
            request = request[self.sock.send(request) :]
        _tunnel_answer(self.sock, call)
        self.sock.settimeout(call.left())  # for the handshake that follows

    def _caller(self) -> Call:
        if self.call is None:
            raise RuntimeError("a connection is made for a call only")
        return self.call

    def close(self) -> None:
        """Close both handles; a call that still works here can no longer shut it down."""
        self.release()
        try:
            super().close()
        finally:
            if self.killer is not None:
                self.killer.close()
                self.killer = None


def _tunnel_answer(sock: Any, call: Call) -> None:
    answer = bytearray()
    while b"\r\n\r\n" not in answer:
        sock.settimeout(call.left())
        # One byte at a time past the start: what follows the empty line belongs to TLS.
        piece = sock.recv(1)
        if not piece or len(answer) > _LONGEST_TUNNEL_ANSWER:
            raise TunnelRefused("the proxy's answer to CONNECT is cut or endless")
        answer += piece
    status = answer.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or status[1] != b"200":
        raise TunnelRefused(f"the proxy answered CONNECT with {bytes(b' '.join(status[:2])).decode('latin-1')!r}")


class PlainConnection(_Steps):
    """A bounded connection without TLS."""


class SecureConnection(_Steps, HTTPSConnection):
    """A bounded connection with TLS."""

    def _connect_tls_proxy(self, hostname: str, sock: socket.socket) -> ssl.SSLSocket:
        secured = super()._connect_tls_proxy(hostname, sock)
        return _Bounded(secured, self)  # type: ignore[return-value] # urllib3 uses no more of it than this has


class PlainPool(HTTPConnectionPool):
    """urllib3's pool of bounded connections."""

    ConnectionCls = PlainConnection


class SecurePool(HTTPSConnectionPool):
    """urllib3's pool of bounded connections with TLS."""

    ConnectionCls = SecureConnection


class Connections:
    """The connections to one cluster, shared by all threads."""

    monotonic = staticmethod(time.monotonic)
    """The time by which they wait: sockets know the machine's own alone."""

    def __init__(self, pool: HTTPConnectionPool, prefix: str) -> None:
        self._pool = pool
        self.prefix = prefix
        """What stands before the path of a request: a forwarding proxy must be told the server."""

    def take(self, call: Call) -> _Steps:
        """A connection that is ready for the first byte of a request, for `call` alone.

        One that its peer closed while it was idle is replaced. Raises whatever connecting raised, or Abandoned; then
        nothing was sent and nothing is left open.
        """
        # urllib3 gives out connections through urlopen alone, which re-sends; its pool underneath is sound.
        connection: Any = self._pool._get_conn()  # noqa: SLF001
        try:
            connection.serve(call)
            if connection.sock is None:
                self._connect(connection)
                _require_silence(connection.sock)
        except BaseException:
            self.discard(connection)
            raise
        return connection  # type: ignore[no-any-return] # the pools here make no others

    def give_back(self, connection: _Steps) -> None:
        """Keep the connection for a later request: its answer was read to the end."""
        connection.release()
        self._pool._put_conn(connection)  # noqa: SLF001

    def discard(self, connection: _Steps) -> None:
        """Close the connection: it can never be used again."""
        try:
            connection.close()
        finally:
            self._pool._put_conn(None)  # noqa: SLF001

    def close(self) -> None:
        """Close what is idle; what is in use closes when it is given back."""
        self._pool.close()

    def _connect(self, connection: Any) -> None:
        if self._pool.proxy is not None and isinstance(self._pool, HTTPSConnectionPool):
            self._pool._prepare_proxy(connection)  # noqa: SLF001
        else:
            connection.connect()


def connections(access: ClusterAccess, certificate: tuple[str, str] | None) -> Connections:
    """The pool that the official client makes for this access, with bounded connections in it."""
    # The official client is loaded with a configuration only: it takes three times as long as all else here.
    client: Any = importlib.import_module("kubernetes.client")
    rest: Any = importlib.import_module("kubernetes.client.rest")
    server = urlsplit(access.server)
    proxy = access.proxy or ""  # None would make the client look in the environment, which has been done
    configuration = client.Configuration(
        host=access.server,
        retries=False,
        verify_ssl=access.trust.verify,
        tls_server_name=access.trust.server_name,
        connection_pool_maxsize=_KEPT,
        proxy=without_user(proxy) if proxy else "",
        no_proxy="",
        proxy_headers=proxy_authorization(proxy) if proxy else None,
        proxy_ssl_context=_proxy_context(access.trust) if proxy.startswith("https") else None,
    )
    configuration.keep_alive = True
    manager = rest.RESTClientObject(configuration).pool_manager
    manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
    if server.scheme == "https":
        # Loaded once, when the files are known to be good, and not for each connection.
        manager.connection_pool_kw["ssl_context"] = access.trust.context(certificate)
    pool = manager.connection_from_host(server.hostname, server.port, server.scheme)
    forwarded = bool(proxy) and server.scheme == "http"
    return Connections(pool, f"http://{server.netloc}" if forwarded else "")


def _proxy_context(trust: Trust) -> ssl.SSLContext:
    context = Trust(trust.authorities, verify=trust.verify).context()
    if trust.verify and trust.authorities is not None:
        context.load_default_certs()  # a proxy may have a public certificate, or one of the cluster's authority
    return context


def _require_silence(sock: Any) -> None:
    if not isinstance(sock, socket.socket):
        return  # TLS in TLS cannot look without waiting
    sock.settimeout(0)
    try:
        sock.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return
    raise SpokeFirst("the peer closed the connection, or spoke, before it was asked anything")
