"""Creates, puts, patches and deletes as requests ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dispatch_kubeflow.backend.embedded.bodies import check_object_type, check_size, decoded, media_type, object_body
from dispatch_kubeflow.backend.embedded.errors import (
    ApiError,
    FieldError,
    bad_request,
    invalid,
    invalid_value,
    not_supported,
    unsupported_media,
)
from dispatch_kubeflow.backend.embedded.forms import Form
from dispatch_kubeflow.backend.embedded.history import Stored, encode
from dispatch_kubeflow.backend.embedded.kinds import Kind
from dispatch_kubeflow.backend.embedded.messages import Answer, Request, of_object
from dispatch_kubeflow.backend.embedded.options import WriteOptions, dry_run_asked, list_options, write_options
from dispatch_kubeflow.backend.embedded.routes import Route, is_true
from dispatch_kubeflow.backend.embedded.store import Deleted, Store, Write

Object = dict[str, Any]
PatchType = Literal["merge", "json", "strategic", "apply"]

_PATCHES: Mapping[str, PatchType] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_PROPAGATIONS = ("Background", "Foreground", "Orphan")


class Writer:
    """The writes of one request; `how` is its `Write`, filled in from the request's options."""

    def __init__(self, store: Store, kind: Kind, route: Route, request: Request, form: Form, how: Write) -> None:
        self._store = store
        self._kind = kind
        self._route = route
        self._request = request
        self._form = form
        self._how = how
        self._namespace = route.namespace or None if kind.resource.namespaced else None

    def create(self) -> Answer:
        """POST on a collection, and on an item, which for a custom resource is the same."""
        obj, twice = self._body("CreateOptions")
        self._duplicates(obj, twice)
        made = self._store.create(self._kind.resource, obj, namespace=self._namespace, write=self._how)
        return self._object(made, 201)

    def update(self) -> Answer:
        """PUT; of an absent role or event, a create."""
        obj, twice = self._body("UpdateOptions")
        self._duplicates(obj, twice)
        if not self._route.name:
            raise bad_request("name must be provided")
        meta = obj.get("metadata")
        if not meta or (isinstance(meta, dict) and not meta.get("name")):
            raise bad_request(
                f"the name of the object ({self._route.name} based on URL) was undeterminable: name must be provided"
            )
        before = self._store.resource_version
        made = self._store.update(
            self._kind.resource,
            obj,
            self._route.subresource or None,
            namespace=self._namespace,
            name=self._route.name,
            write=self._how,
        )
        created = self._how.committed is not None and self._store.commits[-1].verb == "create"
        return self._object(made, 201 if created and before != self._store.resource_version else 200)

    def _body(self, options: str) -> tuple[Object, list[str]]:
        """The object sent; its type and size are judged before the options, and what it says after them."""
        check_object_type(self._request.headers)
        check_size(self._request.body)
        self._options(options)
        return object_body(self._kind, self._request.headers, self._request.body)

    def patch(self) -> Answer:
        """PATCH in any of its four forms."""
        media = media_type(self._request.headers)
        accepted = [name for name in _PATCHES if not (self._kind.custom and name.startswith("application/strategic"))]
        if media not in accepted:
            raise unsupported_media(accepted) if self._kind.custom else _unsupported_patch()
        if not self._route.name:
            raise bad_request("name must be provided")
        check_size(self._request.body)
        form = _PATCHES[media]
        options = self._options("PatchOptions", applies=form == "apply")
        try:
            patch, twice = decoded(self._request.body, yaml=form == "apply")
        except ValueError as error:
            raise bad_request(_unreadable(form, str(error))) from None
        self._duplicates(patch, twice, patched=form != "apply")
        if form == "merge" and patch is None:
            raise bad_request("Invalid JSON Patch")
        if form == "json":
            self._unknown_members(patch)
        existed = form != "apply" or self._exists()
        made = self._store.patch(
            self._kind.resource,
            self._namespace,
            self._route.name,
            patch,
            form,
            self._route.subresource or None,
            force=options.force,
            write=self._how,
        )
        return self._object(made, 200 if existed else 201)

    def delete(self) -> Answer:
        """DELETE of one object."""
        options = self._delete_options()
        if not self._route.name:
            raise bad_request("name must be provided")
        done = self._deleted(options, self._namespace, self._route.name)
        if done.gone and not self._kind.returns_deleted:
            return of_object(self._gone(done.object))
        status = 202 if not done.gone and options.get("orphanDependents") is False else 200
        return self._object(done.object, status)

    def delete_collection(self) -> Answer:
        """DELETE of all that is selected; those that vanish meanwhile are passed over."""
        selected = list_options(self._route.query, watch=False)
        options = self._delete_options()
        states = self._store.states(
            self._kind.resource,
            self._namespace,
            label_selector=selected.label_selector,
            field_selector=selected.field_selector,
        )
        for state in states:
            try:
                self._deleted(options, state.place[0] or None, state.place[1])
            except ApiError as error:
                if error.status != 404:
                    raise
        metadata: Object = {"resourceVersion": str(self._store.resource_version)}
        if self._kind.custom:
            metadata["continue"] = ""
        return Answer(
            200, self._form.collection(self._kind, states, metadata, self._store.clock.now()), self._form.content_type
        )

    def _object(self, obj: Object, status: int) -> Answer:
        if self._form.shape == "whole":
            return Answer(status, encode(obj), self._form.content_type)
        state = Stored(obj, ("", ""), 0)
        return Answer(status, self._form.one(state, self._store.clock.now()), self._form.content_type)

    def _options(self, kind: str, *, applies: bool = False) -> WriteOptions:
        agent = self._request.headers.get("user-agent", "")
        options = write_options(self._route.query, kind, agent, applies=applies)
        self._how.manager = options.manager
        self._how.dry_run = options.dry_run
        self._how.field_validation = options.field_validation  # type: ignore[assignment]  # checked to be one of three
        return options

    def _duplicates(self, obj: Any, twice: list[str], *, patched: bool = False) -> None:
        told = [f'duplicate field "{path}"' for path in twice]
        if not told or self._how.field_validation == "Ignore":
            return
        if self._how.field_validation == "Warn":
            self._how.warnings.extend(told)
            return
        text = f"strict decoding error: {', '.join(told)}"
        if patched:
            raise invalid("", "", "", [invalid_value("patch", encode(obj).decode(), text)])
        resource = self._kind.resource
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {text}'
        )

    def _unknown_members(self, patch: Any) -> None:
        if not isinstance(patch, list):
            found = "object" if isinstance(patch, dict) else type(patch).__name__
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
            )
        told = [
            f'json patch unknown field "[{index}].{key}"'
            for index, operation in enumerate(patch)
            if isinstance(operation, dict)
            for key in operation
            if key not in ("op", "path", "from", "value")
        ]
        if self._how.field_validation == "Warn":
            self._how.warnings.extend(told)
        elif told and self._how.field_validation == "Strict":
            text = f"strict decoding error: {', '.join(told)}"
            raise invalid("", "", "", [invalid_value("patch", encode(patch).decode(), text)])

    def _exists(self) -> bool:
        return self._store.find(self._kind.resource, self._namespace, self._route.name) is not None

    def _deleted(self, options: Object, namespace: str | None, name: str) -> Deleted:
        preconditions = options.get("preconditions") or {}
        propagation = options.get("propagationPolicy")
        orphan = options.get("orphanDependents")
        if orphan is not None:
            propagation = "Orphan" if orphan else "Background"
        return self._store.delete(
            self._kind.resource,
            namespace,
            name,
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            propagation=propagation,
            grace_seconds=options.get("gracePeriodSeconds"),
            write=self._how,
        )

    def _delete_options(self) -> Object:
        options = self._delete_body() if self._request.body else _delete_query(self._route.query)
        faults: list[FieldError] = []
        self._how.dry_run = dry_run_asked(options.get("dryRun"), faults)
        propagation = options.get("propagationPolicy")
        if propagation is not None and options.get("orphanDependents") is not None:
            faults.append(
                invalid_value(
                    "propagationPolicy", propagation, "orphanDependents and deletionPropagation cannot be both set"
                )
            )
        elif propagation is not None and propagation not in _PROPAGATIONS:
            faults.append(
                not_supported("propagationPolicy", propagation, ["Foreground", "Background", "Orphan", "nil"])
            )
        if faults:
            raise invalid("meta.k8s.io", "DeleteOptions", "", faults)
        return options

    def _delete_body(self) -> Object:
        media = media_type(self._request.headers)
        if media not in ("application/json", "application/yaml"):
            raise unsupported_media(["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
        check_size(self._request.body)
        try:
            options, _ = decoded(self._request.body, yaml=media == "application/yaml")
        except ValueError as error:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
        if not isinstance(options, dict):
            raise bad_request("couldn't get version/kind; json parse error: json: cannot unmarshal into Go value")
        if options.get("kind") not in (None, "", "DeleteOptions"):
            said, version = options["kind"], options.get("apiVersion") or "v1"
            raise bad_request(
                f'no kind "{said}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
            )
        return options

    def _gone(self, obj: Object) -> Object:
        resource, meta = self._kind.resource, obj["metadata"]
        details = {"name": meta["name"], "group": resource.group, "kind": resource.plural, "uid": meta["uid"]}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {key: value for key, value in details.items() if value},
        }


def _unsupported_patch() -> ApiError:
    """A built-in kind's routes refuse before the patch handler, in their library's words."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", bare_details=True)


def _delete_query(query: Mapping[str, str]) -> Object:
    options: Object = {}
    if query.get("gracePeriodSeconds"):
        try:
            options["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{query["gracePeriodSeconds"]}": invalid syntax') from None
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        options["orphanDependents"] = is_true(query["orphanDependents"])
    if query.get("dryRun"):
        options["dryRun"] = [query["dryRun"]]
    return options


def _unreadable(form: PatchType, why: str) -> str:
    if form == "apply":
        return f"error decoding YAML: {why}"
    return f"error decoding patch: {why}" if form != "strategic" else why
