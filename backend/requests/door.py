"""The only door to the network: one call here is at most one request, and what it gives is a value that can be judged.

Nothing is re-sent, nothing raised for what networks, servers, tokens and contexts do, and no thread, socket or process
outlives the call. What happened is told from this layer's own marker, never from the type of an exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .access import ClusterAccess
from .answers import WrongKind, failed, judge, wrong_kind
from .call import Abandoned
from .http1 import AnswerCut, AnswerMalformed, Head
from .lists import PAGE, page_reader, paged
from .logs import LONGEST_LOG, LogLines
from .reply import Failure, ListReply, LogReply, Reply
from .request import Request
from .resources import PODS, Resource
from .sender import Sender
from .watches import SERVER_SECONDS, SILENCE, Stream, Watch, Watcher

if TYPE_CHECKING:
    import msgspec

    from dispatch_kubeflow.machine.context import Clock, Context

T = TypeVar("T", bound="msgspec.Struct")


class Door:
    """Sends requests to one cluster. Safe for use from many threads, in the process that made it.

    `request_timeout` is the bound of one request in seconds, where the context has none nearer; `clock` is what tells
    how long each took.
    """

    def __init__(self, cluster: ClusterAccess, *, request_timeout: float, clock: Clock) -> None:
        self._sender = Sender(cluster, request_timeout, clock)

    @property
    def forked(self) -> bool:
        """Whether this is another process than the one that made it: then nothing is sent."""
        return self._sender.forked

    def send(self, request: Request, ctx: Context, *, operation: str) -> Reply:
        """Make one request. Never raises for what the network, the server, the token or the context does."""
        return self._sender.exchange(
            request,
            ctx,
            operation,
            lambda head, body, trouble: judge(request, head.status, head.headers, body, trouble),
        )

    def discover(self, group: str, version: str, ctx: Context, *, operation: str) -> Reply:
        """Ask whether a group-version is served: a 404, and nothing else, says that it is not."""
        resource = Resource(group, version, "", "")
        return self.send(Request("GET", resource, expect="discovery"), ctx, operation=operation)

    def list(
        self,
        resource: Resource,
        ctx: Context,
        *,
        operation: str,
        namespace: str | None,
        selector: str | None,
        type: type[T],  # noqa: A002 - what the items are read as, in the contract's word
    ) -> ListReply[T]:
        """The whole list, of which only what `type` keeps is kept."""
        template = Request("GET", resource, namespace, query=_selected(selector), expect="list")
        read = page_reader(template, type)

        def ask(continuation: str) -> tuple[Any, Failure | None]:
            query: dict[str, str | int | bool] = {**template.query, "limit": PAGE}
            if continuation:
                query["continue"] = continuation
            request = Request("GET", resource, namespace, query=query, expect="list")
            return self._page(request, ctx, operation, read)

        return paged(ask, lambda why: failed(template, "lost", sent=True, cause=why, details={"message": str(why)}))

    def watch(
        self,
        resource: Resource,
        ctx: Context,
        *,
        operation: str,
        namespace: str | None,
        selector: str | None,
        type: type[T],  # noqa: A002 - as in list
    ) -> Watch[T]:
        """What happens to a resource from now on, the present state first. See `Watch`."""
        template = Request("GET", resource, namespace, query=_selected(selector), expect="list")

        def listed() -> ListReply[T]:
            return self.list(resource, ctx, operation=operation, namespace=namespace, selector=selector, type=type)

        def opened(since: str) -> Stream | Failure:
            query: dict[str, str | int | bool] = {
                **template.query,
                "watch": 1,
                "allowWatchBookmarks": True,
                "resourceVersion": since,
                "timeoutSeconds": SERVER_SECONDS,
            }
            request = Request("GET", resource, namespace, query=query, expect="list")
            return self._sender.stream(request, ctx, operation, SILENCE, SERVER_SECONDS + self._sender.timeout)

        return Watch(
            Watcher[T](template, type, ctx, listed, opened, lambda seconds: self._sender.pause(ctx, seconds)).run()
        )

    def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        ctx: Context,
        *,
        operation: str,
        tail: int | None = None,
        follow: bool = False,
    ) -> LogReply:
        """A container's log; `tail`: its last lines only; `follow`: and what is written from now on.

        What is there already has to come within ten minutes of waiting for it, and each piece within the bound of one
        request; what is followed is bounded by its context alone.
        """
        query: dict[str, str | int | bool] = {"container": container}
        if tail is not None:
            query["tailLines"] = tail
        if follow:
            query["follow"] = True
        request = Request("GET", PODS, namespace, pod, "log", query, expect="log")
        silence, longest = (math.inf, math.inf) if follow else (self._sender.timeout, LONGEST_LOG)
        stream = self._sender.stream(request, ctx, operation, silence, longest)
        if isinstance(stream, Failure):
            return LogReply(failure=stream)
        return LogReply(LogLines(request, stream))

    def close(self) -> None:
        """Cancel what is under way and close every idle connection. Again: nothing."""
        self._sender.close()

    def _page(
        self, request: Request, ctx: Context, operation: str, read: Callable[[bytes], Any]
    ) -> tuple[Any, Failure | None]:
        pages: list[Any] = []

        def judged(head: Head, body: bytes | None, trouble: Exception | None) -> Reply:
            if not 200 <= head.status < 300:
                return judge(request, head.status, head.headers, body, trouble)
            try:
                if trouble is not None:
                    raise trouble
                pages.append(read(body or b""))
            except WrongKind as error:
                failure = wrong_kind(request, error, head.status)
            except (AnswerCut, AnswerMalformed, Abandoned, OSError) as error:
                failure = failed(
                    request, "lost", sent=True, cause=error, details={"status": head.status, "message": str(error)}
                )
            else:
                return Reply(request, head.status)
            return Reply(request, head.status, failure=failure)

        reply = self._sender.exchange(request, ctx, operation, judged)
        return (pages[0] if pages else None), reply.failure


def _selected(selector: str | None) -> Mapping[str, str | int | bool]:
    return {} if not selector else {"labelSelector": selector}
