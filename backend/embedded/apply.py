"""Server-side apply: who owns which field, and what an apply may change, conflicts over, and takes away.

Ownership is tracked from an object's first apply on; until then nobody owns a field, as with an object from before
server-side apply. From then on `metadata.managedFields` is kept by every write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dispatch_kubeflow.backend.embedded.copying import copied
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.shapes import ROOT_UNMANAGED, Shape, shape_of
from dispatch_kubeflow.backend.requests.resources import Resource

Object = dict[str, Any]
Path = tuple[str, ...]
"""Steps as `fieldsV1` writes them: `f:name`, `k:{...}` for an item of a list-map, `v:...` for one of a set."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One apply: by whom, to which subresource, whether conflicts are overridden."""

    manager: str
    subresource: str | None
    force: bool
    time: str
    resource: Resource

    def to(self, live: Object | None, wanted: Object, schema: object | None) -> Object:
        """The object after the apply; 409 with a cause for each field that another manager owns otherwise."""
        shape = shape_of(schema)
        wanted = self._within_reach(wanted)
        paths = owned_paths(wanted, shape)
        entries = _entries(live, shape, self.resource)
        mine = next((entry for entry in entries if entry.key == self._key), None)
        others = [entry for entry in entries if entry is not mine]
        live = live or {"metadata": {}}
        result: Object = _merged(live, wanted, shape)
        self._conflicts(live, result, paths, others)
        for other in others:
            other.paths -= {path for path in other.paths & paths if _value(live, path) != _value(result, path)}
        if mine is not None:
            kept = paths.union(*(other.paths for other in others))
            # An item goes as a whole before its fields do, for by its fields it is found.
            for path in sorted(mine.paths - kept, key=len):
                if not any(item[: len(path)] == path for item in kept):
                    _remove(result, path)
        if mine is None or mine.paths != paths:
            others.append(Entry(*self._key, time=self.time, paths=paths))
        else:
            others.append(mine)
        owned = [entry.written() for entry in others if entry.paths]
        kept_metadata = {key: value for key, value in result["metadata"].items() if key != "managedFields"}
        result["metadata"] = kept_metadata | ({"managedFields": owned} if owned else {})
        return result

    @property
    def _key(self) -> tuple[str, str, str, str]:
        return (self.manager, "Apply", self.resource.api_version, self.subresource or "")

    def _within_reach(self, wanted: Object) -> Object:
        # What the subresource does not write is dropped first, so that it is neither set nor owned.
        if self.subresource == "status":
            return {
                key: value for key, value in wanted.items() if key in ("apiVersion", "kind", "metadata", "status")
            } | {
                "metadata": {
                    key: value
                    for key, value in wanted["metadata"].items()
                    if key in ("name", "namespace", "resourceVersion", "uid")
                }
            }
        return {key: value for key, value in wanted.items() if key != "status"}

    def _conflicts(self, live: Object, result: Object, paths: set[Path], others: list[Entry]) -> None:
        if self.force:
            return
        found = [
            (other, path)
            for other in others
            for path in sorted(other.paths & paths)
            if _value(live, path) != _value(result, path)
        ]
        if not found:
            return
        if len(found) == 1:
            message = f"Apply failed with 1 conflict: conflict with {found[0][0].shown()}: {_shown(found[0][1])}"
        else:
            lines: list[str] = []
            for other in sorted({id(item): item for item, _ in found}.values(), key=lambda item: item.shown()):
                lines.append(f"conflicts with {other.shown()}:")
                lines += [f"- {_shown(path)}" for item, path in found if item is other]
            message = f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
        raise ApiError(
            409,
            "Conflict",
            message,
            causes=[
                {
                    "reason": "FieldManagerConflict",
                    "message": f"conflict with {other.shown()}",
                    "field": _shown(path),
                }
                for other, path in found
            ],
        )


