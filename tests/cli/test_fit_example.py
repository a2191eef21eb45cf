"""The example job, as two local processes: it must fit, stop cleanly and go on from its checkpoint."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

EXAMPLE = YAML(typ="safe").load(Path(__file__).parents[2] / "docs/examples/fit.yaml")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Gang:
    def __init__(self, checkpoint, steps, pause):
        port = free_port()
        self.ranks = [
            subprocess.Popen(
                [sys.executable, *EXAMPLE["command"][1:], *EXAMPLE["args"]],
                stdout=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "PET_NODE_RANK": str(rank),
                    "PET_NNODES": "2",
                    "PET_MASTER_ADDR": "127.0.0.1",
                    "PET_MASTER_PORT": str(port),
                    "DISPATCH_CHECKPOINT": str(checkpoint),
                    "FIT_STEPS": str(steps),
                    "FIT_PAUSE": str(pause),
                },
            )
            for rank in (0, 1)
        ]

    def outputs(self):
        return [rank.communicate(timeout=30)[0].splitlines() for rank in self.ranks]

    def codes(self):
        return [rank.wait(timeout=30) for rank in self.ranks]


@pytest.fixture
def gang(tmp_path):
    gangs = []

    def start(steps=60, pause=0.0):
        gangs.append(Gang(tmp_path, steps, pause))
        return gangs[-1]

    yield start
    for each in gangs:
        for rank in each.ranks:
            rank.kill()
            rank.wait()
            rank.stdout.close()


def losses(lines):
    return [float(line.rpartition(" ")[2]) for line in lines if "loss" in line]


def test_two_ranks_fit_the_line_with_a_falling_loss(gang):
    ranks = gang()
    rank_0, rank_1 = ranks.outputs()
    assert ranks.codes() == [0, 0]
    assert rank_0[0] == "rank 0 of 2: from step 0"
    assert rank_1 == ["rank 1 of 2: from step 0"]
    assert losses(rank_0) == sorted(losses(rank_0), reverse=True)
    assert rank_0[-1].startswith("fitted: y = 3.0")


def test_a_fit_that_succeeded_leaves_no_checkpoint_for_the_next_attempt_to_end_at(gang, tmp_path):
    assert gang().codes() == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_gang_goes_on_from_its_checkpoint(gang):
    first = gang(pause=0.05)
    while "step 10 " not in first.ranks[0].stdout.readline():
        pass
    for rank in first.ranks:
        rank.send_signal(signal.SIGTERM)
    stopped = first.outputs()[0][-1]
    assert first.codes() == [143, 143]
    step = int(stopped.removeprefix("rank 0: stopped at step ").removesuffix(", saved"))
    assert 10 <= step < 60

    second = gang()
    rank_0, rank_1 = second.outputs()
    assert second.codes() == [0, 0]
    assert rank_0[0] == f"rank 0 of 2: from step {step}"
    assert rank_1[0] == f"rank 1 of 2: from step {step}"


def test_a_rank_whose_peer_vanishes_fails_instead_of_waiting(gang):
    ranks = gang(pause=0.05)
    while "step 5 " not in ranks.ranks[0].stdout.readline():
        pass
    ranks.ranks[1].kill()
    assert ranks.ranks[0].wait(timeout=30) == 1


def test_a_rank_still_alone_stops_when_told(gang):
    ranks = gang()
    ranks.ranks[1].kill()
    ranks.ranks[0].stdout.readline()
    ranks.ranks[0].send_signal(signal.SIGTERM)
    assert ranks.ranks[0].wait(timeout=30) == 143
