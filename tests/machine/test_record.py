import pytest

from dispatch_kubeflow.machine import DispatchError, errors
from dispatch_kubeflow.machine.record import Recorded, record_start

REFUSED = {"ErrInvalid", "ErrUnsupported", "ErrRejected", "ErrStaleHold"}


@pytest.mark.parametrize("name", sorted(errors.sentinels()))
def test_each_sentinel_is_recorded_as_the_page_says(name):
    error = errors.sentinels()[name]("x", row="start.x", operation="start")
    assert record_start(error) is (Recorded.REFUSED if name in REFUSED else Recorded.UNKNOWN)


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), SystemExit(1), OSError(), BaseExceptionGroup("x", [ValueError()])]
)
def test_whatever_else_is_raised_leaves_the_outcome_unknown(error):
    assert record_start(error) is Recorded.UNKNOWN


def test_the_base_itself_leaves_the_outcome_unknown():
    assert record_start(DispatchError("x", row="x", operation="start")) is Recorded.UNKNOWN


def test_a_users_subclass_is_recorded_as_its_sentinel():
    class ErrMine(errors.ErrRejected):
        pass

    assert record_start(ErrMine("x", row="x", operation="start")) is Recorded.REFUSED


def test_an_exception_that_only_has_a_sentinels_name_is_not_one():
    assert record_start(type("ErrRejected", (Exception,), {})()) is Recorded.UNKNOWN
