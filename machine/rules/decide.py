"""The code never names an error: it states facts, and the table decides. This is where it asks, and where it raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dispatch_kubeflow.machine.errors import DispatchError, sentinels

from .model import FactError, Family, LifecycleTable, Rule, Tables, Vocabulary

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.lifecycle import Lifecycle

Graph = tuple[str, Mapping[str, Any]] | Rule
"""What is asked next, and what each answer leads to; or the rule that decides."""

_MOST_SAID = 8
"""Of a detail that is a list, how many a message spells out; the details have them all."""


class Rulebook:
    """The tables, ready to decide. Pure: the same facts give the same rule for ever. Thread-safe."""

    def __init__(self, tables: Tables, graphs: Mapping[str, Graph]) -> None:
        self.tables = tables
        self._asked = {name: _asked(family, graphs[name]) for name, family in tables.families.items()}
        self._sentinels = sentinels()
        self._lifecycles: dict[str, Lifecycle] = {}

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of the tables, with their meanings."""
        return self.tables.vocabulary

    @property
    def families(self) -> Mapping[str, Family]:
        """Every table, by name."""
        return self.tables.families

    @property
    def lifecycles(self) -> Mapping[str, LifecycleTable]:
        """Every lifecycle's table, by name."""
        return self.tables.lifecycles

    def decide(self, family: str, /, *, operation: str | None = None, mode: str | None = None, **facts: str) -> Rule:
        """The one rule for these facts.

        They are asked in the table's order: operation, mode, then the inputs. One that no longer matters once those
        before it are known may be left out. Raises FactError where the family, a fact or a value is not one of the
        tables', or a fact that is asked for is missing.
        """
        asked = self._asked.get(family)
        if asked is None:
            raise FactError(f"no family {family!r}")
        if operation is not None and asked.operations:
            facts["operation"] = operation
        if mode is not None and asked.modes:
            facts["mode"] = mode
        domains = asked.domains
        for name, value in facts.items():
            if name not in domains or value not in domains[name]:
                raise FactError(f"{family} has no {name}={value!r}")
        if asked.defaults:
            facts = {**asked.defaults, **facts}
        node: Any = asked.graph
        try:
            while node.__class__ is tuple:
                node = node[1][facts[node[0]]]
        except KeyError as missing:
            raise FactError(f"{family} must be told {missing}, too: {facts}") from missing
        rule: Rule = node
        return rule

    def error(
        self,
        family: str,
        /,
        *,
        operation: str,
        mode: str | None = None,
        facts: Mapping[str, str],
        subject: str | None = None,
        details: Mapping[str, Any] = MappingProxyType({}),
        cause: BaseException | None = None,
    ) -> DispatchError | None:
        """The error these facts mean, not raised; None where the rule refuses nothing. As `settle`."""
        return self._error(
            self.decide(family, operation=operation, mode=mode, **facts), operation, subject, details, cause
        )

    def settle(
        self,
        family: str,
        /,
        *,
        operation: str,
        mode: str | None = None,
        facts: Mapping[str, str],
        subject: str | None = None,
        details: Mapping[str, Any] = MappingProxyType({}),
        cause: BaseException | None = None,
    ) -> Rule:
        """Raise the error these facts mean, or return the rule where it refuses nothing.

        Of `details` the error keeps exactly the keys its rule lists; those that are None count as not known, and only
        an optional key may be so without a FactError if it is not given at all.
        """
        rule = self.decide(family, operation=operation, mode=mode, **facts)
        error = self._error(rule, operation, subject, details, cause)
        if error is not None:
            raise error from cause
        return rule

    def lifecycle(self, name: str) -> Lifecycle:
        """The lifecycle of this name, run by `transitions`. Raises FactError."""
        from dispatch_kubeflow.machine.lifecycle import Lifecycle  # noqa: PLC0415 - `transitions` is slow to import

        if name not in self._lifecycles:
            if name not in self.tables.lifecycles:
                raise FactError(f"no lifecycle {name!r}")
            self._lifecycles[name] = Lifecycle(self.tables.lifecycles[name], self.tables)
        return self._lifecycles[name]

    def _error(
        self,
        rule: Rule,
        operation: str,
        subject: str | None,
        details: Mapping[str, Any],
        cause: BaseException | None,
    ) -> DispatchError | None:
        if rule.sentinel == "none":
            return None
        kept: dict[str, Any] = {}
        for key in rule.required:
            if key not in details:
                raise FactError(f"{rule.id}: the detail {key} was not given")
            kept[key] = details[key]
        said = {key: _said(value) for key, value in kept.items()}
        message = (rule.message or "").format(**said, subject=subject or "the call", operation=operation)
        kept.update({key: details[key] for key in rule.optional if details.get(key) is not None})
        error = self._sentinels[rule.sentinel](message, row=rule.id, operation=operation, subject=subject, details=kept)
        error.__cause__ = cause
        return error


def _said(value: object) -> object:
    """A detail as a sentence has it: the first of many, and how many more there are."""
    if not isinstance(value, tuple | list):
        return value
    shown = ", ".join(map(str, value[:_MOST_SAID]))
    return shown if len(value) <= _MOST_SAID else f"{shown} and {len(value) - _MOST_SAID} more"


@dataclass(frozen=True)
class _Asked:
    """What one family may be asked, and its graph. Whether it depends on the operation and the mode, too."""

    graph: Graph
    domains: Mapping[str, frozenset[str]]
    defaults: Mapping[str, str]
    operations: bool
    modes: bool


def _asked(family: Family, graph: Graph) -> _Asked:
    axes = {"operation": family.operations, "mode": family.modes, **{each.name: each.values for each in family.inputs}}
    return _Asked(
        graph=graph,
        domains={name: frozenset(values) for name, values in axes.items()},
        defaults={each.name: each.default for each in family.inputs if each.default is not None},
        operations=bool(family.operations),
        modes=bool(family.modes),
    )
