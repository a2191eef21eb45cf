"""Every word of a table must be a word of the vocabulary, or of the table itself; and every word must be of use.

A misspelt name is the quietest way for a rule to be dead.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from dispatch_kubeflow.machine.errors import sentinels

from .load import VOCABULARY, Data, Loaded, several
from .model import Complaint

ALWAYS_GIVEN = ("subject", "operation")
"""What a message may name beside its rule's details."""
OURS = "ours"
RESERVED_INPUTS = ("operation", "mode")


def words(loaded: Loaded) -> Iterator[Complaint]:
    """Unknown names, wrong ids, missing reasons, messages that can't be filled, words without use."""
    yield from _sentinels(loaded)
    for name, file in loaded.family_files.items():
        yield from FamilyWords(loaded, name, file).complaints()
    yield from _ids(loaded)
    yield from _unused(loaded)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """How an unknown name is told."""
    return f"unknown {kind} {name!r}; the known ones are {', '.join(known) or 'none'}"


class FamilyWords:
    """What is wrong with the words of one family."""

    def __init__(self, loaded: Loaded, name: str, file: str) -> None:
        self._loaded = loaded
        self._name = name
        self._file = file
        self._data: Data = loaded.documents[file].data
        self._family = loaded.tables.families[name]
        self._values = {each.name: each.values for each in self._family.inputs}

    def complaints(self) -> Iterator[Complaint]:
        """All of it."""
        if self._family.name != self._name:
            yield self._complain(("family",), f"the family {self._family.name} stands in the file of {self._name}")
        yield from self.of_cells()
        for i, rule in enumerate(self._data["rules"]):
            yield from self._rule(i, rule)

    def of_cells(self) -> Iterator[Complaint]:
        """The words that say which cells there are, and which a rule speaks of."""
        vocabulary = self._loaded.tables.vocabulary
        yield from self._known(("operations",), "operation", self._family.operations, vocabulary.operations)
        yield from self._known(("modes",), "mode", self._family.modes, vocabulary.modes)
        yield from self._inputs()
        for i, rule in enumerate(self._data["rules"]):
            for key, known in (("operations", self._family.operations), ("modes", self._family.modes)):
                names = [name for name in several(rule.get(key, [])) if name != "all"]
                yield from self._known(("rules", i, key), key[:-1], names, known, rule["id"])
            yield from self._conditions(i, rule)

    def _complain(self, path: tuple[str | int, ...], text: str, rule: str | None = None) -> Complaint:
        return self._loaded.complaint(self._file, path, text, rule)

    def _known(
        self,
        path: tuple[str | int, ...],
        kind: str,
        names: Iterable[str],
        known: Iterable[str],
        rule: str | None = None,
    ) -> Iterator[Complaint]:
        known = list(known)
        for name in names:
            if name not in known:
                yield self._complain(path, unknown(kind, name, known), rule)

    def _inputs(self) -> Iterator[Complaint]:
        asked = {name for rule in self._family.rules for name in rule.when}
        for each in self._family.inputs:
            path = ("inputs", each.name)
            if each.name in RESERVED_INPUTS:
                yield self._complain(path, f"an input can't be named {each.name}, which every family has")
            if each.default is not None and each.default not in each.values:
                yield self._complain((*path, "default"), unknown("value", each.default, each.values))
            if each.name not in asked:
                yield self._complain(path, f"no rule asks for the input {each.name}")

    def _rule(self, i: int, data: Data) -> Iterator[Complaint]:
        rule_id, vocabulary = data["id"], self._loaded.tables.vocabulary
        path = ("rules", i)
        if not rule_id.startswith(f"{self._family.name}."):
            yield self._complain((*path, "id"), f"the id must begin with {self._family.name}.", rule_id)
        vocabularies: list[tuple[str, str, Iterable[str]]] = [
            ("stage", "stage", vocabulary.stages),
            ("sentinel", "sentinel", ["none", *vocabulary.sentinels]),
            ("concludes", "conclusion", vocabulary.concludes),
            ("effects", "effect", vocabulary.effects),
        ]
        for key, kind, known in vocabularies:
            yield from self._known((*path, key), kind, several(data.get(key, [])), known, rule_id)
        details = [key.removesuffix("?") for key in data.get("details", [])]
        yield from self._known((*path, "details"), "detail", details, vocabulary.details, rule_id)
        yield from self._citation(path, data)
        yield from self._gives(i, data)
        yield from self._message(i, data)

    def _conditions(self, i: int, data: Data) -> Iterator[Complaint]:
        for name, asked in data.get("when", {}).items():
            path = ("rules", i, "when", name)
            if name not in self._values:
                yield self._complain(path, unknown("input", name, self._values), data["id"])
                continue
            values = several(asked["not"] if isinstance(asked, dict) else asked)
            yield from self._known(path, f"value of {name}", values, self._values[name], data["id"])
            if isinstance(asked, dict) and set(values) >= set(self._values[name]):
                yield self._complain(path, f"leaves no value of {name}", data["id"])

    def _citation(self, path: tuple[str | int, ...], data: Data) -> Iterator[Complaint]:
        if OURS in several(data["spec"]) and "reason" not in data:
            yield self._complain((*path, "spec"), "a rule that is ours gives its reason", data["id"])

    def _gives(self, i: int, data: Data) -> Iterator[Complaint]:
        output, path = self._family.output, ("rules", i, "gives")
        if output is None and "gives" in data:
            yield self._complain(path, "gives a value, and the family declares no output", data["id"])
        elif output is not None and "gives" in data:
            yield from self._known(path, f"value of {output.name}", [data["gives"]], output.values, data["id"])
        elif output is not None and data["sentinel"] == "none":
            yield self._complain(path, f"gives no {output.name}", data["id"])

    def _message(self, i: int, data: Data) -> Iterator[Complaint]:
        path = ("rules", i, "message")
        required = [key for key in data.get("details", []) if not key.endswith("?")]
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(data.get("message", ""))]
        except ValueError as failure:
            yield self._complain(path, f"the message is malformed: {failure}", data["id"])
            return
        for field in fields:
            if field is not None and field not in (*ALWAYS_GIVEN, *required):
                text = f"the message names {{{field}}}, which the required details do not give"
                yield self._complain(path, text, data["id"])


