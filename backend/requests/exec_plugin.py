"""A credential plugin is someone else's program: it may fail, hang, or say nonsense, and must not outlive the call.

It is run with the call's bound, in a process group of its own that ends with the call, and what it prints is believed
only if it is a whole ExecCredential of the version that was asked for. One run serves all calls that wait.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from .call import SLICE, Abandoned, Call
from .tokens import Credential, TokenFailed, bearer

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.context import Clock

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

# A credential is fetched anew this long before it expires, for a request takes its time to arrive.
_AHEAD = timedelta(seconds=10)
_LARGEST = 1_048_576


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin as the kubeconfig names it. `cluster` is what it is told about the cluster, None if it does not ask."""

    command: str
    api_version: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cluster: Mapping[str, Any] | None = None


class ExecToken:
    """The credential of a plugin, kept until it is due: shortly before its expiry, or once the server refuses it."""

    def __init__(self, plugin: Plugin, clock: Clock) -> None:
        self._plugin = plugin
        self._clock = clock
        self._running = threading.Lock()
        self._kept: tuple[Credential, datetime | None] | None = None

    def credential(self, call: Call) -> Credential:
        kept = self._current()
        if kept is not None:
            return kept
        while not self._running.acquire(timeout=min(call.left(), SLICE)):
            pass
        try:
            return self._current() or self._fetch(call)
        finally:
            self._running.release()

    def refused(self) -> None:
        self._kept = None

    def _current(self) -> Credential | None:
        if self._kept is None:
            return None
        credential, expires = self._kept
        return credential if expires is None or self._clock.now() < expires - _AHEAD else None

    def _fetch(self, call: Call) -> Credential:
        credential, expires = read_credential(run(self._plugin, call), self._plugin)
        if expires is not None and expires <= self._clock.now():
            raise TokenFailed(f"the plugin {self._plugin.command} gave a credential that has expired")
        self._kept = (credential, expires)
        return credential


def run(plugin: Plugin, call: Call) -> bytes:
    """What the plugin prints. Raises TokenFailed, or Abandoned; either way its process has ended."""
    info: dict[str, Any] = {"interactive": False}
    if plugin.cluster is not None:
        info["cluster"] = plugin.cluster
    asked = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": info}
    try:
        # Its complaints may quote what they are about, so they are not kept.
        process = subprocess.Popen(  # noqa: S603 - to run the kubeconfig's command is what this is for
            [plugin.command, *plugin.args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise TokenFailed(f"the plugin {plugin.command} cannot be run: {type(error).__name__}") from error
    try:
        call.stop_with(lambda: _kill(process))
        printed = _printed(process, plugin, call)
        while process.poll() is None:
            _wait(process, min(call.left(), SLICE))
        call.left()  # a cancellation kills it: then its exit code is ours
    except Abandoned:
        if call.ended != "timeout":
            raise
        raise TokenFailed(f"the plugin {plugin.command} did not end within the bound of one request") from None
    finally:
        call.stop_with(None)
        if process.poll() is None:
            _kill(process)
            process.wait()
        process.stdout.close()  # type: ignore[union-attr] # it was asked for
    if process.returncode != 0:
        raise TokenFailed(f"the plugin {plugin.command} ended with exit code {process.returncode}")
    return printed


def _printed(process: subprocess.Popen[bytes], plugin: Plugin, call: Call) -> bytes:
    output = process.stdout.fileno()  # type: ignore[union-attr] # it was asked for
    os.set_blocking(output, False)
    poll = select.poll()
    poll.register(output, select.POLLIN)
    printed = bytearray()
    while True:
        if not poll.poll(max(1, int(min(call.left(), SLICE) * 1000))):
            continue
        piece = os.read(output, 65_536)
        if not piece:
            return bytes(printed)
        printed += piece
        if len(printed) > _LARGEST:
            raise TokenFailed(f"the plugin {plugin.command} printed more than a credential")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return  # the caller looks again


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()  # it has left the group it was started in


def read_credential(printed: bytes, plugin: Plugin) -> tuple[Credential, datetime | None]:
    """The credential that a plugin printed, and when it expires. Raises TokenFailed."""
    try:
        said = msgspec.json.decode(printed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TokenFailed(f"the plugin {plugin.command} did not print JSON: {type(error).__name__}") from None
    status = said.get("status") if isinstance(said, dict) else None
    if not isinstance(status, dict) or (said.get("kind"), said.get("apiVersion")) != (
        "ExecCredential",
        plugin.api_version,
    ):
        raise TokenFailed(f"the plugin {plugin.command} did not print an ExecCredential of {plugin.api_version}")
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    pair = (certificate, key) if isinstance(certificate, str) and isinstance(key, str) and certificate and key else None
    if pair is None and (certificate or key):
        raise TokenFailed(f"the plugin {plugin.command} gave half of a client certificate")
    token = status.get("token")
    if token is None and pair is not None:
        return Credential(None, pair), _expiry(status, plugin)
    return Credential(bearer(token, f"the plugin {plugin.command}'s answer"), pair), _expiry(status, plugin)


def _expiry(status: Mapping[str, Any], plugin: Plugin) -> datetime | None:
    text = status.get("expirationTimestamp")
    if text is None:
        return None
    try:
        expires = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise TokenFailed(f"the plugin {plugin.command} gave an expiry that is no time") from error
    if expires.tzinfo is None:
        raise TokenFailed(f"the plugin {plugin.command} gave an expiry without a time zone")
    return expires
