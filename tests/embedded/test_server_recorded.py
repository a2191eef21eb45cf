"""Replays requests whose answers were recorded on a real kube-apiserver 1.36.3 and finds every answer that differs.

Each sequence starts in an empty namespace and builds on itself. What differs from run to run (uids, versions, times) is
replaced on both sides; `$rv(PATH)` and `$continue(PATH)` in a request stand for what a GET of the path says then.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real.normal import without_dumps

from .conftest import NAMESPACE, Serving

RECORDED = Path(__file__).parent / "data" / "recorded-answers.json"
SEQUENCES = ("trainjobs", "reading", "built-in")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NO_UID = "00000000-0000-0000-0000-000000000000"
_REFERENCE = re.compile(r"\$(rv|continue)\(([^)]*)\)")
_TIMES = frozenset({"creationTimestamp", "deletionTimestamp", "lastTransitionTime", "time"})

Send = Callable[[str, str, Any, str, "str | None", dict[str, str]], tuple[int, dict[str, str], Any]]


def resolved(case: dict[str, Any], send: Send, _: Callable[[], None]) -> tuple[int, dict[str, str], Any]:
    """Send a recorded request with its references looked up."""

    def look(match: re.Match[str]) -> str:
        found = send("GET", match[2], None, "", "tok-admin", {})[2]["metadata"]
        return str(found["resourceVersion" if match[1] == "rv" else "continue"])

    path = _REFERENCE.sub(look, case["path"])
    body: Any = case.get("body")
    if body is not None:
        body = json.loads(_REFERENCE.sub(look, json.dumps(body)))
    elif case.get("base64") == "$large":
        body = b"x" * (3 * 1024 * 1024 + 1)
    elif "base64" in case:
        body = base64.b64decode(case["base64"])
    headers = {key.replace("-", "_"): value for key, value in case.get("headers", {}).items()}
    return send(case["method"], path, body, case.get("content_type", ""), case.get("token", "tok-admin"), headers)


def normal(status: int, headers: dict[str, str], body: Any) -> dict[str, Any]:
    """An answer without what differs from run to run."""
    if isinstance(body, str) and body.startswith('{"type"'):
        body = [json.loads(line) for line in body.splitlines()]
    kept = {name: headers[name] for name in ("content-type", "warning", "retry-after") if name in headers}
    return {"status": status, "headers": kept, "body": _normal(body)}


def _normal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _value(key, item) for key, item in value.items() if key != "managedFields"}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, str):
        value = _UID.sub(lambda match: match[0] if match[0] == _NO_UID else "UID", value)
        value = re.sub(r"current: \d+", "current: N", value)
        return without_dumps(re.sub(r"in record \(\d+\)", "in record (N)", value))
    return value


def _value(key: str, item: Any) -> Any:
    if key == "resourceVersion" and item:
        return "N"
    if key == "continue" and item:
        return "TOKEN"
    if key in _TIMES and item:
        return "T"
    return _normal(item)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_recorded_requests_are_answered_as_they_were_recorded(serving: Serving, sequence: str) -> None:
    serving.apiserver.access.user("admin", groups=["system:masters"], token="tok-admin")
    serving.apiserver.access.user("dispatch", token="tok-dispatch")
    callers = {token: serving.caller(token) for token in ("tok-admin", "tok-dispatch", "zz", None)}

    def send(
        method: str, path: str, body: Any, content_type: str, token: str | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], Any]:
        answer = callers[token](method, path, body, content_type or "application/json", **headers)
        if body is not None and len(answer.body) and answer.status == 413:
            callers[token].close()
        try:
            return answer.status, answer.headers, json.loads(answer.body)
        except ValueError:
            return answer.status, answer.headers, answer.body.decode(errors="replace")

    cases = json.loads(RECORDED.read_text())[sequence]
    differing = {
        case["title"]: (case["answer"], given)
        for case in cases
        if (given := normal(*resolved(case, send, lambda: None))) != _normal(case["answer"])
    }
    assert differing == {}


def test_the_record_speaks_of_the_namespace_the_tests_use() -> None:
    assert f"/namespaces/{NAMESPACE}/trainjobs" in RECORDED.read_text()
