"""A credential is fetched, looked at, and only then is anything sent: what goes on the wire is what a server saw."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dispatch_kubeflow.backend.requests import ClusterAccess, Door, Request, Trust
from dispatch_kubeflow.backend.requests.exec_plugin import ExecToken, Plugin
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS
from dispatch_kubeflow.backend.requests.tokens import Broken, Credential, FileToken, Fixed, TokenFailed, basic, bearer
from dispatch_kubeflow.machine.context import Context, SystemClock

REQUEST = Request("GET", TRAIN_JOBS, "team-a", "a-1")
V1 = "client.authentication.k8s.io/v1"


class Shifted(SystemClock):
    """The system's clock, moved."""

    ahead = timedelta()

    def now(self):
        return super().now() + self.ahead


def door_with(source, server) -> Door:
    return Door(ClusterAccess(server.url, source), request_timeout=5, clock=SystemClock())


def send(door: Door, ctx: Context | None = None):
    return door.send(REQUEST, ctx or Context.with_timeout(5), operation="find")


def seen(upstream) -> list[str | None]:
    return [each.headers.get("authorization") for each in upstream.asked]


def printing(status: object, *, version: str = V1, log: Path | None = None, before: str = "") -> Plugin:
    """A plugin that prints a credential, and notes each run in `log`."""
    said = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    note = f"open({str(log)!r}, 'a').write('x');" if log is not None else ""
    return Plugin(sys.executable, V1, ("-S", "-c", f"{note}{before}print({said!r})"))


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


def test_a_token_file_is_read_and_its_line_end_dropped(plain, upstream, token_file):
    assert send(door_with(FileToken(token_file), plain)).failure is None
    assert seen(upstream) == ["Bearer first"]


def test_a_rotated_token_file_is_read_again_by_the_next_request(plain, upstream, token_file):
    door = door_with(FileToken(token_file), plain)
    long_ago = time.time() - 100
    os.utime(token_file, (long_ago, long_ago))
    send(door)
    fresh = token_file.with_name("fresh")
    fresh.write_text("secnd\n")
    os.utime(fresh, (long_ago, long_ago))
    fresh.replace(token_file)  # as a projected volume is swapped: same size, same time, another file
    send(door)
    token_file.write_text("third\n")
    send(door)
    token_file.write_text("forth\n")  # within the same tick, perhaps
    send(door)
    assert seen(upstream) == ["Bearer first", "Bearer secnd", "Bearer third", "Bearer forth"]


def test_a_token_file_that_has_not_changed_is_not_read_again(plain, token_file, monkeypatch):
    long_ago = time.time() - 100
    os.utime(token_file, (long_ago, long_ago))
    door = door_with(FileToken(token_file), plain)
    send(door)
    monkeypatch.setattr(Path, "read_text", lambda *_: pytest.fail("it was read again"))
    assert send(door).failure is None


@pytest.mark.parametrize("content", ["", "   \n", "two\nlines", "a b", "tök", "nul\0"])
def test_trap_a_blank_or_unsendable_token_file_sends_nothing(plain, upstream, token_file, content):
    token_file.write_text(content)
    failure = send(door_with(FileToken(token_file), plain)).failure
    assert failure is not None
    assert (failure.result, failure.sent) == ("token-failed", False)
    assert plain.connections == []
    assert "tök" not in str(failure.cause)


def test_a_token_file_that_is_missing_or_no_file_sends_nothing(plain, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # to read it would hang
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "absent", tmp_path, fifo, garbage):
        failure = send(door_with(FileToken(path), plain)).failure
        assert failure is not None
        assert failure.result == "token-failed"
        assert failure.facts["result"] == "token-failed"
    assert plain.connections == []


def test_a_user_who_cannot_be_told_sends_nothing(plain):
    failure = send(door_with(Broken("the context names nobody"), plain)).failure
    assert failure is not None
    assert failure.result == "token-failed"
    assert failure.details["rule"] == "the context names nobody"
    assert plain.connections == []


def test_a_deliberate_user_without_credentials_sends_none(plain, upstream):
    assert send(door_with(Fixed(Credential()), plain)).failure is None
    assert seen(upstream) == [None]


def test_a_name_and_password_are_sent_as_such(plain, upstream):
    send(door_with(Fixed(Credential(basic("me", "pass"))), plain))
    assert seen(upstream) == ["Basic bWU6cGFzcw=="]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_plugin_of_either_version_gives_the_token(plain, upstream, version):
    version = f"client.authentication.k8s.io/{version}"
    said = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t"}})
    check = f"import json,os;assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['apiVersion']=={version!r};"
    plugin = Plugin(sys.executable, version, ("-S", "-c", f"{check}print({said!r})"))
    assert send(door_with(ExecToken(plugin, SystemClock()), plain)).failure is None
    assert seen(upstream) == ["Bearer t"]


