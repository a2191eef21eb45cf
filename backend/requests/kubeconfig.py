"""A kubeconfig is read by the official client's own reader and merger, and judged here, whole, before anything is sent.

Its loader takes an unknown user for nobody, a failing plugin for none, an impersonation for a comment, and raises
whatever went wrong. Here each entry is either understood or refused by name: `AccessProblem` for what can never work,
a source that fails at each request for a user that is not there.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dispatch_kubeflow.machine.context import SystemClock

from .access import AccessProblem, ClusterAccess, Trust, environment_proxy
from .exec_plugin import VERSIONS, ExecToken, Plugin
from .tokens import Broken, Credential, FileToken, Fixed, TokenFailed, TokenSource, basic, bearer

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.context import Clock
    from dispatch_kubeflow.machine.rules import Rulebook

_SYSTEM_CLOCK = SystemClock()
_USUAL = "~/.kube/config"


def load_access(
    *,
    book: Rulebook,
    kubeconfig: str | None = None,
    context: str | None = None,
    in_cluster: bool = False,
    clock: Clock = _SYSTEM_CLOCK,
) -> ClusterAccess:
    """As `load`, with a configuration of no use raised as the tables have it: ErrInvalid (C8)."""
    try:
        return load(kubeconfig=kubeconfig, context=context, in_cluster=in_cluster, clock=clock)
    except AccessProblem as problem:
        book.settle(
            "input",
            operation="factory",
            mode="plain",
            facts={"problem": "kubeconfig"},
            subject=problem.key,
            details={"key": problem.key, "value": problem.value, "rule": problem.rule},
            cause=problem,
        )
        raise


def load(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    in_cluster: bool = False,
    clock: Clock = _SYSTEM_CLOCK,
) -> ClusterAccess:
    """The access that the arguments name; without any, the client's usual search.

    That is: the files of KUBECONFIG, else `~/.kube/config`, else the pod's own service account. Raises AccessProblem.
    """
    if in_cluster:
        return from_pod()
    searched = kubeconfig or os.environ.get("KUBECONFIG") or _USUAL
    paths = [Path(each).expanduser() for each in searched.split(os.pathsep) if each]
    found = [path for path in paths if path.exists()]
    if not found:
        if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return from_pod()
        raise AccessProblem("kubeconfig", searched, "there is no such file")
    return _Document(searched, _merged(searched, found), clock).access(context)


def from_pod(token_file: str | None = None, authorities_file: str | None = None) -> ClusterAccess:
    """The access of the pod this runs in, by its service account. Raises AccessProblem."""
    official = _client("kubernetes.config.incluster_config")
    token_file = token_file or official.SERVICE_TOKEN_FILENAME
    loaded = _client("kubernetes.client").Configuration(proxy="", no_proxy="")
    try:
        official.InClusterConfigLoader(
            token_file, authorities_file or official.SERVICE_CERT_FILENAME, try_refresh_token=False
        ).load_and_set(loaded)
        trust = Trust(Path(loaded.ssl_ca_cert).read_text("utf-8"))
        trust.context()
    except Exception as error:
        raise AccessProblem(
            "in_cluster", "true", f"the pod's service account cannot be used: {_said(error)}"
        ) from error
    return ClusterAccess(loaded.host, FileToken(Path(str(token_file))), trust, environment_proxy(loaded.host))


def _client(module: str) -> Any:
    # The official client is loaded with a configuration only: it takes three times as long as all else here.
    return importlib.import_module(module)


def _merged(searched: str, found: list[Path]) -> Any:
    reader = _client("kubernetes.config.kube_config")
    try:
        merged = reader.KubeConfigMerger(os.pathsep.join(map(str, found))).config
    except Exception as error:  # the reader raises whatever its YAML or its own assumptions give
        raise AccessProblem("kubeconfig", searched, f"cannot be read: {_said(error)}") from error
    if not isinstance(getattr(merged, "value", None), dict):
        raise AccessProblem("kubeconfig", searched, "is not a kubeconfig")
    return merged


def _said(error: Exception) -> str:
    """What went wrong, without what stands in the file: an error of the reader may quote it."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"not YAML, at line {mark.line + 1}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if type(error).__name__ == "ConfigException":
        return str(error)
    return type(error).__name__


@dataclass(frozen=True, slots=True)
class _Entry:
    """One cluster or user of a kubeconfig: its mapping, the folder its paths start from, and what to call it."""

    document: _Document
    title: str
    values: Mapping[str, Any]
    folder: Path

    def refuse(self, key: str, rule: str, cause: BaseException | None = None) -> NoReturn:
        raise AccessProblem("kubeconfig", self.document.searched, f"{self.title}.{key} {rule}") from cause

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            self.refuse(key, "must be text")
        return value

    def path(self, key: str) -> Path | None:
        value = self.text(key)
        return self.folder / Path(value).expanduser() if value else None

    def pem(self, key: str) -> str | None:
        """The PEM text of `key-data`, else of the file that `key` names, as the client prefers them."""
        data = self.text(f"{key}-data")
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True).decode("utf-8")
            except (binascii.Error, UnicodeDecodeError) as error:
                self.refuse(f"{key}-data", "is not PEM in base64", error)
        path = self.path(key)
        if path is None:
            return None
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.refuse(key, f"cannot be read: {_said(error)}", error)


