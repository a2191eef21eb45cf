"""The core of the embedded apiserver: one request in, one answer out, and no socket, thread or wall clock between.

`server.py` serves it over TLS; a test may as well hand it requests itself and move the clock by hand.
"""

from __future__ import annotations

import gzip
import itertools
import json
import traceback
from dataclasses import dataclass
from typing import Any

from dispatch_kubeflow.backend.embedded import discovery, pods, protobuf, reading, reviews
from dispatch_kubeflow.backend.embedded.access import Access, Attributes
from dispatch_kubeflow.backend.embedded.errors import ApiError, bad_request, internal, not_found
from dispatch_kubeflow.backend.embedded.forms import Form, form
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.messages import Answer, Request, of_error, of_text
from dispatch_kubeflow.backend.embedded.metadata import path_segment
from dispatch_kubeflow.backend.embedded.options import list_options
from dispatch_kubeflow.backend.embedded.routes import Route, route
from dispatch_kubeflow.backend.embedded.store import Store, Write
from dispatch_kubeflow.backend.embedded.watching import Watch
from dispatch_kubeflow.backend.embedded.writing import Writer

_GZIP_OVER = 128 * 1024


@dataclass(slots=True)
class Received:
    """One request as it was answered: ground truth for tests that count requests.

    `status` is 0 until there is an answer; `committed` is the version of the write it made, if it made one.
    """

    id: str
    method: str
    path: str
    query: str
    user: str
    status: int = 0
    committed: int | None = None
    message: str = ""


class Apiserver:
    """Answers requests for the objects of a store.

    `requests` lists what was received, in order. `failures` holds the traces of errors of this program itself, which a
    client sees as a 500; a test may assert that there are none.
    """

    def __init__(self, store: Store, access: Access | None = None, *, logs: pods.LogProvider | None = None) -> None:
        self.store = store
        self.access = access or Access(store)
        self.logs = logs or _no_kubelet
        self.requests: list[Received] = []
        self.failures: list[str] = []
        self._numbers = itertools.count(1)
        for kind in reviews.review_kinds():
            store.install(kind)

    def handle(self, request: Request) -> Answer:
        """Answer one request. Never raises: an error of this program is a 500 and a trace in `failures`."""
        path, _, query = request.target.partition("?")
        received = Received(f"r{next(self._numbers)}", request.method, path, query, "")
        self.requests.append(received)
        how = Write(request=received.id, peeks=True)
        try:
            answer = self._answered(request, received, how)
        except ApiError as error:
            answer = of_error(error)
            if request.headers.get("accept", "").strip() == protobuf.MEDIA:
                answer.body, answer.content_type = protobuf.status(error.body()), protobuf.MEDIA
            received.message = error.message
        except Exception as error:  # noqa: BLE001  # a server answers, whatever went wrong in it
            self.failures.append(traceback.format_exc())
            answer = of_error(internal(f"{type(error).__name__}: {error}"))
        received.status = answer.status
        received.committed = how.committed
        for warning in dict.fromkeys(how.warnings):
            answer.headers.append(("Warning", f'299 - "{_quoted(warning)}"'))
        answer.headers.append(("Audit-Id", received.id))
        answer.headers.append(("Cache-Control", "no-cache, private"))
        _compress(request, answer)
        return answer

    def _answered(self, request: Request, received: Received, how: Write) -> Answer:
        user = self.access.authenticate(request.headers, request.certified)
        received.user = how.user = user.name
        target = route(request.method, request.target)
        self.access.authorize(user, Attributes.of(target))
        if not target.resource:
            return self._unresourced(request, target)
        kind = self._kind(target)
        if isinstance(kind, Answer):
            return kind
        if target.resource in _REVIEWED and request.method == "POST":
            validation = target.query.get("fieldValidation", "")
            return reviews.review(self.access, user, kind, request, target.namespace, validation, how.warnings)
        shape = form(request.headers.get("accept"), kind, named=bool(target.name))
        if target.subresource not in ("", "status") or (target.subresource and not kind.has_status):
            return self._subresource(request, target, kind, how, shape)
        return self._verb(request, target, kind, how, shape)

    def _unresourced(self, request: Request, target: Route) -> Answer:
        answer = discovery.answer(self.store, target.path, request.headers.get("accept", ""))
        if answer is None:
            return self._nowhere(target.path.strip("/").split("/"))
        if request.method not in ("GET", "HEAD") and target.path.strip("/") != "apis":
            return of_error(_unallowed())
        return answer

    def _kind(self, target: Route) -> Kind | Answer:
        found = self.store.served(target.group, target.resource)
        fits = found is not None and (not found.custom or _fits(found, target))
        if fits and found is not None and found.resource.version == target.version:
            return found
        return self._nowhere(target.path.strip("/").split("/"))

    def _nowhere(self, steps: list[str]) -> Answer:
        """404: in JSON below Kubernetes' own groups, in plain text where no group answers."""
        own = {kind.resource.group for kind in self.store.kinds() if not kind.custom}
        if (steps[0] == "api" and len(steps) > 1) or (steps[0] == "apis" and len(steps) > 1 and steps[1] in own):
            return of_error(_nowhere())
        return of_text(404, "404 page not found")

    def _subresource(self, request: Request, target: Route, kind: Kind, how: Write, shape: Form) -> Answer:
        doing = (kind.resource.plural, target.subresource, request.method)
        if doing == ("pods", "log", "GET"):
            return pods.log(self.store, self.logs, target)
        if doing == ("pods", "eviction", "POST"):
            return pods.evict(self.store, target, request, how)
        if doing == ("pods", "binding", "POST"):
            return pods.bind(self.store, target, request, how)
        if doing == ("namespaces", "finalize", "PUT"):
            return self._verb(request, target, kind, how, shape)
        if kind.custom:
            raise not_found(kind.resource.group, kind.resource.plural, target.name)
        known = (kind.resource.plural, target.subresource) in _SUBRESOURCES
        raise _unallowed() if known else _nowhere()

    def _verb(self, request: Request, target: Route, kind: Kind, how: Write, shape: Form) -> Answer:
        verb = target.verb
        if target.name and (wrong := path_segment(target.name)):
            raise bad_request(f"Name parameter invalid: {json.dumps(target.name)}: {';'.join(wrong)}")
        if not kind.custom:
            if kind.resource.namespaced and target.name and not target.namespace:
                raise _nowhere()
            if not kind.resource.namespaced and target.namespace not in ("", target.name):
                raise _nowhere()
            if not _routed(kind, target, request.method):
                raise _unallowed()
        if verb == "get":
            return reading.get(self.store, kind, target, shape)
        if verb == "list":
            return reading.collection(self.store, kind, target, list_options(target.query, watch=False), shape)
        if verb == "watch":
            options = list_options(target.query, watch=True)
            return Answer(200, content_type=shape.content_type, stream=Watch(self.store, kind, target, options, shape))
        writer = Writer(self.store, kind, target, request, shape, how)
        doing = {"create": writer.create, "delete": writer.delete} if not target.subresource else {}
        doing |= {"update": writer.update, "patch": writer.patch, "deletecollection": writer.delete_collection}
        if verb in doing:
            return doing[verb]()
        group = {"group": kind.resource.group} if kind.resource.group else {}
        raise ApiError(
            405,
            "MethodNotAllowed",
            f'{verb} is not supported on resources of kind "{kind.resource.qualified}"',
            details={**group, "kind": kind.resource.plural},
        )


