"""A Backend that may not write should say so before it tries, and one that may should not ask for ever: so the write
gates are looked at once, and a missing one again at most once a minute, by a call that would write.

A *write gate* is a permission without which a job could be started and then not be stopped, held or opened.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dispatch_kubeflow.backend.requests import Failure, Request
from dispatch_kubeflow.backend.requests.resources import (
    ACCESS_REVIEWS,
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from dispatch_kubeflow.machine.settings import Settings

if TYPE_CHECKING:
    from .call import Call

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


class Gates:
    """What this Backend may write, and whether plain mode was shown to hold here (rows C2, C3, C4, C14)."""

    def __init__(self, *, read_only: bool, lacking: tuple[Permission, ...], looked_at: float, queueless: bool) -> None:
        self._read_only = read_only
        self._lock = threading.Lock()
        self._lacking = lacking
        self._looked_at = looked_at
        self._healing = bool(lacking)
        self.queueless = queueless
        """Whether a dry run showed that Kueue leaves jobs without a queue alone."""

    @property
    def access(self) -> Access:
        """What the Backend may do, as far as it was looked at."""
        if self._read_only:
            return "read-only"
        return "observe-only" if self._lacking else "read-write"

    @property
    def missing(self) -> str:
        """The missing write gates, as text."""
        return ", ".join(map(str, self._lacking))

    @property
    def owes_dry_run(self) -> bool:
        """Whether Factory skipped the dry run, for the Backend could not write, and now it can."""
        return self._healing and not self.queueless and self.access == "read-write"

    def take_turn(self, now: float) -> bool:
        """Whether it is this call's turn to look again at a missing gate; at most once a minute it is."""
        with self._lock:
            if not self._lacking or self._read_only or now - self._looked_at < LOOK_AGAIN:
                return False
            self._looked_at = now
            return True

    def look_again(self, call: Call) -> None:
        """Look at the write gates anew; if the look fails, the old answer stands."""
        found = missing(call, WRITES)
        if not isinstance(found, Failure):
            self._lacking = found
