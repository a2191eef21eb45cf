"""How fast the admission controller settles a change among many Workloads, how much memory it has, and what it asks.

    python -m tests.benchmarks.bench_admission [workloads] [changes]

The bounds, with 1,000 Workloads: a change is settled within 1 s, under 60 MB are resident, and what it asks grows with
the changes and not with the Workloads. The controller is the command, in a process of its own, as a Deployment runs it.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dispatch_kubeflow.backend.embedded import Cluster, ScriptedKubelet
from dispatch_kubeflow.backend.embedded.crds import definitions
from dispatch_kubeflow.backend.embedded.definitions import DEFINITIONS
from dispatch_kubeflow.backend.objects import names
from dispatch_kubeflow.backend.requests.resources import ADMISSION_CHECKS, LEASES, TRAIN_JOBS, WORKLOADS

SECONDS, MEGABYTES = 1.0, 60.0
NAMESPACE, CHECK = "team-a", "dispatch-hold"
TIME = "2026-01-01T00:00:00Z"
PATIENCE = 120.0


def fill(cluster: Cluster, workloads: int) -> None:
    """So many jobs of ours that were opened and wait for quota. They have no runtime: nothing here would run them."""
    cluster.create(ADMISSION_CHECKS, {"metadata": {"name": CHECK}, "spec": {"controllerName": names.CHECK_CONTROLLER}})
    # The schemas' rules would take minutes over so many.
    for kind in (WORKLOADS, TRAIN_JOBS):
        cluster.store.kind(kind).schema = None
    for hook in cluster.admission.webhooks():
        hook.operations = ()  # they would look for the runtimes
    for number in range(workloads):
        add(cluster, number)


def add(cluster: Cluster, number: int) -> None:
    identity = names.Identity("gpu", f"job{number}", 1)
    annotations = {names.MODE: "kueue", names.GATE: "lifted", names.HOLD: "none", names.NONCE: "n", names.DIGEST: "d"}
    made = cluster.create(
        TRAIN_JOBS,
        {
            "metadata": {"name": identity.name, "labels": identity.labels, "annotations": annotations},
            "spec": {
                "suspend": True,
                "runtimeRef": {"kind": "TrainingRuntime", "name": identity.name, "apiGroup": names.TRAINER_GROUP},
                "trainer": {"numNodes": 2, "image": "x", "command": ["train"], "args": ["--steps", "1000"] * 4},
            },
        },
        NAMESPACE,
    )
    owner = {
        "apiVersion": names.TRAINER_VERSION,
        "kind": "TrainJob",
        "name": identity.name,
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    container = {"name": "node", "image": "x", "command": ["train"], "args": ["--steps", "1000"] * 4}
    cluster.create(
        WORKLOADS,
        {
            "metadata": {
                "name": workload(number),
                "labels": {names.JOB_UID: made["metadata"]["uid"]},
                "ownerReferences": [owner],
            },
            "spec": {
                "active": True,
                "queueName": "lq",
                "podSets": [{"name": "node", "count": 2, "template": {"spec": {"containers": [container]}}}],
            },
        },
        NAMESPACE,
    )
    write_status(cluster, number, quota="False")


def workload(number: int) -> str:
    return f"trainjob-job{number}-1-abcde"


def write_status(cluster: Cluster, number: int, *, quota: str) -> None:
    condition = {"type": "QuotaReserved", "status": quota, "reason": "R", "message": "", "lastTransitionTime": TIME}
    entry = {"name": CHECK, "state": "Pending", "message": "", "lastTransitionTime": TIME}
    body = {"status": {"conditions": [condition], "admissionChecks": [entry]}}
    cluster.patch(WORKLOADS, workload(number), body, NAMESPACE, subresource="status")


def until(holds: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.005)


def resident(process: subprocess.Popen[str]) -> float:
    """Megabytes (10^6) that are resident."""
    for line in Path(f"/proc/{process.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError("the kernel says nothing of its memory")


def measure(workloads: int, changes: int) -> dict[str, Any]:
    """Seconds of each change, megabytes before and after, requests by kind once all was seen."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(nodes=0, kubelet=ScriptedKubelet(), namespaces=(NAMESPACE,)) as cluster,
    ):
        for each in definitions("kueue-v0.19.2"):
            cluster.create(DEFINITIONS, each)
        fill(cluster, workloads)
        path = cluster.kubeconfig(Path(folder) / "kubeconfig")
        command = [sys.executable, "-m", "dispatch_kubeflow.backend.cli", "admission", "--kubeconfig", str(path)]
        command += ["--namespace", NAMESPACE, "--host", "127.0.0.1", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                until(lambda: cluster.get(LEASES, "dispatch-kubeflow-admission", NAMESPACE), "nobody leads")
                until(lambda: "status" in (cluster.get(ADMISSION_CHECKS, CHECK) or {}), "the check is not served")
                time.sleep(1)
                return changed(cluster, process, changes)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE)


def changed(cluster: Cluster, process: subprocess.Popen[str], changes: int) -> dict[str, Any]:
    first = len(cluster.requests)
    before = resident(process)
    seconds = []
    for number in range(changes):

        def ready(number: int = number) -> bool:
            found = cluster.get(WORKLOADS, workload(number), NAMESPACE) or {}
            return bool(found["status"]["admissionChecks"][0]["state"] == "Ready")

        began = time.monotonic()
        write_status(cluster, number, quota="True")
        until(ready, "a change was never settled")
        seconds.append(time.monotonic() - began)
    asked = Counter(each.method for each in cluster.requests[first:] if "/leases/" not in each.path)
    return {
        "seconds": seconds,
        "megabytes": max(before, resident(process)),
        "requests": sum(asked.values()) / changes,
    }


def main() -> int:
    """Print what was measured; 1 where a bound is broken."""
    workloads, changes = (int(each) for each in [*sys.argv[1:], "1000", "100"][:2])
    found, few = measure(workloads, changes), measure(max(1, workloads // 10, changes), changes)
    slowest, median = max(found["seconds"]), statistics.median(found["seconds"])
    told = [
        f"{workloads} Workloads, {changes} changes, one after another",
        f"  settled in {median * 1e3:.0f} ms (median), {slowest * 1e3:.0f} ms (slowest); bound {SECONDS * 1e3:.0f} ms",
        f"  {found['megabytes']:.1f} MB resident, {few['megabytes']:.1f} among a tenth; bound {MEGABYTES:.0f} MB",
        f"  {found['requests']:.1f} requests a change; {few['requests']:.1f} among a tenth of the Workloads",
    ]
    sys.stdout.write("\n".join(told) + "\n")
    good = slowest < SECONDS and found["megabytes"] < MEGABYTES and found["requests"] < few["requests"] + 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
