from datetime import UTC, datetime

import pytest

from dispatch_kubeflow.backend.objects import causes, seen
from dispatch_kubeflow.backend.objects.pod_endings import decisive, ending
from tests.objects import made
from tests.objects.made import condition, ended, failed, job, jobset, pod, succeeded, trainjob, workload
from tests.objects.samples import decide, end, read, sample

FAILED = condition("Failed", reason="FailedJobs")
COMPLETE = condition("Complete", reason="AllJobsCompleted")


def disrupted(target, name="p0", second=5, **changes):
    return pod(name, conditions=[condition("DisruptionTarget", reason=target, second=second)], **changes)


def watched(name, **record):
    """What a watch knows of a real ending: it saw every pod."""
    found = end(name, **record)
    return causes.facts(found.trainjob, jobset=found.jobset, jobs=found.jobs, pods=found.listed, gone=found.gone)


def listed(name, **record):
    """What Find lists of a real ending afterwards."""
    found = end(name, **record)
    return causes.facts(found.trainjob, jobset=found.jobset, jobs=found.jobs, pods=found.listed)


def cause(facts, mode="plain"):
    return decide(mode)("causes", facts.facts)


@pytest.mark.parametrize(
    ("name", "pod_fact", "expected"),
    [
        ("success", "succeeded", "succeeded"),
        ("exit3", "exit-nonzero", "application"),
        ("oom", "oom-killed", "out-of-memory"),
        ("node-pressure", "evicted-by-kubelet", "evicted"),
        ("evict-api", "evicted-by-api", "evicted"),
        ("preempt-scheduler", "preempted-by-scheduler", "preempted"),
        ("node-deleted", "pod-gc", "node-lost"),
        ("node-not-ready", "taint-manager", "unknown"),
        ("pod-deleted", "deleted", "unknown"),
        ("pod-force-deleted", "deleted", "unknown"),
        ("deadline-job", "deleted", "deadline"),
        ("deadline-trainjob", "deleted", "deadline"),
        ("image-stuck", "image", "image"),
        ("unschedulable", "unschedulable", "no-capacity"),
    ],
)
def test_the_cause_of_real_endings_as_a_watch_saw_them(name, pod_fact, expected):
    found = watched(name)
    assert (found.pod, cause(found)) == (pod_fact, expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("success", "succeeded"),
        ("exit3", "unknown"),
        ("oom", "unknown"),
        ("node-pressure", "evicted"),
        ("evict-api", "unknown"),
        ("deadline-job", "deadline"),
        ("deadline-trainjob", "deadline"),
        ("image-stuck", "image"),
    ],
)
def test_find_afterwards_names_no_cause_that_a_missing_pod_could_contradict(name, expected):
    assert cause(listed(name)) == expected


def test_what_find_did_not_see_is_said():
    assert listed("exit3").not_looked_at == ("1 of the 2 failed pods of Job e3-1-node-0 are gone",)
    assert watched("exit3").not_looked_at == ()


def test_the_exit_code_and_the_pod_are_told():
    found = watched("exit3")
    assert (found.exit_code, found.pod_name) == (3, "e3-1-node-0-0-cm2kc")
    assert found.at == datetime(2026, 11, 29, 21, 37, 34, tzinfo=UTC)
    assert found.evidence == (
        "TrainJob Failed, FailedJobs: jobset failed due to one or more job failures (first failed job: e3-1-node-0)",
        "Job e3-1-node-0 Failed, BackoffLimitExceeded",
        "pod e3-1-node-0-0-cm2kc: exit-nonzero at 2026-11-29T21:37:34Z (container node ended with 3, Error)",
    )


def test_a_taint_says_that_the_node_was_not_read():
    assert "the Node was not read: any NoExecute taint has its pods deleted" in watched("node-not-ready").not_looked_at


