"""The job's lines, across cuts and across pods: each once, none lost."""

import threading

import pytest

from dispatch_kubeflow.backend.cli.output import OutputFollower
from dispatch_kubeflow.machine import Context, ErrNotFound, ErrRejected, ErrUnreachable, ErrUnsupported

from .conftest import ScriptedBackend


def failure(kind, row):
    return kind(f"{row} happened.", row=row, operation="output")


CUT = failure(ErrUnreachable, "read.cut")


class Follow:
    def __init__(self, streams, looks):
        self.lines, self.said = [], []
        self.backend = ScriptedBackend({"output": streams})
        ctx = Context.background()
        with OutputFollower(self.backend, "fit", ctx, self.lines.append, self.said.append) as follower:
            for number in range(1, looks + 1):
                follower.look()
                while len(self.backend.calls) < number:
                    threading.Event().wait(0.005)
            follower.finish(10)


def test_the_lines_of_a_job_that_ended_are_read_without_a_look():
    assert Follow([[b"a", b"b"]], looks=0).lines == [b"a", b"b"]


def test_lines_that_a_later_look_repeats_are_given_once():
    assert Follow([[b"a"], [b"a", b"b"], [b"a", b"b"]], looks=2).lines == [b"a", b"b"]


def test_a_stream_that_was_cut_is_read_again_from_where_it_was():
    followed = Follow([[b"a", b"b", CUT], [b"a", b"b", b"c"]], looks=0)
    assert followed.lines == [b"a", b"b", b"c"]
    assert "read again" in followed.said[0]


def test_the_lines_of_another_pod_are_all_given():
    old, new = [b"from step 0", b"step 1"], [b"from step 1", b"step 2"]
    assert Follow([old, new], looks=1).lines == old + new


def test_what_another_pod_says_alike_at_first_is_given_too():
    old, new = [b"rank 0", b"step 1", b"stopped"], [b"rank 0", b"step 1", b"step 2"]
    assert Follow([old, new], looks=1).lines == old + new


@pytest.mark.parametrize("kind", [ErrNotFound, ErrRejected], ids=["no pod", "a pod whose container waits"])
def test_a_job_without_a_pod_that_runs_is_looked_at_again(kind):
    followed = Follow([failure(kind, "read.no-rank-0"), [b"a"]], looks=1)
    assert followed.lines == [b"a"]
    assert followed.said == []


def test_a_refusal_is_said_once_and_ends_the_following():
    followed = Follow([failure(ErrUnsupported, "support.output-capability")], looks=1)
    assert len(followed.said) == 1
    assert len(followed.backend.calls) == 1


def test_leaving_by_an_error_does_not_wait_for_lines():
    reading, never = threading.Event(), threading.Event()

    class Silent:
        def output(self, job_id, *, follow, ctx):
            ctx.on_cancel(never.set)
            reading.set()
            never.wait()
            raise CUT
            yield

    def leave():
        with OutputFollower(Silent(), "fit", Context.background(), print, print) as follower:
            follower.look()
            reading.wait()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        leave()
    assert never.is_set()
