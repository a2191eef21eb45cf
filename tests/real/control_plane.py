"""Starts the real control plane on free loopback ports in one folder, and stops all of it again.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler, Kubeflow Trainer, JobSet, kwok for the kubelets and, only
where it is asked for, Kueue: every TrainJob meets its webhooks, and looks otherwise for it. The apiserver listens on
TLS with tokens and RBAC as a served cluster would; nothing listens on anything but 127.0.0.1.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import install, programs
from .api import Api
from .certificates import Certificates, make_certificates
from .cluster import STATE, Cluster, cri_line, kubeconfig_object
from .processes import Child, free_ports, resident_megabytes

_PREFIX = "real-control-plane-"
_COMPONENTS = ("kube-controller-manager", "kube-scheduler", "trainer", "jobset", "kueue", "kwok")
_NAMED_USERS = ("alice", "bob", "carol", "nobody")
_SPARE_USERS = 200
_SERVING = Path("k8s-webhook-server") / "serving-certs"
_CUSTOM_RESOURCES = (
    "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
    "/apis/trainer.kubeflow.org/v1alpha1/trainingruntimes",
    "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes",
    "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
)
_PORTS = (
    "etcd", "etcd-peer", "apiserver", "controller-manager", "scheduler", "kubelet",
    "trainer-webhook", "trainer-health", "jobset-webhook", "jobset-health", "kueue-webhook", "kueue-health",
)  # fmt: skip


class ControlPlane:
    """One control plane, with Kueue or without. As a context manager it is stopped, and its folder removed, at the
    end.
    """

    def __init__(self, folder: Path | None = None, *, nodes: int = 2, kueue: bool = False) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix=_PREFIX))
        self.nodes = nodes
        self.kueue = kueue
        self.children: dict[str, Child] = {}
        self.seconds: dict[str, float] = {}
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Starting

    def start(self) -> Cluster:
        """Builds what is missing, starts everything, and returns when jobs can be run on it."""
        sweep()
        programs.build_missing()
        began = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "pid").write_text(str(os.getpid()))
        try:
            self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
            self._certificates = make_certificates(self.folder / "certificates")
            self._tokens = self._write_tokens()
            self._start_apiserver()
            self.seconds["apiserver"] = time.monotonic() - began
            self._start_the_rest()
        except BaseException:
            self.stop()
            raise
        self.seconds["all"] = time.monotonic() - began
        return self.cluster

    @property
    def cluster(self) -> Cluster:
        """What may be done with it while it runs."""
        return Cluster.at(self.folder)

    @property
    def _admin(self) -> Api:
        url = f"https://127.0.0.1:{self._ports['apiserver']}"
        return Api(url, self._tokens["admin"], self._certificates.authority)

    def _start_apiserver(self) -> None:
        etcd = self._child("etcd", _etcd_flags(self.folder, self._ports))
        etcd.start()
        etcd.wait_until(_answers(f"http://127.0.0.1:{self._ports['etcd']}/readyz"))
        self._child("kube-apiserver", _apiserver_flags(self.folder, self._ports, self._certificates))
        self._start_and_wait("kube-apiserver")
        self._write_state()

    def _start_the_rest(self) -> None:
        self._describe_controllers()
        for name in ("kube-controller-manager", "kube-scheduler"):
            self.children[name].start()
        api = self._admin
        install.install_crds(api, kueue=self.kueue)
        for name in ("trainer-controller-manager", "jobset", "kwok", *(["kueue"] if self.kueue else [])):
            self.children[name].start()
        bundle = self._certificates.bundle()
        if self.kueue:
            install.install_webhooks(api, "kueue", self._ports["kueue-webhook"], bundle)
        install.install_webhooks(api, "trainer-controller-manager", self._ports["trainer-webhook"], bundle)
        install.install_webhooks(api, "jobset", self._ports["jobset-webhook"], bundle)
        logs = self.folder / "output.log"
        logs.write_text(cri_line("hello"))
        install.install_kubelets(api, logs)
        for name in self.children:
            self._wait_until_ready(name)
        install.install_runtimes(api)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.cluster.add_node, [f"node-{index}" for index in range(self.nodes)]))
        api.wait_for("/api/v1/namespaces/default/serviceaccounts", "default", lambda seen: seen is not None)

    def _describe_controllers(self) -> None:
        ports, certificates = self._ports, self._certificates
        for component in _COMPONENTS:
            _write_kubeconfig(
                self.folder / f"{component}.kubeconfig", self._admin.url, self._tokens[component], certificates
            )
        self._child("kube-controller-manager", _controller_manager_flags(self.folder, ports, certificates))
        self._child("kube-scheduler", _scheduler_flags(self.folder, ports, certificates))
        self._webhook_child("trainer-controller-manager", "trainer", _trainer_configuration(ports))
        self._webhook_child("jobset", "jobset", _jobset_configuration(ports))
        if self.kueue:
            home = self._webhook_child("kueue", "kueue", _kueue_configuration(self.folder, ports, manage_all=False))
            shutil.copytree(home / _SERVING, home / "metrics-certs", dirs_exist_ok=True)
        self._child("kwok", _kwok_flags(self.folder, ports, certificates))

    def _child(self, name: str, flags: list[str], **environment: str) -> Child:
        child = Child(name, [str(programs.executable(name)), *flags], self.folder, environment)
        self.children[name] = child
        return child

    def _webhook_child(self, program: str, component: str, configuration: dict[str, Any]) -> Path:
        """A controller-runtime manager: its webhook certificate lies in a fixed place under its TMPDIR, given back."""
        home = self.folder / component
        place = home / _SERVING
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._certificates.serving, place / "tls.crt")
        shutil.copyfile(self._certificates.serving_key, place / "tls.key")
        (home / "config.json").write_text(json.dumps(configuration))
        kubeconfig = self.folder / f"{component}.kubeconfig"
        flags = [f"--config={home / 'config.json'}", f"--kubeconfig={kubeconfig}"]
        self._child(program, flags, TMPDIR=str(home))
        return home

    def manage_jobs_without_queue_name(self, managed: bool) -> None:
        """Configures Kueue so and starts it anew, as whoever changes its ConfigMap does."""
        configuration = _kueue_configuration(self.folder, self._ports, manage_all=managed)
        (self.folder / "kueue" / "config.json").write_text(json.dumps(configuration))
        self.children["kueue"].stop()
        self.start_again("kueue")

    def _start_and_wait(self, name: str) -> None:
        self.children[name].start()
        self._wait_until_ready(name)

    def _wait_until_ready(self, name: str) -> None:
        ports = self._ports
        url = {
            "etcd": f"http://127.0.0.1:{ports['etcd']}/readyz",
            "kube-apiserver": f"https://127.0.0.1:{ports['apiserver']}/readyz",
            "kube-controller-manager": f"https://127.0.0.1:{ports['controller-manager']}/healthz",
            "kube-scheduler": f"https://127.0.0.1:{ports['scheduler']}/healthz",
            "trainer-controller-manager": f"http://127.0.0.1:{ports['trainer-health']}/readyz",
            "jobset": f"http://127.0.0.1:{ports['jobset-health']}/readyz",
            "kueue": f"http://127.0.0.1:{ports['kueue-health']}/readyz",
            "kwok": f"https://127.0.0.1:{ports['kubelet']}/healthz",
        }[name]
        self.children[name].wait_until(_answers(url))

    def _write_tokens(self) -> dict[str, str]:
        users = ["admin", *_COMPONENTS, *_NAMED_USERS, *(f"user-{index:03}" for index in range(_SPARE_USERS))]
        tokens = {user: secrets.token_urlsafe(24) for user in users}
        masters = {"admin", *_COMPONENTS}
        groups = {user: "system:masters" if user in masters else "" for user in users}
        lines = [f'{token},{user},{user}-uid,"{groups[user]}"' for user, token in tokens.items()]
        path = self.folder / "tokens.csv"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return tokens

    def _write_state(self) -> None:
        state = {
            "url": self._admin.url,
            "authority": str(self._certificates.authority),
            "tokens": {user: token for user, token in self._tokens.items() if user not in _COMPONENTS},
            "kubeletPort": self._ports["kubelet"],
            "versions": programs.VERSIONS,
            "pid": os.getpid(),
        }
        path = self.folder / STATE
        path.write_text(json.dumps(state, indent=1))
        path.chmod(0o600)

    # Running and stopping

    def crash(self, name: str) -> None:
        """Kills a program outright."""
        self.children[name].kill()

    def start_again(self, name: str) -> None:
        """Starts a program that was stopped or crashed, and waits until it is ready.

        An apiserver says it is ready while it still answers 429 for custom resources: those are waited for as well.
        """
        self._start_and_wait(name)
        if name == "kube-apiserver":
            self.children[name].wait_until(self._custom_resources_are_served)

    def _custom_resources_are_served(self) -> bool:
        return all(self._admin.send("GET", path).status == 200 for path in _CUSTOM_RESOURCES)

    def memory(self) -> dict[str, float]:
        """Resident megabytes of each running program."""
        return {
            name: round(resident_megabytes(child.process.pid), 1)
            for name, child in self.children.items()
            if child.running and child.process is not None
        }

    def stop(self) -> None:
        """Stops everything, those that talk first; nothing is left running. A folder of its own making goes too."""
        for child in reversed(self.children.values()):
            if child.process is not None and child.name != "kube-apiserver":
                child.process.terminate()
        for child in reversed(self.children.values()):
            # An apiserver that is asked to stop serves its open watches for a minute: there is nothing to save here.
            child.kill() if child.name in ("kube-apiserver", "etcd") else child.stop()
        self.children = {}
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)


def sweep() -> None:
    """Removes the folders of control planes whose process is gone (the kernel has ended their programs already)."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = folder / "pid"
        if pid.exists() and not Path(f"/proc/{pid.read_text().strip()}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _answers(url: str) -> Callable[[], bool]:
    """Whether a health endpoint says 200; the certificate is not what is being asked about."""
    scheme, _, rest = url.partition("://")
    address, _, path = rest.partition("/")

    def probe() -> bool:
        connection = (
            http.client.HTTPConnection(address, timeout=2)
            if scheme == "http"
            else http.client.HTTPSConnection(address, timeout=2, context=ssl._create_unverified_context())
        )
        try:
            connection.request("GET", f"/{path}")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return probe


def _write_kubeconfig(path: Path, url: str, token: str, certificates: Certificates) -> None:
    path.write_text(json.dumps(kubeconfig_object(url, token, certificates.bundle())))
    path.chmod(0o600)


def _flags(**values: str | int) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def _etcd_flags(folder: Path, ports: dict[str, int]) -> list[str]:
    client, peer = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['etcd-peer']}"
    return [
        *_flags(name="real", data_dir=str(folder / "etcd"), listen_client_urls=client, advertise_client_urls=client),
        *_flags(listen_peer_urls=peer, initial_advertise_peer_urls=peer, initial_cluster=f"real={peer}"),
        *_flags(log_level="warn"),
        "--unsafe-no-fsync",
    ]


