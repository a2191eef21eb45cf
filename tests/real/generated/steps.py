"""What is drawn: short sequences of requests about a few names of a few kinds, most of them nearly right.

Of Jobs and pods, which the adapter reads and deletes, specs are left alone. Every object says that it is managed by
nobody, so that no controller's writes mix with the requests'; what controllers do is compared by traces. A string that
begins with `$` stands for something each cluster answers for itself: `$rv` and `$uid` the newest version and uid of the
step's object, `$old` the first version that was seen of it.

Server-side apply, which only the admission controller uses, is drawn with `DISPATCH_DRAW_APPLY=1`: applied pods with a
deletionTimestamp of their own still disagree.
"""

from __future__ import annotations

import copy
import os
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.real.api import JSON, MERGE_PATCH, Object

JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_APPLIES = bool(os.environ.get("DISPATCH_DRAW_APPLY"))
_ABSENT = object()
_POD_SPEC: Object = {
    "restartPolicy": "Never",
    "schedulerName": "nobody",
    "containers": [{"name": "node", "image": "i"}],
    # What an apiserver adds by its flags and by its volume plugins is not in question.
    "automountServiceAccountToken": False,
    "tolerations": [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ],
}


@dataclass(frozen=True)
class Step:
    """One request. `name` is empty for a collection."""

    method: str
    kind: str
    name: str = ""
    subresource: str = ""
    body: Any = None
    content_type: str = JSON
    query: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        where = "/".join(each for each in (self.kind, self.name, self.subresource) if each)
        asked = "&".join(f"{key}={value}" for key, value in self.query.items())
        sort = "" if self.content_type == JSON else f" ({self.content_type.partition('+')[0].rpartition('/')[2]})"
        return f"{self.method} {where}{'?' if asked else ''}{asked}{sort} {self.body if self.body is not None else ''}"


@dataclass(frozen=True)
class Sort:
    """One kind: where it is served, an object that is right, and what may be put where in it."""

    plural: str
    prefix: str
    api_version: str
    kind: str
    spec: Mapping[str, Any]
    menu: Mapping[str, tuple[Any, ...]]
    status: tuple[Any, ...] = ()
    custom: bool = True


_METADATA: dict[str, tuple[Any, ...]] = {
    "metadata.labels.a": ("b", "", "not valid!", None, 1),
    "metadata.labels": ({}, None),
    "metadata.annotations.a": ("b", "", None, "x" * 300),
    "metadata.annotations.not a key": ("b",),
    "metadata.annotations": ({}, None),
    "metadata.finalizers": (["example.com/f"], [], ["not-qualified"], None),
    "metadata.name": ("a", "b", "Not-Valid", ""),
    "metadata.namespace": ("elsewhere", ""),
    "metadata.resourceVersion": ("$rv", "$old", "1", "x", ""),
    "metadata.uid": ("$uid", "another", ""),
    "metadata.generation": (7,),
    "metadata.creationTimestamp": ("2020-01-01T00:00:00Z", None),
    "metadata.deletionTimestamp": ("2020-01-01T00:00:00Z",),
    "metadata.ownerReferences": ([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}], []),
    "metadata.unknown": ("x",),
    "unknown": (1,),
}
_TYPE: dict[str, tuple[Any, ...]] = {"apiVersion": ("v1", "nonsense/v1")}
"""Of a whole object only: what a patch of these is answered depends on which webhook stumbles first."""

