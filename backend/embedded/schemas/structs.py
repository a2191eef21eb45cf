"""Pods and Jobs have no schema of their own here, but JobSet's definition holds both of theirs; it is used for them.

A built-in object is decoded into Go structs: a field of another type is a 400 at once, not a fault beside others, and
values are judged by code, not by a schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import FieldError
from dispatch_kubeflow.backend.embedded.incoming import Undecodable
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.schemas.structural import ABSENT, Node

Object = dict[str, Any]


class SpecStruct:
    """The struct of a built-in kind's `spec`; its other parts are left alone."""

    def __init__(self, kind: Kind, structure: Mapping[str, Any]) -> None:
        self._kind = kind
        self._node = Node(structure)

    def decode(self, obj: Object) -> list[str]:
        """Drop unknown fields of the spec, in place; 400 for a field of another type."""
        spec = obj.get("spec")
        if spec is None:
            return []
        unknown: list[str] = []
        self._node.prune(spec, "spec", unknown)
        faults: list[FieldError] = []
        self._node.check(spec, ABSENT, "spec", faults)
        for fault in faults:
            if fault.type == "Type invalid":
                wanted = fault.detail.partition("must be of type ")[2].partition(":")[0]
                text = f"json: cannot unmarshal {fault.value} into Go struct field {fault.field} of type {wanted}"
                raise Undecodable(self._kind, text)
        return sorted(unknown)

    def default(self, obj: Object, old: Object | None = None) -> None:
        """Nothing: a built-in kind's defaults are code."""

    def validate(self, new: Object, old: Object | None, *, blocked: bool) -> list[FieldError]:  # noqa: ARG002
        """Nothing: a built-in kind's checks are code."""
        return []


def give_structs(job_set: Mapping[str, Any], jobs: Kind, pods: Kind) -> None:
    """Give Jobs and Pods the structs that a JobSet's schema holds of them."""
    spec = job_set["properties"]["spec"]["properties"]["replicatedJobs"]["items"]["properties"]["template"]
    job_spec = spec["properties"]["spec"]
    jobs.schema = SpecStruct(jobs, job_spec)
    pods.schema = SpecStruct(pods, job_spec["properties"]["template"]["properties"]["spec"])
