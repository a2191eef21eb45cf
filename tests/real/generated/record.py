"""Performs the sequences once found on a real control plane and keeps its answers and events, with their versions."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.real import programs
from tests.real.cluster import Cluster
from tests.real.control_plane import ControlPlane

from .found import FOUND
from .sides import RealSide, Run, Side, fresh_name
from .steps import Step

RECORDED = Path(__file__).resolve().parent / "recorded.json"


def recorded() -> dict[str, Any]:
    """For each sequence what the real control plane answered, step by step, and the events that came of it."""
    sequences: dict[str, Any] = json.loads(RECORDED.read_text())["sequences"]
    return sequences


def performed(side: Side, namespace: str, number: int, steps: Sequence[Step]) -> Any:
    """The answers and events of one sequence, as JSON has them."""
    run = Run(side, namespace, f"s{number}")
    answers = [run.perform(step) for step in steps]
    return json.loads(json.dumps({"answers": answers, "events": run.events()}))


def record(cluster: Cluster) -> int:
    side = RealSide(cluster)
    namespace = fresh_name()
    side.begin(namespace)
    try:
        kept = {name: performed(side, namespace, number, steps) for number, (name, steps) in enumerate(FOUND.items())}
    finally:
        side.close()
    content = {"versions": dict(cluster.versions), "sequences": kept}
    RECORDED.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    programs.say(f"{len(kept)} sequences recorded")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.real.generated.record", description=__doc__)
    parser.add_argument("--folder", type=Path, help="the folder of a running control plane; without it one is started")
    arguments = parser.parse_args()
    if arguments.folder:
        return record(Cluster.at(arguments.folder))
    with ControlPlane() as plane:
        return record(plane.cluster)


if __name__ == "__main__":
    sys.exit(main())
