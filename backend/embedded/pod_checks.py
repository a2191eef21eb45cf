"""The faults of a pod's spec, alone or in a template: what keeps a Job from being created, or its pods.

They are those of Kubernetes' `ValidatePodSpec` that a training job can meet, in its order and its words: names, images,
environment, volumes and mounts, resources, tolerations, deadlines. Probes, lifecycles, affinity and security are not
judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dispatch_kubeflow.backend.embedded.controllers.quantities import value
from dispatch_kubeflow.backend.embedded.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from dispatch_kubeflow.backend.embedded.metadata import label_1123, label_faults, label_value, qualified_name, subdomain

Object = dict[str, Any]
Faults = list[FieldError]

_MAX_INT32 = 2**31 - 1
_RESTARTS = ("Always", "OnFailure", "Never")
_PULLS = ("Always", "IfNotPresent", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PLAIN_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_ENV_NAME = re.compile(r"[ -<>-~]+")
_ENV_NAME_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def pod_spec_faults(spec: Object, path: str) -> Faults:
    """What is wrong with a spec at a path."""
    named, faults = _volumes(spec.get("volumes") or [], f"{path}.volumes")
    faults += _containers(spec, named, path)
    faults += _one_of(spec.get("restartPolicy"), _RESTARTS, f"{path}.restartPolicy")
    faults += _one_of(spec.get("dnsPolicy"), _DNS, f"{path}.dnsPolicy")
    faults += label_faults(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    faults += _named(spec, "serviceAccountName", subdomain, path)
    faults += _named(spec, "nodeName", subdomain, path)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        text = f"must be between 1 and {_MAX_INT32}, inclusive"
        faults.append(invalid_value(f"{path}.activeDeadlineSeconds", deadline, text))
    faults += _named(spec, "hostname", label_1123, path)
    faults += _named(spec, "subdomain", label_1123, path)
    for index, toleration in enumerate(spec.get("tolerations") or []):
        faults += _toleration(toleration, f"{path}.tolerations[{index}]")
    return faults + _named(spec, "priorityClassName", subdomain, path)


def taint_faults(taints: list[Object], path: str) -> Faults:
    """What is wrong with a node's taints."""
    faults: Faults = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where = f"{path}[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        faults += [invalid_value(f"{where}.key", key, text) for text in qualified_name(key)]
        wrong = label_value(taint.get("value") or "")
        if wrong:
            faults.append(invalid_value(f"{where}.value", taint["value"], ";".join(wrong)))
        faults += _one_of(effect or None, _EFFECTS, f"{where}.effect")
        if (effect, key) in seen:
            text = "taints must be unique by key and effect pair"
            faults.append(FieldError("Duplicate value", where, taint, text))
        seen.add((effect, key))
    return faults


def _containers(spec: Object, volumes: set[str], path: str) -> Faults:
    listed = spec.get("containers") or []
    faults: Faults = [] if listed else [required(f"{path}.containers")]
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or []):
            where = f"{path}.{field}[{index}]"
            faults += _container(container, volumes, where)
            name = container.get("name") or ""
            if name in names:
                faults.append(duplicate(f"{where}.name", name))
            names.add(name)
    return faults


def _container(container: Object, volumes: set[str], path: str) -> Faults:
    name = container.get("name") or ""
    faults = [invalid_value(f"{path}.name", name, text) for text in label_1123(name)] if name else []
    if not name:
        faults.append(required(f"{path}.name"))
    if not container.get("image"):
        faults.append(required(f"{path}.image"))
    faults += _ports(container.get("ports") or [], f"{path}.ports")
    for index, variable in enumerate(container.get("env") or []):
        faults += _variable(variable, f"{path}.env[{index}]")
    faults += _mounts(container.get("volumeMounts") or [], volumes, f"{path}.volumeMounts")
    faults += _one_of(container.get("imagePullPolicy"), _PULLS, f"{path}.imagePullPolicy")
    return faults + _resources(container.get("resources") or {}, f"{path}.resources")


def _ports(ports: list[Object], path: str) -> Faults:
    faults: Faults = []
    for index, port in enumerate(ports):
        where, number = f"{path}[{index}].containerPort", port.get("containerPort")
        if not number:
            faults.append(required(where))
        elif not 1 <= number <= 65535:
            faults.append(invalid_value(where, number, "must be between 1 and 65535, inclusive"))
    return faults


def _variable(variable: Object, path: str) -> Faults:
    name = variable.get("name") or ""
    faults: Faults = []
    if not name:
        faults.append(required(f"{path}.name"))
    elif not _ENV_NAME.fullmatch(name):
        faults.append(invalid_value(f"{path}.name", name, _ENV_NAME_TEXT))
    source = variable.get("valueFrom")
    if source is None:
        return faults
    given = [key for key in _SOURCES if source.get(key) is not None]
    if not given:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        faults.append(invalid_value(f"{path}.valueFrom", "", text))
    elif variable.get("value"):
        text = "may not be specified when `value` is not empty"
        faults.append(invalid_value(f"{path}.valueFrom", "", text))
    elif len(given) > 1:
        text = "may not have more than one field specified at a time"
        faults.append(invalid_value(f"{path}.valueFrom", "", text))
    return faults


