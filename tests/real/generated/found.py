"""Sequences that the two clusters once answered differently, shrunk: each is tried again before anything is drawn."""

from __future__ import annotations

from typing import Any

from tests.real.api import MERGE_PATCH, Object

from .steps import APPLY, JSON_PATCH, SORTS, STRATEGIC, Step, put, whole


def _object(plural: str, name: str = "a", **changes: Any) -> Object:
    described = whole(SORTS[plural], name)
    for path, value in changes.items():
        put(described, path.replace("__", "."), value)
    return described


def _create(plural: str, name: str = "a", **changes: Any) -> Step:
    return Step("POST", plural, body=_object(plural, name, **changes))


def _apply(plural: str, named: str = "a", manager: str = "me", **changes: Any) -> Step:
    sort = SORTS[plural]
    described: Object = {"apiVersion": sort.api_version, "kind": sort.kind, "metadata": {"name": named}}
    for path, value in changes.items():
        put(described, path.replace("__", "."), value)
    return Step("PATCH", plural, "a", body=described, content_type=APPLY, query={"fieldManager": manager})


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
    "an apply of nothing, twice": [_apply("configmaps"), _apply("configmaps")],
    "an apply that creates what is being deleted": [
        _apply("configmaps", metadata__deletionTimestamp="2020-01-01T00:00:00Z")
    ],
    "an apply under another name": [_apply("configmaps", named="b")],
    "an apply of another type": [_create("jobsets"), _apply("jobsets", apiVersion="v1")],
    "an apply of a value of another type": [_create("configmaps"), _apply("configmaps", data={"k": 1})],
    "an apply of what no schema has": [_create("trainjobs"), _apply("trainjobs", spec__unknown={"a": 1})],
    "an apply of one item twice": [
        _create("trainjobs"),
        _apply("trainjobs", spec__runtimePatches=[{"manager": "example.com/m"}, {"manager": "example.com/m"}]),
    ],
    "an apply of no labels": [_create("jobs"), _apply("jobs", metadata__labels={})],
    "an apply over a webhook's default": [_create("jobsets"), _apply("jobsets", spec__managedBy="example.com/nobody",
        spec__startupPolicy={"startupPolicyOrder": "InOrder"})],
    "two managers of one value": [
        _create("configmaps"),
        _apply("configmaps", data={"k": "v"}),
        _apply("configmaps", manager="you", data={"k": "w"}),
        _apply("configmaps", manager="you", data={"k": "v"}),
        _apply("configmaps"),
        _apply("configmaps", manager="you"),
    ],
    "a spec that is applied no more": [
        Step("PATCH", "trainingruntimes", "a", body=_object("trainingruntimes"), content_type=APPLY,
             query={"fieldManager": "me"}),
        _apply("trainingruntimes"),
    ],
    "a pod's deadline applied no more": [
        _create("pods"), _apply("pods", spec__activeDeadlineSeconds=10), _apply("pods"),
    ],
    "a job put without its selector": [
        _create("jobs"),
        Step("PUT", "jobs", "a", body=_object("jobs", spec__suspend=False)),
    ],
    "a name and a mistyped field patched": [
        _create("configmaps"), _merge("configmaps", {"metadata": {"name": "b"}, "immutable": "x"}),
    ],
}  # fmt: skip
