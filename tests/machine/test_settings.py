import copy
import pathlib
import pickle

import pytest

from dispatch_kubeflow.machine import ErrInvalid
from dispatch_kubeflow.machine.values import RuntimeRef, Settings

GOOD = {"name": "gpu-west", "namespace": "team-a", "runtimes": ["ClusterTrainingRuntime/torch-distributed"]}
KUEUE = GOOD | {"mode": "kueue", "queue": "main", "admission_check": "dispatch"}
YAML = """\
name: gpu-west
namespace: team-a
runtimes:
  - ClusterTrainingRuntime/torch-distributed
  - TrainingRuntime/own
call_bound: 120
"""


def refusal(value):
    with pytest.raises(ErrInvalid) as error:
        Settings.parse(value)
    return error.value


def test_the_defaults_are_those_of_the_contract():
    settings = Settings.parse(GOOD)
    assert settings == Settings(
        name="gpu-west",
        namespace="team-a",
        runtimes=(RuntimeRef("ClusterTrainingRuntime", "torch-distributed"),),
        mode="plain",
        queue=None,
        admission_check=None,
        kubeconfig=None,
        context=None,
        in_cluster=False,
        read_only=False,
        output_read=True,
        call_bound=90.0,
        request_timeout=30.0,
        workload_wait=30.0,
        stop_poll=0.5,
    )


