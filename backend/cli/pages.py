"""A reviewer reads pages, not YAML: these are made from the tables alone, so that they cannot say anything else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dispatch_kubeflow.machine.rules.model import Box, Family, LifecycleTable, Rule, Tables

from .exits import MEANS, Exit, code_of_sentinel

MADE = "<!-- Made from tables/ by `make generate`. -->"


def pages(tables: Tables) -> dict[str, str]:
    """Every page by its file's name: an index, the sentinels, the specification's rows, each family, each lifecycle."""
    made = {
        "README.md": _index(tables),
        "sentinels.md": _sentinels(tables),
        "specification.md": _specification(tables),
        "words.md": _words(tables),
    }
    made |= {f"{name}.md": family_page(family, tables) for name, family in tables.families.items()}
    made |= {f"lifecycle-{name}.md": lifecycle_page(lifecycle) for name, lifecycle in tables.lifecycles.items()}
    return {name: _page(lines) for name, lines in made.items()}


def family_page(family: Family, tables: Tables) -> Iterator[str]:
    """One table: what it is about, what it asks, and its rules in their order."""
    yield from (f"# {family.name}", "", family.about.strip(), "")
    if family.operations:
        yield from (f"Speaks for: {_codes(family.operations)}.", "")
    yield from ("## Facts", "")
    yield from _table(
        ("fact", "values", "means"),
        ((f"`{each.name}`", _codes(each.values), " ".join(each.means.split())) for each in family.inputs),
    )
    yield from ("", "## Rules", "")
    for rule in family.rules:
        yield from _rule(rule, family, tables)


def lifecycle_page(lifecycle: LifecycleTable) -> Iterator[str]:
    """One lifecycle: its states, and what each operation does in each of them."""
    yield from (f"# Lifecycle of the {lifecycle.name}", "", lifecycle.about.strip(), "", "## States", "")
    yield from _table(
        ("state", "means"), ((_state(each.name, each.initial, each.final), each.means) for each in lifecycle.states)
    )
    if lifecycle.guards:
        yield from ("", "## Guards", "")
        yield from _table(
            ("guard", "values", "means"),
            ((f"`{each.name}`", _codes(each.values), each.means) for each in lifecycle.guards),
        )
    yield from ("", "## What is answered", "")
    answers = [
        (
            _code(edge.operation),
            _code(edge.source),
            _when(edge.when),
            f"→ `{edge.to}`" + (f", {edge.does}" if edge.does else ""),
            edge.id,
        )
        for edge in lifecycle.edges
        if edge.operation
    ]
    answers += [
        (_code(each.operation), _code(each.source), _when(each.when), "refused", each.rule)
        for each in lifecycle.refusals
    ]
    yield from _table(
        ("operation", "in state", "when", "answer", "by"), ((*row[:4], f"`{row[4]}`") for row in sorted(answers))
    )
    if lifecycle.events:
        yield from ("", "## What the cluster does", "")
        moves = [
            (_code(edge.event), _code(edge.source), _when(edge.when), f"→ `{edge.to}`", f"`{edge.id}`")
            for edge in lifecycle.edges
            if edge.event
        ]
        yield from _table(("event", "in state", "when", "to", "edge"), moves)
        yield ""
        for event, means in lifecycle.events.items():
            yield f"- `{event}`: {means}"


def _index(tables: Tables) -> Iterator[str]:
    yield from ("# The rules", "")
    yield "Every outcome of every call is decided by a row of these tables, and by nothing else."
    yield "`dispatch-kubeflow explain ROW` shows one row;"
    yield "`dispatch-kubeflow tables check` proves that each case has exactly one."
    yield from (
        "",
        "- [The sentinels](sentinels.md): every error there is, and its exit code",
        "- [The specification](specification.md), sentence by sentence, with the rules that stand for it",
    )
    yield from ("- [The words](words.md) that the tables are written in", "", "## Families", "")
    yield from _table(
        ("family", "rules", "about"),
        (
            (f"[{name}]({name}.md)", str(len(each.rules)), _first_sentence(each.about))
            for name, each in tables.families.items()
        ),
    )
    yield from ("", "## Lifecycles", "")
    yield from _table(
        ("lifecycle", "states", "about"),
        (
            (f"[{name}](lifecycle-{name}.md)", str(len(each.states)), _first_sentence(each.about))
            for name, each in tables.lifecycles.items()
        ),
    )


def _sentinels(tables: Tables) -> Iterator[str]:
    yield from (
        "# The sentinels",
        "",
        "Every failure is exactly one of these classes of `dispatch_kubeflow.machine`.",
        "",
    )
    used: dict[str, list[str]] = {name: [] for name in tables.vocabulary.sentinels}
    for rule in _rules(tables):
        if rule.sentinel in used:
            used[rule.sentinel].append(rule.id)
    for name, sentinel in tables.vocabulary.sentinels.items():
        parent = f", a kind of `{sentinel.parent}`" if sentinel.parent in tables.vocabulary.sentinels else ""
        yield from (
            f"## {name}",
            "",
            f"Exit code {code_of_sentinel(name):d}{parent}. {sentinel.means} {sentinel.next}",
            "",
        )
        yield from (", ".join(_rule_link(tables, each) for each in used[name]) + ".", "")
    yield from ("## Other exit codes", "")
    yield from _table(
        ("code", "means"), ((str(int(code)), MEANS[code]) for code in Exit if code not in _sentinel_codes(tables))
    )


def _specification(tables: Tables) -> Iterator[str]:
    yield from ("# The specification, sentence by sentence", "")
    cited: dict[str, list[str]] = {row: [] for row in tables.page_rows}
    for rule in _rules(tables):
        for row in rule.spec:
            if row in cited:
                cited[row].append(rule.id)
    for row, sentences in tables.page_rows.items():
        yield from (f"## {row}", "")
        for sentence in sentences:
            yield from (f"> {sentence}", "")
        yield from (", ".join(_rule_link(tables, each) for each in cited[row]) + ".", "")


def _words(tables: Tables) -> Iterator[str]:
    words = tables.vocabulary
    yield from ("# The words of the tables", "")
    sections: list[tuple[str, Iterable[tuple[str, str]]]] = [
        ("Stages, in their order", words.stages.items()),
        ("Operations", ((name, each.means) for name, each in words.operations.items())),
        ("Modes", words.modes.items()),
        ("What may be concluded", ((name, f"{each.means} {each.next}") for name, each in words.concludes.items())),
        ("Effects", words.effects.items()),
        ("Details of an error", words.details.items()),
    ]
    for title, pairs in sections:
        yield from (f"## {title}", "")
        yield from _table(("word", "means"), ((f"`{name}`", means) for name, means in pairs))
        yield ""


def _rule(rule: Rule, family: Family, tables: Tables) -> Iterator[str]:
    outcome = (
        f"gives `{rule.gives}`"
        if rule.gives
        else ("refuses nothing" if rule.sentinel == "none" else f"**{rule.sentinel}**")
    )
    rows = ", ".join(
        f"[{row}](specification.md#{row.lower()})" if row in tables.page_rows else row for row in rule.spec
    )
    yield from (f"### {rule.id}", "", f"{outcome[0].upper()}{outcome[1:]}. From: {rows}. Stage: {rule.stage}.", "")
    if rule.when:
        yield f"- when {_when(rule.when)}"
    if set(rule.operations) != set(family.operations):
        yield f"- for {_codes(rule.operations)}"
    if set(rule.modes) != set(family.modes):
        yield f"- in mode {_codes(rule.modes)}"
    if rule.yields_to:
        yield f"- unless {_codes(rule.yields_to)} applies"
    if rule.message:
        yield f"- says: “{' '.join(rule.message.split())}”"
    if rule.concludes:
        yield f"- concludes: {tables.vocabulary.concludes[rule.concludes].means}"
    for effect in rule.effects:
        yield f"- effect: {tables.vocabulary.effects[effect]}"
    if rule.details:
        yield f"- details: {_codes(rule.details)}"
    if rule.reason:
        yield f"- reason: {' '.join(rule.reason.split())}"
    yield ""


def _rules(tables: Tables) -> Iterator[Rule]:
    for family in tables.families.values():
        yield from family.rules


def _rule_link(tables: Tables, name: str) -> str:
    return f"[{name}]({tables.rule(name).family}.md#{name.replace('.', '')})"


def _sentinel_codes(tables: Tables) -> set[int]:
    return {int(code_of_sentinel(name)) for name in tables.vocabulary.sentinels}


def _when(box: Box) -> str:
    return " and ".join(f"`{name}` is {_codes(values, ' or ')}" for name, values in box.items())


def _code(text: str | None) -> str:
    return f"`{text}`"


def _codes(values: Iterable[str], joint: str = ", ") -> str:
    return joint.join(f"`{value}`" for value in values)


def _state(name: str, initial: bool, final: bool) -> str:
    return f"`{name}`" + (" (initial)" if initial else "") + (" (final)" if final else "")


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".") + "."


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in row)} |"


def _page(lines: Iterable[str]) -> str:
    return "\n".join([MADE, "", *lines]).rstrip() + "\n"
