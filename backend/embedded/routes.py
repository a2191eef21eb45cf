"""Which resource, verb and object a request is about, read from its path as the apiserver reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, urlsplit

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Route:
    """A request's target. `verb` is Kubernetes'; `resource` is empty for a path that names none."""

    path: str
    query: Mapping[str, str]
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@lru_cache(maxsize=1024)
def route(method: str, target: str) -> Route:
    """Read a method and a request target."""
    parts = urlsplit(target)
    path = unquote(parts.path)
    query: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        # The first of several wins, as in Go.
        query.setdefault(key, value)
    verb = _VERBS.get(method, "")
    steps = [step for step in path.split("/") if step]
    if steps[:1] == ["api"] and len(steps) > 2:
        group, version, rest = "", steps[1], steps[2:]
    elif steps[:1] == ["apis"] and len(steps) > 3:
        group, version, rest = steps[1], steps[2], steps[3:]
    else:
        return Route(path, query, method.lower())
    namespace, within = "", False
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        within = len(rest) > 2 and rest[2] not in ("status", "finalize")
        if within:
            rest = rest[2:]
    resource = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    if not name and verb == "get":
        verb = "watch" if is_true(query.get("watch")) else "list"
    elif not name and verb == "delete":
        verb = "deletecollection"
    if resource == "namespaces" and not within:
        namespace = name
    return Route(path, query, verb, group, version, resource, namespace, name, "/".join(rest[2:]))


def is_true(text: str | None) -> bool:
    """Whether a query's flag is set; one without a value is, as in Go's decoder."""
    return text is not None and text.lower() not in ("false", "0")
