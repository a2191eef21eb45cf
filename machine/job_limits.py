"""The limits of a job specification: Trainer's own, JobSet's on the names of pods, and what this adapter reserves.

They stand apart from the types, for a specification is made once and checked by each call that takes it. The order is
that of the `input` table: the first limit broken is the one reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .extensions import IMAGE, RUNTIME_KINDS, RUNTIME_REF, SHARED_CHECKPOINT
from .identifiers import LONGEST_LABEL, is_dns_subdomain
from .inputs import SECRET_KEYS, refuse
from .marked import is_unicode

if TYPE_CHECKING:
    from .job_spec import JobSpec

MOST_NODES = 2**31 - 1
LONGEST_DEADLINE = (2**63 - 1) // 10**9
"""Seconds, 292 years. Kubernetes counts in nanoseconds, and a deadline that overflows has passed at once."""
MOST_ITEMS = 128
LONGEST_ITEM = 1_048_576
LONGEST_IMAGE = 500
RESERVED_PREFIX = "DISPATCH_"
RESERVED_BY_TORCH = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")

_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"\+?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?", re.ASCII)


def pod_name_length(object_name: str, replicated_job: str, *, replicas: int, pods: int) -> int:
    """Characters of the longest name among the pods of a replicated job: `NAME-RJOB-JOB-INDEX-xxxxx`."""
    return len(f"{object_name}-{replicated_job}-{replicas - 1}-{pods - 1}-xxxxx")


def check_limits(spec: JobSpec, *, operation: str, object_name: str | None) -> None:
    """Refuse (ErrInvalid) a specification that breaks a limit."""
    check = _Check(spec, operation)
    check.unicode()
    check.nodes(object_name)
    check.number("procs-range", "procs_per_node", spec.procs_per_node, 2**31 - 1)
    check.texts("command", spec.command)
    check.texts("args", spec.args)
    check.env()
    check.resources()
    check.number("deadline-range", "deadline_seconds", spec.deadline_seconds, LONGEST_DEADLINE)
    check.required_extensions()
    check.image()
    check.runtime_ref()
    check.checkpoint()


class _Check:
    def __init__(self, spec: JobSpec, operation: str) -> None:
        self._spec = spec
        self._operation = operation

    def _refuse(self, problem: str, key: str, value: object, rule: str, *, secret: bool = False) -> None:
        refuse(problem, operation=self._operation, key=key, value=value, rule=rule, secret=secret)

    def unicode(self) -> None:
        spec = self._spec
        parts: list[tuple[str, object]] = [(key, getattr(spec, key)) for key in ("command", "args", "env", "resources")]
        for key, value in (*parts, ("extensions", tuple(spec.extensions)), *spec.extensions.items()):
            wrong = next((text for text in _texts(value) if not is_unicode(text)), None)
            if wrong is not None:
                rule = "its texts are Unicode, and half of a surrogate pair is none"
                self._refuse("spec-unicode", key, wrong, rule, secret=key in SECRET_KEYS)

    def nodes(self, object_name: str | None) -> None:
        nodes = self._spec.nodes
        self.number("nodes-range", "nodes", nodes, MOST_NODES)
        if object_name is None:
            return
        length = pod_name_length(object_name, "node", replicas=1, pods=nodes)
        if length > LONGEST_LABEL:
            rule = f"the names of its {nodes:,} pods would have {length} characters, and the limit is {LONGEST_LABEL}"
            self._refuse("pod-name-too-long", "job_id", object_name, rule)

    def number(self, problem: str, key: str, value: int | None, highest: int) -> None:
        if value is not None and not 1 <= value <= highest:
            self._refuse(problem, key, value, f"from 1 to {highest:,}")

    def texts(self, key: str, items: tuple[str, ...]) -> None:
        if len(items) > MOST_ITEMS:
            self._refuse(f"{key}-limits", key, items, f"at most {MOST_ITEMS} items", secret=True)
        for i, item in enumerate(items):
            if len(item) > LONGEST_ITEM:
                rule = f"an item has at most {LONGEST_ITEM:,} characters"
                self._refuse(f"{key}-limits", f"{key}.{i}", item, rule, secret=True)

    def env(self) -> None:
        env = self._spec.env
        if len(env) > MOST_ITEMS:
            self._refuse("env-limits", "env", dict(env), f"at most {MOST_ITEMS} entries", secret=True)
        for name in env:
            if not _C_IDENTIFIER.fullmatch(name):
                self._refuse("env-name", "env", name, "letters, digits and '_', no digit first")
            if name.startswith(RESERVED_PREFIX):
                self._refuse("env-reserved-dispatch", "env", name, f"names that begin {RESERVED_PREFIX} are reserved")
            if name in RESERVED_BY_TORCH:
                rule = f"Trainer's torch policy sets {', '.join(RESERVED_BY_TORCH)} itself"
                self._refuse("env-reserved-torch", "env", name, rule)

    def resources(self) -> None:
        for block, quantities in self._spec.resources.items():
            if block not in ("requests", "limits"):
                self._refuse("resources", f"resources.{block}", block, "the keys are requests and limits")
            for name, quantity in quantities.items():
                key = f"resources.{block}.{name}"
                if not _is_resource_name(name):
                    self._refuse("resources", key, name, "a resource name, such as cpu or nvidia.com/gpu")
                if not _QUANTITY.fullmatch(str(quantity)):
                    self._refuse("resources", key, quantity, "a Kubernetes quantity, not negative")

    def required_extensions(self) -> None:
        for key in (IMAGE, RUNTIME_REF):
            if key not in self._spec.extensions:
                self._refuse("extension-missing", key, "missing", "it is required")

    def image(self) -> None:
        image = self._spec.extensions[IMAGE]
        if not isinstance(image, str) or not image.strip() or len(image) > LONGEST_IMAGE:
            self._refuse("image", IMAGE, image, f"a string of 1 to {LONGEST_IMAGE} characters")

    def runtime_ref(self) -> None:
        given = self._spec.extensions[RUNTIME_REF]
        kind, name = self._two_texts("runtime-ref-shape", RUNTIME_REF, given, "kind", "name")
        if kind not in RUNTIME_KINDS:
            self._refuse("runtime-ref-kind", f"{RUNTIME_REF}.kind", kind, f"one of {', '.join(RUNTIME_KINDS)}")
        if not is_dns_subdomain(name):
            self._refuse("runtime-ref-name", f"{RUNTIME_REF}.name", name, "a Kubernetes object name")

    def checkpoint(self) -> None:
        given = self._spec.extensions.get(SHARED_CHECKPOINT)
        if given is None:
            return
        claim, path = self._two_texts("checkpoint", SHARED_CHECKPOINT, given, "claim", "path")
        if not is_dns_subdomain(claim):
            self._refuse("checkpoint", f"{SHARED_CHECKPOINT}.claim", claim, "a Kubernetes object name")
        if not path.startswith("/") or path.strip("/") == "" or ":" in path or ".." in path.split("/"):
            rule = "an absolute path below /, without ':' and '..'"
            self._refuse("checkpoint", f"{SHARED_CHECKPOINT}.path", path, rule)

    def _two_texts(self, problem: str, key: str, given: object, first: str, second: str) -> tuple[str, str]:
        whole = isinstance(given, Mapping) and set(given) == {first, second}
        if not isinstance(given, Mapping) or not whole or not all(isinstance(text, str) for text in given.values()):
            rule = f"a mapping of exactly {first} and {second}, both strings"
            refuse(problem, operation=self._operation, key=key, value=given, rule=rule)
        return given[first], given[second]


def _texts(value: object) -> Iterator[str]:
    """Every text in a value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts((*value, *value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _is_resource_name(name: str) -> bool:
    prefix, slash, last = name.rpartition("/")
    return _QUALIFIED.fullmatch(last) is not None and (not slash or is_dns_subdomain(prefix))