@pytest.mark.parametrize(
    ("gate", "found_jobset", "expected"),
    [
        ("lifted", jobset(condition("Completed")), "succeeded"),
        ("lifted", jobset(condition("Completed"), deletionTimestamp="2026-11-29T21:00:00Z"), "succeeded"),
        ("closed", jobset(condition("Completed")), "complete-unshown"),
        (None, jobset(condition("Completed")), "complete-unshown"),
        ("lifted", jobset(condition("Completed"), owner="other-uid"), "complete-unshown"),
        ("lifted", jobset(), "complete-unshown"),
        ("lifted", None, "complete-unshown"),
    ],
)
def test_success_needs_a_lifted_gate_and_a_completed_jobset_of_this_uid(gate, found_jobset, expected):
    assert causes.facts(trainjob(COMPLETE, gate=gate), jobset=found_jobset).ending == expected


@pytest.mark.parametrize(
    ("found", "ending_fact", "stopping"),
    [
        (None, "gone", "no"),
        (trainjob(), "running", "no"),
        (trainjob(FAILED), "failed", "no"),
        (trainjob(hold="1/held"), "running", "held"),
        (trainjob(hold="1/released"), "running", "no"),
        (trainjob(hold=None), "running", "no"),
        (trainjob(hold="1/held", deletionTimestamp="2026-11-29T21:00:00Z"), "running", "deleting"),
    ],
)
def test_what_the_trainjob_shows(found, ending_fact, stopping):
    facts = causes.facts(found)
    assert (facts.ending, facts.stopping) == (ending_fact, stopping)


@pytest.mark.parametrize(
    ("fact", "given_pod"),
    [
        ("running", pod()),
        ("running", pod(phase="Pending", container={"waiting": {"reason": "ContainerCreating"}})),
        ("succeeded", succeeded()),
        ("succeeded", succeeded(conditions=[condition("DisruptionTarget", reason="EvictionByEvictionAPI")])),
        ("succeeded", succeeded(deleted_at=50)),
        ("exit-nonzero", failed(code=3)),
        ("exit-nonzero", pod(container={"terminated": ended(3)})),
        ("exit-nonzero", failed(code=3, second=10, deleted_at=20)),
        ("deleted", failed(code=3, second=20, deleted_at=10)),
        ("deleted", failed(code=3, second=10, deleted_at=10)),
        ("deleted", failed(code=143, second=10, deleted_at=20, grace=0)),
        ("deleted", pod(deleted_at=20, container={"terminated": made.ended(3)}, asked_before_all_time=True)),
        ("exit-137-error", failed(code=137)),
        ("exit-143-error", failed(code=143)),
        ("oom-killed", failed(code=137, ended_reason="OOMKilled")),
        ("status-unknown", failed(code=137, ended_reason="ContainerStatusUnknown")),
        ("status-unknown", failed(code=255, ended_reason="Unknown")),
        ("exit-nonzero", failed(code=255)),
        ("status-unknown", failed(code=None)),
        ("status-unknown", pod(phase="Failed", container={})),
        ("status-unknown", pod(phase="Failed", reason="Odd")),
        ("rejected-by-kubelet", pod(phase="Failed", container={}, reason="OutOfcpu")),
        ("evicted-by-kubelet", disrupted("TerminationByKubelet", phase="Failed", reason="Evicted")),
        ("preempted-by-kubelet", disrupted("TerminationByKubelet", phase="Failed", reason="Preempting")),
        ("node-shutdown", disrupted("TerminationByKubelet", phase="Failed", reason="Terminated")),
        ("status-unknown", disrupted("TerminationByKubelet", phase="Failed")),
        ("status-unknown", disrupted("SomethingNew")),
        ("evicted-storage", failed(code=137, reason="Evicted")),
        ("preempted-by-kubelet", failed(code=137, reason="Preempting")),
        ("node-shutdown", pod(phase="Failed", container={}, reason="NodeShutdown")),
        ("pod-deadline", failed(code=143, reason="DeadlineExceeded")),
        ("taint-manager", disrupted("DeletionByTaintManager")),
        ("pod-gc", disrupted("DeletionByPodGC", phase="Failed")),
        ("kueue-recovery", pod(conditions=[condition("TerminatedByKueue", reason="UnschedulableOnAssignedNode")])),
        ("kueue-recovery", pod(conditions=[condition("KueueFailureRecovery")])),
        ("running", pod(conditions=[condition("DisruptionTarget", "False"), condition("TerminatedByKueue", "False")])),
        ("deleted", pod(deleted_at=5)),
        ("deleted", pod(phase="Failed", deleted_at=5)),
        ("image", pod(phase="Pending", container={"waiting": {"reason": "ErrImagePull"}})),
        ("configuration", pod(phase="Pending", container={"waiting": {"reason": "CreateContainerConfigError"}})),
        (
            "unschedulable",
            pod(phase="Pending", container={}, conditions=[condition("PodScheduled", "False", "Unschedulable")]),
        ),
        (
            "running",
            pod(phase="Pending", container={}, conditions=[condition("PodScheduled", "False", "SchedulingGated")]),
        ),
    ],
)
def test_what_a_pod_shows(fact, given_pod):
    assert ending(given_pod).fact == fact


