"""Lifecycles: states without an answer, without a way in or out, and contradictions of the tables."""

import pytest

TRAINJOB = "lifecycles/trainjob.yaml"
REGISTER = "lifecycles/hold_register.yaml"
FIRST_HOLD = "id: hold_register.first-hold"


def test_a_state_that_answers_an_operation_not_at_all_is_a_defect(tables):
    tables.replace(REGISTER, "  - {operation: release, from: none, rule: object.release-without-hold}\n", "")
    complaint = tables.only("no edge and no refusal answers")
    assert complaint.text.endswith("answers state=none operation=release: every cell")
    assert (complaint.file, complaint.line) == (REGISTER, tables.line(REGISTER, "  none:"))


def test_a_guard_cell_without_an_answer_is_spelled_out(tables):
    tables.replace(REGISTER, "from: held, when: {instance: [older, newer]}", "from: held, when: {instance: older}")
    assert tables.only("no edge and no refusal").text.endswith("state=held operation=hold: instance=newer")


def test_a_guard_cell_with_two_answers_is_a_defect(tables):
    tables.replace(REGISTER, "when: {instance: same}", "when: {instance: [same, newer]}", after="hold-again")
    complaint = tables.only("both answer")
    assert complaint.text == (
        "hold_register.hold-again and object.stale-hold both answer state=held operation=hold: instance=newer"
    )
    assert complaint.rule == "object.stale-hold"
    assert complaint.line == tables.line(REGISTER, "rule: object.stale-hold}")


def test_two_edges_for_one_cell_are_a_defect_of_the_later(tables):
    again = "  - {id: hold_register.twice, operation: hold, from: none, to: held, does: nothing}\n"
    tables.replace(REGISTER, "refusals:", again + "refusals:")
    complaint = tables.only("hold_register.first-hold and hold_register.twice both answer")
    assert (complaint.rule, complaint.line) == ("hold_register.twice", tables.line(REGISTER, "hold_register.twice"))


def test_a_state_that_no_edge_leads_to_is_a_defect(tables):
    tables.replace(TRAINJOB, "to: orphaned}", "to: ended}", after="id: trainjob.orphaned")
    complaint = tables.only("no edge leads to the state orphaned")
    assert complaint.line == tables.line(TRAINJOB, "  orphaned:")


def test_a_dead_end_that_is_not_final_is_a_defect(small):
    small.replace("lifecycles/door.yaml", "gone: {final: true, ", "gone: {")
    complaint = small.only("no edge leaves the state gone, and it is not final")
    assert complaint.line == small.line("lifecycles/door.yaml", "gone: {")


def test_a_final_state_with_a_way_out_is_a_defect(tables):
    tables.replace(TRAINJOB, "ended: {means", "ended: {final: true, means")
    tables.only("the state ended is final, and an edge leaves it")


def test_a_lifecycle_without_an_initial_state_is_a_defect(tables):
    tables.replace(REGISTER, "initial: true, ", "")
    assert tables.only("no state is initial").line == tables.line(REGISTER, "states:")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("from: none, to: held", "from: nome, to: held", "unknown state 'nome'"),
        ("from: none, to: held", "from: none, to: hled", "unknown state 'hled'"),
        ("operation: hold, from: none", "operation: hlod, from: none", "unknown operation 'hlod'"),
        ("to: held, does", "to: held, when: {mood: [good]}, does", "unknown guard 'mood'"),
        ("to: held, does", "to: held, when: {instance: {not: oldest}}, does", "unknown value of instance 'oldest'"),
        ("operation: hold, from: none", "event: bang, from: none", "unknown event 'bang'"),
        ("spec: C24", "spec: ours", "an edge that is ours gives its reason"),
    ],
)
def test_an_unknown_name_in_an_edge_is_a_defect(tables, old, new, text):
    tables.replace(REGISTER, old, new, after=FIRST_HOLD)
    complaint = tables.only(text)
    assert (complaint.file, complaint.rule) == (REGISTER, "hold_register.first-hold")
    assert complaint.line == tables.line(REGISTER, FIRST_HOLD)


def test_an_edge_without_the_lifecycles_prefix_is_a_defect(tables):
    tables.replace(REGISTER, FIRST_HOLD, "id: register.first-hold")
    assert tables.only("the id must begin with hold_register.").rule == "register.first-hold"


def test_a_refusal_by_an_unknown_rule_is_a_defect(tables):
    tables.replace(REGISTER, "rule: object.release-without-hold", "rule: object.releases-without-hold")
    complaint = tables.only("no rule object.releases-without-hold that refuses")
    assert complaint.line == tables.line(REGISTER, "object.releases-without-hold")


