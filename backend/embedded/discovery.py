"""What the server says of itself: groups, versions, resources, its own version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.messages import Answer, of_object, of_text
from dispatch_kubeflow.backend.embedded.store import Store

Object = dict[str, Any]

VERSION: Object = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}


def answer(store: Store, path: str) -> Answer | None:
    """The answer to a path that names no resource, or None for an unknown one."""
    steps = [step for step in path.split("/") if step]
    if steps in (["healthz"], ["livez"], ["readyz"]):
        return Answer(200, b"ok", "text/plain; charset=utf-8", [("X-Content-Type-Options", "nosniff")])
    if steps == ["version"]:
        return of_object(VERSION)
    kinds = store.kinds()
    if not steps:
        return of_object({"paths": _paths(kinds)})
    if steps[:2] == ["openapi", "v3"]:
        return _openapi(kinds, "/".join(steps[2:]))
    return _groups_and_versions(kinds, steps)


def _groups_and_versions(kinds: Iterable[Kind], steps: list[str]) -> Answer | None:
    if steps == ["api"]:
        return of_object({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    if steps == ["apis"]:
        groups = [_group(group, kinds) for group in _groups(kinds)]
        return of_object({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    if steps[0] == "api" and len(steps) == 2:
        return _resources([kind for kind in kinds if kind.key[0] == ""], steps[1])
    if steps[0] == "apis" and len(steps) == 2 and steps[1] in _groups(kinds):
        return of_object({"kind": "APIGroup", "apiVersion": "v1", **_group(steps[1], kinds)})
    if steps[0] == "apis" and len(steps) == 3:
        return _resources([kind for kind in kinds if kind.key[0] == steps[1]], f"{steps[1]}/{steps[2]}")
    return None


def _resources(kinds: Iterable[Kind], group_version: str) -> Answer | None:
    served = [kind for kind in kinds if kind.resource.api_version == group_version]
    if not served:
        return None
    entries = [entry for kind in sorted(served, key=lambda item: item.resource.plural) for entry in _entries(kind)]
    return of_object(
        {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}
    )


def _entries(kind: Kind) -> list[Object]:
    resource = kind.resource
    main: Object = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    entries = [main]
    if kind.has_status and kind.verbs != ("create",):
        entries.append(_sub(kind, "status", resource.kind, ["get", "patch", "update"]))
    if resource.plural == "pods":
        entries.append(_sub(kind, "log", resource.kind, ["get"]))
        entries.append({**_sub(kind, "eviction", "Eviction", ["create"]), "group": "policy", "version": "v1"})
        entries.append(_sub(kind, "binding", "Binding", ["create"]))
    if resource.plural == "namespaces":
        entries.append(_sub(kind, "finalize", resource.kind, ["update"]))
    return entries


def _sub(kind: Kind, name: str, shown: str, verbs: list[str]) -> Object:
    return {
        "name": f"{kind.resource.plural}/{name}",
        "singularName": "",
        "namespaced": kind.resource.namespaced,
        "kind": shown,
        "verbs": verbs,
    }


def _groups(kinds: Iterable[Kind]) -> list[str]:
    return list(dict.fromkeys(kind.resource.group for kind in kinds if kind.resource.group))


def _group(group: str, kinds: Iterable[Kind]) -> Object:
    versions = list(dict.fromkeys(kind.resource.version for kind in kinds if kind.resource.group == group))
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _paths(kinds: Iterable[Kind]) -> list[str]:
    paths = {"/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"}
    for kind in kinds:
        if kind.resource.group:
            paths |= {f"/apis/{kind.resource.group}", f"/apis/{kind.resource.api_version}"}
    return sorted(paths)


def _item_path(kind: Kind) -> str:
    resource = kind.resource
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    return (
        f"{root}/namespaces/{{namespace}}/{resource.plural}/{{name}}"
        if resource.namespaced
        else f"{root}/{resource.plural}/{{name}}"
    )


def _item_operations(kind: Kind) -> Object:
    """The one operation by whose parameters a client learns that the server validates fields itself."""
    resource = kind.resource
    if "patch" not in kind.verbs:
        return {}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation", "force")
    ]
    named = {"group": resource.group, "kind": resource.kind, "version": resource.version}
    return {
        "patch": {
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": named,
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
        }
    }


def _openapi(kinds: Iterable[Kind], rest: str) -> Answer | None:
    served = {
        f"apis/{kind.resource.api_version}" if kind.resource.group else f"api/{kind.resource.version}" for kind in kinds
    }
    if not rest:
        return of_object({"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in sorted(served)}})
    if rest not in served:
        return of_text(404, "404 page not found")
    group_version = rest.partition("/")[2]
    schemas = {
        f"{kind.resource.group or 'core'}.{kind.resource.version}.{kind.resource.kind}": {
            **(getattr(kind.schema, "structure", None) or {"type": "object"}),
            "x-kubernetes-group-version-kind": [
                {"group": kind.resource.group, "version": kind.resource.version, "kind": kind.resource.kind}
            ],
        }
        for kind in kinds
        if kind.resource.api_version == group_version
    }
    return of_object(
        {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
            "paths": {
                _item_path(kind): _item_operations(kind) for kind in kinds if kind.resource.api_version == group_version
            },
            "components": {"schemas": schemas},
        }
    )
