"""Defaults and first values of the built-in kinds, for whoever creates an object reads back what was filled in."""

from __future__ import annotations

import re
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import (
    FieldError,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from dispatch_kubeflow.backend.embedded.metadata import annotation_faults, label_1123, label_faults
from dispatch_kubeflow.backend.embedded.pod_checks import pod_spec_faults, taint_faults

Object = dict[str, Any]

_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_INDEXED_PODS = 100_000
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_IMMUTABLE = "field is immutable"
_MAX_INT32 = 2**31 - 1
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def new_namespace(obj: Object) -> None:
    """What a new Namespace is given."""
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj["status"] = {"phase": "Active"}
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def default_node(obj: Object) -> None:
    """A Node's defaults: what is there may be given away."""
    obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def default_config_map(obj: Object) -> None:
    """Nothing is filled in, but what is empty is not kept."""
    for field in ("data", "binaryData"):
        if not obj.get(field, True):
            del obj[field]


def check_config_map(new: Object) -> list[FieldError]:
    """Keys that could not be the names of files."""
    return [
        invalid_value(f"data[{key}]", key, _CONFIG_KEY_TEXT)
        for key in new.get("data") or {}
        if not _CONFIG_KEY.fullmatch(key)
    ]


def check_config_map_change(new: Object, old: Object) -> list[FieldError]:
    """Changes of what was declared immutable."""
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    changed = [key for key in ("data", "binaryData") if new.get(key) != old.get(key)]
    if not new.get("immutable"):
        changed.append("immutable")
    return [forbidden_field(key, text) for key in changed]


def default_secret(obj: Object) -> None:
    """A Secret's defaults."""
    obj.setdefault("type", "Opaque")


def default_service(obj: Object) -> None:
    """A Service's defaults."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec.get("clusterIP") == "None":
        spec.setdefault("clusterIPs", ["None"])
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    obj.setdefault("status", {"loadBalancer": {}})


def default_pod(obj: Object) -> None:
    """A pod's defaults, and the tolerations that admission adds at every write."""
    spec = obj.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
        limits = container["resources"].get("limits")
        if limits:
            # Of a pod alone: a template is left as it is.
            container["resources"]["requests"] = {**limits, **(container["resources"].get("requests") or {})}
    tolerations = spec.get("tolerations") or []
    present = {item.get("key") for item in tolerations if item.get("effect") in (None, "", "NoExecute")}
    if None not in present:
        added = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in _TOLERATED
            if key not in present
        ]
        spec["tolerations"] = [*tolerations, *added]


def default_pod_spec(spec: Object) -> None:
    """The defaults of a pod's spec, in a pod or in a template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    account = spec.get("serviceAccountName")
    if account:
        spec.setdefault("serviceAccount", account)
    for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
        _default_container(container)
    for volume in spec.get("volumes") or []:
        _default_volume(volume)


def new_pod(obj: Object) -> None:
    """What admission and the apiserver add to a new Pod."""
    spec = obj["spec"]
    account = spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", account)
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    obj["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def check_pod(new: Object) -> list[FieldError]:
    """The faults of a pod's spec."""
    return pod_spec_faults(new["spec"], "spec")


def pod_warnings(new: Object) -> list[str]:
    """What is said of a new pod that is taken all the same."""
    wrong = label_1123(new["metadata"].get("name") or "")
    text = "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
    return [f"metadata.name: {text}: [{' '.join(wrong)}]"] if wrong else []


def check_node(new: Object) -> list[FieldError]:
    """The faults of a node's taints, which Kubernetes looks for under `metadata`."""
    return taint_faults(new["spec"].get("taints") or [], "metadata.taints")


def check_node_change(new: Object, _: Object) -> list[FieldError]:
    """The same once more: a change is judged with the whole."""
    return check_node(new)


