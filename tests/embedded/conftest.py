"""An apiserver over HTTPS for the tests of its answers: the training kinds installed, no controller behind it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded.admission import Admission
from dispatch_kubeflow.backend.embedded.apiserver import Apiserver
from dispatch_kubeflow.backend.embedded.definitions import Definitions
from dispatch_kubeflow.backend.embedded.server import Server
from dispatch_kubeflow.backend.embedded.store import Store
from dispatch_kubeflow.backend.requests.resources import Resource
from dispatch_kubeflow.machine.context import SystemClock

NAMESPACE = "team-a"
TRAIN_JOBS_PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-a/trainjobs"
MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


class Caller:
    """A client of plain http.client, one connection, that says exactly what it is told to."""

    def __init__(self, server: Server, token: str | None) -> None:
        self.server = server
        self.token = token
        self._context = ssl.create_default_context(cadata=server.authority.certificate.decode())
        self.connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=self._context, timeout=20)

    def __call__(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> Reply:
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        if body is not None:
            sent["Content-Type"] = content_type
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, path, data, sent)
        answer = self.connection.getresponse()
        return Reply(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())

    def close(self) -> None:
        self.connection.close()


@dataclass
class Serving:
    store: Store
    admission: Admission
    apiserver: Apiserver
    server: Server
    admin: Caller
    admin_token: str
    callers: list[Caller]

    def caller(self, token: str | None) -> Caller:
        self.callers.append(Caller(self.server, token))
        return self.callers[-1]


@pytest.fixture
def serving() -> Iterator[Serving]:
    admission = Admission()
    store = Store(SystemClock(), admission=admission, seed=11)
    store.create(Resource("", "v1", "namespaces", "Namespace", namespaced=False), {"metadata": {"name": NAMESPACE}})
    Definitions(store).install("kubeflow-trainer-v2.3.0", "jobset-v0.12.0", "kueue-v0.19.2")
    apiserver = Apiserver(store)
    token = apiserver.access.user("admin", groups=["system:masters"])
    with Server(apiserver) as server:
        admin = Caller(server, token)
        callers = [admin]
        yield Serving(store, admission, apiserver, server, admin, token, callers)
        for caller in callers:
            caller.close()
    assert apiserver.failures == []


@pytest.fixture
def admin(serving: Serving) -> Caller:
    return serving.admin


@pytest.fixture
def samples() -> dict[str, Any]:
    """Answers of a real kube-apiserver 1.36.3, by what was asked."""
    path = Path(__file__).parent / "data" / "http-answers.json"
    return {entry["case"]: entry for entry in json.loads(path.read_text())}


def train_job(name: str = "sa-1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": True, "trainer": {"numNodes": 1}, **spec},
    }
