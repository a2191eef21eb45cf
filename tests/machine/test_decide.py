import itertools
import threading

import pytest

from dispatch_kubeflow.machine import DispatchError, ErrRejected, ErrUnreachable
from dispatch_kubeflow.machine.rules import FactError, Rule, rulebook
from dispatch_kubeflow.machine.rules.compile import load_rulebook
from dispatch_kubeflow.machine.rules.prove_cells import family_axes, rule_box


@pytest.fixture
def book(small):
    return load_rulebook(small.path)


CONFLICT = {"status": "409", "colour": "red"}


def test_facts_decide_one_rule(book):
    rule = book.decide("small", operation="open", mode="plain", status="409", colour="green")
    assert rule == Rule(
        id="small.conflict",
        family="small",
        spec=("A1", "ours"),
        stage="request",
        operations=("open", "find"),
        modes=("plain", "kueue"),
        when={"status": ("409",), "colour": ("red", "green")},
        sentinel="ErrRejected",
        message="{operation}: {subject} answered {status}.",
        concludes="refused",
        effects=("tidied",),
        details=("status", "reason?"),
        gives=None,
        reason="Because.",
        yields_to=(),
    )
    assert (rule.required, rule.optional) == (("status",), ("reason",))


def test_a_rule_yields_to_the_earlier_it_names(book):
    assert book.decide("small", operation="open", status="409", colour="red").id == "small.conflict"
    assert book.decide("small", operation="open", status="409", colour="blue").id == "small.lost"


def test_facts_that_no_longer_matter_may_be_left_out(book):
    assert book.decide("small", operation="open", status="200").id == "small.fine"


@pytest.mark.parametrize(
    "facts",
    [
        {"operation": "open", "status": "409"},
        {"status": "403"},
        {"operation": "open"},
        {"operation": "open", "status": 409, "colour": "red"},
        {"operation": "open", "status": "418", "colour": "red"},
        {"operation": "open", "status": "200", "color": "red"},
        {"operation": "sing", "status": "200"},
        {"operation": "open", "mode": "brave", "status": "200"},
    ],
)
def test_missing_and_unknown_facts_are_a_defect_of_the_code(book, facts):
    with pytest.raises(FactError, match=r"^small (has no|must be told)"):
        book.decide("small", **facts)


def test_an_unknown_family_is_a_defect_of_the_code(book):
    with pytest.raises(FactError):
        book.decide("large", operation="open")


def test_a_default_stands_for_a_fact_that_is_not_given(small):
    small.replace("small.yaml", "means: colour}", "means: colour, default: blue}")
    book = load_rulebook(small.path)
    assert book.decide("small", operation="open", status="409").id == "small.lost"
    assert book.decide("small", operation="open", status="409", colour="red").id == "small.conflict"


def test_settling_a_rule_that_refuses_nothing_returns_it(book):
    assert book.settle("small", operation="find", facts={"status": "200"}).id == "small.fine"
    assert book.error("small", operation="find", facts={"status": "200"}) is None


def test_settling_raises_the_sentinel_with_all_it_knows(book):
    cause = TimeoutError("slow")
    with pytest.raises(ErrRejected) as raised:
        book.settle(
            "small",
            operation="open",
            mode="plain",
            facts=CONFLICT,
            subject="job-1",
            details={"status": 409, "reason": None, "colour": "red"},
            cause=cause,
        )
    error = raised.value
    assert str(error) == "open: job-1 answered 409."
    assert (error.row, error.operation, error.subject) == ("small.conflict", "open", "job-1")
    assert error.details == {"status": 409}
    assert error.__cause__ is cause


@pytest.mark.parametrize(
    ("status", "said"), [(("a", "b"), "a, b"), ([*"abcdefghij"], "a, b, c, d, e, f, g, h and 2 more")]
)
def test_a_message_spells_out_the_first_of_many(book, status, said):
    error = book.error("small", operation="open", facts=CONFLICT, details={"status": status})
    assert str(error) == f"open: the call answered {said}."
    assert error.details["status"] == status


def test_an_optional_detail_is_kept_where_it_is_known(book):
    error = book.error("small", operation="open", facts=CONFLICT, details={"status": 409, "reason": "Conflict"})
    assert error.details == {"status": 409, "reason": "Conflict"}


def test_an_error_can_be_had_without_raising_it(book):
    cause = KeyError("x")
    error = book.error("small", operation="open", facts={"status": "403"}, subject="job-1", cause=cause)
    assert isinstance(error, ErrUnreachable)
    assert str(error) == "job-1 {lost}."
    assert error.__cause__ is cause


def test_a_subject_that_is_not_known_is_called_the_call(book):
    assert str(book.error("small", operation="open", facts={"status": "403"})) == "the call {lost}."


def test_a_required_detail_that_is_not_given_is_a_defect_of_the_code(book):
    with pytest.raises(FactError, match=r"small\.conflict: the detail status was not given"):
        book.error("small", operation="open", facts=CONFLICT, details={"reason": "x"})


def test_a_rule_can_be_had_by_its_id(book):
    assert book.tables.rule("small.lost").sentinel == "ErrUnreachable"
    with pytest.raises(FactError, match=r"no rule small\.gone"):
        book.tables.rule("small.gone")


def test_the_packaged_rulebook_is_loaded_once():
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(rulebook())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rulebook() in found
    assert rulebook() is rulebook()


def test_the_words_and_tables_can_be_read(book):
    assert book.vocabulary.operations["open"].hold_family
    assert book.vocabulary.sentinels["ErrRejected"].next == "look"
    assert set(book.families) == {"small"}
    assert set(book.lifecycles) == {"door"}


def some_cells(family):
    axes = family_axes(family)
    for values in itertools.islice(itertools.product(*axes.values()), 0, None, 7):
        yield dict(zip(axes, values, strict=True))


@pytest.mark.parametrize("name", sorted(rulebook().families))
def test_the_real_tables_decide_as_reading_their_rules_does(name):
    family = rulebook().families[name]
    boxes = {rule.id: rule_box(rule, family) for rule in family.rules}
    for cell in some_cells(family):
        matching = {each for each, box in boxes.items() if all(cell[key] in box[key] for key in box)}
        [winner] = [rule for rule in family.rules if rule.id in matching and not set(rule.yields_to) & matching]
        assert rulebook().decide(name, **cell) == winner


def a_value(key):
    return {"status": 409, "tries": 8}.get(key, f"the {key}")


@pytest.mark.parametrize(
    "rule",
    [rule for family in rulebook().families.values() for rule in family.rules if rule.sentinel != "none"],
    ids=lambda rule: rule.id,
)
def test_each_refusal_of_the_real_tables_says_one_full_sentence(rule):
    family = rulebook().families[rule.family]
    cell = next(each for each in all_cells(family) if rulebook().decide(rule.family, **each) == rule)
    operation = cell.pop("operation", "start")
    details = {key: a_value(key) for key in (*rule.required, *rule.optional)}
    error = rulebook().error(
        rule.family, operation=operation, mode=cell.pop("mode", None), facts=cell, subject="job-1", details=details
    )
    assert isinstance(error, DispatchError)
    assert (error.sentinel, error.row, set(error.details)) == (rule.sentinel, rule.id, set(details))
    assert str(error).endswith((".", "…"))
    assert "{" not in str(error)
    assert "None" not in str(error)


def all_cells(family):
    axes = family_axes(family)
    return (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
