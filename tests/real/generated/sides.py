"""The two sides of a comparison: each performs a step in its own way; what is a run's own is taken out."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from tests.real.api import Answer, Object
from tests.real.cluster import Cluster

from .steps import SORTS, Step

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_CONTINUE, _VERSION = "continue", "resourceVersion"
_LONGEST = 1800.0


class Side(Protocol):
    """A cluster that answers requests; `namespace` is renewed now and then, under the same name on both."""

    def begin(self, namespace: str) -> None: ...

    def send(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Answer: ...

    def events(self, sequence: str, until: Mapping[tuple[str, str], str | None]) -> list[tuple[str, str, Object]]:
        """Kind, type and object of every event of a sequence's objects, once the last version of each was seen."""


@dataclass
class Run:
    """One sequence performed on one side."""

    side: Side
    namespace: str
    sequence: str
    answers: list[Any] = field(default_factory=list)
    _uids: dict[str, str] = field(default_factory=dict)
    _versions: dict[str, str] = field(default_factory=dict)
    _seen: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)

    def perform(self, step: Step) -> Any:
        """Sends a step; what came, made comparable."""
        sort = SORTS[step.kind]
        key = (step.kind, step.name or _named(step.body))
        parts = [sort.prefix, "namespaces", self.namespace, sort.plural]
        if step.name:
            parts.append(f"{self.sequence}-{step.name}")
        if step.subresource:
            parts.append(step.subresource)
        query = {name: str(self._resolve(value, key)) for name, value in step.query.items()}
        target = "/".join(parts) + (f"?{urlencode(query)}" if query else "")
        body = None if step.body is None else json.dumps(self._resolve(step.body, key)).encode()
        headers = {} if body is None else {"Content-Type": step.content_type}
        answer = self.side.send(step.method, target, body, headers)
        self._learn(step, answer)
        return {"status": answer.status, **self._told(answer)}

    def events(self) -> list[Any]:
        """The events of every object of this sequence, by kind."""
        until = {(kind, name): self._now(kind, name) for kind, name in self._places()}
        found = self.side.events(self.sequence, until)
        return [{"kind": kind, "type": event, "object": self._clean(obj)} for kind, event, obj in found]

    def _places(self) -> list[tuple[str, str]]:
        return sorted(self._seen)

    def _now(self, kind: str, name: str) -> str | None:
        """The version an object stands at, None if it is gone."""
        sort = SORTS[kind]
        target = f"{sort.prefix}/namespaces/{self.namespace}/{sort.plural}/{self.sequence}-{name}"
        answer = self.side.send("GET", target, None, {})
        version: str | None = answer.json()["metadata"][_VERSION] if answer.status == 200 else None
        return version

    def _resolve(self, value: Any, key: tuple[str, str], path: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._resolve(each, key, f"{path}.{name}") for name, each in value.items()}
        if isinstance(value, list):
            return [self._resolve(each, key, path) for each in value]
        if not isinstance(value, str):
            return value
        if path == ".metadata.name" and value in ("a", "b"):
            return f"{self.sequence}-{value}"
        value = value.replace("$sequence", self.sequence).replace("$name", self.sequence)
        seen = self._seen.get(key, [])
        return {
            "$rv": seen[-1][1] if seen else "",
            "$old": seen[0][1] if seen else "",
            "$uid": seen[-1][0] if seen else "none",
        }.get(value, value)

    def _learn(self, step: Step, answer: Answer) -> None:
        """Remembers the uid and version of an object that was answered."""
        if answer.status not in (200, 201) or "dryRun" in step.query:
            return
        obj = answer.json()
        meta = obj.get("metadata", {})
        if not meta.get("uid") or not meta.get("name", "").startswith(f"{self.sequence}-"):
            return
        name = meta["name"].removeprefix(f"{self.sequence}-")
        self._seen.setdefault((step.kind, name), []).append((meta["uid"], meta[_VERSION]))

    def _told(self, answer: Answer) -> Any:
        try:
            body = json.loads(answer.body)
        except ValueError:
            return {"text": answer.text()[:60]}
        if body.get("kind") == "Status":
            return {"status object": self._status(body)}
        if isinstance(body.get("items"), list):
            more = {"more": bool(body["metadata"].get(_CONTINUE)), "left": body["metadata"].get("remainingItemCount")}
            return {"kind": body["kind"], "items": [self._clean(each) for each in body["items"]], **more}
        return {"object": self._clean(body)}

    def _status(self, body: Object) -> Object:
        details = {key: value for key, value in (body.get("details") or {}).items() if key != "causes"}
        # How often a fault is said, and in which order, is a matter of words.
        every = (body.get("details") or {}).get("causes", [])
        causes = sorted({f"{each.get('reason')} {each.get('field')}" for each in every})
        said = {key: body.get(key) for key in ("status", "reason", "code")}
        return {**said, "details": self._plain(details), "causes": self._plain(causes)}

    def _clean(self, obj: Object) -> Any:
        copied = {key: value for key, value in obj.items() if key != "metadata"}
        meta = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
        if meta.get(_VERSION):
            meta[_VERSION] = self._versions.setdefault(meta[_VERSION], f"<version {len(self._versions) + 1}>")
        return self._plain({**copied, "metadata": meta})

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._text(key): self._plain(each) for key, each in sorted(value.items())}
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = text.replace(self.sequence, "<sequence>").replace(self.namespace, "<namespace>")
        text = _UID.sub(lambda match: self._uids.setdefault(match[0], f"<uid {len(self._uids) + 1}>"), text)
        return _TIME.sub("<time>", text)


