"""JobSet's webhooks complete a JobSet and refuse what would break later; Trainer meets their 422 where nobody looks.

Pure functions. A JobSet they refuse leaves its TrainJob `Suspended` for ever, with one Warning event to tell.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from dispatch_kubeflow.backend.embedded.admission import Denial
from dispatch_kubeflow.backend.embedded.controllers.trainer_webhook import compact

Object = dict[str, Any]

MUTATOR = "mjobset.kb.io"
VALIDATOR = "vjobset.kb.io"
LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LIMIT = 63
# What an update may change in the pod template of a JobSet that is suspended before or after it.
CHANGEABLE_METADATA = ("annotations", "labels")
CHANGEABLE_SPEC = ("nodeSelector", "tolerations", "schedulingGates")


def default_jobset(new: Object) -> Object:
    """The JobSet with every field filled that JobSet's mutating webhook fills."""
    spec = new["spec"]
    spec.setdefault("successPolicy", {}).setdefault("operator", "All")
    spec.setdefault("startupPolicy", {}).setdefault("startupPolicyOrder", "AnyOrder")
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for job in spec.get("replicatedJobs") or ():
        template = job["template"]["spec"]
        template.setdefault("completionMode", "Indexed")
        template["template"]["spec"].setdefault("restartPolicy", "OnFailure")
    for index, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        rule.setdefault("name", f"failurePolicyRule{index}")
    return new


def validate_jobset(new: Object, old: Object | None) -> Denial | None:
    """JobSet's validator: generated names at create, immutability at update; 422."""
    faults = _creation_faults(new) if old is None else _update_faults(new, old)
    return Denial("\n".join(dict.fromkeys(faults)), 422, "Invalid") if faults else None


def _creation_faults(new: Object) -> list[str]:
    name = new["metadata"]["name"]
    faults: list[str] = []
    names = [job["name"] for job in new["spec"].get("replicatedJobs") or ()]
    for job in new["spec"].get("replicatedJobs") or ():
        longest = f"{name}-{job['name']}-{job.get('replicas', 1) - 1}"
        faults += _label_faults(longest, "job")
        template = job["template"]["spec"]
        if template.get("completionMode") == "Indexed" and template.get("completions") is not None:
            faults += _label_faults(f"{longest}-{template['completions'] - 1}-abcde", "pod")
        for dependency in job.get("dependsOn") or ():
            if dependency["name"] not in names[: names.index(job["name"])]:
                faults.append(f"replicatedJob: {job['name']} cannot depend on replicatedJob: {dependency['name']}")
    for target in new["spec"]["successPolicy"].get("targetReplicatedJobs") or ():
        if target not in names:
            faults.append(f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs")
    return faults


def _label_faults(name: str, what: str) -> list[str]:
    faults: list[str] = []
    if len(name) > LIMIT:
        faults.append(f"JobSet name is too long, {what} names generated for this JobSet will exceed {LIMIT} characters")
    if not LABEL.fullmatch(name):
        faults.append(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
            "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
            "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
        )
    return faults


def _update_faults(new: Object, old: Object) -> list[str]:
    jobs = copy.deepcopy(new["spec"].get("replicatedJobs") or [])
    earlier = old["spec"].get("replicatedJobs") or []
    if (new["spec"].get("suspend") or old["spec"].get("suspend")) and len(jobs) == len(earlier):
        for job, before in zip(jobs, earlier, strict=True):
            _restore(job["template"]["spec"]["template"], before["template"]["spec"]["template"])
    faults: list[str] = []
    if jobs != earlier:
        faults.append(f"spec.replicatedJobs: Invalid value: {compact(jobs)}: field is immutable")
    if new["spec"].get("managedBy") != old["spec"].get("managedBy"):
        faults.append(f"spec.managedBy: Invalid value: {compact(new['spec'].get('managedBy'))}: field is immutable")
    return faults


def _restore(template: Object, before: Object) -> None:
    for part, fields in (("metadata", CHANGEABLE_METADATA), ("spec", CHANGEABLE_SPEC)):
        for field in fields:
            template.setdefault(part, {}).pop(field, None)
            if field in (before.get(part) or {}):
                template[part][field] = before[part][field]
    if not template["metadata"] and "metadata" not in before:
        del template["metadata"]
