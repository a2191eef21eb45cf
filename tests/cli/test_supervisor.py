"""`run` as a supervisor: whatever fails, and wherever it was killed, it never starts a twin."""

import json

import pytest

from dispatch_kubeflow.backend.cli.exits import Exit, Refusal
from dispatch_kubeflow.backend.cli.journal import Journal
from dispatch_kubeflow.backend.cli.supervisor import RETRIES, Supervisor
from dispatch_kubeflow.backend.objects.found import Cause, Cessation, Evidence
from dispatch_kubeflow.machine import (
    Context,
    ErrNotFound,
    ErrOutcomeUnknown,
    ErrPodsRemain,
    ErrRejected,
    ErrUnreachable,
)

from .conftest import ScriptedBackend, found, ref, seen

NOTHING = found()
GATED = found(seen(state="gated"))
OPENED = found(seen(state="opened"))
SUCCEEDED = found(seen(state="ended", cause=Cause("succeeded")))
FAILED = found(seen(state="ended", cause=Cause("application", exit_code=3)))
COPY = seen(kind="TrainingRuntime", state="orphaned", uid="copy")


def error(kind, row, operation="start"):
    return kind(f"{row} happened.", row=row, operation=operation)


LOST = error(ErrOutcomeUnknown, "start.create-unanswered")
CUT = error(ErrUnreachable, "request.unsent")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.jsonl"


@pytest.fixture
def run(path, terminal, clock):
    def run(backend, **options):
        with Journal.open(path, job_id="fit", backend="west", namespace="team-a") as journal:
            ctx = Context.background(clock=clock)
            supervisor = Supervisor(backend, "fit", None, journal, terminal, ctx, call_bound=90.0, call_timeout=30.0)
            return supervisor.run(**options)

    return run


@pytest.fixture
def journaled(path):
    """What is on the disk, as (attempt, state) pairs."""

    def read():
        return [(each["attempt"], each["state"]) for each in entries() if "attempt" in each]

    def entries():
        return [json.loads(line) for line in path.read_bytes().splitlines()]

    read.entries = entries
    return read


@pytest.fixture
def earlier(path):
    """Writes what an earlier run left."""

    def write(*entries):
        with Journal.open(path, job_id="fit", backend="west", namespace="team-a") as journal:
            for number, state, facts in entries:
                journal.write(number, state, **facts)

    return write


def ended(cause="succeeded", status=0):
    return {"ref": str(ref("fit-1")), "cause": cause, "exit": status}


def test_a_job_is_found_planned_started_recorded_opened_and_followed_to_its_end(run, journaled, terminal):
    backend = ScriptedBackend(
        {
            "find": [NOTHING],
            "start": [ref("fit-1")],
            "watch": [GATED, OPENED, SUCCEEDED],
            "output": [[b"step 1", b"done"]],
        }
    )
    assert run(backend) == 0
    calls = [call for call in backend.names() if call != "output"]
    assert calls == ["find", "start", "watch", "open"]
    assert journaled() == [(1, "planned"), (1, "gated"), (1, "opened"), (1, "ended")]
    assert terminal.lines == [b"step 1", b"done"]


def test_the_attempt_is_on_the_disk_before_its_start_is_sent(run, journaled):
    at_start = []
    backend = ScriptedBackend(
        {"find": [NOTHING], "start": [lambda: at_start.extend(journaled()) or ref("fit-1")], "watch": [SUCCEEDED]}
    )
    run(backend)
    assert at_start == [(1, "planned")]


def test_the_watch_begins_before_the_gate_is_lifted(run):
    backend = ScriptedBackend({"find": [NOTHING], "start": [ref("fit-1")], "watch": [GATED, SUCCEEDED]})
    run(backend)
    assert backend.names().index("watch") < backend.names().index("open")


def test_it_ends_with_the_jobs_own_exit_code(run):
    backend = ScriptedBackend({"find": [NOTHING], "start": [ref("fit-1")], "watch": [FAILED]})
    assert run(backend) == 3


@pytest.mark.parametrize("cause", [None, Cause("unknown"), Cause("node-lost"), Cause("application")])
def test_an_end_without_an_exit_code_has_one_of_its_own(run, cause):
    view = found(seen(state="ended", cause=cause))
    backend = ScriptedBackend({"find": [NOTHING], "start": [ref("fit-1")], "watch": [view]})
    assert run(backend) == Exit.ENDED_WITHOUT_STATUS