def _volumes(volumes: list[Object], path: str) -> tuple[set[str], Faults]:
    named: set[str] = set()
    faults: Faults = []
    for index, volume in enumerate(volumes):
        where = f"{path}[{index}]"
        found = list(_volume(volume, named, where))
        if found:
            faults += found
        else:
            named.add(volume["name"])
    return named, faults


def _volume(volume: Object, taken: set[str], path: str) -> Iterator[FieldError]:
    name = volume.get("name") or ""
    sources = [key for key in volume if key != "name" and volume[key] is not None]
    if not sources:
        yield required(path, "must specify a volume type")
    for extra in sources[1:]:
        yield forbidden_field(f"{path}.{extra}", "may not specify more than 1 volume type")
    claim = volume.get("persistentVolumeClaim")
    if claim is not None and not claim.get("claimName"):
        yield required(f"{path}.persistentVolumeClaim.claimName")
    if not name:
        yield required(f"{path}.name")
    else:
        yield from (invalid_value(f"{path}.name", name, text) for text in label_1123(name))
    if name in taken:
        yield duplicate(f"{path}.name", name)


def _mounts(mounts: list[Object], volumes: set[str], path: str) -> Faults:
    faults: Faults = []
    places: set[str] = set()
    for index, mount in enumerate(mounts):
        where, name, place = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            faults.append(required(f"{where}.name"))
        if name not in volumes:
            faults.append(FieldError("Not found", f"{where}.name", name))
        if not place:
            faults.append(required(f"{where}.mountPath"))
        if place in places:
            faults.append(invalid_value(f"{where}.mountPath", place, "must be unique"))
        places.add(place)
    return faults


def _resources(resources: Mapping[str, Any], path: str) -> Faults:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    faults: Faults = []
    for name, amount in sorted(limits.items()):
        faults += _amount(name, amount, f"{path}.limits[{name}]")
    for name, amount in sorted(requests.items()):
        faults += _amount(name, amount, f"{path}.requests[{name}]")
        limit = limits.get(name)
        if limit is None:
            if not _overcommits(name):
                text = "Limit must be set for non overcommitable resources"
                faults.append(required(f"{path}.limits", text))
        elif value(amount) != value(limit) and not _overcommits(name):
            text = f"must be equal to {name} limit of {limit}"
            faults.append(invalid_value(f"{path}.requests", amount, text))
        elif value(amount) > value(limit):
            text = f"must be less than or equal to {name} limit of {limit}"
            faults.append(invalid_value(f"{path}.requests", amount, text))
    return faults


def _amount(name: str, amount: str, path: str) -> Faults:
    faults = [invalid_value(path, name, text) for text in qualified_name(name)]
    if not faults and "/" not in name and name not in _PLAIN_RESOURCES and not name.startswith("hugepages-"):
        faults.append(invalid_value(path, name, "must be a standard resource type or fully qualified"))
        faults.append(invalid_value(path, name, "must be a standard resource for containers"))
    if value(amount) < 0:
        faults.append(invalid_value(path, amount, "must be greater than or equal to 0"))
    if "/" in name and not _overcommits(name) and value(amount) % 1:
        faults.append(invalid_value(path, amount, "must be an integer"))
    return faults


def _overcommits(name: str) -> bool:
    """Whether pods may ask for more of it than they are bound to: what has no domain of its own, pages apart."""
    native = "/" not in name or "kubernetes.io/" in name
    return native and not name.startswith("hugepages-")


def _toleration(toleration: Object, path: str) -> Faults:
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    faults = [invalid_value(f"{path}.key", key, text) for text in qualified_name(key)] if key else []
    if not key and operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        faults.append(invalid_value(f"{path}.operator", operator, text))
    effect, given = toleration.get("effect") or "", toleration.get("value") or ""
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        faults.append(invalid_value(f"{path}.effect", effect, text))
    if operator in ("", "Equal"):
        wrong = label_value(given)
        if wrong:
            faults.append(invalid_value(f"{path}.operator", given, ";".join(wrong)))
    elif operator == "Exists":
        if given:
            faults.append(invalid_value(f"{path}.operator", given, "value must be empty when `operator` is 'Exists'"))
    else:
        faults.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    return faults + (_one_of(effect, _EFFECTS, f"{path}.effect") if effect else [])


def _one_of(given: str | None, allowed: tuple[str, ...], path: str) -> Faults:
    if not given:
        return [required(path)]
    return [] if given in allowed else [not_supported(path, given, allowed)]


def _named(spec: Object, field: str, check: Callable[[str], list[str]], path: str) -> Faults:
    name = spec.get(field)
    return [invalid_value(f"{path}.{field}", name, text) for text in check(name)] if name else []
