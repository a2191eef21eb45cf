import itertools

import pytest
from transitions import MachineError

from dispatch_kubeflow.machine.lifecycle import Subject
from dispatch_kubeflow.machine.rules import FactError, Rule, rulebook
from dispatch_kubeflow.machine.rules.compile import load_rulebook
from dispatch_kubeflow.machine.rules.model import Edge


@pytest.fixture
def door(small):
    return load_rulebook(small.path).lifecycle("door")


def test_an_operation_is_answered_by_the_edge_it_takes(door):
    assert door.answer("closed", "open", key="right") == Edge(
        id="door.open",
        source="closed",
        to="ajar",
        when={"key": ("right",)},
        operation="open",
        event=None,
        does="turn",
        spec=("ours",),
        reason="So.",
    )


def test_an_edge_to_same_goes_to_where_it_came_from(door):
    edge = door.answer("gone", "find")
    assert (edge.source, edge.to) == ("gone", "gone")


def test_an_operation_is_answered_by_the_rule_that_refuses_it(door):
    refusal = door.answer("closed", "open", key="none")
    assert isinstance(refusal, Rule)
    assert refusal.id == "small.lost"


def test_an_event_is_answered_where_the_state_has_it(door):
    assert door.answer("ajar", "burns").to == "gone"
    with pytest.raises(FactError, match="nothing answers burns in gone"):
        door.answer("gone", "burns")


@pytest.mark.parametrize(
    ("state", "operation", "guards", "text"),
    [
        ("open", "open", {}, "no state 'open'"),
        ("closed", "sing", {}, "no operation or event 'sing'"),
        ("closed", "open", {}, "open in closed needs key"),
        ("closed", "open", {"key": "golden"}, "no guard key='golden'"),
        ("closed", "open", {"mood": "good", "key": "right"}, "no guard mood='good'"),
    ],
)
def test_what_the_table_does_not_have_is_a_defect_of_the_code(door, state, operation, guards, text):
    with pytest.raises(FactError, match=text):
        door.answer(state, operation, **guards)


def test_a_guards_default_stands_for_it(small):
    small.replace("lifecycles/door.yaml", "[none, right], ", "[none, right], default: none, ")
    door = load_rulebook(small.path).lifecycle("door")
    assert door.answer("closed", "open").id == "small.lost"
    assert door.answer("closed", "open", key="right").id == "door.open"


def test_asking_moves_nothing(door):
    assert door.answer("closed", "open", key="right") == door.answer("closed", "open", key="right")


def test_the_real_machine_runs_a_model(door):
    subject = Subject("")
    door.machine(subject)
    assert subject.state == "closed"
    subject.trigger("open", key="none")
    assert (subject.state, subject.answered.id) == ("closed", "small.lost")
    subject.trigger("open", key="right")
    assert subject.state == "ajar"
    subject.trigger("burns")
    assert (subject.state, subject.answered.id) == ("gone", "door.burns")
    with pytest.raises(MachineError):
        subject.trigger("burns")


def test_a_machine_begins_in_the_first_initial_state(door):
    assert door.initial == "closed"
    assert door.machine().initial == "closed"


def test_a_lifecycle_is_made_once(small):
    book = load_rulebook(small.path)
    assert book.lifecycle("door") is book.lifecycle("door")


def test_an_unknown_lifecycle_is_a_defect_of_the_code(small):
    with pytest.raises(FactError, match="no lifecycle 'window'"):
        load_rulebook(small.path).lifecycle("window")


@pytest.mark.parametrize("name", sorted(rulebook().lifecycles))
def test_each_state_of_the_real_lifecycles_answers_each_operation_as_its_table_says(name):
    table, lifecycle = rulebook().lifecycles[name], rulebook().lifecycle(name)
    guards = {each.name: each.values for each in table.guards}
    for state, operation in itertools.product(table.states, table.operations):
        for values in itertools.product(*guards.values()):
            cell = dict(zip(guards, values, strict=True))
            [said] = [
                each.id if isinstance(each, Edge) else each.rule
                for each in (*table.edges, *table.refusals)
                if (each.source, each.operation) == (state.name, operation)
                and all(cell[key] in allowed for key, allowed in each.when.items())
            ]
            assert lifecycle.answer(state.name, operation, **cell).id == said


@pytest.mark.parametrize(
    ("state", "operation", "instance", "answer"),
    [
        ("none", "hold", "newer", "held"),
        ("held", "hold", "same", "held"),
        ("held", "hold", "newer", "ErrStaleHold"),
        ("held", "hold", "older", "ErrStaleHold"),
        ("released", "hold", "newer", "held"),
        ("released", "hold", "same", "ErrStaleHold"),
        ("released", "hold", "older", "ErrStaleHold"),
        ("none", "release", "newer", "ErrStaleHold"),
        ("held", "release", "same", "released"),
        ("held", "release", "older", "ErrStaleHold"),
        ("released", "release", "same", "released"),
        ("released", "release", "newer", "ErrStaleHold"),
    ],
)
def test_the_hold_register_is_that_of_the_contract(state, operation, instance, answer):
    given = rulebook().lifecycle("hold_register").answer(state, operation, instance=instance)
    assert (given.to if isinstance(given, Edge) else given.sentinel) == answer
