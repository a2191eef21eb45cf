"""The smallest possible client: one request, one answer, exactly as it came.

A judge must not lean on what it judges, nor on a client library that retries, converts or hides anything, so this is
plain http.client.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Object = dict[str, Any]
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
YAML = "application/yaml"


class Refused(Exception):
    """An answer that a helper did not expect; carries the answer."""

    def __init__(self, answer: Answer, request: str) -> None:
        super().__init__(f"{request}: {answer.status} {answer.text()[:2000]}")
        self.answer = answer


class NotSeen(Exception):
    """A condition that was waited for did not come; the text holds the object as it was last seen."""


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Api:
    """A server's address and, for one user, a token. Every call opens a connection of its own."""

    url: str
    token: str | None = None
    authority: Path | None = None
    timeout: float = 30.0
    headers: Mapping[str, str] = field(default_factory=dict)

    def as_user(self, token: str | None) -> Api:
        """The same server for another user; None is nobody."""
        return Api(self.url, token, self.authority, self.timeout, self.headers)

    def send(
        self,
        method: str,
        path: str,
        body: object | None = None,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends one request. `body` goes as it is when it is str or bytes, else as JSON."""
        connection = self._connect(self.timeout)
        try:
            response = self._request(
                connection, method, path, body, content_type=content_type, query=query, headers=headers
            )
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def expect(self, method: str, path: str, body: object | None = None, **options: Any) -> Object:
        """Sends one request that must succeed, and returns the object."""
        answer = self.send(method, path, body, **options)
        if not 200 <= answer.status < 300:
            raise Refused(answer, f"{method} {path}")
        result: Object = answer.json()
        return result

    def get(self, path: str, **options: Any) -> Object:
        return self.expect("GET", path, **options)

    def post(self, path: str, body: object, **options: Any) -> Object:
        return self.expect("POST", path, body, **options)

    def merge(self, path: str, body: object) -> Object:
        """A merge-patch."""
        return self.expect("PATCH", path, body, content_type=MERGE_PATCH)

    def find(self, path: str) -> Object | None:
        """The object, or None when the server says 404."""
        answer = self.send("GET", path)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise Refused(answer, f"GET {path}")
        result: Object = answer.json()
        return result

    def events(self, path: str, *, seconds: float, query: Mapping[str, str] | None = None) -> Iterator[Object]:
        """The events of a watch, until the server ends it or `seconds` have passed."""
        deadline = time.monotonic() + seconds
        connection = self._connect(seconds)
        try:
            wanted = {"watch": "1", "timeoutSeconds": str(max(1, int(seconds))), **(query or {})}
            response = self._request(connection, "GET", path, query=wanted)
            if response.status != 200:
                raise Refused(Answer(response.status, {}, response.read()), f"watch {path}")
            while (left := deadline - time.monotonic()) > 0:
                if connection.sock is not None:
                    connection.sock.settimeout(left)
                try:
                    line = response.readline()
                except TimeoutError:
                    return
                if not line:
                    return
                yield json.loads(line)
        finally:
            connection.close()

    def wait_for_list(
        self, collection: str, holds: Callable[[list[Object]], bool], *, selector: str = "", seconds: float = 30.0
    ) -> list[Object]:
        """Waits, by a watch, until `holds` is true of what a label selector lists; returns the objects then.

        Raises NotSeen, with their last state, after `seconds`.
        """
        return self._wait(collection, {"labelSelector": selector} if selector else {}, holds, seconds)

    def wait_for(
        self, collection: str, name: str, holds: Callable[[Object | None], bool], *, seconds: float = 30.0
    ) -> Object:
        """Waits, by a watch, until `holds` is true of an object (None: absent); returns it, or {} once absent.

        Raises NotSeen, with the last state, after `seconds`.
        """

        def one(seen: list[Object]) -> bool:
            return holds(seen[0] if seen else None)

        found = self._wait(collection, {"fieldSelector": f"metadata.name={name}"}, one, seconds)
        return found[0] if found else {}

    def _wait(
        self, collection: str, selector: Mapping[str, str], holds: Callable[[list[Object]], bool], seconds: float
    ) -> list[Object]:
        deadline = time.monotonic() + seconds
        seen: dict[str, Object] = {}
        while (left := deadline - time.monotonic()) > 0:
            listed = self.get(collection, query=selector)
            seen = {each["metadata"]["uid"]: each for each in listed["items"]}
            if holds(list(seen.values())):
                return list(seen.values())
            since = {"resourceVersion": listed["metadata"]["resourceVersion"], **selector}
            for event in self.events(collection, seconds=left, query=since):
                if event["type"] == "ERROR":
                    break
                uid = event["object"]["metadata"]["uid"]
                seen.pop(uid, None)
                if event["type"] != "DELETED":
                    seen[uid] = event["object"]
                if holds(list(seen.values())):
                    return list(seen.values())
        for each in seen.values():
            each["metadata"].pop("managedFields", None)
        raise NotSeen(f"{collection} was last seen as {json.dumps(list(seen.values()))}")

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        return http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=timeout, context=_trusting(self.authority)
        )

    def _request(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object | None = None,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        sent: dict[str, str] = {"Accept": JSON, **self.headers}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        payload: bytes | None = None
        if body is not None:
            sent["Content-Type"] = content_type
            text = body if isinstance(body, str | bytes) else json.dumps(body)
            payload = text.encode() if isinstance(text, str) else text
        sent.update(headers or {})
        target = f"{path}?{urlencode(query)}" if query else path
        connection.request(method, target, payload, sent)
        return connection.getresponse()


@lru_cache(maxsize=16)
def _trusting(authority: Path | None) -> ssl.SSLContext:
    """TLS that believes one authority, or any where none is named; to make one takes longer than a request."""
    if authority is not None:
        return ssl.create_default_context(cafile=str(authority))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def condition(seen: Object | None, kind: str) -> Object:
    """The condition of that type, or {} when the object has none."""
    conditions: list[Object] = (seen or {}).get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


def has(kind: str, status: str = "True") -> Callable[[Object | None], bool]:
    """For wait_for: the object has that condition with that status."""
    return lambda seen: condition(seen, kind).get("status") == status
