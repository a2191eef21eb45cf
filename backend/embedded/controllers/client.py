"""Controllers write as requests do, webhooks and refusals included, but in process; this is their thin way to the
store.
"""

from __future__ import annotations

from typing import Any

from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.store import Propagation, Store, Write
from dispatch_kubeflow.backend.requests.resources import Resource

Object = dict[str, Any]


class StoreApi:
    """`Api` over a Store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object as the store has it, to read only; None when absent."""
        try:
            return self._store.stored(resource, namespace, name).obj
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, resource: Resource, obj: Object, manager: str) -> Object:
        """Create; what is given back is only to be read, as everything a controller is given."""
        return self._store.create(resource, obj, write=Write(manager, peeks=True))

    def update(self, resource: Resource, obj: Object, manager: str, subresource: str | None = None) -> Object:
        """Replace the object, or its status, if `metadata.resourceVersion` still holds; to be read only."""
        return self._store.update(resource, obj, subresource, write=Write(manager, peeks=True))

    def delete(
        self,
        resource: Resource,
        obj: Object,
        *,
        propagation: Propagation | None = None,
        grace: int | None = None,
        manager: str = "embedded",
    ) -> None:
        """Delete this very object (by UID); absent or another of its name: void."""
        metadata = obj["metadata"]
        try:
            self._store.delete(
                resource,
                metadata.get("namespace"),
                metadata["name"],
                uid=metadata["uid"],
                propagation=propagation,
                grace_seconds=grace,
                write=Write(manager, peeks=True),
            )
        except ApiError as error:
            if error.status not in (404, 409):
                raise
