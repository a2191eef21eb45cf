"""Every row of the page is reached by a test through a public call."""

from __future__ import annotations

from dispatch_kubeflow.machine.rules import rulebook
from tests.row_listing import by_row, reached


def test_every_row_of_the_page_is_reached_by_a_test() -> None:
    assert [row for row, tests in by_row(rulebook()).items() if not tests] == []


def test_every_rule_that_a_test_names_exists() -> None:
    known = {rule.id for family in rulebook().families.values() for rule in family.rules}
    assert {rule for rule in reached() if "." in rule} <= known
