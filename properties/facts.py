"""What a request gave its caller, told from the wire's own truth: the facts of table `request`, gathered without a line
of the code under test.
"""

from __future__ import annotations

from typing import Any

from dispatch_kubeflow.machine.rules import rulebook

from .wire import Exchange

ROWS = {400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422}
KINDS = {
    "trainjobs": "TrainJob",
    "trainingruntimes": "TrainingRuntime",
    "clustertrainingruntimes": "ClusterTrainingRuntime",
    "jobsets": "JobSet",
    "jobs": "Job",
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "nodes": "Node",
}


def facts(exchange: Exchange) -> dict[str, str] | None:
    """The facts of a request that gave no object; None for one that gave what was asked."""
    calm = {"channel": "log" if exchange.subresource == "log" else "api", "verb": exchange.verb}
    calm |= {"reason": "other", "admission": "none", "absence": "other"}
    result = _result(exchange)
    if result is None:
        return None
    if exchange.status in ROWS and result == str(exchange.status):
        calm |= _said(exchange)
    return {**calm, "result": result}


def _result(exchange: Exchange) -> str | None:
    if not exchange.sent:
        return _unsent(exchange)
    if exchange.status is None:
        return "lost"
    if exchange.status in ROWS:
        return str(exchange.status)
    if not 200 <= exchange.status < 300 or not exchange.whole:
        return "lost"
    if exchange.fault is not None and exchange.fault.kind == "kind":
        return "wrong-kind" if exchange.verb == "read" else "lost"
    return None


def _unsent(exchange: Exchange) -> str:
    kind = exchange.fault.kind if exchange.fault else ""
    if exchange.ended is not None:
        return f"context-{exchange.ended}"
    return "token-failed" if kind == "token" else "unsent"


def _said(exchange: Exchange) -> dict[str, str]:
    said = exchange.answer if isinstance(exchange.answer, dict) and exchange.answer.get("kind") == "Status" else {}
    found = {}
    reason, details = said.get("reason"), said.get("details") or {}
    if exchange.status == 409 and reason == "AlreadyExists":
        found["reason"] = "AlreadyExists"
    if exchange.status in (400, 403) and str(said.get("message", "")).startswith('admission webhook "'):
        found["admission"] = "webhook"
    named = reason == "NotFound" and exchange.method != "POST" and details.get("name") == exchange.name != ""
    if exchange.status == 404 and named and details.get("group", "") == exchange.group:
        found["absence"] = "named"
    return found


def request_row(exchange: Exchange, operation: str) -> Any:
    """The rule of table `request` for a failed request."""
    found = facts(exchange)
    assert found is not None, f"{exchange} did not fail"
    return rulebook().decide("request", operation=operation, mode="plain", **found)


_ROW_WORDS = {
    "request.deadline": "context-ended",
    "request.deadline-hold-family": "context-ended",
    "request.cancelled": "context-ended",
    "request.already-exists": "exists",
    "request.conflict": "conflict",
    "request.read-conflict": "refused",
    "request.wrong-kind": "wrong-kind",
    "request.unauthenticated": "denied",
    "request.forbidden": "denied",
    "request.admission-denied": "denied",
    "request.not-found": "absent",
    "request.path-not-found": "path-not-found",
    "request.token-failed": "unsent",
    "request.unsent": "unsent",
    "request.outcome-unknown": "lost",
    "request.no-answer": "lost",
    "request.expired": "lost",
    "request.direct-other": "lost",
    "request.expired-write": "refused",
    "request.invalid": "refused",
    "request.log-invalid": "refused",
}


def word(exchange: Exchange, operation: str) -> str:
    """What a request gave, in the words of tables `start` and `stop`; `ok` where it gave what was asked."""
    return "ok" if facts(exchange) is None else _ROW_WORDS[request_row(exchange, operation).id]
