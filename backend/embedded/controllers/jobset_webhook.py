"""JobSet's webhooks complete a JobSet and refuse what would break later; Trainer meets their 422 where nobody looks.

Pure functions. A JobSet they refuse leaves its TrainJob `Suspended` for ever, with one Warning event to tell.
"""

from __future__ import annotations

from typing import Any

from dispatch_kubeflow.backend.embedded.admission import Denial, undecodable
from dispatch_kubeflow.backend.embedded.controllers.decode import JOB_SET, DecodeError, check
from dispatch_kubeflow.backend.embedded.copying import copied
from dispatch_kubeflow.backend.embedded.errors import FieldError, invalid, invalid_value
from dispatch_kubeflow.backend.embedded.metadata import label_1035, subdomain

Object = dict[str, Any]

MUTATOR = "mjobset.kb.io"
VALIDATOR = "vjobset.kb.io"
LIMIT = 63
TOO_LONG = "must be no more than 63 characters"
# What an update may change in the pod template of a JobSet that is suspended before or after it.
CHANGEABLE_METADATA = ("annotations", "labels")
CHANGEABLE_SPEC = ("nodeSelector", "tolerations", "schedulingGates")


def default_jobset(new: Object) -> Object | Denial:
    """The JobSet with every field that JobSet's mutating webhook fills; 400 where it does not fit its Go type."""
    try:
        check(JOB_SET, new)
    except DecodeError as error:
        return undecodable(str(error))
    spec = new.setdefault("spec", {})
    # A policy that is given is left as it is, and Go shows what is missing in it as an empty text.
    spec.setdefault("successPolicy", {"operator": "All"}).setdefault("operator", "")
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"}).setdefault("startupPolicyOrder", "")
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for job in spec.get("replicatedJobs") or ():
        template = job["template"]["spec"]
        template.setdefault("completionMode", "Indexed")
        pod = template["template"]["spec"]
        pod.setdefault("restartPolicy", "OnFailure")
        # The webhook writes back what Go's structs always show.
        job["template"].setdefault("metadata", {})
        template["template"].setdefault("metadata", {})
        for container in [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]:
            container.setdefault("resources", {})
    for index, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        rule.setdefault("name", f"failurePolicyRule{index}")
    return new


def validate_jobset(new: Object, old: Object | None) -> Denial | None:
    """JobSet's validator: generated names at create, immutability at update; 422, with the faulty fields as causes."""
    faults = _creation_faults(new) if old is None else _update_faults(new, old)
    if not faults:
        return None
    refused = invalid("jobset.x-k8s.io", "JobSet", new["metadata"]["name"], faults)
    return Denial(refused.message, 422, "Invalid", refused.causes, refused.details)


def _creation_faults(new: Object) -> list[FieldError]:
    name = new["metadata"]["name"]
    faults: list[FieldError] = []
    manager = new["spec"].get("managedBy")
    if manager and "/" not in manager:
        text = 'must be a domain-prefixed path (such as "acme.io/foo")'
        faults.append(invalid_value("spec.managedBy", manager, text))
    domain = (new["spec"].get("network") or {}).get("subdomain")
    if domain:
        # It names a Service too, and so must satisfy both.
        wrong = [*subdomain(domain), *label_1035(domain)]
        faults += [invalid_value("spec.network.subdomain", domain, text) for text in wrong]
    seen: list[str] = []
    for index, job in enumerate(new["spec"].get("replicatedJobs") or ()):
        path = f"spec.replicatedJobs[{index}]"
        longest = f"{name}-{job['name']}-{job.get('replicas', 1) - 1}"
        # JobSet names the Job even where the pod's name is at fault.
        faults += [invalid_value(f"{path}.name", longest, text) for text in _label_faults(longest, "job")]
        template = job["template"]["spec"]
        if template.get("completionMode") == "Indexed" and template.get("completions") is not None:
            pod = f"{longest}-{template['completions'] - 1}-abcde"
            faults += [invalid_value(f"{path}.name", longest, text) for text in _label_faults(pod, "pod")]
        if not index and job.get("dependsOn"):
            faults.append(_plain("DependsOn can't be set for the first ReplicatedJob"))
        seen.append(job["name"])
        for dependency in job.get("dependsOn") or ():
            if dependency["name"] not in seen:
                faults.append(
                    _plain(f"replicatedJob: {job['name']} cannot depend on replicatedJob: {dependency['name']}")
                )
    faults += _coordinator_faults(new["spec"])
    for target in new["spec"]["successPolicy"].get("targetReplicatedJobs") or ():
        if target not in seen:
            faults.append(_plain(f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs"))
    return faults


def _coordinator_faults(spec: Object) -> list[FieldError]:
    coordinator = spec.get("coordinator")
    if not coordinator:
        return []
    named = coordinator.get("replicatedJob")
    job = next((each for each in spec.get("replicatedJobs") or () if each["name"] == named), None)
    if job is None:
        return [_plain(f"coordinator replicatedJob {named} does not exist")]
    index, pod = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    if index >= job.get("replicas", 1):
        return [_plain(f"coordinator job index {index} is invalid for replicatedJob {named}")]
    completions = job["template"]["spec"].get("completions")
    if completions is None or pod >= completions:
        return [_plain(f"coordinator pod index {pod} is invalid for replicatedJob {named} job index {index}")]
    return []


def _plain(text: str) -> FieldError:
    """A fault that JobSet ties to no field: it shows as an internal error of none."""
    return FieldError("Internal error", "<nil>", detail=text)


def _label_faults(name: str, what: str) -> list[str]:
    long = f"JobSet name is too long, {what} names generated for this JobSet will exceed {LIMIT} characters"
    return [long if text == TOO_LONG else text for text in label_1035(name)]


def _update_faults(new: Object, old: Object) -> list[FieldError]:
    now, before_now = new.get("spec") or {}, old.get("spec") or {}
    jobs = copied(now.get("replicatedJobs") or [])
    earlier = before_now.get("replicatedJobs") or []
    if (now.get("suspend") or before_now.get("suspend")) and len(jobs) == len(earlier):
        for job, before in zip(jobs, earlier, strict=True):
            _restore(job["template"]["spec"]["template"], before["template"]["spec"]["template"])
    faults: list[FieldError] = []
    if jobs != earlier:
        faults.append(invalid_value("spec.replicatedJobs", jobs, "field is immutable"))
    if now.get("managedBy") != before_now.get("managedBy"):
        faults.append(invalid_value("spec.managedBy", now.get("managedBy"), "field is immutable"))
    return faults


def _restore(template: Object, before: Object) -> None:
    for part, fields in (("metadata", CHANGEABLE_METADATA), ("spec", CHANGEABLE_SPEC)):
        for field in fields:
            template.setdefault(part, {}).pop(field, None)
            if field in (before.get(part) or {}):
                template[part][field] = before[part][field]
    if not template["metadata"] and "metadata" not in before:
        del template["metadata"]
