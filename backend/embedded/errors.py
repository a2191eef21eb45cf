"""The apiserver's refusals, worded as the real one words them, for callers judge by status, reason and details.

`ApiError` is internal to the embedded cluster: a client sees only the `Status` object it becomes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


class Ordered(list[Any]):
    """A bad value whose members the message shows in their order, as those of a Go struct, not sorted as a map's."""


OMIT = object()
"""A bad value that the message leaves out."""

_REASONS = {
    "Required value": "FieldValueRequired",
    "Invalid value": "FieldValueInvalid",
    "Unsupported value": "FieldValueNotSupported",
    "Duplicate value": "FieldValueDuplicate",
    "Forbidden": "FieldValueForbidden",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Not found": "FieldValueNotFound",
    "Internal error": "InternalError",
    "Type invalid": "FieldValueTypeInvalid",
}
_JSON_TYPES = frozenset({"array", "boolean", "integer", "number", "object", "string"})
_VALUELESS = {"Required value", "Forbidden", "Too long", "Internal error"}


class ApiError(Exception):
    """A request refused, with everything its `Status` answer holds."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        causes: Sequence[Mapping[str, str]] = (),
        retry_after: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        bare_details: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.causes = tuple(causes)
        self.retry_after = retry_after
        self.metadata = dict(metadata or {})
        self.bare_details = bare_details

    def body(self) -> dict[str, Any]:
        """The `Status` object a client is answered with."""
        answer: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            answer["reason"] = self.reason
        details = dict(self.details)
        if self.causes:
            details["causes"] = [dict(cause) for cause in self.causes]
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details or self.bare_details:
            answer["details"] = details
        answer["code"] = self.status
        return answer


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field's fault: its type as the message spells it, the path, the bad value and the detail."""

    type: str
    field: str
    value: Any = OMIT
    detail: str = ""

    @property
    def is_mistyped(self) -> bool:
        """Whether the value is of another sort of JSON; a fraction is a number like any other, and so is a text that
        is no time.
        """
        wanted = self.detail.partition("must be of type ")[2].partition(":")[0]
        fraction = "integer" in wanted and self.value in ("number", "float64")
        return self.type == "Type invalid" and wanted.split(",")[0] in _JSON_TYPES and not fraction

    def within(self, holder: str) -> FieldError:
        """The same with the words of a validator that saw only what a field of the object holds."""
        whole = f"{self.field} in body"
        if not self.field.startswith(f"{holder}.") or not self.detail.startswith(whole):
            return self
        return replace(self, detail=self.detail[len(holder) + 1 :])

    @property
    def body(self) -> str:
        """What a cause's message says, without the field."""
        text = "Invalid value" if self.type == "Type invalid" else self.type
        if self.value is not OMIT and self.type not in _VALUELESS:
            text += f": {_shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    @property
    def cause(self) -> dict[str, str]:
        return {"reason": _REASONS[self.type], "message": self.body, "field": self.field}

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def required(field: str, detail: str = "") -> FieldError:
    """A field that must be there and is not."""
    return FieldError("Required value", field, detail=detail)


def invalid_value(field: str, value: Any, detail: str = "") -> FieldError:
    """A value that may not be."""
    return FieldError("Invalid value", field, value, detail)


def not_supported(field: str, value: Any, allowed: Iterable[str]) -> FieldError:
    """A value that is none of those there are."""
    names = ", ".join(json.dumps(name, ensure_ascii=False) for name in allowed)
    return FieldError("Unsupported value", field, value, f"supported values: {names}")


def duplicate(field: str, value: Any) -> FieldError:
    """A value that is there already."""
    return FieldError("Duplicate value", field, value)


def forbidden_field(field: str, detail: str) -> FieldError:
    """A field that may not be set, or not so."""
    return FieldError("Forbidden", field, detail=detail)


def too_long(field: str, limit: int) -> FieldError:
    """A text over its limit."""
    return FieldError("Too long", field, detail=f"may not be more than {limit} bytes")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    """A list over its limit."""
    return FieldError("Too many", field, actual, f"must have at most {limit} items")


def invalid(group: str, kind: str, name: str, faults: Sequence[FieldError]) -> ApiError:
    """422 `Invalid`. Faults said twice are causes twice but are written once, as the real one does."""
    written = list(dict.fromkeys(str(fault) for fault in faults))
    text = written[0] if len(written) == 1 else f"[{', '.join(written)}]"
    qualified = f"{kind}.{group}" if group else kind
    return ApiError(
        422,
        "Invalid",
        f"{qualified} {_quoted(name)} is invalid: {text}",
        details=_details(name, group, kind),
        causes=[fault.cause for fault in faults],
    )


def not_found(group: str, plural: str, name: str) -> ApiError:
    """404 of an object, by its plural."""
    return ApiError(
        404, "NotFound", f"{_qualified(plural, group)} {_quoted(name)} not found", details=_details(name, group, plural)
    )


def already_exists(group: str, plural: str, name: str, *, deleting: bool = False) -> ApiError:
    """409 of a name that is taken, maybe by an object that is being deleted."""
    return ApiError(
        409,
        "AlreadyExists",
        f"{'object is being deleted: ' if deleting else ''}{_qualified(plural, group)} {_quoted(name)} already exists",
        details=_details(name, group, plural),
    )


def name_conflict(group: str, plural: str, name: str) -> ApiError:
    """409 for a generated name that was taken."""
    return ApiError(
        409,
        "AlreadyExists",
        f"{_qualified(plural, group)} {_quoted(name)} already exists, "
        "the server was not able to generate a unique name for the object",
        details=_details(name, group, plural),
        retry_after=1,
    )


def conflict(group: str, plural: str, name: str, text: str) -> ApiError:
    """409 of a write that came too late, or meant another object."""
    return ApiError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {_qualified(plural, group)} {_quoted(name)}: {text}",
        details=_details(name, group, plural),
    )


def unregistered(kind: str, version: str) -> str:
    """What is said of a kind that Kubernetes itself does not have."""
    return f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def forbidden(group: str, plural: str, name: str, text: str, causes: Sequence[Mapping[str, str]] = ()) -> ApiError:
    """403 of the apiserver's own access control and admission (a webhook's has no details)."""
    subject = f"{_qualified(plural, group)} {_quoted(name)}" if name else _qualified(plural, group)
    return ApiError(
        403, "Forbidden", f"{subject} is forbidden: {text}", details=_details(name, group, plural), causes=causes
    )


def bad_request(message: str) -> ApiError:
    """400 of a request that cannot be understood."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401 of a token nobody has."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def internal(message: str) -> ApiError:
    """500 `InternalError` with the server's own words as its only cause."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", causes=[{"message": message}])


def unreasoned(message: str) -> ApiError:
    """500 without a reason: an error the real apiserver has no class for."""
    return ApiError(500, "", message)


def expired(message: str, metadata: Mapping[str, Any] | None = None) -> ApiError:
    """410 of a version that is forgotten."""
    return ApiError(410, "Expired", message, metadata=metadata)


def future_version(asked: int, current: int) -> ApiError:
    """504 for a resourceVersion the server has not reached."""
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        retry_after=1,
    )


def too_large() -> ApiError:
    """413 of a body over the limit."""
    return ApiError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


def unsupported_media(accepted: Sequence[str]) -> ApiError:
    """415 of a body in a form the server does not read."""
    return ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}",
    )


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    """406 of an answer in no form the server can give."""
    return ApiError(
        406,
        "NotAcceptable",
        f"only the following media types are accepted: {', '.join(accepted)}",
    )


def _details(name: str, group: str, kind: str) -> dict[str, str]:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=not isinstance(value, Ordered))