SORTS = {
    sort.plural: sort
    for sort in (
        Sort(
            "trainjobs", "/apis/trainer.kubeflow.org/v1alpha1", "trainer.kubeflow.org/v1alpha1", "TrainJob",
            {
                "managedBy": "kueue.x-k8s.io/multikueue",
                "suspend": True,
                "runtimeRef": {"name": "torch-distributed"},
                "trainer": {"image": "i", "command": ["train"], "numNodes": 2},
            },
            {
                "spec.suspend": (True, False, "yes", None),
                "spec.trainer.numNodes": (1, 3, 0, -1, 2147483648, "2", 1.5),
                "spec.trainer.numProcPerNode": (1, 4, 0, "auto"),
                "spec.trainer.image": ("j", "", "x" * 501),
                "spec.trainer.command": (["a"], [], ["", "b"], [1], ["x"] * 129),
                "spec.trainer.args": (["a"], ["x"] * 129),
                "spec.trainer.env": (
                    [{"name": "A", "value": "b"}],
                    [{"name": "A", "value": "b"}, {"name": "A", "value": "c"}],
                    [{"value": "b"}],
                    [{"name": "PET_NNODES", "value": "1"}],
                ),
                "spec.trainer.resourcesPerNode": (
                    {"requests": {"cpu": "1000m"}},
                    {"limits": {"cpu": "abc"}},
                    {"requests": {"cpu": 2}},
                    {},
                ),
                "spec.trainer.unknown": (1,),
                "spec.trainer": ({}, None),
                "spec.runtimeRef.name": ("absent", "Not Valid", ""),
                "spec.runtimeRef.kind": ("ClusterTrainingRuntime", "Nonsense"),
                "spec.runtimeRef": (None,),
                "spec.activeDeadlineSeconds": (10, 0, -1, "5"),
                "spec.runtimePatches": (
                    [{"manager": "example.com/m", "trainingRuntimeSpec": {"template": {"spec": {}}}}],
                    [{"manager": "example.com/m"}, {"manager": "example.com/m"}],
                    [{"trainingRuntimeSpec": {}}],
                ),
                "spec.labels": ({"a": "b"}, {}),
                "spec.managedBy": ("nonsense",),
                "spec.unknown": ({"a": 1},),
                "spec": (None,),
            },
            status=(
                {"conditions": []}, {"conditions": [{"type": "Suspended"}]}, {"jobsStatus": []}, {"unknown": 1}, None,
            ),
        ),
        Sort(
            "trainingruntimes", "/apis/trainer.kubeflow.org/v1alpha1", "trainer.kubeflow.org/v1alpha1",
            "TrainingRuntime",
            {
                "mlPolicy": {"numNodes": 1, "torch": {}},
                "template": {"spec": {"replicatedJobs": [{
                    "name": "node",
                    "template": {
                        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
                            {"name": "node", "image": "i"}]}}},
                    },
                }]}},
            },
            {
                "spec.mlPolicy.numNodes": (3, 0, "2", None),
                "spec.mlPolicy.mpi": ({}, {"numProcPerNode": 1}),
                "spec.mlPolicy.torch": ({"numProcPerNode": "auto"}, {"numProcPerNode": 2}, None),
                "spec.mlPolicy": ({}, None),
                "spec.podGroupPolicy": ({"coscheduling": {"scheduleTimeoutSeconds": 5}}, {}),
                "spec.template.metadata": ({"labels": {"a": "b"}}, {}),
                "spec.template.spec.replicatedJobs": (
                    [], None, [{"name": "node"}], [{"name": "other", "template": {}}],
                ),
                "spec.template.spec.suspend": (True, "x"),
                "spec.template.unknown": (1,),
                "spec.template": (None,),
                "spec": (None,),
            },
        ),
        Sort(
            "jobsets", "/apis/jobset.x-k8s.io/v1alpha2", "jobset.x-k8s.io/v1alpha2", "JobSet",
            {
                "managedBy": "example.com/nobody",
                "suspend": True,
                "replicatedJobs": [
                    {"name": "node", "replicas": 1, "template": {"spec": {"template": {"spec": _POD_SPEC}}}}
                ],
            },
            {
                "spec.suspend": (True, False, "yes"),
                "spec.replicatedJobs": ([], None, "x"),
                "spec.network": ({"enableDNSHostnames": False}, {"subdomain": "Not Valid"}, {}),
                "spec.failurePolicy": ({"maxRestarts": 3}, {"maxRestarts": "x"}, {}),
                "spec.successPolicy": ({"operator": "Any"}, {"operator": "Nonsense"}, {}),
                "spec.startupPolicy": ({"startupPolicyOrder": "InOrder"}, {}),
                "spec.ttlSecondsAfterFinished": (5, -1, None),
                "spec.coordinator": ({"replicatedJob": "node"}, {"replicatedJob": "absent"}),
                "spec.managedBy": ("example.com/other", "nonsense"),
                "spec.unknown": (1,),
                "spec": (None,),
            },
            status=({"conditions": []}, {"restarts": 1}, {"restarts": "x"}, None),
        ),
        Sort(
            "jobs", "/apis/batch/v1", "batch/v1", "Job",
            {
                "managedBy": "example.com/nobody",
                "suspend": True,
                "completionMode": "Indexed",
                "completions": 2,
                "parallelism": 2,
                "template": {"spec": _POD_SPEC},
            },
            {"spec.suspend": (True, False)},
            custom=False,
        ),
        Sort(
            "configmaps", "/api/v1", "v1", "ConfigMap", {},
            {
                "data": ({"a": "b"}, {}, None, {"not a key": "x"}, {"a": 1}),
                "data.k": ("v", "", None, 1),
                "data.l": ("w",),
                "immutable": (True, False, "x"),
            },
            custom=False,
        ),
        Sort(
            "pods", "/api/v1", "v1", "Pod", _POD_SPEC,
            {"spec.activeDeadlineSeconds": (10,)},
            status=({"phase": "Running"}, {"phase": "Failed", "reason": "Evicted"}, {"message": "x"}),
            custom=False,
        ),
    )
}  # fmt: skip


