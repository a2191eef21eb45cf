"""Performs the recorded cases elsewhere and lists every answer that is not the real one's.

Everything that is kept of an answer is compared, messages and warnings too; what is not kept, and why, is in
`normal.py`. There is no list of disagreements that are put up with.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import programs
from .cluster import Cluster
from .record import RECORDED, perform
from .targets import AddressTarget, EmbeddedTarget, RealTarget, Target


@dataclass(frozen=True)
class Disagreement:
    """One value of one case in which two clusters differ."""

    case: str
    path: str
    real: Any
    other: Any

    def __str__(self) -> str:
        return f"{self.case}: {self.path}: real {json.dumps(self.real)}, other {json.dumps(self.other)}"


def differences(real: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every path at which two recorded values differ."""
    if isinstance(real, dict) and isinstance(other, dict):
        for key in sorted({*real, *other}):
            yield from differences(real.get(key), other.get(key), f"{path}.{key}" if path else key)
    elif isinstance(real, list) and isinstance(other, list) and len(real) == len(other):
        for index, (one, two) in enumerate(zip(real, other, strict=True)):
            yield from differences(one, two, f"{path}.{index}")
    elif real != other:
        yield path, real, other


def compare(recorded: dict[str, Any], performed: dict[str, Any]) -> list[Disagreement]:
    """The disagreements over the cases that both have; a case that one lacks is one as well."""
    found: list[Disagreement] = []
    for case in sorted({*recorded, *performed}):
        found += [Disagreement(case, *each) for each in differences(recorded.get(case), performed.get(case))]
    return found


def recorded_cases(names: set[str] | None = None, folder: Path = RECORDED) -> dict[str, Any]:
    """What the real control plane answered, case by case."""
    cases: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        if names is None or path.stem in names:
            cases |= json.loads(path.read_text())["cases"]
    return cases


def against(target: Target, pattern: str = "*") -> list[Disagreement]:
    """Performs the cases on a target and returns where it disagrees with the record."""
    results = perform(target, pattern)
    performed = {case: kept for cases in results.values() for case, kept in cases.items()}
    return compare(recorded_cases(set(results)), performed)


def _target(arguments: argparse.Namespace) -> Target:
    if arguments.embedded:
        return EmbeddedTarget(kueue=arguments.kueue)
    if arguments.folder:
        return RealTarget(Cluster.at(arguments.folder))
    users = dict(each.split("=", 1) for each in arguments.user)
    return AddressTarget(arguments.url, {"admin": arguments.token, **users}, arguments.authority)


def main() -> int:
    parser = argparse.ArgumentParser(prog="real.compare", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--embedded", action="store_true", help="the embedded cluster of this checkout")
    where.add_argument("--folder", type=Path, help="the folder of a running control plane")
    where.add_argument("--url", help="any server")
    parser.add_argument("--token", help="the administrator's, with --url")
    parser.add_argument("--user", action="append", default=[], metavar="NAME=TOKEN", help="with --url")
    parser.add_argument("--authority", type=Path, help="with --url: the PEM file that its certificate is checked by")
    parser.add_argument("--cases", default="*", help="which files of cases: a pattern without .yaml")
    parser.add_argument("--kueue", action="store_true", help="with --embedded: one that has Kueue")
    arguments = parser.parse_args()
    target = _target(arguments)
    try:
        found = against(target, arguments.cases)
    finally:
        target.close()
    for each in found:
        programs.say(str(each))
    programs.say(f"{len(found)} disagreements in {len({each.case for each in found})} cases")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
