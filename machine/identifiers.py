"""Names and numbers travel into URLs, labels and records, so each is checked once, at the door of the call.

Every check returns the value, or refuses it (ErrInvalid) naming what was given and the rule it breaks.
"""

from __future__ import annotations

import enum
import re

from .context import Context
from .inputs import refuse
from .rules import rulebook

LONGEST_JOB_ID = 39
HIGHEST_ATTEMPT = 999_999
HIGHEST_INSTANCE = 2**63 - 1
LONGEST_LABEL = 63
LONGEST_SUBDOMAIN = 253

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Stream(enum.Enum):
    """Which of a container's streams Output is asked for; Kubernetes keeps them apart only as STDOUT (row C34)."""

    STDOUT = "stdout"
    STDERR = "stderr"


def is_dns_1035_label(text: str, *, longest: int = LONGEST_LABEL) -> bool:
    """Lower-case letters, digits and `-`, beginning with a letter, not ending with `-`."""
    return len(text) <= longest and _DNS_1035.fullmatch(text) is not None


def is_dns_label(text: str) -> bool:
    """As RFC 1123: lower-case letters, digits and `-`, beginning and ending with a letter or digit, at most 63."""
    return len(text) <= LONGEST_LABEL and _DNS_1123.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Parts as in `is_dns_label`, of any length, joined by dots, at most 253 in all: a Kubernetes object name."""
    return len(text) <= LONGEST_SUBDOMAIN and all(_DNS_1123.fullmatch(part) for part in text.split("."))


def check_job_id(value: object, *, operation: str) -> str:
    """A JobID: a lower-case DNS-1035 label of 1 to 39 characters (row C16)."""
    if not isinstance(value, str) or not is_dns_1035_label(value, longest=LONGEST_JOB_ID):
        rule = (
            f"a lower-case DNS-1035 label (letters, digits and '-', a letter first, no '-' last) "
            f"of 1 to {LONGEST_JOB_ID} characters"
        )
        refuse("job-id", operation=operation, key="job_id", value=value, rule=rule)
    return value


def check_attempt(value: object, *, operation: str) -> int:
    """An attempt number, 1 to 999,999."""
    return _integer("attempt", value, range(1, HIGHEST_ATTEMPT + 1), key="attempt", operation=operation)


def check_instance(value: object, *, operation: str) -> int:
    """A hold instance, 1 to 2**63-1; 0 is row C6."""
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        rule = "hold instances count from 1"
        refuse("instance-zero", operation=operation, key="instance", value=value, rule=rule)
    within = range(1, HIGHEST_INSTANCE + 1)
    return _integer("instance-range", value, within, key="instance", operation=operation)


def check_tail(value: object, *, operation: str) -> int | None:
    """How many of the last lines Output gives; None for all."""
    if value is None:
        return None
    return _integer("tail", value, range(HIGHEST_INSTANCE + 1), key="tail", operation=operation)


def check_stream(value: object, *, operation: str) -> Stream:
    """A Stream, or its value as a string."""
    stream = next((each for each in Stream if value is each or value == each.value), None)
    if stream is None:
        refuse("stream", operation=operation, key="stream", value=value, rule="Stream.STDOUT or Stream.STDERR")
    return stream


def check_context(value: object, *, operation: str) -> Context:
    """A Context; for the hold family one with a deadline (row A12)."""
    if not isinstance(value, Context):
        refuse("context", operation=operation, key="ctx", value=value, rule="a dispatch_kubeflow.machine.Context")
    if value.deadline is None and rulebook().vocabulary.operations[operation].hold_family:
        rule = "a hold-family call needs a deadline"
        refuse("hold-without-deadline", operation=operation, key="ctx", value=None, rule=rule)
    return value


def _integer(problem: str, value: object, within: range, *, key: str, operation: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in within:
        rule = f"a whole number from {within.start:,} to {within.stop - 1:,}"
        refuse(problem, operation=operation, key=key, value=value, rule=rule)
    return int(value)
