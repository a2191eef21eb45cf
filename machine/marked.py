"""A complaint about a YAML file is worth little without the line: plain data, and beside it where each part stands.

Read strictly, for the tables and for what users write alike: one document, string keys, no key twice, no merge keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ruamel.yaml.constructor import SafeConstructor
    from ruamel.yaml.nodes import Node

Path = tuple[str | int, ...]
MOST_NODES = 200_000
_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file; line and column count from 1."""

    line: int
    column: int


class UnreadableYaml(Exception):
    """What keeps a text from being read, and where."""

    def __init__(self, problem: str, mark: Mark) -> None:
        super().__init__(problem)
        self.problem = problem
        self.mark = mark


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data (dict, list, str, int, float, bool, None), and the mark of each part by its path.

    The mark of a mapping's entry is that of its key.
    """

    data: Any
    marks: dict[Path, Mark]

    def mark(self, *path: str | int) -> Mark:
        """Where this path stands, or the nearest part around it that exists."""
        while path not in self.marks:
            path = path[:-1]
        return self.marks[path]


def read(text: str) -> Document:
    """Read one YAML document. Raises UnreadableYaml."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - slow to import, and needed only by those who read YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError  # noqa: PLC0415 - as above

    try:
        yaml = YAML(typ="safe", pure=True)
        node = yaml.compose(text)
        reader = _Reader(yaml.constructor)
        data = None if node is None else reader.data(node, (), ())
    except MarkedYAMLError as failure:
        mark = failure.problem_mark or failure.context_mark
        place = Mark(1, 1) if mark is None else Mark(mark.line + 1, mark.column + 1)
        raise UnreadableYaml(str(failure.problem), place) from failure
    except YAMLError as failure:
        raise UnreadableYaml(str(failure).partition("\n")[0], Mark(1, 1)) from failure
    except RecursionError as failure:
        raise UnreadableYaml("nested too deeply", Mark(1, 1)) from failure
    return Document(data, {(): Mark(1, 1), **reader.marks})


class _Reader:
    """Turns ruamel's nodes into plain data, noting every mark on the way."""

    def __init__(self, constructor: SafeConstructor) -> None:
        self.marks: dict[Path, Mark] = {}
        self._constructor = constructor
        self._nodes = 0

    def data(self, node: Node, path: Path, around: tuple[int, ...]) -> Any:
        self._nodes += 1
        self.marks.setdefault(path, _mark(node))
        if id(node) in around:
            raise UnreadableYaml("an alias to what it stands in", _mark(node))
        if self._nodes > MOST_NODES:  # a few aliases of aliases can stand for billions
            raise UnreadableYaml(f"more than {MOST_NODES} values", _mark(node))
        if node.tag == f"{_PREFIX}map":
            return self._mapping(node, path, (*around, id(node)))
        if node.tag == f"{_PREFIX}seq":
            return [self.data(item, (*path, i), (*around, id(node))) for i, item in enumerate(node.value)]
        return _scalar(node, self._constructor)

    def _mapping(self, node: Node, path: Path, around: tuple[int, ...]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag != f"{_PREFIX}str":
                raise UnreadableYaml("a key that is not a string", _mark(key))
            name = _text(key)
            if name in data:
                raise UnreadableYaml(f"the key {name!r} twice", _mark(key))
            self.marks[(*path, name)] = _mark(key)
            data[name] = self.data(value, (*path, name), around)
        return data


def _scalar(node: Node, constructor: SafeConstructor) -> Any:
    kind = str(node.tag).removeprefix(_PREFIX)
    try:
        match kind:
            case "null":
                return None
            case "bool":
                return constructor.construct_yaml_bool(node)
            case "int":
                return constructor.construct_yaml_int(node)
            case "float":
                return constructor.construct_yaml_float(node)
    except ValueError as failure:  # thousands of digits, or a tag that its text does not bear out
        raise UnreadableYaml(f"what is no {kind}, or too long a one", _mark(node)) from failure
    if kind not in ("str", "timestamp"):
        raise UnreadableYaml(f"the tag {node.tag}", _mark(node))
    return _text(node)  # a date is wanted as it was written


def _text(node: Node) -> str:
    """The text of a scalar. JSON escapes a character beyond 16 bits as a pair of halves, and is YAML."""
    try:
        return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as failure:
        raise UnreadableYaml("half of a character", _mark(node)) from failure


def _mark(node: Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def is_number(value: object) -> bool:
    """A finite int or float, within a float's range. A bool is not a number here, though Python thinks it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
