"""What one Backend is and may do (page row C7). Read strictly: a misspelt bound that is ignored is a bound not kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from .extensions import RUNTIME_KINDS, RuntimeRef
from .identifiers import LONGEST_LABEL, LONGEST_SUBDOMAIN, is_dns_label, is_dns_subdomain
from .marked import is_number
from .strict import Source

MODES = ("plain", "kueue")
LEAST_CALL_BOUND = 60.0
"""The apiserver's own request timeout, in seconds: an unanswered create can commit until then."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one Backend; making one checks them all (ErrInvalid, naming key, value and rule).

    Times are in seconds. `runtimes` may be given as `Kind/name` texts. None means "not given".
    """

    name: str
    """The Backend's name, a DNS label; part of every reference and label."""
    namespace: str
    """The one namespace it works in."""
    runtimes: tuple[RuntimeRef, ...]
    """The runtimes that jobs may use, at least one; each may be given as a `Kind/name` text."""
    mode: Literal["plain", "kueue"] = "plain"
    """Whether Kueue admits the jobs."""
    queue: str | None = None
    """The LocalQueue: required in kueue mode, forbidden in plain mode."""
    admission_check: str | None = None
    """The AdmissionCheck that our controller answers for: required in kueue mode, forbidden in plain mode."""
    kubeconfig: str | None = None
    """Path of a kubeconfig; None: the official client's usual search."""
    context: str | None = None
    """Which context of the kubeconfig; None: its current one."""
    in_cluster: bool = False
    """Use the service account of the pod this runs in; not together with `kubeconfig` or `context`."""
    read_only: bool = False
    """Refuse every call that writes (ErrReadOnly)."""
    output_read: bool = True
    """Whether Output may read the logs of pods."""
    call_bound: float = 90.0
    """Seconds for which a create without an answer counts as in flight; at least 60."""
    request_timeout: float = 30.0
    """Seconds that one request may take, where the call's context does not end sooner."""
    workload_wait: float = 30.0
    """Seconds that Start waits for the job's Workload, in kueue mode."""
    stop_poll: float = 0.5
    """Seconds between two looks of StopJob while it waits for things to go."""

    def __post_init__(self) -> None:
        optional = {field.name for field in fields(self) if field.default is None}
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        source = Source("settings", "factory", {k: v for k, v in given.items() if v is not None or k not in optional})
        for name, value in _checked(source).items():
            object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, value: Settings | Mapping[str, Any] | str | os.PathLike[str]) -> Settings:
        """Settings from a mapping, or from the path of a YAML file. ErrInvalid, from a file with the line."""
        return value if isinstance(value, cls) else cls._of(Source.of("settings", value, operation="factory"))

    @classmethod
    def parse_yaml(cls, text: str) -> Settings:
        """Settings from YAML text; as `parse`."""
        return cls._of(Source.of_yaml("settings", text, operation="factory"))

    @classmethod
    def _of(cls, source: Source) -> Settings:
        known = fields(cls)
        source.check_keys([field.name for field in known], [field.name for field in known if field.default is MISSING])
        return cls(**_checked(source))


def _checked(source: Source) -> dict[str, Any]:
    """What the source gives, each key by its type and its rule, then the rules that join several."""
    checked = {key: _CHECKS[key](source, key, value) for key, value in source.data.items()}
    _check_together(source, checked)
    return checked


def _label(source: Source, key: str, value: object) -> str:
    text = _text(source, key, value)
    if not is_dns_label(text):
        source.refuse("rule", (key,), text, "a DNS label: lower-case letters, digits and '-', at most 63")
    return text


def _mode(source: Source, key: str, value: object) -> str:
    text = _text(source, key, value)
    if text not in MODES:
        source.refuse("rule", (key,), text, "plain or kueue")
    return text


def _object_name(source: Source, key: str, value: object) -> str:
    text = _text(source, key, value)
    # A queue's name becomes the value of a label.
    if not is_dns_subdomain(text) or (key == "queue" and len(text) > LONGEST_LABEL):
        longest = LONGEST_LABEL if key == "queue" else LONGEST_SUBDOMAIN
        source.refuse("rule", (key,), text, f"a Kubernetes object name of at most {longest} characters")
    return text


def _not_empty(source: Source, key: str, value: object) -> str:
    text = _text(source, key, os.fspath(value) if isinstance(value, os.PathLike) else value)
    if not text:
        source.refuse("rule", (key,), text, "not empty")
    return text


def _flag(source: Source, key: str, value: object) -> bool:
    if not isinstance(value, bool):
        source.refuse("type", (key,), value, "true or false")
    return value


def _text(source: Source, key: str, value: object) -> str:
    if not isinstance(value, str):
        source.refuse("type", (key,), value, "a string")
    return value


def _runtimes(source: Source, key: str, value: object) -> tuple[RuntimeRef, ...]:
    if not isinstance(value, list | tuple):
        source.refuse("type", (key,), value, "a list of Kind/name")
    if not value:
        source.refuse("rule", (key,), value, "at least one")
    runtimes: list[RuntimeRef] = []
    for i, each in enumerate(value):
        path = (key, i)
        if each is None:
            source.refuse("null", path, each, "Kind/name")
        if not isinstance(each, str | RuntimeRef):
            source.refuse("type", path, each, "a string, Kind/name")
        kind, _, name = str(each).partition("/")
        if kind not in RUNTIME_KINDS or not is_dns_subdomain(name):
            source.refuse("rule", path, str(each), f"Kind/name, where Kind is one of {', '.join(RUNTIME_KINDS)}")
        if RuntimeRef(kind, name) in runtimes:
            source.refuse("rule", path, str(each), "named once")
        runtimes.append(RuntimeRef(kind, name))
    return tuple(runtimes)


def _seconds(source: Source, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        source.refuse("type", (key,), value, "a number of seconds")
    if not is_number(value) or value <= 0:
        source.refuse("rule", (key,), value, "a finite number of seconds, more than 0")
    if key == "call_bound" and value < LEAST_CALL_BOUND:
        rule = f"at least {LEAST_CALL_BOUND:.0f} s, the apiserver's own request timeout"
        source.refuse("rule", (key,), value, rule)
    return float(value)


def _check_together(source: Source, checked: Mapping[str, Any]) -> None:
    kueue = checked.get("mode", "plain") == "kueue"
    for key in ("queue", "admission_check"):
        if kueue and key not in checked:
            source.refuse("missing-key", (key,), "missing", "it is required in kueue mode")
        if not kueue and key in checked:
            source.refuse("rule", (key,), checked[key], "given in kueue mode only")
    for key in ("kubeconfig", "context"):
        if checked.get("in_cluster", False) and key in checked:
            source.refuse("rule", (key,), checked[key], "not together with in_cluster")


_CHECKS: Mapping[str, Callable[[Source, str, object], Any]] = {
    "name": _label,
    "namespace": _label,
    "runtimes": _runtimes,
    "mode": _mode,
    "queue": _object_name,
    "admission_check": _object_name,
    "kubeconfig": _not_empty,
    "context": _not_empty,
    "in_cluster": _flag,
    "read_only": _flag,
    "output_read": _flag,
    "call_bound": _seconds,
    "request_timeout": _seconds,
    "workload_wait": _seconds,
    "stop_poll": _seconds,
}
