"""Builds the real programs, because no container runtime and no released binaries are taken for granted.

Each program is a `tool` of a committed go.mod, so go.sum pins every byte that is compiled. What is built, and the
manifests that belong to it, is kept in a cache and named by a digest of those files: with a warm cache no Go is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
KUBERNETES_VERSION = "1.36.3"
VERSIONS = {
    "kubernetes": KUBERNETES_VERSION,
    "trainer": "2.3.0",
    "jobset": "0.12.0",
    "kueue": "0.19.2",
    "kwok": "0.8.0",
}
_VERSION_PACKAGE = "k8s.io/component-base/version"
_KUBERNETES_LINK = (
    f"-X {_VERSION_PACKAGE}.gitVersion=v{KUBERNETES_VERSION}",
    f"-X {_VERSION_PACKAGE}.gitMajor=1",
    f"-X {_VERSION_PACKAGE}.gitMinor=36",
)


class CannotBuild(Exception):
    """A program is missing and cannot be built here; the text says what to do."""


@dataclass(frozen=True)
class Change:
    """One text of a program's main file that has to be another, for what it says cannot be configured."""

    file: str
    text: str
    becomes: str


@dataclass(frozen=True)
class Program:
    """One executable of the control plane and where its source is named."""

    name: str
    folder: str
    package: str
    link: tuple[str, ...] = ()
    manifests: tuple[str, ...] = field(default=(), kw_only=True)
    module: str = field(default="", kw_only=True)
    change: Change | None = field(default=None, kw_only=True)

    @property
    def go_mod_folder(self) -> Path:
        return HERE / "programs" / self.folder

    def digest(self) -> str:
        """What names the built program in the cache: a change of anything that is compiled changes it."""
        digest = hashlib.sha256()
        for name in ("go.mod", "go.sum"):
            digest.update((self.go_mod_folder / name).read_bytes())
        changed = () if self.change is None else (self.change.file, self.change.text, self.change.becomes)
        digest.update("\0".join((self.package, *self.link, *self.manifests, *changed)).encode())
        return digest.hexdigest()[:16]


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "kubernetes", "go.etcd.io/etcd/server/v3"),
        Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", _KUBERNETES_LINK),
        Program(
            "kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", _KUBERNETES_LINK
        ),
        Program("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", _KUBERNETES_LINK),
        Program(
            "trainer-controller-manager",
            "trainer",
            "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
            module="github.com/kubeflow/trainer/v2",
            manifests=("manifests/base/crds", "manifests/base/webhook", "manifests/base/runtimes"),
        ),
        Program(
            "jobset",
            "jobset",
            "sigs.k8s.io/jobset",
            module="sigs.k8s.io/jobset",
            manifests=("config/components/crd/bases", "config/components/webhook"),
        ),
        Program(
            "kwok",
            "kwok",
            "sigs.k8s.io/kwok/cmd/kwok",
            module="sigs.k8s.io/kwok",
            manifests=("kustomize/crd/bases",),
        ),
    )
}
EXTRAS = {
    "kueue": Program(
        "kueue",
        "kueue",
        "sigs.k8s.io/kueue/cmd/kueue",
        _KUBERNETES_LINK,
        module="sigs.k8s.io/kueue",
        manifests=("config/components/crd/bases", "config/components/webhook"),
        # With certificates of others, which ours are, the metrics' own are looked for in one place of the machine.
        change=Change(
            "cmd/kueue/main.go", '"/etc/kueue/metrics/certs"', 'filepath.Join(os.TempDir(), "metrics-certs")'
        ),
    ),
}
"""What a control plane has only if it is asked for."""
CLIENTS = {"kubectl": Program("kubectl", "kubectl", "k8s.io/kubernetes/cmd/kubectl", _KUBERNETES_LINK)}
"""What is built beside the control plane and not a part of it."""
_EVERY = PROGRAMS | EXTRAS | CLIENTS


