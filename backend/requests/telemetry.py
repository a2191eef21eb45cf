"""Whoever runs this must be able to see each request, and nobody may ever see a token or a value of a job in doing so.

One log record a request, under `dispatch_kubeflow.requests`, and one OpenTelemetry span where the application uses
OpenTelemetry. Both hold the verb, the path's template, the status, whether it was sent, the result, the time it took
and the server's id of it: never a name, a header or a body.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from .reply import Failure
from .request import Request

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.context import Clock

LOGGER = logging.getLogger("dispatch_kubeflow.requests")
logging.getLogger("dispatch_kubeflow").addHandler(logging.NullHandler())

# What servers call the id by which a request is found in their own logs.
_IDS = ("audit-id", "x-request-id")


class Record:
    """One request as it is told of; made when it begins, told when it ends."""

    __slots__ = ("_began", "_clock", "_operation", "_request", "_span", "request_id")

    def __init__(self, request: Request, operation: str, clock: Clock) -> None:
        self._clock = clock
        self._request = request
        self._operation = operation
        self._began = self._clock.monotonic()
        self._span = _span(request, operation)
        self.request_id: str | None = None

    def answered(self, headers: dict[str, str]) -> None:
        """Note the server's id of the request."""
        for name in _IDS:
            if name in headers:
                self.request_id = headers[name][:128]
                return

    def told(self, status: int | None, *, sent: bool, failure: Failure | None) -> None:
        """Tell of the request, once it has ended."""
        result = "answered" if failure is None else failure.result
        if LOGGER.isEnabledFor(logging.INFO):
            self._log(status, sent=sent, result=result)
        if self._span is not None:
            self._end_span(status, sent=sent, result=result, failed=failure is not None)

    def _log(self, status: int | None, *, sent: bool, result: str) -> None:
        fields = {
            "operation": self._operation,
            "verb": self._request.method,
            "path": self._request.template,
            "status": status,
            "sent": sent,
            "result": result,
            "milliseconds": round((self._clock.monotonic() - self._began) * 1000, 3),
            "request_id": self.request_id,
        }
        LOGGER.info(
            "%(verb)s %(path)s for %(operation)s: %(result)s, status %(status)s, sent %(sent)s, "
            "%(milliseconds)s ms, id %(request_id)s",
            fields,
            extra=fields,
        )

    def _end_span(self, status: int | None, *, sent: bool, result: str, failed: bool) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - there is a span, so it has been imported

        attributes = {"dispatch_kubeflow.sent": sent, "dispatch_kubeflow.result": result}
        if status is not None:
            attributes["http.response.status_code"] = status
        if self.request_id is not None:
            attributes["dispatch_kubeflow.request_id"] = self.request_id
        self._span.set_attributes(attributes)
        if failed:
            self._span.set_status(StatusCode.ERROR, result)
        self._span.end()


def _span(request: Request, operation: str) -> Any:
    # An application that collects spans has imported the API to set it up; no other pays for it.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    return trace.get_tracer("dispatch_kubeflow.requests").start_span(
        f"{request.method} {request.template}",
        kind=trace.SpanKind.CLIENT,
        attributes={
            "http.request.method": request.method,
            "url.template": request.template,
            "dispatch_kubeflow.operation": operation,
        },
    )
