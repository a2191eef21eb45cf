import json
import shutil
import subprocess
import sys

import pytest

from dispatch_kubeflow.machine.rules import TablesError, prove
from dispatch_kubeflow.machine.rules import compile as compiling
from dispatch_kubeflow.machine.rules.compile import (
    COMPILED,
    compiled_bytes,
    fingerprint,
    load_rulebook,
    write_compiled,
)
from dispatch_kubeflow.tables import directory


def test_the_compiled_file_is_what_the_tables_give():
    assert COMPILED.read_bytes() == compiled_bytes(directory()), "write it anew: rules.compile.write_compiled"


def test_the_same_tables_give_the_same_bytes(tables, tmp_path):
    written = write_compiled(tables.path, tmp_path / "compiled.json")
    assert (tmp_path / "compiled.json").read_bytes() == written == compiled_bytes(directory())


@pytest.fixture
def no_yaml(monkeypatch):
    def refuse(_directory):
        raise AssertionError("the YAML was read")

    monkeypatch.setattr(prove, "proved", refuse)


def test_tables_that_the_compiled_file_was_made_from_are_not_read_again(tables, no_yaml):
    assert load_rulebook(tables.path, COMPILED).families


def test_the_compiled_form_gives_the_very_tables(tables):
    from_compiled, from_yaml = load_rulebook(tables.path, COMPILED), load_rulebook(tables.path)
    assert from_compiled.tables == from_yaml.tables
    assert from_compiled._asked == from_yaml._asked


def test_edited_tables_are_read_anew_and_never_stale(tables):
    tables.replace("request.yaml", "changed since it was read", "is another now")
    assert "is another now" in load_rulebook(tables.path, COMPILED).tables.rule("request.conflict").message


def test_edited_tables_that_are_wrong_do_not_load(tables):
    tables.remove_rule("request.yaml", "request.conflict")
    with pytest.raises(TablesError):
        load_rulebook(tables.path, COMPILED)


def test_tables_load_without_a_compiled_file(small, tmp_path):
    assert load_rulebook(small.path, tmp_path / "none.json").families


def test_a_compiled_file_of_another_form_is_void(tables, monkeypatch):
    before = fingerprint(tables.path)
    monkeypatch.setattr(compiling, "FORMAT", compiling.FORMAT + 1)
    assert fingerprint(tables.path) != before


@pytest.mark.parametrize(
    "file", ["request.yaml", "lifecycles/trainjob.yaml", "page/rows.yaml", "page/error-mapping.txt"]
)
def test_every_source_is_part_of_the_fingerprint(tables, file):
    before = fingerprint(tables.path)
    tables.write(file, tables.text(file) + "\n")
    assert fingerprint(tables.path) != before


def test_a_renamed_file_changes_the_fingerprint(tables):
    before = fingerprint(tables.path)
    shutil.move(tables.path / "request.yaml", tables.path / "requests.yaml")
    assert fingerprint(tables.path) != before


def test_the_compiled_file_is_plain_json():
    assert set(json.loads(COMPILED.read_text(encoding="utf-8"))) == {
        "made_from",
        "vocabulary",
        "families",
        "lifecycles",
        "page_rows",
        "graphs",
    }


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize("slow", ["kubernetes", "ruamel", "transitions", "jsonschema", "urllib3", "msgspec"])
def test_importing_and_deciding_bring_nothing_slow(slow):
    code = (
        "import sys, dispatch_kubeflow.machine.values; from dispatch_kubeflow.machine.rules import rulebook; "
        "rulebook().decide('backend', operation='open', life='closed'); "
        f"print(any(name.split('.')[0] == {slow!r} for name in sys.modules))"
    )
    assert run(code) == "False"


def test_importing_is_quick():
    # The bound is 50 ms on a quiet machine (benchmarks); here it only catches what is slower by far.
    code = "import time; t = time.perf_counter(); import dispatch_kubeflow.machine; print(time.perf_counter() - t)"
    assert min(float(run(code)) for _ in range(3)) < 0.25
