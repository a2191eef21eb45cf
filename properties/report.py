"""What a run met and what was true, as tables for a reader."""

from __future__ import annotations

from dispatch_kubeflow.machine.rules import rulebook

from .floors import Floors, reachable
from .truth import Matrix

COMMITTED = ("not sent", "not committed", "committed")


def matrix(found: Matrix) -> str:
    """Row by truth: how often a call that ended so had its own write committed, and pods running."""
    lines = [
        "| operation | ended by | sentinel | nothing sent | not committed | committed | of these running |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    tables = rulebook().tables
    keys = sorted({(operation, row) for operation, row, _, _ in found.counts})
    for operation, row in keys:
        sentinel = "" if row in ("success", "crashed") else tables.rule(row).sentinel
        counts = [
            sum(found.counts[operation, row, each, running] for running in ("running", "not running"))
            for each in COMMITTED
        ]
        running = sum(found.counts[operation, row, each, "running"] for each in COMMITTED)
        lines.append(f"| {operation} | `{row}` | {sentinel} | {counts[0]} | {counts[1]} | {counts[2]} | {running} |")
    return "\n".join(lines)


def visits(floors: Floors) -> str:
    """How often each rule, edge, state and request was met."""
    lines = ["| rule | visits |", "| --- | ---: |"]
    lines += [f"| `{each}` | {floors.rules[each]} |" for each in reachable()]
    lines += ["", "| edge | visits |", "| --- | ---: |"]
    lines += [f"| `{edge}` | {count} |" for edge, count in sorted(floors.edges.items())]
    lines += ["", "| state | visits |", "| --- | ---: |"]
    lines += [f"| {state} | {count} |" for state, count in sorted(floors.states.items())]
    lines += ["", "| request | sent |", "| --- | ---: |"]
    lines += [f"| {request} | {count} |" for request, count in sorted(floors.requests.items())]
    return "\n".join(lines)
