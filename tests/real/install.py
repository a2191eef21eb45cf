"""Puts the CRDs, webhooks, runtimes, stages and nodes into a control plane that has just come up."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import ruamel.yaml

from . import programs
from .api import YAML, Api, NotSeen, Object, has

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_STAGES = "/apis/kwok.x-k8s.io/v1alpha1/stages"
_CLUSTER_LOGS = "/apis/kwok.x-k8s.io/v1alpha1/clusterlogs"
_RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
SERVES = "kubelet.test/serves"
# The names that each project's own manifests give to these objects once they are assembled.
_WEBHOOK_NAMES = {
    ("trainer-controller-manager", "Mutating"): "defaulter.trainer.kubeflow.org",
    ("trainer-controller-manager", "Validating"): "validator.trainer.kubeflow.org",
    ("jobset", "Mutating"): "jobset-mutating-webhook-configuration",
    ("jobset", "Validating"): "jobset-validating-webhook-configuration",
    ("kueue", "Mutating"): "kueue-mutating-webhook-configuration",
    ("kueue", "Validating"): "kueue-validating-webhook-configuration",
}
# Of Kueue's webhooks those of its own kinds and of TrainJobs; the other kinds are not given to it.
_KUEUES = ("trainjob", "workload", "clusterqueue", "resourceflavor", "cohort")
_EXEMPT = "trainer.kubeflow.org/webhook-validation"
_KWOK_KINDS = ("stages", "logs", "clusterlogs")


def documents(path: Path) -> Iterator[Object]:
    """The objects of a YAML file."""
    return (each for each in ruamel.yaml.YAML(typ="safe", pure=True).load_all(path.read_text()) if each)


def _crd_files(*, kueue: bool) -> Iterator[Path]:
    yield from sorted((programs.manifests("trainer-controller-manager") / "manifests/base/crds").glob("trainer.*.yaml"))
    yield from sorted((programs.manifests("jobset") / "config/components/crd/bases").glob("*.yaml"))
    bases = programs.manifests("kwok") / "kustomize/crd/bases"
    yield from (bases / f"kwok.x-k8s.io_{kind}.yaml" for kind in _KWOK_KINDS)
    if kueue:
        yield from sorted((programs.manifests("kueue") / "config/components/crd/bases").glob("*.yaml"))


def install_crds(api: Api, *, kueue: bool) -> None:
    """Creates the CRDs and waits until they are served. The files go as they are: the apiserver reads YAML."""
    files = _crd_files(kueue=kueue)
    names = [api.post(_CRDS, path.read_text(), content_type=YAML)["metadata"]["name"] for path in files]
    for name in names:
        _wait_until_discovered(api, api.wait_for(_CRDS, name, has("Established"))["spec"])


def _wait_until_discovered(api: Api, spec: Object) -> None:
    """Discovery is a little later than `Established`, and a program that starts in between ends at once."""
    limit = time.monotonic() + 30.0
    for version in (each["name"] for each in spec["versions"] if each["served"]):
        path = f"/apis/{spec['group']}/{version}"
        while not any(each["name"] == spec["names"]["plural"] for each in (api.find(path) or {}).get("resources", ())):
            if time.monotonic() > limit:
                raise NotSeen(f"{path} does not list {spec['names']['plural']} after 30 s")
            time.sleep(0.05)


def install_webhooks(api: Api, program: str, port: int, bundle: str) -> None:
    """Creates a program's webhook configurations, turned to where it listens instead of to a Service."""
    folder = {
        "trainer-controller-manager": "manifests/base/webhook",
        "jobset": "config/components/webhook",
        "kueue": "config/components/webhook",
    }[program]
    for configuration in documents(programs.manifests(program) / folder / "manifests.yaml"):
        sort = configuration["kind"].removesuffix("WebhookConfiguration")
        configuration["metadata"]["name"] = _WEBHOOK_NAMES[program, sort]
        if program == "kueue":
            kept = [each for each in configuration["webhooks"] if each["name"][1:].partition(".")[0] in _KUEUES]
            configuration["webhooks"] = kept
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            if webhook["name"].endswith("trainingruntime.trainer.kubeflow.org"):
                exempt = {"key": _EXEMPT, "operator": "NotIn", "values": ["disabled"]}
                webhook["objectSelector"] = {"matchExpressions": [exempt]}
        api.post(f"{_WEBHOOKS}/{configuration['kind'].lower()}s", configuration)


def install_runtimes(api: Api) -> None:
    """Creates the runtimes that Trainer ships, with the label that its installation puts on them."""
    folder = programs.manifests("trainer-controller-manager") / "manifests/base/runtimes"
    for path in sorted(folder.glob("*_distributed.yaml")):
        for runtime in documents(path):
            runtime["metadata"].setdefault("labels", {})[_EXEMPT] = "disabled"
            api.post(_RUNTIMES, runtime)


def install_kubelets(api: Api, logs_file: Path) -> None:
    """Creates the stages that kwok plays, and what it answers to pods/log for every container."""
    for path in sorted((programs.HERE / "stages").glob("*.yaml")):
        for stage in documents(path):
            api.post(_STAGES, stage)
    logs = [{"logsFile": str(logs_file), "previousLogsFile": str(logs_file), "follow": True}]
    cluster_logs = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": "every-container"},
        "spec": {"logs": logs},
    }
    api.post(_CLUSTER_LOGS, cluster_logs)


def node(name: str, kubelet_port: int, labels: dict[str, str] | None = None) -> Object:
    """A node as its kubelet would register it, served by kwok."""
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "1100", "nvidia.com/gpu": "8", "ephemeral-storage": "1Ti"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", SERVES: "true", **(labels or {})},
        },
        "spec": {"providerID": f"real-test://{name}/{uuid.uuid4()}"},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
            "allocatable": capacity,
            "capacity": capacity,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": str(uuid.uuid4()),
                "containerRuntimeVersion": "containerd://2.2.0",
                "kernelVersion": "6.12.0",
                "kubeProxyVersion": "",
                "kubeletVersion": f"v{programs.KUBERNETES_VERSION}",
                "machineID": uuid.uuid4().hex,
                "operatingSystem": "linux",
                "osImage": "none",
                "systemUUID": str(uuid.uuid4()),
            },
        },
    }


def install_node(api: Api, described: Object) -> None:
    """Creates a node and waits until kwok has made it Ready and the taint of a new node is off."""
    api.post("/api/v1/nodes", described)

    def usable(seen: Object | None) -> bool:
        return has("Ready")(seen) and not (seen or {}).get("spec", {}).get("taints")

    api.wait_for("/api/v1/nodes", described["metadata"]["name"], usable)
