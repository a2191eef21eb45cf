"""Which lists merge by key, which are sets and which are one value: the part of a schema that ownership needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatch_kubeflow.backend.embedded.schemas.structs import resolved

ROOT_UNMANAGED = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "generation",
                "managedFields",
                "resourceVersion",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
            )
        ),
    }
)
"""What no manager owns."""

_METADATA: Mapping[str, Any] = {
    "properties": {
        "ownerReferences": {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {"x-kubernetes-map-type": "atomic"},
        },
        "finalizers": {"x-kubernetes-list-type": "set"},
    }
}


class Shape:
    """A node of a schema as far as merging goes; what it does not know is granular as a map and atomic as a list."""

    __slots__ = ("_node",)

    def __init__(self, node: Mapping[str, Any]) -> None:
        self._node = resolved(node)

    def field(self, name: str) -> Shape:
        """The shape of a member of an object or a map."""
        properties = self._node.get("properties") or {}
        child = properties.get(name) or self._node.get("additionalProperties")
        return Shape(child if isinstance(child, Mapping) else {})

    @property
    def item(self) -> Shape:
        """The shape of an item of a list."""
        child = self._node.get("items")
        return Shape(child if isinstance(child, Mapping) else {})

    @property
    def atomic(self) -> bool:
        """Whether an object is one value."""
        return self._node.get("x-kubernetes-map-type") == "atomic"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that tell the items of a list-map apart; empty for any other list."""
        if self._node.get("x-kubernetes-list-type") == "map":
            return tuple(self._node["x-kubernetes-list-map-keys"])
        return ()

    @property
    def is_set(self) -> bool:
        """Whether a list is a set of scalars."""
        return self._node.get("x-kubernetes-list-type") == "set"


def shape_of(schema: object | None) -> Shape:
    """The shape of a kind, from its schema."""
    structure = getattr(schema, "structure", None) or {}
    properties = {**(structure.get("properties") or {}), "metadata": _METADATA}
    return Shape({**structure, "properties": properties})
