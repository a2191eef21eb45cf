"""A call must act on the very object its caller saw, so a reference carries the UID, and survives being written down.

As text it is a URL, `kubeflow://BACKEND/NAMESPACE/KIND/NAME?uid=UID`; calls take either form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import quote, unquote

from .identifiers import is_dns_label, is_dns_subdomain
from .inputs import refuse, shown

REFERENCE_KINDS = ("TrainJob", "TrainingRuntime", "JobSet", "Job", "Pod")
"""TrainingRuntime is a runtime copy of ours."""

_FORM = "kubeflow://BACKEND/NAMESPACE/KIND/NAME?uid=UID"
_URL = re.compile(r"kubeflow://([^/?#]*)/([^/?#]*)/([^/?#]*)/([^/?#]*)(?:\?uid=([^&#?=]*))?")
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]{0,127}")


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One instance of one object: the Backend's name, the namespace, kind, name and UID. All of it is text."""

    backend: str
    namespace: str
    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        path = "/".join(_quoted(part) for part in (self.backend, self.namespace, self.kind, self.name))
        return f"kubeflow://{path}?uid={_quoted(self.uid)}"

    @classmethod
    def parse(cls, value: ObjectRef | str, *, operation: str = "parse") -> ObjectRef:
        """Read a reference from its URL, or check one. ErrInvalid where it is malformed or has no UID (row C18)."""
        if isinstance(value, cls):
            reference = value
        else:
            match = _URL.fullmatch(value) if isinstance(value, str) else None
            if match is None:
                refuse("reference-malformed", operation=operation, key="ref", value=value, rule=f"the form is {_FORM}")
            reference = cls(*(unquote(part or "") for part in match.groups()))
        _check(reference, operation)
        return reference


def _quoted(part: object) -> str:
    # Errors show references that are not valid, too, so this takes whatever stands there.
    return quote(part if isinstance(part, str) else shown(part), safe="", errors="surrogatepass")


def check_reference(value: ObjectRef | str, *, backend: str, operation: str) -> ObjectRef:
    """A reference of the Backend of this name. ErrInvalid (row C18) if it is malformed or another's."""
    reference = ObjectRef.parse(value, operation=operation)
    if reference.backend != backend:
        rule = f"this Backend is {backend}"
        refuse(
            "reference-other-backend",
            operation=operation,
            key="ref.backend",
            value=reference.backend,
            rule=rule,
            subject=str(reference),
        )
    return reference


def _check(reference: ObjectRef, operation: str) -> None:
    # Nothing keeps a caller from making one of whatever it has.
    parts: list[tuple[str, object, Callable[[str], bool], str]] = [
        ("backend", reference.backend, is_dns_label, "a DNS label"),
        ("namespace", reference.namespace, is_dns_label, "a DNS label"),
        ("name", reference.name, is_dns_subdomain, "a Kubernetes object name"),
    ]
    for key, part, valid, rule in parts:
        if not isinstance(part, str) or not valid(part):
            _refuse("reference-malformed", f"ref.{key}", part, f"its {key} must be {rule}", operation)
    if reference.kind not in REFERENCE_KINDS:
        _refuse("reference-kind", "ref.kind", reference.kind, f"one of {', '.join(REFERENCE_KINDS)}", operation)
    uid: object = reference.uid
    if uid in ("", None):
        _refuse("reference-no-uid", "ref.uid", str(reference), "a reference carries the UID of its object", operation)
    if not isinstance(uid, str) or not _UID.fullmatch(uid):
        _refuse("reference-malformed", "ref.uid", uid, "its uid must be a Kubernetes UID", operation)


def _refuse(problem: str, key: str, value: object, rule: str, operation: str) -> NoReturn:
    refuse(problem, operation=operation, key=key, value=value, rule=rule)
