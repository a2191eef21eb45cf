"""The diagram against the plain reading of the rule: look at every cell, one by one."""

import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch_kubeflow.machine.rules.diagram import Diagram, describe, merged

AXES = {"a": ("a1", "a2", "a3"), "b": ("b1", "b2"), "c": ("c1", "c2", "c3"), "d": ("d1", "d2")}


@st.composite
def tables(draw):
    boxes, yields = [], []
    for i in range(draw(st.integers(0, 7))):
        box = {}
        for name in draw(st.sets(st.sampled_from(sorted(AXES)))):
            box[name] = tuple(draw(st.sets(st.sampled_from(AXES[name]), min_size=1)))
        boxes.append(box)
        yields.append(frozenset(draw(st.sets(st.integers(0, i - 1)))) if i else frozenset())
    return boxes, yields


def cells():
    return [dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())]


def winners(cell, boxes, yields):
    matching = {i for i, box in enumerate(boxes) if all(cell[name] in values for name, values in box.items())}
    return tuple(i for i in sorted(matching) if not yields[i] & matching)


@settings(max_examples=200, deadline=None)
@given(tables())
def test_each_cell_has_the_winners_that_looking_at_it_gives(table):
    diagram = Diagram(AXES, *table)
    for cell in cells():
        assert diagram.look_up(cell) == winners(cell, *table)


@settings(max_examples=200, deadline=None)
@given(tables())
def test_the_counts_are_those_of_the_cells(table):
    assert Diagram(AXES, *table).cells() == Counter(winners(cell, *table) for cell in cells())


@settings(max_examples=200, deadline=None)
@given(tables())
def test_the_boxes_of_winners_hold_exactly_their_cells_merged_or_not(table):
    diagram = Diagram(AXES, *table)
    for won in diagram.cells():
        expected = [cell for cell in cells() if winners(cell, *table) == won]
        for boxes in (list(diagram.boxes(won)), merged(diagram.boxes(won), AXES)):
            held = [
                cell for box in boxes for cell in cells() if all(cell[name] in values for name, values in box.items())
            ]
            assert sorted(map(str, held)) == sorted(map(str, expected))


def test_winners_that_win_nothing_have_no_boxes():
    assert list(Diagram(AXES, [{}]).boxes((3,))) == []


def test_a_table_in_order_of_precedence_stays_small():
    # Each rule yields to all before it, as a list of refusals does: without care this has 2**16 nodes.
    axes = {f"i{k}": ("calm", "bad") for k in range(16)}
    boxes = [{f"i{k}": ("bad",)} for k in range(16)] + [{}]
    yields = [frozenset(range(k)) for k in range(17)]
    diagram = Diagram(axes, boxes, yields)
    assert sum(diagram.cells().values()) == 2**16
    assert len(diagram._made) < 100


def test_a_box_is_described_by_what_it_excludes_where_that_is_shorter():
    axes = {"a": ("a1", "a2", "a3", "a4"), "b": ("b1", "b2")}
    assert describe({"a": ("a1", "a2", "a4"), "b": ("b1",)}, axes) == "a=not a3 b=b1"
    assert describe({"a": ("a1", "a2")}, axes) == "a=a1|a2"
    assert describe({"a": axes["a"]}, axes) == "every cell"
