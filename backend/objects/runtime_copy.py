"""A TrainJob must not change under its caller's feet when somebody edits or deletes a shared runtime, so each attempt
runs on a copy of its own; and the copy is where a job is made safe: no restarts, no pod beside one that still stops,
our labels on all that will run, and the job's deadline.

The copy's spec is the source's, with a few fields set where the source leaves them unset. It is digested whole, so
that a retried Start can tell its own first try from anything else.

The deadline is each Job's and never the TrainJob's, at whose deadline Trainer deletes the JobSet before it writes
`Failed`, and when busy makes it again: its pods would start beside those that still stop. A Job fails only when its
pods have ended, and nothing is made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from dispatch_kubeflow.machine.values import JobSpec

from . import names
from .digest import digest, plain
from .names import Identity
from .seen import Runtime, Unreadable, read

_CARRIED_LABELS: Final = f"{names.TRAINER_GROUP}/"
_DEADLINE: Final = "activeDeadlineSeconds"

NotReusable = Literal["unreadable", "owned", "deleting", "another", "differs"]


@dataclass(frozen=True, slots=True)
class Source:
    """The runtime a copy was made from."""

    kind: str
    name: str
    uid: str
    resource_version: str
    spec: Mapping[str, Any]
    labels: Mapping[str, str]

    @classmethod
    def of(cls, runtime: Mapping[str, Any], kind: str) -> Source | Unreadable:
        """From a runtime as it was read."""
        metadata, spec = runtime.get("metadata"), runtime.get("spec")
        if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
            return Unreadable("the runtime has no metadata or no spec")
        labels = metadata.get("labels")
        return cls(
            kind=kind,
            name=str(metadata.get("name", "")),
            uid=str(metadata.get("uid", "")),
            resource_version=str(metadata.get("resourceVersion", "")),
            spec=spec,
            labels=labels if isinstance(labels, Mapping) else {},
        )


def build(source: Source, identity: Identity, job: JobSpec, *, namespace: str, nonce: str) -> dict[str, Any]:
    """The runtime copy of an attempt, as Start posts it; of a source that breaks no rule.

    Of the source's labels only Trainer's own are carried, for others may tie it to whatever tool put the source
    there; and of those not the one that switches its validation off.
    """
    carried = {
        key: value
        for key, value in source.labels.items()
        if key.startswith(_CARRIED_LABELS) and key != names.VALIDATION_SWITCH
    }
    spec = hardened(source.spec, identity, job)
    return {
        "apiVersion": names.TRAINER_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {
            "name": identity.name,
            "namespace": namespace,
            "labels": {**carried, **identity.labels},
            "annotations": {
                names.SOURCE_KIND: source.kind,
                names.SOURCE_NAME: source.name,
                names.SOURCE_UID: source.uid,
                names.SOURCE_RESOURCE_VERSION: source.resource_version,
                names.NONCE: nonce,
                names.DIGEST: digest(spec),
            },
        },
        "spec": spec,
    }


def hardened(source: Mapping[str, Any], identity: Identity, job: JobSpec) -> dict[str, Any]:
    """A runtime's spec with what makes it safe, our labels at every level, and the job's own environment."""
    spec: dict[str, Any] = plain(source)
    template = spec.setdefault("template", {})
    _label(template, identity)
    for replicated in template.get("spec", {}).get("replicatedJobs", []):
        job_template = replicated.setdefault("template", {})
        _label(job_template, identity)
        job_spec = job_template.setdefault("spec", {})
        job_spec.setdefault("backoffLimit", 0)
        job_spec.setdefault("podReplacementPolicy", "Failed")
        _bound(job_spec, job.deadline_seconds)
        pod_template = job_spec.setdefault("template", {})
        _label(pod_template, identity)
        pod = pod_template.setdefault("spec", {})
        pod.setdefault("restartPolicy", "Never")
        _add_environment(pod, identity, job, trains=replicated.get("name") == names.NODE)
    return spec


def _label(template: dict[str, Any], identity: Identity) -> None:
    template.setdefault("metadata", {}).setdefault("labels", {}).update(identity.labels)


def _bound(job_spec: dict[str, Any], seconds: int | None) -> None:
    """Every Job gets the deadline, for one that waits for another, as a trainer for what it reads, starts later; a
    nearer one of the runtime's own stands.
    """
    own: int | None = job_spec.get(_DEADLINE)
    if seconds is not None and (own is None or seconds < own):
        job_spec[_DEADLINE] = seconds


def _add_environment(pod: dict[str, Any], identity: Identity, job: JobSpec, *, trains: bool) -> None:
    """Our variables stand first, so that the runtime's own may refer to them; they replace any of their name."""
    common = {
        names.ENV_JOB: identity.job,
        names.ENV_ATTEMPT: str(identity.attempt),
        names.ENV_BACKEND: identity.backend,
    }
    for container in (*pod.get("initContainers", []), *pod.get("containers", [])):
        ours = dict(common)
        if trains and container.get("name") == names.NODE and job.checkpoint is not None:
            ours[names.ENV_CHECKPOINT] = job.checkpoint.path
        reserved = {*common, names.ENV_CHECKPOINT}
        others = [each for each in container.get("env", []) if each.get("name") not in reserved]
        container["env"] = [*({"name": name, "value": value} for name, value in ours.items()), *others]


def spec_digest(runtime: Mapping[str, Any]) -> str:
    """The digest of a copy's spec, recomputed from the object."""
    return digest(runtime.get("spec"))


def not_reusable(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> NotReusable | None:
    """Why a runtime copy that exists is not the one this Start would write (C32); None if it is, and may be re-used.

    Its spec is digested anew: an annotation is only what somebody once wrote.
    """
    seen = read(found, Runtime)
    ours = read(wanted, Runtime)
    if isinstance(seen, Unreadable) or isinstance(ours, Unreadable):
        return "unreadable"
    if seen.metadata.owner_references:
        return "owned"
    if seen.metadata.deleting:
        return "deleting"
    if names.named_identity(seen.metadata) != names.named_identity(ours.metadata):
        return "another"
    return None if spec_digest(found) == spec_digest(wanted) else "differs"


def nonce_patch(uid: str, resource_version: str, nonce: str) -> dict[str, Any]:
    """The merge patch that puts this call's nonce on a copy it re-uses."""
    return {"metadata": {"uid": uid, "resourceVersion": resource_version, "annotations": {names.NONCE: nonce}}}