def put(obj: Object, path: str, value: Any) -> None:
    """Sets what a dotted path leads to, making objects on the way; `_ABSENT` takes it away."""
    *way, last = path.split(".")
    here: Any = obj
    for part in way:
        if not isinstance(here.get(part), dict):
            if value is _ABSENT:
                return
            here[part] = {}
        here = here[part]
    if value is _ABSENT:
        here.pop(last, None)
    else:
        here[last] = copy.deepcopy(value)


def whole(sort: Sort, name: str) -> Object:
    """An object that is right."""
    described: Object = {
        "apiVersion": sort.api_version,
        "kind": sort.kind,
        "metadata": {"name": name, "labels": {"sequence": "$sequence"}},
    }
    return described | ({"spec": copy.deepcopy(dict(sort.spec))} if sort.spec else {})


def _menu(sort: Sort, more: Mapping[str, tuple[Any, ...]]) -> st.SearchStrategy[tuple[str, Any]]:
    menu = {**_METADATA, **more, **sort.menu}
    own = st.sampled_from(sorted(sort.menu)).flatmap(_value_of(menu))
    general = st.sampled_from(sorted({**_METADATA, **more})).flatmap(_value_of(menu))
    return st.one_of(own, own, general)


def _value_of(menu: Mapping[str, tuple[Any, ...]]) -> Any:
    return lambda path: st.tuples(st.just(path), st.sampled_from(menu[path]))


def _mutations(
    sort: Sort, least: int = 0, more: Mapping[str, tuple[Any, ...]] | None = None
) -> st.SearchStrategy[list[tuple[str, Any]]]:
    return st.lists(_menu(sort, more or {}), min_size=least, max_size=2, unique_by=lambda each: each[0])


@st.composite
def _objects(draw: st.DrawFn, sort: Sort, name: str) -> Object:
    described = whole(sort, name)
    for path, value in draw(_mutations(sort, more=_TYPE)):
        put(described, path, value)
    if sort.kind not in ("Job", "Pod") and draw(st.integers(0, 9)) == 0:
        put(described, draw(st.sampled_from(["metadata.name", "metadata", "kind", "apiVersion", "spec"])), _ABSENT)
    return described


