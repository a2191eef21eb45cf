import copy

import pytest

from dispatch_kubeflow.backend.objects import names, runtime_copy
from dispatch_kubeflow.backend.objects.runtime_copy import Source
from dispatch_kubeflow.backend.objects.seen import Unreadable
from tests.objects.samples import IDENTITY, job_spec, runtime, sample, with_checkpoint


def source(change=lambda obj: None):
    obj = runtime("torch_distributed")
    obj["metadata"] |= {"uid": "su", "resourceVersion": "3"}
    change(obj)
    found = Source.of(obj, "ClusterTrainingRuntime")
    assert not isinstance(found, Unreadable)
    return found


def build(change=lambda obj: None, job=None, identity=IDENTITY, nonce="n1"):
    return runtime_copy.build(source(change), identity, job or job_spec(), namespace="team-a", nonce=nonce)


def replicated(body):
    return body["spec"]["template"]["spec"]["replicatedJobs"][0]


def stored(body):
    """As the apiserver gives it back."""
    made = copy.deepcopy(body)
    made["metadata"] |= {"uid": "cu", "resourceVersion": "4", "generation": 1}
    return made


def test_what_makes_a_job_safe_is_set_where_the_source_leaves_it_unset():
    job = replicated(build())["template"]["spec"]
    assert (job["backoffLimit"], job["podReplacementPolicy"]) == (0, "Failed")
    assert job["template"]["spec"]["restartPolicy"] == "Never"


def deadlines(body):
    jobs = body["spec"]["template"]["spec"]["replicatedJobs"]
    return {each["name"]: each["template"]["spec"].get("activeDeadlineSeconds") for each in jobs}


def with_initializer(name="dataset-initializer", **job):
    def change(obj):
        jobs = obj["spec"]["template"]["spec"]["replicatedJobs"]
        jobs.insert(0, {"name": name, "template": {"spec": {**job, "template": {"spec": {}}}}})
        jobs[1]["dependsOn"] = [{"name": name, "status": "Complete"}]

    return change


def test_every_job_gets_the_deadline_for_one_that_hangs_keeps_the_others_waiting():
    body = build(with_initializer(), job_spec(deadline_seconds=60))
    assert deadlines(body) == {"dataset-initializer": 60, "node": 60}


@pytest.mark.parametrize(("own", "asked", "written"), [(30, 60, 30), (60, 30, 30), (60, 60, 60), (90, None, 90)])
def test_of_the_runtimes_deadline_and_the_jobs_the_nearer_holds(own, asked, written):
    body = build(with_initializer(activeDeadlineSeconds=own), job_spec(deadline_seconds=asked))
    assert deadlines(body) == {"dataset-initializer": written, "node": asked}


