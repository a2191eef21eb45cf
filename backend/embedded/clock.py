"""A schedule of a job's life must be replayed in microseconds, so the embedded cluster can run on time that only a
test moves.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Time that stands still until `move_to` or `advance`; fits the `Clock` protocol of
    `dispatch_kubeflow.machine.context`.

    `monotonic` counts seconds from 0; `now` is `START` plus that. `wait` blocks its thread until the event is set or
    another thread has moved the time far enough.
    """

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._seconds = 0.0
        self._moved = threading.Condition()

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._seconds

    def now(self) -> datetime:
        """The present moment, aware, UTC."""
        return self._start + timedelta(seconds=self._seconds)

    def move_to(self, seconds: float) -> None:
        """Move to `seconds` since the clock was made; never backwards."""
        with self._moved:
            self._seconds = max(self._seconds, seconds)
            self._moved.notify_all()

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`."""
        self.move_to(self._seconds + seconds)

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait until `event` is set (True) or `timeout` seconds of this clock passed (False)."""
        until = None if timeout is None else self._seconds + timeout
        while not event.is_set():
            if until is not None and self._seconds >= until:
                return False
            with self._moved:
                # An event cannot notify this condition, so it is looked at again every few real milliseconds.
                self._moved.wait(0.005)
        return True
