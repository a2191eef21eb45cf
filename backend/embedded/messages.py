"""A request and its answer as plain values, so that the apiserver's core knows of no socket and no thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dispatch_kubeflow.backend.embedded.access import User
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.history import encode

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. Header names are lower case; `certified` is the user a client certificate names."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    certified: User | None = None


class Stream(Protocol):
    """A body that goes on. Whoever serves it takes what there is, and comes back when woken or when due."""

    @property
    def ended(self) -> bool:
        """Whether everything has been taken and nothing more will come."""
        ...

    def take(self) -> list[bytes]:
        """What can be sent now."""
        ...

    def due(self) -> float | None:
        """The clock's monotonic time at which to take again even if not woken."""
        ...

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` when there is something to take; it must be quick."""
        ...

    def close(self) -> None:
        """Nobody takes any more."""
        ...


@dataclass(slots=True)
class Answer:
    """One HTTP answer: a whole body, a `stream`, or `chunks` that block until they come (a followed log)."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: list[tuple[str, str]] = field(default_factory=list)
    stream: Stream | None = None
    chunks: Iterator[bytes] | None = None


def of_object(obj: Any, status: int = 200) -> Answer:
    """An answer with an object as JSON."""
    return Answer(status, encode(obj))


def of_error(error: ApiError) -> Answer:
    """The answer a refusal becomes."""
    answer = of_object(error.body(), error.status)
    if error.retry_after is not None:
        answer.headers.append(("Retry-After", str(error.retry_after)))
    return answer


def of_text(status: int, text: str) -> Answer:
    """An answer that is no JSON, as Go's own `http.Error` gives it."""
    return Answer(status, f"{text}\n".encode(), "text/plain; charset=utf-8", [("X-Content-Type-Options", "nosniff")])
