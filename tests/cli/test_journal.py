"""The file by which a crashed `run` knows what it had begun."""

import json
from datetime import UTC, datetime

import pytest

from dispatch_kubeflow.backend.cli.exits import Exit, Refusal
from dispatch_kubeflow.backend.cli.journal import Journal

JOB = {"job_id": "fit", "backend": "west", "namespace": "team-a"}
UNTIL = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "fit.journal.jsonl"


def test_a_new_journal_knows_no_attempt(path):
    with Journal.open(path, **JOB) as journal:
        assert journal.last is None
        assert 1 not in journal


def test_what_was_written_is_known_after_reopening(path):
    with Journal.open(path, **JOB) as journal:
        journal.write(1, "planned", sending_until=UNTIL.isoformat())
        journal.write(1, "gated", ref="kubeflow://west/team-a/TrainJob/fit-1?uid=u", by="start")
    with Journal.open(path, **JOB) as journal:
        assert journal.last.number == 1
        assert journal.last.state == "gated"
        assert journal.last.ref.endswith("uid=u")
        assert journal.last.sending_until == UNTIL


def test_a_line_is_on_the_disk_before_write_returns(path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(path.read_bytes()))
    with Journal.open(path, **JOB) as journal:
        journal.write(1, "planned")
    assert synced[-1].count(b"\n") == 2
    assert json.loads(synced[-1].splitlines()[1])["state"] == "planned"


def test_only_the_moves_of_the_attempts_lifecycle_can_be_written(path):
    with Journal.open(path, **JOB) as journal:
        journal.write(1, "planned")
        journal.write(1, "refused", row="request.invalid")
        before = path.read_bytes()
        with pytest.raises(ValueError, match="from refused to opened"):
            journal.write(1, "opened")
    assert path.read_bytes() == before


def test_what_a_crash_left_planned_may_be_found_after_it_is_unknown(path):
    with Journal.open(path, **JOB) as journal:
        for state in ("planned", "unknown", "unknown", "gated", "opened", "ended"):
            journal.write(1, state)
        assert not journal.last.cleared
        journal.write(1, "ended", cleared_by="evidence")
        assert journal.last.cleared


def test_the_last_attempt_is_the_one_of_the_highest_number(path):
    with Journal.open(path, **JOB) as journal:
        for number in (1, 2, 10):
            journal.write(number, "planned")
        assert journal.last.number == 10


def test_a_line_torn_by_a_crash_is_dropped_and_overwritten(path):
    with Journal.open(path, **JOB) as journal:
        journal.write(1, "planned")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"at":"2030-01-01T00:00:00+00:00","attempt":1,"sta')
    with Journal.open(path, **JOB) as journal:
        assert journal.last.state == "planned"
        journal.write(1, "unknown")
    with Journal.open(path, **JOB) as journal:
        assert journal.last.state == "unknown"
    assert path.read_bytes().startswith(whole)


def test_a_journal_whose_first_line_was_torn_begins_anew(path):
    path.parent.mkdir()
    path.write_bytes(b'{"job":"fi')
    with Journal.open(path, **JOB) as journal:
        assert journal.last is None
    assert json.loads(path.read_bytes())["job"] == "fit"


def test_two_runs_cannot_have_one_journal(path):
    with Journal.open(path, **JOB), pytest.raises(Refusal, match="another run") as refused:
        Journal.open(path, **JOB)
    assert refused.value.code is Exit.JOURNAL


@pytest.mark.parametrize("key", ["job_id", "backend", "namespace"])
def test_the_journal_of_another_job_is_refused(path, key):
    Journal.open(path, **JOB).close()
    with pytest.raises(Refusal, match="team-a/fit on west"):
        Journal.open(path, **JOB | {key: "other"})


@pytest.mark.parametrize(
    "line",
    [b"no json\n", b"[]\n", b'{"attempt":1}\n', b'{"attempt":1,"state":"lost"}\n'],
    ids=["text", "list", "no-state", "no-such-state"],
)
def test_a_line_that_cannot_be_read_is_refused(path, line):
    Journal.open(path, **JOB).close()
    with path.open("ab") as file:
        file.write(line)
    with pytest.raises(Refusal, match="cannot be read"):
        Journal.open(path, **JOB)


def test_a_file_that_is_no_journal_is_refused(path):
    path.parent.mkdir()
    path.write_bytes(b"{}\n")
    with pytest.raises(Refusal, match="cannot be read"):
        Journal.open(path, **JOB)


def test_a_journal_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(Refusal, match="cannot be opened"):
        Journal.open(tmp_path, **JOB)