def test_a_cause_that_shows_a_moment_after_the_end_counts(run):
    unknown = found(seen(state="ended", cause=Cause("unknown")))
    backend = ScriptedBackend({"find": [NOTHING, unknown, FAILED], "start": [ref("fit-1")], "watch": [unknown]})
    assert run(backend) == 3


def test_an_end_that_find_no_longer_shows_keeps_what_was_seen_of_it(run, journaled):
    unknown = found(seen(state="ended", cause=Cause("unknown", evidence=("pod gone",))))
    backend = ScriptedBackend({"find": [NOTHING], "start": [ref("fit-1")], "watch": [unknown]})
    assert run(backend) == Exit.ENDED_WITHOUT_STATUS
    assert journaled.entries()[-1]["cause"] == "unknown (pod gone)"


def test_a_refused_start_is_recorded_and_raised(run, journaled):
    refusal = error(ErrRejected, "start.changed")
    backend = ScriptedBackend({"find": [NOTHING], "start": [refusal]})
    with pytest.raises(ErrRejected):
        run(backend)
    assert journaled() == [(1, "planned"), (1, "refused")]


def test_after_a_refusal_the_next_run_takes_the_next_number(run, earlier):
    earlier((1, "planned", {}), (1, "refused", {}))
    backend = ScriptedBackend(
        {"find": [NOTHING], "start": [ref("fit-2")], "watch": [found(seen("fit-2", state="ended", attempt=2))]}
    )
    run(backend)
    assert ("start", "fit", 2) in backend.calls


def test_a_lost_answer_is_settled_by_find_and_the_create_is_not_repeated(run, journaled):
    backend = ScriptedBackend({"find": [NOTHING, GATED], "start": [LOST], "watch": [SUCCEEDED]})
    assert run(backend) == 0
    assert backend.names().count("start") == 1
    assert journaled() == [(1, "planned"), (1, "unknown"), (1, "gated"), (1, "opened"), (1, "ended")]


def test_while_a_create_is_in_flight_it_is_waited_for_and_not_repeated(run):
    in_flight = found(in_flight=(1,))
    backend = ScriptedBackend(
        {"find": [NOTHING, in_flight, in_flight, in_flight, OPENED], "start": [LOST], "watch": [SUCCEEDED]}
    )
    run(backend)
    assert backend.names().count("start") == 1


def test_an_attempt_that_find_shows_opened_is_recorded_opened(run, journaled):
    backend = ScriptedBackend({"find": [NOTHING, OPENED], "start": [LOST], "watch": [SUCCEEDED]})
    run(backend)
    assert journaled()[-2:] == [(1, "opened"), (1, "ended")]
    assert "open" not in backend.names()


def test_a_start_that_was_not_sent_is_made_again_under_the_same_number(run, journaled):
    backend = ScriptedBackend({"find": [NOTHING], "start": [CUT, ref("fit-1")], "watch": [SUCCEEDED]})
    assert run(backend) == 0
    assert [call for call in backend.calls if call[0] == "start"] == [("start", "fit", 1)] * 2
    assert journaled()[:4] == [(1, "planned"), (1, "unknown"), (1, "unknown"), (1, "gated")]


def test_find_is_run_before_every_start(run):
    backend = ScriptedBackend({"find": [NOTHING], "start": [CUT, CUT, ref("fit-1")], "watch": [SUCCEEDED]})
    run(backend)
    names = backend.names()
    assert all(names[index - 1] == "find" for index, name in enumerate(names) if name == "start")


def test_an_attempt_once_unknown_is_not_refused_by_a_later_starts_error(run, journaled):
    taken = error(ErrRejected, "start.changed")
    backend = ScriptedBackend({"find": [NOTHING, NOTHING, GATED], "start": [CUT, taken], "watch": [SUCCEEDED]})
    assert run(backend) == 0
    assert (1, "refused") not in journaled()


def test_an_unknown_attempt_that_never_comes_is_refused_call_bound_after_its_last_start(run, journaled, clock):
    backend = ScriptedBackend({"find": [NOTHING], "start": [CUT]})
    with pytest.raises(Refusal, match="never came to be"):
        run(backend)
    assert backend.names().count("start") == 1 + RETRIES
    assert clock.time >= 90
    assert journaled()[-1] == (1, "refused")


