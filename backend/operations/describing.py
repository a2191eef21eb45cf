"""A view is what was listed and what this Backend remembers of its own creates: both are joined here, for Find and
Watch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dispatch_kubeflow.backend.objects.describe import Describer
from dispatch_kubeflow.backend.objects.listing import Listing, attempt_of

from .call import Call


def gives(call: Call) -> Callable[[str, Mapping[str, str]], str]:
    """The tables that classify, as this call asks them."""

    def decide(family: str, facts: Mapping[str, str]) -> str:
        found = call.decide(family, **facts).gives
        if found is None:
            raise AssertionError(f"table {family} gives an answer for every fact")
        return found

    return decide


def describer(call: Call) -> Describer:
    """What turns the listed objects into what Find gives back, by the settings of this Backend."""
    settings = call.adapter.settings
    return Describer(
        backend=settings.name,
        namespace=settings.namespace,
        mode=settings.mode,
        decide=gives(call),
        call_bound=settings.call_bound,
        check_name=settings.admission_check,
    )


def marked(call: Call, job_id: str) -> frozenset[int]:
    """The attempts in flight now. Asked before the lists are, for an answer that comes meanwhile ends the mark."""
    return frozenset(each.attempt for each in call.adapter.in_flight.of_job(job_id))


def in_flight(call: Call, job_id: str, listing: Listing, before: Iterable[int]) -> frozenset[int]:
    """The attempts in flight beside a listing: those marked before it and not seen in it, and those marked now.

    A create that was answered while the lists were read is in none of them, nor among the marks any more; it was in
    flight when the lists were taken, and that is what is said.
    """
    nonces = frozenset(nonce for each in listing.trainjobs if (nonce := each.metadata.annotations.nonce) is not None)
    listed = {attempt_of(each) for each in listing.trainjobs}
    now = {each.attempt for each in call.adapter.in_flight.of_job(job_id, nonces)}
    return frozenset(attempt for attempt in before if attempt not in listed) | now