_REVIEWED = frozenset(kind.resource.plural for kind in reviews.review_kinds())
_SUBRESOURCES = frozenset({("pods", "log"), ("pods", "eviction"), ("pods", "binding"), ("namespaces", "finalize")})


def _fits(kind: Kind, target: Route) -> bool:
    if not kind.resource.namespaced:
        return not target.namespace
    return bool(target.namespace) or target.verb in ("list", "watch")


def _routed(kind: Kind, target: Route, method: str) -> bool:
    """Whether a built-in kind has a route for the method: its own routes are stricter than a custom resource's."""
    if kind.verbs == ("create",):
        return method == "POST"
    if target.name:
        return method in ("GET", "PUT", "PATCH") or (method == "DELETE" and not target.subresource)
    if kind.resource.namespaced and not target.namespace:
        # Over all namespaces one may list and, of the kinds served here, nothing else.
        return method == "GET"
    return method in ("GET", "POST") or (method == "DELETE" and "deletecollection" in kind.verbs)


def _nowhere() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", bare_details=True)


def _unallowed() -> ApiError:
    return ApiError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        bare_details=True,
    )


def _no_kubelet(_: dict[str, Any], _container: str, _query: pods.LogQuery) -> None:
    raise ApiError(500, "", "no preferred addresses found; known addresses: []")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _compress(request: Request, answer: Answer) -> None:
    asked = request.headers.get("accept-encoding", "")
    encodings = {part.partition(";")[0].strip() for part in asked.split(",")}
    if "gzip" in encodings and len(answer.body) > _GZIP_OVER:
        answer.body = gzip.compress(answer.body, compresslevel=1, mtime=0)
        answer.headers.append(("Content-Encoding", "gzip"))
        answer.headers.append(("Vary", "Accept-Encoding"))
