"""The scenarios of a training job under Kueue: gate, quota, check, hold, preemption, and what is done by hand.

Each has a ClusterQueue of its own with room for four CPUs, behind a check of its own that the scenario writes as the
check's controller would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tests.real.api import Object, condition, has
from tests.real.training import train_job

from .scenarios import FOREVER, HANGING, JOB, Holds, Stage, both, gone, one, rest_suspended, status, stopping, tell

GATED_BY = "kueue.x-k8s.io/admission-gated-by"
GATE = "dispatch-kubeflow.io/gate"
ROOM = "4"
APPLIED = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}


class QueueStage(Stage, Protocol):
    """A stage whose namespace has a LocalQueue `lq`. Kinds are plurals; `workloads` is one more."""

    def furnish(self, *, checked: bool = True) -> None:
        """LocalQueue, ClusterQueue, flavor and, if `checked`, an active check; two priorities, `low` and `high`."""

    def priority(self, name: str) -> str:
        """What the priority `low` or `high` is called here."""

    def write_check(self, workload: str, state: str) -> None:
        """Forced apply of our own entry, as the check's controller does it."""

    def change_queue(self, change: Object) -> None:
        """Merges a change into the ClusterQueue."""

    def checks(self) -> Object:
        """What the ClusterQueue's spec says to ask for the check."""


# Words.


def of(holds: Callable[[Object | None], bool], job: str = "t") -> Holds:
    """True of the Workload that a job's TrainJob controls."""

    def found(seen: list[Object]) -> bool:
        owned = [each for each in seen if (each["metadata"].get("ownerReferences") or [{}])[0].get("name") == job]
        return holds(owned[0] if owned else None)

    return found


def because(kind: str, value: str, reason: str) -> Callable[[Object | None], bool]:
    def holds(seen: Object | None) -> bool:
        found = condition(seen, kind)
        return (found.get("status"), found.get("reason")) == (value, reason)

    return holds


def checked(*states: str) -> Callable[[Object | None], bool]:
    def holds(seen: Object | None) -> bool:
        found = (seen or {}).get("status", {}).get("admissionChecks") or []
        return seen is not None and [each["state"] for each in found] == list(states)

    return holds


def suspended(value: bool) -> Callable[[Object | None], bool]:
    return lambda seen: seen is not None and bool(seen["spec"].get("suspend", False)) is value


RESERVED = because("QuotaReserved", "True", "QuotaReserved")
NOT_READY = because("PodsReady", "False", "WaitForStart")


def submit(
    stage: QueueStage,
    pods: Mapping[str, str],
    job: str = "t",
    *,
    gated: bool = True,
    priority: str | None = None,
    requests: Mapping[str, str] | None = None,
    trainer: Object | None = None,
) -> None:
    """A runtime and a TrainJob of two nodes that ask for two CPUs each."""
    stage.runtime(job, pods)
    made = train_job(job, suspend=False)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lq"}
    if priority:
        made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = stage.priority(priority)
    if gated:
        made["metadata"]["annotations"] = {GATED_BY: GATE}
    asked = {"cpu": "2"} if requests is None else dict(requests)
    if asked:
        made["spec"]["trainer"]["resourcesPerNode"] = {"limits": asked, "requests": asked}
    made["spec"]["trainer"] |= trainer or {}
    stage.create("trainjobs", made)


def begin(stage: QueueStage, pods: Mapping[str, str], **ways: Any) -> None:
    """A furnished namespace and a job that is gated, at rest."""
    stage.furnish()
    submit(stage, pods, **ways)
    if ways.get("gated", True):
        gated = both(because("QuotaReserved", "False", "AdmissionGated"), checked("Pending"), NOT_READY)
        stage.until("workloads", of(gated))
    rest_suspended(stage)


def open_gate(stage: QueueStage) -> None:
    stage.merge("trainjobs", "t", {"metadata": {"annotations": {GATED_BY: None}}})


def reserve(stage: QueueStage) -> None:
    """The gate is taken off, and quota reserved."""
    open_gate(stage)
    stage.until("workloads", of(both(RESERVED, checked("Pending"), NOT_READY)))


def workload(stage: QueueStage, job: str = "t") -> Object:
    (found,) = [
        each for each in stage.list("workloads") if each["metadata"]["ownerReferences"][0]["name"] == job
    ]  # fmt: skip
    return found


def ready(stage: QueueStage, job: str = "t") -> None:
    stage.write_check(workload(stage, job)["metadata"]["name"], "Ready")


def change(stage: QueueStage, change: Object, job: str = "t") -> None:
    stage.merge("workloads", workload(stage, job)["metadata"]["name"], change)


def activate(stage: QueueStage, active: bool) -> None:
    change(stage, {"spec": {"active": active}})


