"""Makes the data files again from the projects' own YAML, so that nobody has to trust that they are unchanged.

    python -m dispatch_kubeflow.backend.embedded.crds.remake ORIGINALS [TARGET]

ORIGINALS holds one folder a release, named as SOURCES.md names them, with the YAML files of that release.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from ruamel.yaml import YAML

RELEASES = ("kubeflow-trainer-v2.3.0", "jobset-v0.12.0", "kueue-v0.19.2")


def remake(originals: Path, target: Path) -> Iterator[Path]:
    """Write every file; gives each path as it is written."""
    for release in RELEASES:
        for source in sorted((originals / release).rglob("*.yaml")):
            made = (target / source.relative_to(originals)).with_suffix(".json.gz")
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(packed(source))
            yield made


def packed(source: Path) -> bytes:
    """One YAML document as compact JSON, compressed without a time or a name, so that it is always the same bytes."""
    document = YAML(typ="safe", pure=True).load(source.read_text())
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


if __name__ == "__main__":
    for path in remake(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent):
        sys.stdout.write(f"{path}\n")
