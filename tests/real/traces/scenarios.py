"""The scenarios: what is done to a training job, and what is waited for between the steps.

A step that follows another at once does so on purpose; everywhere else the cluster has come to rest first, so that
what is seen does not depend on who was quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tests.real.api import Object, condition, has
from tests.real.training import train_job

Holds = Callable[[list[Object]], bool]
FOREVER = {"kubelet.test/runs": "forever", "kubelet.test/stops": "0s"}
HANGING = {"kubelet.test/runs": "forever", "kubelet.test/stops": "never"}
JOB = "t-node-0"


class Stage(Protocol):
    """A namespace of a cluster on which a scenario is played. Kinds are plurals."""

    def runtime(
        self,
        name: str,
        pods: Mapping[str, str],
        *,
        policy: str | None = "Failed",
        lost: bool = False,
        deadline: int | None = None,
    ) -> None:
        """A hardened runtime; with `lost` its pods go to a node of the scenario's own. `deadline` is its Jobs'."""

    def create(self, kind: str, obj: Object) -> Object: ...

    def merge(self, kind: str, name: str, change: Object) -> Object: ...

    def delete(self, kind: str, name: str, policy: str | None = None) -> None: ...

    def list(self, kind: str) -> list[Object]: ...

    def until(self, kind: str, holds: Holds) -> list[Object]:
        """Waits until it is true of all objects of a kind."""

    def evict(self, pod: str) -> None: ...

    def silence_the_node(self) -> None: ...

    def declare_the_node_off(self) -> None: ...


# Words for what is waited for.


def one(holds: Callable[[Object | None], bool], name: str = "t") -> Holds:
    def found(seen: list[Object]) -> bool:
        return holds(next((each for each in seen if each["metadata"]["name"] == name), None))

    return found


def gone(name: str = "t") -> Holds:
    return one(lambda seen: seen is None, name)


def running(count: int) -> Holds:
    def up(pods: list[Object]) -> bool:
        return len(pods) == count and all(
            pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in pods
        )

    return up


def stopping(pods: list[Object]) -> bool:
    return bool(pods) and all("deletionTimestamp" in pod["metadata"] for pod in pods)


def status(**values: Any) -> Callable[[Object | None], bool]:
    """The status has these values; None and 0 are the same."""

    def holds(seen: Object | None) -> bool:
        found = (seen or {}).get("status", {})
        return seen is not None and all((found.get(key) or 0) == (value or 0) for key, value in values.items())

    return holds


def both(*wanted: Callable[[Object | None], bool]) -> Callable[[Object | None], bool]:
    return lambda seen: all(each(seen) for each in wanted)


def counted(**values: int) -> Callable[[Object | None], bool]:
    """What a TrainJob or JobSet says of its `node` Jobs."""

    def holds(seen: Object | None) -> bool:
        found = (seen or {}).get("status", {})
        lists = found.get("jobsStatus") or found.get("replicatedJobsStatus") or []
        return any(all((each.get(key) or 0) == value for key, value in values.items()) for each in lists)

    return holds


# Parts of scenarios.


def begin(stage: Stage, pods: Mapping[str, str], *, policy: str | None = "Failed", nodes: int = 2) -> None:
    """A job that is gated, at rest."""
    stage.runtime("t", pods, policy=policy)
    stage.create("trainjobs", train_job("t", nodes=nodes))
    rest_suspended(stage)


def rest_suspended(stage: Stage) -> None:
    stage.until("jobs", one(both(has("Suspended"), status(active=0, terminating=0)), JOB))
    stage.until("jobsets", one(both(has("Suspended"), counted(suspended=1))))
    stage.until("trainjobs", one(both(has("Suspended"), counted(suspended=1))))


def suspend(stage: Stage, value: bool) -> None:
    stage.merge("trainjobs", "t", {"spec": {"suspend": value}})


def run(stage: Stage, nodes: int = 2) -> None:
    """The job is unsuspended and runs, at rest."""
    suspend(stage, False)
    rest_running(stage, nodes)


def rest_running(stage: Stage, nodes: int = 2) -> None:
    stage.until("pods", running(nodes))
    stage.until("jobs", one(both(status(active=nodes, ready=nodes, terminating=0)), JOB))
    stage.until("jobsets", one(both(has("Suspended", "False"), counted(active=1, suspended=0))))
    stage.until("trainjobs", one(both(has("Suspended", "False"), counted(active=1, suspended=0))))


def tell(stage: Stage, index: str | None = None, **annotations: str) -> None:
    """Tells the kubelets of the pods that there are, or of one index, something new."""
    change = {"metadata": {"annotations": {f"kubelet.test/{key}": value for key, value in annotations.items()}}}
    for pod in stage.list("pods"):
        if index in (None, pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]):
            stage.merge("pods", pod["metadata"]["name"], change)


def hold(stage: Stage) -> None:
    suspend(stage, True)
    stage.until("pods", lambda pods: not pods)
    rest_suspended(stage)


# The scenarios.


def gate(stage: Stage) -> None:
    begin(stage, FOREVER)


def open_and_complete(stage: Stage) -> None:
    begin(stage, FOREVER)
    run(stage)
    tell(stage, "0", runs="0s")
    stage.until("jobs", one(status(active=1, succeeded=1, ready=1), JOB))
    tell(stage, "1", runs="0s")
    stage.until("trainjobs", one(both(has("Complete"), counted(succeeded=1, active=0))))


def hold_and_release(stage: Stage) -> None:
    begin(stage, FOREVER)
    run(stage)
    hold(stage)
    run(stage)


def release_at_once(stage: Stage) -> None:
    begin(stage, HANGING)
    run(stage)
    suspend(stage, True)
    stage.until("pods", stopping)
    stage.until("jobs", one(both(has("Suspended"), status(terminating=2)), JOB))
    suspend(stage, False)
    stage.until("jobs", one(both(has("Suspended", "False"), status(active=0, terminating=2)), JOB))
    tell(stage, stops="0s")
    rest_running(stage)


def release_at_once_by_default_policy(stage: Stage) -> None:
    begin(stage, HANGING, policy=None)
    run(stage)
    old = {pod["metadata"]["uid"] for pod in stage.list("pods")}
    suspend(stage, True)
    stage.until("pods", stopping)
    stage.until("jobs", one(both(has("Suspended"), status(terminating=2)), JOB))
    suspend(stage, False)

    def two_gangs(pods: list[Object]) -> bool:
        new = [pod for pod in pods if pod["metadata"]["uid"] not in old]
        return len(pods) == 4 and running(2)(new)

    stage.until("pods", two_gangs)
    stage.until("jobs", one(status(active=2, terminating=2, ready=2), JOB))


def hold_while_terminating(stage: Stage) -> None:
    begin(stage, HANGING)
    run(stage)
    for value in (True, False, True):
        suspend(stage, value)
        wanted = has("Suspended", str(value))
        stage.until("jobs", one(both(wanted, status(active=0, terminating=2)), JOB))
        stage.until("trainjobs", one(wanted))
        stage.until("jobsets", one(wanted))
    tell(stage, stops="0s")
    stage.until("pods", lambda pods: not pods)
    rest_suspended(stage)


def one_succeeds_then_hold_and_release(stage: Stage) -> None:
    begin(stage, FOREVER)
    run(stage)
    tell(stage, "0", runs="0s")
    stage.until("jobs", one(status(active=1, succeeded=1, ready=1), JOB))
    suspend(stage, True)
    stage.until("jobs", one(both(has("Suspended"), status(active=0, terminating=0, succeeded=1)), JOB))
    stage.until("trainjobs", one(both(has("Suspended"), counted(suspended=1))))
    suspend(stage, False)
    stage.until("jobs", one(both(has("Suspended", "False"), status(active=1, ready=1)), JOB))
    stage.until("trainjobs", one(counted(active=1, suspended=0)))


def pod_fails(stage: Stage) -> None:
    begin(stage, {**FOREVER, "kubelet.test/exit.1": "3"})
    run(stage)
    tell(stage, "1", runs="0s")
    stage.until("trainjobs", one(both(has("Failed"), counted(failed=1, active=0))))
    stage.until("jobs", one(both(has("Failed"), status(terminating=0)), JOB))


def pod_fails_beside_one_that_hangs(stage: Stage) -> None:
    begin(stage, {**HANGING, "kubelet.test/exit.1": "137", "kubelet.test/reason.1": "OOMKilled"})
    run(stage)
    tell(stage, "1", runs="0s")
    stage.until("jobs", one(both(has("FailureTarget"), status(terminating=1, ready=0)), JOB))
    tell(stage, "0", stops="0s")
    stage.until("trainjobs", one(both(has("Failed"), counted(failed=1, active=0))))


def pod_deleted_by_hand(stage: Stage) -> None:
    begin(stage, FOREVER, nodes=1)
    run(stage, 1)
    stage.delete("pods", stage.list("pods")[0]["metadata"]["name"])
    stage.until("trainjobs", one(both(has("Failed"), counted(failed=1, active=0))))
    stage.until("pods", lambda pods: not pods)


def pod_evicted(stage: Stage) -> None:
    begin(stage, FOREVER, nodes=1)
    run(stage, 1)
    stage.evict(stage.list("pods")[0]["metadata"]["name"])
    stage.until("trainjobs", one(both(has("Failed"), counted(failed=1, active=0))))
    stage.until("pods", lambda pods: not pods)


def node_lost(stage: Stage) -> None:
    stage.runtime("t", FOREVER, lost=True)
    stage.create("trainjobs", train_job("t", nodes=1))
    rest_suspended(stage)
    run(stage, 1)
    stage.silence_the_node()
    stage.until("pods", stopping)
    stage.until("jobs", one(status(active=0, terminating=1), JOB))
    stage.declare_the_node_off()
    stage.until("trainjobs", one(both(has("Failed"), counted(failed=1, active=0))))
    stage.until("pods", lambda pods: not pods)


def deadline(stage: Stage) -> None:
    stage.runtime("t", HANGING, deadline=15)
    stage.create("trainjobs", train_job("t"))
    rest_suspended(stage)
    run(stage)
    stage.until("jobs", one(both(has("FailureTarget"), status(terminating=2, active=0)), JOB))
    stage.until("pods", stopping)
    tell(stage, stops="0s")
    stage.until("pods", lambda pods: not pods)
    stage.until("trainjobs", one(both(has("Failed"), counted(failed=1, active=0))))


def deadline_of_the_trainjob(stage: Stage) -> None:
    stage.runtime("t", FOREVER)
    job = train_job("t")
    job["spec"]["activeDeadlineSeconds"] = 15
    stage.create("trainjobs", job)
    rest_suspended(stage)
    run(stage)
    stage.until("trainjobs", one(has("Failed")))
    stage.until("jobsets", gone())
    stage.until("jobs", gone(JOB))
    stage.until("pods", lambda pods: not pods)


def delete_in_the_background(stage: Stage) -> None:
    begin(stage, HANGING)
    run(stage)
    stage.delete("trainjobs", "t", "Background")
    stage.until("jobsets", gone())
    stage.until("jobs", gone(JOB))
    stage.until("pods", stopping)
    tell(stage, stops="0s")
    stage.until("pods", lambda pods: not pods)


def delete_in_the_foreground(stage: Stage) -> None:
    """It owns its runtime, which goes first; without it Trainer's webhook refuses the write that would end it."""
    begin(stage, HANGING)
    run(stage)
    (job,) = stage.list("trainjobs")
    owner = {key: job[key] for key in ("apiVersion", "kind")} | {key: job["metadata"][key] for key in ("name", "uid")}
    stage.merge("trainingruntimes", "t", {"metadata": {"ownerReferences": [owner]}})
    stage.delete("trainjobs", "t", "Foreground")
    stage.until("pods", stopping)
    tell(stage, stops="0s")
    for kind in ("pods", "jobs", "jobsets"):
        stage.until(kind, lambda seen: not seen)
    stage.until("trainjobs", one(lambda seen: seen is not None and "deletionTimestamp" in seen["metadata"]))
    # A second delete takes the finalizer off, and no webhook has a say in it.
    stage.delete("trainjobs", "t", "Background")
    stage.until("trainjobs", gone())


