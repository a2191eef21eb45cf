"""A user of a kubeconfig is one of a few things, or nobody on purpose; what else stands there is refused by its name.

Silence would be worse: a credential that is overlooked makes an anonymous request, and an impersonation that is
overlooked makes one with other rights than were meant.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dispatch_kubeflow.machine.marked import is_unicode

from .access import AccessProblem
from .exec_plugin import VERSIONS, ExecToken, Plugin
from .tokens import Broken, Credential, FileToken, Fixed, TokenFailed, TokenSource, basic, bearer

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.context import Clock

_USER_KEYS = frozenset({"as", "as-uid", "as-groups", "as-user-extra", "extensions", "client-certificate", "client-key"})


def said(error: Exception) -> str:
    """What went wrong, without what stands in the file: an error of the reader may quote it."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"not YAML, at line {mark.line + 1}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if type(error).__name__ == "ConfigException":
        return str(error)
    return type(error).__name__


def at_home(path: str) -> Path:
    """The path, with `~` as the user's home; as it stands where there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


@dataclass(frozen=True, slots=True)
class Entry:
    """One cluster or user of a kubeconfig: its mapping, the folder its paths start from, and what to call it."""

    searched: str
    title: str
    values: Mapping[str, Any]
    folder: Path

    def refuse(self, key: str, rule: str, cause: BaseException | None = None) -> NoReturn:
        """Raise AccessProblem: the entry's `key` breaks `rule`."""
        raise AccessProblem("kubeconfig", self.searched, f"{self.title}.{key} {rule}") from cause

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            self.refuse(key, "must be text")
        return value

    def path(self, key: str) -> Path | None:
        value = self.text(key)
        return self.folder / at_home(value) if value else None

    def pem(self, key: str) -> str | None:
        """The PEM text of `key-data`, else of the file that `key` names, as the client prefers them."""
        data = self.text(f"{key}-data")
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True).decode("utf-8")
            except ValueError:
                # No ASCII, no base64 or no UTF-8. Such an error may hold the key itself, so it is not kept.
                self.refuse(f"{key}-data", "is not PEM in base64")
        path = self.path(key)
        if path is None:
            return None
        try:
            return path.read_text("utf-8")
        except OSError as error:
            self.refuse(key, f"cannot be read: {said(error)}", error)
        except ValueError:
            # No UTF-8, or no path at all.
            self.refuse(key, "is not PEM")


def source_of(user: Entry, cluster: Entry, clock: Clock, *, has_certificate: bool) -> TokenSource:
    """Where the user's credential comes from. Raises AccessProblem for one that can never be used."""
    if "auth-provider" in user.values:
        provider = user.values["auth-provider"]
        name = provider.get("name") if isinstance(provider, dict) else None
        user.refuse("auth-provider", f"{name!r} is not supported: use an exec plugin, a token or a client certificate")
    token_file = user.path("tokenFile")
    if token_file is not None:
        return FileToken(token_file)
    if "token" in user.values:
        return _token(user)
    if "exec" in user.values:
        return _plugin(user, cluster, clock)
    username, password = user.text("username"), user.text("password")
    if username is not None or password is not None:
        if not username or password is None or ":" in username:
            user.refuse("username", "and password must be given together")
        if not is_unicode(username + password):
            user.refuse("username", "or password cannot be sent: it is not Unicode text")
        return Fixed(Credential(basic(username, password)))
    if "tokenFile" in user.values:
        return Broken(f"{user.title}.tokenFile names no file")
    # A user without anything is a choice; one with a certificate has its credential in TLS.
    unknown = sorted(set(user.values) - _USER_KEYS)
    if unknown and not has_certificate:
        user.refuse(unknown[0], "is not a credential that is known")
    return Fixed(Credential())


def _plugin(user: Entry, cluster: Entry, clock: Clock) -> TokenSource:
    given = user.values["exec"]
    if not isinstance(given, dict):
        user.refuse("exec", "must be a mapping")
    entry = Entry(user.searched, f"{user.title}.exec", given, user.folder)
    command, version = entry.text("command"), entry.text("apiVersion")
    if not command:
        entry.refuse("command", "is missing")
    if version not in VERSIONS:
        entry.refuse("apiVersion", f"must be one of {', '.join(VERSIONS)}")
    if entry.text("interactiveMode") == "Always":
        entry.refuse("interactiveMode", "Always cannot be had: there is no terminal")
    args = given.get("args") or []
    if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        entry.refuse("args", "must be a list of texts")
    if os.sep in command:
        command = str(user.folder / at_home(command))
    told = _cluster_info(cluster) if given.get("provideClusterInfo") is True else None
    plugin = Plugin(command, version, tuple(args), _environment(entry), told)
    return ExecToken(plugin, clock)


def _token(user: Entry) -> TokenSource:
    token = user.values["token"]
    if token is not None and not isinstance(token, str):
        user.refuse("token", "must be text")
    try:
        return Fixed(Credential(bearer(token, f"{user.title}.token")))
    except TokenFailed as error:
        return Broken(str(error))


def _environment(entry: Entry) -> dict[str, str]:
    given = entry.values.get("env") or []
    wanted: dict[str, str] = {}
    for each in given if isinstance(given, list) else [None]:
        name, value = (each.get("name"), each.get("value")) if isinstance(each, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            entry.refuse("env", "must be a list of names and values")
        wanted[name] = value
    return wanted


def _cluster_info(cluster: Entry) -> dict[str, Any]:
    told: dict[str, Any] = {
        key: cluster.values[key]
        for key in ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        if key in cluster.values
    }
    authorities = cluster.pem("certificate-authority")
    if authorities is not None:
        told["certificate-authority-data"] = base64.b64encode(authorities.encode()).decode("ascii")
    extensions = cluster.values.get("extensions")
    for each in extensions if isinstance(extensions, list) else []:
        if isinstance(each, dict) and each.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = each.get("extension")
    return told


def impersonation(user: Entry) -> dict[str, str]:
    """The headers of a user who acts as another: to leave them out would act with other rights than were meant."""
    if user.values.get("as-user-extra"):
        user.refuse("as-user-extra", "is not supported")
    headers: dict[str, str] = {}
    for key, header in (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid")):
        value = user.text(key)
        if value:
            headers[header] = value
    groups = user.values.get("as-groups") or []
    if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
        user.refuse("as-groups", "must be a list of texts")
    if groups:
        headers["Impersonate-Group"] = "\0".join(groups)
    if groups and "Impersonate-User" not in headers:
        user.refuse("as-groups", "needs as")
    for value in headers.values():
        if not value.replace("\0", "").isprintable() or not value.isascii():
            user.refuse("as", "cannot be sent")
    return headers
