import copy
import pickle

import pytest

from dispatch_kubeflow.machine import ErrInvalid, ErrUnsupported
from dispatch_kubeflow.machine.values import JobSpec, RuntimeRef, SharedCheckpoint, pod_name_length

GOOD = {
    "nodes": 4,
    "command": ["torchrun", "train.py"],
    "args": ["--lr", "0.1"],
    "env": {"TOKEN": "s3cret", "_X1": ""},
    "procs_per_node": 8,
    "resources": {"requests": {"cpu": 2, "memory": "16Gi"}, "limits": {"nvidia.com/gpu": "8", "cpu": 2.5}},
    "deadline_seconds": 3600,
    "extensions": {
        "dispatch/Image": "example.org/train:1",
        "kubeflow/RuntimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
        "dispatch/SharedCheckpoint": {"claim": "ckpt", "path": "/ckpt"},
    },
}
YAML = """\
nodes: 2
command: [python, train.py]
env:
  MODE: fast
extensions:
  dispatch/Image: example.org/train:1
  kubeflow/RuntimeRef: {kind: TrainingRuntime, name: own}
"""


def spoilt(**changed):
    return {key: value for key, value in (copy.deepcopy(GOOD) | changed).items() if value is not ...}


def refusal(make):
    with pytest.raises(ErrInvalid) as error:
        make()
    return error.value


def parse_refusal(**changed):
    return refusal(lambda: JobSpec.parse(spoilt(**changed), operation="start"))


def check_refusal(*, object_name=None, **changed):
    spec = JobSpec.parse(spoilt(**changed))
    return refusal(lambda: spec.check(operation="start", object_name=object_name))


def extensions(**changed):
    names = {
        "image": "dispatch/Image",
        "runtime": "kubeflow/RuntimeRef",
        "checkpoint": "dispatch/SharedCheckpoint",
        "other": "acme/Other",
    }
    changes = {names[key]: value for key, value in changed.items()}
    return {key: value for key, value in (GOOD["extensions"] | changes).items() if value is not ...}


def test_a_specification_is_made_from_a_mapping():
    spec = JobSpec.parse(GOOD)
    assert (spec.nodes, spec.command, spec.args) == (4, ("torchrun", "train.py"), ("--lr", "0.1"))
    assert spec.env == {"TOKEN": "s3cret", "_X1": ""}
    assert spec.resources["limits"]["nvidia.com/gpu"] == "8"
    assert (spec.image, spec.runtime) == (
        "example.org/train:1",
        RuntimeRef("ClusterTrainingRuntime", "torch-distributed"),
    )
    assert spec.checkpoint == SharedCheckpoint("ckpt", "/ckpt")


def test_a_good_specification_passes_every_check():
    spec = JobSpec.parse(GOOD)
    spec.check(operation="start", object_name="resnet-42-1")
    spec.check_support(operation="start")


def test_a_specification_is_made_from_yaml():
    spec = JobSpec.parse_yaml(YAML)
    assert (spec.nodes, spec.env, spec.checkpoint) == (2, {"MODE": "fast"}, None)


def test_a_specification_is_read_from_a_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(YAML)
    assert JobSpec.parse(path) == JobSpec.parse(str(path)) == JobSpec.parse_yaml(YAML)


def test_a_specification_parses_to_itself():
    spec = JobSpec.parse(GOOD)
    assert JobSpec.parse(spec) is spec


def test_what_is_left_out_has_its_default():
    spec = JobSpec(nodes=1, command=["true"])
    assert (spec.args, spec.env, spec.procs_per_node, spec.resources, spec.deadline_seconds, spec.extensions) == (
        (),
        {},
        None,
        {},
        None,
        {},
    )


def test_a_specification_survives_copying_pickling_and_being_written_down():
    spec = JobSpec.parse(GOOD)
    assert copy.deepcopy(spec) == pickle.loads(pickle.dumps(spec)) == JobSpec.parse(spec.to_mapping()) == spec


def test_a_small_specification_writes_down_only_what_it_says():
    assert JobSpec(nodes=1, command=[]).to_mapping() == {"nodes": 1, "command": []}


def test_a_specification_is_read_only_to_its_depths():
    given = copy.deepcopy(GOOD)
    spec = JobSpec.parse(given)
    given["env"]["LATE"] = "x"
    given["extensions"]["kubeflow/RuntimeRef"]["name"] = "other"
    assert "LATE" not in spec.env
    assert spec.runtime.name == "torch-distributed"
    with pytest.raises(TypeError):
        spec.resources["limits"]["cpu"] = "1"


def test_a_specification_shows_no_secret_value():
    shown = repr(JobSpec.parse(GOOD))
    assert "'TOKEN': '<redacted> (6 characters)'" in shown
    assert "nodes=4" in shown
    for secret in ("s3cret", "torchrun", "--lr"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("changed", "row", "key"),
    [
        ({"colour": "red"}, "spec-unknown-key", "colour"),
        ({3: "red"}, "spec-unknown-key", "3"),
        ({"nodes": ...}, "spec-missing-key", "nodes"),
        ({"command": ...}, "spec-missing-key", "command"),
        ({"nodes": None}, "spec-null", "nodes"),
        ({"procs_per_node": None}, "spec-null", "procs_per_node"),
        ({"args": ["a", None]}, "spec-null", "args.1"),
        ({"env": {"A": None}}, "spec-null", "env.A"),
        ({"resources": {"limits": None}}, "spec-null", "resources.limits"),
        ({"resources": {"limits": {"cpu": None}}}, "spec-null", "resources.limits.cpu"),
        ({"extensions": {"dispatch/Image": None}}, "spec-null", "extensions.dispatch/Image"),
        ({"nodes": "4"}, "spec-type", "nodes"),
        ({"nodes": True}, "spec-type", "nodes"),
        ({"nodes": 4.0}, "spec-type", "nodes"),
        ({"procs_per_node": "auto"}, "spec-type", "procs_per_node"),
        ({"deadline_seconds": 1.5}, "spec-type", "deadline_seconds"),
        ({"command": "python train.py"}, "spec-type", "command"),
        ({"args": [1]}, "spec-type", "args.0"),
        ({"env": [{"name": "A", "value": "b"}]}, "spec-type", "env"),
        ({"env": {"A": 1}}, "spec-type", "env.A"),
        ({"env": {1: "a"}}, "spec-type", "env.1"),
        ({"resources": "big"}, "spec-type", "resources"),
        ({"resources": {"limits": "big"}}, "spec-type", "resources.limits"),
        ({"resources": {"limits": {"cpu": True}}}, "spec-type", "resources.limits.cpu"),
        ({"resources": {"limits": {"cpu": [1]}}}, "spec-type", "resources.limits.cpu"),
        ({"resources": {"limits": {1: 1}}}, "spec-type", "resources.limits.1"),
        ({"extensions": ["dispatch/Image"]}, "spec-type", "extensions"),
        ({"extensions": {1: 2}}, "spec-type", "extensions.1"),
    ],
)
def test_what_is_unknown_missing_null_or_of_a_wrong_type_is_refused_by_its_key(changed, row, key):
    error = (
        parse_refusal(**changed)
        if all(isinstance(each, str) for each in changed)
        else refusal(lambda: JobSpec.parse(GOOD | changed, operation="start"))
    )
    assert (error.row, error.details["key"], error.operation) == (f"input.{row}", key, "start")
    assert error.details["rule"]
    assert "line" not in error.details
    assert key in str(error)


def test_making_one_checks_the_types_too():
    error = refusal(lambda: JobSpec(nodes="4", command=["x"]))
    assert (error.row, error.operation) == ("input.spec-type", "parse")


def test_a_null_that_is_required_is_no_default():
    assert refusal(lambda: JobSpec(nodes=None, command=["x"])).row == "input.spec-type"


@pytest.mark.parametrize("value", [None, 3, ["nodes"]])
def test_what_is_no_specification_at_all_is_refused(value):
    assert refusal(lambda: JobSpec.parse(value)).row == "input.spec-shape"


@pytest.mark.parametrize(
    ("old", "new", "row", "line"),
    [
        ("nodes: 2", "nodes: two", "spec-type", 1),
        ("env:", "enviro:", "spec-unknown-key", 3),
        ("MODE: fast", "MODE: ~", "spec-null", 4),
        ("MODE: fast", "MODE: 5", "spec-type", 4),
        ("train.py]", "3]", "spec-type", 2),
        ("command: [", "command: [[", "spec-shape", 3),
        ("env:", "nodes: 3\nenv:", "spec-shape", 3),
    ],
)
def test_what_is_wrong_in_yaml_is_told_with_its_line(old, new, row, line):
    error = refusal(lambda: JobSpec.parse_yaml(YAML.replace(old, new), operation="start"))
    assert (error.row, error.details["line"]) == (f"input.{row}", line)


@pytest.mark.parametrize("text", ["", "- nodes", "just text", "3"])
def test_yaml_that_is_no_mapping_is_refused(text):
    assert refusal(lambda: JobSpec.parse_yaml(text)).row == "input.spec-shape"


@pytest.mark.parametrize("path", ["/nowhere/job.yaml", "/", "a\0b"])
def test_a_file_that_cannot_be_read_is_refused(path):
    error = refusal(lambda: JobSpec.parse(path))
    assert error.row == "input.spec-shape"
    assert "can't be read" in str(error)


def test_a_file_that_is_no_utf_8_is_refused(tmp_path):
    (tmp_path / "job.yaml").write_bytes(b"nodes: \xff")
    assert refusal(lambda: JobSpec.parse(tmp_path / "job.yaml")).row == "input.spec-shape"


@pytest.mark.parametrize(
    "changed",
    [
        {"env": {"A": ["s3cret"]}},
        {"env": ["s3cret"]},
        {"command": "s3cret"},
        {"args": [["s3cret"]]},
        {"args": {"s3cret": 1}},
    ],
)
def test_no_error_shows_what_may_be_secret(changed):
    error = parse_refusal(**changed)
    assert "s3cret" not in f"{error} {error.details} {error!r}"
    assert "<redacted>" in error.details["value"]


def test_a_secret_of_another_type_is_told_by_its_type_alone():
    assert parse_refusal(env={"A": 5}).details["value"] == "<redacted> (an int)"


@pytest.mark.parametrize(
    ("changed", "row", "key"),
    [
        ({"nodes": 0}, "nodes-range", "nodes"),
        ({"nodes": -1}, "nodes-range", "nodes"),
        ({"nodes": 2**31}, "nodes-range", "nodes"),
        ({"procs_per_node": 0}, "procs-range", "procs_per_node"),
        ({"procs_per_node": 2**31}, "procs-range", "procs_per_node"),
        ({"command": ["x"] * 129}, "command-limits", "command"),
        ({"command": ["x" * 1_048_577]}, "command-limits", "command.0"),
        ({"args": ["x"] * 129}, "args-limits", "args"),
        ({"args": ["", "x" * 1_048_577]}, "args-limits", "args.1"),
        ({"env": {f"A{i}": "" for i in range(129)}}, "env-limits", "env"),
        ({"env": {"1A": "x"}}, "env-name", "env"),
        ({"env": {"A-B": "x"}}, "env-name", "env"),
        ({"env": {"": "x"}}, "env-name", "env"),
        ({"env": {"DISPATCH_JOB_ID": "x"}}, "env-reserved-dispatch", "env"),
        ({"env": {"DISPATCH_": "x"}}, "env-reserved-dispatch", "env"),
        ({"env": {"PET_NNODES": "x"}}, "env-reserved-torch", "env"),
        ({"resources": {"claims": {}}}, "resources", "resources.claims"),
        ({"resources": {"limits": {"cpu": "-1"}}}, "resources", "resources.limits.cpu"),
        ({"resources": {"limits": {"cpu": "1 "}}}, "resources", "resources.limits.cpu"),
        ({"resources": {"limits": {"cpu": "1Gb"}}}, "resources", "resources.limits.cpu"),
        ({"resources": {"limits": {"cpu": ""}}}, "resources", "resources.limits.cpu"),
        ({"resources": {"limits": {"a b": "1"}}}, "resources", "resources.limits.a b"),
        ({"resources": {"limits": {"A_B/gpu": "1"}}}, "resources", "resources.limits.A_B/gpu"),
        ({"deadline_seconds": 0}, "deadline-range", "deadline_seconds"),
        ({"deadline_seconds": 9_223_372_037}, "deadline-range", "deadline_seconds"),
        ({"extensions": {}}, "extension-missing", "dispatch/Image"),
        ({"extensions": extensions(runtime=...)}, "extension-missing", "kubeflow/RuntimeRef"),
        ({"extensions": extensions(image="")}, "image", "dispatch/Image"),
        ({"extensions": extensions(image=" ")}, "image", "dispatch/Image"),
        ({"extensions": extensions(image="x" * 501)}, "image", "dispatch/Image"),
        ({"extensions": extensions(image=3)}, "image", "dispatch/Image"),
        ({"extensions": extensions(runtime="torch")}, "runtime-ref-shape", "kubeflow/RuntimeRef"),
        ({"extensions": extensions(runtime={"name": "a"})}, "runtime-ref-shape", "kubeflow/RuntimeRef"),
        (
            {"extensions": extensions(runtime={"kind": "TrainingRuntime", "name": "a", "apiGroup": "b"})},
            "runtime-ref-shape",
            "kubeflow/RuntimeRef",
        ),
        (
            {"extensions": extensions(runtime={"kind": "TrainingRuntime", "name": None})},
            "runtime-ref-shape",
            "kubeflow/RuntimeRef",
        ),
        (
            {"extensions": extensions(runtime={"kind": "Runtime", "name": "a"})},
            "runtime-ref-kind",
            "kubeflow/RuntimeRef.kind",
        ),
        (
            {"extensions": extensions(runtime={"kind": "TrainingRuntime", "name": "a/b"})},
            "runtime-ref-name",
            "kubeflow/RuntimeRef.name",
        ),
        ({"extensions": extensions(checkpoint="ckpt")}, "checkpoint", "dispatch/SharedCheckpoint"),
        ({"extensions": extensions(checkpoint={"claim": "a"})}, "checkpoint", "dispatch/SharedCheckpoint"),
        (
            {"extensions": extensions(checkpoint={"claim": "A", "path": "/a"})},
            "checkpoint",
            "dispatch/SharedCheckpoint.claim",
        ),
        *(
            (
                {"extensions": extensions(checkpoint={"claim": "a", "path": path})},
                "checkpoint",
                "dispatch/SharedCheckpoint.path",
            )
            for path in ("ckpt", "/", "//", "/a:b", "/a/../b", "")
        ),
    ],
)
def test_a_limit_that_is_broken_is_refused_by_its_key(changed, row, key):
    error = check_refusal(**changed)
    assert (error.row, error.operation) == (f"input.{row}", "start")
    assert error.details["key"] == key
    assert error.details["rule"]


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"command": ["python", "s3cret\ud800"]}, "command"),
        ({"args": ["s3cret\udfff"]}, "args"),
        ({"env": {"A": "s3cret\ud800"}}, "env"),
        ({"env": {"\ud800": "a"}}, "env"),
        ({"resources": {"limits": {"cpu": "\ud800"}}}, "resources"),
        ({"extensions": extensions(image="\ud800")}, "dispatch/Image"),
        ({"extensions": {**extensions(), "other/Thing": [{"\ud800": 1}]}}, "other/Thing"),
        ({"extensions": {**extensions(), "\ud800": 1}}, "extensions"),
    ],
)
def test_text_that_cannot_be_sent_is_refused(changed, key):
    error = check_refusal(**changed)
    assert (error.row, error.details["key"]) == ("input.spec-unicode", key)
    assert "s3cret" not in f"{error} {error.details} {error!r}"
    assert f"{error}".isprintable()


def test_a_quantity_beyond_all_numbers_is_refused():
    assert parse_refusal(resources={"limits": {"cpu": 10**400}}).row == "input.spec-type"
    assert parse_refusal(resources={"limits": {10**5000: 1}}).row == "input.spec-type"
    assert parse_refusal(env={10**5000: "a"}).row == "input.spec-type"


@pytest.mark.parametrize("changed", [{"command": ["s3cret"] * 129}, {"args": ["s3cret" * 200_000]}])
def test_no_limit_shows_what_may_be_secret(changed):
    error = check_refusal(**changed)
    assert "s3cret" not in f"{error} {error.details}"


def test_the_limits_themselves_are_allowed():
    JobSpec.parse(
        spoilt(
            nodes=2**31 - 1,
            command=["x" * 1_048_576] * 128,
            env={f"A{i}": "" for i in range(128)},
            extensions=extensions(image="x" * 500, checkpoint=...),
            resources={},
        )
    ).check(operation="start")


@pytest.mark.parametrize("quantity", ["1", "1.", ".5", "500m", "1e3", "2E-1", "16Gi", "+1", 3, 0.5, 0])
def test_every_form_of_quantity_is_taken(quantity):
    JobSpec.parse(spoilt(resources={"requests": {"cpu": quantity}})).check(operation="start")


@pytest.mark.parametrize(("length", "nodes"), [(48, 10), (47, 100), (46, 1000)])
def test_the_names_of_pods_may_have_63_characters(length, nodes):
    JobSpec.parse(spoilt(nodes=nodes)).check(operation="start", object_name="a" * length)


@pytest.mark.parametrize(("length", "nodes"), [(49, 10), (48, 11), (47, 101), (46, 1001)])
def test_names_of_pods_beyond_63_characters_are_refused(length, nodes):
    error = check_refusal(nodes=nodes, object_name="a" * length)
    assert (error.row, error.details["key"]) == ("input.pod-name-too-long", "job_id")
    assert "would have 64 characters" in str(error)


def test_the_length_of_a_pods_name_counts_the_highest_indices():
    assert pod_name_length("job-1", "loader", replicas=11, pods=101) == len("job-1-loader-10-100-xxxxx")


def test_another_extension_is_unsupported():
    spec = JobSpec.parse(spoilt(extensions=extensions(other={"a": [1, {"b": 2}]})))
    spec.check(operation="start")
    with pytest.raises(ErrUnsupported) as error:
        spec.check_support(operation="start")
    assert (error.value.row, error.value.details["key"]) == ("support.extension", "acme/Other")


def test_runtimes_are_written_as_the_settings_write_them():
    assert str(RuntimeRef("TrainingRuntime", "own")) == "TrainingRuntime/own"
