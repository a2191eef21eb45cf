import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.machine.identifiers import HIGHEST_ATTEMPT, LONGEST_JOB_ID
from tests.objects.samples import IDENTITY, read

job_ids = st.from_regex(r"[a-z]([-a-z0-9]{0,37}[a-z0-9])?", fullmatch=True)
attempts = st.integers(1, HIGHEST_ATTEMPT)


@given(job_ids, attempts)
def test_a_name_gives_back_its_job_and_attempt(job, attempt):
    assert names.parse_name(names.object_name(job, attempt)) == (job, attempt)


@given(job_ids, attempts)
def test_labels_give_back_who_they_name(job, attempt):
    identity = names.Identity("gpu-west", job, attempt)
    metadata = read({"metadata": {"name": identity.name, "labels": identity.labels}}, seen.TrainJob).metadata
    assert names.named_identity(metadata) == identity


@pytest.mark.parametrize(
    "name",
    [
        "",
        "resnet",
        "resnet-",
        "-1",
        "resnet-0",
        "resnet-01",
        "resnet-1000000",
        "Resnet-1",
        "1net-1",
        "resnet--1",
        "a_b-1",
    ],
)
def test_a_name_we_would_not_give_is_not_read(name):
    assert names.parse_name(name) is None


def test_the_longest_job_id_is_read_and_no_longer_one():
    assert names.parse_name("a" * LONGEST_JOB_ID + "-1") == ("a" * LONGEST_JOB_ID, 1)
    assert names.parse_name("a" * (LONGEST_JOB_ID + 1) + "-1") is None


@pytest.mark.parametrize("text", [None, "", "0", "01", "1 ", "+1", "１", "1000000"])
def test_an_attempt_not_as_we_write_it_is_not_read(text):
    assert names.parse_attempt(text) is None


@pytest.mark.parametrize("missing", [names.BACKEND, names.JOB, names.ATTEMPT])
def test_who_it_is_needs_all_three_labels(missing):
    labels = {key: value for key, value in IDENTITY.labels.items() if key != missing}
    assert names.identity(read({"metadata": {"labels": labels}}, seen.Pod).metadata.labels) is None


def test_a_name_that_disagrees_with_its_labels_is_nobodys():
    metadata = read({"metadata": {"name": "resnet-2", "labels": IDENTITY.labels}}, seen.TrainJob).metadata
    assert names.identity(metadata.labels) == IDENTITY
    assert names.named_identity(metadata) is None


def test_selectors_name_what_they_select():
    assert (
        names.job_selector("gpu-west", "resnet")
        == "dispatch-kubeflow.io/backend=gpu-west,dispatch-kubeflow.io/job=resnet"
    )
    assert names.backend_selector("gpu-west") == "dispatch-kubeflow.io/backend=gpu-west,dispatch-kubeflow.io/job"
    assert names.workload_selector("u1") == "kueue.x-k8s.io/job-uid=u1"
    assert names.rank0_selector("resnet-1") == (
        "jobset.sigs.k8s.io/jobset-name=resnet-1,jobset.sigs.k8s.io/replicatedjob-name=node,"
        "jobset.sigs.k8s.io/job-index=0,batch.kubernetes.io/job-completion-index=0"
    )


def test_config_maps_are_named_after_the_trainjob():
    assert names.snapshot_name("resnet-1") == "resnet-1-runtime-snapshot"
    assert names.notes_name("resnet-1") == "resnet-1-notes"


def test_every_key_of_ours_that_is_read_is_one_we_write():
    read_keys = {
        field.encode_name for kept in (seen.Labels, seen.Annotations) for field in msgspec.structs.fields(kept)
    }
    ours = {key for key in read_keys if key.startswith(names.PREFIX)}
    written = {
        names.BACKEND,
        names.JOB,
        names.ATTEMPT,
        names.GATE,
        names.HOLD,
        names.MODE,
        names.NONCE,
        names.DIGEST,
        names.HELD,
    }
    assert ours == written
