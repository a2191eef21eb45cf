"""The demonstration and the served cluster, as their users start them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dispatch_kubeflow.backend import factory
from dispatch_kubeflow.machine import Context

COMMAND = [sys.executable, "-m", "dispatch_kubeflow.backend.cli"]
EXAMPLE = Path(__file__).parents[2] / "docs/examples/fit.yaml"


def test_the_demonstration_plays_to_its_end_in_plain_lines():
    done = subprocess.run([*COMMAND, "demo"], capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    steps = [
        line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line.split()[0].isupper()
    ]
    assert steps == ["GATED", "RECORDED", "OPENED", "HELD", "RELEASED", "SUCCEEDED", "STOPPED", "GATED"]
    assert "ErrOutcomeUnknown: " in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_the_demonstration_behind_kueue_keeps_generations_apart():
    run = [*COMMAND, "demo", "--mode", "kueue"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    steps = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [step for step in steps if step.isupper()] == [
        *("GATED", "OPENED", "WAITING", "HELD", "RELEASED", "SUCCEEDED", "OPENED", "EVICTED", "SUCCEEDED", "STOPPED")
    ]
    assert "✓ no rank of a job was ever started while it still ran" in done.stdout
    assert "the controller: activate (row admission.release)" in done.stdout
    assert done.stderr == ""


@pytest.fixture
def served(tmp_path):
    """A cluster that the command serves: its process, its URL, and settings for it."""
    kubeconfig = tmp_path / "kubeconfig"
    with subprocess.Popen(
        [*COMMAND, "cluster", "--kubeconfig", str(kubeconfig)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            url = process.stdout.readline().strip()
            settings = {
                "name": "west",
                "namespace": "default",
                "runtimes": ["ClusterTrainingRuntime/torch-distributed"],
                "kubeconfig": str(kubeconfig),
            }
            yield process, url, settings
        finally:
            process.terminate()


def test_the_served_cluster_says_where_it_is_and_is_ready(served):
    _, url, settings = served
    assert url.startswith("https://127.0.0.1:")
    with factory(settings, ctx=Context.with_timeout(20)) as backend:
        assert backend.find("fit", ctx=Context.with_timeout(20)).objects == ()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_served_cluster_ends_cleanly_when_interrupted(served, number):
    process, _, _ = served
    process.send_signal(number)
    assert process.wait(timeout=20) == 0
    assert process.stdout.read() == ""


@pytest.fixture
def settings_file(served, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("\n".join(f"{key}: {value}" for key, value in served[2].items()).replace("'", '"'))
    return path


def test_a_run_that_is_killed_goes_on_and_the_job_is_created_once(served, settings_file, tmp_path):
    journal = tmp_path / "fit.jsonl"
    job = tmp_path / "fit.yaml"
    job.write_text(EXAMPLE.read_text().replace('FIT_STEPS: "1200"', 'FIT_STEPS: "60"'))
    run = [*COMMAND, "run", str(job), "--settings", str(settings_file), "--journal", str(journal)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as first:
        while "step 5 of" not in first.stdout.readline():
            pass
        first.kill()
    second = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    assert second.returncode == 0, second.stderr
    assert "fitted: y = 3.0" in second.stdout
    assert '"state":"planned"' in journal.read_text()
    assert journal.read_text().count('"state":"planned"') == 1
