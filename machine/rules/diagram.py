"""A table may speak of millions of cells; none may be left out of the proof, and a look-up may not take longer for it.

So a family becomes a decision diagram: inputs are asked one after the other, cells that no rule tells apart share a
node, and an input that no longer matters is not asked. The proof walks the nodes; the look-up follows one path.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .model import Box

Axes = Mapping[str, tuple[str, ...]]
"""Each input's values, in the order in which they are asked."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The rules that win here, by number: one in a good table, none where no rule speaks, more where rules clash."""

    winners: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """One input asked; the groups of values, and what each leads to."""

    axis: int
    groups: tuple[tuple[tuple[str, ...], Node], ...]


Node = Leaf | Branch


class Diagram:
    """The decision diagram of some boxes, each of which may yield to earlier ones.

    The winner of a cell is the one matching box that yields to no other matching box.
    """

    def __init__(self, axes: Axes, boxes: Sequence[Box], yields: Sequence[frozenset[int]] | None = None) -> None:
        self.axes = axes
        self._names = list(axes)
        self._asks = [[frozenset(box[name]) if name in box else None for name in self._names] for box in boxes]
        self._last = [max((i for i, each in enumerate(asks) if each is not None), default=-1) for asks in self._asks]
        self._yields = yields if yields is not None else [frozenset[int]()] * len(boxes)
        self._made: dict[tuple[int, tuple[int, ...]], Node] = {}
        self._shared: dict[object, Node] = {}
        self.root = self._node(0, tuple(range(len(boxes))))

    def _node(self, level: int, candidates: tuple[int, ...]) -> Node:
        candidates = self._without_beaten(level, candidates)
        while level < len(self._names) and all(self._asks[each][level] is None for each in candidates):
            level += 1
        key = level, candidates
        if key not in self._made:
            self._made[key] = self._leaf(candidates) if level == len(self._names) else self._branch(level, candidates)
        return self._made[key]

    def _without_beaten(self, level: int, candidates: tuple[int, ...]) -> tuple[int, ...]:
        """Leave out who cannot win any more, for without that the candidates' combinations grow beyond measure.

        A box that has been matched whole beats those that yield to it. One that others yield to stays in the running
        unless they yield to the winner as well, or those others would seem to win.
        """
        certain = [each for each in candidates if self._last[each] < level]
        left = set(candidates)
        for winner in certain:
            for each in candidates:
                if winner in self._yields[each] and all(
                    winner in self._yields[other] for other in left if each in self._yields[other]
                ):
                    left.discard(each)
        return tuple(each for each in candidates if each in left)

    def _leaf(self, candidates: tuple[int, ...]) -> Node:
        winners = tuple(each for each in candidates if self._yields[each].isdisjoint(candidates))
        return self._shared.setdefault(winners, Leaf(winners))

    def _branch(self, level: int, candidates: tuple[int, ...]) -> Node:
        groups: dict[Node, list[str]] = {}
        for value in self.axes[self._names[level]]:
            left = tuple(each for each in candidates if (asks := self._asks[each][level]) is None or value in asks)
            groups.setdefault(self._node(level + 1, left), []).append(value)
        if len(groups) == 1:
            return next(iter(groups))
        key = level, tuple((tuple(values), id(node)) for node, values in groups.items())
        return self._shared.setdefault(key, Branch(level, tuple((tuple(v), node) for node, v in groups.items())))

    def look_up(self, facts: Mapping[str, str]) -> tuple[int, ...]:
        """The winners of one cell."""
        node = self.root
        while isinstance(node, Branch):
            value = facts[self._names[node.axis]]
            node = next(child for values, child in node.groups if value in values)
        return node.winners

    def cells(self) -> Counter[tuple[int, ...]]:
        """How many cells each set of winners has."""
        sizes = [len(values) for values in self.axes.values()]
        counts: dict[Node, Counter[tuple[int, ...]]] = {}

        def level(node: Node) -> int:
            return node.axis if isinstance(node, Branch) else len(sizes)

        def count(node: Node) -> Counter[tuple[int, ...]]:
            if isinstance(node, Leaf):
                return Counter({node.winners: 1})
            if node not in counts:
                total = counts[node] = Counter()
                for values, child in node.groups:
                    skipped = math.prod(sizes[node.axis + 1 : level(child)])
                    for winners, number in count(child).items():
                        total[winners] += number * skipped * len(values)
            return counts[node]

        before = math.prod(sizes[: level(self.root)])
        return Counter({winners: number * before for winners, number in count(self.root).items()})

    def boxes(self, winners: tuple[int, ...]) -> Iterator[Box]:
        """The cells of these winners, as boxes that do not overlap."""
        leads: dict[Node, bool] = {}

        def leads_there(node: Node) -> bool:
            if isinstance(node, Leaf):
                return node.winners == winners
            if node not in leads:
                leads[node] = any(leads_there(child) for _, child in node.groups)
            return leads[node]

        def walk(node: Node, box: dict[str, tuple[str, ...]]) -> Iterator[Box]:
            if isinstance(node, Leaf):
                yield box
                return
            for values, child in node.groups:
                if leads_there(child):
                    yield from walk(child, {**box, self._names[node.axis]: values})

        if leads_there(self.root):
            yield from walk(self.root, {})


def merged(boxes: Iterable[Box], axes: Axes) -> list[Box]:
    """The same cells in fewer boxes: those that differ in one input alone become one."""
    whole = [{name: box.get(name, values) for name, values in axes.items()} for box in boxes]
    for name in axes:
        groups: dict[tuple[tuple[str, ...], ...], list[str]] = {}
        for box in whole:
            others = tuple(values for other, values in box.items() if other != name)
            groups.setdefault(others, []).extend(box[name])
        whole = []
        for others, values in groups.items():
            rest = iter(others)
            ordered = tuple(value for value in axes[name] if value in values)
            whole.append({other: ordered if other == name else next(rest) for other in axes})
    return [*whole]


def describe(box: Box, axes: Axes) -> str:
    """A box in words: `verb=read result=401|403 reason=not other`; inputs that may be anything are left out."""
    said = []
    for name, values in axes.items():
        allowed = box.get(name, values)
        others = [value for value in values if value not in allowed]
        if not others:
            continue
        short = len(others) < len(allowed) and len(allowed) > 2
        said.append(f"{name}=not {'|'.join(others)}" if short else f"{name}={'|'.join(allowed)}")
    return " ".join(said) or "every cell"
