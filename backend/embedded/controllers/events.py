"""Some endings leave no condition, only an event; they are written as Kubernetes' recorder writes them, repeats
counted.
"""

from __future__ import annotations

from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.base import World
from dispatch_kubeflow.backend.embedded.controllers.kinds import EVENTS
from dispatch_kubeflow.backend.embedded.errors import ApiError

Object = dict[str, Any]


class Recorder:
    """Writes events of one component."""

    def __init__(self, world: World, component: str) -> None:
        self._world = world
        self._component = component
        self._known: dict[tuple[str, str, str, str], str] = {}

    def event(self, obj: Object, kind: str, reason: str, message: str) -> None:
        """Record `reason` about `obj`; `kind` is `Normal` or `Warning`. The same again raises the count."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "default")
        key = (metadata["uid"], kind, reason, message)
        earlier = self._known.get(key)
        now = self._world.now()
        if earlier is not None:
            known = self._world.api.get(EVENTS, namespace, earlier)
            if known is not None:
                counted = {**known, "count": known["count"] + 1, "lastTimestamp": now}
                self._world.api.update(EVENTS, counted, self._component)
                return
        self._known[key] = self._create(obj, namespace, kind, reason, message, now)

    def _create(self, obj: Object, namespace: str, kind: str, reason: str, message: str, now: str) -> str:
        metadata = obj["metadata"]
        name = f"{metadata['name']}.{self._world.chance.getrandbits(64):016x}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": obj["apiVersion"],
                "kind": obj["kind"],
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "resourceVersion": metadata["resourceVersion"],
                "uid": metadata["uid"],
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "count": 1,
            "eventTime": None,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "reportingComponent": self._component,
            "reportingInstance": "",
            "source": {"component": self._component},
        }
        try:
            self._world.api.create(EVENTS, event, self._component)
        except ApiError as error:
            # A namespace that is going away takes no events; Kubernetes' recorder drops them too.
            if error.status not in (403, 404):
                raise
        return name
