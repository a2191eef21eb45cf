"""A process must find in its environment and its arguments what the container would; this is how a pod's spec becomes
both.

Volumes are local folders, and there is no mount: a value of the environment, or an argument, that is a mount path or
begins with one has the folder put in its place. A path that a program holds in its own code is not changed and does not
exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_REFERENCE = re.compile(r"\$(\$|\((?P<name>[^)]+)\))")
_KEYED = re.compile(r"metadata\.(?P<map>annotations|labels)\['(?P<key>[^']+)'\]")
_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "metadata.uid": ("metadata", "uid"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
}


def expanded(text: str, known: Mapping[str, str]) -> str:
    """`text` with each `$(NAME)` that is known in place, `$$` as `$`, and an unknown one as it stands."""

    def put(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return known.get(match["name"], match[0])

    return _REFERENCE.sub(put, text)


def field_value(pod: Object, path: str, address: str) -> str:
    """What a fieldRef stands for; empty for one that is not there."""
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        return str((pod["metadata"].get(keyed["map"]) or {}).get(keyed["key"], ""))
    if path in ("status.podIP", "status.podIPs"):
        return address
    if path == "status.hostIP":
        return "127.0.0.1"
    part, field = _FIELDS.get(path, ("metadata", ""))
    return str(pod[part].get(field, ""))


def variables(pod: Object, container: Object, address: str) -> dict[str, str]:
    """The container's own variables, in order, each seeing those before it."""
    known: dict[str, str] = {}
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        if "fieldRef" in source:
            known[variable["name"]] = field_value(pod, source["fieldRef"]["fieldPath"], address)
        else:
            known[variable["name"]] = expanded(variable.get("value", ""), known)
    return known


class Mounts:
    """The folders that stand for a container's volumes."""

    def __init__(self, root: Path, pod: Object, container: Object) -> None:
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        self._folders: dict[str, Path] = {}
        for mount in container.get("volumeMounts") or ():
            folder = _folder(root, pod, volumes.get(mount["name"], {}))
            if folder is not None:
                folder = folder / mount.get("subPath", "")
                folder.mkdir(parents=True, exist_ok=True)
                self._folders[mount["mountPath"].rstrip("/")] = folder

    def localised(self, text: str) -> str:
        """`text` with the mount path that it is, or begins with, replaced by the folder; the longest such path
        counts.
        """
        for path in sorted(self._folders, key=len, reverse=True):
            if text == path or text.startswith(path + "/"):
                return str(self._folders[path]) + text[len(path) :]
        return text


def _folder(root: Path, pod: Object, volume: Object) -> Path | None:
    if "persistentVolumeClaim" in volume:
        claim: str = volume["persistentVolumeClaim"]["claimName"]
        namespace: str = pod["metadata"]["namespace"]
        return root / "claims" / namespace / claim
    if "emptyDir" in volume:
        uid: str = pod["metadata"]["uid"]
        return root / "pods" / uid / "volumes" / str(volume["name"])
    return None
