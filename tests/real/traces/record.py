"""Plays every scenario on a real control plane, several times, and keeps what was seen."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.real import programs
from tests.real.cluster import Cluster
from tests.real.control_plane import ControlPlane

from .facets import Trace, merged, settled
from .scenarios import SCENARIOS
from .stage import RealStage

RECORDED = Path(__file__).resolve().parent / "recorded.json"
_TIMES = 3
_AT_ONCE = 4
_ALONE = {"node_lost"}
"""Its node would take the pods of others with it."""


def recorded() -> dict[str, dict[str, list[Any]]]:
    """For each scenario, for each facet, what the real control plane showed."""
    scenarios: dict[str, dict[str, list[Any]]] = json.loads(RECORDED.read_text())["scenarios"]
    return scenarios


def play(cluster: Cluster, name: str) -> Trace:
    with RealStage(cluster) as stage:
        SCENARIOS[name](stage)
        return settled(name, stage.trace_at_rest())


def write(traces: Mapping[str, list[Trace]], versions: Mapping[str, str]) -> None:
    kept = json.loads(RECORDED.read_text())["scenarios"] if RECORDED.exists() else {}
    kept |= {name: merged(several) for name, several in traces.items()}
    lines = [
        f"  {json.dumps(name)}: {{\n"
        + ",\n".join(f"   {json.dumps(key)}: {json.dumps(seen)}" for key, seen in sorted(facets.items()))
        + "\n  }"
        for name, facets in sorted(kept.items())
        if name in SCENARIOS
    ]
    head = json.dumps(dict(versions), sort_keys=True)
    RECORDED.write_text(f'{{\n "versions": {head},\n "scenarios": {{\n' + ",\n".join(lines) + "\n }\n}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="real.traces.record", description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--times", type=int, default=_TIMES, help="how often each is played")
    parser.add_argument("--folder", type=Path, help="the folder of a running control plane; without it one is started")
    arguments = parser.parse_args()
    if arguments.folder:
        _record(Cluster.at(arguments.folder), arguments.scenarios, arguments.times)
    else:
        with ControlPlane() as plane:
            _record(plane.cluster, arguments.scenarios, arguments.times)
    return 0


def _record(cluster: Cluster, names: list[str], times: int) -> None:
    traces: dict[str, list[Trace]] = {}
    for at_once, chosen in ((_AT_ONCE, [name for name in names if name not in _ALONE]), (1, _ALONE & set(names))):
        with ThreadPoolExecutor(at_once) as pool:
            played = {name: [pool.submit(play, cluster, name) for _ in range(times)] for name in chosen}
            traces |= {name: [each.result() for each in several] for name, several in played.items()}
    write(traces, cluster.versions)
    varying = sorted(
        f"{name}: {key}: {seen}" for name, several in traces.items() for key, seen in merged(several).items()
        if len(seen) > 1
    )  # fmt: skip
    programs.say(f"{len(names)} scenarios recorded, {times} times each; not the same each time: {varying}")


if __name__ == "__main__":
    sys.exit(main())