@dataclass(slots=True)
class Entry:
    """One entry of `managedFields`, its paths as a set."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: set[Path]

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.manager, self.operation, self.api_version, self.subresource)

    def shown(self) -> str:
        name = json.dumps(self.manager)
        if self.subresource:
            name += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            name += f" using {self.api_version}"
        return name

    def written(self) -> Object:
        entry: Object = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            **({"time": self.time} if self.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(self.paths),
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


def tracked(
    old: Object,
    new: Object,
    manager: str,
    subresource: str | None,
    time: str,
    resource: Resource,
    schema: object | None,
) -> list[Object]:
    """`managedFields` after a write that is not an apply: its changes become its own."""
    shape = shape_of(schema)
    before, after = owned_paths(old, shape), owned_paths(new, shape)
    changed = {path for path in after if path not in before or _value(old, path) != _value(new, path)}
    entries = _entries(old, shape, resource)
    if not changed and before == after:
        return [entry.written() for entry in entries]
    key = (manager, "Update", resource.api_version, subresource or "")
    mine = next((entry for entry in entries if entry.key == key), None)
    for entry in entries:
        entry.paths &= after
        if entry is not mine:
            entry.paths -= {path for path in changed if path in before}
    if mine is None:
        mine = Entry(*key, time=time, paths=set())
        entries.append(mine)
    mine.paths |= changed
    mine.time = time if changed else mine.time
    return [entry.written() for entry in entries if entry.paths]


def twice(obj: Object, schema: object | None) -> list[str]:
    """Where an object names one item of a list-map twice, or one of a set."""
    return list(_twice(obj, shape_of(schema), ""))


def _twice(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if isinstance(value, dict) and not shape.atomic:
        for key, item in value.items():
            yield from _twice(item, shape.field(key), f"{path}.{key}" if path else key)
    elif isinstance(value, list) and (shape.keys or shape.is_set):
        steps = [_item_step(item, shape.keys) if shape.keys else json.dumps(item) for item in value]
        if len(set(steps)) < len(steps):
            yield path
        for item in value:
            yield from _twice(item, shape.item, path)


def owned_paths(obj: Object, shape: Shape) -> set[Path]:
    """Every path of an object that a manager can own."""
    return {
        path
        for path in _paths(obj, shape, ())
        if path[:2] not in ROOT_UNMANAGED and path[:1] not in ROOT_UNMANAGED and path != ("f:metadata",)
    }


def _entries(live: Object | None, shape: Shape, resource: Resource) -> list[Entry]:
    if live is None:
        return []
    written = live["metadata"].get("managedFields")
    if written is None:
        paths = owned_paths(live, shape)
        return [Entry("before-first-apply", "Update", resource.api_version, "", "", paths)] if paths else []
    return [
        Entry(
            item["manager"],
            item["operation"],
            item["apiVersion"],
            item.get("subresource", ""),
            item.get("time", ""),
            set(_untree(item["fieldsV1"], ())),
        )
        for item in written
    ]


def _paths(value: Any, shape: Shape, prefix: Path) -> Iterator[Path]:
    if isinstance(value, dict) and value and not shape.atomic:
        for key, item in value.items():
            yield from _paths(item, shape.field(key), (*prefix, f"f:{key}"))
    elif isinstance(value, list) and shape.keys:
        for item in value:
            step = _item_step(item, shape.keys)
            yield (*prefix, step)
            yield from (path for path in _paths(item, shape.item, (*prefix, step)) if path != (*prefix, step))
    elif isinstance(value, list) and shape.is_set:
        for item in value:
            yield (*prefix, f"v:{json.dumps(item)}")
    elif prefix:
        yield prefix


def _item_step(item: Any, keys: tuple[str, ...]) -> str:
    chosen = {key: item[key] for key in keys if isinstance(item, dict) and key in item}
    return f"k:{json.dumps(chosen, separators=(',', ':'), sort_keys=True)}"


def _merged(live: Any, wanted: Any, shape: Shape) -> Any:
    if isinstance(wanted, dict) and isinstance(live, dict) and not shape.atomic:
        result = dict(live)
        for key, value in wanted.items():
            result[key] = _merged(live.get(key), value, shape.field(key))
        return result
    if isinstance(wanted, list) and isinstance(live, list) and shape.keys:
        result_list = list(live)
        places = {_item_step(item, shape.keys): index for index, item in enumerate(live)}
        for item in wanted:
            place = places.get(_item_step(item, shape.keys))
            if place is None:
                result_list.append(copied(item))
            else:
                result_list[place] = _merged(result_list[place], item, shape.item)
        return result_list
    if isinstance(wanted, list) and isinstance(live, list) and shape.is_set:
        return [*live, *(item for item in wanted if item not in live)]
    return copied(wanted)


def _value(obj: Any, path: Path) -> Any:
    for step in path:
        obj = _child(obj, step)
    # An item of a list-map is owned as such: that it is there is its value.
    return True if path and path[-1].startswith(("k:", "v:")) and obj is not None else obj


def _child(holder: Any, step: str) -> Any:
    kind, _, name = step.partition(":")
    if kind == "f":
        return holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(holder, list):
        return None
    wanted = json.loads(name)
    if kind == "v":
        return wanted if wanted in holder else None
    return next(
        (item for item in holder if isinstance(item, dict) and all(item.get(k) == v for k, v in wanted.items())), None
    )


def _remove(obj: Object, path: Path) -> None:
    # The way down is copied, for the object shares what it did not change with the one stored.
    holder: Any = obj
    for step in path[:-1]:
        child = _child(holder, step)
        if child is None:
            return
        fresh = dict(child) if isinstance(child, dict) else list(child)
        if isinstance(holder, dict):
            holder[step.partition(":")[2]] = fresh
        else:
            holder[next(index for index, item in enumerate(holder) if item is child)] = fresh
        holder = fresh
    last = path[-1]
    if isinstance(holder, dict):
        holder.pop(last.partition(":")[2], None)
    else:
        child = _child(holder, last)
        holder[:] = [item for item in holder if item is not child and item != child]
    if not holder and len(path) > 1 and path[:-1] != ("f:metadata",):
        # What is empty now goes as well.
        _remove(obj, path[:-1])


def _tree(paths: set[Path]) -> Object:
    root: Object = {}
    for path in sorted(paths):
        node = root
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
    return _trimmed(root)


def _trimmed(node: Object) -> Object:
    children = {key: _trimmed(value) for key, value in node.items() if key != "."}
    # A leaf says nothing of itself; only a node that has children too needs the dot.
    return {".": {}, **children} if "." in node and children else children


def _untree(node: Object, prefix: Path) -> Iterator[Path]:
    if prefix and (not node or "." in node):
        yield prefix
    for key, child in node.items():
        if key != ".":
            yield from _untree(child, (*prefix, key))


def _shown(path: Path) -> str:
    text = ""
    for step in path:
        kind, _, name = step.partition(":")
        if kind == "f":
            text += f".{name}"
        elif kind == "k":
            parts = (f"{key}={json.dumps(value)}" for key, value in sorted(json.loads(name).items()))
            text += f"[{','.join(parts)}]"
        else:
            text += f"[={name}]"
    return text
