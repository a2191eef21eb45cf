"""An Indexed Job remembers in one string (`0,2-4`) which indexes are done; what it forgets is trained twice."""

from __future__ import annotations

from collections.abc import Iterable


def parse(text: str) -> set[int]:
    """The indexes a `completedIndexes` string names."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def write(indexes: Iterable[int]) -> str:
    """The string for these indexes; three or more in a row become a range."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(_run(first, last) for first, last in runs)


def _run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
