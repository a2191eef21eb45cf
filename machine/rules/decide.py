"""The code never names an error: it states facts, and the table decides. This is where it asks, and where it raises."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dispatch_kubeflow.machine.errors import DispatchError, sentinels

from .model import FactError, Family, LifecycleTable, Rule, Tables, Vocabulary

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.lifecycle import Lifecycle

Graph = tuple[str, Mapping[str, Any]] | Rule
"""What is asked next, and what each answer leads to; or the rule that decides."""


class Rulebook:
    """The tables, ready to decide. Pure: the same facts give the same rule for ever. Thread-safe."""

    def __init__(self, tables: Tables, graphs: Mapping[str, Graph]) -> None:
        self.tables = tables
        self._graphs = graphs
        self._domains = {name: _domains(family) for name, family in tables.families.items()}
        self._defaults = {
            name: {each.name: each.default for each in family.inputs if each.default is not None}
            for name, family in tables.families.items()
        }
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

        A fact that no longer matters once the others are known may be left out; operation and mode, too. Raises
        FactError where the family, a fact or a value is not one of the tables', or a fact that matters is missing.
        """
        if operation is not None:
            facts["operation"] = operation
        if mode is not None:
            facts["mode"] = mode
        try:
            domains = self._domains[family]
            for name, value in facts.items():
                if value not in domains[name]:
                    raise FactError(f"{family}: {name} has no value {value!r}")
            if defaults := self._defaults[family]:
                facts = {**defaults, **facts}
            node: Any = self._graphs[family]
            while node.__class__ is tuple:
                node = node[1][facts[node[0]]]
        except KeyError as missing:
            raise FactError(f"{family}: {missing} is no such fact, or it is missing: {facts}") from missing
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
        message = (rule.message or "").format(**kept, subject=subject or "the call", operation=operation)
        kept.update({key: details[key] for key in rule.optional if details.get(key) is not None})
        error = self._sentinels[rule.sentinel](message, row=rule.id, operation=operation, subject=subject, details=kept)
        error.__cause__ = cause
        return error


def _domains(family: Family) -> dict[str, frozenset[str]]:
    domains = {each.name: frozenset(each.values) for each in family.inputs}
    # A family that does not depend on the operation, or the mode, takes any.
    return {
        **domains,
        "operation": frozenset(family.operations) if family.operations else _Anything(),
        "mode": frozenset(family.modes) if family.modes else _Anything(),
    }


class _Anything(frozenset[str]):
    def __contains__(self, value: object) -> bool:
        return True