def delete_orphaning(stage: Stage) -> None:
    begin(stage, FOREVER)
    run(stage)
    stage.delete("trainjobs", "t", "Orphan")
    stage.until("trainjobs", gone())
    stage.until("jobsets", one(lambda seen: seen is not None and "ownerReferences" not in seen["metadata"]))


def job_set_deleted_by_hand(stage: Stage) -> None:
    begin(stage, HANGING)
    run(stage)
    (old,) = stage.list("jobsets")
    stage.delete("jobsets", "t", "Background")
    stage.until("jobsets", one(lambda seen: seen is not None and seen["metadata"]["uid"] != old["metadata"]["uid"]))
    stage.until("pods", lambda pods: len(pods) == 4 and sum("deletionTimestamp" in p["metadata"] for p in pods) == 2)
    stage.until("jobs", one(status(active=2, ready=2), JOB))
    tell(stage, stops="0s")
    stage.until("pods", running(2))
    stage.until("trainjobs", one(counted(active=1)))


def job_set_of_a_failed_job_deleted(stage: Stage) -> None:
    begin(stage, {**FOREVER, "kubelet.test/exit": "3"}, nodes=1)
    run(stage, 1)
    tell(stage, runs="0s")
    stage.until("trainjobs", one(both(has("Failed"), counted(failed=1, active=0))))
    (old,) = stage.list("jobsets")
    stage.delete("jobsets", "t", "Background")
    stage.until("jobsets", one(lambda seen: seen is not None and seen["metadata"]["uid"] != old["metadata"]["uid"]))
    stage.until("pods", running(1))
    stage.until("jobs", one(status(active=1, ready=1), JOB))
    stage.until("trainjobs", one(both(lambda seen: not condition(seen, "Failed"), counted(active=1, failed=0))))


