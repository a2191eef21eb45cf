"""A secret is hidden only if it is found, and it comes back in other spellings than it went: quoted by Go, escaped as
JSON, kept as JSON within JSON. So what a caller gave is looked for in all of them.

Secret is what stands under `env`, `args` and `command`. What takes a secret's place says its length, for a reader who
compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

SHORTEST: Final = 4
"""Characters below which a value is not looked for: it would be found everywhere, and hides nothing worth it."""

# What every spelling writes as it is.
_PLAIN = re.compile(r"[ !#-%'-;=?-\[\]-~]*+")
_HTML = re.compile("[<>&\u2028\u2029]")
_GO_NAMES: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}


def mark(length: int) -> str:
    """What stands for a value of so many characters."""
    return f"<redacted>({length})"


def values(body: Any) -> frozenset[str]:
    """The values that an object to be written carries under `env`, `args` and `command`."""
    return frozenset(_values(body))


def _values(value: Any, under: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key in {"args", "command"} or (key == "value" and under == "env"):
                yield from _texts(each)
            else:
                yield from _values(each, key if isinstance(each, list | tuple) else under)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _values(each, under)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def hidden(text: str, secrets: Iterable[str], *, within: int | None = None) -> str:
    """The text with each secret replaced, in whatever spelling it stands there.

    `within`: only what begins among the first so many characters is looked at, and the rest is dropped; a secret that
    begins there is replaced whole. What this costs grows with `within` and with the secrets, not with the text.
    """
    bound = len(text) if within is None else min(within, len(text))
    parts: list[str] = []
    at = 0
    for start, end, length in _joined(sorted(_found(text, secrets, bound), key=lambda each: (each[0], -each[1]))):
        parts += [text[at:start], mark(length)]
        at = end
    return "".join([*parts, text[at:bound]])


def _found(text: str, secrets: Iterable[str], bound: int) -> Iterator[tuple[int, int, int]]:
    """Where secrets begin and end, and how long each is as it was given."""
    for secret in secrets:
        if not SHORTEST <= len(secret) <= len(text):
            continue
        for spelt in spellings(secret):
            end = bound - 1 + len(spelt)
            at = text.find(spelt, 0, end)
            while at >= 0:
                yield at, at + len(spelt), len(secret)
                at = text.find(spelt, at + len(spelt), end)


def _joined(spans: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """The spans, in order, with those that overlap made one."""
    current: tuple[int, int, int] | None = None
    for start, end, length in spans:
        if current is None or start >= current[1]:
            if current is not None:
                yield current
            current = (start, end, length)
        elif end > current[1]:
            current = (current[0], end, end - current[0])
    if current is not None:
        yield current


def spellings(secret: str) -> frozenset[str]:
    """How a text may be written between quotes: as it is, by each writer, and by one writer within another's quotes."""
    if _PLAIN.fullmatch(secret) is not None:
        return frozenset({secret})
    once = {write(secret) for write in _WRITERS}
    return frozenset(write(each) for each in once for write in _WRITERS)


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _ascii_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _go_json(text: str) -> str:
    return _HTML.sub(lambda found: f"\\u{ord(found[0]):04x}", _json(text))


def _go_quoted(text: str) -> str:
    """As Go's `%q` writes it."""
    return "".join(map(_go_character, text))


def _go_character(character: str) -> str:
    if character in {'"', "\\"}:
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return _GO_NAMES.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_WRITERS: Final[tuple[Callable[[str], str], ...]] = (str, _json, _ascii_json, _go_json, _go_quoted)
