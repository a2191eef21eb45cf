"""From YAML to values, keeping the line of everything, so that the proof can say where a table is wrong."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from dispatch_kubeflow.machine import marked
from dispatch_kubeflow.machine.errors import DispatchError

from .form import faults
from .model import (
    Box,
    CheckedAgainst,
    Complaint,
    Conclusion,
    Edge,
    Family,
    Input,
    LifecycleTable,
    Operation,
    Output,
    Refusal,
    Rule,
    Sentinel,
    State,
    Tables,
    TablesError,
    Vocabulary,
)

VOCABULARY = "vocabulary.yaml"
ROWS = "page/rows.yaml"
SAME = "same"
"""What an edge goes `to` when the state stays as it is."""

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The tables, and the documents they were read from, by file (`request.yaml`, `lifecycles/hold-register.yaml`)."""

    directory: pathlib.Path
    tables: Tables
    documents: Mapping[str, marked.Document]
    family_files: Mapping[str, str]
    lifecycle_files: Mapping[str, str]

    def complaint(self, file: str, path: marked.Path, text: str, rule: str | None = None) -> Complaint:
        """A complaint about this part of this file."""
        mark = self.documents[file].mark(*path)
        return Complaint(file, mark.line, mark.column, rule, text)


def load(directory: pathlib.Path) -> Loaded:
    """Read every table. Raises TablesError with everything that is wrong with their form."""
    documents: dict[str, marked.Document] = {}
    complaints: list[Complaint] = []
    for file in _files(directory):
        try:
            document = marked.read((directory / file).read_text(encoding="utf-8"))
        except marked.UnreadableYaml as failure:
            complaints.append(Complaint(file, failure.mark.line, failure.mark.column, None, failure.problem))
        except (OSError, UnicodeDecodeError) as failure:
            complaints.append(Complaint(file, 1, 1, None, f"can't be read: {failure}"))
        else:
            documents[file] = document
            for path, text in faults(_kind(file), document.data):
                mark = document.mark(*path)
                complaints.append(Complaint(file, mark.line, mark.column, _id(document.data, path), text))
    if complaints:
        raise TablesError(tuple(complaints))
    return _loaded(directory, documents)


def _loaded(directory: pathlib.Path, documents: Mapping[str, marked.Document]) -> Loaded:
    families: dict[str, Family] = {}
    lifecycles: dict[str, LifecycleTable] = {}
    family_files: dict[str, str] = {}
    lifecycle_files: dict[str, str] = {}
    for file, document in documents.items():
        # Keyed by file name, so that two that claim one name are both looked at; the proof complains of the name.
        name = pathlib.PurePath(file).stem
        match _kind(file):
            case "family":
                families[name], family_files[name] = _family(document.data), file
            case "lifecycle":
                lifecycles[name], lifecycle_files[name] = _lifecycle(document.data), file
    rows = documents[ROWS].data["rows"]
    tables = Tables(
        vocabulary=_vocabulary(documents[VOCABULARY].data),
        families=families,
        lifecycles=lifecycles,
        page_rows={row: tuple(each["text"] for each in sentences) for row, sentences in rows.items()},
    )
    return Loaded(directory, tables, documents, family_files, lifecycle_files)


def _files(directory: pathlib.Path) -> list[str]:
    families = sorted(path.name for path in directory.glob("*.yaml") if path.name != VOCABULARY)
    lifecycles = sorted(f"lifecycles/{path.name}" for path in directory.glob("lifecycles/*.yaml"))
    return [VOCABULARY, *families, *lifecycles, ROWS]


def _kind(file: str) -> str:
    if file in (VOCABULARY, ROWS):
        return {VOCABULARY: "vocabulary", ROWS: "rows"}[file]
    return "lifecycle" if file.startswith("lifecycles/") else "family"


def _id(data: Any, path: marked.Path) -> str | None:
    """The id of the rule or edge that the path leads into, if it has one."""
    if len(path) >= 2 and path[0] in ("rules", "edges"):
        entry = data[path[0]][path[1]]
        found = entry.get("id") if isinstance(entry, dict) else None
        return found if isinstance(found, str) else None
    return None


