"""The checks every object's metadata passes, whatever its kind: names, labels, owners, finalizers, what never changes.

Kubernetes runs them beside a kind's own validation, which is why an update's faults arrive twice as causes.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import (
    FieldError,
    Ordered,
    forbidden_field,
    invalid_value,
    required,
    too_long,
)

Object = Mapping[str, Any]
NameCheck = Callable[[str], list[str]]

_LABEL_1123 = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL_1123}(\.{_LABEL_1123})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_SUBDOMAIN_RE = re.compile(rf"{_SUBDOMAIN}\Z")
_LABEL_1123_RE = re.compile(rf"{_LABEL_1123}\Z")
_LABEL_1035_RE = re.compile(rf"{_LABEL_1035}\Z")
_QUALIFIED_RE = re.compile(rf"{_QUALIFIED}\Z")
_VALUE_RE = re.compile(rf"{_VALUE}\Z")
_FIXED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_OWNER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_ANNOTATIONS_LIMIT = 256 * 1024

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')".replace(
        r"\.", "\\."
    )
)
_LABEL_1123_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_1123}')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_LABEL_1035}')"
)
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_KEY_TEXT = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def subdomain(name: str) -> list[str]:
    """What is wrong with a name that must be a DNS subdomain."""
    faults = ["must be no more than 253 characters"] if len(name) > 253 else []
    return faults if _SUBDOMAIN_RE.match(name) else [*faults, _SUBDOMAIN_TEXT]


def label_1123(name: str) -> list[str]:
    """What is wrong with a name that must be an RFC 1123 label."""
    faults = ["must be no more than 63 characters"] if len(name) > 63 else []
    if _LABEL_1123_RE.match(name):
        return faults
    return [*faults, "must not contain dots" if _SUBDOMAIN_RE.match(name) else _LABEL_1123_TEXT]


def label_1035(name: str) -> list[str]:
    """What is wrong with a name that must be a DNS-1035 label."""
    faults = ["must be no more than 63 characters"] if len(name) > 63 else []
    return faults if _LABEL_1035_RE.match(name) else [*faults, _LABEL_1035_TEXT]


def path_segment(name: str) -> list[str]:
    """What is wrong with a name that must only fit into a path."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{sign}'" for sign in "/%" if sign in name]


FIELDS = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    }
)
"""What metadata may have."""
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def generated(base: str, chance: random.Random) -> str:
    """A name made from `generateName`: the base cut to 58 and five letters that spell nothing."""
    return base[:58] + "".join(chance.choices(_SUFFIX, k=5))


def validate(obj: Object, *, namespaced: bool, name_check: NameCheck) -> list[FieldError]:
    """The faults of an object's metadata on its own."""
    meta = obj["metadata"]
    faults: list[FieldError] = []
    base = meta.get("generateName") or ""
    if base:
        # A prefix may end in what a whole name may not.
        masked = base[:-1] + "a" if base.endswith("-") else base
        faults += [invalid_value("metadata.generateName", base, text) for text in name_check(masked)]
    name = meta.get("name") or ""
    if not name:
        faults.append(required("metadata.name", "name or generateName is required"))
    else:
        faults += [invalid_value("metadata.name", name, text) for text in name_check(name)]
    namespace = meta.get("namespace") or ""
    if namespaced and not namespace:
        faults.append(required("metadata.namespace"))
    elif namespaced:
        faults += [invalid_value("metadata.namespace", namespace, text) for text in label_1123(namespace)]
    elif namespace:
        faults.append(forbidden_field("metadata.namespace", "not allowed on this type"))
    return faults + _contents(meta)


def _contents(meta: Object) -> list[FieldError]:
    """What Kubernetes judges of metadata on its own and again as a change."""
    return [
        *label_faults(meta.get("labels") or {}, "metadata.labels"),
        *annotation_faults(meta.get("annotations") or {}, "metadata.annotations"),
        *_owners(meta.get("ownerReferences") or []),
        *_finalizers(meta.get("finalizers") or []),
    ]


