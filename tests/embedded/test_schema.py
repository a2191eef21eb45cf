from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded import crds
from dispatch_kubeflow.backend.embedded.crds.remake import RELEASES, packed
from dispatch_kubeflow.backend.embedded.definitions import DEFINITIONS, Definitions
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.schemas import StructuralSchema
from dispatch_kubeflow.backend.embedded.store import Store
from dispatch_kubeflow.backend.requests.resources import (
    ADMISSION_CHECKS,
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    TRAIN_JOBS,
    WORKLOADS,
    Resource,
)

NAMESPACE = "team-a"


class StillClock:
    def monotonic(self) -> float:
        return 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 29, tzinfo=UTC)

    def wait(self, event: Any, timeout: float | None) -> bool:
        raise AssertionError("nothing waits here")


@pytest.fixture(scope="module")
def installed() -> Store:
    store = Store(StillClock(), seed=5)
    store.create(Resource("", "v1", "namespaces", "Namespace", namespaced=False), {"metadata": {"name": NAMESPACE}})
    Definitions(store).install(*RELEASES)
    return store


def job(name: str = "a-1", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"runtimeRef": {"name": "t"}, **spec}}


def faults(store: Store, resource: Resource, obj: dict[str, Any]) -> list[str]:
    with pytest.raises(ApiError) as caught:
        store.create(resource, obj, dry_run=True)
    assert caught.value.status == 422
    return [f"{cause['field']}: {cause['message']}" for cause in caught.value.causes]


def test_defaults_are_filled_in(installed: Store) -> None:
    made = installed.create(TRAIN_JOBS, job(), dry_run=True)
    assert made["spec"] == {
        "runtimeRef": {"name": "t", "apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"},
        "managedBy": "trainer.kubeflow.org/trainjob-controller",
        "suspend": False,
    }


def test_unknown_fields_and_nulls_are_dropped(installed: Store) -> None:
    spec = {"trainer": {"bogus": 1, "numNodes": None, "image": "x"}, "suspend": None}
    made = installed.create(TRAIN_JOBS, {**job(**spec), "more": 1}, dry_run=True)
    assert made["spec"]["trainer"] == {"image": "x"}
    assert made["spec"]["suspend"] is False
    assert "more" not in made


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            {"trainer": {"numNodes": "2"}},
            (
                'spec.trainer.numNodes: Invalid value: "string": '
                'spec.trainer.numNodes in body must be of type integer: "string"'
            ),
        ),
        ({"trainer": {"command": ["a"] * 129}}, "spec.trainer.command: Too many: 129: must have at most 128 items"),
        ({"trainer": {"image": "x" * 501}}, "spec.trainer.image: Too long: may not be more than 500 bytes"),
        (
            {"activeDeadlineSeconds": 0},
            (
                "spec.activeDeadlineSeconds: Invalid value: 0: "
                "spec.activeDeadlineSeconds in body should be greater than or equal to 1"
            ),
        ),
        ({"trainer": {"env": [{"value": "x"}]}}, "spec.trainer.env[0].name: Required value"),
        ({"trainer": {"env": [{"name": "A"}, {"name": "A"}]}}, 'spec.trainer.env[1]: Duplicate value: {"name":"A"}'),
        (
            {"trainer": {"numNodes": 2**31}},
            (
                '<nil>: Invalid value: "": '
                "Checked value must be of type integer with format int32 in spec.trainer.numNodes"
            ),
        ),
        (
            {"managedBy": "me"},
            (
                'spec.managedBy: Invalid value: "me": ManagedBy must be trainer.kubeflow.org/trainjob-controller '
                "or kueue.x-k8s.io/multikueue if set"
            ),
        ),
        (
            {"runtimeRef": {"name": ""}},
            'spec.runtimeRef.name: Invalid value: "": spec.runtimeRef.name in body should be at least 1 chars long',
        ),
    ],
)
def test_what_breaks_the_schema_is_named(installed: Store, spec: dict[str, Any], found: str) -> None:
    assert found in faults(installed, TRAIN_JOBS, job(**spec))


def test_rules_are_not_asked_of_an_object_that_is_broken_already(installed: Store) -> None:
    told = faults(installed, TRAIN_JOBS, job(managedBy="me", trainer={"image": "x" * 501}))
    assert not any("ManagedBy" in text for text in told)
    assert told[-1].startswith("<nil>: Invalid value: null: some validation rules were not checked")


def test_a_rule_of_the_whole_object_speaks_of_its_name(installed: Store) -> None:
    assert faults(installed, TRAIN_JOBS, job("x" * 64)) == [
        "<nil>: Invalid value: metadata.name must be no more than 63 characters"
    ]
    assert "RFC 1035" in faults(installed, TRAIN_JOBS, job("1-a"))[0]


@pytest.fixture
def stored(installed: Store) -> Store:
    if installed.find(TRAIN_JOBS, NAMESPACE, "kept") is None:
        installed.create(TRAIN_JOBS, job("kept", trainer={"numNodes": 1}, activeDeadlineSeconds=5))
    return installed


