"""What a job is to run, said in the caller's words; checked whole before anything is created, for Trainer and JobSet
refuse much of it only after the TrainJob was accepted, and some of it never.

Values under `env`, `args` and `command` may be secret: they are never shown, in errors or in a repr.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from .extensions import EXTENSIONS, IMAGE, RUNTIME_REF, SHARED_CHECKPOINT, RuntimeRef, SharedCheckpoint
from .inputs import SECRET_KEYS, redacted, shown
from .job_limits import check_limits
from .marked import is_number
from .rules import rulebook
from .strict import Source, frozen, thawed


@dataclass(frozen=True, slots=True, repr=False)
class JobSpec:
    """One job: `nodes` pods, each running `command` with `args`.

    `resources` is what each node asks for, as a pod says it: `{"requests": {name: quantity}, "limits": {...}}`.
    `deadline_seconds` bounds how long each of its Jobs runs, from when its pods may start; a release begins anew.
    `extensions` hold the image, the runtime and a shared checkpoint.
    Making one checks the types (ErrInvalid); `check` checks the rest, and every call that takes one does so.
    """

    nodes: int
    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    procs_per_node: int | None = None
    resources: Mapping[str, Mapping[str, str | int | float]] = field(default_factory=dict)
    deadline_seconds: int | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        absent = ("procs_per_node", "deadline_seconds")
        source = Source("spec", "parse", {k: v for k, v in given.items() if v is not None or k not in absent})
        for name, value in _typed(source).items():
            object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, value: JobSpec | Mapping[str, Any] | str | os.PathLike[str], *, operation: str = "parse") -> JobSpec:
        """A specification from a mapping, or from the path of a YAML file.

        ErrInvalid for an unknown or missing key, a null or a wrong type, naming the key and, from a file, the line.
        """
        return value if isinstance(value, cls) else cls._of(Source.of("spec", value, operation=operation))

    @classmethod
    def parse_yaml(cls, text: str, *, operation: str = "parse") -> JobSpec:
        """A specification from YAML text; as `parse`."""
        return cls._of(Source.of_yaml("spec", text, operation=operation))

    @classmethod
    def _of(cls, source: Source) -> Self:
        source.check_keys([each.name for each in fields(cls)], ("nodes", "command"))
        return cls(**_typed(source))

    def check(self, *, operation: str, object_name: str | None = None) -> None:
        """Every limit of the contract (row C9 and ours), before anything is sent. ErrInvalid.

        With the name that its TrainJob will have, the length of the names of its pods too.
        """
        check_limits(self, operation=operation, object_name=object_name)

    def check_support(self, *, operation: str, mode: str | None = None) -> None:
        """ErrUnsupported for an extension that this adapter does not know (row C10)."""
        for key in self.extensions:
            if key not in EXTENSIONS:
                facts = {"problem": "extension"}
                details = {"key": key, "rule": f"the known ones are {', '.join(EXTENSIONS)}"}
                rulebook().settle("support", operation=operation, mode=mode, facts=facts, subject=key, details=details)

    @property
    def image(self) -> str:
        """The container image, of a checked specification."""
        return str(self.extensions[IMAGE])

    @property
    def runtime(self) -> RuntimeRef:
        """The runtime it names, of a checked specification."""
        given = self.extensions[RUNTIME_REF]
        return RuntimeRef(given["kind"], given["name"])

    @property
    def checkpoint(self) -> SharedCheckpoint | None:
        """Where its nodes share a checkpoint, of a checked specification."""
        given = self.extensions.get(SHARED_CHECKPOINT)
        return None if given is None else SharedCheckpoint(given["claim"], given["path"])

    def to_mapping(self) -> dict[str, Any]:
        """The specification as plain data that `parse` reads back; secrets included."""
        given = {each.name: thawed(getattr(self, each.name)) for each in fields(self)}
        return {key: value for key, value in given.items() if value not in (None, [], {}) or key == "command"}

    def __repr__(self) -> str:
        shown = []
        for each in fields(self):
            value = thawed(getattr(self, each.name))
            if each.name in SECRET_KEYS:
                value = _redacted(value)
            shown.append(f"{each.name}={value!r}")
        return f"JobSpec({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(thawed(getattr(self, each.name)) for each in fields(self))


def _redacted(value: dict[str, str] | list[str]) -> dict[str, str] | list[str]:
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}
    return [redacted(item) for item in value]


def _typed(source: Source) -> dict[str, Any]:
    """What the source gives, of the right types and read-only."""
    typed: dict[str, Any] = {}
    for key, value in source.data.items():
        match key:
            case "nodes" | "procs_per_node" | "deadline_seconds":
                if not isinstance(value, int) or isinstance(value, bool):
                    source.refuse("type", (key,), value, "a whole number")
            case "command" | "args":
                _check_texts(source, key, value)
            case _:
                _check_mapping(source, key, value)
        typed[key] = frozen(value)
    return typed


def _check_texts(source: Source, key: str, value: object) -> None:
    if not isinstance(value, list | tuple):
        source.refuse("type", (key,), value, "a list of strings")
    for i, item in enumerate(value):
        if item is None:
            source.refuse("null", (key, i), item, "a string")
        if not isinstance(item, str):
            source.refuse("type", (key, i), item, "a string; quote what YAML reads as something else")


def _check_mapping(source: Source, key: str, value: object) -> None:
    if not isinstance(value, Mapping):
        source.refuse("type", (key,), value, "a mapping")
    for name, item in value.items():
        if not isinstance(name, str):
            source.refuse("type", (key, shown(name)), name, "a mapping whose keys are strings")
        if item is None:
            source.refuse("null", (key, name), item, "give a value, or leave the key out")
        if key == "env" and not isinstance(item, str):
            source.refuse("type", (key, name), item, "a string; quote what YAML reads as something else")
        if key == "resources":
            _check_quantities(source, (key, name), item)


def _check_quantities(source: Source, path: tuple[str, str], value: object) -> None:
    if not isinstance(value, Mapping):
        source.refuse("type", path, value, "a mapping of resource names to quantities")
    for name, quantity in value.items():
        if quantity is None:
            source.refuse("null", (*path, name), quantity, "give a quantity, or leave the key out")
        if not isinstance(name, str) or not (isinstance(quantity, str) or is_number(quantity)):
            source.refuse(
                "type",
                (*path, name if isinstance(name, str) else shown(name)),
                quantity,
                "a quantity: a string or a number",
            )
