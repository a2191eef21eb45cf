"""What an answer means is decided in one place, from the status, the headers and as much of the body as came.

A definite answer is a 4xx that has a row, or a 2xx with what was asked for. Everything else, however it looks, says
nothing about what happened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from .http1 import AnswerMalformed
from .redact import redacted
from .reply import Failure, Reply, ServerAnswer
from .request import Request

# The statuses that have a row of their own on the page: A2 to A7.
ROWS = frozenset({400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422})

# A webhook's name is a DNS name.
_DENIED = re.compile(r'admission webhook "([^"]{1,253})" denied the request')
_WEBHOOK_FAILED = re.compile(r'failed calling webhook "([^"]{1,253})"')
_WARNING = re.compile(r'\b[0-9]{3} [^ "]+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
# A reason as Kubernetes has them; a webhook may write anything there.
_REASON = re.compile(r"[A-Za-z][A-Za-z0-9]{0,127}")


class _Owner(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """What an object's metadata must look like for those who read it: as Kubernetes writes it, or absent."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[_Owner] = []
    finalizers: list[str] = []


def failed(
    request: Request,
    result: str,
    *,
    sent: bool,
    cause: BaseException | None = None,
    details: Mapping[str, Any] | None = None,
    **facts: str,
) -> Failure:
    """A failure with every fact of the `request` table; those not given say that there is nothing to say."""
    given = dict(details or {})
    why = given.get("message") or (str(cause) if cause is not None else "") or result
    details = {"method": request.method, "target": request.subject, "why": why, **given}
    details = {key: value for key, value in details.items() if value is not None}
    if cause is not None:
        # The frames it came through hold the connection, the token and the answer.
        cause.__context__ = None
        cause = cause.with_traceback(None)
    return Failure(
        result=result,
        sent=sent,
        reason=details.get("reason"),
        webhook=details.get("webhook"),
        details=details,
        cause=cause,
        facts={
            "channel": request.channel,
            "verb": request.verb,
            "result": result,
            "reason": "other",
            "admission": "none",
            "absence": "other",
            **facts,
        },
    )


def readable(body: bytes) -> Any:
    """The JSON of a body. Raises AnswerMalformed for what is none, whatever is wrong with it."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Such an error may hold the whole answer, so it is not kept.
        raise AnswerMalformed(f"the answer is not JSON that can be read: {type(error).__name__}") from None


def warnings(request: Request, headers: Mapping[str, str]) -> tuple[str, ...]:
    """The texts of the server's Warning headers, as clean as its messages."""
    texts = (_ESCAPED.sub(r"\1", each) for each in _WARNING.findall(headers.get("warning", "")))
    return tuple(redacted(text, request.body) for text in texts)


def judge(
    request: Request, status: int, headers: Mapping[str, str], body: bytes | None, trouble: Exception | None = None
) -> Reply:
    """The reply to `request`, given a complete head. `body` is None when it did not come whole, for `trouble`."""
    if 200 <= status < 300:
        return _success(request, status, headers, body, trouble)
    return Reply(request, status, failure=refusal(request, status, headers, body, trouble))


def refusal(
    request: Request, status: int, headers: Mapping[str, str], body: bytes | None, trouble: Exception | None = None
) -> Failure:
    """The failure that a status other than 2xx is: by its row if it has one, else no definite answer."""
    said = _status_object(body)
    reason = _string(said, "reason")
    if reason is not None and _REASON.fullmatch(reason) is None:
        reason = redacted(reason, request.body)
    message = _string(said, "message") or ""
    clean = redacted(message, request.body)
    denied = _DENIED.match(message)
    by = denied or _WEBHOOK_FAILED.search(message)
    details = {
        "status": status,
        "reason": reason,
        "retry_after": _retry_after(said, headers),
        "webhook": by[1] if by else None,
        "server_message": clean or None,
        "message": clean or f"the server answered {status}",
    }
    cause = trouble or ServerAnswer(status, reason, clean)
    if status not in ROWS:
        return failed(request, "lost", sent=True, cause=cause, details=details)
    return failed(
        request,
        str(status),
        sent=True,
        cause=cause,
        details=details,
        reason="AlreadyExists" if status == 409 and reason == "AlreadyExists" else "other",
        admission="webhook" if denied and status in {400, 403} else "none",
        absence="named" if status == 404 and _names(said, request) else "other",
    )


class WrongKind(Exception):
    """A readable object of another apiVersion or kind than was asked for: `seen`."""

    def __init__(self, seen: str) -> None:
        super().__init__(seen)
        self.seen = seen

    def __str__(self) -> str:
        return f"the answer is {self.seen}"


def wrong_kind(request: Request, error: WrongKind, status: int | None = None) -> Failure:
    """The failure that an object of another kind is, to a read."""
    details = {"status": status, "seen": error.seen, "message": str(error)}
    return failed(request, "wrong-kind", sent=True, cause=error, details=details)