def _named(body: Any) -> str:
    meta = body.get("metadata") if isinstance(body, dict) else None
    return str(meta.get("name", "")) if isinstance(meta, dict) else ""


class RealSide:
    """The real control plane, over one connection that is kept; every kind of the namespace is watched."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._authority = ssl.create_default_context(cafile=str(cluster.authority))
        parts = urlsplit(cluster.url)
        self._address = (parts.hostname or "", parts.port)
        self._connection = self._connect()
        self._changed = threading.Condition()
        self._events: dict[str, list[tuple[str, str, Object]]] = {}
        self._namespace = ""
        self._closed = False

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(*self._address, timeout=30, context=self._authority)

    def begin(self, namespace: str) -> None:
        if self._namespace:
            self._cluster.delete_namespace(self._namespace)
        else:
            self._watch()
        self._namespace = namespace
        self._cluster.api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self._cluster.wait(accounts, "default", lambda seen: seen is not None)

    def _watch(self) -> None:
        """Follows every kind in all namespaces; sequences are told apart by their objects' names."""
        for sort in SORTS.values():
            path = f"{sort.prefix}/{sort.plural}"
            since = self._cluster.api.get(path)["metadata"][_VERSION]
            threading.Thread(target=self._follow, args=(sort.plural, path, since), daemon=True).start()

    def _follow(self, kind: str, path: str, since: str) -> None:
        for event in self._cluster.api.events(path, seconds=_LONGEST, query={_VERSION: since}):
            if self._closed:
                return
            name = event["object"].get("metadata", {}).get("name", "")
            with self._changed:
                self._events.setdefault(name.partition("-")[0], []).append((kind, event["type"], event["object"]))
                self._changed.notify_all()

    def close(self) -> None:
        self._closed = True
        self._connection.close()
        if self._namespace:
            self._cluster.delete_namespace(self._namespace)
            self._namespace = ""

    def send(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        said = {"Accept": "application/json", "Authorization": f"Bearer {self._cluster.tokens['admin']}", **headers}
        try:
            return self._exchange(method, target, body, said)
        except (http.client.RemoteDisconnected, ConnectionError):
            # The server had closed a connection that nobody used for a while.
            self._connection.close()
            self._connection = self._connect()
            return self._exchange(method, target, body, said)

    def _exchange(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        self._connection.request(method, target, body, dict(headers))
        response = self._connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())

    def events(self, sequence: str, until: Mapping[tuple[str, str], str | None]) -> list[tuple[str, str, Object]]:
        deadline = time.monotonic() + 10

        def complete() -> bool:
            seen = {
                (kind, obj["metadata"]["name"]): (event, obj["metadata"][_VERSION])
                for kind, event, obj in self._events.get(sequence, [])
            }
            for (kind, name), version in until.items():
                event, last = seen.get((kind, f"{sequence}-{name}"), ("", ""))
                if (event != "DELETED" and version is None) or (version is not None and version != last):
                    return False
            return True

        with self._changed:
            while not complete() and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return sorted(self._events.pop(sequence, []), key=lambda each: each[0])


class EmbeddedSide:
    """The embedded cluster's apiserver, called in process; its controllers never run."""

    def __init__(self) -> None:
        from dispatch_kubeflow.backend.embedded import Cluster as Embedded  # the real side must not need it
        from dispatch_kubeflow.backend.embedded import VirtualClock
        from dispatch_kubeflow.backend.embedded.messages import Request

        self._request: Callable[..., Any] = Request
        self._cluster = Embedded(serve=False, clock=VirtualClock(), seed=1)
        self._token = self._cluster.apiserver.access.user("generated", groups=["system:masters"])
        self._from = self._cluster.store.resource_version

    @property
    def failures(self) -> list[str]:
        return list(self._cluster.failures)

    def begin(self, namespace: str) -> None:
        self.send("POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": namespace}}).encode(), {})
        self._from = self._cluster.store.resource_version

    def send(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        said = {"accept": "application/json", "authorization": f"Bearer {self._token}"}
        said |= {name.lower(): value for name, value in headers.items()}
        answer = self._cluster.apiserver.handle(self._request(method, target, said, body or b""))
        return Answer(answer.status, dict(answer.headers), answer.body)

    def events(self, sequence: str, until: Mapping[tuple[str, str], str | None]) -> list[tuple[str, str, Object]]:
        found = []
        kinds = {(kind.resource.group, kind.resource.plural): kind.resource for kind in self._cluster.store.kinds()}
        for plural, sort in sorted(SORTS.items()):
            group = sort.prefix.split("/")[2] if sort.prefix.startswith("/apis") else ""
            events = self._cluster.store.events(kinds[group, plural], self._from)
            of_sequence = [each for each in events if each.state.place[1].startswith(f"{sequence}-")]
            found += [(plural, each.type, each.object) for each in of_sequence]
        return found

    def close(self) -> None:
        self._cluster.close()


def fresh_name() -> str:
    """A namespace name of a fixed length, not used before."""
    return f"drawn-{uuid.uuid4().hex[:8]}"
