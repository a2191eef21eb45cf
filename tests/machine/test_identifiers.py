import pytest

from dispatch_kubeflow.machine import Context, ErrInvalid, inputs
from dispatch_kubeflow.machine.rules.compile import load_rulebook
from dispatch_kubeflow.machine.values import (
    Stream,
    check_attempt,
    check_context,
    check_instance,
    check_job_id,
    check_stream,
    check_tail,
    is_dns_label,
    is_dns_subdomain,
)


def refusal(check, value, **more):
    with pytest.raises(ErrInvalid) as error:
        check(value, **{"operation": "stop_job", **more})
    return error.value


@pytest.mark.parametrize("job_id", ["a", "resnet-42", "a" * 39, "a--b"])
def test_a_good_job_id_is_given_back(job_id):
    assert check_job_id(job_id, operation="find") == job_id


@pytest.mark.parametrize("job_id", ["", "A", "1a", "-a", "a-", "a.b", "a_b", "a" * 40, "a\n", "ä", None, 3, b"a"])
def test_a_bad_job_id_is_refused_with_the_rule(job_id):
    error = refusal(check_job_id, job_id)
    assert error.row == "input.job-id"
    assert repr(job_id) in str(error)
    assert "of 1 to 39 characters" in error.details["rule"]


@pytest.mark.parametrize("attempt", [1, 999_999])
def test_a_good_attempt_is_given_back(attempt):
    assert check_attempt(attempt, operation="start") == attempt


@pytest.mark.parametrize("attempt", [0, -1, 1_000_000, True, 1.0, "1", None])
def test_a_bad_attempt_is_refused_with_the_rule(attempt):
    error = refusal(check_attempt, attempt, operation="start")
    assert (error.row, error.details["value"]) == ("input.attempt", repr(attempt))
    assert "from 1 to 999,999" in str(error)


@pytest.mark.parametrize("instance", [1, 2**63 - 1])
def test_a_good_instance_is_given_back(instance):
    assert check_instance(instance, operation="hold") == instance


def test_instance_zero_is_a_row_of_its_own():
    assert refusal(check_instance, 0, operation="hold").row == "input.instance-zero"


@pytest.mark.parametrize("instance", [-1, 2**63, True, False, 0.0, "1", None])
def test_a_bad_instance_is_refused(instance):
    error = refusal(check_instance, instance, operation="release")
    assert (error.row, error.details["value"]) == ("input.instance-range", repr(instance))


@pytest.mark.parametrize("tail", [None, 0, 10])
def test_a_good_tail_is_given_back(tail):
    assert check_tail(tail, operation="output") == tail


@pytest.mark.parametrize("tail", [-1, True, "1", 1.5])
def test_a_bad_tail_is_refused(tail):
    assert refusal(check_tail, tail, operation="output").row == "input.tail"


@pytest.mark.parametrize("stream", [Stream.STDERR, "stderr"])
def test_a_stream_is_taken_by_itself_or_by_its_value(stream):
    assert check_stream(stream, operation="output") is Stream.STDERR


@pytest.mark.parametrize("stream", ["STDERR", None, 1])
def test_a_bad_stream_is_refused(stream):
    assert refusal(check_stream, stream, operation="output").row == "input.stream"


def test_a_hold_family_call_needs_a_deadline():
    error = refusal(check_context, Context.background(), operation="hold")
    assert (error.row, error.details) == ("input.hold-without-deadline", {})


@pytest.mark.parametrize("operation", ["open", "hold", "release"])
def test_a_hold_family_call_with_a_deadline_is_fine(operation):
    ctx = Context.with_timeout(10)
    assert check_context(ctx, operation=operation) is ctx


def test_another_call_needs_no_deadline():
    ctx = Context.background()
    assert check_context(ctx, operation="stop") is ctx


@pytest.mark.parametrize("ctx", [None, 3.0])
def test_what_is_no_context_is_refused(ctx):
    assert refusal(check_context, ctx, operation="find").row == "input.context"


def test_the_forms_of_names():
    assert is_dns_label("1a")
    assert not is_dns_label("a" * 64)
    assert not is_dns_label("a.b")
    assert is_dns_subdomain("a.b-c.1")
    assert not is_dns_subdomain("a..b")
    assert not is_dns_subdomain("a" * 254)


def test_a_value_whose_repr_fails_is_told_by_its_type():
    class Sly:
        def __repr__(self) -> str:
            raise RuntimeError

    assert refusal(check_attempt, Sly(), operation="start").details["value"] == "<Sly whose repr raised RuntimeError>"


def test_a_long_value_is_cut():
    assert refusal(check_job_id, "a" * 5000).details["value"].endswith("… (5002 characters)")


def test_a_wrong_input_that_the_tables_would_let_pass_still_does_not_pass(monkeypatch, tables):
    tables.replace("input.yaml", "sentinel: ErrInvalid", "sentinel: none", after="id: input.attempt")
    book = load_rulebook(tables.path)
    monkeypatch.setattr(inputs, "rulebook", lambda: book)
    with pytest.raises(AssertionError, match=r"input\.attempt lets a wrong input pass"):
        check_attempt(0, operation="start")
