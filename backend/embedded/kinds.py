"""What the apiserver does differently from kind to kind: names, generations, status, graceful deletion, defaults.

Kubernetes calls this a strategy. A kind that no built-in rule is known for behaves as a custom resource does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dispatch_kubeflow.backend.embedded import builtins
from dispatch_kubeflow.backend.embedded.errors import FieldError
from dispatch_kubeflow.backend.embedded.metadata import NameCheck, label_1035, label_1123, path_segment, subdomain
from dispatch_kubeflow.backend.embedded.schemas.structs import struct_schema
from dispatch_kubeflow.backend.requests.resources import Resource

Object = dict[str, Any]


class Schema(Protocol):
    """What a kind's schema does to an object on its way in. All of it is optional for a built-in kind."""

    def decode(self, obj: Object, old: Object | None = None) -> list[str]:
        """Drop unknown fields in place; the paths of what was dropped. What is as in `old` was read before."""
        ...

    def default(self, obj: Object, old: Object | None = None) -> None:
        """Fill in defaults, in place; what is as in `old` has them."""
        ...

    def validate(self, new: Object, old: Object | None, *, blocked: bool) -> list[FieldError]:
        """Every fault the schema finds, and its rules unless a fault found before is of a kind that blocks them."""
        ...


_STORED_AS = {"nodes": "minions", "services": "services/specs"}
_PRIORITY = ("priority", "preemptionPolicy")


def _nothing(_: Object) -> None:
    return None


def _no_faults(_: Object) -> list[FieldError]:
    return []


def _no_change_faults(_: Object, __: Object) -> list[FieldError]:
    return []


def _no_warnings(_: Object) -> list[str]:
    return []


@dataclass(slots=True)
class Kind:
    """One served kind and its ways."""

    resource: Resource
    custom: bool = True
    name_check: NameCheck = subdomain
    has_status: bool = True
    has_generation: bool = True
    unconditional_update: bool = False
    create_on_update: bool = False
    returns_deleted: bool = False
    graceful: bool = False
    orphans_by_default: bool = False
    defaults: Callable[[Object], None] = _nothing
    initialise: Callable[[Object], None] = _nothing
    check: Callable[[Object], list[FieldError]] = _no_faults
    check_change: Callable[[Object, Object], list[FieldError]] = _no_change_faults
    checks_whole_first: bool = False
    """Whether an update is judged as the whole it makes before it is judged as a change."""
    warn: Callable[[Object], list[str]] = _no_warnings
    schema: Schema | None = None
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    served_versions: tuple[str, ...] = field(default=())
    columns: Sequence[Mapping[str, Any]] | None = None
    """What a definition says that tables show; None for a built-in kind, which has columns of its own."""

    @property
    def key(self) -> tuple[str, str]:
        return (self.resource.group, self.resource.plural)

    def storage_key(self, namespace: str, name: str) -> str:
        """Where the real apiserver keeps an object, which it tells in a message."""
        head = f"{self.resource.group}/" if self.custom else ""
        plural = _STORED_AS.get(self.resource.plural, self.resource.plural)
        return "/".join(["/registry", f"{head}{plural}", *([namespace] if namespace else []), name])

    def prepare_create(self, obj: Object) -> None:
        """Drop what a client may not set at creation and set what the server does."""
        if self.has_status and self.resource.kind not in ("Node", "Namespace"):
            obj.pop("status", None)
        if self.has_generation:
            obj["metadata"]["generation"] = 1
        else:
            obj["metadata"].pop("generation", None)
        self.initialise(obj)

    def prepare_update(self, new: Object, old: Object, subresource: str | None) -> Object:
        """The object as it may be stored: the other half kept from the old one, the generation advanced if due."""
        if subresource == "status":
            return self._status_only(new, old)
        if subresource == "binding":
            # A scheduler's word: where the pod goes and that it was scheduled, and nothing else.
            placed = {**old["spec"], "nodeName": new["spec"].get("nodeName")}
            return {**old, "metadata": dict(new["metadata"]), "spec": placed, "status": new.get("status") or {}}
        if self.resource.kind == "Namespace":
            # Only `finalize` takes a namespace's own finalizers away.
            wanted = new.get("spec") if subresource == "finalize" else old.get("spec")
            new["spec"] = {"finalizers": (wanted or {}).get("finalizers") or []}
        if self.has_status:
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
        if self.graceful:
            # Admission gives a pod its priority once and for all.
            new["spec"] = {**{key: old["spec"][key] for key in _PRIORITY if key in old["spec"]}, **new["spec"]}
        if not self.has_generation:
            new["metadata"].pop("generation", None)
        else:
            before = old["metadata"].get("generation", 0)
            new["metadata"]["generation"] = before + 1 if self.desired(new) != self.desired(old) else before
            if not new["metadata"]["generation"]:
                del new["metadata"]["generation"]
        return new

    def desired(self, obj: Object) -> Object:
        """What of an object its writers wish for: all but its metadata and its status."""
        ignored = ("metadata", "status") if self.has_status else ("metadata",)
        return {key: value for key, value in obj.items() if key not in ignored}

    def _status_only(self, new: Object, old: Object) -> Object:
        status = new.get("status")
        if self.custom:
            kept = dict(old)
            kept["metadata"] = dict(old["metadata"])
            # Everything of a custom resource's metadata is put back, the uid with it: only the version is compared.
            if "managedFields" in new["metadata"]:
                kept["metadata"]["managedFields"] = new["metadata"]["managedFields"]
            kept["metadata"]["resourceVersion"] = new["metadata"].get("resourceVersion", "")
        else:
            kept = {key: value for key, value in old.items() if key != "metadata"}
            kept["metadata"] = dict(new["metadata"])
            kept["metadata"]["generation"] = old["metadata"].get("generation")
            if kept["metadata"]["generation"] is None:
                del kept["metadata"]["generation"]
            if self.graceful:
                kept["metadata"].pop("deletionTimestamp", None)
                kept["metadata"].pop("ownerReferences", None)
                if "ownerReferences" in old["metadata"]:
                    kept["metadata"]["ownerReferences"] = old["metadata"]["ownerReferences"]
        if status is None:
            kept.pop("status", None)
        else:
            kept["status"] = status
        return kept


