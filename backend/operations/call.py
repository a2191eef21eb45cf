"""One call of a Backend, on its way through the stages: it carries the context, sends requests, and turns facts into
decisions. Operations read like the contract's tables because everything that is the same for all of them is here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Literal, NoReturn, TypeVar

from msgspec import Struct

from dispatch_kubeflow.backend.objects import seen
from dispatch_kubeflow.backend.requests import Failure, ListReply, Reply, Request, refuse
from dispatch_kubeflow.backend.requests.answers import failed
from dispatch_kubeflow.backend.requests.resources import Resource
from dispatch_kubeflow.machine.context import Context
from dispatch_kubeflow.machine.rules import Rule

from .adapter import Adapter

T = TypeVar("T", bound=Struct)
Outcome = Literal[
    "unsent",
    "context-ended",
    "lost",
    "denied",
    "absent",
    "path-not-found",
    "exists",
    "conflict",
    "wrong-kind",
    "refused",
]
MERGE_PATCH = "application/merge-patch+json"
TRIES = 8
"""How often a write that meets a conflict is judged anew and tried again, in all (C26)."""


@dataclass(frozen=True, slots=True)
class Got(Generic[T]):
    """An object that was read: whole, and the fields that are judged."""

    body: dict[str, Any]
    seen: T


class Call:
    """One call: its operation, its context, and the object it is about."""

    def __init__(self, adapter: Adapter, operation: str, ctx: Context, subject: str | None = None) -> None:
        self.adapter = adapter
        self.operation = operation
        self.ctx = ctx
        self.subject = subject

    @property
    def namespace(self) -> str:
        return self.adapter.settings.namespace

    @property
    def mode(self) -> str:
        return self.adapter.settings.mode

    # Facts to decisions.

    def decide(self, family: str, **facts: str) -> Rule:
        """What a table says of these facts."""
        return self.adapter.book.decide(family, operation=self.operation, mode=self.mode, **facts)

    def settle(
        self,
        family: str,
        /,
        *,
        details: Mapping[str, Any] | None = None,
        cause: BaseException | None = None,
        **facts: str,
    ) -> Rule:
        """What a table says of these facts; where that is a refusal, its error."""
        return self.adapter.book.settle(
            family,
            operation=self.operation,
            mode=self.mode,
            facts=facts,
            subject=self.subject,
            details=details or {},
            cause=cause,
        )

    def refuse(self, failure: Failure, **details: Any) -> NoReturn:
        """Raise what table `request` says of a failed request."""
        rule = refuse(
            failure,
            book=self.adapter.book,
            operation=self.operation,
            mode=self.mode,
            subject=self.subject,
            extra_details=details,
        )
        never(f"{rule.id} is no refusal")

    def judge(self, failure: Failure) -> Rule:
        """What table `request` says of a failed request, without raising it."""
        return self.decide("request", **failure.facts)

    def check_context(self) -> None:
        """Stage 4: the context must not have ended before a request begins."""
        self.settle("context", ended=self.ctx.ended or "no")

    # Requests.

    def send(self, request: Request) -> Reply:
        """Send one request; whatever becomes of it is in the reply."""
        return self.adapter.door.send(request, self.ctx, operation=self.operation)

    def try_get(self, resource: Resource, name: str, kind: type[T]) -> Got[T] | Failure:
        """Read one object of the Backend's namespace (or of the cluster)."""
        request = Request("GET", resource, namespace=self._namespace(resource), name=name)
        reply = self.send(request)
        if reply.failure is not None or reply.object is None:
            return _failed(reply)
        found = seen.read(reply.object, kind)
        if isinstance(found, seen.Unreadable):
            return unreadable(request, found)
        return Got(reply.object, found)

    def get(self, resource: Resource, name: str, kind: type[T]) -> Got[T]:
        """Read one object, or raise what table `request` says."""
        found = self.try_get(resource, name, kind)
        return found if isinstance(found, Got) else self.refuse(found)

    def look(self, resource: Resource, name: str, kind: type[T]) -> Got[T] | None:
        """Read one object that may be absent: None only where its absence is believed."""
        found = self.try_get(resource, name, kind)
        if isinstance(found, Got):
            return found
        return None if outcome(self.judge(found)) == "absent" else self.refuse(found)

    def list(self, resource: Resource, selector: str | None, kind: type[T]) -> tuple[T, ...]:
        """Every object of a kind in the Backend's namespace that the selector picks, or raise what `request` says."""
        found = self.try_list(resource, selector, kind)
        return self.refuse(found) if isinstance(found, Failure) else found

    def try_list(self, resource: Resource, selector: str | None, kind: type[T]) -> tuple[T, ...] | Failure:
        """Every object of a kind in the Backend's namespace that the selector picks, or why they can't be had."""
        reply: ListReply[T] = self.adapter.door.list(
            resource,
            self.ctx,
            operation=self.operation,
            namespace=self._namespace(resource),
            selector=selector,
            type=kind,
        )
        return reply.items if reply.failure is None else reply.failure

    def post(self, resource: Resource, body: Mapping[str, Any]) -> Reply:
        """Create an object; its name is its precondition."""
        return self.send(Request("POST", resource, namespace=self._namespace(resource), body=body, intent="write"))

    def patch(self, resource: Resource, name: str, body: Mapping[str, Any]) -> Reply:
        """Merge-patch an object; the body carries the uid and the resourceVersion it was read with."""
        return self.send(
            Request(
                "PATCH",
                resource,
                namespace=self._namespace(resource),
                name=name,
                body=body,
                content_type=MERGE_PATCH,
                intent="write",
            )
        )

    def delete(self, resource: Resource, name: str, *, uid: str, resource_version: str | None = None) -> Reply:
        """Delete an object by its uid, in the background; by its resourceVersion too where one is given."""
        preconditions = {"uid": uid}
        if resource_version is not None:
            preconditions["resourceVersion"] = resource_version
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": preconditions,
        }
        return self.send(
            Request(
                "DELETE",
                resource,
                namespace=self._namespace(resource),
                name=name,
                body=body,
                intent="write",
                expect="delete",
            )
        )

    def _namespace(self, resource: Resource) -> str | None:
        return self.namespace if resource.namespaced else None


