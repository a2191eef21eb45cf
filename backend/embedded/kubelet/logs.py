"""Output is evidence too; lines are kept as a container runtime keeps them and served as a kubelet serves them.

A line is stored with its time and stream, long ones in parts of 16 KiB as CRI does; reading joins the parts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import bad_request
from dispatch_kubeflow.backend.embedded.pods import LogQuery
from dispatch_kubeflow.machine.context import Clock

Object = dict[str, Any]

PART = 16384


@dataclass(frozen=True, slots=True)
class Line:
    """One stored part of a line; `whole` says that the line ends with it."""

    moment: datetime
    stream: str
    text: bytes
    whole: bool


@dataclass
class Log:
    """What one run of a container wrote; `closed` once it can write no more."""

    changed: threading.Condition
    lines: list[Line] = field(default_factory=list)
    closed: bool = False

    def write(self, moment: datetime, stream: str, text: bytes, *, whole: bool = True) -> None:
        """Keep one line (without its newline)."""
        parts = [text[start : start + PART] for start in range(0, len(text), PART)] or [b""]
        with self.changed:
            for part in parts[:-1]:
                self.lines.append(Line(moment, stream, part, whole=False))
            self.lines.append(Line(moment, stream, parts[-1], whole=whole))
            self.changed.notify_all()

    def close(self) -> None:
        """Nothing more will come."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class LogBook:
    """The logs of every container of a cluster, the last two runs of each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[tuple[str, str], list[Log]] = {}
        self._changed = threading.Condition()
        self._closed = False

    def start(self, uid: str, container: str) -> Log:
        """A new run of a container; the one before the last is forgotten."""
        log = Log(self._changed)
        self._runs[uid, container] = [*self._runs.get((uid, container), [])[-1:], log]
        return log

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        for key in [key for key in self._runs if key[0] == uid]:
            for log in self._runs.pop(key):
                log.close()

    def close(self) -> None:
        """End every reader that follows."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def read(self, pod: Object, container: str, query: LogQuery) -> Iterator[bytes]:
        """The bytes asked for, piece by piece. ApiError 400 where there is nothing to read yet, or no earlier run."""
        name = pod["metadata"]["name"]
        runs = self._runs.get((pod["metadata"]["uid"], container), [])
        if query.previous:
            if len(runs) < 2:
                raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
            return self._limited(runs[0], query)
        if not runs:
            reason = _waiting(pod, container)
            raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
        return self._limited(runs[-1], query)

    def _limited(self, log: Log, query: LogQuery) -> Iterator[bytes]:
        left = query.limit_bytes
        for chunk in self._chunks(log, query):
            if left is None:
                yield chunk
                continue
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    def _chunks(self, log: Log, query: LogQuery) -> Iterator[bytes]:
        since = query.since_time
        if query.since_seconds is not None:
            since = self._clock.now() - timedelta(seconds=query.since_seconds)
        position = _tail(log.lines, query.tail_lines)
        fresh = True
        while True:
            with self._changed:
                while query.follow and position == len(log.lines) and not (log.closed or self._closed):
                    self._changed.wait(1.0)
                lines, ended = log.lines[position:], log.closed or self._closed or not query.follow
                position += len(lines)
            for line in lines:
                if since is not None and line.moment < since:
                    continue
                yield _written(line, query.timestamps and fresh)
                fresh = line.whole
            if ended and position == len(log.lines):
                return


def _written(line: Line, timed: bool) -> bytes:
    text = line.text + (b"\n" if line.whole else b"")
    if not timed:
        return text
    moment = line.moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{line.moment.microsecond:06d}000Z"
    return moment.encode() + b" " + text


def _tail(lines: list[Line], count: int | None) -> int:
    """Where the last `count` lines begin; parts of one line are one."""
    if count is None:
        return 0
    position = len(lines)
    while position and (count or not lines[position - 1].whole):
        if lines[position - 1].whole:
            if count == 0:
                break
            count -= 1
        position -= 1
    while position and not lines[position - 1].whole:
        position -= 1
    return position


def _waiting(pod: Object, container: str) -> str:
    for status in pod["status"].get("containerStatuses") or ():
        if status["name"] == container and "waiting" in status["state"]:
            reason: str = status["state"]["waiting"].get("reason", "ContainerCreating")
            return reason
    return "ContainerCreating"