def test_a_plugin_gets_its_own_environment_and_the_cluster_if_it_asks(plain, upstream):
    code = (
        "import json,os; info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec'];"
        f"said = {{'apiVersion': {V1!r}, 'kind': 'ExecCredential'}};"
        "token = os.environ['MINE'] + '-' + info['cluster']['server'] + '-' + str(info['interactive']);"
        "print(json.dumps({**said, 'status': {'token': token}}))"
    )
    plugin = Plugin(sys.executable, V1, ("-S", "-c", code), {"MINE": "mine"}, {"server": "there"})
    send(door_with(ExecToken(plugin, SystemClock()), plain))
    assert seen(upstream) == ["Bearer mine-there-False"]


BAD = {
    "exit-1": Plugin(sys.executable, V1, ("-S", "-c", "import sys; sys.exit(1)")),
    "missing": Plugin("/nowhere/plugin", V1),
    "nul in the command": Plugin("a\0b", V1),
    "no-output": Plugin(sys.executable, V1, ("-S", "-c", "")),
    "garbage": Plugin(sys.executable, V1, ("-S", "-c", "print('Bearer x')")),
    "not text": Plugin(sys.executable, V1, ("-S", "-c", "import os; os.write(1, b'\"\\xff\"')")),
    "endless": Plugin(sys.executable, V1, ("-S", "-c", "while True: print('x' * 65536)")),
    "other version": printing({"token": "t"}, version="client.authentication.k8s.io/v1beta1"),
    "no status": printing(None),
    "no token": printing({}),
    "blank token": printing({"token": " "}),
    "null token": printing({"token": None}),
    "number": printing({"token": 7}),
    "two lines": printing({"token": "a\nb"}),
    "half a certificate": printing({"token": "t", "clientCertificateData": "x"}),
    "bad certificate": printing({"clientCertificateData": "x", "clientKeyData": "y"}),
    "expired": printing({"token": "t", "expirationTimestamp": "2001-01-01T00:00:00Z"}),
    "no zone": printing({"token": "t", "expirationTimestamp": "2101-01-01T00:00:00"}),
    "no time": printing({"token": "t", "expirationTimestamp": 7}),
    "killed": Plugin(sys.executable, V1, ("-S", "-c", "import os; os.kill(os.getpid(), 9)")),
}


@pytest.mark.parametrize("how", BAD)
def test_trap_a_plugin_that_fails_or_says_nonsense_sends_nothing(how, certificates, server):
    access = ClusterAccess(server.url, ExecToken(BAD[how], SystemClock()), Trust(certificates.authority))
    door = Door(access, request_timeout=5, clock=SystemClock())
    failure = send(door).failure
    assert failure is not None
    assert (failure.result, failure.sent) == ("token-failed", False)
    assert server.connections == []
    door.close()


def test_trap_a_credential_with_little_life_left_is_not_fetched_for_every_request(plain, tmp_path):
    log = tmp_path / "runs"
    expires = (datetime.now(UTC) + timedelta(minutes=2)).isoformat()
    door = door_with(ExecToken(printing({"token": "t", "expirationTimestamp": expires}, log=log), SystemClock()), plain)
    for _ in range(3):
        send(door)
    assert log.read_text() == "x"


def test_a_credential_is_fetched_anew_when_it_is_due(plain, tmp_path):
    log = tmp_path / "runs"
    clock = Shifted()
    expires = (datetime.now(UTC) + timedelta(minutes=2)).isoformat()
    plugin = printing({"token": "t", "expirationTimestamp": expires}, log=log)
    door = door_with(ExecToken(plugin, clock), plain)
    send(door)
    clock.ahead = timedelta(seconds=115)
    send(door)
    assert log.read_text() == "xx"


def test_trap_a_credential_without_an_expiry_is_fetched_anew_after_a_401(plain, upstream, tmp_path):
    log = tmp_path / "runs"
    door = door_with(ExecToken(printing({"token": "t"}, log=log), SystemClock()), plain)
    send(door)
    send(door)
    upstream.status = 401
    failure = send(door).failure
    assert failure is not None
    assert failure.result == "401"
    assert log.read_text() == "x"
    upstream.status = None
    send(door)
    assert log.read_text() == "xx"


