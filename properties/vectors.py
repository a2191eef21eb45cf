"""What the tables decide, frozen: each group of cells and its rule, written out for a reviewer.

The tables are written as rules that yield to each other; here stands what comes of them. A table that was changed is
held against it, and whoever changes a table reads here what that changed: `python -m properties freeze`, then the diff.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from dispatch_kubeflow.machine.rules.diagram import Axes, Branch, Diagram, Node, merged
from dispatch_kubeflow.machine.rules.model import Box, Family, LifecycleTable, Rule, Tables
from dispatch_kubeflow.machine.rules.prove_cells import family_axes, rule_box

FOLDER = pathlib.Path(__file__).parent / "vectors"
HEADER = "# Cells and the rule that decides them: rule, sentinel, what it concludes, what it gives; then its cells.\n"
Said = tuple[str, str, str, str]
"""What a rule says: its id, its sentinel, what it concludes, what it gives."""


def said(rule: Rule) -> Said:
    return rule.id, rule.sentinel, rule.concludes or "-", rule.gives or "-"


def diagram_of(family: Family) -> Diagram:
    """The family as the prover makes it."""
    numbers = {rule.id: number for number, rule in enumerate(family.rules)}
    yields = [frozenset(numbers[each] for each in rule.yields_to if each in numbers) for rule in family.rules]
    return Diagram(family_axes(family), [rule_box(rule, family) for rule in family.rules], yields)


def lines_of(family: Family) -> list[str]:
    """The vectors of a family as they are written."""
    diagram = diagram_of(family)
    lines = [HEADER.rstrip("\n")]
    for number, rule in enumerate(family.rules):
        lines.append("  ".join(said(rule)))
        lines += [f"    {_written(box, diagram.axes)}" for box in merged(diagram.boxes((number,)), diagram.axes)]
    return lines


def _written(box: Box, axes: Axes) -> str:
    parts = [f"{name}={'|'.join(box[name])}" for name in axes if set(box[name]) != set(axes[name])]
    return " ".join(parts) or "*"


def read(name: str) -> list[tuple[Said, Box]]:
    """The frozen vectors of a family; an axis that is left out may have any value."""
    found: list[tuple[Said, Box]] = []
    rule: Said | None = None
    for line in (FOLDER / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            one, two, three, four = line.split("  ")
            rule = (one, two, three, four)
            continue
        assert rule is not None
        parts = [] if line.strip() == "*" else [part.partition("=") for part in line.split()]
        found.append((rule, {axis: tuple(values.split("|")) for axis, _, values in parts}))
    return found


def differs(family: Family, diagram: Diagram, frozen: list[tuple[Said, Box]]) -> str | None:
    """A cell in which a family decides otherwise than it is frozen; None if there is none."""
    names = list(diagram.axes)
    says = [said(rule) for rule in family.rules]
    for wanted, box in frozen:
        for winners, cell in _reached(diagram.root, names, box, {}):
            if len(winners) != 1 or says[winners[0]] != wanted:
                found = "nothing" if not winners else " ".join(says[winners[0]])
                where = " ".join(f"{name}={value}" for name, value in cell.items()) or "every cell"
                return f"{where}: {found} instead of {' '.join(wanted)}"
    return None


def _reached(
    node: Node, names: list[str], box: Box, cell: dict[str, str]
) -> Iterator[tuple[tuple[int, ...], dict[str, str]]]:
    if not isinstance(node, Branch):
        yield node.winners, cell
        return
    name = names[node.axis]
    wanted = box.get(name)
    for values, child in node.groups:
        met = [value for value in values if wanted is None or value in wanted]
        if met:
            yield from _reached(child, names, box, {**cell, name: met[0]})


def lifecycle_lines(table: LifecycleTable) -> list[str]:
    """A lifecycle's moves and refusals, each state and operation on a line of its own."""
    lines = ["# State, what is asked or happens, under which guards; then where it leads, or the rule that refuses."]
    for edge in table.edges:
        asked = edge.operation or f"({edge.event})"
        lines.append(f"{edge.source} {asked} {_guards(edge.when)} -> {edge.to} {edge.does or '-'} {edge.id}")
    lines += [f"{each.source} {each.operation} {_guards(each.when)} refused {each.rule}" for each in table.refusals]
    return [lines[0], *sorted(lines[1:])]


def _guards(when: Box) -> str:
    return ",".join(f"{name}={'|'.join(values)}" for name, values in sorted(when.items())) or "*"


def write(tables: Tables) -> None:
    """Freeze what the tables decide now."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, family in tables.families.items():
        (FOLDER / f"{name}.txt").write_text("\n".join(lines_of(family)) + "\n", "utf-8")
    for name, table in tables.lifecycles.items():
        (FOLDER / f"lifecycle-{name}.txt").write_text("\n".join(lifecycle_lines(table)) + "\n", "utf-8")
