"""How late a request returns after its deadline or its cancellation, wherever it hangs.

    python -m tests.benchmarks.bench_deadline_overshoot [cases]

The bound is 50 ms for the latest of 2,000, on an idle core. Half are deadlines, half cancellations.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from dispatch_kubeflow.backend.requests import Door, Request
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS
from dispatch_kubeflow.machine.context import Context
from tests.requests.certificates import make
from tests.requests.slow import PLACES

BOUND = 0.05
REQUEST = Request("GET", TRAIN_JOBS, "team-a", "a-1")


def late_after_deadline(door: Door, after: float) -> float:
    """Seconds past the deadline."""
    ctx = Context.with_timeout(after)
    failure = door.send(REQUEST, ctx, operation="find").failure
    ended = time.monotonic()
    if failure is None or ctx.deadline is None:
        raise RuntimeError("it did not hang")
    return ended - ctx.deadline


def late_after_cancellation(door: Door, after: float) -> float:
    """Seconds past the cancellation."""
    ctx = Context.background()
    cancelled = 0.0

    def cancel() -> None:
        nonlocal cancelled
        time.sleep(after)
        cancelled = time.monotonic()
        ctx.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    failure = door.send(REQUEST, ctx, operation="find").failure
    ended = time.monotonic()
    thread.join()
    if failure is None:
        raise RuntimeError("it did not hang")
    return ended - cancelled


def main() -> int:
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    each = cases // len(PLACES) // 2 + 1
    worst: dict[str, float] = {}
    everything: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        certificates = make(Path(folder))
        for name, (place, _) in PLACES.items():
            late: list[float] = []
            with place(certificates) as door:
                for turn in range(each):
                    after = 0.02 + 0.03 * turn / each
                    late += [late_after_deadline(door, after), late_after_cancellation(door, after)]
            gc.collect()
            worst[name] = max(late)
            everything += late
    for name, seconds in sorted(worst.items(), key=lambda item: -item[1]):
        sys.stdout.write(f"{name:20} latest {seconds * 1000:6.1f} ms\n")
    latest, middle = max(everything) * 1000, statistics.median(everything) * 1000
    said = f"{len(everything)} cases: median {middle:.1f} ms, latest {latest:.1f} ms"
    sys.stdout.write(f"{said} (bound {BOUND * 1000:.0f})\n")
    return 0 if max(everything) < BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
