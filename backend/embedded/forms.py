"""The forms a client may ask its objects in: whole, as a table (kubectl), or their metadata alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from dispatch_kubeflow.backend.embedded.columns import columns
from dispatch_kubeflow.backend.embedded.errors import ApiError, not_acceptable
from dispatch_kubeflow.backend.embedded.history import Stored, encode
from dispatch_kubeflow.backend.embedded.kinds import Kind

Object = dict[str, Any]

_TYPES = ("application/json", "application/yaml", "application/*", "*/*")
_PROTOBUF = "application/vnd.kubernetes.protobuf"


@dataclass(frozen=True, slots=True)
class Form:
    """One form an answer takes, and the content type that says so."""

    shape: Literal["whole", "table", "partial"]
    content_type: str
    kind: Kind | None = None

    def one(self, state: Stored, now: datetime) -> bytes:
        """One object."""
        if self.shape == "whole":
            return state.encoded
        return encode(self._shaped(state.obj, now))

    def collection(self, kind: Kind, states: Iterable[Stored], metadata: Object, now: datetime) -> bytes:
        """A list of objects."""
        if self.shape == "table":
            return encode(_table(kind, metadata, [state.obj for state in states], now))
        resource = kind.resource
        if self.shape == "partial":
            head: Object = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            items = [encode(_partial(state.obj)) for state in states]
        else:
            head = {"apiVersion": resource.api_version, "kind": f"{resource.kind}List", "metadata": metadata}
            items = [state.encoded if kind.custom else state.bare for state in states]
        return encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"

    def event(self, said: str, obj: Object | Stored, now: datetime) -> bytes:
        """One line of a watch."""
        if isinstance(obj, Stored):
            body = self.one(obj, now)
        else:
            body = encode(obj if self.shape == "whole" or obj.get("kind") == "Status" else self._shaped(obj, now))
        return b'{"type":"' + said.encode() + b'","object":' + body + b"}\n"

    def _shaped(self, obj: Object, now: datetime) -> Object:
        if self.shape == "partial":
            return _partial(obj)
        return _table(self.kind, {"resourceVersion": obj["metadata"]["resourceVersion"]}, [obj], now)


def form(accept: str | None, kind: Kind | None, *, named: bool = False) -> Form:
    """The form a request asks for by its `Accept` header; 406 where none of those can be served."""
    for entry in (accept or "*/*").split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        if media not in _TYPES:
            continue
        asked = dict(part.split("=", 1) for part in parameters if "=" in part)
        shown = "application/yaml" if media == "application/yaml" else "application/json"
        kind_asked = asked.get("as")
        if kind_asked is None:
            return Form("whole", shown)
        if asked.get("g") == "meta.k8s.io" and asked.get("v") == "v1":
            if kind_asked == "Table":
                return Form("table", shown, kind)
            if kind_asked in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return Form("partial", shown)
    raise _unacceptable(kind, named)


def _unacceptable(kind: Kind | None, named: bool) -> ApiError:
    own = ["application/json", "application/yaml", _PROTOBUF]
    if kind is None or kind.custom:
        return not_acceptable(own)
    # A built-in kind's routes refuse before Kubernetes' own negotiation, in their library's words.
    streamed = [] if named else ["application/json;stream=watch", f"{_PROTOBUF};stream=watch"]
    text = f"406: Not Acceptable\n\nAvailable representations: {', '.join([*own, *streamed])}"
    return ApiError(406, "NotAcceptable", text, bare_details=True)


def _partial(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _table(kind: Kind | None, metadata: Object, objects: Iterable[Object], now: datetime) -> Object:
    shown = columns("" if kind is None else kind.resource.kind, None if kind is None else kind.columns)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.described() for column in shown],
        "rows": [{"cells": [column.cell(obj, now) for column in shown], "object": _partial(obj)} for obj in objects],
    }
