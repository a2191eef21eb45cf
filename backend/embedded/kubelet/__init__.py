"""The kubelets of the embedded cluster: one that runs processes, one that plays scripts."""

from __future__ import annotations

from dispatch_kubeflow.backend.embedded.kubelet.base import Kubelet, Run
from dispatch_kubeflow.backend.embedded.kubelet.processes import ProcessKubelet
from dispatch_kubeflow.backend.embedded.kubelet.scripted import Script, ScriptedKubelet

__all__ = ["Kubelet", "ProcessKubelet", "Run", "Script", "ScriptedKubelet"]
