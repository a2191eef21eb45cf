"""Hypothesis' own way through the same world."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import Machine

QUIET = settings(
    max_examples=40,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


@pytest.mark.timeout(300)
def test_whatever_everybody_does_no_call_lies_and_nothing_runs_twice() -> None:
    run_state_machine_as_test(Machine, settings=QUIET)
