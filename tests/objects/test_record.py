import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.objects import names, record, seen
from dispatch_kubeflow.backend.objects.record import Hold, Record
from tests.objects.samples import read

holds = st.just(Hold()) | st.builds(Hold, st.integers(1, record.GREATEST_INSTANCE), st.booleans())


def annotations(**values):
    keys = {"gate": names.GATE, "hold": names.HOLD}
    given_ones = {keys[key]: value for key, value in values.items()}
    return read({"metadata": {"annotations": given_ones}}, seen.TrainJob).metadata.annotations


@given(holds)
def test_a_hold_is_read_as_it_was_written(hold):
    assert record.read_hold(str(hold)) == hold


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "0/held",
        "01/held",
        "-1/held",
        "+1/held",
        "1/Held",
        "1/held ",
        "1 /held",
        "1/",
        "held",
        "None",
        "1/held/2",
        "1/held\n",
        "１/held",
        f"{2**63}/held",
        "99999999999999999999/held",
    ],
)
def test_a_hold_not_as_we_write_it_cannot_be_read(text):
    assert record.read_hold(text) is None


def test_a_new_record_is_gated_and_never_held():
    found = record.read_record(annotations(gate=record.new_record()[names.GATE], hold=record.new_record()[names.HOLD]))
    assert (found.gate_fact, found.hold_fact, found.stopped, found.readable) == ("closed", "none", True, True)


@pytest.mark.parametrize("gate", [None, "", "open", "Closed", "lifted "])
def test_a_gate_not_as_we_write_it_cannot_be_read(gate):
    values = {"hold": "none"} if gate is None else {"gate": gate, "hold": "none"}
    found = record.read_record(annotations(**values))
    assert (found.gate_fact, found.stopped, found.readable) == ("unreadable", None, False)


def test_a_record_without_a_hold_cannot_be_read():
    found = record.read_record(annotations(gate="lifted"))
    assert (found.hold_fact, found.stopped, found.readable) == ("unreadable", None, False)


@pytest.mark.parametrize(
    ("gate", "hold", "stopped"),
    [
        ("closed", Hold(), True),
        ("lifted", Hold(), False),
        ("lifted", Hold(3, held=True), True),
        ("lifted", Hold(3), False),
        ("closed", Hold(3), True),
    ],
)
def test_a_job_is_stopped_while_gated_or_held(gate, hold, stopped):
    assert Record(gate, hold).stopped is stopped


@pytest.mark.parametrize(("instance", "fact"), [(1, "older"), (2, "same"), (3, "newer")])
def test_an_instance_is_compared_with_the_one_in_force(instance, fact):
    assert Hold(2, held=True).compare(instance) == fact


def test_every_instance_is_newer_than_none():
    assert Hold().compare(1) == "newer"


def test_a_patch_carries_uid_and_resource_version_and_only_what_is_given():
    assert record.record_patch("u", "7") == {"metadata": {"uid": "u", "resourceVersion": "7"}}


def test_opening_in_plain_mode_lifts_the_gate_and_unsuspends_in_one_write():
    assert record.record_patch("u", "7", gate="lifted", suspend=False) == {
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {names.GATE: "lifted"}},
        "spec": {"suspend": False},
    }


def test_holding_writes_the_instance_and_suspends_in_one_write():
    patch = record.record_patch("u", "7", hold=Hold(4, held=True), suspend=True)
    assert patch["metadata"]["annotations"] == {names.HOLD: "4/held"}
    assert patch["spec"] == {"suspend": True}


def test_opening_in_kueue_mode_takes_our_gate_away_and_leaves_the_spec_alone():
    patch = record.record_patch("u", "7", gate="lifted", gated_by=names.KUEUE_GATE)
    assert patch == {
        "metadata": {
            "uid": "u",
            "resourceVersion": "7",
            "annotations": {names.GATE: "lifted", names.ADMISSION_GATED_BY: None},
        }
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("dispatch-kubeflow.io/gate", None),
        ("acme.io/a, dispatch-kubeflow.io/gate ,acme.io/b", "acme.io/a,acme.io/b"),
        ("acme.io/a", "acme.io/a"),
        ("", None),
    ],
)
def test_only_our_admission_gate_is_lifted(before, after):
    assert record.without_our_gate(before) == after


def test_no_annotation_names_no_gates():
    assert record.gates(None) == ()
