"""Every rule, edge, state and request that plain mode can meet is met, and the exceptions say why."""

from __future__ import annotations

import pytest

from dispatch_kubeflow.machine.rules import rulebook

from . import floors, report

EDGES = {"hold_register.first-hold", "hold_register.hold-again", "hold_register.next-hold", "hold_register.release"}
REQUESTS = {
    f"{method} {plural}"
    for plural, methods in {
        "trainjobs": ("GET", "LIST", "POST", "PATCH", "DELETE"),
        "trainingruntimes": ("GET", "LIST", "POST", "PATCH", "DELETE"),
        "jobsets": ("GET", "LIST", "DELETE"),
        "jobs": ("LIST",),
        "pods": ("GET", "LIST"),
        "configmaps": ("GET",),
        "clustertrainingruntimes": ("GET",),
    }.items()
    for method in methods
}


@pytest.mark.timeout(300)
def test_everything_that_can_be_met_is_met_often_enough() -> None:
    visited = floors.visit_all()
    wanted = [each for each in floors.reachable() if each not in floors.EXCUSED]
    below = visited.below(floors.FLOOR, wanted)
    assert not below, f"{below}\n{report.visits(visited)}"
    assert {"gated", "held", "opened", "ended"} <= {each for each, count in visited.states.items() if count >= 2}
    assert {edge for edge, count in visited.edges.items() if count >= 2} >= EDGES
    assert {each for each, count in visited.requests.items() if count >= 2} >= REQUESTS


def test_what_is_excused_is_a_rule() -> None:
    known = {rule.id for family in rulebook().tables.families.values() for rule in family.rules}
    assert set(floors.EXCUSED) <= known
