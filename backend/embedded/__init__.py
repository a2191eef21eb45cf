"""A Kubernetes cluster in this process: an apiserver on a loopback port, and enough behind it to run a TrainJob to
its end.
"""

from __future__ import annotations

from dispatch_kubeflow.backend.embedded.clock import VirtualClock
from dispatch_kubeflow.backend.embedded.cluster import Cluster
from dispatch_kubeflow.backend.embedded.kubelet import Kubelet, ProcessKubelet, Run, Script, ScriptedKubelet

__all__ = ["Cluster", "Kubelet", "ProcessKubelet", "Run", "Script", "ScriptedKubelet", "VirtualClock"]
