"""Makes the data file of Kubernetes' own kinds again from the OpenAPI and protobuf documents in Kubernetes' repository.

    python -m dispatch_kubeflow.backend.embedded.crds.remake_structs REPOSITORY TARGET

Of the schemas in `api/openapi-spec/v3` those are kept that the kinds below reach, without their descriptions and
without the defaults of Go's zero values, but that of a struct, for it says that the struct is always written. To each
property comes the number it has in protobuf (`x-number`), and to a struct what it holds inline there (`x-inline`).
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

DOCUMENTS = {
    "api__v1_openapi.json": (
        "io.k8s.api.core.v1",
        ("ConfigMap", "Event", "Namespace", "Node", "Pod", "Secret", "Service", "ServiceAccount"),
    ),
    "apis__authorization.k8s.io__v1_openapi.json": (
        "io.k8s.api.authorization.v1",
        ("LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"),
    ),
    "apis__authentication.k8s.io__v1_openapi.json": ("io.k8s.api.authentication.v1", ("SelfSubjectReview",)),
    "apis__batch__v1_openapi.json": ("io.k8s.api.batch.v1", ("Job",)),
    "apis__coordination.k8s.io__v1_openapi.json": ("io.k8s.api.coordination.v1", ("Lease",)),
    "apis__rbac.authorization.k8s.io__v1_openapi.json": (
        "io.k8s.api.rbac.v1",
        ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    ),
    "apis__scheduling.k8s.io__v1_openapi.json": ("io.k8s.api.scheduling.v1", ("PriorityClass",)),
}
_LEFT_OUT = frozenset({"default", "description"})
_ZERO: tuple[Any, ...] = ("", 0, False, [])
_MESSAGE = re.compile(r"^message (\w+) \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (?:optional |repeated )?(map<.*?>|[\w.]+) (\w+) = (\d+);$", re.MULTILINE)


def remake(repository: Path) -> bytes:
    """The data file's bytes, the same each time."""
    kept: dict[str, Any] = {}
    for name, (package, kinds) in DOCUMENTS.items():
        document = repository / "api" / "openapi-spec" / "v3" / name
        schemas = json.loads(document.read_text())["components"]["schemas"]
        for kind in kinds:
            _keep(f"{package}.{kind}", schemas, kept)
    for component in list(kept):
        _number(component, kept, repository / "staging" / "src" / "k8s.io")
    text = json.dumps(kept, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _keep(name: str, schemas: Mapping[str, Any], kept: dict[str, Any]) -> None:
    if name in kept:
        return
    kept[name] = _without_words(schemas[name])
    for reference in _references(kept[name]):
        _keep(reference, schemas, kept)


def _number(component: str, kept: dict[str, Any], sources: Path) -> None:
    """Give a component's properties their numbers."""
    package, _, name = component.rpartition(".")
    properties = kept[component].get("properties")
    if properties is None:
        return
    for kind, field, number in _messages(sources.joinpath(*package.split(".")[2:], "generated.proto"))[name]:
        if field in properties:
            properties[field]["x-number"] = int(number)
            continue
        held = kind if "." in kind else f"{package}.{kind}"
        inlined = held.removeprefix(".").removeprefix("k8s.")
        kept[component].setdefault("x-inline", {})[number] = inlined
        # What is inline has no component of its own in the documents, where its properties are the holder's.
        inner = _messages(sources.joinpath(*inlined.rpartition(".")[0].split(".")[2:], "generated.proto"))
        kept.setdefault(
            inlined,
            {
                "properties": {
                    each: {**properties[each], "x-number": int(place)}
                    for _, each, place in inner[inlined.rpartition(".")[2]]
                    if each in properties
                }
            },
        )


@lru_cache(maxsize=16)
def _messages(path: Path) -> dict[str, list[tuple[str, str, str]]]:
    """Of each message of a document: the type, name and number of its fields."""
    return {name: _FIELD.findall(body) for name, body in _MESSAGE.findall(path.read_text())}


def _without_words(schema: Any, *, named: bool = False) -> Any:
    """The schema without descriptions; `named`: a map of properties, which may well be called `description`."""
    if isinstance(schema, list):
        return [_without_words(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_words(value, named=key == "properties" and not named)
        for key, value in schema.items()
        if named or key not in _LEFT_OUT or (key == "default" and value not in _ZERO)
    }


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.rpartition("/")[2]
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _references(item)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(remake(Path(sys.argv[1])))
