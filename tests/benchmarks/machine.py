"""How long deciding, loading, proving and importing take: `python tests/benchmarks/machine.py`.

A script and no test, for the numbers depend on the machine: the bounds beside them are what a quiet one keeps.
"""

import pathlib
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable

from dispatch_kubeflow.machine.rules import check, rulebook
from dispatch_kubeflow.machine.rules.compile import COMPILED, load_rulebook
from dispatch_kubeflow.tables import directory

FACTS = {
    "channel": "api",
    "verb": "write",
    "result": "403",
    "reason": "other",
    "admission": "webhook",
    "absence": "other",
}
IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def median(times: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(times))


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def importing(module: str) -> float:
    code = IMPORT.format(module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def deciding() -> float:
    book = rulebook()
    timer = timeit.Timer(lambda: book.decide("request", operation="start", mode="plain", **FACTS))
    return timer.timeit(50_000) / 50_000


def main() -> None:
    tables = directory()
    answer = rulebook().lifecycle("hold_register").answer
    asking = timeit.Timer(lambda: answer("held", "hold", instance="newer")).timeit(5_000) / 5_000
    rows = [
        ("one decision (request)", median(5, deciding), 2e-6),
        ("one answer of a lifecycle", asking, 1e-3),
        ("loading, compiled", median(9, lambda: seconds(lambda: load_rulebook(tables, COMPILED))), 0.15),
        ("loading, YAML, proved", median(3, lambda: seconds(lambda: load_rulebook(tables, pathlib.Path("none")))), 5.0),
        ("proving", median(3, lambda: seconds(lambda: check(tables))), 5.0),
        ("importing machine", median(9, lambda: importing("dispatch_kubeflow.machine")), 0.05),
        ("importing machine.values", median(9, lambda: importing("dispatch_kubeflow.machine.values")), 0.1),
    ]
    for name, measured, bound in rows:
        late = "" if measured <= bound else "   LATE"
        print(f"{name:28} {measured * 1e6:12,.1f} µs   bound {bound * 1e6:12,.0f} µs{late}")  # noqa: T201 - a script


if __name__ == "__main__":
    main()
