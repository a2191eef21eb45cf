"""What a table says, as values: the same whether it came from YAML or from the compiled file, and free of both.

Without slots, which make a class twice: there are many, and importing the package must be quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Box = Mapping[str, tuple[str, ...]]
"""What a rule asks of each input: the values it allows. An input that is absent may have any."""


@dataclass(frozen=True)
class Complaint:
    """One thing wrong with the tables: where (line and column count from 1), by which rule, and what."""

    file: str
    line: int
    column: int
    rule: str | None
    text: str

    def __str__(self) -> str:
        rule = f" {self.rule}:" if self.rule else ""
        return f"{self.file}:{self.line}:{self.column}:{rule} {self.text}"


class TablesError(Exception):
    """The tables cannot be used; all that is wrong with them, in the order of files and lines. Bad tables never load
    half.
    """

    def __init__(self, complaints: tuple[Complaint, ...]) -> None:
        super().__init__(complaints)
        self.complaints = complaints

    def __str__(self) -> str:
        return "\n".join(map(str, self.complaints))


class FactError(LookupError):
    """The code asked the tables in words they do not have: a defect of the code, and no outcome of any call."""


@dataclass(frozen=True)
class Rule:
    """One row of one table.

    `sentinel` is "none" where it refuses nothing. `details` are the keys its error has, `key?` where it may be unknown.
    `gives` is the value of a family that classifies.
    """

    id: str
    family: str
    spec: tuple[str, ...]
    stage: str
    operations: tuple[str, ...]
    modes: tuple[str, ...]
    when: Box
    sentinel: str
    message: str | None = None
    concludes: str | None = None
    effects: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    gives: str | None = None
    reason: str | None = None
    yields_to: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """The details that are always there."""
        return tuple(key for key in self.details if not key.endswith("?"))

    @property
    def optional(self) -> tuple[str, ...]:
        """The details that are there where they are known."""
        return tuple(key[:-1] for key in self.details if key.endswith("?"))


@dataclass(frozen=True)
class Input:
    """One fact a family asks for, and every value it can have. `default` stands for a fact that is not given."""

    name: str
    values: tuple[str, ...]
    means: str
    default: str | None = None


@dataclass(frozen=True)
class Output:
    """What a family that classifies gives, and every value that can be."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Family:
    """One table: its inputs, its rules. One that declares no modes (or operations) does not depend on them."""

    name: str
    about: str
    operations: tuple[str, ...]
    modes: tuple[str, ...]
    inputs: tuple[Input, ...]
    rules: tuple[Rule, ...]
    output: Output | None = None


@dataclass(frozen=True)
class Edge:
    """One way from a state to another, by an operation or by an event (a move the cluster makes)."""

    id: str
    source: str
    to: str
    when: Box
    operation: str | None = None
    event: str | None = None
    does: str | None = None
    spec: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Refusal:
    """Where a lifecycle says no, and by which rule of the tables."""

    operation: str
    source: str
    when: Box
    rule: str


@dataclass(frozen=True)
class State:
    """A state of a lifecycle; `final` ones are meant to have no way out."""

    name: str
    means: str
    initial: bool = False
    final: bool = False


@dataclass(frozen=True)
class CheckedAgainst:
    """The family that must refuse exactly where the lifecycle refuses, all else being `calm`."""

    family: str
    state_input: str
    calm: Mapping[str, str]


@dataclass(frozen=True)
class LifecycleTable:
    """One lifecycle: states, what is asked of them, and what moves them."""

    name: str
    about: str
    states: tuple[State, ...]
    operations: tuple[str, ...]
    guards: tuple[Input, ...]
    events: Mapping[str, str]
    edges: tuple[Edge, ...]
    refusals: tuple[Refusal, ...]
    checked_against: CheckedAgainst | None = None


@dataclass(frozen=True)
class Sentinel:
    """An error class as the vocabulary describes it: what it means, and what its caller may do next."""

    name: str
    parent: str
    means: str
    next: str


@dataclass(frozen=True)
class Operation:
    """A call. `verb` is read, write or local; a hold-family call needs a deadline (row A12)."""

    name: str
    verb: str
    means: str
    hold_family: bool = False


@dataclass(frozen=True)
class Conclusion:
    """What a caller may now believe, and do next."""

    name: str
    means: str
    next: str


@dataclass(frozen=True)
class Vocabulary:
    """The words that every table is written in, each with its meaning."""

    sentinels: Mapping[str, Sentinel]
    operations: Mapping[str, Operation]
    modes: Mapping[str, str]
    stages: Mapping[str, str]
    concludes: Mapping[str, Conclusion]
    effects: Mapping[str, str]
    details: Mapping[str, str]


@dataclass(frozen=True)
class Tables:
    """All of it."""

    vocabulary: Vocabulary
    families: Mapping[str, Family]
    lifecycles: Mapping[str, LifecycleTable]
    page_rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The sentences of the specification page, by row."""

    def rule(self, rule_id: str) -> Rule:
        """The rule of this id. Raises FactError."""
        for family in self.families.values():
            for rule in family.rules:
                if rule.id == rule_id:
                    return rule
        raise FactError(f"no rule {rule_id}")