def _serving(port: int, certificates: Certificates) -> list[str]:
    return _flags(
        bind_address="127.0.0.1",
        secure_port=port,
        tls_cert_file=str(certificates.serving),
        tls_private_key_file=str(certificates.serving_key),
    )


def _apiserver_flags(folder: Path, ports: dict[str, int], certificates: Certificates) -> list[str]:
    return [
        *_serving(ports["apiserver"], certificates),
        *_flags(
            etcd_servers=f"http://127.0.0.1:{ports['etcd']}",
            client_ca_file=str(certificates.authority),
            token_auth_file=str(folder / "tokens.csv"),
            authorization_mode="RBAC",
            service_account_issuer="https://kubernetes.default.svc",
            service_account_key_file=str(certificates.accounts_public),
            service_account_signing_key_file=str(certificates.accounts_key),
            service_cluster_ip_range="10.0.0.0/24",
            endpoint_reconciler_type="none",
            kubelet_preferred_address_types="InternalIP",
            # A silent node shows in seconds instead of minutes; nothing else depends on these two.
            default_not_ready_toleration_seconds=2,
            default_unreachable_toleration_seconds=2,
        ),
    ]


def _controller_manager_flags(folder: Path, ports: dict[str, int], certificates: Certificates) -> list[str]:
    return [
        *_serving(ports["controller-manager"], certificates),
        *_flags(
            kubeconfig=str(folder / "kube-controller-manager.kubeconfig"),
            controllers="*,-nodeipam,-route,-service",
            leader_elect="false",
            root_ca_file=str(certificates.authority),
            service_account_private_key_file=str(certificates.accounts_key),
            node_monitor_period="1s",
            node_monitor_grace_period="12s",
        ),
    ]


