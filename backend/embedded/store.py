"""The versioned objects of the embedded cluster, with the apiserver's semantics and with no thread, socket or timer.

Controllers and the HTTP server call the same methods; whatever a client can observe of a write is decided here. The
store runs on the caller's thread and the caller's clock, so a test can replay a schedule event by event.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from dispatch_kubeflow.backend.embedded import apply, deletion, metadata, patches
from dispatch_kubeflow.backend.embedded.admission import Admission, Operation, Review
from dispatch_kubeflow.backend.embedded.copying import copied
from dispatch_kubeflow.backend.embedded.errors import (
    STALE,
    ApiError,
    FieldError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    internal,
    invalid,
    invalid_value,
    name_conflict,
    not_found,
    unreasoned,
)
from dispatch_kubeflow.backend.embedded.history import (
    Commit,
    Event,
    EventType,
    History,
    Key,
    Stored,
    Subscription,
)
from dispatch_kubeflow.backend.embedded.incoming import (
    Undecodable,
    finalizer_warnings,
    json_type,
    match_kind,
    match_namespace,
    single_owners,
    typed,
    typed_patch,
    unknown_fields,
)
from dispatch_kubeflow.backend.embedded.kinds import Kind, built_in
from dispatch_kubeflow.backend.embedded.schemas.structs import Mistyped
from dispatch_kubeflow.backend.embedded.schemas.structural import BLOCKING
from dispatch_kubeflow.backend.embedded.selectors import both, field_selector, label_selector
from dispatch_kubeflow.backend.requests.resources import Resource

if TYPE_CHECKING:
    from dispatch_kubeflow.machine.context import Clock

Object = dict[str, Any]
PatchType = Literal["merge", "json", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]
Change = Callable[[Object], Object]
Objects = list[Object]
States = list[Stored]
Events = list[Event]
Faults = list[FieldError]


@dataclass(slots=True)
class Write:
    """Who writes and how: what a request carries beside its object.

    `warnings` collects what the server would say in `Warning` headers; `committed` is the version of its last commit.
    `peeks` says that what is given back is only read, so that it need not be a copy.
    """

    manager: str = "embedded"
    dry_run: bool = False
    request: str | None = None
    user: str = "system:admin"
    peeks: bool = False
    field_validation: Literal["Ignore", "Warn", "Strict"] = "Ignore"
    warnings: list[str] = field(default_factory=list)
    committed: int | None = None

    def given(self, obj: Object) -> Object:
        """An object of the store as this writer gets it."""
        return obj if self.peeks else copied(obj)


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete did: the object as it now is or last was, and whether it is gone."""

    object: Object
    gone: bool


