import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.objects.runtime_copy import hardened
from dispatch_kubeflow.backend.objects.runtime_rules import problems
from tests.objects.samples import IDENTITY, job_spec, runtime, sample


def spec(name="torch_distributed"):
    return runtime(name)["spec"]


def broken(change, *, mode="plain", job=None, object_name=None):
    source = copy.deepcopy(spec())
    change(source)
    return problems(source, job or job_spec(), mode=mode, object_name=object_name)


def job_set(source):
    return source["template"]["spec"]


def job_template(source):
    return job_set(source)["replicatedJobs"][0]["template"]


def pod_spec(source):
    return job_template(source)["spec"]["template"]["spec"]


def add_initializer(source, **body):
    template = {"spec": {"template": {"spec": {"containers": [{"name": "dataset-initializer"}]}}}}
    added = {"name": "dataset-initializer", "template": template, **body}
    job_set(source)["replicatedJobs"].append(added)
    return added


def test_the_runtimes_that_trainer_ships_keep_the_rules():
    assert problems(spec("torch_distributed"), job_spec(), mode="plain", object_name="resnet-1") == ()
    assert problems(spec("jax_distributed"), job_spec(procs_per_node=None), mode="plain", object_name="resnet-1") == ()
    assert problems(sample("readback-plain-runtime")["spec"], job_spec(), mode="kueue", object_name="resnet-1") == ()


def test_what_the_copy_sets_may_be_set_already():
    def change(source):
        job_template(source)["spec"] |= {"backoffLimit": 0, "podReplacementPolicy": "Failed"}
        pod_spec(source)["restartPolicy"] = "Never"
        job_set(source)["failurePolicy"] = {"maxRestarts": 0, "rules": [{"action": "FailJobSet"}]}

    assert broken(change) == ()


JOB = "template.spec.replicatedJobs[0].template"
POD = f"{JOB}.spec.template.spec"


@pytest.mark.parametrize(
    ("path", "value", "change"),
    [
        ("template", "array, not object", lambda s: s.update(template=[])),
        ("template.metadata", "array, not object", lambda s: s["template"].update(metadata=[])),
        ("template.metadata.labels", "str, not object", lambda s: s["template"].update(metadata={"labels": "x"})),
        ("template.spec", "int, not object", lambda s: s["template"].update(spec=5)),
        ("template.spec.replicatedJobs", "object, not array", lambda s: job_set(s).update(replicatedJobs={})),
        ("template.spec.replicatedJobs[1]", "str, not object", lambda s: job_set(s)["replicatedJobs"].append("x")),
        ("template.spec.replicatedJobs[1].name", "array, not str", lambda s: add_initializer(s, name=["y"])),
        ("template.spec.replicatedJobs[1].template", "int, not object", lambda s: add_initializer(s, template=5)),
        (f"{JOB}.metadata.annotations", "int, not object", lambda s: job_template(s)["metadata"].update(annotations=5)),
        (f"{JOB}.spec", "array, not object", lambda s: job_template(s).update(spec=[])),
        (
            f"{JOB}.spec.activeDeadlineSeconds",
            "bool, not int | null",
            lambda s: job_template(s)["spec"].update(activeDeadlineSeconds=True),
        ),
        (f"{POD}", "bool, not object", lambda s: job_template(s)["spec"]["template"].update(spec=True)),
        (f"{POD}.initContainers", "int, not array", lambda s: pod_spec(s).update(initContainers=5)),
        (f"{POD}.initContainers[0]", "str, not object", lambda s: pod_spec(s).update(initContainers=["x"])),
        (f"{POD}.containers[0].env", "int, not array", lambda s: pod_spec(s)["containers"][0].update(env=5)),
        (f"{POD}.containers[0].env[0]", "str, not object", lambda s: pod_spec(s)["containers"][0].update(env=["x"])),
    ],
)
def test_a_runtime_of_another_form_is_told_by_its_path(path, value, change):
    (problem,) = broken(change)
    assert (problem.rule, problem.path, problem.value) == ("runtime-form", path, value)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_runtime_that_keeps_the_rules_can_be_copied_whatever_it_holds(drawn):
    source = copy.deepcopy(spec())
    at = source
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = drawn.draw(st.sampled_from(keys))
        if isinstance(at[key], dict | list) and at[key] and drawn.draw(st.booleans()):
            at = at[key]
            continue
        at[key] = drawn.draw(st.sampled_from([None, 5, "", "x", [], {}, True, [None], ["x"], [{}], {"a": None}, 1e300]))
        break
    if not problems(source, job_spec(), mode="kueue", object_name="resnet-1"):
        hardened(source, IDENTITY, job_spec())


