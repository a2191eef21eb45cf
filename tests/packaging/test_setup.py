"""A fresh machine has Python under some name, an old one, or none: set-up finds it, or says what is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FINDER = Path(__file__).parents[2] / "requirements/python.sh"
OLD = "#!/bin/sh\nexit 1\n"  # as Python 3.10 answers whether it is new enough
WITHOUT_VENV = '#!/bin/sh\ncase "$2" in *venv*) exit 1 ;; *) exit 0 ;; esac\n'


@pytest.fixture
def find(tmp_path):
    """Runs the finder on a machine that has only these programs: a name, and a script or None for this Python."""

    def find(programs, *arguments):
        (tmp_path / "bash").symlink_to(shutil.which("bash"))
        for name, script in programs.items():
            if script is None:
                (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
            else:
                (tmp_path / name).write_text(script)
            (tmp_path / name).chmod(0o755)
        environment = {**os.environ, "PATH": str(tmp_path)}
        return subprocess.run([str(FINDER), *arguments], env=environment, capture_output=True, text=True, check=False)

    return find


@pytest.mark.parametrize("name", ["python3", "python3.11", "python3.12", "python3.13", "python"])
def test_python_is_found_under_each_of_its_names(find, tmp_path, name):
    assert find({name: None}).stdout == f"{tmp_path / name}\n"


def test_an_old_python3_is_passed_over_for_a_newer_one(find, tmp_path):
    assert find({"python3": OLD, "python3.12": None}).stdout == f"{tmp_path / 'python3.12'}\n"


def test_without_any_python_it_says_what_it_needs(find):
    done = find({})
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_an_old_python_alone_is_named(find):
    assert "older than 3.11, or does not run: python3" in find({"python3": OLD}).stderr


def test_a_python_without_venv_is_named_with_the_remedy(find):
    assert "install python3-venv" in find({"python3": WITHOUT_VENV}).stderr


def test_a_python_that_was_named_is_the_only_one_tried(find):
    done = find({"python3": None, "mine": OLD}, "mine")
    assert done.returncode == 1
    assert "tried: mine" in done.stderr
