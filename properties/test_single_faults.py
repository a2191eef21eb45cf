"""Every single fault at every request of every operation: no row but the one the tables have, and no lie."""

from __future__ import annotations

import pytest

from . import exhaustive, truth
from .expect import forget_created
from .wire import Fault

BY_NAME = {scene.name: scene for scene in exhaustive.SCENES}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", BY_NAME)
def test_every_single_fault_gives_its_row_and_the_truth(name: str) -> None:
    matrix = truth.Matrix()
    for faults in exhaustive.singles(BY_NAME[name]):
        exhaustive.check(BY_NAME[name], faults, matrix)
    forget_created()
    assert matrix.counts


# What the exhaustive faults found, when they were new.


def test_a_read_back_answered_that_it_exists_refuses_no_attempt_that_stands_gated() -> None:
    outcome = exhaustive.check(BY_NAME["start"], {6: Fault("answer", 409, "AlreadyExists")}, truth.Matrix())
    assert outcome.row == "start.read-back-unanswered"


def test_a_stop_job_that_is_cancelled_names_the_snapshot_that_is_left() -> None:
    scene = BY_NAME["stop_job"]
    rounds = exhaustive.requests(scene)
    for place in range(5, rounds):
        outcome = exhaustive.check(scene, {place: Fault("cancel-dial")}, truth.Matrix())
        if outcome.row == "stop.context-ended":
            assert outcome.error is not None
            assert outcome.error.details["left"]


def test_a_list_with_a_damaged_byte_in_what_is_not_kept_is_no_answer() -> None:
    outcome = exhaustive.check(BY_NAME["find"], {2: Fault("garbled", share=0.5)}, truth.Matrix())
    assert outcome.row == "request.no-answer"