@dataclass(frozen=True, slots=True)
class _Document:
    """A merged kubeconfig."""

    searched: str
    merged: Any
    clock: Clock

    def access(self, context: str | None) -> ClusterAccess:
        name = context or self.merged.value.get("current-context")
        if not name:
            raise AccessProblem("kubeconfig", self.searched, "has no current-context, and none was given")
        chosen = self._entry("contexts", "context", name)
        if chosen is None:
            raise AccessProblem("context", str(name), "is not in the kubeconfig")
        cluster = self._entry("clusters", "cluster", chosen.text("cluster"))
        if cluster is None:
            chosen.refuse("cluster", "names no cluster of the kubeconfig")
        server = (cluster.text("server") or "").rstrip("/")
        if not server:
            cluster.refuse("server", "is missing")
        user_name = chosen.text("user")
        user = self._entry("users", "user", user_name) if user_name else None
        trust = self._trust(cluster, user)
        source: TokenSource
        if user is not None:
            source = self._source(user, cluster, has_certificate=trust.certificate is not None)
        elif user_name:
            source = Broken(f"the context {name!r} names the user {user_name!r}, who is not in the kubeconfig")
        else:
            source = Fixed(Credential())
        headers = _impersonation(user) if user is not None else {}
        proxy = cluster.text("proxy-url") or environment_proxy(server)
        try:
            return ClusterAccess(server, source, trust, proxy, headers)
        except AccessProblem as problem:
            cluster.refuse(problem.key, problem.rule, problem)

    def _entry(self, section: str, kind: str, name: str | None) -> _Entry | None:
        if not name or not self.merged.value.get(section):
            return None
        try:
            found = self.merged[section].get_with_name(name, safe=True)
        except Exception as error:  # as above
            raise AccessProblem("kubeconfig", self.searched, f"{section} cannot be read: {_said(error)}") from error
        if found is None:
            return None
        values = found.value.get(kind)
        if values is not None and not isinstance(values, dict):
            raise AccessProblem("kubeconfig", self.searched, f"{section}[{name}].{kind} must be a mapping")
        return _Entry(self, f"{section}[{name}].{kind}", values or {}, Path(found.path or ".").absolute().parent)

    def _trust(self, cluster: _Entry, user: _Entry | None) -> Trust:
        skip = cluster.values.get("insecure-skip-tls-verify", False)
        if not isinstance(skip, bool):
            cluster.refuse("insecure-skip-tls-verify", "must be true or false")
        authorities = cluster.pem("certificate-authority")
        if skip and authorities is not None:
            cluster.refuse("insecure-skip-tls-verify", "cannot stand beside a certificate-authority")
        certificate = user.pem("client-certificate") if user is not None else None
        key = user.pem("client-key") if user is not None else None
        if user is not None and (certificate is None) != (key is None):
            user.refuse("client-certificate" if certificate is None else "client-key", "is missing: it takes both")
        pair = (certificate, key) if certificate is not None and key is not None else None
        name = cluster.text("tls-server-name") or None
        bare = Trust(authorities, verify=not skip, server_name=name)
        try:
            bare.context()
        except (OSError, ValueError) as error:
            cluster.refuse("certificate-authority", f"cannot be used: {_said(error)}", error)
        trust = Trust(authorities, verify=not skip, server_name=name, certificate=pair)
        if user is not None and pair is not None:
            try:
                trust.context()
            except (OSError, ValueError) as error:
                user.refuse("client-certificate", f"or client-key cannot be used: {_said(error)}", error)
        return trust

    def _source(self, user: _Entry, cluster: _Entry, *, has_certificate: bool) -> TokenSource:
        if "auth-provider" in user.values:
            provider = user.values["auth-provider"]
            name = provider.get("name") if isinstance(provider, dict) else None
            user.refuse(
                "auth-provider", f"{name!r} is not supported: use an exec plugin, a token or a client certificate"
            )
        token_file = user.path("tokenFile")
        if token_file is not None:
            return FileToken(token_file)
        if "token" in user.values:
            return _token(user)
        if "exec" in user.values:
            return self._plugin(user, cluster)
        username, password = user.text("username"), user.text("password")
        if username is not None or password is not None:
            if not username or password is None or ":" in username:
                user.refuse("username", "and password must be given together")
            return Fixed(Credential(basic(username, password)))
        if "tokenFile" in user.values:
            return Broken(f"{user.title}.tokenFile names no file")
        # A user without anything is a choice; one with a certificate has its credential in TLS.
        unknown = sorted(set(user.values) - _USER_KEYS)
        if unknown and not has_certificate:
            user.refuse(unknown[0], "is not a credential that is known")
        return Fixed(Credential())

    def _plugin(self, user: _Entry, cluster: _Entry) -> TokenSource:
        given = user.values["exec"]
        if not isinstance(given, dict):
            user.refuse("exec", "must be a mapping")
        entry = _Entry(self, f"{user.title}.exec", given, user.folder)
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
            command = str(user.folder / Path(command).expanduser())
        told = _cluster_info(cluster) if given.get("provideClusterInfo") is True else None
        plugin = Plugin(command, version, tuple(args), _environment(entry), told)
        return ExecToken(plugin, self.clock)


_USER_KEYS = frozenset({"as", "as-uid", "as-groups", "as-user-extra", "extensions", "client-certificate", "client-key"})


def _token(user: _Entry) -> TokenSource:
    token = user.values["token"]
    if token is not None and not isinstance(token, str):
        user.refuse("token", "must be text")
    try:
        return Fixed(Credential(bearer(token, f"{user.title}.token")))
    except TokenFailed as error:
        return Broken(str(error))


def _environment(entry: _Entry) -> dict[str, str]:
    given = entry.values.get("env") or []
    wanted: dict[str, str] = {}
    for each in given if isinstance(given, list) else [None]:
        name, value = (each.get("name"), each.get("value")) if isinstance(each, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            entry.refuse("env", "must be a list of names and values")
        wanted[name] = value
    return wanted


def _cluster_info(cluster: _Entry) -> dict[str, Any]:
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


def _impersonation(user: _Entry) -> dict[str, str]:
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
