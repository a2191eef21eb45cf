from datetime import timedelta

import pytest

from dispatch_kubeflow.backend.objects import listing
from dispatch_kubeflow.backend.objects.listing import Listing
from tests.objects.made import job, jobset, pod, runtime, trainjob, workload
from tests.objects.samples import NOW

CALL_BOUND = 90.0


def orphans(now=NOW, **lists):
    found = listing.orphans(Listing(**lists), now=now, call_bound=CALL_BOUND)
    return [(each.kind, each.state, each.collecting) for each in found]


def whole(attempt=1):
    return {
        "runtimes": [runtime(attempt=attempt)],
        "pods": [pod(attempt=attempt)],
        "jobs": [job(attempt=attempt)],
        "jobsets": [jobset(attempt=attempt)],
        "trainjobs": [trainjob(attempt=attempt)],
    }


def test_nothing_of_a_whole_job_is_an_orphan():
    assert orphans(**whole()) == []


def test_each_trainjob_has_what_belongs_to_its_attempt():
    lists = {key: [*whole(2)[key], *whole(1)[key]] for key in whole()}
    first, second = listing.views(Listing(**lists))
    assert [listing.attempt_of(each.trainjob) for each in (first, second)] == [1, 2]
    for view, attempt in ((first, "1"), (second, "2")):
        below = [view.jobset, *view.jobs, *view.pods]
        assert len(below) == 3
        assert {each.metadata.labels.attempt for each in below} == {attempt}


def test_a_workload_belongs_to_the_trainjob_that_controls_it():
    (view,) = listing.views(Listing(trainjobs=[trainjob()], workloads=[workload(), workload(owner="other-uid")]))
    assert [each.metadata.owner_references[0].uid for each in view.workloads] == ["trainjob-uid"]


def test_pods_without_an_attempt_belong_to_no_trainjob():
    unlabelled = pod()
    stripped = type(unlabelled)(metadata=type(unlabelled.metadata)(name="p"))
    (view,) = listing.views(Listing(trainjobs=[trainjob()], pods=[stripped]))
    assert view.pods == []


def test_a_copy_is_young_under_a_bound_longer_than_any_time():
    (found,) = listing.orphans(Listing(runtimes=[runtime(owner=None)]), now=NOW, call_bound=1e15)
    assert found.state == "starting"


def test_a_jobset_without_an_owner_and_without_a_trainjob_is_orphaned():
    assert orphans(jobsets=[jobset(owner=None)]) == [("JobSet", "orphaned", False)]


def test_a_jobset_whose_trainjob_is_gone_is_being_collected():
    assert orphans(jobsets=[jobset()]) == [("JobSet", "orphaned", True)]


def test_a_jobset_of_an_earlier_trainjob_of_its_name_is_being_collected():
    assert orphans(jobsets=[jobset()], trainjobs=[trainjob(uid="new-uid")]) == [("JobSet", "orphaned", True)]


def test_a_jobset_without_an_owner_is_its_trainjobs_while_that_is_there():
    assert orphans(jobsets=[jobset(owner=None)], trainjobs=[trainjob()]) == []


def test_only_the_topmost_orphan_is_named():
    lists = whole() | {"trainjobs": [], "runtimes": []}
    assert orphans(**lists) == [("JobSet", "orphaned", True)]


def test_a_job_whose_jobset_is_gone_is_an_orphan():
    assert orphans(jobs=[job()], pods=[pod()]) == [("Job", "orphaned", True)]
    assert orphans(jobs=[job(owner=None)]) == [("Job", "orphaned", False)]


def test_a_job_whose_jobset_is_gone_is_being_collected_though_its_trainjob_is_there():
    assert orphans(jobs=[job()], trainjobs=[trainjob()]) == [("Job", "orphaned", True)]


def test_a_pod_that_outlived_all_above_it_is_an_orphan():
    assert orphans(pods=[pod()]) == [("Pod", "orphaned", True)]
    assert orphans(pods=[pod(job=None)]) == [("Pod", "orphaned", False)]


def test_a_pod_whose_job_is_gone_is_its_trainjobs_while_that_is_there():
    assert orphans(pods=[pod()], trainjobs=[trainjob()]) == []


def test_a_pod_of_another_attempt_than_the_trainjobs_is_an_orphan():
    assert orphans(pods=[pod(attempt=2)], trainjobs=[trainjob()]) == [("Pod", "orphaned", True)]


def test_a_young_copy_without_an_owner_may_be_a_start_on_its_way():
    created = {"created": "2026-11-29T21:59:00Z", "owner": None}
    assert orphans(runtimes=[runtime(**created)]) == [("TrainingRuntime", "starting", False)]
    assert orphans(runtimes=[runtime(**created)], now=NOW + timedelta(seconds=30)) == [
        ("TrainingRuntime", "orphaned", False)
    ]


def test_a_copy_without_a_readable_age_is_not_young():
    assert orphans(runtimes=[runtime(owner=None, created="")]) == [("TrainingRuntime", "orphaned", False)]


def test_a_copy_whose_trainjob_exists_is_no_orphan():
    assert orphans(runtimes=[runtime(owner=None)], trainjobs=[trainjob()]) == []
    assert orphans(runtimes=[runtime()], trainjobs=[trainjob()]) == []


def test_a_copy_whose_owner_is_gone_is_being_collected():
    assert orphans(runtimes=[runtime()]) == [("TrainingRuntime", "orphaned", True)]


def test_orphans_come_in_the_order_in_which_they_are_stopped():
    lists = {
        "runtimes": [runtime(attempt=1)],
        "pods": [pod(attempt=2, job="gone-1")],
        "jobs": [job(attempt=3, owner="gone-2", uid="other-job")],
        "jobsets": [jobset(attempt=4)],
    }
    assert [each[0] for each in orphans(**lists)] == ["JobSet", "Job", "Pod", "TrainingRuntime"]


def test_an_orphan_tells_its_attempt():
    (found,) = listing.orphans(Listing(jobsets=[jobset(attempt=7)]), now=NOW, call_bound=CALL_BOUND)
    assert found.attempt == 7


def test_an_object_whose_labels_cannot_be_read_is_looked_up_by_its_own_name():
    plain = jobset(owner=None)
    stripped = type(plain)(metadata=type(plain.metadata)(name="resnet-1", uid="u"))
    assert orphans(jobsets=[stripped], trainjobs=[trainjob()]) == []


@pytest.mark.parametrize("kind", ["jobsets", "jobs", "pods", "runtimes"])
def test_an_empty_list_has_no_orphans(kind):
    assert orphans(**{kind: []}) == []
