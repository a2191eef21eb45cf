"""Sequences that the two clusters once answered differently, shrunk: each is tried again before anything is drawn."""

from __future__ import annotations

from typing import Any

from tests.real.api import MERGE_PATCH, Object

from .steps import JSON_PATCH, SORTS, STRATEGIC, Step, put, whole


def _object(plural: str, name: str = "a", **changes: Any) -> Object:
    described = whole(SORTS[plural], name)
    for path, value in changes.items():
        put(described, path.replace("__", "."), value)
    return described


def _create(plural: str, name: str = "a", **changes: Any) -> Step:
    return Step("POST", plural, body=_object(plural, name, **changes))


def _merge(kind: str, change: Object) -> Step:
    return Step("PATCH", kind, "a", body=change, content_type=MERGE_PATCH)


def _nameless(plural: str, **changes: Any) -> Object:
    described = _object(plural, **changes)
    del described["metadata"]["name"]
    return described


_NULL_SELECTOR = {"labelSelector": "a=(", "resourceVersionMatch": "Exact"}

FOUND: dict[str, list[Step]] = {
    "a selector that cannot be read comes before what options forbid": [Step("GET", "pods", query=_NULL_SELECTOR)],
    "a put without a name": [Step("PUT", "trainjobs", "a", body=_nameless("trainjobs"))],
    "a put of what is absent and cannot be read": [
        Step("PUT", "configmaps", "a", body=_object("configmaps", immutable="x"))
    ],
    "a put of another kind without a version": [
        _create("trainingruntimes"),
        Step("PUT", "trainingruntimes", "a", body=_object("trainingruntimes", kind="ConfigMap")),
    ],
    "a put without a kind and with bad options": [
        Step("PUT", "jobsets", "a", body=_object("jobsets", kind=""), query={"fieldManager": "x" * 129})
    ],
    "a config map's null": [_create("configmaps", data__k=None)],
    "a config map's flag that is text": [_create("configmaps", immutable="x")],
    "a config map without a name": [Step("POST", "configmaps", body=_nameless("configmaps", data__k=None))],
    "a config map's empty data": [_create("configmaps", data={}), _merge("configmaps", {"data": {"k": None}})],
    "a config map has no generation": [_create("configmaps"), _merge("configmaps", {"metadata": {"generation": 7}})],
    "a field that a built-in kind does not have": [
        _create("pods", metadata__unknown="x", unknown=1),
        _merge("pods", {"metadata": {"unknown": "x"}}),
    ],
    "a built-in kind patched into another": [_create("pods"), _merge("pods", {"kind": "Nonsense"})],
    "a built-in kind's version patched": [_create("jobs"), _merge("jobs", {"apiVersion": "nonsense/v1"})],
    "an empty uid": [_create("configmaps"), _merge("configmaps", {"metadata": {"uid": ""}})],
    "a finalizer without a domain, of a built-in kind": [
        _create("configmaps"),
        _merge("configmaps", {"metadata": {"finalizers": ["not-qualified"]}}),
    ],
    "a replacement of nothing": [
        _create("configmaps"),
        Step("PATCH", "configmaps", "a", body=[{"op": "replace", "path": "/data", "value": {"k": "v"}}],
             content_type=JSON_PATCH),
    ],
    "a test for null where nothing could be": [
        _create("configmaps"),
        Step("PATCH", "configmaps", "a", body=[{"op": "test", "path": "/data/k", "value": None}],
             content_type=JSON_PATCH),
    ],
    "a job without a name": [Step("POST", "jobs", body=_nameless("jobs"))],
    "a job without labels": [_create("jobs", metadata__labels=None)],
    "a job patched strategically": [
        _create("jobs"),
        Step("PATCH", "jobs", "a", body={"spec": {"suspend": True}}, content_type=STRATEGIC),
    ],
    "a job set is completed when it is created and never later": [
        _create("jobsets"),
        Step("PUT", "jobsets", "a", body=_object("jobsets", metadata__resourceVersion="$rv")),
    ],
    "a job set whose replicated jobs are text": [
        _create("jobsets", spec__replicatedJobs="x"),
        _create("jobsets"),
        _merge("jobsets", {"spec": {"replicatedJobs": "x"}}),
    ],
    "a job set's coordinator that is absent": [_create("jobsets", spec__coordinator={"replicatedJob": "absent"})],
    "a job set's restarts that are text": [
        _create("jobsets", spec__failurePolicy={"maxRestarts": "x"}),
        _create("jobsets"),
        _merge("jobsets", {"spec": {"failurePolicy": {"maxRestarts": "x"}}}),
    ],
    "a job set's startup policy that says nothing": [_create("jobsets", spec__startupPolicy={})],
    "a job set's success policy that says nothing": [_create("jobsets", spec__successPolicy={})],
    "a job set's coordinator without completions": [_create("jobsets", spec__coordinator={"replicatedJob": "node"})],
    "a job set whose spec is taken away": [_create("jobsets"), _merge("jobsets", {"spec": None})],
    "an immutable config map": [
        _create("configmaps", data={"k": "v"}, immutable=True),
        _merge("configmaps", {"data": {"k": "w"}}),
        _merge("configmaps", {"immutable": False}),
        _merge("configmaps", {"metadata": {"labels": {"a": "b"}}}),
    ],
    "a dry run of a create with a version": [
        Step("POST", "trainingruntimes", body=_object("trainingruntimes", metadata__resourceVersion="1"),
             query={"dryRun": "All"})
    ],
    "a strategic patch of a list without its merge key": [
        _create("pods"),
        Step("PATCH", "pods", "a", content_type=STRATEGIC,
             body={"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}]}}),
    ],
    "a strategic patch of the kind": [
        _create("configmaps"),
        Step("PATCH", "configmaps", "a", body={"apiVersion": "nonsense/v1"}, content_type=STRATEGIC),
    ],
    "a version in a create of what exists": [
        _create("configmaps"),
        _create("configmaps", metadata__resourceVersion="x"),
    ],
    "a job set's manager without a domain": [_create("jobsets", spec__managedBy="nonsense")],
    "a job's uid patched": [_create("jobs"), _merge("jobs", {"metadata": {"uid": "another"}})],
    "a job set's subdomain that is no name": [_create("jobsets", spec__network={"subdomain": "Not Valid"})],
}  # fmt: skip