@contextmanager
def running(call: Call) -> Iterator[Call]:
    """The call for as long as it runs: close cancels it."""
    call.adapter.running.enter(call.ctx)
    try:
        yield call
    finally:
        call.adapter.running.leave(call.ctx)


def outcome(rule: Rule) -> Outcome:
    """A failed request by what its row says: the words in which tables `start` and `stop` speak of it."""
    if rule.id in _OUTCOME_OF_ROW:
        return _OUTCOME_OF_ROW[rule.id]
    if rule.sentinel in ("ErrUnauthorized", "ErrAdmissionDenied") and rule.concludes == "refused":
        return "denied"
    return _OUTCOME_OF_CONCLUSION[rule.concludes or ""]


_OUTCOME_OF_ROW: Mapping[str, Outcome] = {
    "request.deadline": "context-ended",
    "request.deadline-hold-family": "context-ended",
    "request.cancelled": "context-ended",
    "request.already-exists": "exists",
    "request.conflict": "conflict",
    "request.wrong-kind": "wrong-kind",
}
_OUTCOME_OF_CONCLUSION: Mapping[str, Outcome] = {
    "nothing-sent": "unsent",
    "may-have-applied": "lost",
    "nothing-learned": "lost",
    "absent": "absent",
    "absence-not-shown": "path-not-found",
    "refused": "refused",
}


def never(why: str) -> NoReturn:
    """A place that no facts lead to: the tables or the code around it would have to be wrong."""
    raise AssertionError(why)


def _failed(reply: Reply) -> Failure:
    if reply.failure is None:
        never("a reply without an object says why")
    return reply.failure


def unreadable(request: Request, found: seen.Unreadable) -> Failure:
    """An object whose fields are not of the form its kind promises was not read: a read without an answer."""
    return failed(request, "lost", sent=True, details={"message": found.problem})
