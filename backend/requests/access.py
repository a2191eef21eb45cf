"""How a cluster is reached, read once and proved usable at once: a bad key file is the configuration's fault, not a
request's.

The official loader would find out at the first request, say it as an SSL error of that request, and leave copies of the
keys in temporary files. A `ClusterAccess` has its certificates loaded and its proxy chosen when it is made.
"""

from __future__ import annotations

import importlib
import ipaddress
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment

from dispatch_kubeflow.machine.marked import is_unicode

from .tokens import Credential, Fixed, TokenSource, basic, bearer

if TYPE_CHECKING:
    from .connection import Connections


class AccessProblem(Exception):
    """The configuration cannot be used: `key` is the setting, `value` its value, `rule` what is wrong with it."""

    def __init__(self, key: str, value: str, rule: str) -> None:
        super().__init__(key, value, rule)
        self.key = key
        self.value = value
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.key}: {self.rule}"


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom TLS believes and what it shows: PEM certificates to verify by (None: the system's), and our own pair."""

    authorities: str | None = None
    verify: bool = True
    server_name: str | None = None
    certificate: tuple[str, str] | None = None

    def context(self, certificate: tuple[str, str] | None = None) -> ssl.SSLContext:
        """A TLS context. Raises ssl.SSLError, OSError or ValueError for certificates that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.authorities is None:
            context.load_default_certs()
        else:
            # Bundles carry comments in any language; the certificates themselves are ASCII.
            context.load_verify_locations(cadata=self.authorities.encode("ascii", "ignore").decode("ascii"))
        pair = certificate or self.certificate
        if pair is not None:
            _show(context, *pair)
        return context

    def __repr__(self) -> str:
        shown = self.certificate is not None
        return f"Trust(verify={self.verify}, server_name={self.server_name!r}, certificate={shown})"


def _show(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # The ssl module reads keys from files alone; these live for the length of the call, readable by us only.
    with tempfile.TemporaryDirectory(prefix="dispatch-kubeflow-") as folder:
        pair = Path(folder, "certificate"), Path(folder, "key")
        for path, text in zip(pair, (certificate, key), strict=True):
            path.touch(0o600)
            path.write_text(text, "utf-8")
        context.load_cert_chain(*pair, password=_no_password)


def _no_password() -> str:
    raise ValueError("the client key is encrypted, and there is nobody to ask for its password")


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """A cluster's address, its TLS, its proxy and the source of its tokens.

    Made by `kubeconfig.load`, or by `at` where everything is known.
    """

    server: str
    source: TokenSource = field(repr=False)
    trust: Trust = field(default_factory=Trust)
    proxy: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _server(self.server)
        if self.proxy is not None:
            _proxy(self.proxy)

    @classmethod
    def at(
        cls, server: str, *, token: str | None = None, authorities: str | None = None, proxy: str | None = None
    ) -> ClusterAccess:
        """Access to `server` (a URL) with a fixed token, or deliberately without one. Raises AccessProblem."""
        credential = Credential(None if token is None else bearer(token, "the token given"))
        return cls(server.rstrip("/"), Fixed(credential), Trust(authorities), proxy or environment_proxy(server))

    @property
    def host(self) -> str:
        """The Host header's value."""
        return urlsplit(self.server).netloc

    @property
    def base(self) -> str:
        """The path before every request's own, without a closing slash."""
        return urlsplit(self.server).path.rstrip("/")

    def connect(self, certificate: tuple[str, str] | None = None) -> Connections:
        """A pool of connections, made by the official client, with `certificate` if one is given."""
        from .connection import connections  # noqa: PLC0415 - the official client is loaded with a configuration only

        return connections(self, certificate)


def _server(url: str) -> SplitResult:
    parts = _split("server", url)
    if parts.query or parts.fragment or parts.username is not None:
        raise AccessProblem("server", url.split("?", maxsplit=1)[0], "must be a URL of a host and at most a path")
    return parts


def _proxy(url: str) -> SplitResult:
    return _split("proxy-url", url)


def _split(key: str, url: str) -> SplitResult:
    shown = url.rsplit("@", 1)[-1]  # what stands before it may be a password
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise AccessProblem(key, shown, f"is not a URL: {error}") from error
    if not usable or not is_unicode(url) or any(character <= " " or character == "\x7f" for character in url):
        raise AccessProblem(key, shown, "must be a URL that begins with http:// or https:// and names a host")
    return parts


def environment_proxy(server: str) -> str | None:
    """The proxy the environment has for `server`; never one for loopback. Raises AccessProblem for one of no use."""
    parts = _server(server)
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _loopback(parts.hostname or "") or _excepted(server, proxies.get("no", "")):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    _proxy(proxy)
    return proxy


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost" or host.rstrip(".").lower().endswith(".localhost")


def _excepted(server: str, no_proxy: str) -> bool:
    if not no_proxy:
        return False
    # The official client is loaded with a configuration only: it takes three times as long as all else here.
    client: Any = importlib.import_module("kubernetes.client.rest")
    return bool(client.should_bypass_proxies(server, no_proxy))


def proxy_authorization(proxy: str) -> dict[str, str]:
    """The header that a proxy with a user in its URL asks for."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    return {"Proxy-Authorization": basic(unquote(parts.username), unquote(parts.password or ""))}


def without_user(proxy: str) -> str:
    """The proxy's URL without user and password."""
    parts = urlsplit(proxy)
    return parts._replace(netloc=parts.netloc.rsplit("@", 1)[-1]).geturl()
