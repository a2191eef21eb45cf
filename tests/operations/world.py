"""One embedded cluster behind a meddling wire, and the words in which the tests of calls tell their stories."""

from __future__ import annotations

import json
import pathlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from dispatch_kubeflow.backend import JobSpec, ObjectRef, factory
from dispatch_kubeflow.backend.embedded import KueueConfiguration
from dispatch_kubeflow.backend.embedded.cluster import Cluster
from dispatch_kubeflow.backend.embedded.kubelet import Script, ScriptedKubelet
from dispatch_kubeflow.backend.embedded.server import Server
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.backend.requests.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.machine import Context, DispatchError
from dispatch_kubeflow.machine.rules import rulebook

from .wire import Wire

NAMESPACE = "team-a"
RUNTIME = "ClusterTrainingRuntime/torch-distributed"
LIMIT = 10.0
"""Seconds within which anything a test waits for has to come."""
T_JOBS = r"/trainjobs"
T_JOB = r"/trainjobs/[^/?]+"
COPIES = r"/trainingruntimes"
COPY = r"/namespaces/[^/]+/trainingruntimes/[^/?]+"


class World:
    """A cluster, a proxy before it that a test may meddle with, and Backends that go through the proxy."""

    def __init__(
        self, folder: pathlib.Path, script: Script | None = None, kueue: KueueConfiguration | None = None
    ) -> None:
        self.folder = folder
        kubelet = ScriptedKubelet(script or Script(stop_after=0.05))
        self.cluster = Cluster(kubelet=kubelet, seed=7, kueue=kueue)
        self.cluster.__enter__()
        assert self.cluster.server is not None
        self.server: Server = self.cluster.server
        self.admin = self.cluster.apiserver.access.user("admin", groups=["system:masters"])
        self.wire = Wire(self.server.url, self.server.authority.certificate.decode())
        self.backends: list[Backend] = []

    def close(self) -> None:
        for backend in self.backends:
            backend.close()
        self.wire.close()
        self.cluster.close()
        assert self.cluster.apiserver.failures == []

    # Backends.

    def kubeconfig(self, token: str | None = None, url: str | None = None) -> str:
        path = self.folder / f"kubeconfig-{len(list(self.folder.iterdir()))}"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": url or self.wire.url}}],
                    "users": [{"name": "u", "user": {"token": self.admin if token is None else token}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        return str(path)

    def settings(self, *, token: str | None = None, **settings: Any) -> dict[str, Any]:
        given = {"name": "gpu", "namespace": NAMESPACE, "runtimes": [RUNTIME], "stop_poll": 0.05, **settings}
        if "kubeconfig" not in given and not given.get("in_cluster"):
            given["kubeconfig"] = self.kubeconfig(token)
        return given

    def backend(self, *, token: str | None = None, **settings: Any) -> Backend:
        backend = factory(self.settings(token=token, **settings), ctx=Context.with_timeout(LIMIT))
        self.backends.append(backend)
        self.wire.seen.clear()
        self.cluster.apiserver.requests.clear()
        return backend

    # What the cluster knows.

    def get(self, resource: Resource, name: str) -> dict[str, Any] | None:
        return self.cluster.get(resource, name, NAMESPACE if resource.namespaced else None)

    def trainjob(self, name: str = "job-1") -> dict[str, Any]:
        found = self.get(TRAIN_JOBS, name)
        assert found is not None
        return found

    def names(self, resource: Resource) -> list[str]:
        return [each["metadata"]["name"] for each in self.cluster.list(resource, NAMESPACE)]

    def left(self) -> dict[str, list[str]]:
        """Everything of any job that is left in the namespace."""
        kinds = (TRAIN_JOBS, TRAINING_RUNTIMES, JOB_SETS, JOBS, PODS, CONFIG_MAPS)
        return {each.kind: names for each in kinds if (names := self.names(each))}

    def annotate(self, name: str, **annotations: str | None) -> None:
        keys = {f"dispatch-kubeflow.io/{key}": value for key, value in annotations.items()}
        self.cluster.patch(TRAIN_JOBS, name, {"metadata": {"annotations": keys}}, NAMESPACE)

    def requests(self) -> list[str]:
        """Method and last part of the path of every request that reached the cluster."""
        return [f"{each.method} {each.path}" for each in self.cluster.apiserver.requests]

    def until(self, what: Callable[[], Any], why: str = "") -> Any:
        """What `what` gives once it gives something; a test fails if it never does."""
        end = time.monotonic() + LIMIT
        while not (found := what()):
            assert time.monotonic() < end, why or "it never came"
            threading.Event().wait(0.01)
        return found

    def calm(self) -> None:
        """Until the controllers have nothing to write: then no write of theirs crosses one of the test's."""

        def unchanged() -> bool:
            before = self.trainjob_versions()
            threading.Event().wait(0.2)
            return self.trainjob_versions() == before

        self.until(unchanged, "the controllers never came to rest")

    def trainjob_versions(self) -> list[str]:
        kinds = (TRAIN_JOBS, JOB_SETS, JOBS, PODS)
        return [each["metadata"]["resourceVersion"] for kind in kinds for each in self.cluster.list(kind, NAMESPACE)]

    def running(self, name: str = "job-1", pods: int = 2) -> list[dict[str, Any]]:
        """The pods of a TrainJob, once so many run."""

        def found() -> list[dict[str, Any]]:
            of = [p for p in self.cluster.list(PODS, NAMESPACE) if p["metadata"]["name"].startswith(f"{name}-")]
            up = [p for p in of if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]]
            return up if len(up) == pods else []

        return list(self.until(found, f"{pods} pods of {name} never ran"))


def spec(**changes: Any) -> JobSpec:
    """A job of two nodes."""
    given: dict[str, Any] = {
        "nodes": 2,
        "command": ["python", "fit.py"],
        "extensions": {
            "dispatch/Image": "pytorch:2",
            "kubeflow/RuntimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
        },
    }
    return JobSpec.parse({**given, **changes})


def soon(seconds: float = LIMIT) -> Context:
    return Context.with_timeout(seconds)


def ended() -> Context:
    ctx = Context.with_timeout(-1)
    assert ctx.ended == "deadline"
    return ctx


def cancelled() -> Context:
    ctx = Context.with_timeout(LIMIT)
    ctx.cancel()
    return ctx


@contextmanager
def refused(rule: str, /, **details: Any) -> Iterator[list[DispatchError]]:
    """The block raises the error of exactly this rule, complete, with at least these details."""
    caught: list[DispatchError] = []
    with pytest.raises(DispatchError) as raised:
        yield caught
    error = raised.value
    caught.append(error)
    assert error.row == rule, f"{error.row}: {error}"
    row = rulebook().tables.rule(rule)
    assert error.sentinel == row.sentinel
    assert set(row.required) <= set(error.details) <= {*row.required, *row.optional}
    assert str(error).endswith(".")
    for key, value in details.items():
        assert _holds(error.details[key], value), f"{key} is {error.details[key]!r}"


def _holds(found: object, wanted: object) -> bool:
    return wanted in str(found) if isinstance(wanted, str) else found == wanted


def start(backend: Backend, job: str = "job", attempt: int = 1, **changes: Any) -> ObjectRef:
    return backend.start(job, attempt, spec(**changes), ctx=soon())


def rules_for(*verbs: str, group: str, resources: list[str]) -> Mapping[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}
