"""What people see on a terminal, and what scripts get in a pipe."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from dispatch_kubeflow.backend.cli.terminal import Terminal, plain
from dispatch_kubeflow.backend.objects.found import Capability

from .conftest import ref


@pytest.fixture
def live():
    terminal = Terminal()
    terminal.live = True
    return terminal


def test_in_a_pipe_the_jobs_lines_go_to_standard_output_and_the_telling_to_standard_error(capfd):
    terminal = Terminal()
    with terminal.progress():
        terminal.tell("opened")
        terminal.line(b"step 1\n")
    assert capfd.readouterr() == ("step 1\n", "opened\n")


def test_a_state_is_told_once(capfd):
    terminal = Terminal()
    for state in ("gated", "gated", "opened"):
        terminal.tell(state)
    assert capfd.readouterr().err == "gated\nopened\n"


def test_on_a_terminal_lines_are_written_above_the_state(capfd, live):
    with live.progress():
        live.tell("opened")
        live.line(b"step 1")
    assert capfd.readouterr().err.splitlines()[:2] == ["opened", "step 1"]


def test_after_the_progress_lines_go_to_standard_output_again(capfd, live):
    with live.progress():
        pass
    live.line(b"step 1")
    assert capfd.readouterr().out == "step 1\n"


def test_text_in_brackets_is_not_taken_for_markup(capfd):
    Terminal().say("[bold]no[/bold]")
    assert capfd.readouterr().err == "[bold]no[/bold]\n"


def test_a_page_is_dressed(capfd, live):
    live.dressed("# Title")
    assert "Title" in capfd.readouterr().out


@dataclass
class Point:
    x: int
    where: Path


@pytest.mark.parametrize(
    ("value", "json_"),
    [
        (ref("fit-1"), "kubeflow://west/team-a/TrainJob/fit-1?uid=u1"),
        (Capability("yes", "it may"), {"answer": "yes", "reason": "it may"}),
        (b"\xff", "\ufffd"),
        (Point(1, Path("a")), {"x": 1, "where": "a"}),
        ((1, None, True, 0.5), [1, None, True, 0.5]),
        ({1: ()}, {"1": []}),
    ],
)
def test_every_value_has_a_form_in_json(value, json_):
    assert plain(value) == json_
    json.dumps(plain(value))
