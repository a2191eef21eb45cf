"""A copy is made safe by writing into every level of a runtime, so each of them must be what a runtime has there: a
cluster's own schema sees to that, and whatever else answers in its place does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from .digest import plain

_FAULT = re.compile(r"Expected `(.*?)`, got `(.*?)`(?: - at `\$\.?(.*)`)?")


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """The common form of every struct here: what is absent is no fault."""


class _Metadata(_Part, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Variable(_Part, frozen=True):
    name: str = ""


class _Container(_Part, frozen=True):
    name: str = ""
    env: list[_Variable] = []


class _PodSpec(_Part, frozen=True):
    init_containers: list[_Container] = []
    containers: list[_Container] = []


class _PodTemplate(_Part, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()


class _JobSpec(_Part, frozen=True):
    active_deadline_seconds: int | None = None
    template: _PodTemplate = _PodTemplate()


class _JobTemplate(_Part, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _JobSpec = _JobSpec()


class _ReplicatedJob(_Part, frozen=True):
    name: str = ""
    template: _JobTemplate = _JobTemplate()


class _JobSetSpec(_Part, frozen=True):
    replicated_jobs: list[_ReplicatedJob] = []


class _JobSetTemplate(_Part, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _JobSetSpec = _JobSetSpec()


class _Runtime(_Part, frozen=True):
    template: _JobSetTemplate = _JobSetTemplate()


def fault(spec: Mapping[str, Any]) -> tuple[str, str] | None:
    """Where a runtime's spec is not of a runtime's form, and what stands there in place of what; None if nowhere.

    Nulls are taken for absent, as a server takes them.
    """
    try:
        msgspec.convert(plain(spec), _Runtime)
    except msgspec.ValidationError as error:
        found = _FAULT.fullmatch(str(error))
        assert found is not None, "nothing here can be missing"
        return found[3] or "", f"{found[2]}, not {found[1]}"
    return None
