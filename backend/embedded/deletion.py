"""How a delete ends: at once, later by grace, or when finalizers are gone. The garbage collector's part is not here.

The order of the checks is the apiserver's own (`BeforeDelete`, then the update that marks, then the removal).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dispatch_kubeflow.backend.embedded.errors import conflict

if TYPE_CHECKING:
    from dispatch_kubeflow.backend.embedded.kinds import Kind

Object = dict[str, Any]

ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)
_COLLECTOR = ("orphan", "foregroundDeletion")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a delete asks for beside the name."""

    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`pending`: graceful deletion goes on as it was. `marked`: the object to write first. `gone`: then remove it."""

    pending: bool = False
    marked: Object | None = None
    gone: bool = True


def plan(kind: Kind, obj: Object, asked: Asked, now: datetime) -> Plan:
    """What a delete of this object does; 409 where a precondition does not hold."""
    _preconditions(kind, obj, asked)
    meta: Object = dict(obj["metadata"])
    grace = None if asked.grace_seconds is None else (asked.grace_seconds if asked.grace_seconds >= 0 else 1)
    graceful = False
    if kind.graceful:
        begun = "deletionTimestamp" in meta
        left = meta.get("deletionGracePeriodSeconds")
        if begun and left:
            if grace is None or grace >= left:
                return Plan(pending=True)
            _shorten(meta, left, grace, now)
            graceful, grace = True, meta["deletionGracePeriodSeconds"]
        elif not begun:
            grace = _pod_grace(obj, grace)
            _mark(meta, now + timedelta(seconds=grace), grace)
            graceful = True
    finalizers = _finalizers(kind, meta.get("finalizers") or [], asked.propagation)
    changed = finalizers != (meta.get("finalizers") or [])
    if changed:
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            del meta["finalizers"]
    kept = bool(finalizers) or holds_content(kind, obj)
    if not graceful and not kept and not changed:
        return Plan()
    if not graceful and kept:
        _mark_deleting(meta, now)
    new = {**obj, "metadata": meta}
    if kind.resource.kind == "Namespace":
        meta.pop("deletionGracePeriodSeconds", None)
        new["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return Plan(marked=new, gone=not kept and not (graceful and grace))


def holds_content(kind: Kind, obj: Object) -> bool:
    """Whether it is a namespace whose content has not been taken away: a controller says so by its `finalize`."""
    return kind.resource.kind == "Namespace" and bool((obj.get("spec") or {}).get("finalizers"))


def is_over(kind: Kind, meta: Object) -> bool:
    """Whether nothing but finalizers keeps an object of this metadata. A namespace has no grace period."""
    if kind.resource.kind == "Namespace":
        return "deletionTimestamp" in meta
    return meta.get("deletionGracePeriodSeconds") == 0


def _preconditions(kind: Kind, obj: Object, asked: Asked) -> None:
    meta = obj["metadata"]
    if kind.resource.kind == "Namespace":
        _namespace_preconditions(kind, meta, asked)
        return
    if asked.uid is not None and asked.uid != meta["uid"]:
        text = (
            f"the UID in the precondition ({asked.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
    elif asked.resource_version is not None and asked.resource_version != meta["resourceVersion"]:
        text = (
            f"the ResourceVersion in the precondition ({asked.resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
    else:
        return
    # The real answer names the kind here, where all others name the plural.
    raise conflict(kind.resource.group, kind.resource.kind, meta["name"], text)


def _namespace_preconditions(kind: Kind, meta: Object, asked: Asked) -> None:
    """A namespace's deletion is a code of its own, with words of its own."""
    for name, wanted, found in (
        ("UID", asked.uid, meta["uid"]),
        ("ResourceVersion", asked.resource_version, meta["resourceVersion"]),
    ):
        if wanted is not None and wanted != found:
            text = f"Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {found}"
            raise conflict(kind.resource.group, kind.resource.plural, meta["name"], text)


def _pod_grace(obj: Object, asked: int | None) -> int:
    spec, phase = obj.get("spec") or {}, (obj.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    period = spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked
    return int(period) if period >= 0 else 1


def _shorten(meta: Object, left: int, grace: int, now: datetime) -> None:
    ends = _parsed(meta["deletionTimestamp"]) - timedelta(seconds=left) + timedelta(seconds=grace)
    if ends < now:
        ends, grace = now, min(grace, 1)
    meta["deletionTimestamp"] = _stamp(ends)
    meta["deletionGracePeriodSeconds"] = grace


def _mark(meta: Object, ends: datetime, grace: int) -> None:
    meta["deletionTimestamp"] = _stamp(ends)
    meta["deletionGracePeriodSeconds"] = grace
    if meta.get("generation"):
        meta["generation"] += 1


def _mark_deleting(meta: Object, now: datetime) -> None:
    if meta.get("deletionGracePeriodSeconds") is None and meta.get("generation"):
        meta["generation"] += 1
    if "deletionTimestamp" not in meta or _parsed(meta["deletionTimestamp"]) > now:
        meta["deletionTimestamp"] = _stamp(now)
    meta["deletionGracePeriodSeconds"] = 0


def _finalizers(kind: Kind, present: list[str], propagation: str | None) -> list[str]:
    if propagation is not None:
        wanted = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}.get(propagation)
    else:
        wanted = next((name for name in _COLLECTOR if name in present), None)
        if wanted is None and kind.orphans_by_default:
            wanted = "orphan"
    if wanted in present and not any(name in present for name in _COLLECTOR if name != wanted):
        return present
    kept = [name for name in present if name not in _COLLECTOR]
    if wanted is not None:
        kept.append(wanted)
    return kept


def _parsed(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
