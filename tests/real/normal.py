"""Makes two runs comparable: what differs between any two clusters becomes a placeholder, and nothing else does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .api import Answer
from .expand import dig

OURS = ("jobset.x-k8s.io", "trainer.kubeflow.org")
"""The groups of which everything is compared; which others a cluster serves is its own affair."""
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_VERSION_NUMBER = re.compile(r"(?<=resource version: )\d+|(?<=current: )\d+|(?<=object meta: )\d+|(?<=\()\d+(?=\))")
_WHOLE_OBJECT = re.compile(r'(?<=Invalid value: )("\{.*\}"|\{.*\})(?=: )', re.DOTALL)
_GO_DIFFERENCE = re.compile(r"(?<=previously negative\))\n@@ .*", re.DOTALL)
_CHOSEN_NODE = re.compile(r'(?<=already assigned to node ")[^"]+')
_HASH = re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{32,}")
_VERSIONS = frozenset({"resourceVersion", "continue"})
_WRITER = frozenset({"managedFields", "selfLink"})


def without_dumps(text: str) -> str:
    """A message without what two servers need not agree in.

    That is the node that a scheduler chose; an object that is quoted whole, for it holds `managedFields` and times; and
    what Go's printer says of two structs, which is line by line how Go lays out Kubernetes' internal types.
    """
    return _GO_DIFFERENCE.sub("", _CHOSEN_NODE.sub("<node>", _WHOLE_OBJECT.sub("<object>", text)))


class Normaliser:
    """Replaces uids, versions, times and names of one run; equal values get equal placeholders."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def name(self, value: str, placeholder: str) -> None:
        """From now on `value` reads as `<placeholder>`."""
        if len(value) > 2:
            self._names[value] = f"<{placeholder}>"

    def forget_uids(self) -> None:
        """Placeholders are counted afresh, so that one case more does not change all that follow."""
        self._uids = {}

    def text(self, text: str) -> str:
        """A message or value without what is this run's own."""
        for value in sorted(self._names, key=len, reverse=True):
            text = text.replace(value, self._names[value])
        text = _UID.sub(lambda match: self._uids.setdefault(match[0], f"<uid-{len(self._uids) + 1}>"), text)
        text = _TIME.sub("<time>", text)
        text = _ADDRESS.sub("<address>", text)
        return _HASH.sub("<hash>", text)

    def message(self, text: str) -> str:
        """A message, as two servers must agree in it: the versions in it are a run's own."""
        return _VERSION_NUMBER.sub("<version>", self.text(without_dumps(text)))

    def value(self, value: Any, key: str = "") -> Any:
        """An object or a part of one."""
        if isinstance(value, dict):
            return {self.text(k): self.value(v, k) for k, v in sorted(value.items()) if k not in _WRITER}
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, str):
            if key in _VERSIONS and value:
                return f"<{key}>"
            return self.text(value) if len(value) < 300 else f"<{len(value)} characters>"
        return value


def record(answer: Answer, show: list[str], normaliser: Normaliser) -> dict[str, Any]:
    """One answer as it is kept: status, headers that matter, the Status object or the chosen fields."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    kept: dict[str, Any] = {"status": answer.status, "contentType": headers.get("content-type")}
    if "warning" in headers:
        kept["warning"] = normaliser.message(headers["warning"])
    if "retry-after" in headers:
        kept["retryAfter"] = headers["retry-after"]
    if "www-authenticate" in headers:
        kept["wwwAuthenticate"] = headers["www-authenticate"]
    if "allow" in headers:
        kept["allow"] = headers["allow"]
    try:
        body = json.loads(answer.body)
    except ValueError:
        kept["body"] = normaliser.message(answer.text()[:500])
        return kept
    return {**kept, **record_object(body, show, normaliser)}


def record_object(body: Any, show: list[str], normaliser: Normaliser) -> dict[str, Any]:
    """The kept part of a decoded body."""
    if not isinstance(body, dict):
        return {"value": normaliser.value(body)}
    kept: dict[str, Any] = {"kind": body.get("kind"), "apiVersion": body.get("apiVersion")}
    if body.get("kind") == "Status":
        kept |= _status(body, normaliser)
        return kept
    if body.get("kind") == "APIGroupDiscoveryList":
        ours = [item for item in body["items"] if item["metadata"].get("name") in OURS]
        kept["items"] = [normaliser.value(item) for item in sorted(ours, key=lambda item: item["metadata"]["name"])]
        return kept
    if isinstance(body.get("items"), list):
        kept["items"] = [_fields(item, show, normaliser) for item in body["items"]]
        metadata = body.get("metadata", {})
        kept["metadata"] = {name: bool(value) for name, value in sorted(metadata.items()) if name != "selfLink"}
        return kept
    kept["fields"] = _fields(body, show, normaliser)
    return kept


def _status(body: Mapping[str, Any], normaliser: Normaliser) -> dict[str, Any]:
    kept: dict[str, Any] = {
        "outcome": body.get("status"),
        "reason": body.get("reason"),
        "code": body.get("code"),
        "message": normaliser.message(body.get("message", "")),
    }
    if body.get("details"):
        kept["details"] = normaliser.value({key: value for key, value in body["details"].items() if key != "causes"})
        causes = body["details"].get("causes")
        if causes:
            kept["details"]["causes"] = [
                {**normaliser.value(cause), "message": normaliser.message(cause.get("message", ""))} for cause in causes
            ]
    return kept


def _fields(body: Any, show: list[str], normaliser: Normaliser) -> dict[str, Any]:
    found = {path: dig(body, path) for path in show}
    return {
        path: normaliser.value(value, path.rsplit(".", 1)[-1]) for path, value in found.items() if value is not None
    }
