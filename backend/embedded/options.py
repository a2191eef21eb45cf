"""The query of a request as options, refused where the apiserver refuses them."""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import (
    FieldError,
    bad_request,
    forbidden_field,
    invalid,
    invalid_value,
    not_supported,
    required,
)
from dispatch_kubeflow.backend.embedded.routes import is_true
from dispatch_kubeflow.backend.embedded.selectors import field_terms, label_selector

_META = "meta.k8s.io"
_CONTINUE = "continue key is not valid"
_VALIDATIONS = ("Ignore", "Strict", "Warn")


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of a list or a watch. `version` None means the newest."""

    label_selector: str | None
    field_selector: str | None
    version_text: str
    match: str
    limit: int
    token: str
    bookmarks: bool
    initial_events: bool | None
    timeout: int | None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a create, a put or a patch."""

    dry_run: bool
    field_validation: str
    manager: str
    force: bool


@dataclass(frozen=True, slots=True)
class Continue:
    """A continue token: the version of the first page (-1: the newest) and the place after which to go on."""

    version: int
    start: str

    def encoded(self) -> str:
        text = json.dumps({"v": "meta.k8s.io/v1", "rv": self.version, "start": self.start}, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decoded(cls, token: str) -> Continue:
        """Read a token; 400 for one the server did not write."""
        try:
            padded = token + "=" * (-len(token) % 4)
            text = base64.b64decode(padded.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _bad_token(f"{_CONTINUE}: illegal base64 data at input byte 0") from None
        try:
            read = json.loads(text)
        except ValueError:
            raise _bad_token(f"{_CONTINUE}: {_first_bad(text)}") from None
        if not isinstance(read, dict) or read.get("v") != "meta.k8s.io/v1":
            said = read.get("v", "") if isinstance(read, dict) else ""
            raise _bad_token(f"{_CONTINUE}: server does not recognize this encoded version {said}")
        version, start = read.get("rv", 0), read.get("start", "")
        if not version:
            raise _bad_token(f"{_CONTINUE}: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
        if not start:
            raise _bad_token(f"{_CONTINUE}: encoded start key empty (version meta.k8s.io/v1)")
        rooted = start if start.startswith("/") else f"/{start}"
        if posixpath.normpath(rooted) != rooted:
            raise _bad_token(f"{_CONTINUE}: {start}")
        return cls(int(version), str(start))


def list_options(query: Mapping[str, str], *, watch: bool) -> ListOptions:
    """Read and check the options of a list or a watch; selectors first, as they are decoded with the options."""
    label_selector(query.get("labelSelector"))
    for _ in field_terms(query.get("fieldSelector") or ""):
        pass
    options = ListOptions(
        query.get("labelSelector"),
        query.get("fieldSelector"),
        query.get("resourceVersion", ""),
        query.get("resourceVersionMatch", ""),
        max(_number(query, "limit") or 0, 0),
        query.get("continue", ""),
        is_true(query.get("allowWatchBookmarks")),
        is_true(query["sendInitialEvents"]) if "sendInitialEvents" in query else None,
        _number(query, "timeoutSeconds"),
    )
    legacy = options.version_text in ("", "0")
    if watch and legacy and options.initial_events is None and not options.match:
        # Since streaming lists, a watch from nowhere in particular is one.
        options = replace(options, initial_events=True, match="NotOlderThan")
    faults = _watch_faults(options) if watch else _list_faults(options)
    if faults:
        raise invalid(_META, "ListOptions", "", faults)
    return options


def write_options(query: Mapping[str, str], kind: str, user_agent: str, *, applies: bool = False) -> WriteOptions:
    """Read and check the options of a write; `kind` is their name, e.g. `PatchOptions`."""
    validation = query.get("fieldValidation", "")
    manager = query.get("fieldManager", "")
    faults: list[FieldError] = []
    dry_run = dry_run_asked(query.get("dryRun"), faults)
    if validation not in ("", *_VALIDATIONS):
        faults.append(not_supported("fieldValidation", validation, ["", *_VALIDATIONS]))
    if len(manager) > 128:
        faults.append(FieldError("Too long", "fieldManager", detail="may not be more than 128 bytes"))
    if applies and not manager:
        faults.append(required("fieldManager", "is required for apply patch"))
    if kind == "PatchOptions" and not applies and "force" in query:
        faults.append(forbidden_field("force", "may not be specified for non-apply patch"))
    if faults:
        raise invalid(_META, kind, "", faults)
    agent = user_agent.partition("/")[0][:128]
    return WriteOptions(dry_run, validation or "Warn", manager or agent or "unknown", is_true(query.get("force")))


def dry_run_asked(value: Any, faults: list[FieldError]) -> bool:
    """Whether a dry run is asked for, by a query's text or a body's list."""
    values = [value] if isinstance(value, str) else list(value or [])
    if any(item != "All" for item in values):
        faults.append(not_supported("dryRun", values, ["All"]))
    return bool(values)


def _number(query: Mapping[str, str], key: str) -> int | None:
    text = query.get(key)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _list_faults(options: ListOptions) -> list[FieldError]:
    faults: list[FieldError] = []
    match = options.match
    if match:
        if not options.version_text:
            faults.append(
                forbidden_field(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                )
            )
        if options.token:
            faults.append(
                forbidden_field("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
            )
        if match not in ("Exact", "NotOlderThan"):
            faults.append(not_supported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""]))
        if match == "Exact" and options.version_text == "0":
            faults.append(
                forbidden_field(
                    "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                )
            )
    if options.initial_events is not None:
        faults.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return faults


def _watch_faults(options: ListOptions) -> list[FieldError]:
    faults: list[FieldError] = []
    match = options.match
    if options.initial_events is not None and match != "NotOlderThan":
        faults.append(
            forbidden_field(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        )
    if match:
        if options.initial_events is None:
            faults.append(
                forbidden_field(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )
            )
        if match != "NotOlderThan":
            faults.append(not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
        if options.token:
            faults.append(
                forbidden_field("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
            )
    return faults


def _bad_token(text: str) -> Exception:
    return bad_request(f"invalid continue token: {text}")


def _first_bad(text: bytes) -> str:
    first = text[:1].decode("latin-1")
    if first and not first.isprintable():
        first = f"\\x{ord(first):02x}" if ord(first) < 0x80 else f"\\u{ord(first):04x}"
    return f"invalid character '{first}' looking for beginning of value" if first else "unexpected end of JSON input"


def parsed_version(text: str) -> int | None:
    """A resourceVersion as a number; None for none; ValueError with Go's words for nonsense."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        fault = invalid_value("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax')
        raise ValueError(str(fault))
    return int(text)
