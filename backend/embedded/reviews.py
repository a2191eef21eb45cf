"""Access reviews: what a caller, or somebody else, may do. They are POSTs that store nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dispatch_kubeflow.backend.embedded import protobuf
from dispatch_kubeflow.backend.embedded.access import Access, Attributes, User
from dispatch_kubeflow.backend.embedded.bodies import media_type, object_body
from dispatch_kubeflow.backend.embedded.errors import bad_request, invalid, invalid_value
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.messages import Answer, Request, of_object
from dispatch_kubeflow.backend.requests.resources import ACCESS_REVIEWS, Resource

Object = dict[str, Any]

_GROUP = "authorization.k8s.io"


def review(access: Access, user: User, kind: Kind, request: Request, namespace: str) -> Answer:
    """Answer a review of any of the four kinds."""
    obj = _sent(kind, request)
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


def _sent(kind: Kind, request: Request) -> Object:
    """The review sent: in JSON, in YAML, or as kubectl sends it."""
    if media_type(request.headers) != protobuf.MEDIA:
        return object_body(kind, request.headers, request.body)[0]
    try:
        return protobuf.review(request.body)
    except (protobuf.Unreadable, UnicodeDecodeError) as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.resource.kind}): {error}"
        ) from None


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

    def kind(plural: str, name: str, *, namespaced: bool = False) -> Kind:
        resource = Resource(_GROUP, "v1", plural, name, namespaced)
        return Kind(resource, custom=False, has_status=False, has_generation=False, verbs=("create",))

    return [
        kind(ACCESS_REVIEWS.plural, ACCESS_REVIEWS.kind),
        kind("subjectaccessreviews", "SubjectAccessReview"),
        kind("localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
        kind("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ]
