"""Reviews: who a caller is, and what a caller or somebody else may do. They are POSTs that store nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dispatch_kubeflow.backend.embedded.access import Access, Attributes, User
from dispatch_kubeflow.backend.embedded.bodies import object_body
from dispatch_kubeflow.backend.embedded.errors import invalid, invalid_value
from dispatch_kubeflow.backend.embedded.incoming import Undecodable
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.messages import Answer, Request, of_object
from dispatch_kubeflow.backend.embedded.schemas.structs import Mistyped, struct_schema
from dispatch_kubeflow.backend.requests.resources import ACCESS_REVIEWS, Resource

Object = dict[str, Any]

_GROUP = "authorization.k8s.io"
_IDENTITY = "authentication.k8s.io"


def review(
    access: Access, user: User, kind: Kind, request: Request, namespace: str, validation: str, warnings: list[str]
) -> Answer:
    """Answer a review. What is not known of it is refused or told of as `validation`, a `fieldValidation`, says."""
    obj = _sent(kind, request)
    unknown = [f'unknown field "{path}"' for path in _decoded(kind, obj)]
    if unknown and validation == "Strict":
        raise Undecodable(kind, f"strict decoding error: {', '.join(unknown)}")
    if validation in ("", "Warn"):
        warnings.extend(unknown)
    if kind.resource.group == _IDENTITY:
        return _who(access, user, kind)
    if obj["metadata"]:
        fault = invalid_value("metadata", obj["metadata"], "must be empty")
        raise invalid(kind.resource.group, "", "", [fault])
    spec = obj.get("spec") or {}
    reviewer = _REVIEWERS[kind.resource.plural]
    status = reviewer(access, user, spec, namespace)
    return of_object(
        {
            "kind": kind.resource.kind,
            "apiVersion": kind.resource.api_version,
            "metadata": {},
            "spec": {} if kind.resource.kind == "SelfSubjectRulesReview" else spec,
            "status": status,
        },
        201,
    )


def _who(access: Access, user: User, kind: Kind) -> Answer:
    """Who the caller is; `kubectl auth whoami` asks it."""
    info = {"username": user.name, "groups": sorted(user.groups, reverse=True)}
    return of_object(
        {
            "kind": kind.resource.kind,
            "apiVersion": kind.resource.api_version,
            "metadata": {"creationTimestamp": access.now()},
            "status": {"userInfo": info},
        },
        201,
    )


def _decoded(kind: Kind, obj: Object) -> list[str]:
    if not isinstance(obj.setdefault("metadata", {}), dict):
        raise Undecodable(kind, f"json: cannot unmarshal into Go struct field {kind.resource.kind}.metadata")
    try:
        return kind.schema.decode(obj) if kind.schema is not None else []
    except Mistyped as error:
        raise Undecodable(kind, str(error)) from None


def _sent(kind: Kind, request: Request) -> Object:
    """The review sent: in JSON, in YAML, or as kubectl sends it, in protobuf."""
    return object_body(kind, request.headers, request.body)[0]


def _self(access: Access, user: User, spec: Object, _: str) -> Object:
    return _decision(access, user, spec)


def _other(access: Access, _: User, spec: Object, __: str) -> Object:
    subject = User(spec.get("user") or "", frozenset(spec.get("groups") or ()))
    return _decision(access, subject, spec)


def _local(access: Access, user: User, spec: Object, namespace: str) -> Object:
    asked = (spec.get("resourceAttributes") or {}).get("namespace") or ""
    if asked != namespace:
        fault = invalid_value("spec.resourceAttributes.namespace", asked, "must match metadata.namespace")
        raise invalid(_GROUP, "LocalSubjectAccessReview", "", [fault])
    return _other(access, user, spec, namespace)


def _rules(access: Access, user: User, spec: Object, _: str) -> Object:
    found = access.rules(user, spec.get("namespace") or "")
    keys = ("verbs", "apiGroups", "resources", "resourceNames")
    return {
        "resourceRules": [_only(rule, keys) for rule in found if rule.get("resources")],
        "nonResourceRules": [
            _only(rule, ("verbs", "nonResourceURLs")) for rule in found if rule.get("nonResourceURLs")
        ],
        "incomplete": False,
    }


def _decision(access: Access, user: User, spec: Object) -> Object:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is None and path is None:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise invalid(_GROUP, "", "", [invalid_value("spec.resourceAttributes", None, text)])
    if resource is not None and path is not None:
        shown = {key.capitalize(): value for key, value in path.items()}
        text = "cannot be specified in combination with resourceAttributes"
        raise invalid(_GROUP, "", "", [invalid_value("spec.nonResourceAttributes", shown, text)])
    if resource is not None:
        asked = Attributes(
            resource.get("verb") or "",
            resource.get("group") or "",
            resource.get("resource") or "",
            resource.get("subresource") or "",
            resource.get("namespace") or "",
            resource.get("name") or "",
        )
    else:
        path = path or {}
        asked = Attributes(path.get("verb") or "", path=path.get("path") or "")
    allowed, reason = access.decide(user, asked)
    return {"allowed": allowed, **({"reason": reason} if reason else {})}


def _only(rule: Mapping[str, Any], keys: tuple[str, ...]) -> Object:
    return {key: rule[key] for key in keys if rule.get(key)}


_REVIEWERS: dict[str, Callable[[Access, User, Object, str], Object]] = {
    "selfsubjectaccessreviews": _self,
    "subjectaccessreviews": _other,
    "localsubjectaccessreviews": _local,
    "selfsubjectrulesreviews": _rules,
}


def review_kinds() -> list[Kind]:
    """The review kinds, served for POST alone."""

    def kind(plural: str, name: str, *, group: str = _GROUP, namespaced: bool = False) -> Kind:
        resource = Resource(group, "v1", plural, name, namespaced)
        return Kind(
            resource,
            custom=False,
            has_status=False,
            has_generation=False,
            schema=struct_schema(resource),
            verbs=("create",),
        )

    return [
        kind(ACCESS_REVIEWS.plural, ACCESS_REVIEWS.kind),
        kind("subjectaccessreviews", "SubjectAccessReview"),
        kind("localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
        kind("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        kind("selfsubjectreviews", "SelfSubjectReview", group=_IDENTITY),
    ]
