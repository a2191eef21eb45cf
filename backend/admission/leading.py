"""Two controllers that act at once could each find a job at rest and start a generation of it: so one alone acts, and
one that can't be sure of its lease any more writes nothing.

Its own lease it trusts for `renew_deadline` seconds from before the request that renewed it was sent; another takes
over only `duration` seconds after it saw that renewal. What lies between is for a write that is still under way.
"""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import dataclass

from dispatch_kubeflow.backend.objects import lease as leases
from dispatch_kubeflow.backend.objects.lease import Lease, LeaseSpec, Observed
from dispatch_kubeflow.backend.requests import Failure
from dispatch_kubeflow.backend.requests.resources import LEASES
from dispatch_kubeflow.machine.context import Clock, Context

from .asking import Asker

_LOG = logging.getLogger("dispatch_kubeflow.admission")
_JITTER = 1.2


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """As client-go has them, in seconds: how long a lease counts, how long its holder trusts it, and between tries."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def wrong(self) -> str | None:
        """The rule that these times break, or None."""
        if self.retry_period <= 0 or self.duration < 1:
            return "a retry period above 0, and a duration of at least a second"
        if self.duration <= self.renew_deadline:
            return "a duration longer than the renew deadline"
        if self.renew_deadline <= self.retry_period * _JITTER:
            return f"a renew deadline longer than {_JITTER} retry periods"
        return None


CLIENT_GO = LeaseTimes()
"""The times that client-go's own users take."""


class Elector:
    """Campaigns for one Lease under one identity, which no other process may have."""

    def __init__(
        self,
        asker: Asker,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes = CLIENT_GO,
        rng: random.Random | None = None,
    ) -> None:
        self._asker = asker
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self.times = times
        self._rng = rng or random.SystemRandom()
        self._observed: Observed | None = None
        self._written: Lease | None = None
        self._until = 0.0
        self._led = False
        self.changed = threading.Event()
        """Set when it has begun, or ceased, to lead."""

    @property
    def leading(self) -> bool:
        """Whether the lease is ours, for sure, at this moment."""
        return self._clock.monotonic() < self._until

    def context(self, ctx: Context) -> Context | None:
        """A context for one write, which ends with the lease at the latest; None where the lease is not ours."""
        left = self._until - self._clock.monotonic()
        return ctx.child(timeout=left) if left > 0 else None

    def campaign(self, ctx: Context) -> float:
        """Try once to take the lease or to renew it. Gives the seconds until the next try."""
        began = self._clock.monotonic()
        bounded = ctx.child(timeout=self.times.renew_deadline / 2)
        failure = self._try(began, bounded)
        if failure is not None:
            # Whatever became of it, the next try reads first.
            self._written = None
            if ctx.ended is None:
                _LOG.warning("the lease %s could not be had: %s", self._name, failure.message)
        self._tell()
        period = self.times.retry_period
        return period if self.leading else period * (1 + _JITTER * self._rng.random())

    def give_back(self, ctx: Context) -> None:
        """Lead no more, and let the next one begin at once. Nothing of ours may be under way any more."""
        lease = self._written
        self._until = 0.0
        self._written = None
        self._tell()
        if lease is None or lease.spec.holder_identity != self.identity:
            return
        patch = leases.lease_patch(lease, leases.given_back(lease.spec, self._clock.now()))
        found = self._asker.patch(LEASES, self._name, self._namespace, patch, Lease, ctx)
        if isinstance(found, Failure):
            _LOG.warning("the lease %s could not be given back, and runs out by itself: %s", self._name, found.message)

    def _try(self, began: float, ctx: Context) -> Failure | None:
        lease = self._written
        if lease is None:
            found = self._asker.look(LEASES, self._name, self._namespace, Lease, ctx)
            if isinstance(found, Failure):
                return found
            if found is None:
                return self._create(began, ctx)
            self._observe(found)
            lease = found
        observed = self._observed
        if observed is not None and observed.is_anothers(self.identity, began, self.times.duration):
            self._until = 0.0
            return None
        wanted = leases.taken(lease.spec, self.identity, self.times.duration, self._clock.now())
        patch = leases.lease_patch(lease, wanted)
        return self._took(self._asker.patch(LEASES, self._name, self._namespace, patch, Lease, ctx), began)

    def _create(self, began: float, ctx: Context) -> Failure | None:
        spec = leases.taken(LeaseSpec(), self.identity, self.times.duration, self._clock.now())
        body = leases.new_lease(self._name, self._namespace, spec, api_version=LEASES.api_version)
        return self._took(self._asker.create(LEASES, self._namespace, body, Lease, ctx), began)

    def _took(self, answer: Lease | Failure, began: float) -> Failure | None:
        if isinstance(answer, Failure):
            return answer
        self._written = answer
        self._observe(answer)
        self._until = began + self.times.renew_deadline
        return None

    def _observe(self, lease: Lease) -> None:
        now = self._clock.monotonic()
        self._observed = Observed(lease, now) if self._observed is None else self._observed.again(lease, now)

    def _tell(self) -> None:
        leading = self.leading
        if leading != self._led:
            self._led = leading
            _LOG.info("%s leads %s", self.identity, "now" if leading else "no more")
            self.changed.set()
