"""Every small change to the tables is noticed: by the prover, or by what they were frozen to decide."""

from __future__ import annotations

import math

import pytest

from dispatch_kubeflow.machine.rules import rulebook

from . import mutants, vectors

TABLES = rulebook().tables


@pytest.mark.parametrize("name", TABLES.families)
def test_the_tables_decide_as_they_were_frozen(name: str) -> None:
    family = TABLES.families[name]
    differs = vectors.differs(family, vectors.diagram_of(family), vectors.read(name))
    assert differs is None, f"{differs}\nif that is meant: python -m properties freeze, and read the difference"


@pytest.mark.parametrize("name", TABLES.families)
def test_the_frozen_vectors_speak_of_every_cell(name: str) -> None:
    axes = vectors.diagram_of(TABLES.families[name]).axes
    sizes = (math.prod(len(box.get(axis, every)) for axis, every in axes.items()) for _, box in vectors.read(name))
    assert sum(sizes) == math.prod(map(len, axes.values()))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TABLES.families)
def test_every_mutant_of_a_table_dies(name: str) -> None:
    frozen = vectors.read(name)
    made = list(mutants.of_family(TABLES.families[name]))
    survivors = [mutant.what for mutant in made if mutants.judge(mutant, frozen) is None]
    assert len(made) >= 2 * len(TABLES.families[name].rules)
    assert not survivors, "\n".join(survivors)


@pytest.mark.parametrize("name", TABLES.lifecycles)
def test_every_mutant_of_a_lifecycle_dies(name: str) -> None:
    frozen = (vectors.FOLDER / f"lifecycle-{name}.txt").read_text("utf-8").splitlines()
    assert vectors.lifecycle_lines(TABLES.lifecycles[name]) == frozen
    made = list(mutants.of_lifecycle(TABLES.lifecycles[name]))
    survivors = [what for what, mutant in made if vectors.lifecycle_lines(mutant) == frozen]
    assert made
    assert not survivors, "\n".join(survivors)


def test_a_mutant_that_nobody_notices_would_be_named_with_its_cell() -> None:
    family = TABLES.families["stop"]
    mutant = next(each for each in mutants.of_family(family) if "its sentinel" in each.what)
    verdict = mutants.judge(mutant, vectors.read("stop"))
    assert verdict is not None
    assert verdict.by == "vectors"
    assert " instead of " in verdict.said
