"""A job's life by the Kubeflow SDK; run in the SDK's own environment with a kubeconfig and a namespace."""

from __future__ import annotations

import json
import sys

from kubeflow.common.types import KubernetesBackendConfig  # type: ignore[import-not-found] # not in this environment
from kubeflow.trainer import CustomTrainer, TrainerClient  # type: ignore[import-not-found] # not in this environment


def train() -> None:
    """What would run, were there an image."""


def main(kubeconfig: str, namespace: str) -> None:
    client = TrainerClient(backend_config=KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace))
    told: dict[str, object] = {"runtimes": sorted(each.name for each in client.list_runtimes())}
    runtime = client.get_runtime("torch-distributed")
    name = client.train(runtime=runtime, trainer=CustomTrainer(func=train, num_nodes=2))
    job = client.wait_for_job_status(name, status={"Running"}, timeout=60, polling_interval=1)
    told["steps"] = sorted((step.name, step.status) for step in job.steps)
    told["listed"] = name in [each.name for each in client.list_jobs()]
    told["line"] = next(iter(client.get_job_logs(name, follow=True)))
    told["ended"] = client.wait_for_job_status(name, status={"Complete"}, timeout=60, polling_interval=1).status
    told["events"] = sorted({event.reason for event in client.get_job_events(name)})
    client.delete_job(name)
    told["left"] = [each.name for each in client.list_jobs() if each.name == name]
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
