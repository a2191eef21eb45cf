"""The custom resource definitions and runtimes of released projects, as data; SOURCES.md says where they come from.

They are JSON, compressed, because YAML of their size takes seconds to read.
"""

from __future__ import annotations

import gzip
from importlib import resources
from typing import Any

import msgspec

Object = dict[str, Any]


def definitions(release: str) -> list[Object]:
    """The CustomResourceDefinitions of a release, e.g. `jobset-v0.12.0`, in the order of their names."""
    folder = resources.files(__name__) / release
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".json.gz"))
    return [read(release, name) for name in names]


def runtimes(release: str) -> list[Object]:
    """The ClusterTrainingRuntimes a release installs."""
    folder = resources.files(__name__) / release / "runtimes"
    names = sorted(item.name for item in folder.iterdir())
    return [read(f"{release}/runtimes", name) for name in names]


def read(folder: str, name: str) -> Object:
    """One file of the data."""
    packed = (resources.files(__name__) / folder / name).read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=dict[str, Any])
