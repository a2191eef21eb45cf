import json

import pytest

from dispatch_kubeflow.backend.objects import evidence
from dispatch_kubeflow.backend.objects.describe import Describer, conclude
from dispatch_kubeflow.backend.objects.found import Capabilities, Capability
from dispatch_kubeflow.backend.objects.listing import Listing
from dispatch_kubeflow.backend.objects.notes import End, Notes, PodNote
from dispatch_kubeflow.backend.objects.record import Hold
from dispatch_kubeflow.machine.values import ObjectRef
from tests.objects import made
from tests.objects.made import condition, failed, job, jobset, pod, runtime, succeeded, trainjob
from tests.objects.samples import NOW, decide, end


def describer(mode="plain"):
    return Describer("gpu-west", "team-a", mode, decide(mode), call_bound=90.0, check_name="dispatch-hold")


def found(mode="plain", in_flight=(), gone=(), **lists):
    return describer(mode).found("resnet", Listing(**lists), now=NOW, in_flight=in_flight, gone=gone)


def only(**lists):
    (one,) = found(**lists).objects
    return one


def test_a_gated_job():
    one = only(trainjobs=[trainjob(gate="closed", suspend=True)], runtimes=[runtime()])
    assert one.ref == ObjectRef("gpu-west", "team-a", "TrainJob", "resnet-1", "trainjob-uid")
    assert (one.state, one.attempt, one.gate_lifted, one.hold_register, one.cause) == ("gated", 1, False, None, None)


def test_a_held_job_remembers_its_gate():
    one = only(trainjobs=[trainjob(hold="3/held", suspend=True)])
    assert (one.state, one.gate_lifted, one.hold_register) == ("held", True, Hold(3, held=True))


def test_a_job_whose_record_cannot_be_read_says_nothing_of_gate_and_hold():
    one = only(trainjobs=[trainjob(gate="odd", hold="odd", suspend=True)])
    assert (one.state, one.gate_lifted, one.hold_register) == ("opened", None, None)


def test_a_job_being_deleted_is_stopping():
    one = only(trainjobs=[trainjob(deletionTimestamp="2026-11-29T21:00:00Z")])
    assert (one.stopping, one.cause.kind) == (True, "stopped")


def test_a_failing_job_on_a_silent_node():
    silent = end("node-not-ready")
    one = only(trainjobs=[silent.trainjob], jobsets=[silent.jobset], jobs=silent.jobs, pods=silent.listed)
    assert (one.state, one.failing, one.pods.terminating, one.cause.kind) == ("opened", True, 1, "unknown")


def test_a_job_that_waits_for_its_image():
    stuck = end("image-stuck")
    one = only(trainjobs=[stuck.trainjob], jobsets=[stuck.jobset], jobs=stuck.jobs, pods=stuck.listed)
    assert (one.state, one.waiting.reason, one.cause.kind, one.pods.pending) == (
        "opened",
        "ImagePullBackOff",
        "image",
        2,
    )


def test_an_ended_job_neither_waits_nor_fails_nor_drifts():
    done = end("exit3")
    one = only(trainjobs=[done.trainjob], jobsets=[done.jobset], jobs=done.jobs, pods=done.listed)
    assert (one.state, one.waiting, one.failing, one.drift) == ("ended", None, False, ())


def test_what_a_watch_saw_go_tells_the_cause():
    done = end("exit3")
    lists = {"trainjobs": [done.trainjob], "jobsets": [done.jobset], "jobs": done.jobs, "pods": done.listed}
    assert found(**lists).objects[0].cause.kind == "unknown"
    cause = found(**lists, gone=done.gone).objects[0].cause
    assert (cause.kind, cause.exit_code) == ("application", 3)


def test_pods_of_another_attempt_tell_nothing_of_this_ones_cause():
    lists = {"trainjobs": [trainjob()], "jobs": [job()], "pods": [pod()]}
    assert found(**lists, gone=[failed("old", attempt=2)]).objects[0].cause is None


def test_drift_is_shown():
    one = only(trainjobs=[trainjob(gate="closed")])
    assert (one.state, [str(each) for each in one.drift]) == (
        "opened",
        ["spec.suspend is false, the record wants true"],
    )


def test_an_orphaned_jobset_counts_its_pods_and_has_a_cause():
    mine = pod("mine", job="job-uid")
    lists = {"jobsets": [jobset()], "jobs": [job()], "pods": [mine, failed("p1")]}
    one = only(**lists)
    assert (one.ref.kind, one.state, one.collecting, one.gate_lifted) == ("JobSet", "orphaned", True, None)
    assert one.cause.kind == "unknown"


def test_an_orphaned_job_and_pod_count_the_pods_that_go_with_them():
    (orphaned_job,) = found(jobs=[job()], pods=[pod()]).objects
    assert (orphaned_job.ref.kind, orphaned_job.pods.running) == ("Job", 1)
    (orphaned_pod,) = found(pods=[pod(deleted_at=3)]).objects
    assert (orphaned_pod.ref.kind, orphaned_pod.pods.terminating, orphaned_pod.stopping) == ("Pod", 1, True)


