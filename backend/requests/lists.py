"""A list may be long and the cluster busy: it is read page by page, straight into what is kept, and begun anew when its
continuation has expired.

A fresh continuation that the server offers with a 410 is never used: the rest would be of another version than the
beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import msgspec

from .answers import require_kind
from .http1 import AnswerMalformed
from .reply import Failure, ListReply
from .request import Request

T = TypeVar("T")

PAGE = 500
"""Items an answer."""
RESTARTS = 3
"""How often a list begins anew after a 410; the next 410 is the list's failure."""
MOST_PAGES = 10_000
"""Pages of one list, five million items: more than a cluster can store of one kind."""


class _Metadata(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion")
    continues: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T], frozen=True, rename="camel"):
    """One page of a list. `items` may be null, as Go writes an empty one, but must be there."""

    api_version: str
    kind: str
    metadata: _Metadata
    items: list[T] | None


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


def page_reader(request: Request, kind: Any) -> Callable[[bytes], Any]:
    """Reads one page's bytes, items as `kind`. The reader raises WrongKind or AnswerMalformed."""
    pages = msgspec.json.Decoder(Page[kind])
    kinds = msgspec.json.Decoder(_Kind)
    resource = request.resource
    stamped = {
        name: value
        for name, value in (("api_version", resource.api_version), ("kind", resource.kind))
        if name in getattr(kind, "__struct_fields__", ())
    }

    def read(body: bytes) -> Any:
        try:
            str(body, "utf-8")  # what is left out is not looked at, and a damaged key would be left out
            said = kinds.decode(body)
            require_kind(said.api_version, said.kind, resource.api_version, resource.kind + "List")
            page = pages.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise AnswerMalformed(f"the list cannot be read: {type(error).__name__}") from None
        for item in page.items or ():
            for name, value in stamped.items():
                # Items of built-in kinds do not say what they are; they take the list's kind.
                msgspec.structs.force_setattr(item, name, value)
        return page

    return read


def paged(
    ask: Callable[[str], tuple[Any, Failure | None]], endless: Callable[[AnswerMalformed], Failure]
) -> ListReply[Any]:
    """The whole list. `ask` gets a continuation ("" for the first page) and gives a page, or a failure.

    A list that comes back to where it was, or has more pages than there can be, has no end: `endless` says what that
    is. A page without items is a page: a server may leave out all that a selector does not want.
    """
    restarts = 0
    while True:
        items: list[Any] = []
        continuation = version = ""
        asked: set[str] = set()
        while True:
            page, failure = ask(continuation)
            if failure is not None:
                break
            items += page.items or ()
            version = version or page.metadata.resource_version
            if not page.metadata.continues:
                return ListReply(tuple(items), version, restarts=restarts)
            continuation = page.metadata.continues
            if continuation in asked or len(asked) == MOST_PAGES:
                failure = endless(AnswerMalformed("the list continues without end"))
                break
            asked.add(continuation)
        if failure.result != "410" or restarts == RESTARTS:
            return ListReply(failure=with_tries(failure, restarts + 1), restarts=restarts)
        restarts += 1


def with_tries(failure: Failure, tries: int) -> Failure:
    """The failure with how many tries were made of it, where that was more than one."""
    return failure if tries == 1 else replace(failure, details={**failure.details, "tries": tries})
