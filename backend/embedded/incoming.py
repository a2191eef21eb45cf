"""An object on its way in: of the right kind, its metadata of the right types, before anything judges its content.

What fails here fails as the decoding into Go's structs does, with its words.
"""

from __future__ import annotations

from typing import Any

from dispatch_kubeflow.backend.embedded.errors import ApiError, bad_request, invalid, invalid_value, unregistered
from dispatch_kubeflow.backend.embedded.history import encode
from dispatch_kubeflow.backend.embedded.kinds import Kind

Object = dict[str, Any]

_OWN_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_METADATA_TYPES: tuple[tuple[str, type, str], ...] = (
    ("name", str, "string"),
    ("generateName", str, "string"),
    ("namespace", str, "string"),
    ("uid", str, "types.UID"),
    ("resourceVersion", str, "string"),
    ("generation", int, "int64"),
    ("deletionGracePeriodSeconds", int, "int64"),
    ("creationTimestamp", str, "v1.Time"),
    ("deletionTimestamp", str, "v1.Time"),
    ("ownerReferences", list, "[]v1.OwnerReference"),
    ("finalizers", list, "[]string"),
    ("managedFields", list, "[]v1.ManagedFieldsEntry"),
)
_EMPTY_IS_ABSENT = frozenset({"labels", "annotations", "ownerReferences", "finalizers", "managedFields"})


def typed(kind: Kind, obj: Any, *, matching: bool = True) -> Object:
    """The object with its kind said and its metadata an object with only strings where strings belong.

    422 for an object of another kind, unless that is judged later (`match_kind`).
    """
    resource = kind.resource
    if not isinstance(obj, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    if matching:
        match_kind(kind, obj)
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        where = "value" if kind.custom else f"struct field {resource.kind}.metadata"
        raise Undecodable(kind, f"json: cannot unmarshal {json_type(meta)} into Go {where} of type v1.ObjectMeta")
    _clean(kind, meta)
    return obj


def typed_patch(kind: Kind, obj: Any) -> Object:
    """The same of the result of a patch, whose faults are answered as the patch's own: 422."""
    if not kind.custom and isinstance(obj, dict):
        said = (obj.get("kind"), obj.get("apiVersion"))
        if said != (kind.resource.kind, kind.resource.api_version):
            raise Undecodable(kind, unregistered(str(said[0]), str(said[1]))).of_patch(obj)
    try:
        return typed(kind, obj)
    except Undecodable as error:
        raise error.of_patch(obj) from None


def match_namespace(kind: Kind, asked: str | None, meta: Object) -> None:
    """Give the object the request's namespace; 400 where it says another."""
    if not kind.resource.namespaced:
        meta.pop("namespace", None)
        return
    said = meta.get("namespace") or ""
    if asked and said and said != asked:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if asked:
        meta["namespace"] = asked


def _clean(kind: Kind, meta: Object) -> None:
    """Nulls and empty maps of metadata are lost on the way in, as decoding into its Go struct loses them."""
    for key in ("labels", "annotations"):
        if meta.get(key) is not None:
            _clean_texts(kind, key, meta[key])
    for key, wanted, shown in _METADATA_TYPES:
        value = meta.get(key)
        if value is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
            raise Undecodable(
                kind,
                f"json: cannot unmarshal {json_type(value)} into Go struct field {_named(kind, key)} of type {shown}",
            )
    for key in [key for key, value in meta.items() if value is None or (key in _EMPTY_IS_ABSENT and not value)]:
        del meta[key]


def _clean_texts(kind: Kind, key: str, values: Any) -> None:
    if not isinstance(values, dict):
        found = json_type(values)
        text = f"json: cannot unmarshal {found} into Go struct field {_named(kind, key)} of type map[string]string"
        raise Undecodable(kind, text)
    for name, value in values.items():
        if value is None:
            values[name] = ""
        elif not isinstance(value, str):
            found = json_type(value)
            raise Undecodable(
                kind, f"json: cannot unmarshal {found} into Go struct field {_named(kind, key)} of type string"
            )


def _named(kind: Kind, key: str) -> str:
    """A field of metadata in Go's words: a custom resource's is read by itself, a built-in kind's within its struct."""
    return f"ObjectMeta.{key}" if kind.custom else f"ObjectMeta.metadata.{key}"


class Undecodable(ApiError):
    """400: an object whose fields are of other types than the server's. `why` is what the decoder says."""

    def __init__(self, kind: Kind, why: str) -> None:
        named = kind.resource.kind
        message = f'{named} in version "{kind.resource.version}" cannot be handled as a {named}: {why}'
        super().__init__(400, "BadRequest", message)
        self.why = why

    def of_patch(self, obj: Any) -> ApiError:
        """The same as the fault of a patch that gave this object: 422."""
        return invalid("", "", "", [invalid_value("patch", encode(obj).decode(), self.why)])


def match_kind(kind: Kind, obj: Object) -> None:
    """Refuse an object that says it is of another kind: 422."""
    said, version = obj.get("kind") or kind.resource.kind, obj.get("apiVersion") or kind.resource.api_version
    faults = []
    if said != kind.resource.kind:
        faults.append(invalid_value("kind", said, f"must be {kind.resource.kind}"))
    if version != kind.resource.api_version:
        faults.append(invalid_value("apiVersion", version, f"must be {kind.resource.api_version}"))
    if faults:
        name = (obj.get("metadata") or {}).get("name") or ""
        raise invalid(str(version).rpartition("/")[0], said, name, faults)


def single_owners(meta: Object, *, mutated: bool = False) -> list[str]:
    """Take away owners named twice, in place; what is said of that. `mutated`: admission has had the object."""
    owners = meta.get("ownerReferences") or []
    kept = [owner for index, owner in enumerate(owners) if owner not in owners[:index]]
    if len(kept) == len(owners):
        return []
    twice = [str(owner.get("uid")) for index, owner in enumerate(owners) if owner in owners[:index]]
    meta["ownerReferences"] = kept
    when = " after mutating admission happens" if mutated else ""
    text = (
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and "
        "may reject such requests as early as 1.24; please fix your requests; "
        f"duplicate UID(s) observed: {', '.join(twice)}"
    )
    return [text]


def finalizer_warnings(new: Object, old: Object | None) -> list[str]:
    """What is said of new finalizers whose names have no domain."""
    named = new["metadata"].get("finalizers") or []
    before = (old or {"metadata": {}})["metadata"].get("finalizers") or []
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name to avoid accidental conflicts with '
        "other finalizer writers"
        for name in sorted(set(named) - set(before) - _OWN_FINALIZERS)
        if "/" not in name
    ]


def unknown_fields(kind: Kind, obj: Object, unknown: list[str], *, patched: bool) -> ApiError:
    """The refusal of fields the server does not know, under strict validation."""
    text = f"strict decoding error: {', '.join(unknown)}"
    return (
        invalid("", "", "", [invalid_value("patch", encode(obj).decode(), text)])
        if patched
        else Undecodable(kind, text)
    )


def json_type(value: Any) -> str:
    """What Go's decoder calls a value's type."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "object" if isinstance(value, dict) else "array"
