"""Notes on a job are for its last attempt: once the next one has started, nobody asks for the earlier ones any more."""

from __future__ import annotations

from dispatch_kubeflow.backend.objects import names

from .call import Call
from .note_store import NoteStore


def forget(call: Call, name: str) -> None:
    """Delete the notes that this Backend wrote of earlier attempts of the job of a TrainJob that has just been
    started.

    Best effort, and no request where this Backend wrote none: those of others are deleted by the next watch of the
    job, or by any watch of the Backend's once they are 24 hours old.
    """
    parsed = names.parse_name(name)
    if parsed is None:
        return
    store = NoteStore(call.adapter.door, call.namespace)
    for written in call.adapter.hub.forget_below(*parsed):
        # Notes belong to one TrainJob by its UID: those that stay because this fails are evidence of nothing else.
        store.delete(names.notes_name(written.identity.name), written.uid, call.ctx)