def test_a_refusal_by_a_rule_that_refuses_nothing_is_a_defect(tables):
    tables.replace(REGISTER, "rule: object.release-without-hold", "rule: backend.may-write")
    tables.only("no rule backend.may-write that refuses")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("operations: [hold, release]", "operations: [hold, release, sing]", "unknown operation 'sing'"),
        (
            "lifecycle: hold_register",
            "lifecycle: register",
            "the lifecycle register stands in the file of hold_register",
        ),
        ("guards:\n", 'guards:\n  mood: {values: [good, bad], means: "x"}\n', "nothing asks for the guard mood"),
        ("guards:\n", 'events:\n  bang: {means: "x"}\nguards:\n', "no edge has the event bang"),
        ("values: [older, same, newer], ", "values: [older, same, newer], default: oldest, ", "unknown value 'oldest'"),
    ],
)
def test_an_unknown_or_idle_name_of_a_lifecycle_is_a_defect(tables, old, new, text):
    tables.replace(REGISTER, old, new)
    assert tables.only(text).file == REGISTER


def test_an_edge_where_the_family_refuses_is_a_contradiction(tables):
    tables.replace(REGISTER, "  - {operation: release, from: none, rule: object.release-without-hold}\n", "")
    edge = "  - {id: hold_register.undo, operation: release, from: none, to: same}\n"
    tables.replace(REGISTER, "refusals:", edge + "refusals:")
    complaints = [each for each in tables.check() if "in object object.release-without-hold does" in each.text]
    assert {each.rule for each in complaints} == {"hold_register.undo"}
    assert {each.line for each in complaints} == {tables.line(REGISTER, "id: hold_register.undo")}
    assert "state=none operation=release instance=older mode=plain" in complaints[0].text


def test_a_refusal_where_the_family_does_not_refuse_is_a_contradiction(tables):
    again = "  - {id: hold_register.hold-again, "
    text = tables.text(REGISTER)
    line = next(each for each in text.splitlines(keepends=True) if each.startswith(again))
    refusal = "  - {operation: hold, from: held, when: {instance: same}, rule: object.stale-hold}\n"
    tables.write(REGISTER, text.replace(line, "").replace("refusals:\n", f"refusals:\n{refusal}"))
    complaints = [
        each for each in tables.check() if "here object.stale-hold answers state=held operation=hold" in each.text
    ]
    assert {each.rule for each in complaints} == {"object.stale-hold"}


def test_a_refusal_by_another_rule_than_the_familys_is_a_contradiction(tables):
    tables.replace(REGISTER, "rule: object.release-without-hold", "rule: object.stale-release")
    complaints = tables.check()
    assert complaints
    assert all("here object.stale-release answers state=none" in each.text for each in complaints)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("family: object", "family: objects", "unknown family 'objects'"),
        ("state_input: hold", "state_input: holding", "unknown input 'holding'"),
        ("state_input: hold", "state_input: gate", "unknown value of gate 'none'"),
        ("uid: same", "uid: smae", "object has no uid=smae"),
        ("uid: same", "udi: same", "object has no udi=same"),
        ("uid: same, ", "", "does not say what is calm for uid"),
    ],
)
def test_a_family_to_be_checked_against_must_be_described_rightly(tables, old, new, text):
    tables.replace(REGISTER, old, new, after="checked_against:")
    assert tables.only(text).file == REGISTER


def test_one_mode_can_be_chosen_to_be_checked_against(tables):
    tables.replace(REGISTER, "uid: same", "mode: plain, uid: same", after="checked_against:")
    assert tables.check() == []


def test_a_family_without_modes_can_be_checked_against(small):
    small.write("door2.yaml", DOOR_FAMILY)
    small.add("lifecycles/door.yaml", "checked_against: {family: door2, state_input: door, calm: {weather: fine}}\n")
    small.write("lifecycles/door.yaml", small.text("lifecycles/door.yaml").replace("small.lost", "door2.locked"))
    small.write("lifecycles/door.yaml", small.text("lifecycles/door.yaml").replace("small.conflict", "door2.open"))
    assert small.check() == []


DOOR_FAMILY = """
family: door2
about: What a door refuses.
hit_policy: unique
operations: [open]
inputs:
  door: {values: [closed, ajar, gone], means: door}
  key: {values: [none, right], means: key}
  weather: {values: [fine, foul], means: weather}
rules:
  - id: door2.open
    spec: A1
    stage: request
    when: {door: [ajar, gone]}
    sentinel: ErrRejected
    message: open
    concludes: refused
  - id: door2.locked
    spec: A1
    stage: request
    when: {door: closed, key: none}
    sentinel: ErrRejected
    message: locked
    concludes: refused
  - {id: door2.fine, spec: A1, stage: request, when: {door: closed, key: right, weather: fine}, sentinel: none}
  - {id: door2.foul, spec: A1, stage: request, when: {door: closed, key: right, weather: foul}, sentinel: none}
"""
