"""Gets and lists: pages, versions asked for, and what is too old or too new to answer."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import bad_request, expired, future_version, unreasoned
from dispatch_kubeflow.backend.embedded.forms import Form
from dispatch_kubeflow.backend.embedded.history import Stored
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.messages import Answer
from dispatch_kubeflow.backend.embedded.options import Continue, ListOptions, parsed_version
from dispatch_kubeflow.backend.embedded.routes import Route
from dispatch_kubeflow.backend.embedded.store import Store

Object = dict[str, Any]

_TOO_OLD = "The resourceVersion for the provided list is too old."
_TOO_OLD_PAGE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def get(store: Store, kind: Kind, route: Route, form: Form) -> Answer:
    """One object; 504 for a version not reached yet."""
    try:
        asked = parsed_version(route.query.get("resourceVersion", ""))
    except ValueError as fault:
        raise unreasoned(str(fault)) from None
    if asked is not None and asked > store.resource_version:
        raise future_version(asked, store.resource_version)
    namespace = route.namespace if kind.resource.namespaced else None
    state = store.stored(kind.resource, namespace, route.name)
    return Answer(200, form.one(state, store.clock.now()), form.content_type)


def collection(store: Store, kind: Kind, route: Route, options: ListOptions, form: Form) -> Answer:
    """A list or a page of one."""
    namespace = route.namespace or None if kind.resource.namespaced else None
    with store.lock:
        states, version = _stand(store, kind, namespace, options)
        limit = 0 if options.version_text == "0" else options.limit
        more = bool(limit) and len(states) > limit
        page = states[:limit] if more else states
        metadata: Object = {"resourceVersion": str(version)}
        if more:
            last = page[-1].place
            place = f"{last[0]}/{last[1]}" if kind.resource.namespaced and not namespace else last[1]
            metadata["continue"] = Continue(version, f"{place}\0").encoded()
            if not options.label_selector and not options.field_selector:
                metadata["remainingItemCount"] = len(states) - limit
        if form.shape == "whole" and not more and kind.custom:
            # A custom resource's list says so even when there is nothing to go on to.
            metadata["continue"] = ""
        return Answer(200, form.collection(kind, page, metadata, store.clock.now()), form.content_type)


def _stand(store: Store, kind: Kind, namespace: str | None, options: ListOptions) -> tuple[list[Stored], int]:
    """The states to answer with and the version they stand at."""
    if not options.token:
        at = _at(store, options)
        return _states(store, kind, namespace, options, at), at or store.resource_version
    token = Continue.decoded(options.token)
    if options.version_text not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    version = store.resource_version if token.version < 0 else token.version
    if version < store.compacted:
        raise expired(_TOO_OLD_PAGE, {"continue": Continue(-1, token.start).encoded()})
    states = _states(store, kind, namespace, options, version)
    by_namespace = kind.resource.namespaced and not namespace
    keys = [f"{state.place[0]}/{state.place[1]}" if by_namespace else state.place[1] for state in states]
    return states[bisect_left(keys, token.start) :], version


def _states(store: Store, kind: Kind, namespace: str | None, options: ListOptions, at: int | None) -> list[Stored]:
    return store.states(
        kind.resource,
        namespace,
        label_selector=options.label_selector,
        field_selector=options.field_selector,
        at=at,
    )


def _at(store: Store, options: ListOptions) -> int | None:
    asked = _version(options.version_text)
    if not asked:
        return None
    if asked > store.resource_version:
        raise future_version(asked, store.resource_version)
    exact = options.match == "Exact" or (not options.match and options.limit > 0)
    if not exact:
        return None
    if asked < store.compacted:
        raise expired(_TOO_OLD)
    return asked


def _version(text: str) -> int | None:
    try:
        return parsed_version(text)
    except ValueError as fault:
        raise bad_request(f"invalid resource version: {fault}") from None
