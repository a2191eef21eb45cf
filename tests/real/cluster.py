"""What a test does on a running control plane: users, namespaces, nodes that fall silent, output, and waiting."""

from __future__ import annotations

import base64
import itertools
import json
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .api import Api, Object, Refused, has
from .install import SERVES, install_node, node

STATE = "state.json"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_NODES = "/api/v1/nodes"
_TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
_JOBSET = "/apis/jobset.x-k8s.io/v1alpha2"
_OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


@dataclass(frozen=True)
class User:
    """Someone who may do what was granted, and nothing else."""

    name: str
    token: str


def kubeconfig_object(url: str, token: str, bundle: str, namespace: str = "default") -> dict[str, Any]:
    """A kubeconfig for one user (JSON is YAML)."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": url, "certificate-authority-data": bundle}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user", "namespace": namespace}}],
        "current-context": "real",
    }


@dataclass(frozen=True)
class Cluster:
    """A handle on a running control plane, by its folder; several processes may hold one."""

    folder: Path
    url: str
    authority: Path
    tokens: Mapping[str, str]
    kubelet_port: int
    versions: Mapping[str, str]

    @classmethod
    def at(cls, folder: Path) -> Cluster:
        """The control plane that runs in a folder."""
        folder = folder.resolve()
        state = json.loads((folder / STATE).read_text())
        return cls(
            folder=folder,
            url=state["url"],
            authority=Path(state["authority"]),
            tokens=state["tokens"],
            kubelet_port=state["kubeletPort"],
            versions=state["versions"],
        )

    @property
    def api(self) -> Api:
        """The administrator's client."""
        return Api(self.url, self.tokens["admin"], self.authority)

    # Users and namespaces

    def user(self, rules: Sequence[Object], *, namespace: str | None = None, name: str | None = None) -> User:
        """A user with exactly these RBAC rules, in one namespace or cluster-wide; a fresh one unless named."""
        chosen = name or self._spare_user()
        self.grant(chosen, rules, namespace=namespace)
        return User(chosen, self.tokens[chosen])

    def grant(self, name: str, rules: Sequence[Object], *, namespace: str | None = None) -> None:
        """Gives a user further rules: in a namespace, or cluster-wide without one."""
        kind, scope = ("Role", f"/namespaces/{namespace}") if namespace else ("ClusterRole", "")
        role = f"{name}-{uuid.uuid4().hex[:8]}"
        metadata = {"name": role}
        self.api.post(f"{_RBAC}{scope}/{kind.lower()}s", {"metadata": metadata, "rules": list(rules)})
        binding = {
            "metadata": metadata,
            "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": kind, "name": role, "apiGroup": "rbac.authorization.k8s.io"},
        }
        self.api.post(f"{_RBAC}{scope}/{kind.lower()}bindings", binding)

    def revoke(self, name: str) -> None:
        """Takes away what `grant` gave a user cluster-wide."""
        for kind in ("clusterrolebindings", "clusterroles"):
            for each in self.api.get(f"{_RBAC}/{kind}")["items"]:
                if each["metadata"]["name"].startswith(f"{name}-"):
                    self.api.send("DELETE", f"{_RBAC}/{kind}/{each['metadata']['name']}")

    def _spare_user(self) -> str:
        """Takes a user that no other process has taken: a ClusterRole of its name is the mark."""
        spare = sorted(name for name in self.tokens if name.startswith("user-"))
        first = secrets.randbelow(len(spare))
        for name in itertools.islice(itertools.cycle(spare), first, first + len(spare)):
            mark = {"metadata": {"name": f"taken-{name}"}, "rules": []}
            answer = self.api.send("POST", f"{_RBAC}/clusterroles", mark)
            if answer.status == 201:
                return name
            if answer.status != 409:
                raise Refused(answer, "taking a user")
        raise LookupError("every spare user of this control plane is taken: start a new one")

    def as_user(self, user: User | str) -> Api:
        """A user's client."""
        return self.api.as_user(user.token if isinstance(user, User) else self.tokens[user])

    def kubeconfig(self, path: Path, *, user: User | str = "admin", namespace: str = "default") -> Path:
        """Writes a kubeconfig for a user and returns its path."""
        token = user.token if isinstance(user, User) else self.tokens[user]
        bundle = base64.b64encode(self.authority.read_bytes()).decode()
        path.write_text(json.dumps(kubeconfig_object(self.url, token, bundle, namespace)))
        path.chmod(0o600)
        return path

    def new_namespace(self, prefix: str = "test") -> str:
        """Creates a namespace of a name not used before, ready for pods."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        self.wait(f"/api/v1/namespaces/{name}/serviceaccounts", "default", lambda seen: seen is not None)
        return name

    def delete_namespace(self, name: str) -> None:
        """Begins to delete a namespace and kills the pods that would keep it."""
        self.api.send("DELETE", f"/api/v1/namespaces/{name}")
        self.api.send("DELETE", f"/api/v1/namespaces/{name}/pods", query={"gracePeriodSeconds": "0"})

    # Paths of what a training job is made of

    def train_jobs(self, namespace: str) -> str:
        return f"{_TRAINER}/namespaces/{namespace}/trainjobs"

    def runtimes(self, namespace: str) -> str:
        return f"{_TRAINER}/namespaces/{namespace}/trainingruntimes"

    def job_sets(self, namespace: str) -> str:
        return f"{_JOBSET}/namespaces/{namespace}/jobsets"

    def jobs(self, namespace: str) -> str:
        return f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def pods(self, namespace: str) -> str:
        return f"/api/v1/namespaces/{namespace}/pods"

    # Waiting

    def wait(
        self, collection: str, name: str, holds: Callable[[Object | None], bool], *, seconds: float = 30.0
    ) -> Object:
        """Waits by a watch until `holds` is true of the object; returns it, {} once absent; NotSeen after `seconds`."""
        return self.api.wait_for(collection, name, holds, seconds=seconds)

    def wait_list(
        self, collection: str, holds: Callable[[list[Object]], bool], *, selector: str = "", seconds: float = 30.0
    ) -> list[Object]:
        """Waits by a watch until `holds` is true of the list; NotSeen after `seconds`."""
        return self.api.wait_for_list(collection, holds, selector=selector, seconds=seconds)

    # Nodes

    def add_node(self, name: str, labels: dict[str, str] | None = None) -> None:
        """A further node, Ready on return; pods reach only it by a label of its own and a nodeSelector."""
        install_node(self.api, node(name, self.kubelet_port, labels))

    def silence(self, name: str) -> None:
        """The node's kubelet falls silent: no heartbeats, and its pods stay as they are, whatever is asked of them."""
        self.api.merge(f"{_NODES}/{name}", {"metadata": {"labels": {SERVES: None}}})

    def answer_again(self, name: str) -> None:
        """The kubelet of a silent node is back, and does what was asked of its pods meanwhile."""
        self.api.merge(f"{_NODES}/{name}", {"metadata": {"labels": {SERVES: "true"}}})
        self.wait(_NODES, name, has("Ready"))

    def reboot(self, name: str) -> str:
        """The node comes back with another bootID, which is returned. Its pods are left to the test."""
        boot = str(uuid.uuid4())
        self.api.merge(f"{_NODES}/{name}/status", {"status": {"nodeInfo": {"bootID": boot}}})
        return boot

    def delete_node(self, name: str) -> None:
        """The Node object goes; its pods are failed by the garbage collector about 40 seconds later."""
        self.api.expect("DELETE", f"{_NODES}/{name}")

    def put_out_of_service(self, name: str) -> None:
        """The taint by which a person says that the machine is off."""
        taints = self.api.get(f"{_NODES}/{name}")["spec"].get("taints", [])
        self.api.merge(f"{_NODES}/{name}", {"spec": {"taints": [*taints, _OUT_OF_SERVICE]}})

    # Output

    def write_output(self, namespace: str, pod: str, lines: Sequence[str], *, container: str = "node") -> Path:
        """Gives a pod's container this output (for `previous` too); append to the returned file to let it go on."""
        path = self.folder / f"{namespace}-{pod}.log"
        path.write_text("".join(cri_line(line) for line in lines))
        logs = [{"containers": [container], "logsFile": str(path), "previousLogsFile": str(path), "follow": True}]
        described = {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "Logs",
            "metadata": {"name": pod, "namespace": namespace},
            "spec": {"logs": logs},
        }
        self.api.post(f"/apis/kwok.x-k8s.io/v1alpha1/namespaces/{namespace}/logs", described)
        return path


def cri_line(text: str, *, stream: str = "stdout", whole: bool = True) -> str:
    """One line as a container runtime writes it; `whole=False` is a part of a longer one."""
    return f"2026-01-01T00:00:00.000000000Z {stream} {'F' if whole else 'P'} {text}\n"
