"""What users install is the wheel, not the checkout: it must be whole, and work where there is no checkout."""

import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = {"machine": "machine", "tables": "tables", "backend": "backend", "examples": "docs/examples"}


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    for folder in ROOMS.values():
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source / file)
    return source


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=out)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A fresh environment with the wheel in it, and this environment's other packages in its reach."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    run(*pip, cwd=folder)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    # The path alone: .pth files there, such as that of the editable install, are not read.
    (Path(site) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_installed_command_proves_its_own_tables(installed, tmp_path):
    out = run(installed / "bin/dispatch-kubeflow", "tables", "check", cwd=tmp_path)
    assert "every case has one rule" in out


def test_the_installed_package_is_not_the_checkout(installed, tmp_path):
    program = "import dispatch_kubeflow.machine as room; print(room.__file__)"
    assert str(installed) in run(installed / "bin/python", "-c", program, cwd=tmp_path)


def test_every_room_can_be_imported(installed, tmp_path):
    program = """
from dispatch_kubeflow.backend import JobSpec, ObjectRef, Settings, Stream, factory
from dispatch_kubeflow.backend.embedded import Cluster
from dispatch_kubeflow.backend.operations.backend import Backend
from dispatch_kubeflow.machine import Context, DispatchError
from dispatch_kubeflow.machine.rules import rulebook
"""
    run(installed / "bin/python", "-W", "error", "-c", program, cwd=tmp_path)


def test_the_shipped_tables_are_compiled_and_not_stale(installed, tmp_path):
    program = """
import sys
from dispatch_kubeflow.machine.rules import rulebook
rulebook()
assert "ruamel.yaml" not in sys.modules, "the tables were read from YAML"
"""
    run(installed / "bin/python", "-c", program, cwd=tmp_path)


def test_the_example_job_can_be_read(installed, tmp_path):
    program = "from dispatch_kubeflow.backend.cli.demo import example; print(example().nodes)"
    assert run(installed / "bin/python", "-c", program, cwd=tmp_path) == "2\n"


def shipped(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_has_every_file_of_its_rooms_and_nothing_else(wheel, source):
    kept = {
        f"dispatch_kubeflow/{room}/{path.relative_to(source / folder).as_posix()}"
        for room, folder in ROOMS.items()
        for path in (source / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped(wheel) == kept


@pytest.mark.parametrize("room", ["machine", "tables", "backend"])
def test_each_room_says_that_it_is_typed(wheel, room):
    assert f"dispatch_kubeflow/{room}/py.typed" in shipped(wheel)


@pytest.fixture
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_license_is_named_by_its_spdx_expression_and_included(wheel, metadata):
    assert metadata["License-Expression"] == "Apache-2.0"
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist())


def test_the_wheel_asks_for_what_the_project_does(metadata):
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra")) == {"admission", "cli", "embedded", "telemetry"}
    plain = [each for each in metadata.get_all("Requires-Dist") if "extra ==" not in each]
    assert len(plain) == len(PROJECT["project"]["dependencies"])
