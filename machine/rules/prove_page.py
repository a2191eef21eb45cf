"""The tables claim to be the specification page. So each of its rows must be cited, and be what the page says to the
letter; when the page changes, the rules that stood on the changed sentence are named.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator

from .load import ROWS, Loaded, several
from .model import Complaint
from .prove_words import OURS


def page(loaded: Loaded) -> Iterator[Complaint]:
    """Rows nobody cites, citations of no row, and sentences that are not the page's any more."""
    rows = loaded.tables.page_rows
    cited: dict[str, list[str]] = defaultdict(list)
    for file in (*loaded.family_files.values(), *loaded.lifecycle_files.values()):
        data = loaded.documents[file].data
        for key in ("rules", "edges"):
            for i, entry in enumerate(data.get(key, [])):
                for row in several(entry.get("spec", [])):
                    cited[row].append(entry["id"])
                    if row not in rows and row != OURS:
                        yield loaded.complaint(file, (key, i, "spec"), f"cites {row}, no row of the page", entry["id"])
    for row in rows:
        if row not in cited:
            yield loaded.complaint(ROWS, ("rows", row), f"no rule cites the row {row}")
    yield from _sentences(loaded, cited)


def _sentences(loaded: Loaded, cited: dict[str, list[str]]) -> Iterator[Complaint]:
    data = loaded.documents[ROWS].data
    try:
        content = (loaded.directory / "page" / data["page"]).read_bytes()
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        yield loaded.complaint(ROWS, ("page",), f"the page can't be read: {failure}")
        return
    if hashlib.sha256(content).hexdigest() != data["sha256"]:
        yield loaded.complaint(ROWS, ("sha256",), "the page is another than the one whose hash this is")
    for row, sentences in data["rows"].items():
        concerned = f"it concerns {', '.join(cited[row]) or 'no rule'}"
        for i, sentence in enumerate(sentences):
            if hashlib.sha256(sentence["text"].encode()).hexdigest() != sentence["sha256"]:
                text_ = f"the sentence of {row} differs from its hash; {concerned}"
                yield loaded.complaint(ROWS, ("rows", row, i, "sha256"), text_)
            if sentence["text"] not in text:
                yield loaded.complaint(
                    ROWS, ("rows", row, i, "text"), f"the sentence of {row} is not on the page; {concerned}"
                )
