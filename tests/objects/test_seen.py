import json
from datetime import UTC, datetime

import msgspec
import pytest

from dispatch_kubeflow.backend.objects import seen
from tests.objects.samples import DATA, end, read, sample

KINDS = {"TrainJob": seen.TrainJob, "JobSet": seen.JobSet, "Workload": seen.Workload, "TrainingRuntime": seen.Runtime}


@pytest.mark.parametrize(
    "kind", [seen.TrainJob, seen.Runtime, seen.JobSet, seen.Job, seen.Pod, seen.Node, seen.Workload]
)
def test_an_empty_object_is_read_with_every_field_absent(kind):
    found = seen.read({}, kind)
    assert not isinstance(found, seen.Unreadable)
    assert found.metadata == seen.Metadata()


def test_every_real_object_of_a_known_kind_is_read():
    read_kinds = set()
    for path in sorted(DATA.glob("*.json")):
        obj = json.loads(path.read_text())
        if obj.get("kind") in KINDS:
            assert not isinstance(seen.read(obj, KINDS[obj["kind"]]), seen.Unreadable), path.name
            read_kinds.add(obj["kind"])
    assert read_kinds == set(KINDS)


def test_only_the_kept_keys_of_labels_and_annotations_are_read():
    pod = read(sample("kueue-running-pod"), seen.Pod)
    assert set(msgspec.to_builtins(pod.metadata.labels)) <= {
        "jobset.sigs.k8s.io/jobset-name",
        "jobset.sigs.k8s.io/jobset-uid",
        "jobset.sigs.k8s.io/replicatedjob-name",
        "jobset.sigs.k8s.io/job-index",
        "batch.kubernetes.io/job-completion-index",
    }


def test_single_objects_keep_their_kind():
    job = read(sample("kueue-running-trainjob"), seen.TrainJob)
    assert (job.api_version, job.kind) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")


def test_a_wrong_type_is_unreadable_and_says_where():
    found = seen.read({"spec": {"suspend": "yes"}}, seen.TrainJob)
    assert isinstance(found, seen.Unreadable)
    assert "suspend" in found.problem


def test_zero_times_that_kubelets_write_as_null_are_read():
    status = {"state": {"terminated": {"exitCode": 137, "finishedAt": None, "startedAt": None}}}
    found = read({"status": {"containerStatuses": [status]}}, seen.Pod)
    assert found.status.container_statuses[0].state.terminated.finished_at is None


def test_deletion_was_asked_for_before_its_time_by_the_grace_period():
    pod = read(sample("hanging-pod-after-delete"), seen.Pod)
    assert pod.metadata.deletion_asked == datetime(2026, 11, 29, 21, 55, 54, tzinfo=UTC)


@pytest.mark.parametrize(
    ("due", "grace"),
    [("2026-11-29T21:55:54Z", 10**12), ("2026-11-29T21:55:54Z", 10**18), ("0001-01-01T00:00:00Z", 30)],
)
def test_a_deletion_asked_for_before_all_time_has_no_time(due, grace):
    assert seen.Metadata(deletion_timestamp=due, deletion_grace_period_seconds=grace).deletion_asked is None


def test_an_object_that_is_not_deleted_has_no_time_of_it():
    assert seen.Metadata().deletion_asked is None
    assert not seen.Metadata().deleting


@pytest.mark.parametrize("text", [None, "", "soon"])
def test_what_is_no_time_is_none(text):
    assert seen.moment(text) is None


def test_times_are_aware():
    assert seen.moment("2026-11-29T21:55:54.000000Z") == datetime(2026, 11, 29, 21, 55, 54, tzinfo=UTC)
    assert seen.moment("2026-11-29T21:55:54") == datetime(2026, 11, 29, 21, 55, 54, tzinfo=UTC)


def test_the_controlling_owner_comes_first():
    one = seen.OwnerReference(kind="TrainJob", uid="1")
    two = seen.OwnerReference(kind="TrainJob", uid="2", controller=True)
    assert seen.Metadata(owner_references=(one, two)).owner("TrainJob") is two
    assert seen.Metadata(owner_references=(one,)).owner("TrainJob") is one
    assert seen.Metadata(owner_references=(one,)).owner("Job") is None


def test_a_condition_counts_only_if_it_is_true():
    job = end("exit3").jobs[0]
    assert seen.is_true(job.status.conditions, "FailureTarget")
    assert not seen.is_true(job.status.conditions, "Suspended")
    assert not seen.is_true(job.status.conditions, "Complete")
