"""A Backend is given only where it can keep its word: the cluster serves what it needs, the user may read what it must
see, and what decides whether a job runs is there: in plain mode nothing but the TrainJob's own `suspend`, in kueue mode
our AdmissionCheck on the queue.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.backend.requests import Door, Failure, Request, load_access
from dispatch_kubeflow.backend.requests.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    WORKLOADS,
    Resource,
)
from dispatch_kubeflow.machine.context import Clock, Context
from dispatch_kubeflow.machine.extensions import RuntimeRef
from dispatch_kubeflow.machine.rules import rulebook
from dispatch_kubeflow.machine.settings import Settings

from .adapter import Adapter, InFlight, Permissions
from .call import Call, Got
from .gates import READ_LOG, READ_NODES, Gates, Looked, look, missing, reads, review
from .hub import Hub


def group_versions(mode: str) -> tuple[Resource, ...]:
    """A kind of each group-version that has to be served (C13)."""
    return (TRAIN_JOBS, JOB_SETS, WORKLOADS) if mode == "kueue" else (TRAIN_JOBS, JOB_SETS)


def connect(settings: Settings, ctx: Context, clock: Clock) -> Adapter:
    """The parts of a Backend, once everything that Factory asks of a cluster was found (C8, C13, C14, C15)."""
    book = rulebook()
    cluster = load_access(
        book=book,
        kubeconfig=settings.kubeconfig,
        context=settings.context,
        in_cluster=settings.in_cluster,
        clock=clock,
    )
    door = Door(cluster, request_timeout=settings.request_timeout, clock=clock)
    with _closed_on_error(door):
        adapter = Adapter(
            settings=settings,
            book=book,
            clock=clock,
            door=door,
            permissions=Permissions(log=False, nodes=False),
            gates=_gates(settings, Looked(), clock),
            hub=Hub(door, settings, clock),
            in_flight=InFlight(book, clock, settings.call_bound, settings.mode),
        )
        call = Call(adapter, "factory", ctx, subject=settings.name)
        call.check_context()
        _discover(call)
        _review(call)
        if adapter.gates.access == "read-write":
            ensure_queueless(call)
    return adapter


def _gates(settings: Settings, looked: Looked, clock: Clock) -> Gates:
    # In kueue mode a job has its queue, and what becomes of those without one is no matter.
    queueless = settings.mode == "kueue"
    return Gates(read_only=settings.read_only, looked=looked, looked_at=clock.monotonic(), queueless=queueless)


@contextmanager
def _closed_on_error(door: Door) -> Iterator[None]:
    try:
        yield
    except BaseException:
        door.close()
        raise


def _discover(call: Call) -> None:
    absent = []
    for resource in group_versions(call.mode):
        reply = call.adapter.door.discover(resource.group, resource.version, call.ctx, operation=call.operation)
        if reply.failure is None:
            continue
        if call.judge(reply.failure).sentinel != "none":
            call.refuse(reply.failure)
        absent.append(resource.api_version)
    if absent:
        call.settle("factory", finding="group-version-absent", details={"group_version": ", ".join(absent)})


def _review(call: Call) -> None:
    adapter = call.adapter
    lacking = missing(call, reads(adapter.settings))
    if isinstance(lacking, Failure):
        call.refuse(lacking)
    if lacking:
        details = {"missing": ", ".join(map(str, lacking))}
        call.settle("factory", finding="read-permission-missing", details=details)
    allowed = [review(call, permission) for permission in (READ_LOG, READ_NODES)]
    for answer in allowed:
        if isinstance(answer, Failure):
            call.refuse(answer)
    adapter.permissions = Permissions(log=allowed[0] is True, nodes=allowed[1] is True)
    if not adapter.settings.read_only:
        looked = look(call)
        if isinstance(looked, Failure):
            call.refuse(looked)
        adapter.gates = _gates(adapter.settings, looked, adapter.clock)


def ensure_queueless(call: Call) -> None:
    """Row C14: show by a dry run that Kueue leaves a job without a queue alone; once for a Backend.

    Without a runtime to name nothing can be shown; the first Start that finds one then asks again.
    """
    if call.adapter.gates.queueless:
        return
    for runtime in call.adapter.settings.runtimes:
        if read_runtime(call, runtime) is not None:
            show_queueless(call, runtime)
            return


def read_runtime(call: Call, runtime: RuntimeRef) -> Got[seen.Runtime] | None:
    """The runtime of a reference; None where its absence is believed."""
    resource = CLUSTER_TRAINING_RUNTIMES if runtime.kind == "ClusterTrainingRuntime" else TRAINING_RUNTIMES
    return call.look(resource, runtime.name, seen.Runtime)


def show_queueless(call: Call, runtime: RuntimeRef) -> None:
    """As `ensure_queueless`, by a runtime that is known to exist."""
    if call.adapter.gates.queueless:
        return
    body = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": TRAIN_JOBS.kind,
        "metadata": {"name": f"dispatch-probe-{secrets.token_hex(4)}", "namespace": call.namespace},
        "spec": {
            "managedBy": names.TRAINJOB_CONTROLLER,
            "runtimeRef": {"apiGroup": names.TRAINER_GROUP, "kind": runtime.kind, "name": runtime.name},
            "suspend": False,
            "trainer": {"numNodes": 1},
        },
    }
    request = Request("POST", TRAIN_JOBS, namespace=call.namespace, query={"dryRun": "All"}, body=body, intent="read")
    reply = call.send(request)
    if reply.failure is not None:
        if reply.failure.details.get("server_message") == f'namespaces "{call.namespace}" not found':
            details = {"key": "namespace", "value": call.namespace}
            call.settle("factory", finding="namespace-absent", details=details)
        call.refuse(reply.failure)
    managed = _managed(reply.object or {})
    if managed:
        call.settle("factory", finding="queueless-managed", details={"seen": managed})
    call.adapter.gates.queueless = True


def _managed(answer: Mapping[str, Any]) -> str | None:
    """What shows that Kueue took a job without a queue for its own; None if nothing does."""
    found = seen.read(answer, seen.TrainJob)
    if isinstance(found, seen.Unreadable):
        return f"a dry run came back as something else: {found.problem}"
    if found.metadata.labels.queue is not None:
        return f"a dry run came back with the queue {found.metadata.labels.queue}"
    return "a dry run came back suspended" if found.spec.suspend else None