def check_pod_change(new: Object, old: Object) -> list[FieldError]:
    """The fault of a pod's update that changes more of its spec than may change, or prolongs its life."""
    deadline, before = new["spec"].get("activeDeadlineSeconds"), old["spec"].get("activeDeadlineSeconds")
    where = "spec.activeDeadlineSeconds"
    if before is not None and deadline is None:
        return [invalid_value(where, None, "must not update from a positive integer to nil value")]
    if deadline is not None and deadline < 0:
        return [invalid_value(where, deadline, f"must be between 0 and {_MAX_INT32}, inclusive")]
    if deadline is not None and before is not None and deadline > before:
        return [invalid_value(where, deadline, "must be less than or equal to previous value")]
    if _fixed(new["spec"]) == _fixed(old["spec"]):
        return []
    text = (
        "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
        "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    return [forbidden_field("spec", text)]


def _fixed(spec: Object) -> Object:
    changeable = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
    fixed = {key: value for key, value in spec.items() if key not in changeable}
    for key in ("containers", "initContainers"):
        if key in fixed:
            fixed[key] = [{name: value for name, value in item.items() if name != "image"} for item in fixed[key]]
    return fixed


def default_job(obj: Object) -> None:
    """A Job's defaults."""
    spec = obj.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    spec.setdefault("backoffLimit", _MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    template = spec.setdefault("template", {})
    if not obj["metadata"].get("labels") and not spec.get("manualSelector"):
        # The very same map, as in Kubernetes: what is added to the template's labels later, the Job gets too.
        described = template["metadata"] = template.get("metadata") or {}
        described["labels"] = obj["metadata"]["labels"] = described.get("labels") or {}
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    default_pod_spec(template.setdefault("spec", {}))


def new_job(obj: Object) -> None:
    """A new Job's empty status, selector and the labels that go with it."""
    obj["status"] = {}
    spec, meta = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return
    template = spec["template"]
    given = template.setdefault("metadata", {}).setdefault("labels", {})
    for key in ("job-name", "batch.kubernetes.io/job-name"):
        given.setdefault(key, meta.get("name", ""))
    for key in ("controller-uid", "batch.kubernetes.io/controller-uid"):
        given.setdefault(key, meta["uid"])
    chosen = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    chosen.setdefault("batch.kubernetes.io/controller-uid", meta["uid"])


def check_job(new: Object) -> list[FieldError]:
    """A Job's selector, its limits, its pods' template, and whether its pods can have host names."""
    return [*_selector_faults(new), *_job_spec_faults(new["spec"]), *_host_name_faults(new)]


def check_job_change(new: Object, old: Object) -> list[FieldError]:
    """Its limits and template once more, and what of a Job never changes."""
    spec, before = new["spec"], old["spec"]
    faults = _job_spec_faults(spec)
    if spec.get("completions") != before.get("completions"):
        if spec.get("completionMode") != "Indexed":
            faults.append(invalid_value("spec.completions", spec.get("completions"), _IMMUTABLE))
        elif spec.get("completions") != spec.get("parallelism"):
            text = "can only be modified in tandem with spec.parallelism"
            faults.append(invalid_value("spec.completions", spec.get("completions"), text))
    faults += _immutable(spec, before, "selector")
    if spec["template"] != before["template"] and not _template_may_change(old):
        faults.append(invalid_value("spec.template", spec["template"], _IMMUTABLE))
    for key in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        faults += _immutable(spec, before, key)
    return faults


def _immutable(spec: Object, before: Object, key: str) -> list[FieldError]:
    return [] if spec.get(key) == before.get(key) else [invalid_value(f"spec.{key}", spec.get(key), _IMMUTABLE)]


def _job_spec_faults(spec: Object) -> list[FieldError]:
    faults = [
        invalid_value(f"spec.{key}", spec[key], "must be greater than or equal to 0")
        for key in _COUNTS
        if spec.get(key) is not None and spec[key] < 0
    ]
    mode = spec.get("completionMode")
    if mode not in ("NonIndexed", "Indexed"):
        faults.append(not_supported("spec.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed" and spec.get("completions") is None:
        faults.append(required("spec.completions", "when completion mode is Indexed"))
    if mode == "Indexed" and spec["parallelism"] > _INDEXED_PODS:
        text = f"must be less than or equal to {_INDEXED_PODS} when completion mode is Indexed"
        faults.append(invalid_value("spec.parallelism", spec["parallelism"], text))
    policy = spec.get("podReplacementPolicy")
    if policy not in ("TerminatingOrFailed", "Failed"):
        faults.append(not_supported("spec.podReplacementPolicy", policy, ("Failed", "TerminatingOrFailed")))
    template = spec["template"]
    meta = template.get("metadata") or {}
    faults += label_faults(meta.get("labels") or {}, "spec.template.labels")
    faults += annotation_faults(meta.get("annotations") or {}, "spec.template.annotations")
    faults += pod_spec_faults(template["spec"], "spec.template.spec")
    faults += _restart_faults(template["spec"].get("restartPolicy"), spec)
    selector = spec.get("selector")
    if selector is None:
        faults.append(required("spec.selector"))
    wanted = (selector or {}).get("matchLabels") or {}
    given = meta.get("labels") or {}
    if selector is None or any(given.get(key) != text for key, text in wanted.items()):
        faults.append(
            invalid_value("spec.template.metadata.labels", given, "`selector` does not match template `labels`")
        )
    return faults


def _restart_faults(restarts: str | None, spec: Object) -> list[FieldError]:
    where = "spec.template.spec.restartPolicy"
    if restarts in (None, "", "Always"):
        return [required(where, 'valid values: "OnFailure", "Never"')]
    if restarts not in ("OnFailure", "Never"):
        return [not_supported(where, restarts, ("OnFailure", "Never"))]
    if spec.get("podFailurePolicy") is not None and restarts != "Never":
        return [invalid_value(where, restarts, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def _selector_faults(job: Object) -> list[FieldError]:
    """A selector and labels that the server made must still be there, and those of the Job's own uid and name."""
    spec, uid, name = job["spec"], job["metadata"].get("uid"), job["metadata"].get("name") or ""
    if spec.get("manualSelector") or spec.get("selector") is None:
        return []
    given = (spec["template"].get("metadata") or {}).get("labels") or {}
    expected = {
        "controller-uid": uid,
        "job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
    }
    faults: list[FieldError] = []
    for key, text in expected.items():
        where = f"spec.template.metadata.labels[{key}]"
        if key not in given:
            faults.append(required(where, f"must be '{text}'"))
        elif given[key] != text:
            faults.append(invalid_value(where, given, f"must be '{text}'"))
    chosen = (spec["selector"].get("matchLabels") or {}).items()
    if any(expected.get(key) != text for key, text in chosen):
        faults.append(invalid_value("spec.selector", spec.get("selector"), "`selector` not auto-generated"))
    return faults


def _host_name_faults(job: Object) -> list[FieldError]:
    """An indexed Job's last pod needs a name that can be a host's."""
    spec, name = job["spec"], job["metadata"].get("name") or ""
    completions = spec.get("completions")
    if spec.get("completionMode") != "Indexed" or not isinstance(completions, int) or completions < 1:
        return []
    host = f"{name}-{completions - 1}"
    if not label_1123(host):
        return []
    return [invalid_value("metadata.name", name, f"will not able to create pod with invalid DNS label: {host}")]


def default_crd(obj: Object) -> None:
    """A CustomResourceDefinition's defaults."""
    spec = obj["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})


def new_crd(obj: Object) -> None:
    """The status of a definition that is established at once."""
    names = obj["spec"]["names"]
    obj["status"] = {
        "acceptedNames": dict(names),
        "conditions": [
            {
                "type": "NamesAccepted",
                "status": "True",
                "reason": "NoConflicts",
                "message": "no conflicts found",
                "lastTransitionTime": obj["metadata"]["creationTimestamp"],
            },
            {
                "type": "Established",
                "status": "True",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
                "lastTransitionTime": obj["metadata"]["creationTimestamp"],
            },
        ],
        "storedVersions": [version["name"] for version in obj["spec"]["versions"] if version["storage"]],
    }


def _default_container(container: Object) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or []:
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")


def _default_volume(volume: Object) -> None:
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if source in volume and isinstance(volume[source], dict):
            volume[source].setdefault("defaultMode", 420)
    if len(volume) == 1:
        volume["emptyDir"] = {}


def _quality(spec: Object) -> str:
    containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    asked = [(item.get("resources") or {}) for item in containers]
    if not any(item.get("requests") or item.get("limits") for item in asked):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(item.get("limits") or {})
        and all((item.get("requests") or {}).get(name) == value for name, value in (item.get("limits") or {}).items())
        for item in asked
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _template_may_change(job: Object) -> bool:
    status = job.get("status") or {}
    suspended = any(
        item.get("type") == "Suspended" and item.get("status") == "True" for item in status.get("conditions") or []
    )
    return bool(job["spec"].get("suspend")) and ("startTime" not in status or suspended) and not status.get("active")