def test_a_runtime_copy_alone_does_not_make_an_attempt_and_is_stopped(run, journaled):
    backend = ScriptedBackend({"find": [NOTHING, found(COPY)], "start": [CUT]})
    with pytest.raises(Refusal):
        run(backend)
    assert ("stop", str(COPY.ref)) in backend.calls
    assert journaled()[-1] == (1, "refused")


def test_a_find_without_an_answer_settles_nothing_and_is_made_again(run):
    backend = ScriptedBackend({"find": [NOTHING, CUT, CUT, GATED], "start": [LOST], "watch": [SUCCEEDED]})
    assert run(backend) == 0


def test_pods_without_a_trainjob_make_the_attempt_one_that_ended(run, journaled):
    pod = found(seen("fit-1-node-0-0-x", "Pod", state="orphaned"))
    backend = ScriptedBackend({"find": [NOTHING, pod], "start": [LOST]})
    assert run(backend) == Exit.ENDED_WITHOUT_STATUS
    assert journaled()[-1] == (1, "ended")
    assert journaled.entries()[-1]["left"] == [str(ref("fit-1-node-0-0-x", "Pod"))]


@pytest.mark.parametrize("row", ["start.create-exists", "start.copy-owned"])
def test_a_refusal_by_name_is_believed_only_after_find(run, journaled, row):
    taken = error(ErrRejected, row)
    backend = ScriptedBackend({"find": [NOTHING, GATED, GATED], "start": [taken], "watch": [SUCCEEDED]})
    assert run(backend) == 0
    assert (1, "refused") not in journaled()


def test_a_refusal_by_name_that_find_bears_out_is_a_refusal(run, journaled):
    taken = error(ErrRejected, "start.copy-owned")
    backend = ScriptedBackend({"find": [NOTHING], "start": [taken]})
    with pytest.raises(ErrRejected):
        run(backend)
    assert journaled() == [(1, "planned"), (1, "refused")]


def test_a_refusal_by_name_stays_unknown_where_find_has_no_answer(run, journaled):
    taken = error(ErrRejected, "start.copy-owned")
    backend = ScriptedBackend({"find": [NOTHING, CUT, GATED], "start": [taken], "watch": [SUCCEEDED]})
    run(backend)
    assert journaled()[1] == (1, "unknown")


# After a crash


def test_a_run_killed_in_its_start_finds_first_and_adopts_what_it_finds(run, earlier, journaled):
    earlier((1, "planned", {"sending_until": "2030-01-01T00:00:30+00:00"}))
    backend = ScriptedBackend({"find": [GATED], "watch": [GATED, SUCCEEDED]})
    assert run(backend) == 0
    assert "start" not in backend.names()
    assert journaled() == [(1, "planned"), (1, "unknown"), (1, "gated"), (1, "opened"), (1, "ended")]


def test_a_run_killed_in_its_start_starts_the_same_attempt_again_if_nothing_is_found(run, earlier):
    earlier((1, "planned", {"sending_until": "2030-01-01T00:00:30+00:00"}))
    backend = ScriptedBackend({"find": [NOTHING], "start": [ref("fit-1")], "watch": [SUCCEEDED]})
    assert run(backend) == 0
    assert ("start", "fit", 1) in backend.calls


def test_a_run_that_ended_while_its_attempt_was_unknown_finds_first(run, earlier, journaled):
    earlier((1, "planned", {}), (1, "unknown", {"sending_until": "2030-01-01T00:00:00+00:00"}))
    backend = ScriptedBackend({"find": [GATED], "watch": [SUCCEEDED]})
    assert run(backend) == 0
    assert "start" not in backend.names()


@pytest.mark.parametrize("state", ["gated", "opened"])
def test_a_run_killed_while_its_job_runs_goes_on_with_it(run, earlier, state):
    earlier((1, "planned", {}), (1, "gated", {"ref": str(ref("fit-1"))}), (1, state, {}))
    backend = ScriptedBackend({"find": [OPENED], "watch": [OPENED, SUCCEEDED]})
    assert run(backend) == 0
    assert "start" not in backend.names()


def test_a_job_that_has_ended_is_not_run_again_unasked(run, earlier):
    earlier((1, "planned", {}), (1, "gated", {}), (1, "ended", ended("application", 3)))
    backend = ScriptedBackend({"find": [NOTHING]})
    assert run(backend) == 3
    assert backend.names() == ["find"]


