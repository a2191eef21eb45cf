"""Find: what there is of a job, once. It never writes, and it never calls a job gone that is only on its way:
TrainJobs are listed last, and what is in flight is asked for before the first list.
"""

from __future__ import annotations

from dispatch_kubeflow.backend.objects.found import Found

from .call import Call
from .describing import describer, in_flight, marked
from .listed import list_job


def find(call: Call, job_id: str) -> Found:
    """The TrainJobs of a job, what is left of it without one, and the attempts whose create has no answer (B1, B2).

    Errors: what table `request` says of a list that failed.
    """
    before = marked(call, job_id)
    listing = list_job(call, job_id)
    return describer(call).found(
        job_id,
        listing,
        now=call.adapter.clock.now(),
        in_flight=in_flight(call, job_id, listing, before),
    )