def validate_update(new: Object, old: Object) -> list[FieldError]:
    """The faults of a change of metadata: what must never change, and finalizers added too late."""
    meta, before = new["metadata"], old["metadata"]
    faults = _contents(meta)
    if "deletionTimestamp" in before:
        added = sorted(set(meta.get("finalizers") or []) - set(before.get("finalizers") or []))
        if added:
            names = ", ".join(json.dumps(name) for name in added)
            faults.append(
                forbidden_field(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers []string{{{names}}}",
                )
            )
    faults += [
        invalid_value(f"metadata.{key}", meta.get(key), "field is immutable")
        for key in _FIXED
        if meta.get(key) != before.get(key)
    ]
    return faults


def validate_own(new: Object) -> list[FieldError]:
    """The fault that only Kubernetes' own kinds mind: a finalizer that is neither a standard one nor qualified."""
    return [
        invalid_value(
            f"metadata.finalizers[{index}]", name, "name is neither a standard finalizer name nor is it fully qualified"
        )
        for index, name in enumerate(new["metadata"].get("finalizers") or [])
        if "/" not in name and name not in _STANDARD_FINALIZERS
    ]


def label_value(value: str) -> list[str]:
    """What is wrong with a label's value."""
    faults = ["must be no more than 63 bytes"] if len(value) > 63 else []
    return faults if _VALUE_RE.match(value) else [*faults, _VALUE_TEXT]


@lru_cache(maxsize=4096)
def qualified_name(name: str) -> Sequence[str]:
    """What is wrong with the key of a label, an annotation or a finalizer."""
    prefix, slash, local = name.rpartition("/")
    faults: list[str] = []
    if slash:
        if "/" in prefix:
            return [_KEY_TEXT]
        if not prefix:
            faults.append("prefix part must be non-empty")
        else:
            faults += [f"prefix part {text}" for text in subdomain(prefix)]
    if not local:
        faults.append("name part must be non-empty")
    elif len(local) > 63:
        faults.append("name part must be no more than 63 characters")
    if not _QUALIFIED_RE.match(local):
        faults.append(_QUALIFIED_TEXT)
    return faults


def label_faults(given: Mapping[str, str], path: str) -> list[FieldError]:
    """The faults of labels at a path."""
    faults: list[FieldError] = []
    for key, value in sorted(given.items()):
        faults += [invalid_value(path, key, text) for text in qualified_name(key)]
        faults += [invalid_value(path, value, text) for text in label_value(value)]
    return faults


def annotation_faults(given: Mapping[str, str], path: str) -> list[FieldError]:
    """The faults of annotations at a path."""
    faults: list[FieldError] = []
    size = 0
    for key, value in given.items():
        faults += [invalid_value(path, key, text) for text in qualified_name(key.lower())]
        size += len(key.encode()) + len(value.encode())
    if size > _ANNOTATIONS_LIMIT:
        faults.append(too_long(path, _ANNOTATIONS_LIMIT))
    return faults


def _owners(owners: list[Any]) -> list[FieldError]:
    faults: list[FieldError] = []
    controller = ""
    for owner in owners:
        version = (owner.get("apiVersion") or "").rpartition("/")[2]
        if not version:
            faults.append(
                invalid_value(
                    "metadata.ownerReferences.apiVersion", owner.get("apiVersion") or "", "version must not be empty"
                )
            )
        faults += [
            invalid_value(f"metadata.ownerReferences.{key}", owner.get(key) or "", "must not be empty")
            for key in ("kind", "name", "uid")
            if not owner.get(key)
        ]
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            faults.append(
                invalid_value("metadata.ownerReferences", owner, "/v1, Kind=Event is disallowed from being an owner")
            )
        if owner.get("controller"):
            current = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                faults.append(
                    invalid_value(
                        "metadata.ownerReferences",
                        Ordered({key: item[key] for key in _OWNER if key in item} for item in owners),
                        "Only one reference can have Controller set to true. "
                        f'Found "true" in references for {controller} and {current}',
                    )
                )
            else:
                controller = current
    return faults


def _finalizers(finalizers: list[str]) -> list[FieldError]:
    faults: list[FieldError] = []
    for name in finalizers:
        faults += [invalid_value("metadata.finalizers", name, text) for text in qualified_name(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        faults.append(
            invalid_value(
                "metadata.finalizers", finalizers, "finalizer orphan and foregroundDeletion cannot be both set"
            )
        )
    return faults
