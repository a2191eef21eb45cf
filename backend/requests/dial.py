"""A server may have several addresses, some of them dead: all of them together must fit the bound of one request."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterable

from .call import SLICE, Call
from .resolve import Address

# No address gets less than this many seconds while there are as many left, for a share of a short bound is no try.
_LEAST = 2.0
_UNDER_WAY = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR})


def dial(addresses: list[Address], call: Call, options: Iterable[tuple[int, int, int | bytes]]) -> socket.socket:
    """A connected socket to the first address that answers. Raises OSError or Abandoned; nothing is left open."""
    options = list(options)
    error: OSError = OSError("the name has no addresses")
    for index, address in enumerate(addresses):
        left = call.left()
        share = max(left / (len(addresses) - index), min(_LEAST, left))
        try:
            return _dial(address, call, share, options)
        except OSError as failed:
            error = failed
    raise error


def _dial(address: Address, call: Call, share: float, options: list[tuple[int, int, int | bytes]]) -> socket.socket:
    family, kind, protocol, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        for level, name, value in options:
            sock.setsockopt(level, name, value)
        sock.setblocking(False)
        code = sock.connect_ex(where)
        if code in _UNDER_WAY:
            code = _await(sock, call, share)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        sock.close()
        raise
    return sock


def _await(sock: socket.socket, call: Call, share: float) -> int:
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    until = call.left() - share
    while not poll.poll(max(1, int(min(SLICE, call.left()) * 1000))):
        if call.left() <= until:
            raise TimeoutError(f"no connection to {sock.family.name} address within {share:.3g} s")
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