def test_objects_of_an_attempt_that_the_journal_does_not_know_are_left_alone(run):
    backend = ScriptedBackend({"find": [OPENED]})
    with pytest.raises(Refusal, match="does not know") as refused:
        run(backend)
    assert refused.value.code is Exit.JOURNAL
    assert backend.names() == ["find"]


# Again


def test_again_stops_the_ended_attempt_and_starts_the_next_once_it_has_ceased(run, earlier, journaled):
    earlier((1, "planned", {}), (1, "gated", {"ref": str(ref("fit-1"))}), (1, "ended", ended()))
    backend = ScriptedBackend(
        {
            "find": [SUCCEEDED],
            "ceased": [Cessation(True)],
            "start": [ref("fit-2")],
            "watch": [found(seen("fit-2", state="ended", attempt=2, cause=Cause("succeeded")))],
        }
    )
    assert run(backend, again=True) == 0
    assert [name for name in backend.names() if name in ("stop_job", "ceased", "start")] == [
        "stop_job",
        "ceased",
        "start",
    ]
    assert backend.calls[-3][0] == "find" or ("start", "fit", 2) in backend.calls
    assert journaled.entries()[4]["cleared_by"] == "evidence"


def test_again_starts_nothing_while_the_last_attempt_is_not_shown_to_have_ceased(run, earlier):
    earlier((1, "planned", {}), (1, "gated", {"ref": str(ref("fit-1"))}), (1, "ended", ended()))
    backend = ScriptedBackend({"find": [NOTHING], "ceased": [Cessation(False)]})
    with pytest.raises(Refusal, match="not shown to have ceased") as refused:
        run(backend, again=True)
    assert refused.value.code is Exit.NOT_CEASED
    assert "start" not in backend.names()


def test_an_operators_word_stands_in_for_evidence_and_is_written_down(run, earlier, journaled):
    earlier((1, "planned", {}), (1, "gated", {"ref": str(ref("fit-1"))}), (1, "ended", ended()))
    backend = ScriptedBackend(
        {
            "find": [NOTHING],
            "ceased": [Cessation(False)],
            "start": [ref("fit-2")],
            "watch": [found(seen("fit-2", state="ended", attempt=2))],
        }
    )
    run(backend, again=True, word="I pulled the plug")
    assert journaled.entries()[4]["word"] == "I pulled the plug"


def test_an_attempt_cleared_before_a_crash_is_not_asked_about_again(run, earlier):
    earlier(
        (1, "planned", {}), (1, "gated", {"ref": str(ref("fit-1"))}), (1, "ended", ended()),
        (1, "ended", ended() | {"cleared_by": "evidence"}),
    )  # fmt: skip
    backend = ScriptedBackend(
        {"find": [NOTHING], "start": [ref("fit-2")], "watch": [found(seen("fit-2", state="ended", attempt=2))]}
    )
    run(backend, again=True)
    assert "ceased" not in backend.names()


# Stopping what has ended, while it is still watched


class Watched(ScriptedBackend):
    """Notes when its watch ends."""

    def watch(self, job_id, *, ctx=None):
        try:
            yield from super().watch(job_id, ctx=ctx)
        finally:
            self.calls.append(("watch ends",))


def test_what_has_ended_is_stopped_under_its_watch_if_asked_and_seen_to_have_ceased(run, journaled):
    script = {"find": [NOTHING, FAILED], "start": [ref("fit-1")], "watch": [OPENED, FAILED]}
    backend = Watched({**script, "ceased": [Cessation(False), Cessation(True)]})
    assert run(backend, stop=True) == 3
    assert backend.names()[-4:] == ["stop_job", "ceased", "ceased", "watch ends"]
    assert journaled.entries()[-1]["cleared_by"] == "evidence"


def test_again_stops_what_is_left_under_a_watch(run, earlier, journaled):
    earlier((1, "planned", {}), (1, "gated", {"ref": str(ref("fit-1"))}), (1, "ended", ended("application", 3)))
    found_then = [FAILED, FAILED, NOTHING]
    backend = Watched({"find": found_then, "ceased": [Cessation(False), Cessation(True)], "watch": [FAILED]})
    backend.script["start"] = [error(ErrRejected, "request.conflict")]
    with pytest.raises(ErrRejected):
        run(backend, again=True)
    names = [name for name in backend.names() if name not in ("find", "watch")]
    assert backend.names().index("watch") < backend.names().index("stop_job")
    assert [name for name in names if name != "watch ends"] == ["stop_job", "ceased", "ceased", "start"]
    assert [each.get("cleared_by") for each in journaled.entries() if "cleared_by" in each] == ["evidence"]


