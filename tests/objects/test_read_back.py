import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.objects import names, trainjob
from dispatch_kubeflow.backend.objects.read_back import differences
from tests.objects.samples import IDENTITY, job_spec, sample, with_checkpoint
from tests.objects.test_trainjob import after_the_servers, quantity_pairs

SECRET = "hunter2-hunter2"


def written():
    spec = job_spec(
        command=["python", SECRET],
        args=[SECRET],
        env={"TOKEN": SECRET, "B": "2"},
        resources={"requests": {"cpu": "1000m"}},
        extensions=with_checkpoint(job_spec().extensions),
    )
    return trainjob.build(IDENTITY, spec, namespace="team-a", mode="plain", nonce="n1")


def compare(change):
    read = after_the_servers(written(), [("1000m", "1")], admitted=False)
    change(read)
    return differences(written(), read)


@pytest.mark.parametrize("name", ["readback-plain-trainjob", "readback-queued-trainjob"])
def test_what_trainer_and_kueue_add_is_no_difference(name):
    read = sample(name)
    sent = copy.deepcopy(read)
    del sent["status"]
    for key in ("uid", "resourceVersion", "generation", "creationTimestamp"):
        del sent["metadata"][key]
    sent["spec"]["runtimePatches"] = [
        {key: value for key, value in patch.items() if key != "time"}
        for patch in sent["spec"]["runtimePatches"]
        if patch["manager"] != names.KUEUE_MANAGER
    ]
    assert differences(sent, read) == ()


@given(pairs=st.lists(quantity_pairs, min_size=1, max_size=4))
def test_rewritten_quantities_are_no_difference(pairs):
    requests = {f"r{place}": sent for place, (sent, _) in enumerate(pairs)}
    body = trainjob.build(IDENTITY, job_spec(resources={"requests": requests}), namespace="a", mode="plain", nonce="n")
    assert differences(body, after_the_servers(body, pairs, admitted=False)) == ()


def test_a_queue_in_plain_mode_is_named():
    (found,) = compare(lambda read: read["metadata"]["labels"].update({names.QUEUE_NAME: "default"}))
    assert str(found) == 'metadata.labels[kueue.x-k8s.io/queue-name]: written absent, read "default"'


def test_an_unsuspended_job_is_named():
    (found,) = compare(lambda read: read["spec"].update(suspend=False))
    assert str(found) == "spec.suspend: written true, read false"


def test_a_suspend_that_is_gone_is_named():
    (found,) = compare(lambda read: read["spec"].pop("suspend"))
    assert str(found) == "spec.suspend: written true, read absent"


def test_what_would_run_the_job_unasked_comes_first():
    def change(read):
        read["metadata"]["annotations"]["acme.io/a"] = "1"
        read["metadata"]["labels"][names.QUEUE_NAME] = "default"
        read["spec"]["suspend"] = False

    assert [each.path for each in compare(change)] == [
        "metadata.labels[kueue.x-k8s.io/queue-name]",
        "spec.suspend",
        "metadata.annotations[acme.io/a]",
    ]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda read: read["metadata"].update(finalizers=["x/y"]), "metadata.finalizers"),
        (lambda read: read["metadata"].update(ownerReferences=[{"uid": "1"}]), "metadata.ownerReferences"),
        (lambda read: read["metadata"].update(deletionTimestamp="2026-11-29T21:36:09Z"), "metadata.deletionTimestamp"),
        (lambda read: read["spec"].update(managedBy="kueue.x-k8s.io/multikueue"), "spec.managedBy"),
        (lambda read: read["spec"]["trainer"].update(numNodes=3), "spec.trainer.numNodes"),
        (lambda read: read["spec"]["trainer"].update(numNodes=True), "spec.trainer.numNodes"),
        (
            lambda read: read["spec"]["trainer"]["resourcesPerNode"]["requests"].update(cpu="2"),
            "spec.trainer.resourcesPerNode.requests.cpu",
        ),
        (
            lambda read: read["spec"]["trainer"]["resourcesPerNode"].update(limits={}),
            "spec.trainer.resourcesPerNode.limits",
        ),
        (lambda read: read["spec"]["runtimePatches"].pop(0), "spec.runtimePatches"),
        (
            lambda read: read["spec"]["runtimePatches"].append({"manager": "acme.io/x"}),
            "spec.runtimePatches[acme.io/x]",
        ),
        (lambda read: read.update(kind="Other"), "kind"),
        (lambda read: read.update(spec=None), "spec"),
    ],
)
def test_anything_else_is_a_difference_by_its_path(change, path):
    assert path in {each.path for each in compare(change)}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda trainer: trainer["env"][0].update(value="other"), "spec.trainer.env.TOKEN.value"),
        (lambda trainer: trainer["env"].pop(0), "spec.trainer.env.TOKEN"),
        (lambda trainer: trainer["args"].append("more"), "spec.trainer.args[1]"),
        (lambda trainer: trainer["command"].pop(), "spec.trainer.command[1]"),
        (lambda trainer: trainer.pop("env"), "spec.trainer.env"),
        (lambda trainer: trainer["env"].append(dict(trainer["env"][0])), "spec.trainer.env[2]"),
    ],
)
def test_values_of_env_args_and_command_are_never_shown(change, path):
    found = compare(lambda read: change(read["spec"]["trainer"]))
    assert path in {each.path for each in found}
    assert SECRET not in str(found)
    assert "<redacted>" in str(found)


def test_a_value_that_holds_secrets_is_shown_without_them():
    found = compare(lambda read: read["spec"].pop("trainer"))
    assert [each.path for each in found] == ["spec.trainer"]
    assert "<redacted>" in found[0].written
    assert SECRET not in str(found)


def test_secrets_deep_in_a_list_are_not_shown():
    patch = {"manager": "acme.io/x", "containers": [{"env": [{"name": "A", "value": SECRET}]}]}
    found = compare(lambda read: read["spec"]["runtimePatches"].append(patch))
    assert SECRET not in str(found)


@pytest.mark.parametrize("times", [0, 1])
def test_secrets_that_a_webhook_kept_elsewhere_are_not_shown(times):
    def keep(read):
        kept = read["spec"]["trainer"]["args"] + [each["value"] for each in read["spec"]["trainer"]["env"]]
        for _ in range(times + 1):
            kept = json.dumps(kept)
        read["metadata"]["annotations"]["policy.example/original"] = kept
        read["spec"]["trainer"]["image"] = SECRET

    found = compare(keep)
    assert {each.path for each in found} == {"metadata.annotations[policy.example/original]", "spec.trainer.image"}
    assert SECRET not in str(found)
    assert f"<redacted>({len(SECRET)})" in str(found)


def test_a_long_value_is_cut():
    (found,) = compare(lambda read: read["spec"]["trainer"].update(image="x" * 500))
    assert len(found.read) < 160


def test_another_order_of_the_environment_is_a_difference():
    (found,) = compare(lambda read: read["spec"]["trainer"]["env"].reverse())
    assert (found.path, found.written, found.read) == ("spec.trainer.env (order)", "TOKEN, B", "B, TOKEN")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["metadata", "spec", "trainer", "env", "runtimePatches", "name"]), inner)
        ),
        max_leaves=8,
    )
)
def test_no_object_of_whatever_form_raises(value):
    read = value if isinstance(value, dict) else {"spec": value}
    differences(written(), read)
    assert differences(read, copy.deepcopy(read)) == ()
