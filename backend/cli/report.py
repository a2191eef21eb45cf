"""An error is worth what its reader can do next: so each is shown as its sentence, its row, and the next safe step."""

from __future__ import annotations

from typing import Any

from dispatch_kubeflow.machine import DispatchError
from dispatch_kubeflow.machine.rules import Rulebook, rulebook

from .exits import Refusal


def error_text(error: DispatchError) -> str:
    """An error for people."""
    book = rulebook()
    means, following = conclusion(book, error)
    return "\n".join((
        str(error), *(f"  {each}" for each in notes(error)), f"  {error.sentinel}, row {error.row}. {means}",
        f"  Next: {following}",
    ))  # fmt: skip


def notes(error: DispatchError) -> list[str]:
    """What the command line knows besides: the file that was read."""
    return list(getattr(error, "__notes__", ()))


def error_document(error: DispatchError) -> dict[str, Any]:
    """An error for scripts."""
    book = rulebook()
    means, following = conclusion(book, error)
    return {
        "error": {
            "sentinel": error.sentinel,
            "row": error.row,
            "message": str(error),
            "operation": error.operation,
            "subject": error.subject,
            "details": dict(error.details),
            "notes": notes(error),
            "concludes": book.tables.rule(error.row).concludes,
            "means": means,
            "next": following,
        }
    }


def conclusion(book: Rulebook, error: DispatchError) -> tuple[str, str]:
    """What the caller may now believe, and do next, by the row that decided."""
    concludes = book.tables.rule(error.row).concludes
    assert concludes is not None  # of every rule that refuses something
    words = book.vocabulary.concludes[concludes]
    return words.means, words.next


def refusal_text(refusal: Refusal) -> str:
    """The command line's own refusal, for people."""
    return f"{refusal}\n  Next: {refusal.then}" if refusal.then else str(refusal)


def refusal_document(refusal: Refusal) -> dict[str, Any]:
    """The same, for scripts."""
    return {"error": {"sentinel": None, "message": str(refusal), "next": refusal.then}}
