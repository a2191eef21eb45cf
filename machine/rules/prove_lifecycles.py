"""A lifecycle must have an answer for whatever is asked of whatever state, and must not contradict the tables.

`transitions` runs the machines, and checks none of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from .diagram import Diagram, describe, merged
from .load import Data, Loaded, several
from .model import Box, CheckedAgainst, Complaint, LifecycleTable, Tables
from .prove_words import OURS, unknown


class LifecycleProof:
    """What is wrong with one lifecycle."""

    def __init__(self, loaded: Loaded, name: str) -> None:
        self._loaded = loaded
        self._name = name
        self._file = loaded.lifecycle_files[name]
        self._data: Data = loaded.documents[self._file].data
        self._table: LifecycleTable = loaded.tables.lifecycles[name]
        self._states = [each.name for each in self._table.states]
        self._guards = {each.name: each.values for each in self._table.guards}

    def complaints(self) -> Iterator[Complaint]:
        """Names first; what they lead to only if they are right."""
        wrong = list(self._names())
        yield from wrong
        if not wrong:
            yield from self._answers()
            yield from self._reach()

    def _complain(self, path: tuple[str | int, ...], text: str, rule: str | None = None) -> Complaint:
        return self._loaded.complaint(self._file, path, text, rule)

    # Names.

    def _names(self) -> Iterator[Complaint]:
        table, operations = self._table, self._loaded.tables.vocabulary.operations
        if table.name != self._name:
            yield self._complain(("lifecycle",), f"the lifecycle {table.name} stands in the file of {self._name}")
        for operation in table.operations:
            if operation not in operations:
                yield self._complain(("operations",), unknown("operation", operation, operations))
        if not any(state.initial for state in table.states):
            yield self._complain(("states",), "no state is initial")
        for event in table.events:
            if event not in {edge.event for edge in table.edges}:
                yield self._complain(("events", event), f"no edge has the event {event}")
        yield from self._guard_names()
        for i, edge in enumerate(self._data["edges"]):
            yield from self._edge_names(i, edge)
        for i, refusal in enumerate(self._data.get("refusals", [])):
            yield from self._step_names(("refusals", i), refusal, refusal["rule"])
            if refusal["rule"] not in self._refusing_rules():
                text = f"no rule {refusal['rule']} that refuses"
                yield self._complain(("refusals", i, "rule"), text, refusal["rule"])

    def _guard_names(self) -> Iterator[Complaint]:
        boxes = [edge.when for edge in self._table.edges] + [refusal.when for refusal in self._table.refusals]
        used = {name for box in boxes for name in box}
        for guard in self._table.guards:
            path = ("guards", guard.name)
            if guard.default is not None and guard.default not in guard.values:
                yield self._complain(path, unknown("value", guard.default, guard.values))
            if guard.name not in used:
                yield self._complain(path, f"nothing asks for the guard {guard.name}")

    def _edge_names(self, i: int, edge: Data) -> Iterator[Complaint]:
        path, edge_id = ("edges", i), edge["id"]
        if not edge_id.startswith(f"{self._table.name}."):
            yield self._complain((*path, "id"), f"the id must begin with {self._table.name}.", edge_id)
        if edge["to"] not in (*self._states, "same"):
            yield self._complain((*path, "to"), unknown("state", edge["to"], self._states), edge_id)
        if "event" in edge and edge["event"] not in self._table.events:
            yield self._complain((*path, "event"), unknown("event", edge["event"], self._table.events), edge_id)
        if OURS in several(edge.get("spec", [])) and "reason" not in edge:
            yield self._complain((*path, "spec"), "an edge that is ours gives its reason", edge_id)
        yield from self._step_names(path, edge, edge_id)

    def _step_names(self, path: tuple[str | int, ...], step: Data, answer: str) -> Iterator[Complaint]:
        for state in several(step["from"]):
            if state not in self._states:
                yield self._complain((*path, "from"), unknown("state", state, self._states), answer)
        for operation in several(step.get("operation", [])):
            if operation not in self._table.operations:
                yield self._complain(
                    (*path, "operation"), unknown("operation", operation, self._table.operations), answer
                )
        for name, asked in step.get("when", {}).items():
            if name not in self._guards:
                yield self._complain((*path, "when", name), unknown("guard", name, self._guards), answer)
                continue
            for value in several(asked["not"] if isinstance(asked, dict) else asked):
                if value not in self._guards[name]:
                    text = unknown(f"value of {name}", value, self._guards[name])
                    yield self._complain((*path, "when", name), text, answer)

    def _refusing_rules(self) -> set[str]:
        families = self._loaded.tables.families.values()
        return {rule.id for family in families for rule in family.rules if rule.sentinel != "none"}

    # Each state answers each operation in each guard cell exactly once.

    def _answers(self) -> Iterator[Complaint]:
        for state, operation in product(self._states, self._table.operations):
            answers = _answers(self._table, state, operation)
            diagram = Diagram(self._guards, [box for _, box in answers])
            for winners in diagram.cells():
                if len(winners) == 1:
                    continue
                groups = "; ".join(describe(box, self._guards) for box in merged(diagram.boxes(winners), self._guards))
                cell = f"state={state} operation={operation}: {groups}"
                if not winners:
                    yield self._complain(("states", state), f"no edge and no refusal answers {cell}")
                    continue
                names = [answers[each][0] for each in winners]
                place = self._where(names[-1], state, operation)
                yield self._complain(place, f"{' and '.join(names)} both answer {cell}", names[-1])

    def _where(self, answer: str, state: str, operation: str) -> tuple[str | int, ...]:
        """Where the edge of this id, or the refusal by the rule of this id, answers so: the last place, if several."""
        places = [
            (key, i)
            for key, field in (("edges", "id"), ("refusals", "rule"))
            for i, entry in enumerate(self._data.get(key, []))
            if entry[field] == answer
            and state in several(entry["from"])
            and operation in several(entry.get("operation", []))
        ]
        return places[-1]

    # States that can be reached and left.

    def _reach(self) -> Iterator[Complaint]:
        reached = {state.name for state in self._table.states if state.initial}
        moves = {(edge.source, edge.to) for edge in self._table.edges if edge.source != edge.to}
        while more := {to for source, to in moves if source in reached} - reached:
            reached |= more
        sources = {source for source, _ in moves}
        for state in self._table.states:
            path = ("states", state.name)
            if state.name not in reached:
                yield self._complain(path, f"no edge leads to the state {state.name}")
            if state.name not in sources and not state.final:
                yield self._complain(path, f"no edge leaves the state {state.name}, and it is not final")
            if state.name in sources and state.final:
                yield self._complain(path, f"the state {state.name} is final, and an edge leaves it")

    # Agreement with a family.

    def contradictions(self, diagrams: Mapping[str, Diagram]) -> Iterator[Complaint]:
        """Where the family it is checked against refuses and this machine does not, or the other way round."""
        against = self._table.checked_against
        if against is None:
            return
        wrong = list(self._unknown_calm(against))
        yield from wrong
        if wrong:
            return
        family = self._loaded.tables.families[against.family]
        operations = [each for each in self._table.operations if each in family.operations]
        for state, operation in product(self._states, operations):
            for mode in _modes(self._loaded.tables, against):
                yield from self._compare(against, diagrams[against.family], state, operation, mode)

    def _unknown_calm(self, against: CheckedAgainst) -> Iterator[Complaint]:
        path = ("checked_against",)
        families = self._loaded.tables.families
        if against.family not in families:
            yield self._complain((*path, "family"), unknown("family", against.family, families))
            return
        inputs = {each.name: each.values for each in families[against.family].inputs}
        if against.state_input not in inputs:
            yield self._complain((*path, "state_input"), unknown("input", against.state_input, inputs))
            return
        for state in self._states:
            if state not in inputs[against.state_input]:
                text = unknown(f"value of {against.state_input}", state, inputs[against.state_input])
                yield self._complain((*path, "state_input"), text)
        known = {**inputs, "mode": families[against.family].modes}
        for name, value in against.calm.items():
            if name not in known or value not in known[name]:
                yield self._complain((*path, "calm", name), f"{against.family} has no {name}={value}")
        for name in inputs:
            if name not in (against.state_input, *self._guards, *against.calm):
                yield self._complain((*path, "calm"), f"does not say what is calm for {name}")

    def _compare(
        self, against: CheckedAgainst, diagram: Diagram, state: str, operation: str, mode: str | None
    ) -> Iterator[Complaint]:
        family = self._loaded.tables.families[against.family]
        inputs = {each.name for each in family.inputs}
        shared = [name for name in self._guards if name in inputs]
        answers = _answers(self._table, state, operation)
        for values in product(*self._guards.values()):
            cell = dict(zip(self._guards, values, strict=True))
            answer = next(name for name, box in answers if all(cell[each] in box[each] for each in box))
            facts = {**against.calm, against.state_input: state, **{name: cell[name] for name in shared}}
            facts |= {"operation": operation} | ({} if mode is None else {"mode": mode})
            rule = family.rules[diagram.look_up(facts)[0]]
            said = rule.id if rule.sentinel != "none" else None
            refused = answer if answer in self._refusing_rules() else None
            if said != refused:
                asked = {"state": state, "operation": operation, **cell, **({} if mode is None else {"mode": mode})}
                told = " ".join(f"{name}={value}" for name, value in asked.items())
                text = f"here {answer} answers {told}, in {against.family} {rule.id} does"
                yield self._complain(self._where(answer, state, operation), text, answer)


def _answers(table: LifecycleTable, state: str, operation: str) -> list[tuple[str, Box]]:
    """What may answer this operation in this state: edges by their ids, refusals by their rules'."""
    asked = state, operation
    edges = [(each.id, each.when) for each in table.edges if (each.source, each.operation) == asked]
    return edges + [(each.rule, each.when) for each in table.refusals if (each.source, each.operation) == asked]


def _modes(tables: Tables, against: CheckedAgainst) -> list[str | None]:
    if "mode" in against.calm:
        return [against.calm["mode"]]
    return [*tables.families[against.family].modes] or [None]