def _sentinels(loaded: Loaded) -> Iterator[Complaint]:
    classes = sentinels()
    for name, sentinel in loaded.tables.vocabulary.sentinels.items():
        path = ("sentinels", name)
        if name not in classes:
            yield loaded.complaint(VOCABULARY, path, unknown("error class", name, classes))
        elif (parent := classes[name].__bases__[0].__name__) != sentinel.parent:
            yield loaded.complaint(VOCABULARY, path, f"the class {name} is one of {parent}, not of {sentinel.parent}")


def _ids(loaded: Loaded) -> Iterator[Complaint]:
    """An id is given once, in all tables and lifecycles together."""
    seen: dict[str, str] = {}
    files = [*loaded.family_files.values(), *loaded.lifecycle_files.values()]
    for file in files:
        data: Any = loaded.documents[file].data
        for key in ("rules", "edges"):
            for i, entry in enumerate(data.get(key, [])):
                complaint = loaded.complaint(file, (key, i, "id"), "", entry["id"])
                if entry["id"] in seen:
                    text = f"the id is given twice; first in {seen[entry['id']]}"
                    yield loaded.complaint(file, (key, i, "id"), text, entry["id"])
                else:
                    seen[entry["id"]] = f"{complaint.file}:{complaint.line}"


def _unused(loaded: Loaded) -> Iterator[Complaint]:
    vocabulary, families = loaded.tables.vocabulary, loaded.tables.families.values()
    rules = [rule for family in families for rule in family.rules]
    used: dict[str, Counter[str]] = {
        "sentinels": Counter(rule.sentinel for rule in rules),
        "operations": Counter(name for family in families for name in family.operations),
        "modes": Counter(name for family in families for name in family.modes),
        "stages": Counter(rule.stage for rule in rules),
        "concludes": Counter(rule.concludes for rule in rules if rule.concludes is not None),
        "effects": Counter(name for rule in rules for name in rule.effects),
        "details": Counter(key.removesuffix("?") for rule in rules for key in rule.details),
    }
    for lifecycle in loaded.tables.lifecycles.values():
        used["operations"].update(lifecycle.operations)
    for name, sentinel in vocabulary.sentinels.items():
        if used["sentinels"][name]:
            used["sentinels"][sentinel.parent] += 1
    for kind, counts in used.items():
        for name in getattr(vocabulary, kind):
            if not counts[name]:
                yield loaded.complaint(VOCABULARY, (kind, name), f"no table uses {name} of the {kind}")
