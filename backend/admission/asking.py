"""Each request of the controller is bounded, counted, and made at most once; what its failure means the tables say."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from msgspec import Struct

from dispatch_kubeflow.backend.objects import names, seen
from dispatch_kubeflow.backend.operations.call import MERGE_PATCH, Outcome, outcome, unreadable
from dispatch_kubeflow.backend.requests import Door, Failure, Reply, Request
from dispatch_kubeflow.backend.requests.resources import Resource
from dispatch_kubeflow.machine.context import Context
from dispatch_kubeflow.machine.rules import Rulebook

T = TypeVar("T", bound=Struct)

OPERATION = "admission"
"""What spans call these requests; it is no call of a Backend, and the tables know it under the nearest one."""
APPLY = "application/apply-patch+yaml"
_NEAREST = {"operation": "release", "mode": "kueue"}


class Counts(Protocol):
    """Who wants to know of each request."""

    def requested(self, verb: str, resource: str, outcome: str) -> None:
        """A request was made; `verb` as Kubernetes' access rules name it, `outcome` "ok" or what came instead."""
        ...


class Asker:
    """Requests on behalf of the controller, through the one door."""

    def __init__(self, door: Door, book: Rulebook, counts: Counts) -> None:
        self.door = door
        self.book = book
        self._counts = counts

    def get(self, resource: Resource, name: str, namespace: str | None, kind: type[T], ctx: Context) -> T | Failure:
        """One object, read now."""
        request = Request("GET", resource, namespace=namespace, name=name)
        reply = self._send("get", request, ctx)
        return _object(reply, request, kind)

    def look(
        self, resource: Resource, name: str, namespace: str | None, kind: type[T], ctx: Context
    ) -> T | Failure | None:
        """One object that may be absent: None only where its absence is believed."""
        found = self.get(resource, name, namespace, kind, ctx)
        return None if isinstance(found, Failure) and self.outcome(found) == "absent" else found

    def list(
        self, resource: Resource, namespace: str, selector: str, kind: type[T], ctx: Context
    ) -> tuple[T, ...] | Failure:
        """Every object of a namespace that the selector picks."""
        reply = self.door.list(resource, ctx, operation=OPERATION, namespace=namespace, selector=selector, type=kind)
        self._count("list", resource.plural, reply.failure)
        return reply.items if reply.failure is None else reply.failure

    def create(self, resource: Resource, namespace: str, body: Any, kind: type[T], ctx: Context) -> T | Failure:
        """Create an object; its name is its precondition."""
        request = Request("POST", resource, namespace=namespace, body=body, intent="write")
        return _object(self._send("create", request, ctx), request, kind)

    def patch(
        self, resource: Resource, name: str, namespace: str | None, body: Any, kind: type[T], ctx: Context
    ) -> T | Failure:
        """Merge-patch an object; the body carries the uid and the resourceVersion it was read with."""
        request = Request(
            "PATCH",
            resource,
            namespace=namespace,
            name=name,
            body=body,
            content_type=MERGE_PATCH,
            intent="write",
        )
        return _object(self._send("patch", request, ctx), request, kind)

    def apply_status(
        self, resource: Resource, name: str, namespace: str | None, body: Any, kind: type[T], ctx: Context
    ) -> T | Failure:
        """Server-side apply to `/status`, forced: the fields that the body names are ours, and no others."""
        request = Request(
            "PATCH",
            resource,
            namespace=namespace,
            name=name,
            subresource="status",
            query={"fieldManager": names.FIELD_MANAGER, "force": True},
            body=body,
            content_type=APPLY,
            intent="write",
        )
        return _object(self._send("patch", request, ctx), request, kind)

    def outcome(self, failure: Failure) -> Outcome:
        """What a failed request says, by table `request`."""
        return outcome(self.book.decide("request", **_NEAREST, **failure.facts))

    def _send(self, verb: str, request: Request, ctx: Context) -> Reply:
        reply = self.door.send(request, ctx, operation=OPERATION)
        what = request.resource.plural + (f"/{request.subresource}" if request.subresource else "")
        self._count(verb, what, reply.failure)
        return reply

    def _count(self, verb: str, resource: str, failure: Failure | None) -> None:
        self._counts.requested(verb, resource, "ok" if failure is None else self.outcome(failure))


def _object(reply: Reply, request: Request, kind: type[T]) -> T | Failure:
    if reply.failure is not None:
        return reply.failure
    found = seen.read(reply.object or {}, kind)
    return unreadable(request, found) if isinstance(found, seen.Unreadable) else found
