"""The Kubeflow SDK creates, lists, follows and deletes a TrainJob on the embedded cluster."""

from __future__ import annotations

import hashlib
import json
import pathlib
import subprocess
import sys

import pytest

from dispatch_kubeflow.backend.embedded import Cluster
from dispatch_kubeflow.backend.embedded.controllers.kinds import NAMESPACES
from dispatch_kubeflow.backend.embedded.kubelet import Script, ScriptedKubelet
from dispatch_kubeflow.backend.requests.resources import CONFIG_MAPS
from tests.real.programs import cache_folder

pytestmark = pytest.mark.timeout(3600, func_only=True)
HERE = pathlib.Path(__file__).resolve().parent
PINS = HERE.parent.parent / "requirements" / "sdk.txt"


@pytest.fixture(scope="session")
def python() -> pathlib.Path:
    """The interpreter of an environment that holds the SDK as pinned, made where it is missing."""
    place = cache_folder() / f"sdk-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:16]}"
    made = place / "bin" / "python"
    ready = place / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        install = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*install, "--requirement", str(PINS)], check=True)
        ready.touch()
    return made


def test_a_jobs_life_by_the_sdk(python: pathlib.Path, tmp_path: pathlib.Path) -> None:
    script = Script(run=4.0, lines=((0.0, "epoch 1"),))
    with Cluster(kubelet=ScriptedKubelet(script)) as cluster:
        cluster.create(NAMESPACES, {"metadata": {"name": "kubeflow-system"}})
        told = {"metadata": {"name": "kubeflow-trainer-public"}, "data": {"kubeflow_trainer_version": "2.3.0"}}
        cluster.create(CONFIG_MAPS, told, "kubeflow-system")
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        story = [str(python), str(HERE / "sdk_story.py"), str(kubeconfig), "team-a"]
        done = subprocess.run(story, capture_output=True, text=True, check=False, timeout=200)
        assert (done.returncode, done.stderr) == (0, "")
        assert list(cluster.failures) == []
    assert json.loads(done.stdout) == {
        "runtimes": ["deepspeed-distributed", "jax-distributed", "torch-distributed"],
        "steps": [["node-0", "Running"], ["node-1", "Running"]],
        "listed": True,
        "line": "epoch 1",
        "ended": "Complete",
        "events": ["AllJobsCompleted"],
        "left": [],
    }