def say(text: str) -> None:
    """Writes a line to whoever watches."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def cache_folder() -> Path:
    """Where built programs are kept: `$XDG_CACHE_HOME/dispatch-kubeflow/real`, else `.cache/real` of the checkout."""
    shared = os.environ.get("XDG_CACHE_HOME")
    return Path(shared) / "dispatch-kubeflow" / "real" if shared else CHECKOUT / ".cache" / "real"


def built(program: Program) -> Path:
    """The folder of a built program: `<name>` is the executable, `manifests/` what it brings along."""
    return cache_folder() / "built" / f"{program.name}-{program.digest()}"


def executable(name: str) -> Path:
    """The executable of a program that `build_missing` has built."""
    return built(_EVERY[name]) / name


def manifests(name: str) -> Path:
    """The folder that holds a program's manifests, under the paths they have in their own project."""
    return built(_EVERY[name]) / "manifests"


def missing() -> list[Program]:
    """The programs that are not in the cache yet."""
    return [program for program in _EVERY.values() if not built(program).is_dir()]


def build_missing(say: Callable[[str], None] = say) -> dict[str, float]:
    """Builds, one after another, what the cache lacks; returns the seconds each took."""
    if not missing():
        return {}
    with _lock():
        wanted = missing()
        if wanted:
            _require_go(wanted)
        return {program.name: _build(program, say) for program in wanted}


def _require_go(wanted: list[Program]) -> None:
    if shutil.which("go") is None:
        names = ", ".join(program.name for program in wanted)
        raise CannotBuild(
            f"Go is not installed, and {names} must be built with it. Install Go 1.26 or newer so that `go` is on "
            "PATH, or set XDG_CACHE_HOME to a cache in which they are built already."
        )


@contextmanager
def _lock() -> Iterator[None]:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go(program: Program, *arguments: str) -> str:
    """Runs go at the lowest priority, so that a build never starves what else the machine does."""
    command = ["nice", "-n", "19", "go", *arguments]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run(
        command, cwd=program.go_mod_folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CannotBuild(f"{program.name} could not be built: {' '.join(command)}\n{done.stderr.strip()}")
    return done.stdout.strip()


def _build(program: Program, say: Callable[[str], None]) -> float:
    say(f"building {program.name} (minutes, the first time)")
    began = time.monotonic()
    place = built(program)
    unfinished = place.with_name(place.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    flags = " ".join(("-s", "-w", *program.link))
    package = [program.package] if program.change is None else _changed(program, program.change, unfinished)
    _go(program, "build", "-ldflags", flags, "-o", str(unfinished / program.name), *package)
    if program.manifests:
        source = _source(program)
        for relative in program.manifests:
            shutil.copytree(source / relative, unfinished / "manifests" / relative, copy_function=shutil.copyfile)
        _make_writable(unfinished / "manifests")
    unfinished.rename(place)
    taken = time.monotonic() - began
    say(f"built {program.name} in {taken:.0f} s")
    return taken


def _source(program: Program) -> Path:
    """Where the files of a program's own module are."""
    return Path(_go(program, "list", "-m", "-f", "{{.Dir}}", program.module))


def _changed(program: Program, change: Change, folder: Path) -> list[str]:
    """What makes go compile the changed main file, as if it stood beside the go.mod; nothing is written there."""
    original = (_source(program) / change.file).read_text()
    if original.count(change.text) != 1:
        raise CannotBuild(f"{change.file} does not say {change.text} once: its change must be thought over")
    changed, overlay = folder / "main.go", folder / "overlay.json"
    changed.write_text(original.replace(change.text, change.becomes))
    seen_as = program.go_mod_folder / "changed" / "main.go"
    overlay.write_text(json.dumps({"Replace": {str(seen_as): str(changed)}}))
    return ["-overlay", str(overlay), "./changed"]


def _make_writable(folder: Path) -> None:
    """Module folders are read-only, and a cache must be easy to throw away."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
