"""What may be asked of an object depends on the state it is in. The machines that say so are tables, run by
`transitions`; nothing of them is written here.

A machine's state is always read from the cluster, never remembered: `answer` is asked of a state, and moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transitions import EventData, Machine

from .rules.model import Box, Edge, FactError, LifecycleTable, Rule, Tables


class Subject:
    """What a machine runs on: something in a state, and what answered the last time it was asked."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.answered: Edge | Rule | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One transition as `transitions` takes it; without `to` an internal one."""

    trigger: str
    source: str
    to: str | None
    when: Box


class Lifecycle:
    """One lifecycle, ready to be asked."""

    def __init__(self, table: LifecycleTable, tables: Tables) -> None:
        self.table = table
        self._guards = {each.name: frozenset(each.values) for each in table.guards}
        self._defaults = {each.name: each.default for each in table.guards if each.default is not None}
        self._tables = tables
        self._machine = self.machine()

    @property
    def initial(self) -> str:
        """The state it begins in; the first, where there are several."""
        return next(state.name for state in self.table.states if state.initial)

    def machine(self, model: Any = None) -> Machine:
        """The real machine of `transitions`, for this model or for none: operations and events are its triggers.

        A refusal is an internal transition: it leaves the state alone. What answered is the model's `answered`.
        """
        machine = Machine(
            model=model,
            states=[state.name for state in self.table.states],
            initial=self.initial,
            auto_transitions=False,
            send_event=True,
            ignore_invalid_triggers=model is None,
        )
        for edge in self.table.edges:
            self._add(machine, Move(edge.operation or str(edge.event), edge.source, edge.to, edge.when), edge)
        for refusal in self.table.refusals:
            move = Move(refusal.operation, refusal.source, None, refusal.when)
            self._add(machine, move, self._tables.rule(refusal.rule))
        return machine

    def answer(self, state: str, operation: str, **guards: str) -> Edge | Rule:
        """What this operation (or event) does in this state: the edge it takes, or the rule that refuses it.

        Raises FactError for a state, operation, guard or value that the table does not have, a guard that matters and
        is missing, and an event that the state does not have.
        """
        if operation not in self._machine.events:
            raise FactError(f"{self.table.name}: no operation or event {operation!r}")
        subject = Subject(self._known(state))
        # The machine's own event, and no model registered with it: many threads may ask at once.
        self._machine.events[operation].trigger(subject, **guards)
        if subject.answered is None:
            raise FactError(f"{self.table.name}: nothing answers {operation} in {state} with {guards}")
        return subject.answered

    def _known(self, state: str) -> str:
        if state not in self._machine.states:
            raise FactError(f"{self.table.name}: no state {state!r}")
        return state

    def _add(self, machine: Machine, move: Move, answer: Edge | Rule) -> None:
        def note(event: EventData) -> None:
            model: Any = event.model
            model.answered = answer

        machine.add_transition(move.trigger, move.source, move.to, conditions=self._condition(move.when), before=note)

    def _condition(self, when: Box) -> Callable[[EventData], bool]:
        def holds(event: EventData) -> bool:
            given = {**self._defaults, **event.kwargs}
            for name, value in event.kwargs.items():
                if name not in self._guards or value not in self._guards[name]:
                    raise FactError(f"{self.table.name}: no guard {name}={value!r}")
            missing = [name for name in when if name not in given]
            if missing:
                raise FactError(f"{self.table.name}: {event.event.name} in {event.state.name} needs {missing[0]}")
            return all(given[name] in values for name, values in when.items())

        return holds
