import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.objects import names, trainjob
from tests.objects.samples import IDENTITY, job_spec, sample, with_checkpoint


def build(spec=None, **how):
    given_how = {"namespace": "team-a", "mode": "plain", "nonce": "n1"} | how
    return trainjob.build(IDENTITY, spec or job_spec(), **given_how)


def checkpointed():
    return job_spec(extensions=with_checkpoint(job_spec().extensions))


def everything_in(value):
    yield value
    if isinstance(value, dict):
        for each in value.values():
            yield from everything_in(each)
    if isinstance(value, list):
        for each in value:
            yield from everything_in(each)


def test_it_is_born_gated():
    body = build()
    assert body["spec"]["suspend"] is True
    assert body["metadata"]["annotations"][names.GATE] == "closed"
    assert body["metadata"]["annotations"][names.HOLD] == "none"


def test_it_carries_who_it_is():
    metadata = build()["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("resnet-1", "team-a")
    assert metadata["labels"] == IDENTITY.labels
    assert metadata["annotations"][names.MODE] == "plain"
    assert metadata["annotations"][names.NONCE] == "n1"


def test_every_field_a_server_would_default_is_written():
    spec = build()["spec"]
    assert spec["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
    assert spec["runtimeRef"] == {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "resnet-1"}


def test_its_spec_has_the_form_that_trainer_took():
    taken = sample("readback-plain-trainjob")["spec"]
    spec = build(checkpointed())["spec"]
    for variable in taken["trainer"]["env"]:
        if not variable["value"]:
            del variable["value"]
    assert spec["trainer"] == taken["trainer"]
    ours, theirs = spec["runtimePatches"][0], taken["runtimePatches"][0]
    assert ours["manager"] == theirs["manager"]
    text = str(theirs["trainingRuntimeSpec"]).replace("'ck'", f"'{trainjob.CHECKPOINT_VOLUME}'")
    assert sorted(str(ours["trainingRuntimeSpec"])) == sorted(text)


def test_a_job_that_asks_for_little_writes_no_more():
    spec = build(job_spec(args=(), env={}, procs_per_node=None, resources={}, deadline_seconds=None))["spec"]
    assert set(spec) == {"managedBy", "runtimeRef", "suspend", "trainer"}
    assert spec["trainer"] == {"image": "x:y", "command": ["python", "-u"], "numNodes": 2}


def test_the_deadline_is_none_of_its_fields():
    # Trainer deletes the JobSet at a deadline of its own, and when busy makes it again beside pods that still stop.
    assert build(job_spec(deadline_seconds=60)) == build(job_spec(deadline_seconds=None))


def test_nothing_that_a_server_would_drop_is_written():
    for body in (build(), build(checkpointed()), build(mode="kueue", queue="lq")):
        assert None not in list(everything_in(body))
        assert body["metadata"]["labels"]
        assert body["metadata"]["annotations"]


def test_nothing_empty_is_written_for_with_it_kueue_could_not_start_the_job():
    spec = build(job_spec(args=(), env={"A": "", "B": "1"}, resources={"requests": {"cpu": "1"}, "limits": {}}))["spec"]
    assert "args" not in spec["trainer"]
    assert spec["trainer"]["env"] == [{"name": "A"}, {"name": "B", "value": "1"}]
    assert spec["trainer"]["resourcesPerNode"] == {"requests": {"cpu": "1"}}
    assert "resourcesPerNode" not in build(job_spec(resources={"requests": {}}))["spec"]["trainer"]


def test_numbers_among_the_resources_are_written_as_text():
    spec = build(job_spec(resources={"requests": {"cpu": 0.5, "memory": 1024}}))["spec"]
    assert spec["trainer"]["resourcesPerNode"] == {"requests": {"cpu": "0.5", "memory": "1024"}}


def test_in_kueue_mode_it_is_queued_and_gated():
    metadata = build(mode="kueue", queue="lq")["metadata"]
    assert metadata["labels"][names.QUEUE_NAME] == "lq"
    assert metadata["annotations"][names.ADMISSION_GATED_BY] == "dispatch-kubeflow.io/gate"


def test_in_plain_mode_it_names_no_queue():
    metadata = build(queue="lq")["metadata"]
    assert names.QUEUE_NAME not in metadata["labels"]
    assert names.ADMISSION_GATED_BY not in metadata["annotations"]


def test_kueue_mode_without_a_queue_is_a_mistake_of_the_code():
    with pytest.raises(ValueError, match="LocalQueue"):
        build(mode="kueue")


def test_the_digest_is_on_it():
    body = build()
    assert body["metadata"]["annotations"][names.DIGEST] == trainjob.written_digest(body)


quantity_pairs = st.sampled_from([("1000m", "1"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), ("2", "2"), ("1e3", "1k")])


def after_the_servers(body, pairs, *, admitted):
    """What Trainer and Kueue make of it: quantities rewritten, time stamps, Kueue's entry, suspend, status."""
    found = copy.deepcopy(body)
    spelled = dict(pairs)
    for block in found["spec"]["trainer"].get("resourcesPerNode", {}).values():
        for name, quantity in block.items():
            block[name] = spelled.get(quantity, quantity)
    patches = found["spec"].setdefault("runtimePatches", [])
    for patch in patches:
        patch["time"] = "2026-11-29T21:36:09Z"
    kueues = copy.deepcopy(sample("kueue-running-trainjob")["spec"]["runtimePatches"][0])
    patches.append(
        kueues if admitted else {"manager": names.KUEUE_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
    )
    found["spec"]["suspend"] = not admitted
    found["metadata"] |= {"uid": "u", "resourceVersion": "9", "generation": 3}
    found["status"] = {"conditions": []}
    return found


@given(pairs=st.lists(quantity_pairs, min_size=1, max_size=4), admitted=st.booleans(), checkpoint=st.booleans())
def test_the_digest_stays_the_same_whatever_the_servers_make_of_it(pairs, admitted, checkpoint):
    requests = {f"r{place}": sent for place, (sent, _) in enumerate(pairs)}
    spec = job_spec(resources={"requests": requests})
    if checkpoint:
        spec = job_spec(resources={"requests": requests}, extensions=with_checkpoint(spec.extensions))
    body = build(spec)
    assert trainjob.written_digest(after_the_servers(body, pairs, admitted=admitted)) == trainjob.written_digest(body)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["spec"]["trainer"].update(image="evil"),
        lambda body: body["spec"]["trainer"]["env"].append({"name": "B", "value": "2"}),
        lambda body: body["spec"]["trainer"]["env"].reverse(),
        lambda body: body["spec"]["trainer"]["resourcesPerNode"]["requests"].update(cpu="2"),
        lambda body: body["spec"].update(activeDeadlineSeconds=7200),
        lambda body: body["spec"].update(runtimePatches=[{"manager": "acme.io/x"}]),
        lambda body: body["metadata"]["labels"].update({names.QUEUE_NAME: "lq"}),
        lambda body: body["metadata"]["labels"].update({names.ATTEMPT: "2"}),
        lambda body: body["metadata"]["labels"].pop(names.BACKEND),
    ],
)
def test_the_digest_differs_for_every_change_that_matters(change):
    body = build()
    before = trainjob.written_digest(body)
    change(body)
    assert trainjob.written_digest(body) != before


@pytest.mark.parametrize(
    "obj", [{}, {"metadata": None, "spec": None}, {"metadata": {"labels": []}, "spec": {"runtimePatches": [1]}}]
)
def test_an_object_of_another_form_has_some_other_digest(obj):
    assert trainjob.written_digest(obj) != trainjob.written_digest(build())


def test_a_copys_owner_neither_controls_nor_blocks():
    owner = trainjob.owner_patch("cu", "5", "resnet-1", "tu")["metadata"]["ownerReferences"][0]
    assert owner == {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "resnet-1", "uid": "tu"}
