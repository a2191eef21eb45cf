"""Watches: where they start, what a selector makes of a change, bookmarks, and how they end."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import expired, future_version, unreasoned
from dispatch_kubeflow.backend.embedded.forms import Form
from dispatch_kubeflow.backend.embedded.history import Event, Stored
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.options import ListOptions, parsed_version
from dispatch_kubeflow.backend.embedded.routes import Route
from dispatch_kubeflow.backend.embedded.store import Store

Object = dict[str, Any]
Match = Callable[[Mapping[str, Any]], bool]

_BOOKMARK_EVERY = 60.0
_BOOKMARK_BEFORE_END = 2.0
_FUTURE_PATIENCE = 3.0
_DEFAULT_TIMEOUT = (1800.0, 3600.0)
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


class Watch:
    """The stream of one watch, from its first line to its end."""

    def __init__(self, store: Store, kind: Kind, route: Route, options: ListOptions, form: Form) -> None:
        try:
            asked = parsed_version(options.version_text)
        except ValueError as fault:
            raise unreasoned(str(fault)) from None
        self._store = store
        self._kind = kind
        self._form = form
        self._namespace = route.namespace if kind.resource.namespaced else ""
        self._match = store.matcher(kind.resource, options.label_selector, options.field_selector)
        self._bookmarks = options.bookmarks
        self._initial = options.initial_events
        self._asked = asked or 0
        self._lines: list[bytes] = []
        self._ended = False
        self._wake: Callable[[], None] | None = None
        now = store.clock.monotonic()
        # Kubernetes draws a watch's length so that a fleet's watches do not end together.
        length = float(options.timeout) if options.timeout else random.uniform(*_DEFAULT_TIMEOUT)  # no secret
        self._ends = now + length
        self._final_bookmark = self._ends - _BOOKMARK_BEFORE_END if self._bookmarks and length > 2 else None
        self._next_bookmark = now + _BOOKMARK_EVERY
        self._patience: float | None = None
        with store.lock:
            self._position = store.resource_version
            self._start()
            self._events = store.subscribe(kind.resource, wake=self._woken)

    # -- what serves it

    @property
    def ended(self) -> bool:
        """Whether the last line has been taken."""
        return self._ended and not self._lines

    def take(self) -> list[bytes]:
        """The lines there are now, with the bookmarks that are due."""
        with self._store.lock:
            if not self._ended:
                self._advance(self._store.clock.monotonic())
            lines, self._lines = self._lines, []
        return lines

    def due(self) -> float | None:
        """When a bookmark or the end is due."""
        if self._ended:
            return None
        times = [self._ends, self._patience, self._final_bookmark]
        if self._bookmarks:
            times.append(self._next_bookmark)
        return min(time for time in times if time is not None)

    def listen(self, wake: Callable[[], None]) -> None:
        """Be told of new lines."""
        self._wake = wake

    def close(self) -> None:
        """Watch no more."""
        self._ended = True
        self._store.unsubscribe(self._events)

    def _woken(self) -> None:
        if self._wake is not None:
            self._wake()

    # -- what it says

    def _start(self) -> None:
        if self._initial:
            if self._asked > self._position:
                self._patience = self._store.clock.monotonic() + _FUTURE_PATIENCE
            else:
                self._send_present()
        elif self._initial is None and self._asked == 0:
            self._send_present()
        elif self._asked:
            if self._asked < self._store.compacted:
                error = expired(f"too old resource version: {self._asked} ({self._store.compacted})")
                self._fail(error.body())
                return
            for event in self._store.events(self._kind.resource, self._asked):
                self._send(event)

    def _send_present(self) -> None:
        now = self._store.clock.now()
        for state in self._store.states(self._kind.resource, self._namespace or None):
            if self._match is None or self._match(state.obj):
                self._lines.append(self._form.event("ADDED", state, now))
        self._position = self._store.resource_version
        if self._initial and self._bookmarks:
            self._bookmark(_INITIAL_END)

    def _advance(self, now: float) -> None:
        if self._patience is not None and not self._caught_up(now):
            return
        for event in self._events.drain():
            if event.version > max(self._position, 0):
                self._send(event)
        self._position = max(self._position, self._store.resource_version)
        if self._bookmarks and now >= self._next_bookmark:
            self._bookmark(None)
            self._next_bookmark = now + _BOOKMARK_EVERY
        if self._final_bookmark is not None and now >= self._final_bookmark:
            self._bookmark(None)
            self._final_bookmark = None
        if now >= self._ends:
            self._ended = True

    def _caught_up(self, now: float) -> bool:
        """Whether the version asked for has been reached; the end of patience is an error line."""
        if self._store.resource_version >= self._asked:
            self._patience = None
            self._send_present()
            return True
        if self._patience is not None and now >= self._patience:
            self._fail(future_version(self._asked, self._store.resource_version).body())
        return False

    def _send(self, event: Event) -> None:
        if self._namespace and event.state.place[0] != self._namespace:
            return
        if event.version <= self._asked:
            return
        shown = self._seen(event)
        if shown is not None:
            self._lines.append(self._form.event(*shown, self._store.clock.now()))

    def _seen(self, event: Event) -> tuple[str, Stored] | None:
        """What a change looks like through the selector."""
        before = event.before is not None and (self._match is None or self._match(event.before.obj))
        after = event.type != "DELETED" and (self._match is None or self._match(event.state.obj))
        if after:
            return ("MODIFIED" if before else "ADDED", event.state)
        if not before or event.before is None:
            return None
        if event.type == "DELETED":
            return ("DELETED", event.state)
        # Gone from the selection, not from the cluster: the old object at the new version, as the real cache says it.
        old = event.before.obj
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(event.version)}}
        return ("DELETED", Stored(last, event.state.place, event.version))

    def _bookmark(self, annotations: Mapping[str, str] | None) -> None:
        resource = self._kind.resource
        metadata: Object = {"resourceVersion": str(max(self._position, self._store.resource_version))}
        if annotations:
            metadata = {"annotations": dict(annotations), **metadata}
        obj: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        if resource.kind == "Pod":
            obj |= {"spec": {"containers": None}, "status": {}}
        self._lines.append(self._form.event("BOOKMARK", obj, self._store.clock.now()))

    def _fail(self, status: Object) -> None:
        self._lines.append(self._form.event("ERROR", status, self._store.clock.now()))
        self._ended = True
