"""What cases can be performed on: the real control plane, the embedded cluster, or any server by its address."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .api import Api, Object
from .cluster import Cluster

_NO_TOKEN = "no-token"
_UNKNOWN_TOKEN = "unknown-token"


class NoSuchUser(Exception):
    """This target has no token for a user that a case speaks as."""


class Target(Protocol):
    """A server under examination."""

    @property
    def versions(self) -> Mapping[str, str]:
        """What answered, for the record."""

    @property
    def api(self) -> Api:
        """The administrator's client."""

    def renew(self) -> None:
        """Called before each file of cases: what one left behind should not colour the next, where that can be had."""

    def prepare_user(self, name: str, rules: list[Object]) -> None:
        """Gives a user exactly these cluster-wide rules."""

    def as_user(self, name: str) -> Api:
        """A client for a user, for `no-token`, or for `unknown-token`."""

    def close(self) -> None: ...


def client(api: Api, tokens: Mapping[str, str], name: str) -> Api:
    """The client that a case's `as` names."""
    if name == _NO_TOKEN:
        return api.as_user(None)
    if name == _UNKNOWN_TOKEN:
        return api.as_user("a-token-that-nobody-has")
    if name not in tokens:
        raise NoSuchUser(name)
    return api.as_user(tokens[name])


@dataclass
class RealTarget:
    """The real control plane."""

    cluster: Cluster

    @property
    def versions(self) -> Mapping[str, str]:
        return self.cluster.versions

    @property
    def api(self) -> Api:
        return self.cluster.api

    def renew(self) -> None:
        """Its files of cases keep to namespaces of their own."""

    def prepare_user(self, name: str, rules: list[Object]) -> None:
        self.cluster.revoke(name)
        if rules:
            self.cluster.grant(name, rules)

    def as_user(self, name: str) -> Api:
        return client(self.api, self.cluster.tokens, name)

    def close(self) -> None:
        """It is left running: whoever started it stops it."""


@dataclass
class AddressTarget:
    """Any server, by its address and tokens; users are whatever their tokens may do there."""

    url: str
    tokens: Mapping[str, str]
    authority: Path | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def api(self) -> Api:
        return Api(self.url, self.tokens["admin"], self.authority)

    def renew(self) -> None: ...

    def prepare_user(self, name: str, rules: list[Object]) -> None:
        if name not in self.tokens:
            raise NoSuchUser(name)

    def as_user(self, name: str) -> Api:
        return client(self.api, self.tokens, name)

    def close(self) -> None: ...


class EmbeddedTarget:
    """The project's own embedded cluster, a new one for each file of cases; with Kueue if that is asked for."""

    def __init__(self, *, kueue: bool = False) -> None:
        self._kueue = kueue
        self._stack = ExitStack()
        self._tokens: dict[str, str] = {}
        self.renew()

    def renew(self) -> None:
        from dispatch_kubeflow.backend.embedded import Cluster as Embedded  # the real target must not need it
        from dispatch_kubeflow.backend.embedded import KueueConfiguration

        self.close()
        configuration = KueueConfiguration() if self._kueue else None
        running: AbstractContextManager[Any] = Embedded(nodes=2, kueue=configuration)
        self._cluster = self._stack.enter_context(running)
        self._tokens = {}

    @property
    def versions(self) -> Mapping[str, str]:
        return {"embedded": "this checkout"}

    @property
    def api(self) -> Api:
        if "admin" not in self._tokens:
            everything = [
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]},
            ]
            self._tokens["admin"] = self._cluster.user(f"admin-{uuid.uuid4().hex[:6]}", rules=everything)
        return Api(self._cluster.url, self._tokens["admin"])

    def prepare_user(self, name: str, rules: list[Object]) -> None:
        self._tokens[name] = self._cluster.user(name, rules=rules)

    def as_user(self, name: str) -> Api:
        return client(self.api, self._tokens, name)

    def close(self) -> None:
        self._stack.close()
