"""Plays every scenario on a real control plane, several times, and keeps what was seen."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.real import programs
from tests.real.cluster import Cluster
from tests.real.control_plane import ControlPlane

from .facets import Trace, merged, settled
from .queues import QUEUE_SCENARIOS
from .scenarios import SCENARIOS
from .stage import RealQueueStage, RealStage

_FOLDER = Path(__file__).resolve().parent
RECORDED = _FOLDER / "recorded.json"
QUEUES_RECORDED = _FOLDER / "queues-recorded.json"
"""Of a control plane that has Kueue."""
_TIMES = 3
_AT_ONCE = 4
_ALONE = {"node_lost"}
"""Its node would take the pods of others with it."""


def recorded(path: Path = RECORDED) -> dict[str, dict[str, list[Any]]]:
    """For each scenario, for each facet, what the real control plane showed."""
    scenarios: dict[str, dict[str, list[Any]]] = json.loads(path.read_text())["scenarios"]
    return scenarios


def play(cluster: Cluster, name: str) -> Trace:
    if name in QUEUE_SCENARIOS:
        with RealQueueStage(cluster) as queue:
            QUEUE_SCENARIOS[name](queue)
            return queue.trace_at_rest()
    with RealStage(cluster) as stage:
        SCENARIOS[name](stage)
        return settled(name, stage.trace_at_rest())


def write(traces: Mapping[str, list[Trace]], versions: Mapping[str, str], path: Path, known: Iterable[str]) -> None:
    kept = json.loads(path.read_text())["scenarios"] if path.exists() else {}
    kept |= {name: merged(several) for name, several in traces.items()}
    lines = [
        f"  {json.dumps(name)}: {{\n"
        + ",\n".join(f"   {json.dumps(key)}: {json.dumps(seen)}" for key, seen in sorted(facets.items()))
        + "\n  }"
        for name, facets in sorted(kept.items())
        if name in known
    ]
    head = json.dumps(dict(versions), sort_keys=True)
    path.write_text(f'{{\n "versions": {head},\n "scenarios": {{\n' + ",\n".join(lines) + "\n }\n}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="real.traces.record", description=__doc__)
    parser.add_argument("scenarios", nargs="*", help="all that there are of a kind if none is named")
    parser.add_argument("--kueue", action="store_true", help="those of a control plane that has Kueue")
    parser.add_argument("--times", type=int, default=_TIMES, help="how often each is played")
    parser.add_argument("--folder", type=Path, help="the folder of a running control plane; without it one is started")
    arguments = parser.parse_args()
    known = list(QUEUE_SCENARIOS if arguments.kueue else SCENARIOS)
    names, path = arguments.scenarios or known, QUEUES_RECORDED if arguments.kueue else RECORDED
    if arguments.folder:
        cluster = Cluster.at(arguments.folder)
        write(_record(cluster, names, arguments.times), cluster.versions, path, known)
    else:
        with ControlPlane(kueue=arguments.kueue) as plane:
            write(_record(plane.cluster, names, arguments.times), plane.cluster.versions, path, known)
    return 0


def _record(cluster: Cluster, names: list[str], times: int) -> dict[str, list[Trace]]:
    traces: dict[str, list[Trace]] = {}
    for at_once, chosen in ((_AT_ONCE, [name for name in names if name not in _ALONE]), (1, _ALONE & set(names))):
        with ThreadPoolExecutor(at_once) as pool:
            played = {name: [pool.submit(play, cluster, name) for _ in range(times)] for name in chosen}
            traces |= {name: [each.result() for each in several] for name, several in played.items()}
    varying = sorted(
        f"{name}: {key}: {seen}" for name, several in traces.items() for key, seen in merged(several).items()
        if len(seen) > 1
    )  # fmt: skip
    programs.say(f"{len(names)} scenarios recorded, {times} times each; not the same each time: {varying}")
    return traces


if __name__ == "__main__":
    sys.exit(main())
