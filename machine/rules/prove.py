"""Tables are believed only once they are proved: this is what runs every proof and collects every complaint."""

from __future__ import annotations

import pathlib

from .diagram import Diagram
from .load import Loaded, load
from .model import Complaint, TablesError
from .prove_cells import cells
from .prove_lifecycles import LifecycleProof
from .prove_page import page
from .prove_words import FamilyWords, words


def check(directory: pathlib.Path) -> list[Complaint]:
    """Everything that is wrong with the tables of a directory, in the order of files and lines."""
    try:
        proved(directory)
    except TablesError as wrong:
        return list(wrong.complaints)
    return []


def proved(directory: pathlib.Path) -> tuple[Loaded, dict[str, Diagram]]:
    """The tables of a directory and the decision diagram of each family. Raises TablesError."""
    loaded = load(directory)
    complaints = list(words(loaded))
    diagrams: dict[str, Diagram] = {}
    # Names that are not known make cells look uncovered that are not: such a family is only proved once they are right.
    for name, file in loaded.family_files.items():
        if not any(FamilyWords(loaded, name, file).of_cells()):
            complaints += cells(loaded, name, diagrams)
    sound = not complaints
    proofs = [LifecycleProof(loaded, name) for name in loaded.lifecycle_files]
    broken = [each for proof in proofs for each in proof.complaints()]
    complaints += broken
    if sound and not broken:
        complaints += [each for proof in proofs for each in proof.contradictions(diagrams)]
    complaints += page(loaded)
    if complaints:
        raise TablesError(tuple(sorted(complaints, key=lambda each: (each.file, each.line, each.column))))
    return loaded, diagrams
