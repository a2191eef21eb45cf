"""What this process has open: descriptors and child processes."""

from __future__ import annotations

import os
from pathlib import Path


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def children() -> set[int]:
    """Every process that descends from this one, zombies too."""
    parents: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                stat = (each / "stat").read_text()
            except OSError:
                continue  # it has just ended
            parents[int(each.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {os.getpid()}
        found |= more
