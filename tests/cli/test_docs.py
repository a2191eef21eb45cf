"""What the documentation shows works as it is shown."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from dispatch_kubeflow.backend.embedded import Cluster
from dispatch_kubeflow.machine.rules import rulebook
from dispatch_kubeflow.machine.values import JobSpec, Settings

ROOT = Path(__file__).parents[2]


def blocks(path):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)


def test_the_readmes_ten_lines_take_a_job_to_its_end(tmp_path):
    (program,) = blocks("README.md")
    with Cluster() as cluster:
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig(tmp_path / "kubeconfig"))}
        run = [sys.executable, "-u", "-c", program]
        with subprocess.Popen(run, stdout=subprocess.PIPE, text=True, env=environment) as process:
            states = []
            for line in process.stdout:
                states.append(re.search(r"'(\w+)'\)\]$", line.strip())[1])
                if states[-1] == "ended":
                    break
            process.kill()
    assert states[0] in ("gated", "opened")
    assert states[-1] == "ended"


def test_the_program_of_getting_started_takes_the_example_to_its_end(tmp_path):
    (program,) = blocks("docs/getting-started.md")
    (tmp_path / "docs/examples").mkdir(parents=True)
    job = (ROOT / "docs/examples/fit.yaml").read_text()
    (tmp_path / "docs/examples/fit.yaml").write_text(job.replace('FIT_STEPS: "1200"', 'FIT_STEPS: "10"'))
    with Cluster(nodes=2, kubelet="processes", namespaces=()) as cluster:
        kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
        settings = settings_of_getting_started().replace("/tmp/kubeconfig", str(kubeconfig))
        (tmp_path / "settings.yaml").write_text(settings)
        run = [sys.executable, "-u", "-c", program]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['ended']"
    assert "/default/TrainJob/line-1?uid=" in (tmp_path / "line.ref").read_text()


def test_every_key_of_the_settings_and_of_a_job_is_described():
    for page, of in (("docs/settings.md", Settings), ("docs/job.md", JobSpec)):
        described = re.findall(r"^\| `(\w+)` \|", (ROOT / page).read_text(), re.MULTILINE)
        assert {each.name for each in fields(of)} <= set(described), page


def test_the_fixture_of_the_embedded_cluster_works_in_a_users_test(tmp_path):
    (fixture,) = blocks("docs/embedded.md")
    (tmp_path / "conftest.py").write_text(fixture)
    (tmp_path / "test_mine.py").write_text(
        "def test_nothing_is_there(backend):\n    assert backend.find('fit').objects == ()\n"
    )
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_rule_that_the_prose_names_exists():
    rules = {rule.id for family in rulebook().families.values() for rule in family.rules}
    families = "|".join(rulebook().families)
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        named = set(re.findall(rf"(?:`|explain )((?:{families})\.[a-z0-9-]+)", page.read_text()))
        assert named <= rules, page.name


def settings_of_getting_started():
    page = (ROOT / "docs/getting-started.md").read_text()
    (settings,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return settings


def test_the_settings_of_getting_started_are_valid():
    assert Settings.parse_yaml(settings_of_getting_started()).name == "gpu-west"
