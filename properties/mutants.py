"""The tables are code, so they are tested as code is: every small change to them must be noticed, by the prover or by
the frozen vectors. What survives is printed with the cell it differs in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dispatch_kubeflow.machine.rules.model import Box, Complaint, Edge, Family, LifecycleTable, Rule, Tables
from dispatch_kubeflow.machine.rules.prove_cells import cells, family_axes

from . import vectors

SENTINELS = ("ErrRejected", "ErrUnreachable")
"""What a sentinel is changed to: the first that it is not."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed family or lifecycle, and what was changed."""

    what: str
    family: Family


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who noticed: `prover`, `vectors` or nobody; and what was said."""

    by: str
    said: str


class Files:
    """As much of the loaded tables as the prover of cells asks for."""

    def __init__(self, family: Family) -> None:
        self.tables = Tables(vocabulary=None, families={family.name: family}, lifecycles={}, page_rows={})  # type: ignore[arg-type] # nobody asks for it
        self.family_files = {family.name: f"{family.name}.yaml"}

    def complaint(self, file: str, path: Any, text: str, rule: str | None = None) -> Complaint:
        return Complaint(file, 0, 0, rule, text)


def judge(mutant: Mutant, frozen: list[tuple[vectors.Said, Box]]) -> Verdict | None:
    """Who notices a mutant; None where nobody does."""
    made: dict[str, Any] = {}
    complaint = next(cells(Files(mutant.family), mutant.family.name, made), None)  # type: ignore[arg-type] # as above
    if complaint is not None:
        return Verdict("prover", complaint.text)
    cell = vectors.differs(mutant.family, made[mutant.family.name], frozen)
    return None if cell is None else Verdict("vectors", cell)


def of_family(family: Family) -> Iterator[Mutant]:
    """Every mutant of a family."""
    for number, rule in enumerate(family.rules):
        rest = family.rules[:number] + family.rules[number + 1 :]
        dropped = tuple(replace(each, yields_to=_without(each.yields_to, rule.id)) for each in rest)
        yield Mutant(f"{rule.id} dropped", replace(family, rules=dropped))
        sentinel = next(each for each in SENTINELS if each != rule.sentinel)
        yield _changed(family, number, replace(rule, sentinel=sentinel), f"its sentinel {sentinel}")
        yield from _swapped(family, number)
        yield from _conditions(family, number)


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)


def _changed(family: Family, number: int, rule: Rule, what: str) -> Mutant:
    rules = (*family.rules[:number], rule, *family.rules[number + 1 :])
    return Mutant(f"{rule.id}: {what}", replace(family, rules=rules))


def _swapped(family: Family, number: int) -> Iterator[Mutant]:
    """Precedence swapped with each rule it yields to: now that one yields."""
    rule = family.rules[number]
    for other in rule.yields_to:
        rules = []
        for each in family.rules:
            if each.id == rule.id:
                continue
            if each.id == other:
                rules.append(replace(rule, yields_to=_without(rule.yields_to, other)))
                rules.append(replace(each, yields_to=(*each.yields_to, rule.id)))
            else:
                rules.append(each)
        yield Mutant(f"{rule.id}: wins over {other}", replace(family, rules=_ordered(rules)))


def _ordered(rules: list[Rule]) -> tuple[Rule, ...]:
    """Rules in an order in which each stands behind those it yields to, as the prover wants it."""
    placed: list[Rule] = []
    left = list(rules)
    while left:
        names = {each.id for each in left}
        ready = next((each for each in left if names.isdisjoint(set(each.yields_to) - {each.id})), left[0])
        placed.append(ready)
        left.remove(ready)
    return tuple(placed)


def _conditions(family: Family, number: int) -> Iterator[Mutant]:
    rule = family.rules[number]
    axes = family_axes(family)
    won = _won(family, number, axes)
    asked = {**rule.when}
    if set(rule.operations) != set(family.operations):
        asked["operation"] = rule.operations
    if set(rule.modes) != set(family.modes):
        asked["mode"] = rule.modes
    for name, values in asked.items():
        every = axes[name]
        others = tuple(value for value in every if value not in values)
        if others:
            yield _asking(family, number, name, others, f"{name} negated")
            yield _asking(family, number, name, every, f"{name} not asked")
        for value in others:
            yield _asking(family, number, name, (*values, value), f"{name} also {value}")
        for value in won[name] if len(values) > 1 else ():
            yield _asking(family, number, name, _without(values, value), f"{name} not {value}")
    for name, every in axes.items():
        if name not in asked:
            for value in won[name] if len(every) > 1 else ():
                yield _asking(family, number, name, _without(every, value), f"{name} not {value}")


def _won(family: Family, number: int, axes: Any) -> dict[str, tuple[str, ...]]:
    """The values with which a rule wins cells: to take another one from it changes no decision at all."""
    boxes = list(vectors.diagram_of(family).boxes((number,)))
    return {
        name: tuple(value for value in every if any(value in box.get(name, every) for box in boxes))
        for name, every in axes.items()
    }


def _asking(family: Family, number: int, name: str, values: tuple[str, ...], what: str) -> Mutant:
    rule = family.rules[number]
    if name == "operation":
        changed = replace(rule, operations=values)
    elif name == "mode":
        changed = replace(rule, modes=values)
    else:
        changed = replace(rule, when={**rule.when, name: values})
    return _changed(family, number, changed, what)


def of_lifecycle(table: LifecycleTable) -> Iterator[tuple[str, LifecycleTable]]:
    """Every edge dropped, and redirected to every other state."""
    states = [each.name for each in table.states]
    for number, edge in enumerate(table.edges):
        rest = table.edges[:number] + table.edges[number + 1 :]
        yield f"{edge.id} from {edge.source} dropped", replace(table, edges=rest)
        for to in states:
            if to != edge.to:
                moved: Edge = replace(edge, to=to)
                edges = (*table.edges[:number], moved, *table.edges[number + 1 :])
                yield f"{edge.id} from {edge.source} to {to}", replace(table, edges=edges)
