"""Whoever meets an error wants its reason: the page's own sentence, the rules it became, and what may be concluded."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from dispatch_kubeflow.machine.rules import Rule, Rulebook, rulebook

from .exits import Exit, Refusal
from .options import Json, terminal_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="The rules")(explain)


def explain(
    context: typer.Context,
    word: Annotated[
        str, typer.Argument(help="A row of the page (C25), a rule (request.conflict) or a sentinel (ErrRejected).")
    ],
    json: Json = False,
) -> None:
    """Say why: the page's sentence, the rules that stand for it, what the caller may conclude and do next."""
    terminal = terminal_of(context, json)
    document = explanation(rulebook(), word)
    if terminal.json:
        terminal.result(document)
        return
    for line in _lines(document):
        terminal.print(line)


def explanation(book: Rulebook, word: str) -> dict[str, Any]:
    """What is known of a row, a rule or a sentinel. Refused if there is no such thing."""
    tables = book.tables
    word = _spelt(book, word)
    if word in tables.page_rows:
        rules = [rule for rule in _rules(book) if word in rule.spec]
        return {"row": word, "page": list(tables.page_rows[word]), "rules": [_rule(book, rule) for rule in rules]}
    if word in book.vocabulary.sentinels:
        sentinel = book.vocabulary.sentinels[word]
        rules = [rule for rule in _rules(book) if rule.sentinel == word]
        return {
            "sentinel": word,
            "parent": sentinel.parent,
            "means": sentinel.means,
            "next": sentinel.next,
            "rules": [_rule(book, rule) for rule in rules],
        }
    rules = [rule for rule in _rules(book) if rule.id == word]
    if not rules:
        raise Refusal(
            f"there is no row, rule or sentinel {word}",
            Exit.USAGE,
            f"Did you mean {' or '.join(near)}?"
            if (near := _near(book, word))
            else "Rows are A1 to S6; `dispatch-kubeflow tables show` lists the rules.",
        )
    return _rule(book, rules[0])


def _words(book: Rulebook) -> dict[str, str]:
    """Everything that can be explained, by its lower-case form."""
    words = (*book.tables.page_rows, *book.vocabulary.sentinels, *(rule.id for rule in _rules(book)))
    return {each.lower(): each for each in words}


def _spelt(book: Rulebook, word: str) -> str:
    return _words(book).get(word.lower(), word)


def _near(book: Rulebook, word: str) -> list[str]:
    """Words like this one, or that end like it, the likest first."""
    words, wanted = _words(book), word.lower()
    ending = [each for each in words if each.endswith(f".{wanted}") or each == f"err{wanted}"]
    found = dict.fromkeys((*ending, *get_close_matches(wanted, words, n=3, cutoff=0.7)))
    return [words[each] for each in found][:3]


def _rules(book: Rulebook) -> Iterator[Rule]:
    for family in book.families.values():
        yield from family.rules


def _rule(book: Rulebook, rule: Rule) -> dict[str, Any]:
    words = book.vocabulary
    conclusion = words.concludes[rule.concludes] if rule.concludes else None
    page = [
        f"{row}: {sentence}"
        for row in rule.spec
        if row in book.tables.page_rows
        for sentence in book.tables.page_rows[row]
    ]
    return {
        "rule": rule.id,
        "spec": list(rule.spec),
        "page": page,
        "reason": rule.reason,
        "stage": rule.stage,
        "operations": list(rule.operations),
        "modes": list(rule.modes),
        "when": {name: list(values) for name, values in rule.when.items()},
        "sentinel": rule.sentinel,
        "gives": rule.gives,
        "message": rule.message,
        "means": conclusion.means if conclusion else None,
        "next": conclusion.next if conclusion else None,
        "effects": [words.effects[effect] for effect in rule.effects],
        "details": list(rule.details),
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    if "rules" not in document:
        yield from _rule_lines(document)
        return
    if "sentinel" in document:
        yield f"{document['sentinel']}, a kind of {document['parent']}"
        yield f"  {document['means']}"
        yield f"  Next: {document['next']}"
    else:
        yield f"Row {document['row']} of the specification page"
        for sentence in document["page"]:
            yield f"  “{sentence}”"
    for rule in document["rules"]:
        yield ""
        yield from _rule_lines(rule | ({"page": []} if "row" in document else {}))


def _rule_lines(rule: dict[str, Any]) -> Iterator[str]:
    yield f"{rule['rule']} ({', '.join(rule['spec'])}), stage {rule['stage']}"
    for sentence in rule["page"]:
        yield f"  page       {sentence}"
    if rule["reason"]:
        yield f"  reason     {rule['reason']}"
    yield f"  calls      {', '.join(rule['operations'])}"
    for name, values in rule["when"].items():
        yield f"  when       {name} = {' | '.join(values)}"
    outcome = rule["gives"] or rule["sentinel"]
    yield f"  gives      {'nothing to refuse' if outcome == 'none' else outcome}"
    for key in ("message", "means", "next"):
        if rule[key]:
            yield f"  {key:<10} {rule[key]}"
    for effect in rule["effects"]:
        yield f"  effect     {effect}"
