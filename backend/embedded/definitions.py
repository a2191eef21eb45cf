"""Installed CustomResourceDefinitions become served kinds, as the real apiserver's extension part makes them."""

from __future__ import annotations

from typing import Any

from dispatch_kubeflow.backend.embedded.crds import definitions
from dispatch_kubeflow.backend.embedded.history import Event
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.schemas import StructuralSchema
from dispatch_kubeflow.backend.embedded.store import Store
from dispatch_kubeflow.backend.requests.resources import Resource

Object = dict[str, Any]

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


class Definitions:
    """Follows the definitions stored and serves what they define, in their storage version.

    A version that is not the storage version is not served: there is no conversion here, and a wrong answer would be
    worse than none. `served`: what the store holds by now is served already.
    """

    def __init__(self, store: Store, *, served: bool = False) -> None:
        self._store = store
        self._events = store.subscribe(DEFINITIONS, replay=not served, wake=self._follow)
        self._follow()

    def install(self, *releases: str) -> None:
        """Create the definitions of releases whose data the package holds, e.g. `jobset-v0.12.0`."""
        for release in releases:
            for definition in definitions(release):
                self._store.create(DEFINITIONS, definition)

    def _follow(self) -> None:
        # The first call comes from within `subscribe`, before the queue has a name.
        events = getattr(self, "_events", None)
        for event in events.drain() if events is not None else ():
            self._took_effect(event)

    def _took_effect(self, event: Event) -> None:
        kind = kind_of(event.peek)
        if event.type != "DELETED":
            self._store.install(kind)
            return
        for state in self._store.states(kind.resource):
            self._store.delete(kind.resource, state.place[0], state.place[1])
        self._store.uninstall(kind.resource)


def kind_of(definition: Object) -> Kind:
    """The kind a definition defines."""
    spec = definition["spec"]
    names = spec["names"]
    version = next(item for item in spec["versions"] if item["storage"])
    structure = (version.get("schema") or {}).get("openAPIV3Schema")
    resource = Resource(spec["group"], version["name"], names["plural"], names["kind"], spec["scope"] == "Namespaced")
    return Kind(
        resource,
        has_status="status" in (version.get("subresources") or {}),
        schema=None if structure is None else StructuralSchema(structure),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        columns=version.get("additionalPrinterColumns") or (),
    )
