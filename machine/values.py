"""The values that callers pass in and get back, in one place for those who import them.

Each has a module of its own: `references`, `job_spec` (with `job_limits`), `settings`, `identifiers`.
"""

from .extensions import IMAGE, RUNTIME_REF, SHARED_CHECKPOINT, RuntimeRef, SharedCheckpoint
from .identifiers import (
    Stream,
    check_attempt,
    check_context,
    check_instance,
    check_job_id,
    check_stream,
    check_tail,
    is_dns_1035_label,
    is_dns_label,
    is_dns_subdomain,
)
from .inputs import redacted, refuse
from .job_limits import pod_name_length
from .job_spec import JobSpec
from .references import REFERENCE_KINDS, ObjectRef, check_reference
from .settings import Settings
from .strict import frozen, thawed

__all__ = [
    "IMAGE",
    "REFERENCE_KINDS",
    "RUNTIME_REF",
    "SHARED_CHECKPOINT",
    "JobSpec",
    "ObjectRef",
    "RuntimeRef",
    "Settings",
    "SharedCheckpoint",
    "Stream",
    "check_attempt",
    "check_context",
    "check_instance",
    "check_job_id",
    "check_reference",
    "check_stream",
    "check_tail",
    "frozen",
    "is_dns_1035_label",
    "is_dns_label",
    "is_dns_subdomain",
    "pod_name_length",
    "redacted",
    "refuse",
    "thawed",
]