@st.composite
def _merges(draw: st.DrawFn, sort: Sort) -> Object:
    change: Object = {}
    for path, value in draw(_mutations(sort, least=1)):
        put(change, path, value)
    return change


@st.composite
def _operations(draw: st.DrawFn, sort: Sort) -> list[Object]:
    operations: list[Object] = []
    for path, value in draw(_mutations(sort, least=1)):
        sort_of = draw(st.sampled_from(["add", "replace", "remove", "test", "add"]))
        pointer = "/" + path.replace(".", "/")
        operations.append({"op": sort_of, "path": pointer} | ({} if sort_of == "remove" else {"value": value}))
    return operations


_QUERY = st.one_of(
    st.just({}), st.just({}), st.just({}),
    st.sampled_from([
        {"dryRun": "All"}, {"dryRun": "Nonsense"}, {"fieldValidation": "Strict"}, {"fieldValidation": "Ignore"},
        {"fieldValidation": "Nonsense"}, {"fieldManager": "me"}, {"fieldManager": "x" * 129}, {"pretty": "true"},
    ]),
)  # fmt: skip
_NAMES = st.sampled_from(["a", "a", "a", "b"])


@st.composite
def _create(draw: st.DrawFn, sort: Sort) -> Step:
    return Step("POST", sort.plural, body=draw(_objects(sort, draw(_NAMES))), query=draw(_QUERY))


@st.composite
def _put(draw: st.DrawFn, sort: Sort) -> Step:
    name = draw(_NAMES)
    described = draw(_objects(sort, name))
    if draw(st.booleans()) and isinstance(described.get("metadata"), dict):
        described["metadata"].setdefault("resourceVersion", draw(st.sampled_from(["$rv", "$rv", "$old"])))
    return Step("PUT", sort.plural, name, body=described, query=draw(_QUERY))


@st.composite
def _patch(draw: st.DrawFn, sort: Sort) -> Step:
    name = draw(_NAMES)
    chosen = draw(st.sampled_from(["merge", "merge", "json", "strategic"]))
    query = dict(draw(_QUERY))
    if chosen == "json":
        return Step("PATCH", sort.plural, name, body=draw(_operations(sort)), content_type=JSON_PATCH, query=query)
    sort_of = STRATEGIC if chosen == "strategic" else MERGE_PATCH
    return Step("PATCH", sort.plural, name, body=draw(_merges(sort)), content_type=sort_of, query=query)


@st.composite
def _apply(draw: st.DrawFn, sort: Sort) -> Step:
    """By one of two managers, so that they come to disagree."""
    name = draw(_NAMES)
    described: Object = {"apiVersion": sort.api_version, "kind": sort.kind, "metadata": {"name": name}}
    if draw(st.integers(0, 3)) == 0:
        described = whole(sort, name)
    for path, value in draw(_mutations(sort, more=_TYPE)):
        if value is not None:
            put(described, path, value)
    if "managedBy" in sort.spec:
        # What is applied no more is taken away, and a controller would begin.
        described.setdefault("spec", {}).setdefault("managedBy", sort.spec["managedBy"])
    query = {"fieldManager": draw(st.sampled_from(["me", "me", "you", ""]))}
    query |= draw(st.sampled_from([{}, {}, {"force": "true"}, {"dryRun": "All"}]))
    return Step("PATCH", sort.plural, name, body=described, content_type=APPLY, query=query)


@st.composite
def _status(draw: st.DrawFn, sort: Sort) -> Step:
    name = draw(_NAMES)
    value = draw(st.sampled_from(sort.status or ({"a": 1},)))
    change: Object = {"status": copy.deepcopy(value)}
    version = draw(st.sampled_from([None, "$rv", "$old"]))
    if version:
        change["metadata"] = {"resourceVersion": version}
    return Step("PATCH", sort.plural, name, "status", body=change, content_type=MERGE_PATCH)


