"""A handle on an embedded cluster that offers what the handle on the real control plane does."""

from __future__ import annotations

import base64
import json
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dispatch_kubeflow.backend.embedded import Cluster as Inside
from dispatch_kubeflow.backend.embedded import KueueConfiguration
from tests.real.cluster import Cluster

from .kubelet import AnnotatedKubelet

_SPARE_USERS = 60
_SILENT_AFTER = 0.5
"""Seconds until a silent node shows: there is no heartbeat here that could be late on a busy machine."""


@dataclass(frozen=True)
class EmbeddedCluster(Cluster):
    """An embedded cluster by its address and tokens; only its machines are reached from inside."""

    inside: Inside
    kubelet: AnnotatedKubelet

    def new_namespace(self, prefix: str = "test") -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    # Machines.

    def add_node(self, name: str, labels: dict[str, str] | None = None) -> None:
        self.inside.add_node(name, labels=labels)

    def silence(self, name: str) -> None:
        self.inside.lose_node(name)

    def answer_again(self, name: str) -> None:
        self.inside.return_node(name)

    # Output.

    def write_output(self, namespace: str, pod: str, lines: Sequence[str], *, container: str = "node") -> Path:
        """Lets a container write; unlike on the real one it is no file, so more comes by calling this again."""
        uid = self.api.get(f"{self.pods(namespace)}/{pod}")["metadata"]["uid"]
        self._inside(lambda: [self.kubelet.say(uid, container, line) for line in lines])
        return self.folder

    def _inside(self, action: Callable[[], object]) -> None:
        """Does something where the controllers run, and waits until it is done."""
        done = threading.Event()

        def perform() -> None:
            action()
            done.set()

        self.inside.do(perform)
        if not done.wait(10):
            raise TimeoutError("the embedded cluster does not do what it is told")


@contextmanager
def embedded_cluster(kueue: KueueConfiguration | None = None) -> Iterator[EmbeddedCluster]:
    """One that runs, with users that have no rights yet; with Kueue, if it is said how that is configured."""
    kubelet = AnnotatedKubelet()
    with tempfile.TemporaryDirectory() as folder, Inside(kubelet=kubelet, namespaces=(), kueue=kueue) as inside:
        inside.node_lifecycle.monitor_grace = _SILENT_AFTER
        config = json.loads(inside.kubeconfig(Path(folder) / "admin").read_text())
        described = config["clusters"][0]["cluster"]
        authority = Path(folder) / "ca.crt"
        authority.write_bytes(base64.b64decode(described["certificate-authority-data"]))
        spare = {f"user-{index:03}": inside.user(f"user-{index:03}") for index in range(_SPARE_USERS)}
        tokens = {"admin": config["users"][0]["user"]["token"], **spare}
        yield EmbeddedCluster(
            folder=Path(folder), url=described["server"], authority=authority, tokens=tokens, kubelet_port=0,
            versions={"embedded": "this checkout"}, inside=inside, kubelet=kubelet,
        )  # fmt: skip
        assert list(inside.failures) == []
