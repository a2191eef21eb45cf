"""Who asks and what they may: bearer tokens, RBAC objects in the store, and users whose rules are given in process."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dispatch_kubeflow.backend.embedded.errors import ApiError, forbidden, unauthorized
from dispatch_kubeflow.backend.embedded.routes import Route
from dispatch_kubeflow.backend.embedded.selectors import field_terms
from dispatch_kubeflow.backend.embedded.store import Store
from dispatch_kubeflow.backend.requests.resources import Resource

Object = Mapping[str, Any]

MASTERS = "system:masters"
_ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
_CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
_CLUSTER_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_PUBLIC)
_SELF = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated caller."""

    name: str
    groups: frozenset[str] = frozenset({"system:authenticated"})


ANONYMOUS = User("system:anonymous", frozenset({"system:unauthenticated"}))
ADMIN = User("admin", frozenset({MASTERS, "system:authenticated"}))


@dataclass(frozen=True, slots=True)
class Attributes:
    """One thing a caller wants to do; `path` alone for what is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @classmethod
    def of(cls, route: Route) -> Attributes:
        if not route.resource:
            return cls(route.verb, path=route.path)
        name = route.name or _selected_name(route)
        return cls(route.verb, route.group, route.resource, route.subresource, route.namespace, name)

    @property
    def whole(self) -> str:
        """Resource and subresource as rules name them."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Access:
    """The users and their rights."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tokens: dict[str, User] = {}
        self._rules: dict[str, list[Object]] = {}

    def now(self) -> str:
        """The cluster's time."""
        return self._store.now()

    def user(
        self, name: str, rules: Iterable[Object] = (), *, groups: Iterable[str] = (), token: str | None = None
    ) -> str:
        """A user with a bearer token of its own, and rules that hold beside those of the store; gives the token.

        A rule is RBAC's (`apiGroups`, `resources`, `verbs`, `resourceNames`, `nonResourceURLs`), and may say
        `namespace` to hold in one only. Called again for a name it replaces its rules; earlier tokens stay good.
        """
        made = token or secrets.token_urlsafe(24)
        self._tokens[made] = User(name, frozenset({"system:authenticated", *groups}))
        self._rules[name] = list(rules)
        return made

    def revoke(self, token: str) -> None:
        """Make a token unknown."""
        self._tokens.pop(token, None)

    def authenticate(self, headers: Mapping[str, str], certified: User | None = None) -> User:
        """Who sends a request: by client certificate, else by token; without either, nobody. 401 for a bad token."""
        if certified is not None:
            return certified
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        user = self._tokens.get(token.strip())
        if user is None:
            raise unauthorized()
        return user

    def authorize(self, user: User, asked: Attributes) -> None:
        """403, worded as the real one words it, unless the user may."""
        allowed, reason = self.decide(user, asked)
        if not allowed:
            raise refusal(user, asked, reason)

    def decide(self, user: User, asked: Attributes) -> tuple[bool, str]:
        """Whether the user may, and what RBAC says of it."""
        if MASTERS in user.groups:
            return True, ""
        for rule in self._rules.get(user.name, ()):
            if rule.get("namespace") in (None, "", asked.namespace) and _covers(rule, asked):
                return True, ""
        missing: list[str] = []
        for rule, source in self._bound(user, asked.namespace, missing):
            if _covers(rule, asked):
                return True, f"RBAC: allowed by {source}"
        role = _basic_role(user, asked)
        if role is not None:
            group = "system:authenticated" if "system:authenticated" in user.groups else "system:unauthenticated"
            source = f'ClusterRoleBinding "{role}" of ClusterRole "{role}" to Group "{group}"'
            return True, f"RBAC: allowed by {source}"
        return False, f"RBAC: [{', '.join(missing)}]" if len(missing) > 1 else "".join(
            f"RBAC: {one}" for one in missing
        )

    def rules(self, user: User, namespace: str) -> list[Object]:
        """Every rule that holds for a user in a namespace."""
        if MASTERS in user.groups:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
                *_basic_rules(user),
            ]
        own = [rule for rule in self._rules.get(user.name, ()) if rule.get("namespace") in (None, "", namespace)]
        return [*own, *(rule for rule, _ in self._bound(user, namespace, [])), *_basic_rules(user)]

    def _bound(self, user: User, namespace: str, missing: list[str]) -> Iterator[tuple[Object, str]]:
        for binding in self._store.states(_CLUSTER_BINDINGS):
            yield from self._of(binding.obj, user, "", missing)
        if namespace:
            for binding in self._store.states(_BINDINGS, namespace):
                yield from self._of(binding.obj, user, namespace, missing)

    def _of(self, binding: Object, user: User, namespace: str, missing: list[str]) -> Iterator[tuple[Object, str]]:
        subject = next((item for item in binding.get("subjects") or [] if _is(item, user)), None)
        if subject is None:
            return
        reference = binding["roleRef"]
        resource = _ROLES if reference["kind"] == "Role" else _CLUSTER_ROLES
        role = self._store.find(resource, namespace or None if resource is _ROLES else None, reference["name"])
        if role is None:
            missing.append(f'{reference["kind"].lower()}.rbac.authorization.k8s.io "{reference["name"]}" not found')
            return
        name, kind = binding["metadata"]["name"], binding["kind"]
        where = f"{name}/{namespace}" if namespace else name
        source = (
            f'{kind} "{where}" of {reference["kind"]} "{reference["name"]}" to {subject["kind"]} "{subject["name"]}"'
        )
        for rule in role.get("rules") or []:
            yield rule, source