def test_settings_are_read_from_yaml_and_from_a_file(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(YAML)
    settings = Settings.parse_yaml(YAML)
    assert settings.call_bound == 120.0
    assert [str(each) for each in settings.runtimes] == [
        "ClusterTrainingRuntime/torch-distributed",
        "TrainingRuntime/own",
    ]
    assert Settings.parse(path) == Settings.parse(str(path)) == settings


def test_settings_parse_to_themselves_and_survive_copying():
    settings = Settings.parse(KUEUE)
    assert Settings.parse(settings) is settings
    assert copy.deepcopy(settings) == pickle.loads(pickle.dumps(settings)) == settings


def test_kueue_mode_has_a_queue_and_a_check():
    settings = Settings.parse(KUEUE)
    assert (settings.mode, settings.queue, settings.admission_check) == ("kueue", "main", "dispatch")


@pytest.mark.parametrize(
    "changed",
    [
        {"kubeconfig": "/home/me/.kube/config", "context": "west"},
        {"kubeconfig": pathlib.Path("/home/me/.kube/config")},
        {"in_cluster": True},
        {"in_cluster": False, "kubeconfig": "x"},
        {"read_only": True, "output_read": False},
        {"call_bound": 60, "request_timeout": 0.1, "workload_wait": 1, "stop_poll": 1e-3},
        {"runtimes": ("TrainingRuntime/a", RuntimeRef("ClusterTrainingRuntime", "a"))},
    ],
)
def test_what_is_allowed_is_taken(changed):
    assert Settings.parse(GOOD | changed)


def test_a_path_of_a_kubeconfig_becomes_text():
    assert Settings.parse(GOOD | {"kubeconfig": pathlib.Path("/k")}).kubeconfig == "/k"


@pytest.mark.parametrize(
    ("changed", "row", "key"),
    [
        ({"colour": "red"}, "unknown-key", "colour"),
        ({1: "red"}, "unknown-key", "1"),
        ({10**5000: "red"}, "unknown-key", "<int whose repr raised ValueError>"),
        *(({key: ...}, "missing-key", key) for key in ("name", "namespace", "runtimes")),
        *(({key: None}, "null", key) for key in ("name", "queue", "kubeconfig", "call_bound", "read_only")),
        ({"runtimes": [None]}, "null", "runtimes.0"),
        ({"name": 3}, "type", "name"),
        ({"namespace": ["a"]}, "type", "namespace"),
        ({"runtimes": "TrainingRuntime/a"}, "type", "runtimes"),
        ({"runtimes": {"TrainingRuntime": "a"}}, "type", "runtimes"),
        ({"runtimes": [["TrainingRuntime", "a"]]}, "type", "runtimes.0"),
        ({"mode": True}, "type", "mode"),
        ({"kubeconfig": 3}, "type", "kubeconfig"),
        ({"context": 3}, "type", "context"),
        ({"in_cluster": "true"}, "type", "in_cluster"),
        ({"read_only": 1}, "type", "read_only"),
        ({"output_read": "no"}, "type", "output_read"),
        *(
            ({key: value}, "type", key)
            for key in ("call_bound", "request_timeout", "workload_wait", "stop_poll")
            for value in (True, "90", [90])
        ),
        ({"name": "Gpu"}, "rule", "name"),
        ({"name": ""}, "rule", "name"),
        ({"name": "a" * 64}, "rule", "name"),
        ({"namespace": "a.b"}, "rule", "namespace"),
        ({"runtimes": []}, "rule", "runtimes"),
        ({"runtimes": ["torch"]}, "rule", "runtimes.0"),
        ({"runtimes": ["Runtime/torch"]}, "rule", "runtimes.0"),
        ({"runtimes": ["TrainingRuntime/a/b"]}, "rule", "runtimes.0"),
        ({"runtimes": ["TrainingRuntime/a", "TrainingRuntime/a"]}, "rule", "runtimes.1"),
        ({"mode": "kueued"}, "rule", "mode"),
        ({"kubeconfig": ""}, "rule", "kubeconfig"),
        ({"context": ""}, "rule", "context"),
        ({"in_cluster": True, "kubeconfig": "x"}, "rule", "kubeconfig"),
        ({"in_cluster": True, "context": "x"}, "rule", "context"),
        ({"queue": "main"}, "rule", "queue"),
        ({"admission_check": "main"}, "rule", "admission_check"),
        ({"call_bound": 59.9}, "rule", "call_bound"),
        *(
            ({key: value}, "rule", key)
            for key in ("call_bound", "request_timeout", "workload_wait", "stop_poll")
            for value in (0, -1, float("inf"), float("nan"), 10**400)
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_by_its_key(changed, row, key):
    error = refusal({key: value for key, value in (GOOD | changed).items() if value is not ...})
    assert (error.row, error.details["key"], error.operation) == (f"input.settings-{row}", key, "factory")
    assert error.details["rule"]
    assert "line" not in error.details


@pytest.mark.parametrize("missing", ["queue", "admission_check"])
def test_kueue_mode_needs_both_its_names(missing):
    error = refusal({key: value for key, value in KUEUE.items() if key != missing})
    assert (error.row, error.details["key"]) == ("input.settings-missing-key", missing)
    assert "kueue" in error.details["rule"]


@pytest.mark.parametrize(("key", "value"), [("queue", "a" * 64), ("queue", "A"), ("admission_check", "a" * 254)])
def test_names_of_kueues_objects_are_checked(key, value):
    error = refusal(KUEUE | {key: value})
    assert (error.row, error.details["key"]) == ("input.settings-rule", key)


@pytest.mark.parametrize("value", [None, 3, [], True])
def test_what_is_no_settings_at_all_is_refused(value):
    assert refusal(value).row == "input.settings-shape"


def test_a_file_that_is_not_there_is_refused():
    error = refusal("/nowhere/settings.yaml")
    assert error.row == "input.settings-shape"
    assert isinstance(error.__cause__, OSError)


@pytest.mark.parametrize(
    ("old", "new", "row", "line"),
    [
        ("name: gpu", "nmae: gpu", "unknown-key", 1),
        ("team-a", "~", "null", 2),
        ("- TrainingRuntime/own", "- own", "rule", 5),
        ("call_bound: 120", "call_bound: yes", "type", 6),
        ("call_bound: 120", "call_bound: 20", "rule", 6),
        ("call_bound: 120", "call_bound: 120\nname: x", "shape", 7),
        ("call_bound: 120", "call_bound: [", "shape", 7),
    ],
)
def test_what_is_wrong_in_yaml_is_told_with_its_line(old, new, row, line):
    with pytest.raises(ErrInvalid) as error:
        Settings.parse_yaml(YAML.replace(old, new))
    assert (error.value.row, error.value.details["line"]) == (f"input.settings-{row}", line)


def test_making_settings_checks_them():
    with pytest.raises(ErrInvalid, match="call_bound is 5"):
        Settings(name="a", namespace="b", runtimes=("TrainingRuntime/a",), call_bound=5)
    with pytest.raises(ErrInvalid, match="name is None"):
        Settings(name=None, namespace="b", runtimes=("TrainingRuntime/a",))
