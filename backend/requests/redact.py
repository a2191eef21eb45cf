"""Servers quote what they refuse, and that may be a secret: so messages are cleaned before anyone sees them.

Two independent ways, for one alone would miss something: the values this request itself carried under `env`, `args` and
`command` are taken out wherever they appear, and whatever stands in a message where such a value would stand is taken
out by its place.

A message may be as long as the server likes, and cleaning holds every thread of the process: so it is cut first, and
every pattern here is anchored at a word and never goes back, so that each character is looked at a few times at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dispatch_kubeflow.machine.secrets import hidden, mark, values

LONGEST = 4_096
"""Characters of a message that are shown."""
_LOOKED_AT = 4 * LONGEST

# An environment variable's `"value":"…"`, however often its quotes are escaped.
_VALUE = re.compile(r'(?<!Invalid )(?<!Duplicate )(?<!Unsupported )\b[vV]alue\\*+"?+\s*+:\s*+(?=\\*+")')
# The same as Go prints a struct or a map, without quotes.
_GO_VALUE = re.compile(r'\bvalue:(?!\\*+"|<redacted>)(?=[^\s\]])')
_LIST = re.compile(
    r'\b(?:args|command|Args|Command)\\*+"?+\s*+:\s*+(?:\[\]\w++(?:\s*+\{\})?+)?+\s*+(?=[\[{])',
)
_FIELD = re.compile(
    r"\b(?:env|args|command)\b[\w.\[\]-]{0,200}+: (?:Invalid value|Duplicate value|Unsupported value): "
)
# What Go prints in front of a slice's, a map's or a struct's own brackets.
_GO_TYPE = re.compile(r"(?:(?:\[\]|\*|map\[\w+\])+[\w.]*(?: \{\})?|[\w.]*)(?=[\[{])")
_QUOTE = re.compile(r'\\*+"')
_RUN = re.compile(r'\\++"?+|"')
_STOP = re.compile(r'\\++"?+|["\[\]{}]')
_MARK = re.compile(r"<redacted>\(\d++\)")


def redacted(message: str, body: Any = None) -> str:
    """The message without values under env, args and command: those of `body`, and those in such places.

    Of a message longer than 4,096 characters the beginning, and its length.
    """
    text = hidden(message, values(body), within=_LOOKED_AT)
    whole = len(text) <= LONGEST and len(message) <= _LOOKED_AT
    text = by_place(text[:LONGEST])
    return text if whole else f"{text}… ({len(message):,} characters)"


def by_place(text: str) -> str:
    """The text without what stands in the places of such values; one that is not closed ends with the text."""
    text = _replaced(_FIELD, text, _field_value)
    text = _replaced(_LIST, text, lambda within, at: (at, _bracket_end(within, at)))
    text = _replaced(_VALUE, text, _quoted)
    return _replaced(_GO_VALUE, text, _to_bracket)


def _replaced(place: re.Pattern[str], text: str, span: Callable[[str, int], tuple[int, int]]) -> str:
    """Replace what `span` says a value is, after each `place`."""
    parts = []
    at = 0
    while (found := place.search(text, at)) is not None:
        begins, ends = span(text, found.end())
        parts += [text[at:begins], _once(text[begins:ends])]
        at = ends
    return "".join([*parts, text[at:]])


def _once(text: str) -> str:
    return text if not text or _MARK.fullmatch(text) is not None else mark(len(text))


def _field_value(text: str, at: int) -> tuple[int, int]:
    if _QUOTE.match(text, at) is not None:
        return _quoted(text, at)
    opening = _GO_TYPE.match(text, at)
    if opening is not None:
        return at, _bracket_end(text, opening.end())
    colon = text.find(": ", at)
    return at, colon if colon >= 0 else len(text)


def _to_bracket(text: str, at: int) -> tuple[int, int]:
    bracket = text.find("]", at)
    return at, bracket if bracket >= 0 else len(text)


def _quoted(text: str, at: int) -> tuple[int, int]:
    """What stands between the quotes that open at `at`, with so many backslashes, and those that close.

    A quote of the text itself, or one after a backslash of it, has more: each is written by twice as many backslashes
    as this depth's quotes have, and two more.
    """
    begins = _QUOTE.match(text, at).end()  # type: ignore[union-attr] # a quote stands there: the pattern before saw it
    depth = begins - at - 1
    for run in _RUN.finditer(text, begins):
        if run[0].endswith('"') and (len(run[0]) - 1) % (2 * depth + 2) == depth:
            return begins, run.end() - 1 - depth
    return begins, len(text)


def _bracket_end(text: str, at: int) -> int:
    """Just past the bracket that closes the one at `at`, quoted text skipped; the end of the text if none does."""
    depth = 0
    while (stop := _STOP.search(text, at)) is not None:
        at = stop.end()
        if stop[0].endswith('"'):
            ends = _quoted(text, stop.start())[1]
            at = ends + len(stop[0])
        elif stop[0] in "[{":
            depth += 1
        elif stop[0] in "]}":
            depth -= 1
            if depth == 0:
                return at
    return len(text)