def test_a_deadline_of_the_pods_own_stays():
    def change(obj):
        replicated(obj)["template"]["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 5

    body = build(change, job_spec(deadline_seconds=60))
    assert replicated(body)["template"]["spec"]["template"]["spec"]["activeDeadlineSeconds"] == 5
    assert deadlines(body) == {"node": 60}


def test_the_digest_covers_the_deadline():
    bodies = [build(job=job_spec(deadline_seconds=seconds)) for seconds in (60, 61, None)]
    assert len({body["metadata"]["annotations"][names.DIGEST] for body in bodies}) == 3
    assert runtime_copy.not_reusable(stored(bodies[0]), bodies[1]) == "differs"


def test_our_labels_are_on_the_jobset_the_jobs_and_the_pods():
    body = build()
    templates = [
        body["spec"]["template"],
        replicated(body)["template"],
        replicated(body)["template"]["spec"]["template"],
    ]
    for template in templates:
        assert IDENTITY.labels.items() <= template["metadata"]["labels"].items()
    assert IDENTITY.labels.items() <= body["metadata"]["labels"].items()


def test_the_labels_land_where_real_controllers_carry_them():
    jobset, pod = sample("labels-jobset"), sample("labels-pod")
    levels = [jobset["metadata"]["labels"], jobset["spec"]["replicatedJobs"][0]["template"]["metadata"]["labels"]]
    assert [each["dispatch-kubeflow.io/level"] for each in [*levels, pod["metadata"]["labels"]]] == [
        "jobset",
        "job",
        "pod",
    ]


def test_trainers_label_on_the_trainer_job_stays():
    assert replicated(build())["template"]["metadata"]["labels"][names.ANCESTOR] == "trainer"


def test_the_source_is_written_down():
    annotations = build()["metadata"]["annotations"]
    assert annotations[names.SOURCE_KIND] == "ClusterTrainingRuntime"
    assert annotations[names.SOURCE_NAME] == "torch-distributed"
    assert annotations[names.SOURCE_UID] == "su"
    assert annotations[names.SOURCE_RESOURCE_VERSION] == "3"


def test_the_switch_that_turns_validation_off_is_dropped_and_others_labels_are_not_carried():
    def change(obj):
        obj["metadata"]["labels"] |= {names.VALIDATION_SWITCH: "disabled", "argocd.argoproj.io/instance": "x"}

    labels = build(change)["metadata"]["labels"]
    assert labels == {"trainer.kubeflow.org/framework": "torch", **IDENTITY.labels}


def test_every_container_gets_the_job_and_its_attempt():
    def change(obj):
        pod = replicated(obj)["template"]["spec"]["template"]["spec"]
        pod["initContainers"] = [{"name": "prepare"}]
        pod["containers"].append({"name": "sidecar", "env": [{"name": "A", "value": "1"}]})

    pod = replicated(build(change))["template"]["spec"]["template"]["spec"]
    ours = [
        {"name": "DISPATCH_JOB_ID", "value": "resnet"},
        {"name": "DISPATCH_ATTEMPT", "value": "1"},
        {"name": "DISPATCH_BACKEND", "value": "gpu-west"},
    ]
    assert pod["initContainers"][0]["env"] == ours
    assert pod["containers"][0]["env"] == ours
    assert pod["containers"][1]["env"] == [*ours, {"name": "A", "value": "1"}]


def test_the_checkpoints_path_is_told_where_it_is_mounted():
    def change(obj):
        replicated(obj)["template"]["spec"]["template"]["spec"]["containers"].append({"name": "sidecar"})

    job = job_spec(extensions=with_checkpoint(job_spec().extensions))
    containers = replicated(build(change, job))["template"]["spec"]["template"]["spec"]["containers"]
    told = [
        {each["name"]: each["value"] for each in container["env"]}.get("DISPATCH_CHECKPOINT")
        for container in containers
    ]
    assert told == ["/ck", None]


def test_a_variable_of_our_name_in_the_source_is_replaced_not_doubled():
    def change(obj):
        container = replicated(obj)["template"]["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [{"name": "DISPATCH_JOB_ID", "value": "x"}, {"name": "DISPATCH_CHECKPOINT", "value": "/x"}]

    env = replicated(build(change))["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [each["name"] for each in env] == ["DISPATCH_JOB_ID", "DISPATCH_ATTEMPT", "DISPATCH_BACKEND"]
    assert env[0]["value"] == "resnet"


def test_the_source_itself_is_left_as_it_was():
    obj = runtime("torch_distributed")
    before = copy.deepcopy(obj)
    runtime_copy.hardened(obj["spec"], IDENTITY, job_spec())
    assert obj == before


def test_the_digest_on_it_is_that_of_its_spec():
    body = build()
    assert body["metadata"]["annotations"][names.DIGEST] == runtime_copy.spec_digest(body)


@pytest.mark.parametrize("odd", [{}, {"metadata": {}}, {"metadata": {}, "spec": []}])
def test_a_source_without_metadata_or_spec_is_unreadable(odd):
    assert isinstance(Source.of(odd, "TrainingRuntime"), Unreadable)


def test_a_source_without_labels_has_none():
    assert source(lambda obj: obj["metadata"].pop("labels")).labels == {}


def test_a_first_trys_copy_is_reusable_whatever_its_nonce():
    assert runtime_copy.not_reusable(stored(build(nonce="n0")), build(nonce="n1")) is None


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("owned", lambda found: found["metadata"].update(ownerReferences=[{"kind": "TrainJob", "uid": "t"}])),
        ("deleting", lambda found: found["metadata"].update(deletionTimestamp="2026-11-29T21:36:09Z")),
        ("another", lambda found: found["metadata"]["labels"].update({names.BACKEND: "gpu-east"})),
        ("another", lambda found: found["metadata"]["labels"].pop(names.JOB)),
        ("differs", lambda found: found["spec"]["mlPolicy"].update(numNodes=7)),
        ("differs", lambda found: found.pop("spec")),
        ("unreadable", lambda found: found.update(metadata=[])),
    ],
)
def test_a_copy_that_is_not_this_starts_is_not_reusable(why, change):
    found = stored(build())
    change(found)
    assert runtime_copy.not_reusable(found, build()) == why


def test_the_digest_annotation_of_a_copy_is_not_believed():
    wanted = build()
    found = stored(wanted)
    found["spec"]["mlPolicy"]["numNodes"] = 7
    assert found["metadata"]["annotations"][names.DIGEST] == wanted["metadata"]["annotations"][names.DIGEST]
    assert runtime_copy.not_reusable(found, wanted) == "differs"


def test_a_retry_with_another_specification_is_not_the_same_copy():
    checkpointed = build(job=job_spec(extensions=with_checkpoint(job_spec().extensions)))
    assert runtime_copy.not_reusable(stored(build()), checkpointed) == "differs"


def test_a_reused_copy_gets_this_calls_nonce():
    assert runtime_copy.nonce_patch("cu", "4", "n2") == {
        "metadata": {"uid": "cu", "resourceVersion": "4", "annotations": {names.NONCE: "n2"}}
    }
