from __future__ import annotations

import pytest

from dispatch_kubeflow.backend.requests import ClusterAccess, Door
from dispatch_kubeflow.machine.context import SystemClock

from .certificates import Certificates, make
from .proxy import FaultProxy
from .upstream import Scripted


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def upstream() -> Scripted:
    return Scripted()


@pytest.fixture(params=["plain", "tls"])
def server(request, upstream, certificates):
    """A fault proxy before the scripted upstream, plain and with TLS."""
    proxy = FaultProxy(upstream, certificates.server_context() if request.param == "tls" else None)
    yield proxy
    proxy.close()


@pytest.fixture
def plain(upstream):
    """A fault proxy without TLS, where TLS would change nothing."""
    proxy = FaultProxy(upstream)
    yield proxy
    proxy.close()


@pytest.fixture
def open_door(certificates):
    """Doors to a fault proxy, closed at the end."""
    doors = []

    def opened(proxy: FaultProxy, *, timeout: float = 5.0, token: str | None = "a-token") -> Door:
        access = ClusterAccess.at(proxy.url, token=token, authorities=certificates.authority)
        door = Door(access, request_timeout=timeout, clock=SystemClock())
        doors.append(door)
        return door

    yield opened
    for door in doors:
        door.close()
