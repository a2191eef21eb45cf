"""A Kubernetes cluster in this process: an apiserver on a loopback port, and enough behind it to run a TrainJob to
its end.
"""

from __future__ import annotations

try:
    from dispatch_kubeflow.backend.embedded.clock import VirtualClock
    from dispatch_kubeflow.backend.embedded.cluster import Cluster
    from dispatch_kubeflow.backend.embedded.controllers.kueue.configuration import KueueConfiguration
    from dispatch_kubeflow.backend.embedded.kubelet import Kubelet, ProcessKubelet, Run, Script, ScriptedKubelet
except ModuleNotFoundError as missing:
    if (missing.name or "").startswith("dispatch_kubeflow"):
        raise
    raise ModuleNotFoundError(
        f"the embedded cluster needs the extra `embedded`: {missing.name} is not installed", name=missing.name
    ) from missing

__all__ = [
    "Cluster",
    "Kubelet",
    "KueueConfiguration",
    "ProcessKubelet",
    "Run",
    "Script",
    "ScriptedKubelet",
    "VirtualClock",
]
