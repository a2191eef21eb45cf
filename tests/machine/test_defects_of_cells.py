"""A defect is planted in the real tables, and the complaint is read: file, line, rule and cell."""

import pathlib

import pytest

from dispatch_kubeflow.machine.rules import TablesError
from dispatch_kubeflow.machine.rules.compile import COMPILED, load_rulebook

AGAIN = """
  - id: request.again
    spec: A4
    stage: request
    when: {channel: api, verb: write, result: "409", reason: other}
    sentinel: ErrRejected
    message: "again"
    concludes: refused
"""


def test_the_real_tables_have_no_defect(tables):
    assert tables.check() == []


def test_a_cell_that_no_rule_decides_is_spelled_out(tables):
    tables.remove_rule("request.yaml", "request.conflict")
    complaint = tables.only("no rule decides")
    assert (complaint.file, complaint.rule) == ("request.yaml", None)
    assert complaint.line == tables.line("request.yaml", "rules:\n")
    assert "cells: channel=api verb=write result=409 reason=other" in complaint.text


def test_uncovered_cells_are_grouped_and_counted(small):
    small.remove_rule("small.yaml", "small.lost")
    assert small.only("no rule decides").text == (
        "no rule decides 8 cells: operation=open status=403; operation=open status=409 colour=blue"
    )


def test_more_than_three_groups_of_cells_are_cut_short(small):
    small.replace("small.yaml", "colour: {not: blue}", "colour: [red]")
    small.replace(
        "small.yaml", 'when: {status: ["403", "409"]}', 'modes: [plain]\n    when: {status: "403", colour: green}'
    )
    small.replace("small.yaml", "modes: all", "modes: [kueue]")
    small.replace("small.yaml", '{status: {not: ["200"]}}', '{status: "403", colour: blue}')
    assert small.only("no rule decides").text == (
        "no rule decides 18 cells: operation=open mode=plain status=403 colour=red|blue; "
        "status=409 colour=green|blue; operation=open mode=kueue status=403; and more"
    )


def test_a_cell_that_two_rules_decide_is_spelled_out(tables):
    tables.add("request.yaml", AGAIN)
    complaint = tables.only("decides the same as")
    assert (complaint.file, complaint.rule) == ("request.yaml", "request.again")
    assert complaint.line == tables.line("request.yaml", "id: request.again")
    assert complaint.column == 5
    assert "decides the same as request.conflict, and neither yields" in complaint.text
    assert "cells: channel=api verb=write result=409 reason=other" in complaint.text


def test_an_overlap_that_both_yield_to_a_third_is_no_defect(small):
    small.replace("small.yaml", 'operations: [find]\n    modes: all\n    when: {status: {not: ["200"]}}', "modes: all")
    small.replace(
        "small.yaml",
        "yields_to: [small.conflict]",
        "yields_to: [small.fine, small.conflict, small.lost]",
        after="id: small.rest",
    )
    assert small.check() == []


def test_a_rule_that_never_wins_is_a_defect(tables):
    tables.add("request.yaml", AGAIN.replace("    sentinel", "    yields_to: [request.conflict]\n    sentinel"))
    complaint = tables.only("never wins a cell")
    assert (complaint.file, complaint.rule) == ("request.yaml", "request.again")
    assert complaint.line == tables.line("request.yaml", "id: request.again")
    assert "channel=api verb=write result=409 reason=other" in complaint.text


@pytest.mark.parametrize(
    ("yields_to", "text"),
    [
        ("request.unknown", "yields to request.unknown, which is no rule of this family"),
        ("backend.closed", "yields to backend.closed, which is no rule of this family"),
        ("request.expired", "yields to request.expired, which does not stand before it"),
        ("request.conflict", "yields to request.conflict, which does not stand before it"),
        ("request.unsent", "yields to request.unsent, with which it shares no cell"),
    ],
)
def test_an_impossible_yields_to_is_a_defect(tables, yields_to, text):
    tables.replace(
        "request.yaml", "    sentinel", f"    yields_to: [{yields_to}]\n    sentinel", after="id: request.conflict"
    )
    complaint = tables.only(text)
    assert (complaint.file, complaint.rule) == ("request.yaml", "request.conflict")
    assert complaint.line == tables.line("request.yaml", f"yields_to: [{yields_to}]")


def test_bad_tables_do_not_load_at_all_and_every_complaint_is_told(tables):
    tables.remove_rule("request.yaml", "request.conflict")
    tables.replace("backend.yaml", "spec: C1\n", "spec: C99\n")
    with pytest.raises(TablesError) as wrong:
        load_rulebook(tables.path, COMPILED)
    text = str(wrong.value)
    assert "request.yaml" in text
    assert f"backend.yaml:{tables.line('backend.yaml', 'spec: C99')}:5: backend.closed: cites C99" in text
    assert wrong.value.complaints == tuple(tables.check())


def test_complaints_come_in_the_order_of_files_and_lines(tables):
    tables.remove_rule("request.yaml", "request.conflict")
    tables.replace("backend.yaml", "spec: C1\n", "spec: C99\n")
    places = [(each.file, each.line) for each in tables.check()]
    assert places == sorted(places)


def test_a_family_that_depends_on_neither_operation_nor_mode_declares_neither(small):
    small.write(
        "vocabulary.yaml",
        small.text("vocabulary.yaml").replace('  kueue: {means: "kueue"}\n', ""),
    )
    small.write("small.yaml", small.text("small.yaml").replace("modes: [plain, kueue]\n", ""))
    complaints = {(each.file, each.text) for each in small.check()}
    assert complaints == {("vocabulary.yaml", "no table uses plain of the modes")}
    small.write("free.yaml", FREE)
    book_text = small.text("vocabulary.yaml").replace(
        'modes:\n  plain: {means: "plain"}', "modes:\n  plain: {means: x}"
    )
    small.write("vocabulary.yaml", book_text)
    assert [each.text for each in small.check()] == ["no table uses plain of the modes"]


FREE = """
family: free
about: Depends on nothing but its one input.
hit_policy: unique
inputs:
  sky: {values: {blue: "clear", grey: "not"}, means: sky}
rules:
  - {id: free.clear, spec: A1, stage: request, when: {sky: blue}, sentinel: none}
  - {id: free.any, spec: A1, stage: request, yields_to: [free.clear], sentinel: none}
"""


def test_a_free_family_decides_for_any_operation_and_mode(small):
    small.write("free.yaml", FREE)
    book = load_rulebook(small.path)
    assert book.decide("free", operation="open", mode="kueue", sky="blue").id == "free.clear"
    assert book.decide("free", sky="grey").id == "free.any"


def test_a_family_of_one_rule_decides_everything_by_it(small):
    one = FREE.replace("  - {id: free.clear", "  # - {id: free.clear").replace(" yields_to: [free.clear],", "")
    one = one.replace('inputs:\n  sky: {values: {blue: "clear", grey: "not"}, means: sky}', "inputs: {}")
    small.write("free.yaml", one)
    assert load_rulebook(small.path).decide("free", operation="anything").id == "free.any"


def test_check_takes_a_directory_without_tables(tmp_path: pathlib.Path):
    from dispatch_kubeflow.machine.rules import check

    assert [(each.file, each.line) for each in check(tmp_path)] == [("vocabulary.yaml", 1), ("page/rows.yaml", 1)]
