"""What one Backend is and may do (page row C7). Read strictly: a misspelt bound that is ignored is a bound not kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from .identifiers import LONGEST_LABEL, is_dns_label, is_dns_subdomain
from .extensions import RUNTIME_KINDS, RuntimeRef
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
    namespace: str
    runtimes: tuple[RuntimeRef, ...]
    mode: Literal["plain", "kueue"] = "plain"
    queue: str | None = None
    admission_check: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    in_cluster: bool = False
    read_only: bool = False
    output_read: bool = True
    call_bound: float = 90.0
    request_timeout: float = 30.0
    workload_wait: float = 30.0
    stop_poll: float = 0.5

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
    checked: dict[str, Any] = {}
    for key, value in source.data.items():
        match key:
            case "name" | "namespace":
                checked[key] = _text(source, key, value)
                if not is_dns_label(value):
                    source.refuse("rule", (key,), value, "a DNS label: lower-case letters, digits and '-', at most 63")
            case "runtimes":
                checked[key] = _runtimes(source, value)
            case "mode":
                checked[key] = _text(source, key, value)
                if value not in MODES:
                    source.refuse("rule", (key,), value, "plain or kueue")
            case "queue" | "admission_check":
                checked[key] = _text(source, key, value)
                if not is_dns_subdomain(value) or (key == "queue" and len(value) > LONGEST_LABEL):
                    source.refuse("rule", (key,), value, "the name of a Kubernetes object (a queue's is a label value)")
            case "kubeconfig" | "context":
                checked[key] = _text(source, key, os.fspath(value) if isinstance(value, os.PathLike) else value)
                if not value:
                    source.refuse("rule", (key,), value, "not empty")
            case "in_cluster" | "read_only" | "output_read":
                if not isinstance(value, bool):
                    source.refuse("type", (key,), value, "true or false")
                checked[key] = value
            case _:
                checked[key] = _seconds(source, key, value)
    _check_together(source, checked)
    return checked


def _text(source: Source, key: str, value: object) -> str:
    if not isinstance(value, str):
        source.refuse("type", (key,), value, "a string")
    return value


def _runtimes(source: Source, value: object) -> tuple[RuntimeRef, ...]:
    if not isinstance(value, list | tuple):
        source.refuse("type", ("runtimes",), value, "a list of Kind/name")
    if not value:
        source.refuse("rule", ("runtimes",), value, "at least one")
    runtimes: list[RuntimeRef] = []
    for i, each in enumerate(value):
        path = ("runtimes", i)
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
