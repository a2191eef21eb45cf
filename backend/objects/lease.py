"""Of several admission controllers one alone may act, and which one is written on a Lease, by the rules of client-go's
leader election: so operators find what they know, and `kubectl` shows it.

A record's age is counted from when it was first seen, by the reader's own clock, for clocks differ between machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, structs

from .record import precondition
from .seen import Metadata

RELEASED_SECONDS: Final = 1
"""How long the lease of a leader that gave it back still counts."""


class LeaseSpec(Struct, frozen=True, gc=False, rename="camel"):
    """Who leads, since when, and how long that counts."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True, gc=False, rename="camel"):
    """A Lease of coordination.k8s.io."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


@dataclass(frozen=True, slots=True)
class Observed:
    """A Lease, and when this very record was first seen, in monotonic seconds."""

    lease: Lease
    at: float

    def again(self, lease: Lease, now: float) -> Observed:
        """The same record seen again keeps its age; another begins anew."""
        return Observed(lease, self.at if lease.spec == self.lease.spec else now)

    def is_anothers(self, identity: str, now: float, duration: float) -> bool:
        """Whether somebody else leads. `duration` in seconds counts where the record says none."""
        spec = self.lease.spec
        if not spec.holder_identity or spec.holder_identity == identity:
            return False
        return now < self.at + (spec.lease_duration_seconds or duration)


def taken(spec: LeaseSpec, identity: str, duration: float, now: datetime) -> LeaseSpec:
    """The record by which `identity` takes the lease, or renews it. `duration` in seconds."""
    at = micro(now)
    if spec.holder_identity == identity:
        return structs.replace(spec, lease_duration_seconds=math.ceil(duration), renew_time=at)
    transitions = spec.lease_transitions
    return LeaseSpec(identity, math.ceil(duration), at, at, 0 if transitions is None else transitions + 1)


def given_back(spec: LeaseSpec, now: datetime) -> LeaseSpec:
    """The record of a leader that has stopped: nobody's, so that the next need not wait."""
    at = micro(now)
    return LeaseSpec(None, RELEASED_SECONDS, at, at, spec.lease_transitions or 0)


def body(spec: LeaseSpec) -> dict[str, Any]:
    """A record as it is written; what it lacks is null, which a merge patch takes away."""
    return {
        "holderIdentity": spec.holder_identity,
        "leaseDurationSeconds": spec.lease_duration_seconds,
        "acquireTime": spec.acquire_time,
        "renewTime": spec.renew_time,
        "leaseTransitions": spec.lease_transitions,
    }


def new_lease(name: str, namespace: str, spec: LeaseSpec, *, api_version: str) -> dict[str, Any]:
    """The Lease of whoever comes first."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": "Lease", "metadata": metadata, "spec": body(spec)}


def lease_patch(lease: Lease, spec: LeaseSpec) -> dict[str, Any]:
    """The merge patch that writes a record over the one that was read, and over no other."""
    return {"metadata": precondition(lease.metadata.uid, lease.metadata.resource_version), "spec": body(spec)}


def micro(moment: datetime) -> str:
    """A time as Kubernetes writes a MicroTime."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
