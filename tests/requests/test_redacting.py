"""A secret is hidden however a server writes it, and hiding it takes no longer than reading the message."""

from __future__ import annotations

import json
import re
import sys
from re import _parser  # the parsed form of a pattern is nowhere public

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_kubeflow.backend.requests import redact
from dispatch_kubeflow.backend.requests.redact import LONGEST, by_place, redacted

HOSTILE = [
    "x", "[", "\\", '"', '\\"', "a.b[0].", "value:", '"value":', '"value":"', "value: ", "args:", "args:[", "args",
    "env.", "env: Invalid value: ", 'env: Invalid value: "', "env: Invalid value: *", "env: Invalid value: map[a",
    "args: []string", "args:[]a{} ", 'args:["\\', "value\\", "Invalid value: ", "<redacted>(1", "command : ", "]",
]  # fmt: skip


def body_of(*secrets: str) -> dict[str, object]:
    return {"spec": {"trainer": {"args": list(secrets)}}}


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        ('pa"ss\\word', r"pa\"ss\\word"),
        ("line1\nline2", r"line1\nline2"),
        ("päss-wörd-日", r"p\u00e4ss-w\u00f6rd-\u65e5"),
        ("<s3cr3t&value>", r"\u003cs3cr3t\u0026value\u003e"),
        ("tab\there\x00\x1b\u200b\U000e0001", r"tab\there\x00\x1b\u200b\U000e0001"),
        ("tab\there\x00\x1b", r"tab\there\u0000\u001b"),
        ("bell\a-and-\v", r"bell\a-and-\v"),
        ('pa"ss\nword', r"pa\\\"ss\\nword"),
        ("<a&b>\n", r"\\u003ca\\u0026b\\u003e\\n"),
    ],
)
def test_a_secret_is_hidden_in_every_spelling(secret, told):
    message = f'admission webhook "x" denied the request: argument "{told}" is not allowed'
    got = redacted(message, body_of(secret))
    assert got == message.replace(told, f"<redacted>({len(secret)})")


@given(st.text(min_size=4), st.integers(0, 2))
def test_a_secret_is_hidden_however_often_it_was_quoted_as_json(secret, times):
    told = secret
    for _ in range(times):
        told = json.dumps(told)[1:-1]
    assert told not in redacted(f"said {told}.", body_of(secret))


def test_what_is_no_text_is_no_secret():
    assert (
        redacted("5 and None", {"args": 5, "env": [{"name": "None", "value": None}], "command": [None]}) == "5 and None"
    )


def test_overlapping_secrets_leave_nothing_of_either():
    assert redacted("an abcdefgh.", body_of("abcdef", "cdefgh", "cdef")) == "an <redacted>(8)."


def test_a_message_of_an_env_value_with_quotes_hides_it_whole():
    for value in ('pa"ss', "end\\", '\\"', '"', '\\\\"x'):
        for text in (json.dumps({"value": value}), json.dumps(json.dumps({"value": value}))):
            hidden = by_place(f"{text} and more")
            assert re.fullmatch(r'"?\{\\*"value\\*": \\*"<redacted>\(\d+\)\\*"\}"? and more', hidden)


def test_a_list_with_brackets_and_quotes_in_its_texts_is_hidden_whole():
    for items in (["a]b", "c"], ['q"]x'], ["\\", "]"]):
        text = json.dumps({"args": items})
        assert re.fullmatch(r'\{"args": <redacted>\(\d+\)\}', by_place(text))
        assert re.fullmatch(r'"\{\\"args\\": <redacted>\(\d+\)\}"', by_place(json.dumps(text)))


@pytest.mark.parametrize("opening", ["value:", '"value":"', "args:[", 'args:["', "spec.env[0]: Invalid value: "])
def test_a_value_that_the_cut_leaves_open_is_hidden_to_the_end(opening):
    shown = redacted("x" * (LONGEST - len(opening) - 5) + " " + opening + "s3cret" * 100)
    assert "s3c" not in shown


def test_a_secret_across_the_cut_is_hidden_whole():
    for at in (LONGEST - 3, 4 * LONGEST - 3, 0):
        message = "x" * at + "s3cret" * 4000 + " and why"
        assert "s3c" not in redacted(message, body_of("s3cret" * 4000))


def test_a_long_message_is_cut_and_says_its_length():
    shown = redacted("x" * 5_000_000)
    assert shown == "x" * LONGEST + "… (5,000,000 characters)"
    assert redacted("x" * LONGEST) == "x" * LONGEST


@pytest.mark.parametrize("text", HOSTILE)
def test_patterns_see_a_few_kilobytes_at_most_however_long_the_message(text, monkeypatch):
    seen = []
    monkeypatch.setattr(redact, "by_place", lambda given: seen.append(len(given)) or given)
    redacted(text * 300_000)
    assert seen == [LONGEST]


@pytest.mark.parametrize("text", HOSTILE)
def test_twice_the_message_takes_twice_the_steps(text):
    counts = []
    for times in (500, 1000):
        with Steps() as counted:
            by_place(text * times)
        counts.append(counted[0])
    assert counts[1] <= 2 * counts[0]


class Steps:
    """Counts the calls, of Python's own functions too, that are made within."""

    def __enter__(self):
        self.counted = [0]
        sys.setprofile(self.called)
        return self.counted

    def __exit__(self, *_):
        sys.setprofile(None)

    def called(self, frame, event, argument):
        self.counted[0] += event in {"call", "c_call"}


PATTERNS = {name: value for name, value in vars(redact).items() if isinstance(value, re.Pattern)}


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_goes_back_over_what_it_has_seen(name):
    """A search begins anew at each character, so what repeats without bound must come after a word that is fixed."""
    fixed = name in {"_QUOTE", "_RUN", "_STOP", "_GO_TYPE"}  # tried at one place, or finding the whole run at once
    parsed = list(_parser.parse(PATTERNS[name].pattern))
    assert fixed or not any(unbounded(parsed[:1], possessive=True))
    assert name == "_GO_TYPE" or not any(unbounded(parsed, possessive=False))


def unbounded(parsed, *, possessive):
    """The repetitions without bound in a pattern; those that give nothing back too, if asked for."""
    for code, details in parsed:
        parts = details if isinstance(details, tuple | list) else ()
        kinds = {_parser.MAX_REPEAT, _parser.MIN_REPEAT, *([_parser.POSSESSIVE_REPEAT] if possessive else [])}
        if code in kinds and parts[1] is _parser.MAXREPEAT:
            yield parts
        for part in parts:
            for inner in part if isinstance(part, list) else [part]:
                if isinstance(inner, _parser.SubPattern):
                    yield from unbounded(inner, possessive=possessive)