def test_trap_a_stale_token_is_never_sent_when_the_refresh_fails(plain, upstream, tmp_path):
    once = tmp_path / "once"
    expires = (datetime.now(UTC) + timedelta(minutes=2)).isoformat()
    fails = f"import os,sys; os.path.exists({str(once)!r}) and sys.exit(1); open({str(once)!r}, 'w');"
    clock = Shifted()
    door = door_with(ExecToken(printing({"token": "t", "expirationTimestamp": expires}, before=fails), clock), plain)
    send(door)
    clock.ahead = timedelta(minutes=5)
    failure = send(door).failure
    assert failure is not None
    assert failure.result == "token-failed"
    assert seen(upstream) == ["Bearer t"]


def test_many_threads_wait_for_one_run_of_the_plugin(plain, tmp_path):
    log = tmp_path / "runs"
    door = door_with(
        ExecToken(printing({"token": "t"}, log=log, before="import time; time.sleep(0.1);"), SystemClock()), plain
    )
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(send(door))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.failure for each in replies] == [None] * 8
    assert log.read_text() == "x"


def test_a_plugin_with_a_client_certificate_shows_it(upstream, certificates):
    from .proxy import FaultProxy

    proxy = FaultProxy(upstream, certificates.server_context(client_wanted=True))
    certificate, key = certificates.client
    source = ExecToken(printing({"clientCertificateData": certificate, "clientKeyData": key}), SystemClock())
    door = Door(ClusterAccess(proxy.url, source, Trust(certificates.authority)), request_timeout=5, clock=SystemClock())
    assert send(door).failure is None
    assert send(door).failure is None
    assert len(proxy.connections) == 1
    door.close()
    proxy.close()


def test_a_credential_never_shows_its_secret():
    credential = Credential("Bearer secret", ("certificate", "secret"))
    assert "secret" not in repr(credential)
    assert "secret" not in repr(Trust(None, certificate=("certificate", "secret")))
    with pytest.raises(TokenFailed) as failed:
        bearer("se cret", "the file")
    assert "cret" not in str(failed.value).replace("secret", "")


@pytest.mark.parametrize("ends", ["", "import sys; sys.exit(3);"])
def test_a_plugin_that_closes_its_output_is_waited_for(plain, upstream, ends):
    said = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "t"}})
    code = f"import os, time; os.write(1, {said.encode()!r}); os.close(1); time.sleep(0.1);{ends}"
    door = door_with(ExecToken(Plugin(sys.executable, V1, ("-S", "-c", code)), SystemClock()), plain)
    failure = send(door).failure
    assert (failure is None) == (not ends)
    assert len(upstream.asked) == (0 if ends else 1)


def test_a_plugin_that_closed_its_output_and_hangs_is_ended(plain):
    code = "import os, time; os.close(1); time.sleep(60)"
    door = door_with(ExecToken(Plugin(sys.executable, V1, ("-S", "-c", code)), SystemClock()), plain)
    from .left_behind import children

    before = children()
    failure = send(door, Context.with_timeout(0.3)).failure
    assert failure is not None
    assert failure.result == "context-deadline"
    assert children() <= before


def test_threads_that_wait_for_a_plugin_end_with_their_own_context(plain):
    slow = Plugin(sys.executable, V1, ("-S", "-c", "import time; time.sleep(60)"))
    door = door_with(ExecToken(slow, SystemClock()), plain)
    runs = Context.with_timeout(10)
    first = threading.Thread(target=send, args=(door, runs))
    first.start()
    while not door._sender._cluster.source._running.locked():
        time.sleep(0.001)
    began = time.monotonic()
    failure = send(door, Context.with_timeout(0.1)).failure
    assert failure is not None
    assert failure.result == "context-deadline"
    assert time.monotonic() - began < 5
    runs.cancel()
    first.join()


def test_neither_a_plugin_nor_an_access_shows_what_may_be_secret():
    plugin = Plugin("aws", V1, ("--secret=s3cret",), {"KEY": "s3cret"})
    access = ClusterAccess("https://host", Fixed(Credential("Bearer s3cret")), proxy="http://me:s3cret@proxy")
    assert "s3cret" not in repr(plugin) + repr(access)


def test_what_a_source_gave_is_not_kept_beneath_its_failure(plain, token_file):
    token_file.write_bytes(b"s3cret\xff")
    failure = send(door_with(FileToken(token_file), plain)).failure
    assert failure is not None
    assert failure.cause is not None
    assert (failure.cause.__cause__, failure.cause.__context__, failure.cause.__traceback__) == (None, None, None)
