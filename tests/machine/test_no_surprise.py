"""Whatever is passed in, the answer is a value or ErrInvalid: no other exception leaves the package, and no secret."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch_kubeflow.machine import ErrInvalid
from dispatch_kubeflow.machine.values import (
    JobSpec,
    ObjectRef,
    Settings,
    check_attempt,
    check_instance,
    check_job_id,
    check_stream,
    check_tail,
)

SECRET = "hush-hush"
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=4), st.dates()
)
data = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4),
    max_leaves=12,
)
SPEC_KEYS = [
    "nodes",
    "command",
    "args",
    "env",
    "procs_per_node",
    "resources",
    "deadline_seconds",
    "extensions",
]
GOOD_SPEC = {
    "nodes": 2,
    "command": ["true"],
    "extensions": {"dispatch/Image": "a", "kubeflow/RuntimeRef": {"kind": "TrainingRuntime", "name": "a"}},
}
SETTINGS_KEYS = [
    "name",
    "namespace",
    "runtimes",
    "mode",
    "queue",
    "admission_check",
    "kubeconfig",
    "context",
    "in_cluster",
    "read_only",
    "output_read",
    "call_bound",
    "request_timeout",
    "workload_wait",
    "stop_poll",
]
GOOD_SETTINGS = {"name": "a", "namespace": "b", "runtimes": ["TrainingRuntime/c"]}


def outcome(work):
    try:
        work()
    except ErrInvalid as error:
        return error
    return None


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(SPEC_KEYS), data, max_size=4), st.booleans())
def test_any_specification_is_taken_or_refused_as_invalid(changed, onto_a_good_one):
    def work():
        JobSpec.parse((GOOD_SPEC if onto_a_good_one else {}) | changed).check(operation="start", object_name="a-1")

    error = outcome(work)
    assert error is None or error.details["rule"]


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(SETTINGS_KEYS), data, max_size=4), st.booleans())
def test_any_settings_are_taken_or_refused_as_invalid(changed, onto_a_good_one):
    error = outcome(lambda: Settings.parse((GOOD_SETTINGS if onto_a_good_one else {}) | changed))
    assert error is None or error.row.startswith("input.settings-")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_taken_or_refused_as_invalid(text):
    for parse in (Settings.parse_yaml, JobSpec.parse_yaml):
        error = outcome(lambda parse=parse: parse(f"name: a\n{text}"))
        assert error is None or error.operation in ("factory", "parse")


@settings(max_examples=200, deadline=None)
@given(data)
@pytest.mark.parametrize("check", [check_job_id, check_attempt, check_instance, check_tail, check_stream])
def test_any_identifier_is_taken_or_refused_as_invalid(check, value):
    error = outcome(lambda: check(value, operation="output"))
    assert error is None or error.row.startswith("input.")


@settings(max_examples=200, deadline=None)
@given(data)
def test_any_value_for_a_reference_is_refused_as_invalid(value):
    assert outcome(lambda: ObjectRef.parse(value)).row.startswith("input.reference-")


secrets = st.recursive(
    st.just(SECRET),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["A", "B-1", "DISPATCH_X"]), inner),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["env", "args", "command"]), secrets, st.integers(1, 130))
def test_no_value_under_env_args_and_command_is_shown(key, value, times):
    told = []

    def work():
        spec = JobSpec.parse(GOOD_SPEC | {key: value * times if isinstance(value, list) else value})
        told.append(repr(spec))
        spec.check(operation="start")

    error = outcome(work)
    if error is not None:
        told.append(f"{error} {error!r} {dict(error.details)} {error.__cause__}")
    assert all(SECRET not in each for each in told)
