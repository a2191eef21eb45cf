"""What the server says of itself: groups, versions, resources, its own version."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Any

from dispatch_kubeflow.backend.embedded.history import encode
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.messages import Answer, of_object
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


_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""In the order in which a custom resource's are told."""


def _storage_hash(kind: Kind) -> str:
    """What tells one way of storing a kind from another: a hash of group, version and kind."""
    resource = kind.resource
    named = f"{resource.group}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(named.encode()).digest()[:8]).decode()


_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def answer(store: Store, path: str, accept: str = "") -> Answer | None:
    """The answer to a path that names no resource, or None for an unknown one."""
    steps = [step for step in path.split("/") if step]
    if steps in (["api"], ["apis"]) and accept.partition(",")[0].replace(" ", "") == _AGGREGATED:
        return Answer(200, encode(_aggregated(store.kinds(), core=steps == ["api"])), _AGGREGATED)
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
    version = {"apiVersion": "v1"} if "/" in group_version else {}
    return of_object({"kind": "APIResourceList", **version, "groupVersion": group_version, "resources": entries})


def _entries(kind: Kind) -> list[Object]:
    resource = kind.resource
    main: Object = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(_CUSTOM_VERBS) if kind.custom else list(kind.verbs),
        **({"storageVersionHash": _storage_hash(kind)} if kind.verbs != ("create",) else {}),
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


def _aggregated(kinds: Iterable[Kind], *, core: bool) -> Object:
    """All groups with all their resources at once, as kubectl and newer clients ask for them."""
    groups = [""] if core else _groups(kinds)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {"metadata": {"name": group} if group else {}, "versions": _aggregated_versions(group, kinds)}
            for group in groups
        ],
    }


def _aggregated_versions(group: str, kinds: Iterable[Kind]) -> list[Object]:
    served = sorted((kind for kind in kinds if kind.key[0] == group), key=lambda kind: kind.resource.plural)
    versions = dict.fromkeys(kind.resource.version for kind in served)
    return [
        {
            "version": version,
            "resources": [_described(kind) for kind in served if kind.resource.version == version],
            "freshness": "Current",
        }
        for version in versions
    ]


def _described(kind: Kind) -> Object:
    """A resource as the aggregated form has it. Kubernetes' own kinds say neither group nor version of theirs."""
    main, *subresources = _entries(kind)
    home = (kind.resource.group, kind.resource.version) if kind.custom else ("", "")

    def response(entry: Object) -> Object:
        group, version = entry.get("group", home[0]), entry.get("version", home[1])
        return {"group": group, "version": version, "kind": entry["kind"]}

    return {
        "resource": main["name"],
        "responseKind": response(main),
        "scope": "Namespaced" if main["namespaced"] else "Cluster",
        "singularResource": main["singularName"],
        "verbs": main["verbs"],
        **{key: main[key] for key in ("shortNames", "categories") if key in main},
        **(
            {
                "subresources": [
                    {
                        "subresource": entry["name"].partition("/")[2],
                        "responseKind": response(entry),
                        "verbs": entry["verbs"],
                    }
                    for entry in subresources
                ]
            }
            if subresources
            else {}
        ),
    }


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
        paths = {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in sorted(served)}
        # The real one leaves the type of this document to Go's guess.
        return Answer(200, encode({"paths": paths}), "text/plain; charset=utf-8")
    if rest not in served:
        return Answer(404, b"", "")
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
