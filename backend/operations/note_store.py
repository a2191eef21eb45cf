"""Notes lie in ConfigMaps, several watchers may keep them of one job, and none may undo what another one knows: so
they are written over what was read, by uid and resourceVersion, and joined where somebody else was quicker.

Best effort throughout: a failure here is a value that says why, and changes no call's result.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dispatch_kubeflow.backend.objects import names, notes, seen
from dispatch_kubeflow.backend.objects.names import Identity
from dispatch_kubeflow.backend.objects.notes import Notes, PodNote
from dispatch_kubeflow.backend.requests import Door, Failure, Reply, Request
from dispatch_kubeflow.backend.requests.resources import CONFIG_MAPS, Resource
from dispatch_kubeflow.machine.context import Context

from .call import MERGE_PATCH

T = TypeVar("T", bound=Struct)
OPERATION = "watch"
WRITTEN = "written"
"""Key of the ConfigMap beside the notes: when they were last written."""
KEPT_FOR = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Stored:
    """Notes as a ConfigMap holds them; `notes` is None where it holds none of that TrainJob."""

    uid: str
    resource_version: str
    notes: Notes | None


class NoteStore:
    """The ConfigMaps of one Backend's notes, and whatever else is read for them."""

    def __init__(self, door: Door, namespace: str) -> None:
        self._door = door
        self._namespace = namespace

    def get(self, resource: Resource, name: str, kind: type[T], ctx: Context) -> T | Failure | None:
        """One object; None where it is absent."""
        request = Request("GET", resource, namespace=self._namespace if resource.namespaced else None, name=name)
        reply = self._door.send(request, ctx, operation=OPERATION)
        if reply.failure is not None:
            return None if absent(reply.failure) else reply.failure
        found = seen.read(reply.object or {}, kind)
        return found if isinstance(found, kind) else None

    def list(self, resource: Resource, selector: str, kind: type[T], ctx: Context) -> tuple[T, ...] | Failure:
        """What the selector picks in the Backend's namespace."""
        reply = self._door.list(
            resource, ctx, operation=OPERATION, namespace=self._namespace, selector=selector, type=kind
        )
        return reply.items if reply.failure is None else reply.failure

    def stored(self, identity: Identity, trainjob_uid: str, ctx: Context) -> Stored | Failure | None:
        """What is stored of a TrainJob; None where there is no such ConfigMap."""
        found = self.get(CONFIG_MAPS, names.notes_name(identity.name), seen.ConfigMap, ctx)
        if found is None or isinstance(found, Failure):
            return found
        return Stored(found.metadata.uid, found.metadata.resource_version, notes.of(trainjob_uid, [found]))

    def write(
        self, identity: Identity, written: Notes, over: Stored | None, now: datetime, ctx: Context
    ) -> Stored | Failure:
        """Write notes over what was stored, or anew."""
        body = notes.config_map(written, identity, namespace=self._namespace)
        body["data"][WRITTEN] = now.isoformat()
        if over is None:
            reply = self._send("POST", None, body, ctx)
        else:
            metadata = {"uid": over.uid, "resourceVersion": over.resource_version}
            patch = {"metadata": metadata, "data": body["data"]}
            reply = self._send("PATCH", names.notes_name(identity.name), patch, ctx)
        if reply.failure is not None:
            return reply.failure
        metadata = (reply.object or {}).get("metadata", {})
        return Stored(str(metadata.get("uid", "")), str(metadata.get("resourceVersion", "")), written)

    def delete(self, name: str, uid: str, ctx: Context) -> Failure | None:
        """Delete a ConfigMap of notes by its uid."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        return self._send("DELETE", name, body, ctx).failure

    def sweep(self, selector: str, now: datetime, ctx: Context, *, below: dict[str, int], keep: set[str]) -> None:
        """Delete the notes that nobody will ask for: written longer ago than they are kept, or of an attempt below the
        one that stands here for its job. `keep`: names of those that stay whatever their age.
        """
        found = self.list(CONFIG_MAPS, selector, seen.ConfigMap, ctx)
        for each in () if isinstance(found, Failure) else found:
            identity = names.identity(each.metadata.labels)
            if identity is None or each.metadata.name != names.notes_name(identity.name):
                continue
            old = each.metadata.name not in keep and _old(each, now)
            if identity.attempt < below.get(identity.job, 0) or old:
                self.delete(each.metadata.name, each.metadata.uid, ctx)

    def _send(self, method: str, name: str | None, body: dict[str, Any], ctx: Context) -> Reply:
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        request = Request(
            method,
            CONFIG_MAPS,
            namespace=self._namespace,
            name=name,
            body=body,
            content_type=content_type,
            intent="write",
            expect="delete" if method == "DELETE" else "object",
        )
        return self._door.send(request, ctx, operation=OPERATION)


def absent(failure: Failure) -> bool:
    """Whether the answer shows that the object is not there."""
    return failure.facts.get("result") == "404" and failure.facts.get("absence") == "named"


def with_pods_of(ours: Notes, theirs: Notes | None) -> Notes:
    """Notes with what another watcher of that TrainJob saw of its pods besides."""
    if theirs is None:
        return ours
    pods = {note.uid: note for note in theirs.pods}
    for note in ours.pods:
        pods[note.uid] = _richer(note, pods.get(note.uid))
    never_opened = ours.never_opened or theirs.never_opened
    return msgspec.structs.replace(ours, pods=tuple(pods.values()), never_opened=never_opened)


def joined(ours: Notes, theirs: Notes | None, generation: int | None) -> Notes:
    """What two watchers know together of a TrainJob that is of this generation now, or gone.

    Theirs are taken for complete only if they were settled for it as it stands: that they were without a gap when
    they were written says nothing of what came after.
    """
    both = with_pods_of(ours, theirs)
    if theirs is None or ours.complete or not theirs.complete_at(generation):
        return both
    return msgspec.structs.replace(both, from_start=True, gap=False, settled=theirs.settled)


def _richer(ours: PodNote, theirs: PodNote | None) -> PodNote:
    """One pod's note with what the other watcher saw of it besides. A boot is taken over whole, with its machine."""
    if theirs is None or ours == theirs:
        return ours
    changed: dict[str, Any] = {
        "node": ours.node or theirs.node,
        "ends": ours.ends or theirs.ends,
        "out_of_service": ours.out_of_service or theirs.out_of_service,
        "gone": ours.gone or theirs.gone,
    }
    changed["never_bound"] = (ours.never_bound or theirs.never_bound) and changed["node"] is None
    if ours.boot_id is None and (ours.node_uid is None or ours.node_uid == theirs.node_uid):
        for field in ("node_uid", "boot_id", "provider_id", "system_uuid"):
            changed[field] = getattr(theirs, field)
    return msgspec.structs.replace(ours, **changed)


def _old(config_map: seen.ConfigMap, now: datetime) -> bool:
    written = seen.moment(config_map.data.get(WRITTEN)) or config_map.metadata.created
    return written is not None and now - written > KEPT_FOR
