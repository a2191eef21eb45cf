"""`run` supervises (docs/supervising.md): whatever fails, and whenever it is killed, it never starts a twin.

It writes down before it acts, looks before it starts, believes no refusal that its own first try may have caused, and
starts the next attempt only when everything of the last one has provably stopped, or an operator gave their word.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from dispatch_kubeflow.machine import Context, DispatchError, ErrOutcomeUnknown, ErrUnreachable
from dispatch_kubeflow.machine.record import Recorded, record_start
from dispatch_kubeflow.machine.rules import rulebook
from dispatch_kubeflow.machine.values import JobSpec, ObjectRef

from .exits import Exit, Refusal
from .journal import Attempt, Journal, State
from .output import OutputFollower, Outputs
from .seen import Seen, of_attempt
from .terminal import Terminal

if TYPE_CHECKING:
    from dispatch_kubeflow.backend.objects.found import Cessation, Found

RETRIES = 2  # Starts of an attempt after its first, while Find shows nothing of it
PAUSE = 1.0  # seconds between two looks
LOOKS_FOR_A_CAUSE = 3
LOOKS_FOR_THE_END = 15  # at what has been stopped, until it is shown to have ceased


class Supervised(Outputs, Protocol):
    """The part of a Backend that a supervisor calls."""

    def find(self, job_id: str, *, ctx: Context | None = ...) -> Found:
        """What there is of the job."""
        ...

    def watch(self, job_id: str, *, ctx: Context | None = ...) -> Iterator[Found]:
        """The same, as it changes."""
        ...

    def start(self, job_id: str, attempt: int, spec: JobSpec, *, ctx: Context | None = ...) -> ObjectRef:
        """Create it gated."""
        ...

    def open(self, ref: ObjectRef | str, *, ctx: Context | None = ...) -> None:
        """Lift its gate."""
        ...

    def stop(self, ref: ObjectRef | str, *, ctx: Context | None = ...) -> None:
        """Delete one object."""
        ...

    def stop_job(self, job_id: str, *, ctx: Context | None = ...) -> None:
        """Delete all of the job, and see it gone."""
        ...

    def ceased(self, ref: ObjectRef | str, *, ctx: Context | None = ...) -> Cessation:
        """Whether all of it has stopped."""
        ...


@dataclass(frozen=True)
class Supervisor:
    """Takes one job from wherever it stands to its end."""

    backend: Supervised
    job_id: str
    spec: JobSpec
    journal: Journal
    terminal: Terminal
    ctx: Context
    call_bound: float  # seconds that an unanswered create may still be in flight
    call_timeout: float  # seconds for one call

    def run(self, *, again: bool = False, word: str | None = None, stop: bool = False) -> int:
        """Start the job, or go on with it; returns its exit status. `again`: start anew what has ended; `word`: an
        operator's, that it has ceased where that cannot be shown; `stop`: stop it once it has ended, under its watch.
        """
        found = self.backend.find(self.job_id, ctx=self._call())
        self._refuse_strangers(found)
        attempt = self.journal.last
        if attempt is not None and attempt.state in ("planned", "unknown"):
            attempt = self._settle(self._unknown(attempt))
        if attempt is None or attempt.state == "refused" or (attempt.state == "ended" and again):
            attempt = self._next(attempt, word)
        if attempt.state == "refused":
            raise Refusal(
                f"{self.job_id}-{attempt.number} never came to be, and is refused",
                Exit.NEVER_CAME,
                "Run again, which starts the next attempt.",
            )
        if attempt.state == "ended":
            self._tell_end(attempt)
            return int(attempt.facts["exit"])
        return self._follow(attempt, stop=stop)

    def _refuse_strangers(self, found: Found) -> None:
        strangers = [
            str(each.ref) for each in found.objects if each.attempt is None or each.attempt not in self.journal
        ]
        if strangers:
            raise Refusal(
                f"{self.job_id} has objects that {self.journal.path} does not know: {', '.join(strangers)}",
                Exit.JOURNAL,
                "Give the journal it was started with, or stop the job with `dispatch-kubeflow stop-job`.",
            )

    # Starting

    def _next(self, last: Attempt | None, word: str | None) -> Attempt:
        """Start the attempt after this one, once nothing of any before it can still run."""
        if last is not None:
            self._clear(last, word)
        number = 1 if last is None else last.number + 1
        attempt = self._start(number)
        return self._settle(attempt) if attempt.state == "unknown" else attempt

    def _start(self, number: int) -> Attempt:
        """One Start, written down before it is sent and after it is answered; a refusal to be believed is raised."""
        doubtful = number in self.journal  # it was tried before, so a refusal may be due to that
        until = self._now() + timedelta(seconds=self.call_timeout)
        self.journal.write(number, "unknown" if doubtful else "planned", sending_until=until.isoformat())
        try:
            ref = self.backend.start(self.job_id, number, self.spec, ctx=self._call())
        except DispatchError as error:
            return self._started_with_error(number, error, doubtful)
        self.terminal.say(f"{ref.name} created, gated; recorded: {ref}", "green")
        return self.journal.write(number, "gated", ref=str(ref), by="start")

    def _started_with_error(self, number: int, error: DispatchError, doubtful: bool) -> Attempt:
        if doubtful or record_start(error) is not Recorded.REFUSED or self._shown_by_find(number, error):
            self.terminal.say(f"{error} ({error.row}). Whether the attempt exists is not known yet.", "yellow")
            return self._write_unknown(number, self._now(), row=error.row, message=str(error))
        self.journal.write(number, "refused", row=error.row, message=str(error))
        raise error

    def _shown_by_find(self, number: int, error: DispatchError) -> bool:
        """Whether a refusal is only that of a name which exists, and Find shows something under that name."""
        if not refused_by_name(error):
            return False
        try:
            found = self.backend.find(self.job_id, ctx=self._call())
        except DispatchError as failure:
            self.terminal.say(f"{failure} ({failure.row})", "yellow")
            return True  # not refuted: the attempt stays unknown
        return of_attempt(found, number).anything_may_run or number in found.in_flight

    # An attempt of unknown outcome

    def _unknown(self, attempt: Attempt) -> Attempt:
        """What a crash left as planned is unknown from now on, whatever a later Start says."""
        if attempt.state == "unknown":
            return attempt
        return self._write_unknown(
            attempt.number, attempt.sending_until or self._now(), message="the run ended before its Start did"
        )

    def _write_unknown(self, number: int, until: datetime, **facts: str) -> Attempt:
        return self.journal.write(number, "unknown", sending_until=until.isoformat(), **facts)

    def _settle(self, attempt: Attempt) -> Attempt:
        """Find until it shows the attempt, or has not shown it for so long that it never will."""
        number, retries = attempt.number, 0
        while True:
            found = self._find_patiently()
            seen = of_attempt(found, number)
            if seen.trainjob is not None:
                self.terminal.say(f"{seen.trainjob.ref.name} was found: it had been created; recorded", "green")
                state: State = "opened" if seen.gate_lifted else "gated"
                return self.journal.write(number, state, ref=str(seen.trainjob.ref), by="find")
            if seen.anything_may_run:
                left = [str(each.ref) for each in seen.objects]
                return self.journal.write(
                    number, "ended", exit=int(Exit.ENDED_WITHOUT_STATUS), cause="unknown", left=left
                )
            if retries < RETRIES and number not in found.in_flight:
                retries += 1
                self.terminal.say(f"{self.job_id}-{number} is not there; Start again, under the same name")
                attempt = self._start(number)
                if attempt.state != "unknown":
                    return attempt
            elif self._never_came(attempt):
                return self._give_up(number, seen)
            self._pause()

    def _never_came(self, attempt: Attempt) -> bool:
        until = attempt.sending_until or self._now()
        return (self._now() - until).total_seconds() >= self.call_bound

    def _give_up(self, number: int, seen: Seen) -> Attempt:
        """Nothing came of it: refused. A runtime copy may be left, and goes."""
        for copy in seen.objects:
            self.backend.stop(copy.ref, ctx=self._call())
        return self.journal.write(number, "refused", by="find")

    def _find_patiently(self) -> Found:
        while True:
            try:
                return self.backend.find(self.job_id, ctx=self._call())
            except ErrUnreachable as error:
                self.terminal.say(f"{error} ({error.row})", "yellow")
                self._pause()

    # Between two attempts

    def _clear(self, last: Attempt, word: str | None) -> None:
        """Stop what is left of earlier attempts, and see that the last one has ceased if it ever was."""
        asked = last.state == "ended" and not last.cleared
        ref = last.ref if asked else None
        cessation: Cessation | None = None
        if self.backend.find(self.job_id, ctx=self._call()).objects:
            self.terminal.say(f"stopping what is left of {self.job_id}-{last.number}")
            with self._watched():
                self._stop_all()
                cessation = None if ref is None else self._cessation(ref, LOOKS_FOR_THE_END)
        else:
            self._stop_all()
            cessation = None if ref is None else self._cessation(ref, 1)
        if not asked:
            return
        if cessation is not None and cessation.ceased:
            self.journal.write(last.number, "ended", cleared_by="evidence", **self._end_of(last))
            return
        if word is None:
            raise Refusal(
                "\n".join(
                    (
                        f"{self.job_id}-{last.number} is not shown to have ceased: something of it may still run",
                        *(() if cessation is None else not_shown(cessation)),
                    )
                ),
                Exit.NOT_CEASED,
                (f"`dispatch-kubeflow ceased '{last.ref}'` shows the evidence. " if last.ref is not None else "")
                + "Make sure yourself that nothing of it runs, then run again with --again --operators-word and how you"
                " know.",
            )
        self.journal.write(last.number, "ended", cleared_by="operator", word=word, **self._end_of(last))

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Within it the job is watched: only so can a failed one be shown to have made no pod until it was gone."""
        views = self.ctx.child()
        seen = self.backend.watch(self.job_id, ctx=views)
        next(seen, None)  # the streams have begun; the notes that go on read what is there, before it is deleted
        self._pause()
        watcher = threading.Thread(target=drain, args=(seen, views), name=f"watch of {self.job_id}", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            views.cancel()
            watcher.join()

    def _cessation(self, ref: ObjectRef | str, looks: int) -> Cessation:
        """Whether it has ceased, once that is shown or has been looked at so often."""
        cessation = self.backend.ceased(ref, ctx=self._call())
        for _ in range(looks - 1):
            if cessation.ceased:
                break
            self._pause()
            cessation = self.backend.ceased(ref, ctx=self._call())
        return cessation

    def _stop_all(self) -> None:
        self.backend.stop_job(self.job_id, ctx=self.ctx.child(timeout=max(self.call_timeout, 90)))

    def _end_of(self, attempt: Attempt) -> dict[str, Any]:
        return {key: attempt.facts[key] for key in ("exit", "cause")}

    # Following

    def _follow(self, attempt: Attempt, *, stop: bool) -> int:
        """Open it if it is not, and stay with it to its end."""
        views = self.ctx.child()
        output = OutputFollower(self.backend, self.job_id, self.ctx, self.terminal.line, self.terminal.say)
        with self.terminal.progress(), output:
            try:
                for found in self.backend.watch(self.job_id, ctx=views):
                    seen = of_attempt(found, attempt.number)
                    self.terminal.tell(seen.summary)
                    output.look()
                    if seen.trainjob is None:
                        return self._gone(attempt)
                    if not seen.gate_lifted and not seen.ended:
                        self._open(seen.trainjob.ref)
                    if attempt.state == "gated" and not (seen.ended and not seen.gate_lifted):
                        attempt = self.journal.write(attempt.number, "opened")
                    if seen.ended:
                        output.finish(self.call_timeout)
                        ended = self._ended(attempt.number, self._with_its_cause(attempt.number, seen))
                        if stop:
                            self._stop_ended(seen.trainjob.ref, ended)
                        return int(ended.facts["exit"])
            finally:
                views.cancel()
        raise AssertionError("a watch ends only by an error")

    def _open(self, ref: ObjectRef) -> None:
        """Open until it is answered: on a gate that is lifted it is a success, so it may be repeated."""
        while True:
            try:
                self.backend.open(ref, ctx=self._call())
            except (ErrUnreachable, ErrOutcomeUnknown) as error:
                self.terminal.say(f"{error} ({error.row})", "yellow")
                self._pause()
            else:
                self.terminal.say(f"{ref.name} opened", "green")
                return

    def _with_its_cause(self, number: int, seen: Seen) -> Seen:
        """The end with a cause that is known, where there is one: what shows it may come a moment after the end."""
        for _ in range(LOOKS_FOR_A_CAUSE):
            if seen.cause_is_known:
                break
            self._pause()
            later = of_attempt(self._find_patiently(), number)
            seen = later if later.ended else seen
        return seen

    def _stop_ended(self, ref: ObjectRef, ended: Attempt) -> None:
        """Stop it while it is watched, so that the notes know every pod it had: a failed TrainJob could make more."""
        try:
            self._stop_all()
            if self._cessation(ref, LOOKS_FOR_THE_END).ceased:
                self.journal.write(ended.number, "ended", cleared_by="evidence", **self._end_of(ended))
                self.terminal.say(f"{ref.name} stopped, and has ceased")
                return
        except DispatchError as error:
            self.terminal.say(f"{error} ({error.row})", "yellow")
        self.terminal.say(f"{ref.name} is not shown to have ceased", "yellow")

    def _ended(self, number: int, seen: Seen) -> Attempt:
        attempt = self.journal.write(number, "ended", exit=seen.exit_status, cause=seen.cause)
        self._tell_end(attempt)
        return attempt

    def _gone(self, attempt: Attempt) -> int:
        ended = self.journal.write(
            attempt.number, "ended", exit=int(Exit.ENDED_WITHOUT_STATUS), cause="gone: its TrainJob was deleted"
        )
        self._tell_end(ended)
        return int(Exit.ENDED_WITHOUT_STATUS)

    def _tell_end(self, attempt: Attempt) -> None:
        status = attempt.facts["exit"]
        self.terminal.say(
            f"{self.job_id}-{attempt.number} ended: {attempt.facts['cause']} (exit status {status})",
            "red" if status else "green",
        )

    # Time

    def _call(self) -> Context:
        return self.ctx.child(timeout=self.call_timeout)

    def _now(self) -> datetime:
        return self.ctx.clock.now()

    def _pause(self) -> None:
        self.ctx.wait(PAUSE)


def refused_by_name(error: DispatchError) -> bool:
    """Whether an error only says that the name is taken (page rows A3, C32), perhaps by this attempt's first try."""
    return bool({"A3", "C32"} & set(rulebook().tables.rule(error.row).spec))


def not_shown(cessation: Cessation) -> Iterator[str]:
    """What keeps it from being shown that all has ceased, in words."""
    for each in cessation.evidence:
        if each.kind == "not-shown":
            yield f"  {each.pod or 'the whole'}: {each.text}"
    for maker in cessation.may_make_pods:
        yield f"  may still make pods: {maker}"


def drain(views: Iterator[Found], ctx: Context) -> None:
    """Take views until the context ends. That a watch fails sooner only leaves less shown, never more."""
    with suppress(DispatchError):
        while ctx.ended is None and next(views, None) is not None:
            pass
