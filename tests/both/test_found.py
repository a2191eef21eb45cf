"""What drawn requests once showed to be answered otherwise is answered as the real control plane was recorded to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.real.compare import differences
from tests.real.generated.found import FOUND
from tests.real.generated.record import performed, recorded
from tests.real.generated.sides import EmbeddedSide, fresh_name

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def side() -> Iterator[EmbeddedSide]:
    made = EmbeddedSide()
    yield made
    made.close()
    assert made.failures == []


@pytest.mark.parametrize("name", FOUND)
def test_a_sequence_is_answered_as_the_real_one_answered_it(side: EmbeddedSide, name: str) -> None:
    namespace = fresh_name()
    side.begin(namespace)
    here = performed(side, namespace, next(_NUMBERS), FOUND[name])
    assert list(differences(recorded()[name], here)) == []


def test_every_sequence_is_recorded_and_nothing_else() -> None:
    assert set(recorded()) == set(FOUND)