def test_an_immutable_field_cannot_change_but_can_come_and_go(stored: Store) -> None:
    with pytest.raises(ApiError) as caught:
        stored.patch(TRAIN_JOBS, NAMESPACE, "kept", {"spec": {"trainer": {"numNodes": 2}}}, dry_run=True)
    assert "spec.trainer: Invalid value: field is immutable" in caught.value.message
    gone = stored.patch(TRAIN_JOBS, NAMESPACE, "kept", {"spec": {"trainer": None}}, dry_run=True)
    assert "trainer" not in gone["spec"]
    added = stored.patch(TRAIN_JOBS, NAMESPACE, "kept", {"spec": {"initializer": {}}}, dry_run=True)
    assert added["spec"]["initializer"] == {}


def test_an_immutable_scalar_is_shown(stored: Store) -> None:
    with pytest.raises(ApiError) as caught:
        stored.patch(TRAIN_JOBS, NAMESPACE, "kept", {"spec": {"activeDeadlineSeconds": 6}}, dry_run=True)
    assert "spec.activeDeadlineSeconds: Invalid value: 6: field is immutable" in caught.value.message


def test_what_did_not_change_is_not_judged_again() -> None:
    loose = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    strict = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 1}, "b": {"type": "string"}}}
    old = {"metadata": {}, "a": "long", "b": "x"}
    assert StructuralSchema(loose).validate(old, None) == []
    assert StructuralSchema(strict).validate({**old, "b": "y"}, old) == []
    assert StructuralSchema(strict).validate({**old, "a": "longer"}, old) != []


def test_rules_with_a_transition_compare_items_of_a_list_map() -> None:
    item = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.value == oldSelf.value", "message": "kept"}],
    }
    listed = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = StructuralSchema({"type": "object", "properties": {"items": listed}})
    old = {"metadata": {}, "items": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}
    moved = {
        "metadata": {},
        "items": [{"name": "b", "value": "2"}, {"name": "a", "value": "1"}, {"name": "c", "value": "9"}],
    }
    changed = {"metadata": {}, "items": [{"name": "b", "value": "3"}]}
    assert schema.validate(moved, old) == []
    assert [fault.field for fault in schema.validate(changed, old)] == ["items[0]"]


def test_a_rule_that_cannot_be_evaluated_is_a_fault() -> None:
    rule = {"rule": "self.absent > 1", "message": "positive"}
    schema = StructuralSchema(
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "x-kubernetes-validations": [rule],
                }
            },
        }
    )
    told = schema.validate({"metadata": {}, "a": {}}, None)
    assert told[0].detail == "no such key: absent evaluating rule: positive"


def test_a_workloads_check_needs_its_message(installed: Store) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
    workload = {
        "metadata": {"name": "w", "namespace": NAMESPACE},
        "spec": {"podSets": [{"count": 1, "template": template}]},
    }
    made = installed.create(WORKLOADS, workload)
    assert made["spec"]["podSets"][0]["name"] == "main"
    check = {"name": "c", "state": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    with pytest.raises(ApiError) as caught:
        installed.patch(WORKLOADS, NAMESPACE, "w", {"status": {"admissionChecks": [check]}}, subresource="status")
    assert "status.admissionChecks[0].message: Required value" in caught.value.message


def test_the_shipped_runtimes_are_valid(installed: Store) -> None:
    names = [
        installed.create(CLUSTER_TRAINING_RUNTIMES, item)["metadata"]["name"] for item in crds.runtimes(RELEASES[0])
    ]
    assert "torch-distributed" in names


def test_a_jobset_that_contradicts_itself_is_refused(installed: Store) -> None:
    spec = {
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "replicatedJobs": [
            {
                "name": "n",
                "template": {"spec": {"template": {"spec": {"containers": []}}}},
                "dependsOn": [{"name": "m", "status": "Ready"}],
            }
        ],
    }
    told = faults(installed, JOB_SETS, {"metadata": {"name": "j", "namespace": NAMESPACE}, "spec": spec})
    assert any("StartupPolicy and DependsOn APIs are mutually exclusive" in text for text in told)


def test_a_pattern_with_a_flag_inside_is_read(installed: Store) -> None:
    check = {
        "metadata": {"name": "ac"},
        "spec": {"controllerName": "x.y/z", "parameters": {"apiGroup": "g.h", "kind": "Kind", "name": "n"}},
    }
    assert installed.create(ADMISSION_CHECKS, check, dry_run=True)["spec"]["parameters"]["kind"] == "Kind"


def test_a_definition_taken_away_takes_its_kind_along() -> None:
    store = Store(StillClock(), seed=5)
    Definitions(store).install("jobset-v0.12.0")
    assert JOB_SETS.plural in {kind.resource.plural for kind in store.kinds()}
    store.delete(DEFINITIONS, None, "jobsets.jobset.x-k8s.io")
    assert JOB_SETS.plural not in {kind.resource.plural for kind in store.kinds()}


def test_every_data_file_has_its_source_named() -> None:
    folder = Path(crds.__file__).parent
    sources = (folder / "SOURCES.md").read_text()
    releases = {item.name for item in folder.iterdir() if item.is_dir() and item.name != "__pycache__"}
    assert releases == {*RELEASES, "kubernetes-v1.36.3"}
    assert all(f"`{release}/`" in sources for release in releases)


def test_a_data_file_is_made_the_same_each_time(tmp_path: Path) -> None:
    source = tmp_path / "a.yaml"
    source.write_text("b: 1\na: [x, {y: null}]\n")
    assert packed(source) == packed(source)
    assert json.loads(gzip.decompress(packed(source))) == {"b": 1, "a": ["x", {"y": None}]}