@pytest.mark.parametrize(
    ("rule", "path", "change"),
    [
        (
            "runtime-ttl",
            "template.spec.ttlSecondsAfterFinished",
            lambda s: job_set(s).update(ttlSecondsAfterFinished=0),
        ),
        (
            "runtime-ttl",
            "template.spec.replicatedJobs[node].template.spec.ttlSecondsAfterFinished",
            lambda s: job_template(s)["spec"].update(ttlSecondsAfterFinished=60),
        ),
        ("runtime-managed-by", "template.spec.managedBy", lambda s: job_set(s).update(managedBy="acme.io/x")),
        (
            "runtime-managed-by",
            "template.spec.replicatedJobs[node].template.spec.managedBy",
            lambda s: job_template(s)["spec"].update(managedBy="acme.io/x"),
        ),
        (
            "runtime-subdomain",
            "template.spec.network.subdomain",
            lambda s: job_set(s).update(network={"subdomain": "x"}),
        ),
        (
            "runtime-failure-policy",
            "template.spec.failurePolicy",
            lambda s: job_set(s).update(failurePolicy={"maxRestarts": 1}),
        ),
        (
            "runtime-failure-policy",
            "template.spec.failurePolicy",
            lambda s: job_set(s).update(failurePolicy={"rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}),
        ),
        (
            "runtime-restart-policy",
            "template.spec.replicatedJobs[node].template.spec.template.spec.restartPolicy",
            lambda s: pod_spec(s).update(restartPolicy="OnFailure"),
        ),
        (
            "runtime-backoff-limit",
            "template.spec.replicatedJobs[node].template.spec.backoffLimit",
            lambda s: job_template(s)["spec"].update(backoffLimit=3),
        ),
        (
            "runtime-pod-replacement-policy",
            "template.spec.replicatedJobs[node].template.spec.podReplacementPolicy",
            lambda s: job_template(s)["spec"].update(podReplacementPolicy="TerminatingOrFailed"),
        ),
        ("runtime-mpi", "mlPolicy.mpi", lambda s: s.update(mlPolicy={"mpi": {}})),
        ("runtime-trainer-job", "template.spec.replicatedJobs", lambda s: job_template(s).pop("metadata")),
        (
            "runtime-trainer-job",
            "template.spec.replicatedJobs",
            lambda s: job_set(s)["replicatedJobs"][0].update(name="work"),
        ),
        (
            "runtime-trainer-job",
            "template.spec.replicatedJobs",
            lambda s: job_set(s)["replicatedJobs"].append(
                {**copy.deepcopy(job_set(s)["replicatedJobs"][0]), "name": "second"}
            ),
        ),
        (
            "runtime-trainer-job",
            "template.spec.replicatedJobs[node].template.spec.template.spec.containers",
            lambda s: pod_spec(s)["containers"][0].update(name="main"),
        ),
        ("runtime-trainer-job", "template.spec.replicatedJobs", lambda s: s.pop("template")),
    ],
)
def test_a_broken_rule_is_found_by_its_name_and_path(rule, path, change):
    assert [(each.rule, each.path) for each in broken(change)] == [(rule, path)]


def test_a_rule_holds_for_every_replicated_job():
    def change(source):
        add_initializer(source)["template"]["spec"]["backoffLimit"] = 6

    assert [each.path for each in broken(change)] == [
        "template.spec.replicatedJobs[dataset-initializer].template.spec.backoffLimit"
    ]


def test_the_mpi_runtime_that_trainer_ships_is_refused_as_mpi():
    found = problems(spec("deepspeed_distributed"), job_spec(), mode="plain")
    assert [each.rule for each in found] == ["runtime-mpi", "runtime-trainer-job"]


def test_processes_per_node_need_torch():
    (found,) = problems(spec("jax_distributed"), job_spec(), mode="plain")
    assert (found.rule, found.value) == ("runtime-no-torch", "4")


def test_all_broken_rules_are_found_at_once():
    def change(source):
        job_set(source).update(ttlSecondsAfterFinished=1, managedBy="x/y")
        pod_spec(source)["restartPolicy"] = "Always"

    assert [each.rule for each in broken(change)] == ["runtime-ttl", "runtime-managed-by", "runtime-restart-policy"]


def test_a_problem_says_where_and_what():
    (found,) = broken(lambda source: job_set(source).update(managedBy="acme.io/x"))
    assert str(found).startswith('spec.template.spec.managedBy is "acme.io/x": ')


def test_a_long_value_is_cut():
    (found,) = broken(lambda source: job_set(source).update(managedBy="x" * 300))
    assert len(found.value) < 130


@pytest.mark.parametrize(
    ("name_length", "body", "fits"),
    [
        (33, {}, True),
        (34, {}, False),
        (33, {"replicas": 10}, True),
        (33, {"replicas": 11}, False),
    ],
)
def test_other_replicated_jobs_must_leave_room_for_the_names_of_their_pods(name_length, body, fits):
    found = broken(lambda source: add_initializer(source, **body), object_name="a" * (name_length - 2) + "-1")
    assert [each.rule for each in found] == ([] if fits else ["runtime-pod-names"])


def test_the_completions_of_other_replicated_jobs_count_for_their_names():
    def change(source):
        add_initializer(source)["template"]["spec"]["completions"] = 11

    assert [each.rule for each in broken(change, object_name="a" * 31 + "-1")] == ["runtime-pod-names"]


def test_the_names_of_the_trainers_own_pods_are_the_callers_input():
    assert broken(lambda source: None, object_name="a" * 60) == ()


@pytest.mark.parametrize(
    ("own", "in_runtime", "asks"),
    [
        ({}, None, False),
        ({}, {"requests": {"cpu": "1"}}, True),
        ({}, {"limits": {"cpu": "1"}}, True),
        ({}, {"requests": {"cpu": "0"}, "limits": {"cpu": "1"}}, False),
        ({"requests": {"cpu": "0"}}, {"requests": {"cpu": "1"}}, False),
        ({"limits": {"memory": "1Gi"}}, {"requests": {"cpu": "0"}}, True),
        ({"requests": {"cpu": "1m"}}, None, True),
    ],
)
def test_in_kueue_mode_something_must_be_requested(own, in_runtime, asks):
    def change(source):
        if in_runtime is not None:
            pod_spec(source)["containers"][0]["resources"] = in_runtime

    job = job_spec(resources=own)
    assert [each.rule for each in broken(change, mode="kueue", job=job)] == ([] if asks else ["runtime-no-requests"])
    assert broken(change, mode="plain", job=job) == ()


def test_what_an_init_container_or_another_job_requests_counts():
    def init(source):
        pod_spec(source)["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]

    def other(source):
        containers = add_initializer(source)["template"]["spec"]["template"]["spec"]["containers"]
        containers[0]["resources"] = {"requests": {"cpu": "1"}}

    for change in (init, other):
        assert broken(change, mode="kueue", job=job_spec(resources={})) == ()


@pytest.mark.parametrize(
    "odd", [{}, {"template": None}, {"template": {"spec": {"replicatedJobs": [None]}}}, {"mlPolicy": 1}]
)
def test_a_spec_of_another_form_breaks_the_rule_of_the_trainer_job(odd):
    assert "runtime-trainer-job" in {each.rule for each in problems(odd, job_spec(), mode="plain")}


def test_the_trainer_is_told_by_trainers_label():
    assert names.ANCESTOR in spec()["template"]["spec"]["replicatedJobs"][0]["template"]["metadata"]["labels"]