def test_an_init_container_that_is_restarted_is_no_failure_yet():
    status = {"name": "init", "state": {"terminated": ended(1)}}
    obj = {"status": {"phase": "Pending", "initContainerStatuses": [status]}}
    assert ending(read(obj, seen.Pod)).fact == "running"
    obj["status"]["phase"] = "Failed"
    assert ending(read(obj, seen.Pod)).fact == "exit-nonzero"


def test_of_several_containers_the_first_to_fail_counts():
    statuses = [
        {"name": "node", "state": {"terminated": ended(143, second=12)}},
        {"name": "sidecar", "state": {"terminated": ended(7, second=11)}},
        {"name": "other", "state": {"terminated": ended(0, second=1)}},
    ]
    assert ending(read({"status": {"phase": "Failed", "containerStatuses": statuses}}, seen.Pod)).exit_code == 7


def test_of_containers_that_fail_in_one_second_the_training_one_counts():
    statuses = [
        {"name": "sidecar", "state": {"terminated": ended(7)}},
        {"name": "node", "state": {"terminated": ended(3)}},
    ]
    assert ending(read({"status": {"phase": "Failed", "containerStatuses": statuses}}, seen.Pod)).exit_code == 3


def test_a_deletion_is_placed_when_it_was_asked_for_not_when_it_is_due():
    assert ending(pod(deleted_at=5)).at == seen.moment(made.at(5))


def test_a_rejected_pod_failed_when_its_readiness_fell():
    rejected = pod(phase="Failed", container={}, reason="OutOfcpu", conditions=[condition("Ready", "False", second=4)])
    assert ending(rejected).at == seen.moment(made.at(4))
    assert ending(pod(phase="Failed", container={}, reason="OutOfcpu", conditions=[condition("Ready")])).at is None


def decided(*pods):
    return decisive(ending(each) for each in pods)


def test_the_first_failure_in_time_decides():
    found = decided(failed("late", code=1, second=20), failed("early", code=3, second=10), pod("alive"))
    assert (found.pod.metadata.name, found.exit_code) == ("early", 3)


def test_an_eviction_before_its_peers_abort_decides():
    assert (
        decided(failed(code=1, second=8), disrupted("EvictionByEvictionAPI", "p1", second=5)).fact == "evicted-by-api"
    )


def test_a_deletion_that_is_due_later_may_have_been_asked_for_first():
    assert decided(failed(code=1, second=10), pod("p1", deleted_at=5)).fact == "deleted"


def test_in_one_second_what_failed_by_itself_goes_before_a_deletion():
    assert decided(pod("p1", deleted_at=10), failed(code=1, second=10)).fact == "exit-nonzero"


def test_two_different_failures_in_one_second_conflict():
    found = decided(failed(code=1, second=10), failed("p1", code=137, second=10, ended_reason="OOMKilled"))
    assert (found.fact, found.text) == ("conflicting", "in the same second: exit-nonzero, oom-killed")


def test_equal_failures_in_one_second_do_not_conflict():
    assert decided(failed("b", code=1, second=10), failed("a", code=2, second=10)).pod.metadata.name == "a"


def test_a_failure_without_a_time_may_have_been_first():
    assert decided(failed(code=1), pod("p1", "Failed", container={})).fact == "conflicting"
    assert decided(pod("p1", "Failed", container={})).fact == "status-unknown"


def test_a_failure_decides_before_a_pod_that_is_stuck_and_that_before_a_calm_one():
    stuck = pod("p1", "Pending", container={"waiting": {"reason": "ErrImagePull"}})
    assert decided(stuck, failed(), pod("p2")).fact == "exit-nonzero"
    assert decided(pod("p2"), stuck, succeeded("p3")).fact == "image"
    assert decided(succeeded("p3"), pod("p2")).fact == "running"


