"""Processes of one machine share one network, so each pod gets a loopback address of its own and names become
addresses.

Nothing is resolved: no `/etc/hosts` is written and no resolver runs. Instead the values of a pod's environment that
name a pod of its own headless Service (`HOSTNAME.SUBDOMAIN`, with or without the cluster's suffix and a port) are
rewritten to that pod's address before the process starts. Two limits follow. A process that builds such a name itself
cannot resolve it. And a server that listens on all addresses, not on its pod's, takes its port from every pod of the
machine.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

Object = dict[str, Any]

_NAME = r"(?P<host>[a-z0-9]([-a-z0-9]*[a-z0-9])?)\.(?P<domain>[a-z0-9]([-a-z0-9]*[a-z0-9])?)"
_SUFFIX = r"(\.(?P<namespace>[a-z0-9]([-a-z0-9]*[a-z0-9])?)(\.svc(\.cluster\.local)?)?)?"
_VALUE = re.compile(rf"(?P<scheme>[a-z]+://)?{_NAME}{_SUFFIX}(?P<port>:\d+)?")


class Addresses:
    """Addresses of 127.0.0.0/8 for pods, by namespace, subdomain and hostname while a pod of that name lives."""

    def __init__(self) -> None:
        # Clusters on one machine start at different places, so they seldom meet.
        self._next = (64 + secrets.randbelow(128)) << 16 | secrets.randbelow(256) << 8 | 2
        self._by_name: dict[tuple[str, str, str], str] = {}
        self._taken: dict[tuple[str, str, str], str] = {}

    def _fresh(self) -> str:
        number = self._next
        self._next += 1 if number & 255 != 254 else 4
        return f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def take(self, pod: Object) -> str:
        """The pod's own address: the one promised to its name, unless another living pod of that name has it."""
        name, uid = _name(pod), pod["metadata"]["uid"]
        if name is None:
            return self._fresh()
        if name in self._taken:
            self._by_name[name] = self._fresh()
        address = self._by_name.setdefault(name, self._fresh())
        self._taken[name] = uid
        return address

    def release(self, pod: Object) -> None:
        """The pod is over; its name is free for the next generation, which gets another address."""
        name = _name(pod)
        if name is not None and self._taken.get(name) == pod["metadata"]["uid"]:
            del self._taken[name]
            self._by_name.pop(name, None)

    def resolved(self, pod: Object, text: str) -> str:
        """`text` with the name of a pod of the same Service put into an address; anything else unchanged."""
        match = _VALUE.fullmatch(text)
        domain = pod["spec"].get("subdomain")
        namespace = pod["metadata"]["namespace"]
        if match is None or match["domain"] != domain or match["namespace"] not in (None, namespace):
            return text
        address = self._by_name.setdefault((namespace, domain, match["host"]), self._fresh())
        return f"{match['scheme'] or ''}{address}{match['port'] or ''}"


def _name(pod: Object) -> tuple[str, str, str] | None:
    spec = pod["spec"]
    if not spec.get("hostname") or not spec.get("subdomain"):
        return None
    return pod["metadata"]["namespace"], spec["subdomain"], spec["hostname"]