def test_a_jobsets_pods_are_told_by_its_uid():
    labelled = made.label(
        {"metadata": {"name": "p", "uid": "p-uid", "ownerReferences": [{"kind": "Job", "uid": "job-uid"}]}}
    )
    labelled["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"] = "jobset-uid"
    one = only(jobsets=[jobset()], jobs=[job()], pods=[made.read(labelled, made.seen.Pod)])
    assert one.pods.total == 1


def test_a_young_copy_is_a_start_on_its_way_and_has_no_cause():
    one = only(runtimes=[runtime(owner=None, created="2026-11-29T21:59:30Z")])
    assert (one.ref.kind, one.state, one.cause) == ("TrainingRuntime", "starting", None)


def test_attempts_in_flight_are_each_told_once_in_order():
    assert found(in_flight=[3, 1, 3]).in_flight == (1, 3)


def test_trainjobs_come_by_attempt_and_then_the_orphans():
    lists = {"trainjobs": [trainjob(attempt=10, uid="a"), trainjob(attempt=2, uid="b")], "pods": [pod(attempt=1)]}
    assert [each.ref.name for each in found(**lists).objects] == ["resnet-2", "resnet-10", "p0"]


def test_everything_found_is_json():
    done = end("exit3", hold="2/released")
    stuck = end("image-stuck")
    for one in (done, stuck):
        view = found(
            trainjobs=[one.trainjob],
            jobsets=[one.jobset],
            jobs=one.jobs,
            pods=[*one.listed, pod(attempt=9)],
            runtimes=[runtime()],
            in_flight=[4],
            gone=one.gone,
        )
        assert json.loads(json.dumps(view.to_json()))["in_flight"] == [4]
    shown = found(
        trainjobs=[done.trainjob], jobsets=[done.jobset], jobs=done.jobs, pods=done.listed, gone=done.gone
    ).to_json()
    (one,) = shown["objects"]
    assert one["hold_register"] == {"instance": 2, "held": False}
    assert one["cause"]["at"] == "2026-11-29T21:37:34+00:00"
    assert one["pods"]["total"] == 1


def ceases(facts, *, never=False, complete=True, may_make=()):
    def decided(family, stated):
        assert family == "evidence"
        if stated["opened"] == "never":
            return "never-opened"
        return "terminated" if stated["end"] == "reported" else "not-shown"

    return conclude(facts, decide=decided, never_opened=never, complete=complete, may_make=may_make)


def test_a_job_ceased_when_every_pod_is_shown_and_nothing_makes_one():
    facts = evidence.pod_facts([succeeded()], None, {})
    found_cessation = ceases(facts)
    assert found_cessation.ceased
    assert [(each.kind, each.pod) for each in found_cessation.evidence] == [("terminated", "p0")]


def test_one_pod_not_shown_is_enough_to_doubt():
    notes = Notes(
        version=1,
        trainjob="t",
        pods=(PodNote(uid="u", name="p1", ends=(End("node", "c", 0),)), PodNote(uid="v", name="p2")),
    )
    assert not ceases(evidence.pod_facts([], notes, {})).ceased


def test_pods_nobody_saw_are_one_entry_that_is_not_shown():
    found_cessation = ceases(evidence.pod_facts([succeeded()], None, {}), complete=False)
    assert not found_cessation.ceased
    assert [(each.kind, each.pod) for each in found_cessation.evidence] == [
        ("terminated", "p0"),
        ("not-shown", "unobserved"),
    ]


def test_what_could_make_a_pod_is_enough_to_doubt():
    found_cessation = ceases(evidence.pod_facts([succeeded()], None, {}), may_make=["Job x"])
    assert not found_cessation.ceased
    assert found_cessation.to_json()["may_make_pods"] == ["Job x"]


def test_a_job_never_opened_ceased_as_a_whole():
    found_cessation = ceases([], never=True, complete=False)
    assert found_cessation.ceased
    assert [(each.kind, each.pod) for each in found_cessation.evidence] == [("never-opened", None)]
    assert json.dumps(found_cessation.to_json())


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_a_capability_is_its_answer(answer):
    one = Capability(answer, "because")
    assert bool(one) is (answer == "yes")
    assert Capabilities(one, one, one).to_json()["hold"] == {"answer": answer, "reason": "because"}


def test_a_completed_job_that_was_opened_succeeded():
    one = only(
        trainjobs=[trainjob(condition("Complete"))],
        jobsets=[jobset(condition("Completed"))],
        jobs=[job(condition("Complete"))],
        pods=[succeeded()],
    )
    assert (one.state, one.cause.kind, one.pods.succeeded) == ("ended", "succeeded", 1)