def _core(plural: str, kind: str, **ways: Any) -> Kind:
    namespaced = ways.pop("namespaced", True)
    ways.setdefault("has_status", False)
    ways.setdefault("has_generation", False)
    group, version = ways.pop("group", ""), ways.pop("version", "v1")
    resource = Resource(group, version, plural, kind, namespaced)
    return Kind(resource, custom=False, unconditional_update=True, schema=struct_schema(resource), **ways)


def built_in() -> list[Kind]:
    """The kinds every cluster serves, as far as a training job touches them."""
    rbac: dict[str, Any] = {"group": "rbac.authorization.k8s.io", "name_check": path_segment, "create_on_update": True}
    return [
        _core(
            "namespaces", "Namespace", namespaced=False, has_status=True, name_check=label_1123, returns_deleted=True,
            initialise=builtins.new_namespace, checks_whole_first=True, short_names=("ns",),
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        ),
        _core(
            "nodes", "Node", namespaced=False, has_status=True, defaults=builtins.default_node,
            check=builtins.check_node, check_change=builtins.check_node_change, checks_whole_first=True,
            short_names=("no",),
        ),
        _core(
            "pods", "Pod", has_status=True, has_generation=True, returns_deleted=True, graceful=True,
            defaults=builtins.default_pod, initialise=builtins.new_pod, check=builtins.check_pod,
            check_change=builtins.check_pod_change, warn=builtins.pod_warnings,
            short_names=("po",), categories=("all",),
        ),
        _core(
            "configmaps", "ConfigMap", defaults=builtins.default_config_map, check=builtins.check_config_map,
            check_change=builtins.check_config_map_change, short_names=("cm",),
        ),
        _core("secrets", "Secret", defaults=builtins.default_secret),
        _core(
            "services", "Service", has_status=True, returns_deleted=True, name_check=label_1035,
            defaults=builtins.default_service, short_names=("svc",), categories=("all",),
        ),
        _core("serviceaccounts", "ServiceAccount", returns_deleted=True, short_names=("sa",)),
        _core("events", "Event", create_on_update=True, short_names=("ev",)),
        _core(
            "jobs", "Job", group="batch", has_status=True, has_generation=True, orphans_by_default=True,
            defaults=builtins.default_job, initialise=builtins.new_job, check=builtins.check_job,
            check_change=builtins.check_job_change, checks_whole_first=True, categories=("all",),
        ),
        _core("roles", "Role", **rbac),
        _core("rolebindings", "RoleBinding", **rbac),
        _core("clusterroles", "ClusterRole", namespaced=False, **rbac),
        _core("clusterrolebindings", "ClusterRoleBinding", namespaced=False, **rbac),
        _core("leases", "Lease", group="coordination.k8s.io"),
        _core("priorityclasses", "PriorityClass", group="scheduling.k8s.io", namespaced=False, short_names=("pc",)),
        _core(
            "customresourcedefinitions", "CustomResourceDefinition", group="apiextensions.k8s.io", namespaced=False,
            has_status=True, has_generation=True, defaults=builtins.default_crd, initialise=builtins.new_crd,
            short_names=("crd", "crds"), categories=("api-extensions",),
        ),
    ]  # fmt: skip
