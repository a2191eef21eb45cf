"""A kubeconfig is read by the official client's own reader and merger, and judged here, whole, before anything is sent.

Its loader takes an unknown user for nobody, a failing plugin for none, an impersonation for a comment, and raises
whatever went wrong. Here each entry is either understood or refused by name: `AccessProblem` for what can never work,
a source that fails at each request for a user that is not there.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dispatch_kubeflow.machine.context import SystemClock

from .access import AccessProblem, ClusterAccess, Trust, environment_proxy
from .tokens import Broken, Credential, FileToken, Fixed, TokenSource
from .users import Entry, at_home, impersonation, said, source_of

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
    paths = [at_home(each) for each in searched.split(os.pathsep) if each]
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
        raise AccessProblem("in_cluster", "true", f"the pod's service account cannot be used: {said(error)}") from error
    return ClusterAccess(loaded.host, FileToken(Path(str(token_file))), trust, environment_proxy(loaded.host))


def _client(module: str) -> Any:
    # The official client is loaded with a configuration only: it takes three times as long as all else here.
    return importlib.import_module(module)


def _merged(searched: str, found: list[Path]) -> Any:
    reader = _client("kubernetes.config.kube_config")
    try:
        merged = reader.KubeConfigMerger(os.pathsep.join(map(str, found))).config
    except Exception as error:  # the reader raises whatever its YAML or its own assumptions give
        raise AccessProblem("kubeconfig", searched, f"cannot be read: {said(error)}") from error
    if not isinstance(getattr(merged, "value", None), dict):
        raise AccessProblem("kubeconfig", searched, "is not a kubeconfig")
    return merged


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
        if user is not None and trust.certificate is not None and not server.startswith("https:"):
            user.refuse("client-certificate", "is never seen by a server without TLS")
        source: TokenSource
        if user is not None:
            source = source_of(user, cluster, self.clock, has_certificate=trust.certificate is not None)
        elif user_name:
            source = Broken(f"the context {name!r} names the user {user_name!r}, who is not in the kubeconfig")
        else:
            source = Fixed(Credential())
        headers = impersonation(user) if user is not None else {}
        proxy = cluster.text("proxy-url") or environment_proxy(server)
        try:
            return ClusterAccess(server, source, trust, proxy, headers)
        except AccessProblem as problem:
            cluster.refuse(problem.key, problem.rule, problem)

    def _entry(self, section: str, kind: str, name: str | None) -> Entry | None:
        if not name or not self.merged.value.get(section):
            return None
        try:
            found = self.merged[section].get_with_name(name, safe=True)
        except Exception as error:  # as above
            raise AccessProblem("kubeconfig", self.searched, f"{section} cannot be read: {said(error)}") from error
        if found is None:
            return None
        values = found.value.get(kind)
        if values is not None and not isinstance(values, dict):
            raise AccessProblem("kubeconfig", self.searched, f"{section}[{name}].{kind} must be a mapping")
        return Entry(
            self.searched, f"{section}[{name}].{kind}", values or {}, Path(found.path or ".").absolute().parent
        )

    def _trust(self, cluster: Entry, user: Entry | None) -> Trust:
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
        if authorities is not None:
            try:
                Trust(authorities).context()
            except (OSError, ValueError) as error:
                cluster.refuse("certificate-authority", f"cannot be used: {said(error)}", error)
        trust = Trust(authorities, verify=not skip, server_name=name, certificate=pair)
        if user is not None and pair is not None:
            try:
                trust.context()
            except (OSError, ValueError) as error:
                user.refuse("client-certificate", f"or client-key cannot be used: {said(error)}", error)
        return trust
