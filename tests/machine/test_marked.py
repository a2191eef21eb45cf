import json

import pytest

from dispatch_kubeflow.machine.marked import MOST_NODES, Mark, UnreadableYaml, is_number, read


def test_scalars_are_read_by_the_rules_of_yaml_1_2():
    text = 'a: [1, 1.5, true, false, ~, null, yes, no, 010, 0x1f, 2020-01-01, "5", 1e3, .inf]'
    assert read(text).data == {
        "a": [1, 1.5, True, False, None, None, "yes", "no", 10, 31, "2020-01-01", "5", 1000.0, float("inf")]
    }


def test_an_empty_text_is_no_data():
    assert read("").data is None
    assert read("").mark("a", 1) == Mark(1, 1)


def test_each_part_has_its_mark_by_its_path():
    document = read("a:\n  b: [x,\n      y]\nc: 1\n")
    assert document.mark("a") == Mark(1, 1)
    assert document.mark("a", "b") == Mark(2, 3)
    assert document.mark("a", "b", 1) == Mark(3, 7)
    assert document.mark("c") == Mark(4, 1)


def test_what_is_not_there_has_the_mark_of_what_is_around_it():
    assert read("a:\n  b: 1\n").mark("a", "b", "z", 3) == Mark(2, 3)


def test_aliases_are_followed():
    assert read("a: &x [1]\nb: *x\n").data == {"a": [1], "b": [1]}


@pytest.mark.parametrize(
    ("text", "problem", "mark"),
    [
        ("a: [", "expected the node content", Mark(1, 5)),
        ("a: 1\nb: *x\n", "undefined alias", Mark(2, 4)),
        ("a: 1\n--- \nb: 2\n", "found another document", Mark(2, 1)),
        ("a: 1\na: 2\n", "the key 'a' twice", Mark(2, 1)),
        ("1: a\n", "a key that is not a string", Mark(1, 1)),
        ("<<: {a: 1}\n", "a key that is not a string", Mark(1, 1)),
        ("a: &x [*x]\n", "an alias to what it stands in", Mark(1, 4)),
        ("a: !!int secret\n", "what is no int", Mark(1, 4)),
        ("a: !thing 3\n", "the tag !thing", Mark(1, 4)),
        (f"a: {'9' * 5000}\n", "too long a one", Mark(1, 4)),
        ("a: \x00", "unacceptable character", Mark(1, 1)),
        ("[" * 3000, "nested too deeply", Mark(1, 1)),
        ('a: "\\ud800"\n', "half of a character", Mark(1, 4)),
        ('a: "\\ude00\\ud83d"\n', "half of a character", Mark(1, 4)),
        ('"\\ud800": a\n', "half of a character", Mark(1, 1)),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text, problem, mark):
    with pytest.raises(UnreadableYaml) as failure:
        read(text)
    assert problem in failure.value.problem
    assert failure.value.mark == mark


def test_a_character_that_json_escapes_in_two_halves_is_one():
    assert read(json.dumps({"\U0001f600": ["a\U0001f600"]})).data == {"\U0001f600": ["a\U0001f600"]}


def test_a_tag_that_its_value_belies_does_not_quote_the_value():
    with pytest.raises(UnreadableYaml) as failure:
        read("a: !!int secret\n")
    assert "secret" not in failure.value.problem


def test_a_few_aliases_that_stand_for_billions_are_refused():
    levels = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 10))
    with pytest.raises(UnreadableYaml, match=f"more than {MOST_NODES} values"):
        read(f"l0: &l0 [x]\n{levels}")


@pytest.mark.parametrize(
    ("value", "is_one"), [(1, True), (1.5, True), (True, False), ("1", False), (float("nan"), False), (10**400, False)]
)
def test_a_bool_is_no_number(value, is_one):
    assert is_number(value) is is_one