def several(value: str | list[str]) -> tuple[str, ...]:
    """One word or a list of them, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def _allowed(asked: Any, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(asked, dict):
        excluded = several(asked["not"])
        return tuple(value for value in values if value not in excluded)
    return several(asked)


def _box(when: Data, inputs: Iterable[Input]) -> Box:
    values = {each.name: each.values for each in inputs}
    return {name: _allowed(asked, values.get(name, ())) for name, asked in when.items()}


def _inputs(data: Data) -> tuple[Input, ...]:
    return tuple(Input(name, tuple(each["values"]), each["means"], each.get("default")) for name, each in data.items())


def _listed(value: str | list[str], everything: tuple[str, ...]) -> tuple[str, ...]:
    return everything if value == "all" else several(value)


def _family(data: Data) -> Family:
    inputs = _inputs(data["inputs"])
    operations, modes = tuple(data.get("operations", ())), tuple(data.get("modes", ()))
    output = Output(data["output"]["name"], tuple(data["output"]["values"])) if "output" in data else None

    def rule(each: Data) -> Rule:
        return Rule(
            id=each["id"],
            family=data["family"],
            spec=several(each["spec"]),
            stage=each["stage"],
            operations=_listed(each.get("operations", "all"), operations),
            modes=_listed(each.get("modes", "all"), modes),
            when=_box(each.get("when", {}), inputs),
            sentinel=each["sentinel"],
            message=each.get("message"),
            concludes=each.get("concludes"),
            effects=tuple(each.get("effects", ())),
            details=tuple(each.get("details", ())),
            gives=each.get("gives"),
            reason=each.get("reason"),
            yields_to=tuple(each.get("yields_to", ())),
        )

    return Family(
        data["family"], data["about"], operations, modes, inputs, tuple(rule(each) for each in data["rules"]), output
    )


def _lifecycle(data: Data) -> LifecycleTable:
    guards = _inputs(data.get("guards", {}))
    against = data.get("checked_against")

    def edges() -> Iterable[Edge]:
        for each in data["edges"]:
            for source, operation in product(several(each["from"]), several(each.get("operation", ""))):
                yield Edge(
                    id=each["id"],
                    source=source,
                    to=source if each["to"] == SAME else each["to"],
                    when=_box(each.get("when", {}), guards),
                    operation=operation or None,
                    event=each.get("event"),
                    does=each.get("does"),
                    spec=several(each.get("spec", [])),
                    reason=each.get("reason"),
                )

    def refusals() -> Iterable[Refusal]:
        for each in data.get("refusals", []):
            for source, operation in product(several(each["from"]), several(each["operation"])):
                yield Refusal(operation, source, _box(each.get("when", {}), guards), each["rule"])

    return LifecycleTable(
        name=data["lifecycle"],
        about=data["about"],
        states=tuple(
            State(name, each["means"], each.get("initial", False), each.get("final", False))
            for name, each in data["states"].items()
        ),
        operations=tuple(data.get("operations", ())),
        guards=guards,
        events={name: each["means"] for name, each in data.get("events", {}).items()},
        edges=tuple(edges()),
        refusals=tuple(refusals()),
        checked_against=None
        if against is None
        else CheckedAgainst(against["family"], against["state_input"], against.get("calm", {})),
    )


def _vocabulary(data: Data) -> Vocabulary:
    def meanings(kind: str) -> dict[str, str]:
        return {name: each["means"] for name, each in data[kind].items()}

    return Vocabulary(
        sentinels={
            name: Sentinel(name, each.get("parent", DispatchError.sentinel), each["means"], each["next"])
            for name, each in data["sentinels"].items()
        },
        operations={
            name: Operation(name, each["verb"], each["means"], each.get("hold_family", False))
            for name, each in data["operations"].items()
        },
        modes=meanings("modes"),
        stages=meanings("stages"),
        concludes={name: Conclusion(name, each["means"], each["next"]) for name, each in data["concludes"].items()},
        effects=meanings("effects"),
        details=meanings("details"),
    )
