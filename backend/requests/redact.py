"""Servers quote what they refuse, and that may be a secret: so messages are cleaned before anyone sees them.

Two independent ways, for one alone would miss something: the values this request itself carried under `env`, `args` and
`command` are taken out wherever they appear, and whatever stands in a message where such a value would stand is taken
out by its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_SECRET_LISTS = ("args", "command")

# `"value":"…"` of an environment variable, however often its quotes are escaped; Go's printing of structs as well.
_ENV_VALUE = re.compile(
    r'(?P<key>(?<!Invalid )(?<!Duplicate )(?<!Unsupported )\\*"?\b[vV]alue\\*"?\s*:\s*)'
    r'(?P<quote>\\*")(?P<text>(?:(?!(?P=quote)).)*)(?P=quote)',
    re.DOTALL,
)
_GO_MAP_VALUE = re.compile(r"(?P<key>\bvalue:)(?P<text>[^\s\]\"<][^\]]*)(?=\])")
_LIST = re.compile(
    r'(?P<key>\\*"?\b(?:args|command|Args|Command)\\*"?\s*:\s*(?:\[\]\w+(?:\s*\{\})?)?\s*)(?P<open>[\[{])'
)
# What Go prints in front of a slice's, a map's or a struct's own brackets.
_GO_TYPE = re.compile(r"(?:(?:\[\]|\*|map\[\w+\])+[\w.]*(?: \{\})?|[\w.]*)(?=[\[{])")
_FIELD = re.compile(
    r"(?P<key>[\w.\[\]-]*\b(?:env|args|command)\b[\w.\[\]-]*: (?:Invalid value|Duplicate value|Unsupported value): )"
)


def shown(text: str) -> str:
    """What stands for a value that is not shown: its length remains, for a reader who compares."""
    return f"<redacted>({len(text)})"


def redacted(message: str, body: Any = None) -> str:
    """The message without values under env, args and command: those of `body`, and those in such places."""
    for secret in sorted(_secrets(body), key=len, reverse=True):
        if len(secret) >= 4:
            message = message.replace(secret, shown(secret))
    message = _spans(_FIELD, message, _value_end)
    message = _spans(_LIST, message, lambda text, at: _bracket_end(text, at - 1), keep=1)
    message = _ENV_VALUE.sub(
        lambda found: f"{found['key']}{found['quote']}{_once(found['text'])}{found['quote']}", message
    )
    return _GO_MAP_VALUE.sub(lambda found: found["key"] + _once(found["text"]), message)


def _secrets(value: Any, under: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key in _SECRET_LISTS or (key == "value" and under == "env"):
                yield from _strings(each)
            else:
                yield from _secrets(each, key if isinstance(each, list) else under)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _secrets(each, under)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)


def _spans(start: re.Pattern[str], message: str, end: Any, keep: int = 0) -> str:
    """Replace what follows each `start` up to `end`; `keep` characters of the start's end go with the value."""
    parts = []
    at = 0
    while (found := start.search(message, at)) is not None:
        begins = found.end() - keep
        ends = end(message, found.end())
        parts += [message[at:begins], _once(message[begins:ends])]
        at = ends
    return "".join([*parts, message[at:]])


def _once(text: str) -> str:
    return text if text.startswith("<redacted>") or not text else shown(text)


def _value_end(text: str, at: int) -> int:
    if text[at : at + 1] == '"':
        closing = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL).match(text, at)
        return closing.end() if closing else len(text)
    opening = _GO_TYPE.match(text, at)
    if opening is not None:
        return _bracket_end(text, opening.end())
    colon = text.find(": ", at)
    return colon if colon >= 0 else len(text)


def _bracket_end(text: str, at: int) -> int:
    """Just past the bracket that closes the one at `at`, quoted text skipped; the end of the text if none does."""
    depth = 0
    quoted = False
    while at < len(text):
        character = text[at]
        if character == "\\":
            at += 1
        elif character == '"':
            quoted = not quoted
        elif not quoted and character in "[{":
            depth += 1
        elif not quoted and character in "]}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(text)