def test_a_refusal_to_start_again_shows_what_is_not_shown(run, earlier):
    earlier((1, "planned", {}), (1, "gated", {"ref": str(ref("fit-1"))}), (1, "ended", ended("application", 3)))
    evidence = (Evidence("terminated", "fit-1-a", text="it ended"), Evidence("not-shown", "fit-1-b", text="no report"))
    cessation = Cessation(False, evidence, ("JobSet fit-1",))
    with pytest.raises(Refusal) as refused:
        run(ScriptedBackend({"find": [NOTHING], "ceased": [cessation]}), again=True)
    assert str(refused.value).splitlines()[1:] == ["  fit-1-b: no report", "  may still make pods: JobSet fit-1"]
    assert "--operators-word" in refused.value.then


def test_what_has_ended_stays_unless_asked(run):
    backend = Watched({"find": [NOTHING, FAILED], "start": [ref("fit-1")], "watch": [OPENED, FAILED]})
    assert run(backend) == 3
    assert "stop_job" not in backend.names()


def test_an_end_that_cannot_be_shown_to_have_ceased_is_left_to_the_next_run(run, journaled, terminal):
    script = {"find": [NOTHING, FAILED], "start": [ref("fit-1")], "watch": [OPENED, FAILED]}
    assert run(ScriptedBackend({**script, "ceased": [Cessation(False)]}), stop=True) == 3
    assert "cleared_by" not in journaled.entries()[-1]
    assert any("not shown" in each for each in terminal.said)


def test_a_stop_that_fails_does_not_hide_how_the_job_ended(run, journaled, terminal):
    script = {"find": [NOTHING, FAILED], "start": [ref("fit-1")], "watch": [OPENED, FAILED]}
    assert run(ScriptedBackend({**script, "stop_job": [error(ErrUnreachable, "request.unsent")]}), stop=True) == 3
    assert journaled()[-1] == (1, "ended")
    assert any("request.unsent" in each for each in terminal.said)


# Opening and following


@pytest.mark.parametrize("kind", [ErrPodsRemain, ErrOutcomeUnknown, ErrUnreachable])
def test_an_open_that_may_be_repeated_is(run, kind):
    failure = error(kind, "open.pods-remain", "open")
    backend = ScriptedBackend(
        {"find": [NOTHING], "start": [ref("fit-1")], "open": [failure, failure, None], "watch": [GATED, SUCCEEDED]}
    )
    assert run(backend) == 0
    assert backend.names().count("open") == 3


def test_a_refused_open_ends_the_run(run):
    backend = ScriptedBackend(
        {
            "find": [NOTHING],
            "start": [ref("fit-1")],
            "open": [error(ErrRejected, "object.ended-opened", "open")],
            "watch": [GATED],
        }
    )
    with pytest.raises(ErrRejected):
        run(backend)


def test_a_job_held_before_it_was_opened_is_opened_and_stays_held(run, journaled):
    held = found(seen(state="held", gate_lifted=False))
    still_held = found(seen(state="held", gate_lifted=True))
    backend = ScriptedBackend(
        {"find": [NOTHING], "start": [ref("fit-1")], "watch": [held, still_held, OPENED, SUCCEEDED]}
    )
    assert run(backend) == 0
    assert backend.names().count("open") == 1


def test_a_job_that_someone_deleted_has_ended_without_a_status(run, journaled):
    backend = ScriptedBackend({"find": [NOTHING], "start": [ref("fit-1")], "watch": [OPENED, NOTHING]})
    assert run(backend) == Exit.ENDED_WITHOUT_STATUS
    assert journaled()[-1] == (1, "ended")


def test_a_watch_that_fails_ends_the_run_and_leaves_the_job(run, journaled):
    backend = ScriptedBackend(
        {
            "find": [NOTHING],
            "start": [ref("fit-1")],
            "watch": [OPENED, error(ErrNotFound, "request.not-found", "watch")],
        }
    )
    with pytest.raises(ErrNotFound):
        run(backend)
    assert journaled()[-1] == (1, "opened")
