"""The command line of the properties: a long fuzz, a replay, the matrix.

python -m properties fuzz --seconds 60
python -m properties fuzz --sockets --seconds 20
python -m properties replay --seed 7 '[{"do": ...}]'
python -m properties pairs --part 3/200 --seconds 600
python -m properties report --schedules 2000
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sys
import time
from contextlib import ExitStack

from dispatch_kubeflow.machine.rules import rulebook

from . import exhaustive, report, runner, truth, vectors
from .expect import forget_created
from .sockets import Sockets


def main() -> int:
    """Run one command; 1 where something was violated."""
    parser = argparse.ArgumentParser(prog="python -m properties")
    commands = parser.add_subparsers(dest="command", required=True)
    fuzz = commands.add_parser("fuzz", help="play schedules for so many seconds")
    fuzz.add_argument("--seconds", type=float, default=60.0)
    fuzz.add_argument("--seed", type=int, default=None, help="the first seed; the time's by default")
    fuzz.add_argument("--sockets", action="store_true", help="over TLS on the loopback, by urllib3's pool")
    replay = commands.add_parser("replay", help="play one schedule again, and tell it")
    replay.add_argument("--seed", type=int, default=0)
    replay.add_argument("steps", nargs="?", help="the steps as JSON; drawn from the seed where none are given")
    told = commands.add_parser("report", help="play schedules and print what was visited, and what was true")
    told.add_argument("--schedules", type=int, default=2000)
    told.add_argument("--singles", action="store_true", help="every single fault as well, as the published matrix has")
    pairs = commands.add_parser("pairs", help="every pair of faults at two requests of every operation")
    pairs.add_argument("--seconds", type=float, default=float("inf"))
    pairs.add_argument("--part", default="1/1", help="3/20 is the third of twenty parts, each with some of every call")
    pairs.add_argument("--after", type=int, default=0, help="go on after so many first faults of the part")
    commands.add_parser("freeze", help="write down what the tables decide now, for a reviewer")
    given = parser.parse_args()
    chosen = {"fuzz": _fuzz, "replay": _replay, "report": _report, "pairs": _pairs, "freeze": _freeze}
    return chosen[given.command](given)


def _fuzz(given: argparse.Namespace) -> int:
    first = int(time.time()) if given.seed is None else given.seed
    end = time.monotonic() + given.seconds
    with ExitStack() as stack:
        on = stack.enter_context(Sockets()) if given.sockets else None
        done = runner.run(
            itertools.count(first), until=lambda run: time.monotonic() >= end or len(run.failures) >= 5, on=on
        )
    for failure in done.failures:
        _say(str(failure))
    _say(f"seeds {first} to {first + done.schedules - 1}")
    _say(done.line)
    return 1 if done.failures else 0


def _replay(given: argparse.Namespace) -> int:
    if given.steps is None:
        story, error = runner.one(given.seed)
    else:
        story, error = runner.play(given.seed, json.loads(given.steps))
    _say("\n".join(story.world.story))
    if error is not None:
        _say(f"{type(error).__name__}: {error}")
    return 1 if error is not None else 0


def _report(given: argparse.Namespace) -> int:
    done = runner.run(iter(range(given.schedules)), until=lambda _: False)
    cases = 0
    for scene in exhaustive.SCENES if given.singles else ():
        for faults in exhaustive.singles(scene):
            cases += 1
            exhaustive.check(scene, faults, done.matrix)
        forget_created()
    _say(report.matrix(done.matrix))
    _say(f"{cases:,} single faults")
    _say(report.visits(done.floors))
    _say(done.line)
    return 1 if done.failures else 0


def _pairs(given: argparse.Namespace) -> int:
    """Each first fault with all its seconds; a part that ran out of time says where it goes on."""
    part, parts = map(int, given.part.split("/"))
    mine = exhaustive.groups()[part - 1 :: parts]
    begun, cases, wrong, matrix, done = time.monotonic(), 0, 0, truth.Matrix(), given.after
    with runner.quiet_collector():
        while done < len(mine) and time.monotonic() - begun <= given.seconds:
            for faults in exhaustive.pairs(mine[done]):
                cases += 1
                try:
                    exhaustive.check(mine[done][0], faults, matrix)
                except AssertionError as error:
                    wrong += 1
                    _say(str(error))
            done += 1
            forget_created()
            gc.collect()
    rest = "" if done == len(mine) else f"; it goes on with --part {given.part} --after {done}"
    rate = cases / max(time.monotonic() - begun, 0.001)
    _say(f"part {given.part}: {done:,} of {len(mine):,} first faults{rest}")
    _say(f"{cases:,} pairs of faults, {wrong} violations, {rate:.0f} pairs/s")
    return 1 if wrong else 0


def _freeze(_: argparse.Namespace) -> int:
    vectors.write(rulebook().tables)
    _say(f"written to {vectors.FOLDER}; read the difference before it is committed")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