def _success(
    request: Request, status: int, headers: Mapping[str, str], body: bytes | None, trouble: Exception | None
) -> Reply:
    said = warnings(request, headers) if "warning" in headers else ()
    try:
        if trouble is not None:
            raise trouble
        answer = _as_asked(request, readable(body or b""))
    except WrongKind as error:
        if request.verb == "read":
            return Reply(request, status, warnings=said, failure=wrong_kind(request, error, status))
        trouble = error
    except Exception as error:  # noqa: BLE001 - whatever makes a body unreadable, there is no answer then
        trouble = error
    else:
        return Reply(request, status, answer, said)
    details = {"status": status, "message": f"the server answered {status}, but {trouble}"}
    failure = failed(request, "lost", sent=True, cause=trouble, details=details)
    return Reply(request, status, warnings=said, failure=failure)


def require_kind(api_version: Any, kind: Any, wanted_version: str, wanted_kind: str) -> None:
    """Raise WrongKind for a readable object of another kind, AnswerMalformed for what does not say its kind."""
    if (api_version, kind) == (wanted_version, wanted_kind):
        return
    if not (isinstance(api_version, str) and isinstance(kind, str) and api_version and kind) or kind == "Status":
        raise AnswerMalformed("it is not the object that was asked for")
    raise WrongKind(f"{kind[:253]} of {api_version[:253]}, not {wanted_kind} of {wanted_version}")


def _as_asked(request: Request, answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise AnswerMalformed("it is not an object")
    match request.expect:
        case "discovery":
            _discovery(request, answer)
        case "list":
            _list(request, answer)
        case "delete" if answer.get("kind") == "Status":
            _deleted(request, answer)
        case _:
            _object(request, answer)
    return answer


def _object(request: Request, answer: dict[str, Any]) -> None:
    metadata = answer.get("metadata")
    wanted = request.named
    if wanted is not None:
        # Checked before the kind: an answer that belongs to another request says nothing about this one.
        if not isinstance(metadata, dict) or metadata.get("name") != wanted:
            raise AnswerMalformed("it is not the object that was asked for")
        if request.namespace is not None and metadata.get("namespace", request.namespace) != request.namespace:
            raise AnswerMalformed("it is an object of another namespace")
    resource = request.resource
    require_kind(answer.get("apiVersion"), answer.get("kind"), resource.api_version, resource.kind)
    if wanted is not None:
        _identified(request, metadata)


def _identified(request: Request, metadata: Any) -> None:
    """Raise AnswerMalformed for metadata that do not say which object this is, or that no reader could take."""
    try:
        seen = msgspec.convert(metadata, _Metadata)
    except msgspec.ValidationError as error:
        raise AnswerMalformed(f"its metadata are none: {error}") from None
    stored = "dryRun" not in request.query  # what was never stored has no version, and need not have a UID
    if stored and (not seen.uid or (not seen.resource_version and request.expect != "delete")):
        raise AnswerMalformed("it does not say which object it is, by UID and resourceVersion")


def _list(request: Request, answer: dict[str, Any]) -> None:
    kind = request.resource.kind + "List"
    require_kind(answer.get("apiVersion"), answer.get("kind"), request.resource.api_version, kind)
    if not isinstance(answer.get("metadata"), dict) or "items" not in answer:
        raise AnswerMalformed("it is not a whole list")
    if answer["items"] is None:
        answer["items"] = []
    if not isinstance(answer["items"], list):
        raise AnswerMalformed("it is not a whole list")


def _deleted(request: Request, answer: dict[str, Any]) -> None:
    details = answer.get("details")
    name = details.get("name", request.name) if isinstance(details, dict) else request.name
    if answer.get("status") != "Success" or name != request.name:
        raise AnswerMalformed("it does not say that the object was deleted")


def _discovery(request: Request, answer: dict[str, Any]) -> None:
    said = (answer.get("kind"), answer.get("groupVersion"))
    if said != ("APIResourceList", request.resource.api_version) or not isinstance(answer.get("resources"), list):
        raise AnswerMalformed("it is not the group-version that was asked for")


def _status_object(body: bytes | None) -> dict[str, Any]:
    try:
        said = readable(body or b"")
    except AnswerMalformed:
        return {}  # the row needs the status alone
    return said if isinstance(said, dict) and said.get("kind") == "Status" else {}


def _string(said: Mapping[str, Any], key: str) -> str | None:
    value = said.get(key)
    return value if isinstance(value, str) and value else None


def _details(said: Mapping[str, Any]) -> dict[str, Any]:
    details = said.get("details")
    return details if isinstance(details, dict) else {}


def _retry_after(said: Mapping[str, Any], headers: Mapping[str, str]) -> int | None:
    given = headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit() and len(given) < 10:
        return int(given)
    seconds = _details(said).get("retryAfterSeconds")
    return seconds if isinstance(seconds, int) and not isinstance(seconds, bool) and seconds > 0 else None


def _names(said: Mapping[str, Any], request: Request) -> bool:
    """Whether a Status says that the request's own object is absent; a path that is not served answers 404 too."""
    details = _details(said)
    resource = request.resource
    return (
        said.get("reason") == "NotFound"
        and request.name is not None
        and details.get("name") == request.name
        and details.get("group", "") == resource.group
        and details.get("kind") in (resource.plural, resource.kind)
    )
