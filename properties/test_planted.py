"""Every planted bug is found, within its number of examples; and without it nothing is found where it was."""

from __future__ import annotations

import itertools

import pytest

from .planted import PLANTED, Planted, found_after

ALL = {bug.name: bug for bug in PLANTED}


@pytest.mark.parametrize("name", ALL)
def test_a_planted_bug_is_found_within_its_number_of_examples(name: str) -> None:
    assert found_after(ALL[name]) is not None


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(PLANTED) == len(ALL) >= 30
    assert all(bug.thread and bug.within >= 1 for bug in PLANTED)


@pytest.mark.parametrize("name", ALL)
def test_where_the_bug_is_looked_for_nothing_is_found_without_it(name: str) -> None:
    bug: Planted = ALL[name]
    for example in itertools.islice(bug.hunt(), min(bug.within, 9)):
        example()
