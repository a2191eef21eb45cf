"""That a pod has ceased can often be shown only by what was seen while it lived: on which node, in which boot of it,
how it ended. `watch` keeps such notes in a ConfigMap without an owner, `<name>-notes`, so that they outlive the job.

Notes are best effort, but never wrong: they are read strictly, belong to one TrainJob by UID, and say themselves
whether they began before the gate was lifted and whether they have a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from . import names
from .names import Identity
from .resting import end_known
from .seen import ConfigMap, Node, Pod, TrainJob, Unreadable

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
KEY: Final = "notes"
MOST_BYTES: Final = 900_000

_Text = Annotated[str, Meta(max_length=300)]
_Uid = Annotated[str, Meta(min_length=1, max_length=128)]


class End(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """How a container ended, as its kubelet reported it."""

    container: _Text
    container_id: _Text
    exit_code: int | None = None
    finished_at: _Text | None = None


class PodNote(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """What was seen of one pod.

    `boot_id` was read after a container of *this pod* was seen running. `out_of_service`: the taint stood on the Node
    of that UID when the pod was being deleted. `ends` are set once the kubelet had reported all of them. `gone`: its
    DELETED event was seen; `never_bound`: and the object in it had no node.
    """

    uid: _Uid
    name: _Text
    node: _Text | None = None
    node_uid: _Text | None = None
    provider_id: _Text | None = None
    system_uuid: _Text | None = None
    boot_id: _Text | None = None
    out_of_service: bool = False
    ends: tuple[End, ...] = ()
    never_bound: bool = False
    gone: bool = False


class Notes(Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """All notes on one TrainJob.

    `from_start`: they began before its gate was lifted. `gap`: something may have been missed since. `never_opened`:
    it was seen deleted with its gate closed, suspended and of generation 1. `settled`: the generation of the TrainJob
    at which nothing could make a pod any more and every pod was noted; 0 where that is so for ever; None while pods may
    come that these notes, should their watch end now, would not know of. `under`: the UID of a JobSet that had ended,
    with all its Jobs, when every pod was noted: while that very JobSet is there, no other can make pods.
    """

    version: Literal[1]
    trainjob: _Uid
    from_start: bool = False
    gap: bool = False
    never_opened: bool = False
    settled: int | None = None
    under: _Uid | None = None
    pods: Annotated[tuple[PodNote, ...], Meta(max_length=20_000)] = ()

    @property
    def complete(self) -> bool:
        """Whether every pod the TrainJob had while they were taken is in them."""
        return self.from_start and not self.gap

    def complete_at(self, generation: int | None) -> bool:
        """Whether every pod it ever had is in them, for a TrainJob of this generation; None: it is gone."""
        return self.complete and self.settled is not None and self.settled in {0, generation}

    def complete_under(self, jobset: str | None) -> bool:
        """Whether every pod up to now is in them, where the JobSet that is there now has this UID; None: there is none.

        It says nothing of later: a failed TrainJob lets Trainer make another JobSet once this one goes.
        """
        return self.complete and self.under is not None and self.under == jobset

    def pod(self, uid: str) -> PodNote | None:
        return next((note for note in self.pods if note.uid == uid), None)

    def with_pod(self, note: PodNote) -> Notes:
        """With this note in place of any on the same pod."""
        others = tuple(each for each in self.pods if each.uid != note.uid)
        return msgspec.structs.replace(self, pods=(*others, note))

    def with_gap(self) -> Notes:
        return msgspec.structs.replace(self, gap=True)


def begin(trainjob: TrainJob, *, gate_closed: bool) -> Notes:
    """Notes on a TrainJob as it is first seen; `gate_closed` as that very object shows it."""
    return Notes(version=1, trainjob=trainjob.metadata.uid, from_start=gate_closed)


def noted(before: PodNote | None, pod: Pod, *, node: Node | None = None, deleted: bool = False) -> PodNote:
    """The note on a pod after it was seen once more. `deleted`: in its DELETED event.

    `node`: its Node, read after this state of the pod was seen; without one the note keeps what it has. The first
    boot that was noted stays, for that is the one the container was seen to run in.
    """
    note = before or PodNote(uid=pod.metadata.uid, name=_cut(pod.metadata.name) or "")
    changed: dict[str, Any] = {"node": _cut(pod.spec.node_name) or note.node}
    if node is not None and node.metadata.name == pod.spec.node_name:
        changed |= _node_seen(note, pod, node)
    if end_known(pod):
        changed["ends"] = _ends(pod)
    if deleted:
        changed["gone"] = True
        changed["never_bound"] = not pod.spec.node_name and note.node is None
    return msgspec.structs.replace(note, **changed)


def _node_seen(note: PodNote, pod: Pod, node: Node) -> dict[str, Any]:
    uid = _cut(node.metadata.uid)
    changed: dict[str, Any] = {}
    if note.node_uid is None or note.node_uid == uid:
        changed["node_uid"] = uid
        if pod.metadata.deleting and out_of_service(node):
            changed["out_of_service"] = True
        if note.boot_id is None and running(pod) and node.status.node_info.boot_id:
            changed["boot_id"] = _cut(node.status.node_info.boot_id)
            changed["provider_id"] = _cut(node.spec.provider_id)
            changed["system_uuid"] = _cut(node.status.node_info.system_uuid)
    return changed


def running(pod: Pod) -> bool:
    """Whether a container of the pod is seen running."""
    return any(status.state.running is not None for status in pod.container_statuses)


def out_of_service(node: Node) -> bool:
    """Whether somebody has declared the node out of service: a claim, not a measurement."""
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _ends(pod: Pod) -> tuple[End, ...]:
    return tuple(
        End(_cut(status.name) or "", _cut(ended.container_id) or "", ended.exit_code, _cut(ended.finished_at))
        for status in pod.container_statuses
        if (ended := status.state.terminated) is not None
    )


def _cut(text: str | None) -> Any:
    """Text of a length that a note takes; two different texts stay different up to that length."""
    return text[:300] if text else None


def encode(notes: Notes) -> dict[str, str]:
    """The ConfigMap's data. Where all pods would not fit, those not seen for longest go and a gap is noted."""
    data = msgspec.json.encode(notes)
    while len(data) > MOST_BYTES:
        kept = notes.pods[len(notes.pods) // 4 + 1 :]
        notes = msgspec.structs.replace(notes, pods=kept, gap=True)
        data = msgspec.json.encode(notes)
    return {KEY: data.decode()}


def config_map(notes: Notes, identity: Identity, *, namespace: str) -> dict[str, Any]:
    """The ConfigMap as it is created: our labels, no owner."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.notes_name(identity.name), "namespace": namespace, "labels": identity.labels},
        "data": encode(notes),
    }


def decode(data: Mapping[str, str]) -> Notes | Unreadable:
    """Notes from a ConfigMap's data. Anything not exactly of their form is unreadable, and no evidence."""
    text = data.get(KEY)
    if text is None:
        return Unreadable(f"the ConfigMap has no key {KEY}")
    if len(text) > 2 * MOST_BYTES:
        return Unreadable("the notes are longer than any that were written")
    try:
        notes = msgspec.json.decode(text, type=Notes)
    except msgspec.MsgspecError as problem:
        return Unreadable(str(problem))
    if len({note.uid for note in notes.pods}) != len(notes.pods):
        return Unreadable("two notes are on one pod")
    return notes


def of(trainjob_uid: str, config_maps: Iterable[ConfigMap]) -> Notes | None:
    """The notes on the TrainJob of this UID, if there are any that can be read; another instance's are none."""
    for each in config_maps:
        found = decode(each.data)
        if isinstance(found, Notes) and found.trainjob == trainjob_uid:
            return found
    return None
