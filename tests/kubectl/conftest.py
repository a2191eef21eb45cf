"""The real kubectl, built from its module as the control plane's programs are, on an embedded cluster."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from dispatch_kubeflow.backend.embedded import Cluster
from tests.both.kubelet import AnnotatedKubelet
from tests.real import programs

NAMESPACE = "team-a"


@dataclass(frozen=True)
class Kubectl:
    """kubectl as one user, in the namespace `team-a`."""

    program: pathlib.Path
    kubeconfig: pathlib.Path
    folder: pathlib.Path

    def run(self, *arguments: str, given: Any = None, code: int = 0) -> str:
        """What it prints; a test fails if it ends with another code."""
        done = subprocess.run(
            self._command(*arguments), input=None if given is None else json.dumps(given), capture_output=True,
            text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def rows(self, *arguments: str) -> list[list[str]]:
        """A table's lines, split at the gaps between columns."""
        lines = self.run(*arguments).splitlines()
        starts = [found.start() for found in re.finditer(r"\S+(?: \S+)*", lines[0])]
        ends = [*starts[1:], None]
        return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Leaves it running; whoever starts it ends it."""
        return subprocess.Popen(self._command(*arguments), stdout=subprocess.PIPE, text=True)

    def _command(self, *arguments: str) -> list[str]:
        own = ["--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.folder / "cache"), "-n", NAMESPACE]
        return [str(self.program), *own, *arguments]


@pytest.fixture(scope="session")
def program() -> pathlib.Path:
    programs.build_missing()
    return programs.executable("kubectl")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet=AnnotatedKubelet()) as made:
        yield made
        assert list(made.failures) == []


@pytest.fixture
def kubectl(program: pathlib.Path, cluster: Cluster) -> Iterator[Kubectl]:
    """The administrator's."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        yield Kubectl(program, cluster.kubeconfig(folder / "kubeconfig"), folder)