def _scheduler_flags(folder: Path, ports: dict[str, int], certificates: Certificates) -> list[str]:
    return [
        *_serving(ports["scheduler"], certificates),
        *_flags(kubeconfig=str(folder / "kube-scheduler.kubeconfig"), leader_elect="false"),
    ]


def _kwok_flags(folder: Path, ports: dict[str, int], certificates: Certificates) -> list[str]:
    return _flags(
        kubeconfig=str(folder / "kwok.kubeconfig"),
        manage_nodes_with_label_selector=f"{install.SERVES}=true",
        enable_crds="Stage,Logs,ClusterLogs",
        server_address=f"127.0.0.1:{ports['kubelet']}",
        node_ip="127.0.0.1",
        node_port=ports["kubelet"],
        tls_cert_file=str(certificates.serving),
        tls_private_key_file=str(certificates.serving_key),
        node_lease_duration_seconds=8,
    )


def _trainer_configuration(ports: dict[str, int]) -> dict[str, Any]:
    return {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['trainer-health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": ports["trainer-webhook"]},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
    }


def _jobset_configuration(ports: dict[str, int]) -> dict[str, Any]:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['jobset-health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": ports["jobset-webhook"]},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def _kueue_configuration(folder: Path, ports: dict[str, int], *, manage_all: bool) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['kueue-health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": "127.0.0.1",
            "port": ports["kueue-webhook"],
            "certDir": str(folder.resolve() / "kueue" / _SERVING),
        },
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "featureGates": {"VisibilityOnDemand": False},
        "manageJobsWithoutQueueName": manage_all,
        "integrations": {"frameworks": ["trainer.kubeflow.org/trainjob"]},
    }