def test_without_pods_nothing_decides():
    assert decided() is None
    assert causes.facts(trainjob()).pod == "none"


def missing(found_trainjob, jobs, pods):
    return causes.facts(found_trainjob, jobs=jobs, pods=pods).missing


FAILED_JOB = condition("FailureTarget", reason="BackoffLimitExceeded")


@pytest.mark.parametrize(
    ("expected", "found_trainjob", "jobs", "pods"),
    [
        ("no", trainjob(FAILED), [job(FAILED_JOB, failed=1)], [failed()]),
        ("yes", trainjob(FAILED), [job(FAILED_JOB, failed=2)], [failed()]),
        ("no", trainjob(FAILED), [job(FAILED_JOB, failed=2)], [failed(), failed("p1", code=143, deleted_at=5)]),
        ("yes", trainjob(), [job(FAILED_JOB, failed=2)], [failed(), pod("p1", deleted_at=12)]),
        ("yes", trainjob(), [job(FAILED_JOB, failed=1)], [failed(), pod("p1")]),
        ("yes", trainjob(), [job(failed=1)], [pod("p1", deleted_at=5)]),
        ("yes", trainjob(FAILED), [job(FAILED_JOB, failed=1)], [failed(job="another-uid")]),
        ("yes", trainjob(FAILED), [], [failed()]),
        ("yes", None, [], [failed()]),
        ("yes", trainjob(deletionTimestamp="2026-11-29T21:00:00Z"), [], []),
        ("no", trainjob(), [], []),
        ("no", trainjob(), [job()], [pod()]),
    ],
)
def test_pods_that_may_have_failed_first_and_are_gone_are_missed(expected, found_trainjob, jobs, pods):
    assert missing(found_trainjob, jobs, pods) == expected


def failing(reason, second, name, kind="FailureTarget"):
    return job(condition(kind, reason=reason, second=second), name=name, uid=f"{name}-uid", failed=1)


DEADLINE, BACKOFF = "DeadlineExceeded", "BackoffLimitExceeded"


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([failing(DEADLINE, 10, "a")], "deadline"),
        ([failing(DEADLINE, 10, "a", kind="Failed")], "deadline"),
        ([failing(DEADLINE, 10, "a"), failing(DEADLINE, 10, "b")], "deadline"),
        ([failing(DEADLINE, 10, "a"), failing(BACKOFF, 11, "b")], "deadline"),
        ([failing(DEADLINE, 11, "a"), failing(BACKOFF, 10, "b")], "application"),
        ([failing(DEADLINE, 10, "a"), failing(BACKOFF, 10, "b")], "unknown"),
        ([failing(DEADLINE, 10, "a"), job(FAILED_JOB | {"lastTransitionTime": None}, failed=1)], "unknown"),
    ],
)
def test_of_several_jobs_the_first_that_fails_says_whether_it_was_the_deadline(jobs, expected):
    pods = [failed(name, code=3, job=f"{name}-uid") for name in ("a", "b")]
    found = causes.facts(trainjob(FAILED), jobs=jobs, pods=[*pods, failed("c", code=3)])
    assert cause(found) == expected


def test_peers_that_abort_because_a_node_went_silent_are_not_called_the_cause():
    silent = pod("p1", deleted_at=12)
    found = causes.facts(trainjob(), jobs=[job(FAILED_JOB, failed=2, terminating=1)], pods=[failed(code=1), silent])
    assert (found.pod, cause(found)) == ("exit-nonzero", "unknown")
    assert found.not_looked_at == ("how and when these pods ended is not reported: p1",)


def test_a_silent_nodes_pod_that_podgc_failed_in_the_end_makes_its_peers_no_cause_either():
    podgc = pod("p1", "Failed", conditions=[condition("DisruptionTarget", reason="DeletionByTaintManager", second=50)])
    found = causes.facts(trainjob(FAILED), jobs=[job(FAILED_JOB, failed=2)], pods=[failed(code=1)], gone=[podgc])
    assert (found.pod, cause(found)) == ("exit-nonzero", "unknown")


