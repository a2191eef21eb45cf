"""What goes on the wire is decided before a connection is looked for: the path, the query, the body, all of it checked.

A name from elsewhere must not become a path: `..` as a name would delete a namespace. So names are checked against
Kubernetes' own rule and escaped as well, and a request that cannot be written exactly is never begun.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from .resources import Resource

Intent = Literal["read", "write"]
Expect = Literal["object", "list", "delete", "log", "discovery"]

_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_VERSION = re.compile(r"v[0-9a-z]{1,62}")
_SUBRESOURCE = re.compile(r"[a-z]{1,63}")
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]+")


class Unwritable(Exception):
    """The request cannot be written as it was meant; nothing of it may be sent."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and what kind of answer it asks for.

    `intent` is what the tables call the verb: reviews and dry runs are reads although they are POSTs. `name` is the
    object's name in the path, or None for a collection (a create, a list).
    """

    method: str
    resource: Resource
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None
    query: Mapping[str, str | int | bool] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    intent: Intent = "read"
    expect: Expect = "object"

    @property
    def verb(self) -> Intent:
        """The fact `verb` of the tables."""
        return self.intent

    @property
    def channel(self) -> Literal["api", "log", "discovery"]:
        """The fact `channel` of the tables."""
        return self.expect if self.expect == "log" or self.expect == "discovery" else "api"  # noqa: PLR1714

    @property
    def named(self) -> str | None:
        """The name the answer must bear: that of the path, or of the object that is created; None if none is known."""
        if self.name is not None or self.method != "POST" or not isinstance(self.body, dict):
            return self.name
        metadata = self.body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return name if isinstance(name, str) and name else None

    @property
    def template(self) -> str:
        """The path with its names left out, for logs and spans."""
        if self.expect == "discovery":
            return _group_version(self.resource)
        return self.resource.path(
            None if self.namespace is None else "{namespace}",
            None if self.name is None else "{name}",
            self.subresource,
        )

    @property
    def subject(self) -> str:
        """The kind and name of what is asked for or written, in words."""
        if self.expect == "discovery":
            return f"the group-version {self.resource.api_version}"
        where = f" in {self.namespace}" if self.namespace is not None else ""
        name = self.named
        if name is None:
            return self.resource.qualified + where
        what = f"{self.resource.kind} {name}{where}"
        return f"{self.subresource} of {what}" if self.subresource is not None else what

    def target(self) -> str:
        """The path and query, escaped. Raises Unwritable for a name that is not one."""
        if self.expect == "discovery":
            if self.resource.group:
                _check(_NAME, "group", self.resource.group)
            _check(_VERSION, "version", self.resource.version)
            return _group_version(self.resource)
        path = _path(self.resource, self.namespace, self.name, self.subresource)
        if not self.query:
            return path
        return path + "?" + urlencode({key: _text(value) for key, value in self.query.items()})

    def payload(self) -> bytes:
        """The body as JSON; empty without one. Raises Unwritable for what JSON cannot say."""
        if self.body is None:
            return b""
        _check(_MEDIA_TYPE, "content type", self.content_type)
        try:
            _require_finite(self.body)
            return msgspec.json.encode(self.body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Unwritable(f"the body cannot be written as JSON: {type(error).__name__}") from error


def _group_version(resource: Resource) -> str:
    return f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"


@lru_cache(maxsize=1024)
def _path(resource: Resource, namespace: str | None, name: str | None, subresource: str | None) -> str:
    if namespace is not None:
        _check(_NAME, "namespace", namespace)
    if name is not None:
        _check(_NAME, "name", name)
    if subresource is not None:
        _check(_SUBRESOURCE, "subresource", subresource)
    return quote(resource.path(namespace, name, subresource), safe="/")


def _check(rule: re.Pattern[str], what: str, value: str) -> None:
    if rule.fullmatch(value) is None:
        raise Unwritable(f"{value[:80]!r} is no Kubernetes {what}")


def _text(value: str | int | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _require_finite(value: Any) -> None:
    # The encoder would write these as null: another object than the one that was meant.
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a finite number")
    if isinstance(value, dict):
        for each in value.values():
            _require_finite(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _require_finite(each)
