"""A supervisor that forgets what it started starts a twin. So `run` writes down each attempt before its Start is sent,
and what became of it before it acts on that: one JSON object a line, on the disk before the next step begins.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, Self

from dispatch_kubeflow.machine.rules import rulebook

from .exits import Exit, Refusal

State = Literal["planned", "unknown", "refused", "gated", "opened", "ended"]
"""The states of lifecycle `attempt`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the journal knows of one attempt: the last thing that was written, and what outlasts it."""

    number: int
    state: State
    ref: str | None = None
    sending_until: datetime | None = None  # when its last Start had given up, or at the latest would have
    cleared: bool = False  # ended, and all of it shown or vouched for to have stopped
    facts: dict[str, Any] = field(default_factory=dict)


@cache
def moves() -> frozenset[tuple[str | None, str]]:
    """How an attempt may go from one state to the next: as lifecycle `attempt` says, and from nothing to planned."""
    edges = rulebook().lifecycles["attempt"].edges
    return frozenset({(None, "planned"), *((edge.source, edge.to) for edge in edges)})


class Journal:
    """The attempts of one job, in a file that only one `run` has open at a time."""

    def __init__(self, path: Path, file: IO[bytes], job: dict[str, str]) -> None:
        self.path = path
        self._file = file
        self._job = job
        self._attempts: dict[int, Attempt] = {}

    @classmethod
    def open(cls, path: Path, *, job_id: str, backend: str, namespace: str) -> Self:
        """The journal at this path, made if it is not there; refused if another `run` has it or it is another job's."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a+b")
        except OSError as error:
            raise Refusal(f"the journal {path} cannot be opened: {error.strerror}", Exit.JOURNAL) from error
        journal = cls(path, file, {"job": job_id, "backend": backend, "namespace": namespace})
        try:
            journal._lock()
            journal._read()
        except BaseException:
            file.close()
            raise
        return journal

    def close(self) -> None:
        """Let another `run` have it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def last(self) -> Attempt | None:
        """The newest attempt; None before the first."""
        return self._attempts[max(self._attempts)] if self._attempts else None

    def __contains__(self, number: int) -> bool:
        return number in self._attempts

    def write(self, number: int, state: State, **facts: Any) -> Attempt:
        """Write down that the attempt is now in this state; on the disk when this returns."""
        entry = {"at": datetime.now(UTC).isoformat(), "attempt": number, "state": state}
        entry |= {key: value for key, value in facts.items() if value is not None}
        attempt = self._apply(entry)
        self._append(entry)
        return attempt

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refusal(
                f"another run has the journal {self.path} open", Exit.JOURNAL, "Wait for it to end, or stop it."
            ) from error

    def _read(self) -> None:
        self._file.seek(0)
        whole = self._file.read()
        lines = whole.split(b"\n")
        torn = lines.pop()
        if torn:  # a crash in mid-write: the step it would have announced had not begun
            self._file.truncate(len(whole) - len(torn))
        if not lines:
            self._append(self._job)
            self._sync_folder()
            return
        try:
            entries = [json.loads(line) for line in lines]
            if any(entries[0][key] != value for key, value in self._job.items()):
                raise Refusal(
                    f"the journal {self.path} is of {_whose(entries[0])}, not of {_whose(self._job)}",
                    Exit.JOURNAL,
                    "Give another file with --journal.",
                )
            for entry in entries[1:]:
                self._apply(entry)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise Refusal(
                f"the journal {self.path} cannot be read: {type(error).__name__}: {error}",
                Exit.JOURNAL,
                "Mend it, or move it away once `dispatch-kubeflow find` shows nothing of the job.",
            ) from error

    def _apply(self, entry: dict[str, Any]) -> Attempt:
        facts = {key: value for key, value in entry.items() if key not in {"at", "attempt", "state"}}
        number, state = entry["attempt"], entry["state"]
        before = self._attempts.get(number)
        if (before.state if before else None, state) not in moves():
            raise ValueError(f"attempt {number} cannot go from {before.state if before else 'nothing'} to {state}")
        until = facts.get("sending_until")
        self._attempts[number] = Attempt(
            number,
            state,
            ref=facts.get("ref") or (before.ref if before else None),
            sending_until=datetime.fromisoformat(until) if until else (before.sending_until if before else None),
            cleared="cleared_by" in facts,
            facts=facts,
        )
        return self._attempts[number]

    def _append(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _sync_folder(self) -> None:
        """A new file is on the disk only once its folder is."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _whose(job: dict[str, str]) -> str:
    return f"{job['namespace']}/{job['job']} on {job['backend']}"
