import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.machine import ErrInvalid
from dispatch_kubeflow.machine.values import REFERENCE_KINDS, ObjectRef, check_reference

REF = ObjectRef("gpu-west", "team-a", "TrainJob", "resnet-42-1", "0b1c-9")
URL = "kubeflow://gpu-west/team-a/TrainJob/resnet-42-1?uid=0b1c-9"


def refusal(value, **more):
    with pytest.raises(ErrInvalid) as error:
        ObjectRef.parse(value, **more)
    return error.value


def test_a_reference_is_written_as_a_url_and_read_back():
    assert str(REF) == URL
    assert ObjectRef.parse(URL) == REF


def test_a_reference_parses_to_itself():
    assert ObjectRef.parse(REF) is REF


def test_a_reference_hashes_copies_and_pickles():
    assert {REF: 1}[copy.deepcopy(REF)] == 1
    assert pickle.loads(pickle.dumps(REF)) == REF


label = st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?\Z")


@given(
    st.builds(
        ObjectRef,
        label,
        label,
        st.sampled_from(REFERENCE_KINDS),
        st.lists(label, min_size=1, max_size=3).map(".".join),
        st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,40}\Z"),
    )
)
def test_every_reference_survives_being_written_down(ref):
    assert ObjectRef.parse(str(ref)) == ref


@given(st.text())
def test_any_text_is_a_reference_or_refused_as_invalid(text):
    try:
        row = ObjectRef.parse(f"kubeflow://{text}").uid and "none"
    except ErrInvalid as error:
        row = error.row
    assert row == "none" or row.startswith("input.reference-")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "resnet-42",
        URL.replace("kubeflow", "http"),
        URL + "&x=1",
        URL + "#x",
        URL.replace("/team-a", ""),
        URL.replace("team-a", "team-a/more"),
        URL.replace("gpu-west", "Gpu"),
        URL.replace("gpu-west", ""),
        URL.replace("team-a", "te_am"),
        URL.replace("resnet-42-1", "a..b"),
        URL.replace("resnet-42-1", "a%2Fb"),
        URL.replace("0b1c-9", "0b%20c"),
        URL.replace("0b1c-9", "x" * 129),
        URL + "\n",
        None,
        3,
        ("a", "b"),
    ],
)
def test_a_malformed_reference_is_refused(value):
    error = refusal(value)
    assert (error.row, error.operation) == ("input.reference-malformed", "parse")


def test_a_malformed_reference_names_the_part_and_its_rule():
    assert "its namespace must be a DNS label" in str(refusal(URL.replace("team-a", "te_am")))


def test_a_reference_of_another_kind_is_refused():
    error = refusal(URL.replace("TrainJob", "Service"), operation="stop")
    assert (error.row, error.operation, error.details["value"]) == ("input.reference-kind", "stop", "'Service'")


@pytest.mark.parametrize(
    "value", [URL.partition("?")[0], URL.replace("0b1c-9", ""), ObjectRef("a", "b", "Pod", "c", "")]
)
def test_a_reference_without_a_uid_is_refused(value):
    assert refusal(value).row == "input.reference-no-uid"


@pytest.mark.parametrize("part", ["backend", "namespace", "kind", "name", "uid"])
@pytest.mark.parametrize("wrong", [None, 5, -(10**5000), ["a"], "\ud800", b"a"], ids=range(6))
def test_a_reference_with_a_part_that_is_no_name_is_refused(part, wrong):
    reference = replace(REF, **{part: wrong})
    row = "reference-kind" if part == "kind" else "reference-malformed"
    assert refusal(reference).row == ("input.reference-no-uid" if (part, wrong) == ("uid", None) else f"input.{row}")
    assert str(reference).isascii()


def test_a_reference_of_another_backend_is_refused_with_both_names():
    with pytest.raises(ErrInvalid) as error:
        check_reference(URL, backend="gpu-east", operation="open")
    assert error.value.row == "input.reference-other-backend"
    assert error.value.subject == URL
    assert "gpu-west" in str(error.value)
    assert "gpu-east" in str(error.value)


def test_a_reference_of_this_backend_is_given_back():
    assert check_reference(URL, backend="gpu-west", operation="open") == REF
