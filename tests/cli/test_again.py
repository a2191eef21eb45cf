"""`run --again` after an attempt that failed, each run a process of its own on the embedded cluster."""

import json
import os
import subprocess
import sys

import pytest

from dispatch_kubeflow.backend.cli.exits import Exit
from dispatch_kubeflow.backend.embedded import Cluster
from dispatch_kubeflow.backend.requests.resources import JOB_SETS

JOB = """
nodes: 2
command: [python3, -c, "print('no luck'); raise SystemExit(3)"]
extensions:
  dispatch/Image: python:3.12-slim
  kubeflow/RuntimeRef: {kind: ClusterTrainingRuntime, name: torch-distributed}
"""


@pytest.fixture
def cluster():
    with Cluster(nodes=2, kubelet="processes") as cluster:
        yield cluster


@pytest.fixture
def run(cluster, tmp_path):
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        f"{{name: west, namespace: default, runtimes: [ClusterTrainingRuntime/torch-distributed],"
        f" kubeconfig: {kubeconfig}}}\n"
    )
    job = tmp_path / "unlucky.yaml"
    job.write_text(JOB)

    def run(*options):
        command = (sys.executable, "-m", "dispatch_kubeflow.backend.cli", "run", job, "--settings", settings, *options)
        return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)

    run.journal = tmp_path / "unlucky.journal.jsonl"
    return run


def entries(run):
    return [json.loads(line) for line in run.journal.read_text().splitlines()]


def test_a_failed_attempt_is_followed_by_the_next_in_another_process(run):
    assert run().returncode == 3
    again = run("--again")
    assert again.returncode == 3, again.stderr
    cleared = [each for each in entries(run) if each.get("cleared_by")]
    assert [(each["attempt"], each["cleared_by"]) for each in cleared] == [(1, "evidence")]
    assert entries(run)[-1]["attempt"] == 2


def test_where_the_jobset_went_unwatched_the_refusal_says_what_is_not_shown(run, cluster):
    assert run().returncode == 3
    cluster.delete(JOB_SETS, "unlucky-1", "default")
    again = run("--again")
    assert again.returncode == Exit.NOT_CEASED
    assert "unobserved: pods may have come and gone unseen" in again.stderr
    assert "dispatch-kubeflow ceased 'kubeflow://west/default/TrainJob/unlucky-1?uid=" in again.stderr
