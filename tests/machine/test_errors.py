import copy
import pickle
import threading

import pytest

from dispatch_kubeflow.machine import CauseSummary, DispatchError, ErrAdmissionDenied, ErrRejected, errors


class Awkward(Exception):
    """Pickles, and cannot be unpickled: as many libraries' exceptions are."""

    def __init__(self, status: int, *, body: str) -> None:
        super().__init__(f"status {status}: {body}")


def an_error(cause: BaseException | None = None, **details: object) -> ErrRejected:
    error = ErrRejected(
        "open: the TrainJob changed.", row="request.conflict", operation="open", subject="job-1", details=details
    )
    error.__cause__ = cause
    return error


def test_the_sentinels_are_those_of_the_contract_with_their_parents():
    parents = {name: each.__bases__[0].__name__ for name, each in errors.sentinels().items()}
    assert parents == {
        "ErrInvalid": "DispatchError",
        "ErrUnsupported": "DispatchError",
        "ErrReadOnly": "DispatchError",
        "ErrUnauthorized": "DispatchError",
        "ErrAdmissionDenied": "ErrUnauthorized",
        "ErrNotFound": "DispatchError",
        "ErrRejected": "DispatchError",
        "ErrStaleHold": "ErrRejected",
        "ErrUnreachable": "DispatchError",
        "ErrPodsRemain": "ErrUnreachable",
        "ErrOutcomeUnknown": "DispatchError",
    }


def test_each_sentinel_knows_its_own_name():
    assert all(each.sentinel == name for name, each in errors.sentinels().items())
    assert an_error().sentinel == "ErrRejected"


def test_a_users_subclass_is_no_sentinel():
    class ErrMine(ErrAdmissionDenied):
        pass

    assert "ErrMine" not in errors.sentinels()


def test_an_error_says_its_message_and_shows_its_row():
    error = an_error(status=409)
    assert str(error) == "open: the TrainJob changed."
    assert repr(error) == "ErrRejected(request.conflict: open: the TrainJob changed.)"


def test_details_are_read_only():
    with pytest.raises(TypeError):
        an_error(status=409).details["status"] = 1


def duplicates(error: DispatchError) -> list[DispatchError]:
    return [copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))]


def test_an_error_survives_copying_and_pickling():
    error = an_error(ValueError("beneath"), status=409, left=("a", "b"))
    error.add_note("seen twice")
    for twin in duplicates(error):
        assert type(twin) is ErrRejected
        assert (twin.row, twin.operation, twin.subject, str(twin)) == ("request.conflict", "open", "job-1", str(error))
        assert twin.details == {"status": 409, "left": ("a", "b")}
        assert type(twin.__cause__) is ValueError
        assert twin.__cause__.args == ("beneath",)
        assert twin.__notes__ == ["seen twice"]


def test_an_error_without_a_cause_has_none_after_pickling():
    assert all(twin.__cause__ is None for twin in duplicates(an_error()))


def test_the_chain_beneath_a_cause_is_kept():
    top = ConnectionError("reset")
    top.__cause__ = TimeoutError("slow")
    twin = pickle.loads(pickle.dumps(an_error(top)))
    assert type(twin.__cause__.__cause__) is TimeoutError


def test_a_cause_of_our_own_keeps_its_own_cause():
    twin = pickle.loads(pickle.dumps(an_error(an_error(KeyError("k")))))
    assert type(twin.__cause__) is ErrRejected
    assert type(twin.__cause__.__cause__) is KeyError


def test_a_chain_that_bites_its_tail_is_followed_once():
    cause = ValueError("round")
    cause.__cause__ = cause
    assert type(pickle.loads(pickle.dumps(an_error(cause))).__cause__) is ValueError


@pytest.mark.parametrize("awkward", [Awkward(409, body="x"), type("Local", (Exception,), {})("status 409: x")])
def test_a_cause_that_does_not_pickle_becomes_its_summary(awkward):
    cause = pickle.loads(pickle.dumps(an_error(awkward))).__cause__
    assert type(cause) is CauseSummary
    assert (cause.type, cause.text) == (type(awkward).__qualname__, "status 409: x")
    assert str(cause) == f"{cause.type}: status 409: x"


def test_a_summary_pickles():
    assert pickle.loads(pickle.dumps(CauseSummary("A", "b"))).text == "b"


def test_a_detail_that_does_not_pickle_becomes_its_words():
    twin = pickle.loads(pickle.dumps(an_error(lock=threading.Lock())))
    assert "lock" in twin.details["lock"]


def test_a_copy_keeps_the_very_cause():
    cause = Awkward(409, body="x")
    assert copy.copy(an_error(cause)).__cause__ is cause