def test_pods_that_a_released_hold_had_stopped_are_no_part_of_what_runs_now():
    stopped = failed("p0", 143, second=6, deleted_at=5)
    resumed = trainjob(condition("Suspended", "False", reason="Resumed", second=8))
    found = causes.facts(resumed, jobs=[job()], pods=[pod("p2")], gone=[stopped])
    assert (found.pod, found.exit_code, cause(found)) == ("running", None, "none")


def test_pods_that_were_stopped_after_the_job_went_on_still_count():
    stopped = failed("p0", 143, second=10, deleted_at=9)
    resumed = trainjob(condition("Suspended", "False", reason="Resumed", second=8))
    found = causes.facts(resumed, jobs=[job()], pods=[], gone=[stopped])
    assert (found.pod, cause(found)) == ("deleted", "unknown")


def test_a_pod_that_is_still_listed_is_not_taken_from_what_a_watch_remembers():
    facts = causes.facts(
        trainjob(FAILED), jobs=[job(FAILED_JOB, failed=1)], pods=[failed(code=3)], gone=[pod(deleted_at=1)]
    )
    assert facts.exit_code == 3


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("gated", "quiet"),
        ("waiting", "quiet"),
        ("reserved-check-pending", "quiet"),
        ("running", "quiet"),
        ("finished", "quiet"),
        ("failed", "quiet"),
        ("readmitted", "quiet"),
        ("too-big", "waiting"),
        ("preempted", "preempted"),
        ("inactive", "deactivated"),
        ("clusterqueue-holdanddrain-running", "evicted"),
    ],
)
def test_what_real_workloads_show(name, fact):
    assert causes.workload_fact(read(sample(f"kueue-{name}-workload"), seen.Workload))[0] == fact


@pytest.mark.parametrize(
    ("fact", "found"),
    [
        ("node-failures", workload(condition("Evicted", reason="NodeFailures"))),
        ("pods-ready-timeout", workload(condition("Evicted", reason="PodsReadyTimeout"))),
        (
            "pods-ready-timeout",
            workload(condition("Evicted", reason="DeactivatedDueToRequeuingLimitExceeded"), active=False),
        ),
        (
            "execution-time",
            workload(condition("Evicted", reason="DeactivatedDueToMaximumExecutionTimeExceeded"), active=False),
        ),
        ("deactivated", workload(condition("Evicted", reason="DeactivatedDueToAdmissionCheck"))),
        ("deactivated", workload(active=False)),
        ("quiet", workload(active=False, held="1")),
        ("quiet", workload(condition("Evicted", reason="Deactivated"), active=False, held="1")),
        ("evicted", workload(condition("Evicted", reason="LocalQueueStopped"))),
        ("evicted", workload(condition("Evicted"))),
        ("inadmissible", workload(condition("QuotaReserved", "False", "Inadmissible"))),
        ("waiting", workload(condition("QuotaReserved", "False", "Pending"))),
        ("quiet", workload(condition("QuotaReserved", "False", "AdmissionGated"))),
    ],
)
def test_what_a_workload_shows(fact, found):
    assert causes.workload_fact(found)[0] == fact


def test_the_workloads_words_are_evidence():
    found = causes.facts(trainjob(), workloads=[workload(), workload(condition("Evicted", reason="Preempted"))])
    assert found.workload == "preempted"
    assert found.evidence == ("Workload trainjob-resnet-1-abcde: Evicted, Preempted: ",)
    assert cause(found, "kueue") == "preempted"


def test_a_job_that_runs_or_waits_behind_its_gate_has_no_cause():
    assert cause(causes.facts(trainjob(), jobs=[job()], pods=[pod()])) == "none"
    assert cause(causes.facts(trainjob(gate="closed", suspend=True))) == "none"


def test_pods_deleted_by_a_hold_were_stopped():
    assert (
        cause(causes.facts(trainjob(hold="1/held", suspend=True), jobs=[job()], pods=[pod(deleted_at=5)])) == "stopped"
    )


def test_an_orphans_evidence_says_that_its_trainjob_is_gone():
    assert causes.facts(None, pods=[failed()]).evidence[0] == "the TrainJob is gone"
