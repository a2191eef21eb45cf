"""That cases expand as they say, that what is a run's own is hidden, and that a disagreement is never overlooked."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import programs
from .api import Answer
from .compare import compare
from .expand import BadCase, fill, load, load_all
from .normal import Normaliser, record


def test_a_text_that_is_only_a_variable_takes_its_value() -> None:
    assert fill({"a": "<x>", "b": "x=<x>"}, {"x": 7}) == {"a": 7, "b": "x=7"}


def test_a_variable_that_no_step_has_set_is_an_error() -> None:
    with pytest.raises(BadCase, match="<x>"):
        fill("<x>", {})


def test_generators_make_the_limits() -> None:
    assert fill({"$text": {"length": 5, "of": "ab"}}, {}) == "ababa"
    assert fill({"$items": {"count": 2, "of": {"name": "E<i>"}}}, {}) == [{"name": "E0"}, {"name": "E1"}]


def test_merge_lays_objects_over_each_other_and_null_takes_a_key_away() -> None:
    laid = {"$merge": ["<base>", {"a": {"b": None, "d": 2}}]}
    assert fill(laid, {"base": {"a": {"b": 1, "c": 1}}}) == {"a": {"c": 1, "d": 2}}


def test_a_case_id_used_twice_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("steps: [{case: a, request: {path: /}}, {case: a, request: {path: /}}]")
    with pytest.raises(BadCase, match=r"twice\.a"):
        load(path)


def test_there_are_at_least_four_hundred_cases() -> None:
    assert sum("case" in step.content for file in load_all() for step in file.steps) >= 400


def answer(body: str, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, body.encode())


def test_equal_uids_get_equal_placeholders() -> None:
    uids = ["0a0a0a0a-0000-0000-0000-000000000000", "0b0b0b0b-0000-0000-0000-000000000000"]
    text = Normaliser().text(f"{uids[0]} {uids[1]} {uids[0]}")
    assert text == "<uid-1> <uid-2> <uid-1>"


def test_names_times_and_versions_are_hidden_and_limits_are_not() -> None:
    normaliser = Normaliser()
    normaliser.name("cases-abc123", "ns")
    said = "cases-abc123 at 2026-11-29T23:29:49Z: too old resource version: 12 (345); at most 253 characters"
    assert (
        normaliser.message(said)
        == "<ns> at <time>: too old resource version: <version> (<version>); at most 253 characters"
    )


def test_a_body_that_is_not_json_is_kept_as_text() -> None:
    assert record(answer("404 page not found\n", 404), [], Normaliser())["body"] == "404 page not found\n"


def test_only_the_shown_fields_of_an_object_are_kept() -> None:
    kept = record(answer('{"kind": "Pod", "spec": {"a": 1, "b": 2}}'), ["spec.a", "spec.c"], Normaliser())
    assert kept["fields"] == {"spec.a": 1}


@pytest.mark.parametrize(
    ("other", "path"),
    [
        ({"status": 422, "items": [1]}, "status"),
        ({"status": 409, "items": [1, 2]}, "items"),
        ({"status": 409, "items": [2]}, "items.0"),
        ({"status": 409}, "items"),
        ({"status": 409, "items": [1], "more": 1}, "more"),
        ({"status": 409, "items": [1], "message": "x"}, "message"),
    ],
)
def test_every_difference_is_a_disagreement(other: dict[str, object], path: str) -> None:
    (found,) = compare({"c": {"status": 409, "items": [1]}}, {"c": other})
    assert found.path == path


def test_a_case_that_was_not_performed_is_a_disagreement() -> None:
    assert [each.case for each in compare({"c": {"status": 200}}, {})] == ["c"]


def test_without_go_and_with_an_empty_cache_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(programs.CannotBuild, match=r"Install Go 1\.26 or newer"):
        programs.build_missing()
