"""Every cell of the declared product must have exactly one rule, and every rule a cell: nothing is left to chance, and
nothing is written that does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from .diagram import Axes, Diagram, describe, merged
from .load import Loaded
from .model import Box, Complaint, Family, Rule

SHOWN = 3
"""How many groups of cells a complaint spells out."""
MOST_BOXES = 500
"""How many boxes are looked at for that: a big hole can fall into very many."""


def cells(loaded: Loaded, name: str, made: dict[str, Diagram]) -> Iterator[Complaint]:
    """Uncovered and doubly covered cells, rules that never win, and idle or impossible `yields_to`.

    The diagram of the family is put into `made`.
    """
    family, file = loaded.tables.families[name], loaded.family_files[name]
    axes = family_axes(family)
    boxes = [rule_box(rule, family) for rule in family.rules]
    bad_yields = list(_bad_yields(loaded, file, family, boxes))
    yield from bad_yields
    numbers = {rule.id: i for i, rule in enumerate(family.rules)}
    yields = [frozenset(numbers[each] for each in rule.yields_to if each in numbers) for rule in family.rules]
    diagram = made[name] = Diagram(axes, boxes, yields)
    counts = diagram.cells()
    for winners, count in counts.items():
        if not winners:
            text = f"no rule decides {_cells(diagram, winners, count)}"
            yield loaded.complaint(file, ("rules",), text)
        elif len(winners) > 1:
            *others, last = (family.rules[each].id for each in winners)
            text = f"decides the same as {', '.join(others)}, and neither yields: {_cells(diagram, winners, count)}"
            yield loaded.complaint(file, ("rules", winners[-1], "id"), text, last)
    reached = {each for winners in counts for each in winners}
    for i, rule in enumerate(family.rules):
        if i not in reached:
            text = f"never wins a cell: others win all of {describe(boxes[i], axes)}"
            yield loaded.complaint(file, ("rules", i, "id"), text, rule.id)


def family_axes(family: Family) -> Axes:
    """The inputs of a family with their values; operation and mode first, where it depends on them."""
    axes: dict[str, tuple[str, ...]] = {}
    if family.operations:
        axes["operation"] = family.operations
    if family.modes:
        axes["mode"] = family.modes
    return {**axes, **{each.name: each.values for each in family.inputs}}


def rule_box(rule: Rule, family: Family) -> Box:
    """What a rule asks of each input, operation and mode among them."""
    box = dict(rule.when)
    if set(rule.operations) != set(family.operations):
        box["operation"] = rule.operations
    if set(rule.modes) != set(family.modes):
        box["mode"] = rule.modes
    return box


def _cells(diagram: Diagram, winners: tuple[int, ...], count: int) -> str:
    boxes = list(islice(diagram.boxes(winners), MOST_BOXES + 1))
    groups = [describe(box, diagram.axes) for box in merged(boxes, diagram.axes)]
    more = "; and more" if len(groups) > SHOWN or len(boxes) > MOST_BOXES else ""
    return f"{count:,} cell{'s' if count > 1 else ''}: {'; '.join(groups[:SHOWN])}{more}"


def _bad_yields(loaded: Loaded, file: str, family: Family, boxes: list[Box]) -> Iterator[Complaint]:
    earlier: dict[str, int] = {}
    ids = {rule.id for rule in family.rules}
    for i, rule in enumerate(family.rules):
        for k, other in enumerate(rule.yields_to):
            text = None
            if other not in ids:
                text = f"yields to {other}, which is no rule of this family"
            elif other not in earlier:
                text = f"yields to {other}, which does not stand before it"
            elif not _share(boxes[i], boxes[earlier[other]]):
                text = f"yields to {other}, with which it shares no cell"
            if text is not None:
                yield loaded.complaint(file, ("rules", i, "yields_to", k), text, rule.id)
        earlier[rule.id] = i


def _share(one: Mapping[str, tuple[str, ...]], other: Mapping[str, tuple[str, ...]]) -> bool:
    return all(set(values) & set(other[name]) for name, values in one.items() if name in other)
