"""The three patch forms that carry no ownership: merge patch, JSON patch, strategic merge.

Each takes the current object and gives a new one; neither argument is changed.
"""

from __future__ import annotations

import json
from typing import Any

from dispatch_kubeflow.backend.embedded.copying import copied
from dispatch_kubeflow.backend.embedded.errors import ApiError, bad_request, unreasoned

Object = dict[str, Any]

# The list-map keys of the built-in kinds, by the name of the field that holds the list.
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "conditions": "type",
    "ownerReferences": "uid",
    "addresses": "type",
    "taints": "key",
    "podIPs": "ip",
    "hostIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "secrets": "name",
}
_PORT_KEYS = {"containers": "containerPort", "spec": "port"}
_PRIMITIVE_MERGED = {"finalizers", "podCIDRs"}
# Merge keys hold only where the list is an object's; `taints` is atomic in a Node, conditions of a Job are atomic.
_ATOMIC = {("nodes", "taints"), ("jobs", "conditions")}


def merge(current: Any, patch: Any) -> Any:
    """RFC 7386: a null takes a key away, an object merges, anything else replaces."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge(result.get(key), value)
        else:
            result[key] = copied(value)
    return result


def json_patch(current: Object, operations: Any) -> Any:
    """RFC 6902, all or nothing; 422 for an operation that fails, 400 for a patch that cannot be read."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > 10_000:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            f"Request entity too large: The allowed maximum operations in a JSON patch is 10000, got {len(operations)}",
        )
    document: Any = copied(current)
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("json: cannot unmarshal into Go value of type jsonpatch.Operation")
        document = _operated(document, operation)
    return document


def strategic(current: Any, patch: Any, plural: str, field: str = "") -> Any:
    """Strategic merge: lists of the built-in kinds merge by their key, and the `$` directives are obeyed."""
    if not isinstance(patch, dict):
        return copied(patch)
    directive = patch.get("$patch")
    if directive == "replace":
        return copied({key: value for key, value in patch.items() if key != "$patch"})
    if directive == "delete":
        return {}
    result = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            result = _directed(result, key, value)
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategic(result.get(key), value, plural, key)
        elif isinstance(value, list):
            result[key] = _merged_list(result.get(key), value, plural, key, field)
        else:
            result[key] = value
    return result


def _directed(result: Object, directive: str, value: Any) -> Object:
    if directive == "$retainKeys":
        return {name: item for name, item in result.items() if name in value}
    kind, _, name = directive.partition("/")
    if kind == "$deleteFromPrimitiveList":
        return {**result, name: [item for item in result.get(name) or [] if item not in value]}
    # The order of a list's elements is a wish that changes none of them.
    return result


def _merged_list(current: Any, patch: list[Any], plural: str, field: str, parent: str) -> list[Any]:
    before = list(current) if isinstance(current, list) else []
    if field in _PRIMITIVE_MERGED:
        return [*before, *(item for item in patch if item not in before)]
    key = _PORT_KEYS.get(parent, "containerPort") if field == "ports" else _MERGE_KEYS.get(field)
    if key is None or (plural, field) in _ATOMIC:
        return list(copied(patch))
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [copied(item) for item in patch if item.get("$patch") != "replace"]
    result, fresh = before, list[Any]()
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            if not before:
                # There is nothing to merge with: the list is taken as it is.
                return list(copied(patch))
            raise unreasoned(f"map: {_printed(item)} does not contain declared merge key: {key}")
        place = next((index for index, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            result = [old for old in result if old.get(key) != item[key]]
        elif place is None:
            fresh.append(strategic({}, item, plural, field))
        else:
            result = [*result[:place], strategic(result[place], item, plural, field), *result[place + 1 :]]
    # Kubernetes puts what is new before what was there.
    return [*fresh, *result]


def _printed(value: Any) -> str:
    """A value as Go prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_printed(item)}' for key, item in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_printed, value))}]"
    return {True: "true", False: "false", None: "<nil>"}.get(value, str(value)) if not isinstance(value, str) else value


def _operated(document: Any, operation: Object) -> Any:
    kind, path = operation.get("op"), operation.get("path")
    if kind not in ("add", "remove", "replace", "move", "copy", "test"):
        raise _failed(f"Unexpected kind: {kind}" if kind else "Unexpected kind: unknown")
    if not isinstance(path, str):
        raise _failed(f"{kind} operation failed to decode path: missing field")
    if kind in ("add", "replace") and "value" not in operation:
        raise _failed(f"{kind} operation missing value")
    if kind == "add":
        return _added(document, path, copied(operation["value"]))
    if kind == "remove":
        return _removed(document, path, "remove")
    if kind == "replace":
        return operation["value"] if path == "" else _replaced(document, path, copied(operation["value"]))
    if kind == "test":
        return _tested(document, path, operation.get("value"))
    source = str(operation.get("from"))
    moved = copied(_found(document, source, kind))
    return _added(_removed(document, source, kind) if kind == "move" else document, path, moved)


def _tested(document: Any, path: str, wanted: Any) -> Any:
    steps = _steps(path)
    if wanted is None and steps:
        # What is not there is null, if there is a place where it could be.
        holder = _holder(document, steps, path, "test")
        if isinstance(holder, dict) and holder.get(steps[-1]) is None:
            return document
    present = _found(document, path, "test")
    if present != wanted or isinstance(present, bool) != isinstance(wanted, bool):
        raise _failed(f"testing value {path} failed: test failed")
    return document


def _steps(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise _failed(f"path {path} is not a pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _found(document: Any, path: str, kind: str) -> Any:
    value = document
    for step in _steps(path):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise _missing(kind, path)
    return value


def _added(document: Any, path: str, value: Any) -> Any:
    steps = _steps(path)
    if not steps:
        return value
    holder = _holder(document, steps, path, "add")
    last = steps[-1]
    if isinstance(holder, dict):
        holder[last] = value
    elif last == "-":
        holder.append(value)
    elif last.isdigit() and int(last) <= len(holder):
        holder.insert(int(last), value)
    else:
        raise _failed(f"add operation does not apply: doc is missing path: {json.dumps(path)}: missing value")
    return document


def _replaced(document: Any, path: str, value: Any) -> Any:
    steps = _steps(path)
    holder = _holder(document, steps, path, "replace")
    if isinstance(holder, dict):
        # The library behind the real answer does not ask whether there was anything to replace.
        holder[steps[-1]] = value
        return document
    return _added(_removed(document, path, "replace"), path, value)


def _removed(document: Any, path: str, kind: str) -> Any:
    _found(document, path, kind)
    steps = _steps(path)
    if not steps:
        return None
    holder = _holder(document, steps, path, kind)
    if isinstance(holder, dict):
        del holder[steps[-1]]
    else:
        del holder[int(steps[-1])]
    return document


def _holder(document: Any, steps: list[str], path: str, kind: str) -> Any:
    holder = document
    for step in steps[:-1]:
        if isinstance(holder, dict) and isinstance(holder.get(step), dict | list):
            holder = holder[step]
        elif isinstance(holder, list) and step.isdigit() and int(step) < len(holder):
            holder = holder[int(step)]
        else:
            raise _missing(kind, path)
    if not isinstance(holder, dict | list):
        raise _missing(kind, path)
    return holder


def _missing(kind: str, path: str) -> ApiError:
    return _failed(f"{kind} operation does not apply: doc is missing path: {path}: missing path")


def _failed(_: str) -> ApiError:
    # The real answer keeps the patch library's words to itself.
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", bare_details=True)