class Store:
    """Objects by resource, namespace and name; one version counter; a history for watches.

    Every method raises `ApiError` where the apiserver would refuse. Objects handed in and out are the caller's own.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        admission: Admission | None = None,
        seed: int | None = None,
        history_limit: int = 100_000,
    ) -> None:
        self.clock = clock
        self.admission = admission or Admission()
        self.lock = threading.RLock()
        self.commits: list[Commit] = []
        self._history = History(history_limit)
        self._version = 1
        self._kinds: dict[Key, Kind] = {kind.key: kind for kind in built_in()}
        self._served: tuple[Kind, ...] | None = None
        self._objects: dict[Key, dict[tuple[str, str], Stored]] = {}
        self._subscriptions: list[Subscription] = []
        self._chance = random.Random(seed)
        self._sent: dict[str, Object] = {}

    # -- what is served

    def kind(self, resource: Resource) -> Kind:
        """The ways of a resource; one never installed behaves as a custom resource without a schema."""
        key = (resource.group, resource.plural)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = Kind(resource, verbs=())
        return found

    def install(self, kind: Kind) -> None:
        """Serve a kind, or serve it in another way than before."""
        self._kinds[kind.key] = kind
        self._served = None

    def uninstall(self, resource: Resource) -> None:
        """Serve a kind no more."""
        self._kinds.pop((resource.group, resource.plural), None)
        self._served = None

    def begin_as(self, other: Store) -> None:
        """Serve what another store serves and hold what it holds, from here on by itself; for a store that is new.

        Committed states are never changed, so nothing of them is copied.
        """
        with other.lock:
            self._kinds = dict(other._kinds)
            self._served = None
            self._objects = {key: dict(objects) for key, objects in other._objects.items()}
            self._version = other._version
            self._history.compact(other._version)

    def kinds(self) -> tuple[Kind, ...]:
        """Every kind that clients are served."""
        if self._served is None:
            self._served = tuple(kind for kind in self._kinds.values() if kind.verbs)
        return self._served

    def served(self, group: str, plural: str) -> Kind | None:
        """The kind that clients are served under this name, whatever the version."""
        found = self._kinds.get((group, plural))
        return found if found is not None and found.verbs else None

    # -- reading

    @property
    def resource_version(self) -> int:
        """The version of the newest write."""
        return self._version

    @property
    def compacted(self) -> int:
        """Versions up to this one are forgotten."""
        return self._history.compacted

    def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """A copy of the object; 404 if there is none."""
        return copied(self.stored(resource, namespace, name).obj)  # type: ignore[no-any-return]  # a dict's copy

    def find(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """A copy of the object, or None."""
        found = self._objects.get((resource.group, resource.plural), {}).get((namespace or "", name))
        return None if found is None else copied(found.obj)

    def stored(self, resource: Resource, namespace: str | None, name: str) -> Stored:
        """The committed state itself, to read and never to change; 404 if there is none."""
        found = self._objects.get((resource.group, resource.plural), {}).get((namespace or "", name))
        if found is None:
            raise not_found(resource.group, resource.plural, name)
        return found

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[Objects, str]:
        """Copies of the objects selected, in the order of namespace and name, and the version they stand at."""
        with self.lock:
            states = self.states(resource, namespace, label_selector=label_selector, field_selector=field_selector)
            return [copied(state.obj) for state in states], str(self._version)

    def states(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        at: int | None = None,
    ) -> States:
        """The committed states a list answers with, now or at an earlier version that is not compacted."""
        match = self.matcher(resource, label_selector, field_selector)
        key = (resource.group, resource.plural)
        with self.lock:
            objects = self._objects.get(key, {})
            if at is not None and at < self._version:
                objects = self._history.rewound(key, objects, at)
            chosen = [
                (place, state)
                for place, state in objects.items()
                if (not namespace or place[0] == namespace) and (match is None or match(state.obj))
            ]
        chosen.sort(key=lambda item: f"{item[0][0]}/{item[0][1]}")
        return [state for _, state in chosen]

    def matcher(
        self, resource: Resource, labels: str | None, fields: str | None
    ) -> Callable[[Mapping[str, Any]], bool] | None:
        """The test of a list's or a watch's selectors; 400 when one cannot be read."""
        return both(label_selector(labels), field_selector(fields, resource.group, resource.plural))

    def events(self, resource: Resource, after: int) -> Events:
        """The events of a resource later than a version that is not compacted, oldest first."""
        return self._history.after((resource.group, resource.plural), after)

    def subscribe(
        self, *resources: Resource, replay: bool = False, wake: Callable[[], None] | None = None
    ) -> Subscription:
        """A queue of every later event of these resources, or of all.

        `replay` puts the present objects before them, as `ADDED`. `wake` is called within the commit and must be quick.
        """
        keys = frozenset((item.group, item.plural) for item in resources) if resources else None
        subscription = Subscription(keys, wake)
        with self.lock:
            if replay:
                present = [
                    Event("ADDED", self._kinds[key].resource, state, None)
                    for key, objects in self._objects.items()
                    if keys is None or key in keys
                    for state in objects.values()
                ]
                for event in sorted(present, key=lambda item: item.version):
                    subscription.offer(event)
            self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Give the queue no more events."""
        with self.lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)

    def compact(self, version: int | None = None) -> None:
        """Forget the history up to a version, the newest by default: a watch or list from before it is 410."""
        with self.lock:
            self._history.compact(self._version if version is None else version)

    def now(self) -> str:
        """The clock's time as objects carry it, in whole seconds."""
        return stamp(self.clock.now())

    # -- writing

    def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        *,
        namespace: str | None = None,
        manager: str = "embedded",
        dry_run: bool = False,
        write: Write | None = None,
    ) -> Object:
        """Create an object and give it back as stored."""
        how = write or Write(manager, dry_run)
        kind = self.kind(resource)
        matching = not self.admission.mutates(resource, "CREATE", retyping=True)
        new = typed(kind, copied(dict(obj)), matching=matching)
        with self.lock:
            return self._create(kind, new, namespace, how)

    def update(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        subresource: str | None = None,
        *,
        namespace: str | None = None,
        name: str | None = None,
        manager: str = "embedded",
        dry_run: bool = False,
        write: Write | None = None,
    ) -> Object:
        """Replace an object (or its `status`), if its resourceVersion and uid still hold; gives it back as stored."""
        how = write or Write(manager, dry_run)
        kind = self.kind(resource)
        new = typed(kind, copied(dict(obj)), matching=False)
        meta = new["metadata"]
        place = self._place(kind, namespace, meta, name)
        uid = str(meta.get("uid") or "")
        with self.lock:
            if kind.create_on_update and place not in self._objects.get(kind.key, {}):
                return self._create(kind, new, namespace, how)
            return self._update(
                kind,
                place,
                lambda _: new,
                subresource,
                how,
                uid=uid,
                replaces=True,
                judge=lambda: match_kind(kind, dict(obj)),
            )

    def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Any,
        type: PatchType = "merge",  # noqa: A002  # the word of the API
        subresource: str | None = None,
        *,
        manager: str = "embedded",
        force: bool = False,
        dry_run: bool = False,
        write: Write | None = None,
    ) -> Object:
        """Patch an object (or its `status`) and give it back as stored. `apply` creates an absent one."""
        how = write or Write(manager, dry_run)
        kind = self.kind(resource)
        place = (namespace or "" if kind.resource.namespaced else "", name)
        with self.lock:
            if type == "apply":
                return self._apply(kind, place, patch, subresource, force, how)
            if type == "merge" and not isinstance(patch, dict):
                raise bad_request(
                    f"error decoding patch: json: cannot unmarshal {json_type(patch)} into Go value of type "
                    "map[string]interface {}"
                )
            return self._update(kind, place, _patched(kind, patch, type), subresource, how)

    def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
        write: Write | None = None,
    ) -> Deleted:
        """Delete an object, or begin to: a grace period or finalizers keep it, marked with a deletionTimestamp."""
        how = write or Write(dry_run=dry_run)
        kind = self.kind(resource)
        with self.lock:
            if kind.orphans_by_default and propagation is None:
                how.warnings.append(deletion.ORPHAN_WARNING)
            state = self.stored(resource, namespace if kind.resource.namespaced else None, name)
            asked = deletion.Asked(uid, resource_version, propagation, grace_seconds)
            plan = deletion.plan(kind, state.obj, asked, self.clock.now())
            self._review(kind, "DELETE", state.place, None, state.obj, None, how)
            if plan.pending:
                return Deleted(how.given(state.obj), gone=False)
            if plan.marked is not None:
                marked = self._commit(kind, "MODIFIED", plan.marked, state, how, "delete")
                if not plan.gone or how.dry_run:
                    return Deleted(how.given(marked.obj), plan.gone)
                state = marked
            if how.dry_run:
                return Deleted(how.given(state.obj), gone=True)
            return Deleted(how.given(self._remove(kind, state, how).obj), gone=True)

    # -- one write, step by step

    def _create(self, kind: Kind, new: Object, namespace: str | None, how: Write, *, applied: bool = False) -> Object:
        meta = new["metadata"]
        match_namespace(kind, namespace, meta)
        place_namespace = meta.get("namespace") or ""
        asked = meta.get("resourceVersion")
        name_was_made = not meta.get("name") and bool(meta.get("generateName"))
        if name_was_made:
            meta["name"] = metadata.generated(meta["generateName"], self._chance)
        how.warnings.extend(single_owners(meta))
        self._decode(kind, new, how)
        sent = copied(new) if how.request is not None else None
        self._namespace_stands(kind, place_namespace, meta.get("name") or "")
        place = (place_namespace, meta.get("name") or "")
        new = self._review(kind, "CREATE", place, None, None, new, how, mutate=True) or new
        meta = new["metadata"]
        self._account_stands(kind, new)
        how.warnings.extend(single_owners(meta, mutated=True))
        meta["uid"] = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        meta["creationTimestamp"] = self.now()
        # An apply that creates may even create what is being deleted: the real one forgets to take that away.
        deletion_marks = () if applied else ("deletionTimestamp", "deletionGracePeriodSeconds")
        for key in (*deletion_marks, "selfLink", "resourceVersion"):
            meta.pop(key, None)
        generation = meta.get("generation")
        kind.prepare_create(new)
        if applied and generation is not None:
            meta.setdefault("generation", generation)
        faults = metadata.validate(new, namespaced=kind.resource.namespaced, name_check=kind.name_check)
        if kind.custom:
            faults += self._schema_faults(kind, new, None, faults)
        else:
            faults += [*metadata.validate_own(new), *kind.check(new)]
        if faults:
            raise invalid(kind.resource.group, kind.resource.kind, meta.get("name") or "", faults)
        how.warnings.extend(finalizer_warnings(new, None) if kind.custom else kind.warn(new))
        self._review(kind, "CREATE", place, None, None, new, how)
        self._free(kind, place, name_was_made=name_was_made, asked="" if how.dry_run else asked or "")
        made = self._commit(kind, "ADDED", new, None, how, "create").obj
        if sent is not None and not how.dry_run:
            # Of an apply, what it owns is said with the object, and nothing else is owned.
            self._sent[meta["uid"]] = {"metadata": {}} if applied else sent
        if asked and how.dry_run:
            # Only a dry run comes here with one, and gives it back.
            made["metadata"]["resourceVersion"] = asked
        return how.given(made)

    def _update(
        self,
        kind: Kind,
        place: tuple[str, str],
        change: Change,
        subresource: str | None,
        how: Write,
        *,
        uid: str = "",
        replaces: bool = False,
        applied: bool = False,
        judge: Callable[[], None] | None = None,
    ) -> Object:
        resource = kind.resource
        state = self._objects.get(kind.key, {}).get(place)
        if state is None:
            raise self._absent(kind, place, change if replaces else None, how)
        old = state.obj
        if uid and uid != old["metadata"]["uid"]:
            raise conflict(
                resource.group,
                resource.plural,
                place[1],
                f"StorageError: invalid object, Code: 4, Key: {kind.storage_key(*place)}, "
                "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
                f"UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}",
            )
        new = change(old) if replaces else self._of_patch(kind, place, change(old))
        self._decode(kind, new, how, old, patched=not replaces)
        _keeps_name(new, place[1])
        if replaces:
            how.warnings.extend(single_owners(new["metadata"]))
        new = self._review(kind, "UPDATE", place, subresource, old, new, how, mutate=True) or new
        how.warnings.extend(single_owners(new["metadata"], mutated=True))
        self._current_version(kind, new, state, place[1], judge)
        new = kind.prepare_update(new, old, subresource)
        meta, before = new["metadata"], old["metadata"]
        meta["uid"] = meta.get("uid") or before["uid"]
        meta["creationTimestamp"] = before["creationTimestamp"]
        if "deletionTimestamp" in before:
            meta["deletionTimestamp"] = before["deletionTimestamp"]
        if "deletionGracePeriodSeconds" in before:
            meta.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])
        self._own(kind, new, old, subresource, how, applied)
        self._update_faults(kind, new, old, subresource)
        if kind.custom:
            how.warnings.extend(finalizer_warnings(new, old))
        self._review(kind, "UPDATE", place, subresource, old, new, how)
        last = not meta.get("finalizers") and not deletion.holds_content(kind, new)
        if last and deletion.is_over(kind, before):
            if not how.dry_run:
                self._remove(kind, state, how)
            return how.given(new)
        verb = "update" if replaces else "patch"
        return how.given(self._commit(kind, "MODIFIED", new, state, how, verb, subresource).obj)

    def _of_patch(self, kind: Kind, place: tuple[str, str], new: Object) -> Object:
        """What a patch made, if it is still of its kind, namespace and name."""
        self._convertible(kind, new)
        # A patch shares what it left alone with the stored object; what follows changes objects in place.
        new = copied(typed_patch(kind, new))
        match_namespace(kind, place[0], new["metadata"])
        if kind.custom:
            _keeps_name(new, place[1])
        return new

    def _convertible(self, kind: Kind, new: Object) -> None:
        """An object is shown to a mutating webhook in its own version: 500 for one of another."""
        said = new.get("apiVersion")
        if kind.custom and said != kind.resource.api_version and self.admission.mutates(kind.resource, "UPDATE"):
            raise internal(
                f"Internal error occurred: {said}, Kind={new.get('kind')} is unstructured and is not suitable for "
                f'converting to "{kind.resource.api_version}"'
            )

    def _absent(self, kind: Kind, place: tuple[str, str], change: Change | None, how: Write) -> ApiError:
        """What an update of an absent object is answered; a body that cannot be read is refused before that."""
        if change is not None:
            self._decode(kind, change({}), how)
        return not_found(kind.resource.group, kind.resource.plural, place[1])

    def _apply(
        self, kind: Kind, place: tuple[str, str], patch: Any, subresource: str | None, force: bool, how: Write
    ) -> Object:
        if not isinstance(patch, dict):
            raise bad_request("error decoding YAML: error unmarshaling JSON: not an object")
        said = (patch.get("apiVersion"), patch.get("kind"))
        if how.request is not None and said != (kind.resource.api_version, kind.resource.kind):
            group, _, version = str(said[0] or "/").rpartition("/")
            raise bad_request(f"invalid object type: {group}/{version}, Kind={said[1] or ''}")
        if (patch.get("metadata") or {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        self._declared(kind, patch)
        wanted = typed(kind, copied(patch))
        # What is applied as empty is owned, though nothing is kept of it.
        empty = {key: item for key, item in (patch.get("metadata") or {}).items() if item in ({}, [])}
        wanted["metadata"] |= copied(empty)
        match_namespace(kind, place[0], wanted["metadata"])
        state = self._objects.get(kind.key, {}).get(place)
        applied = apply.Applied(how.manager, subresource, force, self.now(), kind.resource)
        if state is None:
            if subresource is not None:
                raise not_found(kind.resource.group, kind.resource.plural, place[1])
            if wanted["metadata"].get("uid"):
                raise conflict(
                    kind.resource.group,
                    kind.resource.plural,
                    place[1],
                    f"uid mismatch: the provided object specified uid {wanted['metadata']['uid']}, "
                    "and no existing object was found",
                )
        if state is None:
            wanted["metadata"].setdefault("name", place[1])
            _keeps_name(wanted, place[1])
            made = typed(kind, applied.to(None, wanted, kind.schema))
            return self._create(kind, made, place[0], how, applied=True)
        return self._update(
            kind,
            place,
            lambda old: self._applied(kind, applied, old, wanted),
            subresource,
            how,
            applied=True,
        )

    def _applied(self, kind: Kind, applied: apply.Applied, old: Object, wanted: Object) -> Object:
        """The object after an apply: as it is stored, if it changes neither fields nor their owners."""
        owned = self._with_owners(kind, old)
        result = applied.to(owned, wanted, kind.schema)
        return copied(old) if _without_empty(result) == _without_empty(owned) else result

    def _with_owners(self, kind: Kind, obj: Object) -> Object:
        """The object with the owners of its fields; they are found out at its first apply, from every write to it."""
        meta = obj["metadata"]
        if meta.get("managedFields"):
            return obj
        written = {commit.version: commit for commit in self.commits if commit.uid == meta["uid"]}
        events = [
            event for event in self._history.after(kind.key, 0) if event.state.obj["metadata"]["uid"] == meta["uid"]
        ]
        if not events or events[0].before is not None:
            # Its first writes are forgotten.
            return obj
        entries: list[Object] = []
        before: Object = {"metadata": {}}
        for event in events:
            commit, after = written[event.version], event.state.obj
            if event is events[0]:
                # What the server itself put in, nobody owns.
                after = self._sent.get(meta["uid"], after)
            owned = {**before, "metadata": {**before["metadata"], "managedFields": entries}}
            time = meta["creationTimestamp"]
            entries = apply.tracked(owned, after, commit.manager, commit.subresource, time, kind.resource, kind.schema)
            before = event.state.obj
        return {**obj, "metadata": {**meta, "managedFields": entries}}

    def _declared(self, kind: Kind, patch: Object) -> None:
        """An apply may hold only what the schema knows, in its types: 500, where other writes are more forgiving."""
        if kind.schema is None:
            return
        meta, resource = patch.get("metadata") or {}, kind.resource
        try:
            tried = typed(kind, copied(patch), matching=False)
            wrong = [f".{path}: field not declared in schema" for path in kind.schema.decode(tried)]
            wrong += [f".{path}: duplicate entries for key" for path in apply.twice(patch, kind.schema)]
            wrong += [
                f".{fault.field}: {fault.detail}"
                for fault in kind.schema.validate(tried, None, blocked=True)
                if fault.is_mistyped
            ]
        except (Mistyped, Undecodable) as error:
            wrong = [getattr(error, "why", str(error))]
        if wrong:
            said = wrong[0] if len(wrong) == 1 else "errors:\n" + "\n".join(f"  {each}" for each in wrong)
            version = resource.api_version if resource.group else f"/{resource.version}"
            place = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}"
            raise unreasoned(f"failed to create typed patch object ({place}; {version}, Kind={resource.kind}): {said}")

    def _decode(self, kind: Kind, obj: Object, how: Write, old: Object | None = None, *, patched: bool = False) -> None:
        try:
            dropped = kind.schema.decode(obj, old) if kind.schema is not None else []
            unknown = [f'unknown field "{path}"' for path in dropped]
            if unknown and how.field_validation == "Strict":
                raise unknown_fields(kind, obj, unknown, patched=patched)
            if kind.schema is not None:
                kind.schema.default(obj, old)
            kind.defaults(obj)
        except Mistyped as error:
            mistyped = Undecodable(kind, str(error))
            raise mistyped.of_patch(obj) if patched else mistyped from None
        if unknown and how.field_validation == "Warn":
            how.warnings.extend(unknown)

    def _place(self, kind: Kind, namespace: str | None, meta: Object, name: str | None) -> tuple[str, str]:
        match_namespace(kind, namespace, meta)
        said = str(meta.get("name") or "")
        if name is not None and said and said != name:
            raise bad_request(f"the name of the object ({said}) does not match the name on the URL ({name})")
        if name is not None and not said:
            meta["name"] = name
        return (str(meta.get("namespace") or ""), name or said)

    def _current_version(
        self, kind: Kind, new: Object, state: Stored, name: str, judge: Callable[[], None] | None = None
    ) -> None:
        """Whether the version asked for is the present one; only then is it asked whether the kind is right."""
        self._compare_version(kind, new, state, name)
        if judge is not None:
            judge()

    def _compare_version(self, kind: Kind, new: Object, state: Stored, name: str) -> None:
        asked = new["metadata"].get("resourceVersion") or ""
        resource = kind.resource
        if asked in ("", "0"):
            if not kind.unconditional_update:
                raise invalid(
                    resource.group,
                    resource.plural,
                    name,
                    [invalid_value("metadata.resourceVersion", 0, "must be specified for an update")],
                )
            new["metadata"]["resourceVersion"] = str(state.version)
            return
        if not (asked.isascii() and asked.isdigit()):
            raise unreasoned(f'strconv.ParseUint: parsing "{asked}": invalid syntax')
        if int(asked) != state.version:
            raise conflict(resource.group, resource.plural, name, STALE)

    def _own(self, kind: Kind, new: Object, old: Object, subresource: str | None, how: Write, applied: bool) -> None:
        if applied:
            return
        new["metadata"].pop("managedFields", None)
        if "managedFields" in old["metadata"]:
            new["metadata"]["managedFields"] = apply.tracked(
                old, new, how.manager, subresource, self.now(), kind.resource, kind.schema
            )

    def _update_faults(self, kind: Kind, new: Object, old: Object, subresource: str | None) -> None:
        named, same = kind.resource.namespaced, new["metadata"] == old["metadata"]
        # Kubernetes judges metadata once for every kind and once more within the kind's own validation.
        changes = [] if same else metadata.validate_update(new, old)
        faults = [] if same else metadata.validate(new, namespaced=named, name_check=metadata.path_segment)
        faults += changes
        if kind.custom:
            faults += changes
            of_schema = self._schema_faults(kind, new, old, faults)
            # A status is judged by itself: the words know nothing of where it stands, only the path does.
            faults += [each.within("status") for each in of_schema] if subresource == "status" else of_schema
        elif subresource is not None or (same and kind.desired(new) == kind.desired(old)):
            faults += changes
        else:
            whole = [] if same else metadata.validate(new, namespaced=named, name_check=kind.name_check)
            whole += [*metadata.validate_own(new), *kind.check(new)]
            changes += kind.check_change(new, old)
            faults += [*whole, *changes] if kind.checks_whole_first else [*changes, *whole]
        if faults:
            raise invalid(kind.resource.group, kind.resource.kind, str(old["metadata"]["name"]), faults)

    def _schema_faults(self, kind: Kind, new: Object, old: Object | None, before: Faults) -> Faults:
        blocked = any(fault.type in BLOCKING for fault in before)
        return kind.schema.validate(new, old, blocked=blocked) if kind.schema is not None else []

    def _namespace_stands(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.resource.namespaced or not namespace:
            return
        found = self._objects.get(("", "namespaces"), {}).get(("", namespace))
        if found is None:
            raise not_found("", "namespaces", namespace)
        if "deletionTimestamp" in found.obj["metadata"]:
            text = f"namespace {namespace} is being terminated"
            raise forbidden(
                kind.resource.group,
                kind.resource.plural,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
                [{"reason": "NamespaceTerminating", "message": text, "field": "metadata.namespace"}],
            )

    def _free(self, kind: Kind, place: tuple[str, str], *, name_was_made: bool, asked: str) -> None:
        """Whether an object may come to be at a place; a version that is asked for is a fault before that."""
        if asked.isdigit() and int(asked):
            raise unreasoned("resourceVersion should not be set on objects to be created")
        found = self._objects.get(kind.key, {}).get(place)
        if found is None:
            return
        if name_was_made:
            raise name_conflict(kind.resource.group, kind.resource.plural, place[1])
        deleting = "deletionTimestamp" in found.obj["metadata"]
        raise already_exists(kind.resource.group, kind.resource.plural, place[1], deleting=deleting)

    def _account_stands(self, kind: Kind, new: Object) -> None:
        """A pod may run only as an account that is there: 403. Every namespace has `default`."""
        if kind.resource.kind != "Pod":
            return
        meta, account = new["metadata"], new["spec"].get("serviceAccountName") or "default"
        namespace = meta.get("namespace") or ""
        if account != "default" and (namespace, account) not in self._objects.get(("", "serviceaccounts"), {}):
            text = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            raise forbidden("", "pods", meta.get("name") or "", text)

    def _review(
        self,
        kind: Kind,
        operation: Operation,
        place: tuple[str, str],
        subresource: str | None,
        old: Object | None,
        new: Object | None,
        how: Write,
        *,
        mutate: bool = False,
    ) -> Object | None:
        if not self.admission.concerns(kind.resource):
            return None
        review = Review(
            kind.resource, operation, place[0] or None, place[1], subresource, old, new, how.dry_run, how.user
        )
        if not mutate:
            self.admission.validate(review)
            how.warnings.extend(review.warnings)
            return None
        changed = self.admission.mutate(review)
        if changed is not None and changed is not new:
            self._decode(kind, changed, how)
        return changed

    def _commit(
        self,
        kind: Kind,
        event: EventType,
        new: Object,
        before: Stored | None,
        how: Write,
        verb: str,
        subresource: str | None = None,
    ) -> Stored:
        meta = new["metadata"]
        if before is not None:
            meta["resourceVersion"] = str(before.version)
            if new == before.obj:
                return before
        if how.dry_run:
            if before is None:
                meta.pop("resourceVersion", None)
            return Stored(new, (meta.get("namespace") or "", meta["name"]), self._version)
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        state = Stored(new, (meta.get("namespace") or "", meta["name"]), self._version)
        self._objects.setdefault(kind.key, {})[state.place] = state
        self._tell(kind, Event(event, kind.resource, state, before), how, verb, subresource)
        return state

    def _remove(self, kind: Kind, state: Stored, how: Write) -> Stored:
        self._version += 1
        last = {**state.obj, "metadata": {**state.obj["metadata"], "resourceVersion": str(self._version)}}
        gone = Stored(last, state.place, self._version)
        del self._objects[kind.key][state.place]
        self._sent.pop(state.obj["metadata"]["uid"], None)
        self._tell(kind, Event("DELETED", kind.resource, gone, state), how, "delete", None)
        return gone

    def _tell(self, kind: Kind, event: Event, how: Write, verb: str, subresource: str | None) -> None:
        self._history.append(event)
        how.committed = event.version
        namespace, name = event.state.place
        uid = event.state.obj["metadata"]["uid"]
        self.commits.append(
            Commit(event.version, verb, kind.resource, namespace, name, uid, subresource, how.manager, how.request)
        )
        for subscription in self._subscriptions:
            subscription.offer(event)


def _patched(kind: Kind, patch: Any, form: PatchType) -> Change:
    if form == "merge":
        return lambda old: patches.merge(old, patch)
    if form == "json":
        return lambda old: patches.json_patch(old, patch)
    # A strategic patch is one of the object's struct, which has no say in what kind it is.
    typed_as = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    return lambda old: {**patches.strategic(old, patch, kind.resource.plural), **typed_as}


def _without_empty(obj: Object) -> Object:
    return {**obj, "metadata": {key: item for key, item in obj["metadata"].items() if item not in ({}, [])}}


def _keeps_name(obj: Object, name: str) -> None:
    said = obj["metadata"].get("name")
    if said != name:
        raise bad_request(f"the name of the object ({said}) does not match the name on the URL ({name})")


def stamp(moment: datetime) -> str:
    """A time as Kubernetes writes it in metadata: UTC, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
