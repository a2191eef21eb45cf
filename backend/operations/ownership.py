"""A runtime copy is made before its TrainJob and owned by it afterwards; whoever finds it unowned sets the owner:
Start's step 5, and Open for a TrainJob found after a Start whose outcome was unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dispatch_kubeflow.backend.objects import seen
from dispatch_kubeflow.backend.objects.trainjob import owner_patch
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import TRAINING_RUNTIMES

from .call import TRIES, Call, Got, outcome


@dataclass(frozen=True, slots=True)
class NotOwned:
    """Why the owner could not be set, as what the copy shows."""

    result: str
    details: Mapping[str, Any] = field(default_factory=dict)


def is_owner(metadata: seen.Metadata, uid: str) -> bool:
    """Whether a TrainJob of that uid is the owner, and the only one."""
    return bool(metadata.owner_references) and all(owner.uid == uid for owner in metadata.owner_references)


def owners(metadata: seen.Metadata) -> str:
    """The owners of an object, as an error names them."""
    return ", ".join(f"{owner.kind} {owner.name} ({owner.uid})" for owner in metadata.owner_references)


def delete_copy(call: Call, name: str, uid: str, resource_version: str) -> str | None:
    """Delete a copy as it was last seen; why it is left, where that could not be shown to have worked."""
    failure = call.delete(TRAINING_RUNTIMES, name, uid=uid, resource_version=resource_version).failure
    return None if failure is None else why_left(call, failure)


def why_left(call: Call, failure: Failure) -> str | None:
    """What a failed read or delete of a copy says of its being left; None where it is shown to be gone."""
    rule = call.judge(failure)
    return None if outcome(rule) == "absent" else f"{rule.id}: {failure.message}"


def set_owner(
    call: Call, copy_name: str, copy_uid: str, copy_version: str, name: str, uid: str
) -> Failure | NotOwned | None:
    """Make a TrainJob the owner of an unowned copy; None once it is, else why not.

    A conflict is read again and tried again, eight times, while the copy is unowned. An unanswered patch is read once:
    the owner set means done.
    """
    failure: Failure | None = None
    for _ in range(TRIES):
        reply = call.patch(TRAINING_RUNTIMES, copy_name, owner_patch(copy_uid, copy_version, name, uid))
        if reply.failure is None:
            return None
        failure = reply.failure
        result = outcome(call.judge(failure))
        if result not in ("conflict", "lost"):
            return failure
        found = call.try_get(TRAINING_RUNTIMES, copy_name, seen.Runtime)
        if isinstance(found, Failure):
            return failure if result == "lost" else found
        metadata = found.seen.metadata
        if metadata.uid != copy_uid:
            return NotOwned("other-uid", {"seen": f"a copy of uid {metadata.uid}"})
        if is_owner(metadata, uid):
            return None
        if metadata.owner_references:
            return NotOwned("owned", {"seen": f"owned by {owners(metadata)}"})
        if result == "lost":
            return failure
        copy_version = metadata.resource_version
    return failure


def unowned(found: Got[seen.Runtime]) -> bool:
    """Whether nobody owns a copy."""
    return not found.seen.metadata.owner_references