def leftover_of_a_completed_job(stage: Stage) -> None:
    begin(stage, FOREVER, nodes=1)
    run(stage, 1)
    tell(stage, runs="0s")
    stage.until("trainjobs", one(both(has("Complete"), counted(succeeded=1, active=0))))
    stage.delete("trainjobs", "t", "Orphan")
    stage.until("trainjobs", gone())
    stage.until("jobsets", one(lambda seen: seen is not None and "ownerReferences" not in seen["metadata"]))
    stage.create("trainjobs", train_job("t", nodes=1))
    stage.until("trainjobs", one(has("Complete")))


def runtime_changed_while_suspended(stage: Stage) -> None:
    begin(stage, FOREVER)
    run(stage)
    hold(stage)
    changed = {"metadata": {"labels": {"level": "changed"}}}
    stage.merge("trainingruntimes", "t", {"spec": {"template": changed}})
    run(stage)


def suspended_after_the_end(stage: Stage) -> None:
    begin(stage, FOREVER, nodes=1)
    run(stage, 1)
    tell(stage, runs="0s")
    stage.until("trainjobs", one(both(has("Complete"), counted(succeeded=1, active=0))))
    suspend(stage, True)
    stage.until("trainjobs", one(has("Suspended")))


SCENARIOS: dict[str, Callable[[Stage], None]] = {
    each.__name__: each
    for each in (
        gate, open_and_complete, hold_and_release, release_at_once, release_at_once_by_default_policy,
        hold_while_terminating, one_succeeds_then_hold_and_release, pod_fails, pod_fails_beside_one_that_hangs,
        pod_deleted_by_hand, pod_evicted, node_lost, deadline, deadline_of_the_trainjob, delete_in_the_background,
        delete_in_the_foreground, delete_orphaning, job_set_deleted_by_hand, job_set_of_a_failed_job_deleted,
        leftover_of_a_completed_job, runtime_changed_while_suspended, suspended_after_the_end,
    )
}  # fmt: skip
