"""The embedded cluster's kubelets, steered as those of the real control plane are: by a pod's own annotations.

What the annotations mean is said in tests/real/stages/pods.yaml; a test that sets them cannot tell the two apart.
"""

from __future__ import annotations

import re
from typing import Any

from dispatch_kubeflow.backend.embedded.kubelet import Script, ScriptedKubelet
from dispatch_kubeflow.backend.embedded.kubelet.base import Sandbox
from dispatch_kubeflow.backend.embedded.kubelet.status import ContainerState

Object = dict[str, Any]
_PREFIX = "kubelet.test/"
_INDEX = "batch.kubernetes.io/job-completion-index"
_DURATION = re.compile(r"(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:(\d+)ms)?")


def seconds(text: str) -> float:
    """A duration as Go writes it: `3s`, `200ms`, `1m30s`."""
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise ValueError(f"no duration: {text!r}")
    minutes, whole, thousandths = found.groups()
    return 60 * float(minutes or 0) + float(whole or 0) + float(thousandths or 0) / 1000


def by_annotations(pod: Object, _container: str) -> Script:
    """The script that a pod's annotations describe."""
    annotations = pod["metadata"].get("annotations") or {}
    index = annotations.get(_INDEX, "")

    def said(name: str, default: str) -> str:
        general = annotations.get(_PREFIX + name, default)
        return str(annotations.get(f"{_PREFIX}{name}.{index}", general))

    reason, runs, stops = said("waits", ""), said("runs", "1s"), said("stops", "200ms")
    return Script(
        run=None if runs == "forever" else seconds(runs),
        exit_code=int(said("exit", "0")),
        reason=said("reason", ""),
        start_after=seconds(said("starts", "0s")),
        waiting=(reason, f"the container cannot start: {reason}") if reason else None,
        stop_after=None if stops == "never" else seconds(stops),
        stop_exit=int(said("stopped", "143")),
        hang=stops == "never",
    )


class AnnotatedKubelet(ScriptedKubelet):
    """Plays what a pod's annotations say, and goes on as they say when they are changed while it lives."""

    def __init__(self) -> None:
        super().__init__(by_annotations)

    def reconcile(self, key: str) -> None:
        """Look at the annotations again first."""
        sandbox, entry = self.sandbox(key), self.world.view.by_uid(key)
        if sandbox is not None and entry is not None and self.silent_since(sandbox.node) is None:
            for container in sandbox.containers:
                self._follow(sandbox, container, by_annotations(entry.obj, container.name))
        super().reconcile(key)

    def _follow(self, sandbox: Sandbox, container: ContainerState, script: Script) -> None:
        place = (sandbox.uid, container.name)
        if not container.running or self._scripts.get(place) == script:
            return
        self._scripts[place] = script
        for timer in self._timers.pop(place, ()):
            timer.cancel()
        if sandbox.stopping:
            self.signal(sandbox, container)
        elif script.run is not None:
            self._after(sandbox, container, script.run, lambda: self._end(sandbox, container))

    def say(self, uid: str, container: str, text: str) -> None:
        """A running container writes a line."""
        self._write(self._logs[uid, container], text)
