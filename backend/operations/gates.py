"""A Backend that may not write should say so before it tries, and one that may should not ask for ever: so the write
gates are looked at once, and a missing one again at most once a minute, by a call that would write.

A *write gate* is something without which a job could be started and then not be stopped, held or opened: a permission
or, in kueue mode, an object on which gate and hold stand.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from msgspec import Struct

from dispatch_kubeflow.backend.objects import queues, seen
from dispatch_kubeflow.backend.requests import Failure, Request
from dispatch_kubeflow.backend.requests.resources import (
    ACCESS_REVIEWS,
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
    Resource,
)
from dispatch_kubeflow.machine.settings import Settings

from .call import Call, Got, outcome

T = TypeVar("T", bound=Struct)
Access = Literal["read-write", "read-only", "observe-only"]
LOOK_AGAIN = 60.0
"""Seconds between two looks at a missing write gate."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One thing a user may do to one kind of object."""

    verb: str
    resource: Resource
    subresource: str | None = None

    def __str__(self) -> str:
        plural = self.resource.qualified
        return f"{self.verb} {plural}/{self.subresource}" if self.subresource else f"{self.verb} {plural}"


READ_LOG = Permission("get", PODS, "log")
READ_NODES = Permission("get", NODES)
HOLD_WORKLOADS = Permission("patch", WORKLOADS)
WRITES = tuple(
    Permission(verb, each) for each in (TRAIN_JOBS, TRAINING_RUNTIMES) for verb in ("create", "patch", "delete")
)


def reads(settings: Settings) -> tuple[Permission, ...]:
    """The permissions without which a Backend could not tell what there is."""
    listed = (TRAIN_JOBS, TRAINING_RUNTIMES, JOB_SETS, JOBS, PODS)
    needed = [Permission(verb, each) for each in listed for verb in ("get", "list", "watch")]
    needed.append(Permission("get", CONFIG_MAPS))
    if any(runtime.kind == "ClusterTrainingRuntime" for runtime in settings.runtimes):
        needed.append(Permission("get", CLUSTER_TRAINING_RUNTIMES))
    if settings.mode == "kueue":
        needed += [Permission(verb, WORKLOADS) for verb in ("list", "watch")]
        needed += [Permission("get", each) for each in (LOCAL_QUEUES, CLUSTER_QUEUES, ADMISSION_CHECKS)]
    return tuple(needed)


def review(call: Call, permission: Permission) -> bool | Failure:
    """Whether the apiserver says that this user has a permission; or why it did not say."""
    resource = permission.resource
    attributes = {"verb": permission.verb, "group": resource.group, "resource": resource.plural}
    if resource.namespaced:
        attributes["namespace"] = call.namespace
    if permission.subresource:
        attributes["subresource"] = permission.subresource
    body = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    reply = call.send(Request("POST", ACCESS_REVIEWS, body=body, intent="read"))
    if reply.failure is not None:
        return reply.failure
    status = (reply.object or {}).get("status")
    return isinstance(status, dict) and status.get("allowed") is True


def missing(call: Call, permissions: Iterable[Permission]) -> tuple[Permission, ...] | Failure:
    """Those of the permissions that this user lacks; or the first failure to find out."""
    lacking = []
    for permission in permissions:
        allowed = review(call, permission)
        if isinstance(allowed, Failure):
            return allowed
        if not allowed:
            lacking.append(permission)
    return tuple(lacking)


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at the write gates found. `no_hold`: why a Backend that may write can't hold all the same (C5)."""

    lacking: tuple[str, ...] = ()
    no_hold: str | None = None


def look(call: Call) -> Looked | Failure:
    """Look at every write gate; or the first failure to find out."""
    permissions = missing(call, WRITES)
    if isinstance(permissions, Failure):
        return permissions
    lacking = tuple(map(str, permissions))
    if call.mode == "plain":
        return Looked(lacking)
    holds = review(call, HOLD_WORKLOADS)
    if isinstance(holds, Failure):
        return holds
    queue = _look_at_queue(call)
    if isinstance(queue, Failure):
        return queue
    no_hold = queue.no_hold if holds else f"this user may not {HOLD_WORKLOADS}"
    return Looked((*lacking, *queue.lacking), no_hold)


def _look_at_queue(call: Call) -> Looked | Failure:
    """The LocalQueue, its ClusterQueue, and our check on that."""
    queue, check = call.adapter.settings.queue or "", call.adapter.settings.admission_check or ""
    local = _look_for(call, LOCAL_QUEUES, queue, seen.LocalQueue)
    if not isinstance(local, Got):
        return Looked((f"LocalQueue {queue}",)) if local is None else local
    name = local.seen.spec.cluster_queue
    cluster = _look_for(call, CLUSTER_QUEUES, name, seen.ClusterQueue)
    if not isinstance(cluster, Got):
        return Looked((f"ClusterQueue {name} of LocalQueue {queue}",)) if cluster is None else cluster
    match queues.lists(cluster.seen, check):
        case "no":
            return Looked((f"AdmissionCheck {check} on ClusterQueue {name}",))
        case "some-flavors":
            why = f"ClusterQueue {name} lists the AdmissionCheck {check} for some flavors only"
            return Looked(no_hold=f"{why}, and a job on another would not have it")
        case "every-flavor":
            return Looked()


def _look_for(call: Call, resource: Resource, name: str, kind: type[T]) -> Got[T] | Failure | None:
    """An object of kueue mode; None where its absence is believed, and where it is being deleted."""
    found = call.try_get(resource, name, kind)
    if isinstance(found, Got):
        metadata = found.body.get("metadata")
        return None if isinstance(metadata, dict) and metadata.get("deletionTimestamp") else found
    return None if outcome(call.judge(found)) == "absent" else found


class Gates:
    """What this Backend may write, and whether plain mode was shown to hold here (rows C2, C3, C4, C14)."""

    def __init__(self, *, read_only: bool, looked: Looked, looked_at: float, queueless: bool) -> None:
        self._read_only = read_only
        self._lock = threading.Lock()
        self._looked = looked
        self._looked_at = looked_at
        self._healing = bool(looked.lacking)
        self.queueless = queueless
        """Whether a dry run showed that Kueue leaves jobs without a queue alone."""

    @property
    def access(self) -> Access:
        """What the Backend may do, as far as it was looked at."""
        if self._read_only:
            return "read-only"
        return "observe-only" if self._looked.lacking else "read-write"

    @property
    def missing(self) -> str:
        """The missing write gates, as text."""
        return ", ".join(self._looked.lacking)

    @property
    def no_hold(self) -> str | None:
        """Why a Backend that may write can't hold all the same; None where it can."""
        return self._looked.no_hold

    @property
    def owes_dry_run(self) -> bool:
        """Whether Factory skipped the dry run, for the Backend could not write, and now it can."""
        return self._healing and not self.queueless and self.access == "read-write"

    def take_turn(self, now: float) -> bool:
        """Whether it is this call's turn to look again at a missing gate; at most once a minute it is."""
        with self._lock:
            if not self._looked.lacking or self._read_only or now - self._looked_at < LOOK_AGAIN:
                return False
            self._looked_at = now
            return True

    def look_again(self, call: Call) -> None:
        """Look at the write gates anew; if the look fails, the old answer stands."""
        found = look(call)
        if not isinstance(found, Failure):
            self._looked = found