@st.composite
def _delete(draw: st.DrawFn, sort: Sort) -> Step:
    options: Object = {}
    preconditions = draw(
        st.sampled_from([{}, {}, {"uid": "$uid"}, {"uid": "another"}, {"resourceVersion": "$rv"},
                         {"resourceVersion": "$old"}, {"uid": "$uid", "resourceVersion": "$old"}])
    )  # fmt: skip
    if preconditions:
        options["preconditions"] = preconditions
    options |= draw(
        st.sampled_from([{}, {}, {"propagationPolicy": "Background"}, {"propagationPolicy": "Nonsense"},
                         {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 5}, {"gracePeriodSeconds": -1},
                         {"dryRun": ["All"]}, {"orphanDependents": False}])
    )  # fmt: skip
    if sort.kind == "Job" and "orphanDependents" not in options:
        # By default its pods would be orphaned, by a controller that takes its time.
        options.setdefault("propagationPolicy", "Background")
    return Step("DELETE", sort.plural, draw(_NAMES), body=options or None)


@st.composite
def _read(draw: st.DrawFn, sort: Sort) -> Step:
    if draw(st.booleans()):
        return Step("GET", sort.plural, draw(_NAMES))
    selector = draw(st.sampled_from(["sequence=$sequence", "sequence=$sequence,a=b", "sequence=$sequence,!a",
                                     "sequence=$sequence,a in (b, c)", "a=("]))  # fmt: skip
    query = {"labelSelector": selector} | draw(
        st.sampled_from([{}, {}, {"limit": "1"}, {"limit": "x"}, {"fieldSelector": "metadata.name=$name-a"},
                         {"fieldSelector": "spec.nonsense=1"}, {"resourceVersion": "$rv"},
                         {"resourceVersion": "$rv", "resourceVersionMatch": "Exact"},
                         {"resourceVersion": "$old", "resourceVersionMatch": "Exact"},
                         {"resourceVersionMatch": "Exact"}, {"resourceVersion": "x"}])
    )  # fmt: skip
    return Step("GET", sort.plural, query=query)


_ODD = st.sampled_from([
    ("POST", "a", ""), ("PUT", "", ""), ("PATCH", "", ""), ("GET", "a", "nonsense"), ("GET", "a", "status"),
    ("POST", "a", "status"), ("DELETE", "a", "status"), ("GET", string.ascii_uppercase, ""),
])  # fmt: skip


@st.composite
def _odd(draw: st.DrawFn, sort: Sort) -> Step:
    method, name, subresource = draw(_ODD)
    body = whole(sort, "a") if method in ("POST", "PUT") else {} if method == "PATCH" else None
    return Step(method, sort.plural, name, subresource, body, MERGE_PATCH if method == "PATCH" else JSON)


def _step(sort: Sort) -> st.SearchStrategy[Step]:
    ways = [_create, _create, _put, _patch, _patch, _patch, _delete, _read, _status, _odd]
    if sort.kind in ("Job", "Pod"):
        ways = [_create, _patch, _patch, _delete, _delete, _read, _odd]
    if _APPLIES:
        ways = [*ways, _apply, _apply]
    return st.sampled_from(ways).flatmap(lambda way: way(sort))


@st.composite
def sequences(draw: st.DrawFn) -> list[Step]:
    """Mostly about one kind; it nearly always begins with an object that is right."""
    chosen = draw(st.lists(st.sampled_from(sorted(SORTS)), min_size=1, max_size=2, unique=True))
    first = [Step("POST", kind, body=whole(SORTS[kind], "a")) for kind in chosen if draw(st.integers(0, 3))]
    step = st.sampled_from(chosen).flatmap(lambda kind: _step(SORTS[kind]))
    return [*first, *draw(st.lists(step, min_size=2, max_size=7))]
