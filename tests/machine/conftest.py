"""A copy of the real tables, and a pen: what every test of a defect needs."""

import functools
import hashlib
import pathlib
import re
import shutil

import pytest

from dispatch_kubeflow.machine import marked
from dispatch_kubeflow.machine.rules import Complaint, check
from dispatch_kubeflow.tables import directory


class TablesCopy:
    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def text(self, file: str) -> str:
        return (self.path / file).read_text(encoding="utf-8")

    def write(self, file: str, text: str) -> None:
        (self.path / file).write_text(text, encoding="utf-8")

    def replace(self, file: str, old: str, new: str, *, after: str = "") -> None:
        """Replace the first `old` behind `after`."""
        text = self.text(file)
        start = text.index(after)
        at = text.index(old, start)
        self.write(file, text[:at] + new + text[at + len(old) :])

    def add(self, file: str, text: str) -> None:
        self.write(file, self.text(file).rstrip() + "\n" + text)

    def remove_rule(self, file: str, rule: str) -> None:
        text, removed = re.subn(
            rf"^  - id: {re.escape(rule)}\n(    .*\n|\n(?=    ))*", "", self.text(file), flags=re.MULTILINE
        )
        assert removed == 1
        self.write(file, text)

    def line(self, file: str, part: str, *, after: str = "") -> int:
        """The line, from 1, of the first `part` behind `after`."""
        text = self.text(file)
        return text[: text.index(part, text.index(after))].count("\n") + 1

    def check(self) -> list[Complaint]:
        return check(self.path)

    def only(self, needle: str) -> Complaint:
        """The one complaint that says this."""
        complaints = self.check()
        found = [each for each in complaints if needle in each.text]
        assert len(found) == 1, "\n".join(map(str, complaints))
        return found[0]


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a copy of the tables all files but one are the same every time; reading YAML is what takes long."""
    monkeypatch.setattr(marked, "read", READ_ONCE)


READ_ONCE = functools.lru_cache(maxsize=128)(marked.read)


@pytest.fixture
def tables(tmp_path: pathlib.Path) -> TablesCopy:
    """The real tables, to be spoilt."""
    target = tmp_path / "tables"
    shutil.copytree(directory(), target, ignore=shutil.ignore_patterns("*.py", "__pycache__", "schema"))
    return TablesCopy(target)


VOCABULARY = """
sentinels:
  ErrRejected: {means: "refused", next: "look"}
  ErrUnreachable: {means: "no answer", next: "again"}
operations:
  open: {verb: write, hold_family: true, means: "opens"}
  find: {verb: read, means: "finds"}
modes:
  plain: {means: "plain"}
  kueue: {means: "kueue"}
stages:
  request: {means: "a request"}
concludes:
  refused: {means: "refused", next: "look"}
  proceed: {means: "goes on", next: "nothing"}
effects:
  tidied: {means: "tidied"}
details:
  status: {means: "status"}
  reason: {means: "reason"}
"""
FAMILY = """
family: small
about: A small table.
hit_policy: unique
operations: [open, find]
modes: [plain, kueue]
inputs:
  status: {values: ["200", "403", "409"], means: status}
  colour: {values: [red, green, blue], means: colour}
rules:
  - id: small.fine
    spec: A1
    stage: request
    when: {status: "200"}
    sentinel: none
    concludes: proceed
  - id: small.conflict
    spec: [A1, ours]
    reason: Because.
    stage: request
    when: {status: "409", colour: {not: blue}}
    sentinel: ErrRejected
    message: "{operation}: {subject} answered {status}."
    concludes: refused
    effects: [tidied]
    details: [status, reason?]
  - id: small.lost
    spec: A1
    stage: request
    operations: [open]
    when: {status: ["403", "409"]}
    yields_to: [small.conflict]
    sentinel: ErrUnreachable
    message: "{subject} {{lost}}."
    concludes: refused
  - id: small.rest
    spec: A1
    stage: request
    operations: [find]
    modes: all
    when: {status: {not: ["200"]}}
    yields_to: [small.conflict]
    sentinel: none
    concludes: proceed
"""
LIFECYCLE = """
lifecycle: door
about: A door.
states:
  closed: {initial: true, means: "closed"}
  ajar: {means: "ajar"}
  gone: {final: true, means: "gone"}
operations: [open, find]
guards:
  key: {values: [none, right], means: "the key"}
events:
  burns: {means: "it burns"}
edges:
  - {id: door.open, operation: open, from: closed, to: ajar, when: {key: right}, does: turn, spec: ours, reason: "So."}
  - {id: door.look, operation: find, from: [closed, ajar, gone], to: same}
  - {id: door.burns, event: burns, from: [closed, ajar], to: gone}
refusals:
  - {operation: open, from: closed, when: {key: none}, rule: small.lost}
  - {operation: open, from: [ajar, gone], rule: small.conflict}
"""
PAGE = "the door is open ErrRejected\n"
ROWS = """
page: page.txt
sha256: HASH-OF-PAGE
rows:
  A1:
    - text: 'the door is open'
      sha256: HASH-OF-SENTENCE
"""


@pytest.fixture
def small(tmp_path: pathlib.Path) -> TablesCopy:
    """Tables so small that every cell can be seen."""
    root = tmp_path / "small"
    (root / "page").mkdir(parents=True)
    (root / "lifecycles").mkdir()
    copy = TablesCopy(root)
    copy.write("vocabulary.yaml", VOCABULARY)
    copy.write("small.yaml", FAMILY)
    copy.write("lifecycles/door.yaml", LIFECYCLE)
    copy.write("page/page.txt", PAGE)
    rows = ROWS.replace("HASH-OF-SENTENCE", hashlib.sha256(b"the door is open").hexdigest())
    rows = rows.replace("HASH-OF-PAGE", hashlib.sha256(PAGE.encode()).hexdigest())
    copy.write("page/rows.yaml", rows)
    assert copy.check() == []
    return copy