def _selected_name(route: Route) -> str:
    """The name a field selector asks for alone, which counts as the request's own."""
    text = route.query.get("fieldSelector", "")
    if "metadata.name" not in text or route.verb not in ("list", "watch", "deletecollection"):
        return ""
    with suppress(ApiError):
        # What cannot be read is refused where it is used.
        return next((value for name, sign, value in field_terms(text) if name == "metadata.name" and sign != "!="), "")
    return ""


def refusal(user: User, asked: Attributes, reason: str = "") -> ApiError:
    """The 403 of access control."""
    tail = f": {reason}" if reason else ""
    if asked.path:
        return ApiError(
            403,
            "Forbidden",
            f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"{tail}',
            bare_details=True,
        )
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    text = f'User "{user.name}" cannot {asked.verb} resource "{asked.whole}" in API group "{asked.group}" {scope}{tail}'
    return forbidden(asked.group, asked.resource, asked.name, text)


def _is(subject: Object, user: User) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "User":
        return name == user.name
    if kind == "Group":
        return name in user.groups
    return user.name == f"system:serviceaccount:{subject.get('namespace', '')}:{name}"


def _basic_role(user: User, asked: Attributes) -> str | None:
    """The default role by which everybody may."""
    known = "system:authenticated" in user.groups
    if asked.path and asked.verb == "get":
        if known and any(_matches_path(pattern, asked.path) for pattern in _DISCOVERY):
            return "system:discovery"
        return "system:public-info-viewer" if asked.path in _PUBLIC else None
    return "system:basic-user" if known and asked.verb == "create" and asked.resource in _SELF else None


def _basic_rules(user: User) -> list[Object]:
    if "system:authenticated" not in user.groups:
        return [{"verbs": ["get"], "nonResourceURLs": list(_PUBLIC)}]
    reviews = sorted(_SELF - {"selfsubjectreviews"})
    return [
        {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": reviews},
        {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
        {"verbs": ["get"], "nonResourceURLs": list(_DISCOVERY)},
        {"verbs": ["get"], "nonResourceURLs": list(_PUBLIC)},
    ]


def _covers(rule: Object, asked: Attributes) -> bool:
    if not _has(rule.get("verbs"), asked.verb):
        return False
    if asked.path:
        return any(_matches_path(pattern, asked.path) for pattern in rule.get("nonResourceURLs") or ())
    resources = rule.get("resources") or ()
    named = asked.whole in resources or "*" in resources
    if not named and asked.subresource:
        named = f"*/{asked.subresource}" in resources
    names = rule.get("resourceNames") or ()
    return named and _has(rule.get("apiGroups"), asked.group) and (not names or asked.name in names)


def _has(values: Iterable[str] | None, wanted: str) -> bool:
    return any(value in ("*", wanted) for value in values or ())


def _matches_path(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern
