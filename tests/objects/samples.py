"""The samples of `data/` as the structs the code reads, with what was left out of them put back."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from ruamel.yaml import YAML

from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.machine.rules import rulebook
from dispatch_kubeflow.machine.values import JobSpec

DATA = Path(__file__).parent / "data"
NOW = datetime(2026, 11, 29, 22, 0, tzinfo=UTC)
T = TypeVar("T", bound=msgspec.Struct)
IDENTITY = names.Identity("gpu-west", "resnet", 1)


def sample(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return loaded


def runtime(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load((DATA / f"{name}.yaml").read_text())
    return loaded


def read(obj: Mapping[str, Any], kind: type[T]) -> T:
    found = seen.read(obj, kind)
    assert not isinstance(found, seen.Unreadable), found
    return found


def job_spec(**changes: Any) -> JobSpec:
    given: dict[str, Any] = {
        "nodes": 2,
        "command": ["python", "-u"],
        "args": ["a.py"],
        "env": {"A": "1", "E": ""},
        "procs_per_node": 4,
        "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "8"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        "deadline_seconds": 3600,
        "extensions": {
            "dispatch/Image": "x:y",
            "kubeflow/RuntimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
        },
    }
    given |= changes
    return JobSpec(**{key: value for key, value in given.items() if value is not None})


def with_checkpoint(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec, "dispatch/SharedCheckpoint": {"claim": "c1", "path": "/ck"}}


def decide(mode: str = "plain", operation: str = "find") -> Any:
    book = rulebook()

    def decided(family: str, facts: Mapping[str, str]) -> str:
        rule = book.decide(family, operation=operation, mode=mode, **facts)
        assert rule.gives is not None
        return rule.gives

    return decided


@dataclass
class End:
    """One ending: the TrainJob with our record on it, and what was below it."""

    trainjob: seen.TrainJob
    jobset: seen.JobSet | None
    jobs: list[seen.Job]
    listed: list[seen.Pod]
    gone: list[seen.Pod]
    raw: dict[str, Any] = field(default_factory=dict)


def end(name: str, *, gate: str = "lifted", hold: str = "none") -> End:
    raw = sample(f"end-{name}")
    trainjob = copy.deepcopy(raw["trainjob"])
    label(trainjob, annotations={names.GATE: gate, names.HOLD: hold})
    job = raw.get("job")
    pods = [pod(each, job) for each in raw["pods"]]
    return End(
        trainjob=read(trainjob, seen.TrainJob),
        jobset=read(label(copy.deepcopy(raw["jobset"])), seen.JobSet) if "jobset" in raw else None,
        jobs=[read(label(copy.deepcopy(job)), seen.Job)] if job is not None else [],
        listed=[read(each, seen.Pod) for each in pods if each.get("stillThere")],
        gone=[read(each, seen.Pod) for each in pods if not each.get("stillThere")],
        raw=raw,
    )


def pod(raw: Mapping[str, Any], job: Mapping[str, Any] | None) -> dict[str, Any]:
    """A pod of a sample with the spec, our labels and the owner that were left out."""
    made = copy.deepcopy(dict(raw))
    made.setdefault("spec", {}).setdefault("containers", [{"name": "node"}])
    if "nodeName" in made:
        made["spec"]["nodeName"] = made.pop("nodeName")
    label(made)
    if job is not None:
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        made["metadata"].setdefault("ownerReferences", [owner])
    return made


def label(obj: dict[str, Any], *, attempt: int = 1, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    metadata = obj.setdefault("metadata", {})
    metadata.setdefault("labels", {}).update(names.Identity("gpu-west", "resnet", attempt).labels)
    if annotations:
        metadata.setdefault("annotations", {}).update(annotations)
    return obj