def rest_running(stage: QueueStage, job: str = "t") -> None:
    stage.until("jobs", one(status(active=2, ready=2, terminating=0), f"{job}-node-0"))
    stage.until("trainjobs", one(both(suspended(False), has("Suspended", "False"))))
    stage.until("workloads", of(both(has("Admitted"), has("PodsReady")), job))


def run(stage: QueueStage) -> None:
    """The gate is lifted, the check made ready, and the pods run."""
    reserve(stage)
    ready(stage)
    rest_running(stage)


def rest_stopped(stage: QueueStage, holds: Callable[[Object | None], bool]) -> None:
    """No pod is left, and the Workload is as wanted."""
    stage.until("pods", lambda pods: not pods)
    rest_suspended(stage)
    stage.until("workloads", of(both(holds, checked("Pending"), NOT_READY)))


# The scenarios.


def gated_in_a_queue(stage: QueueStage) -> None:
    begin(stage, FOREVER)


def opened_and_completes(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    tell(stage, runs="0s")
    stage.until("trainjobs", one(has("Complete")))
    stage.until("workloads", of(because("Finished", "True", "Succeeded")))
    stage.until("workloads", of(lambda seen: seen is not None and not seen["metadata"].get("finalizers")))


def a_pod_fails(stage: QueueStage) -> None:
    begin(stage, {**FOREVER, "kubelet.test/exit.0": "3"})
    run(stage)
    tell(stage, "0", runs="0s")
    stage.until("trainjobs", one(has("Failed")))
    stage.until("workloads", of(because("Finished", "True", "Failed")))


def deactivated_and_activated(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    activate(stage, False)
    rest_stopped(stage, because("Requeued", "False", "Deactivated"))
    activate(stage, True)
    stage.until("workloads", of(both(RESERVED, because("Requeued", "True", "Reactivated"), checked("Pending"))))
    ready(stage)
    rest_running(stage)


def activated_while_pods_hang(stage: QueueStage) -> None:
    begin(stage, HANGING)
    run(stage)
    activate(stage, False)
    stage.until("pods", stopping)
    stage.until("workloads", of(both(because("Requeued", "False", "Deactivated"), NOT_READY)))
    activate(stage, True)
    stage.until("workloads", of(both(RESERVED, checked("Pending"))))
    ready(stage)
    stage.until("workloads", of(has("Admitted")))
    stage.until("jobs", one(both(has("Suspended", "False"), status(active=0, terminating=2)), JOB))
    tell(stage, stops="0s")
    rest_running(stage)


def deactivated_while_gated(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    activate(stage, False)
    stage.until("workloads", of(because("Evicted", "True", "Deactivated")))
    open_gate(stage)
    stage.until("workloads", of(because("QuotaReserved", "False", "Pending")))
    activate(stage, True)
    stage.until("workloads", of(both(RESERVED, checked("Pending"))))


def deactivated_while_reserved(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    reserve(stage)
    activate(stage, False)
    stage.until("workloads", of(both(because("Evicted", "True", "Deactivated"), has("QuotaReserved", "False"))))
    activate(stage, True)
    stage.until("workloads", of(both(RESERVED, checked("Pending"))))


def preempted_and_admitted_again(stage: QueueStage) -> None:
    begin(stage, FOREVER, priority="low")
    run(stage)
    submit(stage, FOREVER, "u", gated=False, priority="high")
    stage.until("workloads", of(both(RESERVED, checked("Pending")), "u"))
    rest_stopped(stage, because("Requeued", "True", "Preempted"))
    stage.until("workloads", of(lambda seen: "more needed" in condition(seen, "QuotaReserved").get("message", "")))
    ready(stage, "u")
    stage.until("workloads", of(both(has("Admitted"), has("PodsReady")), "u"))
    stage.delete("trainjobs", "u", "Background")
    stage.until("workloads", of(both(RESERVED, checked("Pending"))))
    stage.until("workloads", of(lambda seen: seen is None, "u"))
    stage.until("pods", lambda pods: not pods)
    ready(stage)
    rest_running(stage)


def waits_for_room(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    submit(stage, FOREVER, "u", gated=False)
    stage.until("workloads", of(both(because("QuotaReserved", "False", "Pending"), checked("Pending"), NOT_READY), "u"))
    tell(stage, runs="0s")
    stage.until("workloads", of(has("Finished")))
    stage.until("workloads", of(RESERVED, "u"))


def check_retried(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    stage.write_check(workload(stage)["metadata"]["name"], "Retry")
    rest_stopped(stage, both(RESERVED, because("Requeued", "True", "BackoffFinished")))


def check_rejected(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    stage.write_check(workload(stage)["metadata"]["name"], "Rejected")
    rest_stopped(stage, because("Requeued", "False", "DeactivatedDueToAdmissionCheck"))


def workload_deleted_by_hand(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    old = workload(stage)
    stage.delete("workloads", old["metadata"]["name"])
    stage.until("workloads", of(lambda seen: seen is not None and seen["metadata"]["uid"] != old["metadata"]["uid"]))
    rest_stopped(stage, RESERVED)


def gate_removed_on_the_workload_alone(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    change(stage, {"metadata": {"annotations": {GATED_BY: None}}})
    stage.until("workloads", of(both(RESERVED, checked("Pending"))))


def check_taken_off_the_queue(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    reserve(stage)
    stage.change_queue({"admissionChecksStrategy": None})
    rest_running(stage)
    stage.until("workloads", of(checked()))
    stage.change_queue(stage.checks())
    stage.until("workloads", of(checked("Pending")))


def check_taken_off_while_deactivated(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    activate(stage, False)
    rest_stopped(stage, because("Requeued", "False", "Deactivated"))
    stage.change_queue({"admissionChecksStrategy": None})
    stage.until("workloads", of(checked()))


def cluster_queue_drained_and_started(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    stage.change_queue({"stopPolicy": "HoldAndDrain"})
    rest_stopped(stage, because("QuotaReserved", "False", "Inadmissible"))
    stage.change_queue({"stopPolicy": "None"})
    stage.until("workloads", of(both(RESERVED, because("Requeued", "True", "ClusterQueueRestarted"))))


def local_queue_drained_and_started(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    stage.merge("localqueues", "lq", {"spec": {"stopPolicy": "HoldAndDrain"}})
    rest_stopped(stage, because("QuotaReserved", "False", "Inadmissible"))
    stage.merge("localqueues", "lq", {"spec": {"stopPolicy": "None"}})
    stage.until("workloads", of(both(RESERVED, because("Requeued", "True", "LocalQueueRestarted"))))


def cluster_queue_held_while_it_waits(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    reserve(stage)
    stage.change_queue({"stopPolicy": "Hold"})
    stage.until("workloads", of(because("QuotaReserved", "False", "Inadmissible")))


def too_big(stage: QueueStage) -> None:
    stage.furnish()
    submit(stage, FOREVER, gated=False, requests={"cpu": "100"})
    rest_suspended(stage)
    stage.until("workloads", of(both(because("QuotaReserved", "False", "Pending"), checked("Pending"), NOT_READY)))


def uncovered(stage: QueueStage) -> None:
    stage.furnish()
    submit(stage, FOREVER, gated=False, requests={"example.com/foo": "1"})
    rest_suspended(stage)
    stage.until("workloads", of(both(because("QuotaReserved", "False", "Pending"), checked("Pending"), NOT_READY)))


def requests_nothing(stage: QueueStage) -> None:
    stage.furnish()
    submit(stage, FOREVER, gated=False, requests={})
    rest_running(stage)
    stage.until("workloads", of(checked()))


def admitted_with_an_empty_list(stage: QueueStage) -> None:
    """Kueue's client leaves out what is empty, which Trainer takes for a change of what must not change."""
    stage.furnish(checked=False)
    submit(stage, FOREVER, gated=False, trainer={"args": []})
    rest_suspended(stage)
    stage.until("workloads", of(both(has("Admitted"), NOT_READY)))


def without_a_check(stage: QueueStage) -> None:
    stage.furnish(checked=False)
    submit(stage, FOREVER)
    stage.until("workloads", of(both(because("QuotaReserved", "False", "AdmissionGated"), NOT_READY)))
    rest_suspended(stage)
    open_gate(stage)
    rest_running(stage)


def train_job_deleted_while_it_runs(stage: QueueStage) -> None:
    begin(stage, FOREVER)
    run(stage)
    stage.delete("trainjobs", "t", "Background")
    stage.until("workloads", lambda seen: not seen)
    stage.until("jobsets", gone())
    stage.until("pods", lambda pods: not pods)


QUEUE_SCENARIOS: dict[str, Callable[[QueueStage], None]] = {
    each.__name__: each
    for each in (
        gated_in_a_queue, opened_and_completes, a_pod_fails, deactivated_and_activated,
        activated_while_pods_hang, deactivated_while_gated, deactivated_while_reserved,
        preempted_and_admitted_again, waits_for_room, check_retried, check_rejected, workload_deleted_by_hand,
        gate_removed_on_the_workload_alone, check_taken_off_the_queue, check_taken_off_while_deactivated,
        cluster_queue_drained_and_started, local_queue_drained_and_started, cluster_queue_held_while_it_waits,
        too_big, uncovered, requests_nothing, admitted_with_an_empty_list, without_a_check,
        train_job_deleted_while_it_runs,
    )
}  # fmt: skip
