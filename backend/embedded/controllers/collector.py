"""Deleting a TrainJob deletes nothing else by itself; the collector does, later, and can be stopped for good by a
webhook.

Owners are what an object's `ownerReferences` name by UID. An object whose owners are all gone is deleted; foreground
deletion waits for the dependents that block it; orphaning takes the references off first.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dispatch_kubeflow.backend.embedded.controllers.base import Controller, Propagation
from dispatch_kubeflow.backend.embedded.controllers.kinds import EVENTS, NAMESPACES
from dispatch_kubeflow.backend.embedded.controllers.view import Change, Entry

Object = dict[str, Any]

MANAGER = "kube-controller-manager"
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
# Kubernetes waits so long before it empties a namespace, for other controllers to have seen that it goes.
NAMESPACE_GRACE = 5.0


class Collector(Controller):
    """Dirty are UIDs: of objects with owners, and of owners that wait for their dependents."""

    name: ClassVar[str] = "collector"

    def handle(self, change: Change) -> None:
        """Objects with owners when they appear; the dependents of what went; what waits for its dependents."""
        if change.resource == EVENTS and change.type != "DELETED":
            return
        metadata = change.obj["metadata"]
        if change.resource == NAMESPACES:
            if "deletionTimestamp" in metadata and change.type != "DELETED":
                self.enqueue(metadata["uid"], NAMESPACE_GRACE)
            return
        if change.type == "DELETED":
            self._went(change)
            return
        finalizers = metadata.get("finalizers") or ()
        if ("deletionTimestamp" in metadata and (FOREGROUND in finalizers or ORPHAN in finalizers)) or (
            metadata.get("ownerReferences") and _owners_changed(change)
        ):
            self.enqueue(metadata["uid"])

    def _went(self, change: Change) -> None:
        for entry in self.world.view.dependents(change.obj["metadata"]["uid"]):
            self.enqueue(entry.obj["metadata"]["uid"])
        for reference in change.obj["metadata"].get("ownerReferences") or ():
            owner = self.world.view.by_uid(reference["uid"])
            if owner is not None and "deletionTimestamp" in owner.obj["metadata"]:
                self.enqueue(reference["uid"])
        if not change.obj["metadata"].get("namespace"):
            return
        home = self.world.view.get(NAMESPACES, "", change.obj["metadata"]["namespace"])
        if home is not None and "deletionTimestamp" in home["metadata"]:
            self.enqueue(home["metadata"]["uid"], NAMESPACE_GRACE)

    def reconcile(self, key: str) -> None:
        """One object: finish its own deletion if it waits for dependents, else see whether its owners still stand."""
        entry = self.world.view.by_uid(key)
        if entry is None:
            return
        metadata = entry.obj["metadata"]
        finalizers = metadata.get("finalizers") or ()
        if entry.resource == NAMESPACES:
            self._empty_namespace(entry)
        elif "deletionTimestamp" in metadata and FOREGROUND in finalizers:
            self._foreground(entry)
        elif "deletionTimestamp" in metadata and ORPHAN in finalizers:
            self._orphan(entry)
        elif "deletionTimestamp" not in metadata:
            self._judge(entry)

    def _foreground(self, entry: Entry) -> None:
        uid = entry.obj["metadata"]["uid"]
        dependents = self.world.view.dependents(uid)
        for dependent in dependents:
            if "deletionTimestamp" not in dependent.obj["metadata"]:
                self.enqueue(dependent.obj["metadata"]["uid"])
        if not any(_blocks(dependent.obj, uid) for dependent in dependents):
            self._drop_finalizer(entry, FOREGROUND)

    def _orphan(self, entry: Entry) -> None:
        uid = entry.obj["metadata"]["uid"]
        for dependent in self.world.view.dependents(uid):
            self._keep_references(dependent, lambda reference: reference["uid"] != uid)
        self._drop_finalizer(entry, ORPHAN)

    def _judge(self, entry: Entry) -> None:
        references = entry.obj["metadata"].get("ownerReferences") or ()
        owners = {reference["uid"]: self._owner(entry.obj, reference) for reference in references}
        if not owners:
            return
        solid = {uid for uid, owner in owners.items() if owner is not None and not _waits(owner.obj)}
        waiting = {uid for uid, owner in owners.items() if owner is not None and _waits(owner.obj)}
        if solid:
            if len(solid) < len(owners):
                self._keep_references(entry, lambda reference: reference["uid"] in solid)
            return
        if waiting and self.world.view.dependents(entry.obj["metadata"]["uid"]):
            self._delete(entry, "Foreground")
            return
        finalizers = entry.obj["metadata"].get("finalizers") or ()
        policy: Propagation = "Background"
        if ORPHAN in finalizers:
            policy = "Orphan"
        elif FOREGROUND in finalizers:
            policy = "Foreground"
        self._delete(entry, policy)

    def _owner(self, obj: Object, reference: Object) -> Entry | None:
        owner = self.world.view.by_uid(reference["uid"])
        if owner is None:
            return None
        home = owner.obj["metadata"].get("namespace")
        return owner if home in (None, obj["metadata"].get("namespace")) else None

    def _delete(self, entry: Entry, propagation: Propagation) -> None:
        self.world.api.delete(entry.resource, entry.obj, propagation=propagation, manager=MANAGER)

    def _drop_finalizer(self, entry: Entry, name: str) -> None:
        metadata = dict(entry.obj["metadata"])
        metadata["finalizers"] = [other for other in metadata["finalizers"] if other != name]
        self.world.api.update(entry.resource, {**entry.obj, "metadata": metadata}, MANAGER)

    def _keep_references(self, entry: Entry, keep: Any) -> None:
        metadata = dict(entry.obj["metadata"])
        kept = [reference for reference in metadata["ownerReferences"] if keep(reference)]
        if kept:
            metadata["ownerReferences"] = kept
        else:
            del metadata["ownerReferences"]
        self.world.api.update(entry.resource, {**entry.obj, "metadata": metadata}, MANAGER)

    def _empty_namespace(self, entry: Entry) -> None:
        name = entry.obj["metadata"]["name"]
        inside = [other for other in self.world.view.entries() if other.obj["metadata"].get("namespace") == name]
        for other in inside:
            if "deletionTimestamp" not in other.obj["metadata"]:
                self._delete(other, "Background")
        if not inside:
            emptied = {**entry.obj, "spec": {**entry.obj["spec"], "finalizers": []}}
            self.world.api.update(NAMESPACES, emptied, MANAGER, "finalize")


def _owners_changed(change: Change) -> bool:
    if change.old is None:
        return True
    before = change.old["metadata"].get("ownerReferences")
    return bool(before != change.obj["metadata"].get("ownerReferences"))


def _waits(obj: Object) -> bool:
    metadata = obj["metadata"]
    return "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ())


def _blocks(obj: Object, owner: str) -> bool:
    return any(
        reference["uid"] == owner and reference.get("blockOwnerDeletion")
        for reference in obj["metadata"].get("ownerReferences") or ()
    )
