"""Controllers ask "whose is this" far more often than anything changes, so one informer cache with indexes serves them
all.

Objects in it are the store's own: they are read, never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.kinds import PODS
from dispatch_kubeflow.backend.requests.resources import Resource

Object = dict[str, Any]
Kind = tuple[str, str]
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """One event as the controllers see it. `obj` is the object after it (for `DELETED` the last state), `old` the
    one before.
    """

    type: str
    resource: Resource
    obj: Object
    old: Object | None

    @property
    def place(self) -> Place:
        """Namespace (empty where there is none) and name."""
        return place_of(self.obj)


def place_of(obj: Object) -> Place:
    """Namespace (empty where there is none) and name."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def controller_of(obj: Object) -> Object | None:
    """The ownerReference that controls the object, or None."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Object = reference
            return found
    return None


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of the view with its resource."""

    resource: Resource
    obj: Object


class View:
    """Every object of the cluster as of the last event taken, by place, by UID, by owner and (pods) by Node."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, dict[Place, Object]] = {}
        self._by_uid: dict[str, Entry] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._on_node: dict[str, dict[str, None]] = {}

    def apply(self, change: Change) -> None:
        """Take one event in."""
        place, uid = change.place, change.obj["metadata"]["uid"]
        objects = self._kinds.setdefault((change.resource.group, change.resource.plural), {})
        before = self._by_uid.get(uid)
        if before is not None:
            self._unindex(uid, before.obj)
        if change.type == "DELETED":
            objects.pop(place, None)
            self._by_uid.pop(uid, None)
            return
        objects[place] = change.obj
        self._by_uid[uid] = Entry(change.resource, change.obj)
        for reference in change.obj["metadata"].get("ownerReferences") or ():
            self._dependents.setdefault(reference["uid"], {})[uid] = None
        if change.resource is PODS or change.resource == PODS:
            node = change.obj["spec"].get("nodeName")
            if node:
                self._on_node.setdefault(node, {})[uid] = None

    def _unindex(self, uid: str, obj: Object) -> None:
        for reference in obj["metadata"].get("ownerReferences") or ():
            _forget(self._dependents, reference["uid"], uid)
        node = (obj.get("spec") or {}).get("nodeName")
        if isinstance(node, str):
            _forget(self._on_node, node, uid)

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object of that name, or None."""
        return self._kinds.get((resource.group, resource.plural), {}).get((namespace, name))

    def all(self, resource: Resource) -> list[Object]:
        """All objects of a resource, in the order they appeared."""
        return list(self._kinds.get((resource.group, resource.plural), {}).values())

    def by_uid(self, uid: str) -> Entry | None:
        """The object of that UID, or None."""
        return self._by_uid.get(uid)

    def entries(self) -> Iterator[Entry]:
        """Every object there is."""
        return iter(list(self._by_uid.values()))

    def dependents(self, uid: str) -> list[Entry]:
        """The objects that name this UID as an owner."""
        return [self._by_uid[dependent] for dependent in self._dependents.get(uid, ())]

    def controlled(self, uid: str, resource: Resource) -> list[Object]:
        """The objects of a resource that the object of this UID controls."""
        found: list[Object] = []
        for entry in self.dependents(uid):
            reference = controller_of(entry.obj)
            if entry.resource == resource and reference is not None and reference["uid"] == uid:
                found.append(entry.obj)
        return found

    def pods_on(self, node: str) -> list[Object]:
        """The pods bound to a Node."""
        return [self._by_uid[uid].obj for uid in self._on_node.get(node, ())]


def _forget(index: dict[str, dict[str, None]], key: str, uid: str) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(uid, None)
        if not members:
            del index[key]
