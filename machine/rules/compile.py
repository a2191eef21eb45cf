"""YAML is for readers, and slow; deciding and starting must be quick. So the proved tables are shipped compiled, too.

The compiled file carries a hash of what it was made from. Where the tables beside it are others, as in an edited
checkout, it is left alone and they are read, proved and compiled in memory: slower, and never stale.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, TypeVar

from .decide import Graph, Rulebook
from .diagram import Diagram, Leaf, Node
from .model import (
    CheckedAgainst,
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
    Vocabulary,
)

T = TypeVar("T")

COMPILED = pathlib.Path(__file__).parent / "compiled.json"
FORMAT = 1
"""Changed with the form of the compiled file, which makes older ones void."""


def load_rulebook(directory: pathlib.Path, compiled: pathlib.Path | None = None) -> Rulebook:
    """The tables of a directory: from the compiled file if it was made from them, else from the YAML, proved."""
    if compiled is not None and compiled.exists():
        data = json.loads(compiled.read_bytes())
        if data["made_from"] == fingerprint(directory):
            return _restored(data)
    return _restored(_data(directory))


def write_compiled(directory: pathlib.Path, compiled: pathlib.Path = COMPILED) -> bytes:
    """Prove the tables of a directory and write their compiled form; the same tables give the same bytes."""
    content = compiled_bytes(directory)
    compiled.write_bytes(content)
    return content


def compiled_bytes(directory: pathlib.Path) -> bytes:
    """The compiled form of the tables of a directory. Raises TablesError."""
    return (json.dumps(_data(directory), ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def fingerprint(directory: pathlib.Path) -> str:
    """A hash of every table and of the page, by name and content, and of the compiled form's number."""
    digest = hashlib.sha256(f"format {FORMAT}\n".encode())
    sources = [path for pattern in ("*.yaml", "lifecycles/*.yaml", "page/*") for path in directory.glob(pattern)]
    for path in sorted(sources):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(directory).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _data(directory: pathlib.Path) -> dict[str, Any]:
    from .prove import proved  # noqa: PLC0415 - brings ruamel.yaml, which is slow to import

    loaded, diagrams = proved(directory)
    tables = loaded.tables
    return {
        "made_from": fingerprint(directory),
        "vocabulary": asdict(tables.vocabulary),
        "families": {name: asdict(family) for name, family in tables.families.items()},
        "lifecycles": {name: asdict(lifecycle) for name, lifecycle in tables.lifecycles.items()},
        "page_rows": tables.page_rows,
        "graphs": {name: _numbered(diagram) for name, diagram in diagrams.items()},
    }


def _numbered(diagram: Diagram) -> list[list[Any]]:
    """The diagram's branches, children first and the root last; a rule N is written as -N-1."""
    names = list(diagram.axes)
    numbers: dict[Node, int] = {}
    branches: list[list[Any]] = []

    def number(node: Node) -> int:
        if isinstance(node, Leaf):
            return -node.winners[0] - 1
        if node not in numbers:
            groups = [[list(values), number(child)] for values, child in node.groups]
            numbers[node] = len(branches)
            branches.append([names[node.axis], groups])
        return numbers[node]

    root = number(diagram.root)
    return branches or [["", [[[], root]]]]


def _graph(branches: list[list[Any]], rules: tuple[Rule, ...]) -> Graph:
    made: list[Graph] = []

    def node(number: int) -> Graph:
        return rules[-number - 1] if number < 0 else made[number]

    for name, groups in branches:
        if not name:  # one rule for everything
            return node(groups[0][1])
        made.append((name, {value: node(number) for values, number in groups for value in values}))
    return made[-1]


def _restored(data: Mapping[str, Any]) -> Rulebook:
    families = {name: _family(each) for name, each in data["families"].items()}
    tables = Tables(
        vocabulary=_vocabulary(data["vocabulary"]),
        families=MappingProxyType(families),
        lifecycles=MappingProxyType({name: _lifecycle(each) for name, each in data["lifecycles"].items()}),
        page_rows=MappingProxyType({row: tuple(texts) for row, texts in data["page_rows"].items()}),
    )
    return Rulebook(tables, {name: _graph(data["graphs"][name], family.rules) for name, family in families.items()})


def _made(kind: type[T], data: Mapping[str, Any], **replaced: Any) -> T:
    """A value of this kind: lists of the data as tuples, mappings read-only."""
    return kind(**{**{key: _frozen(value) for key, value in data.items()}, **replaced})


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(each) for key, each in value.items()})
    return tuple(value) if isinstance(value, list | tuple) else value


def _family(data: Mapping[str, Any]) -> Family:
    return _made(
        Family,
        data,
        inputs=tuple(_made(Input, each) for each in data["inputs"]),
        rules=tuple(_made(Rule, each) for each in data["rules"]),
        output=None if data["output"] is None else _made(Output, data["output"]),
    )


def _lifecycle(data: Mapping[str, Any]) -> LifecycleTable:
    against = data["checked_against"]
    return _made(
        LifecycleTable,
        data,
        states=tuple(_made(State, each) for each in data["states"]),
        guards=tuple(_made(Input, each) for each in data["guards"]),
        edges=tuple(_made(Edge, each) for each in data["edges"]),
        refusals=tuple(_made(Refusal, each) for each in data["refusals"]),
        checked_against=None if against is None else _made(CheckedAgainst, against),
    )


def _vocabulary(data: Mapping[str, Any]) -> Vocabulary:
    return _made(
        Vocabulary,
        data,
        sentinels=MappingProxyType({name: _made(Sentinel, each) for name, each in data["sentinels"].items()}),
        operations=MappingProxyType({name: _made(Operation, each) for name, each in data["operations"].items()}),
        concludes=MappingProxyType({name: _made(Conclusion, each) for name, each in data["concludes"].items()}),
    )
