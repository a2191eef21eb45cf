"""What one request costs beside the same request by bare urllib3 with its retries off, in pairs, over loopback TLS.

    python -m tests.benchmarks.bench_request_cost [rounds]

The bound is 1.15 times. The server runs in a process of its own and answers from memory.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import urllib3

from dispatch_kubeflow.backend.requests import ClusterAccess, Door, Request
from dispatch_kubeflow.backend.requests.resources import TRAIN_JOBS
from dispatch_kubeflow.machine.context import Context, SystemClock
from tests.requests.certificates import Certificates, make
from tests.requests.upstream import answer

BOUND = 1.15
BATCH = 40


def serve(certificates: Certificates, ready: multiprocessing.connection.Connection) -> None:
    """Answer every request with one TrainJob, for ever."""
    metadata = {"name": "a-1", "namespace": "team-a", "uid": "u-1", "resourceVersion": "8", "labels": {"a": "b"}}
    spec = {"suspend": True, "trainer": {"numNodes": 2, "command": ["train"], "args": ["--steps", "100"]}}
    said = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
    fixed = answer(200, json.dumps(said).encode())
    context = certificates.server_context()
    listener = socket.create_server(("127.0.0.1", 0))
    ready.send(listener.getsockname()[1])

    def one(raw: socket.socket) -> None:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock = context.wrap_socket(raw, server_side=True)
        while sock.recv(65_536):
            sock.sendall(fixed)

    while True:
        raw, _ = listener.accept()
        threading.Thread(target=one, args=(raw,), daemon=True).start()


def measure(port: int, certificates: Certificates, rounds: int) -> list[tuple[float, float]]:
    """Seconds for a batch by bare urllib3 and by the request layer, in pairs."""
    url = f"https://127.0.0.1:{port}"
    context = ssl.create_default_context(cadata=certificates.authority)
    bare = urllib3.PoolManager(retries=False, ssl_context=context)
    path = f"{url}/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-a/trainjobs/a-1"
    headers = {"Accept": "application/json", "Authorization": "Bearer a-token", "User-Agent": "bench"}
    door = Door(
        ClusterAccess.at(url, token="a-token", authorities=certificates.authority),
        request_timeout=30,
        clock=SystemClock(),
    )
    request = Request("GET", TRAIN_JOBS, "team-a", "a-1")

    def by_urllib3() -> None:
        response = bare.request("GET", path, headers=headers, timeout=30)
        assert json.loads(response.data)["kind"] == "TrainJob"

    def by_door() -> None:
        assert door.send(request, Context.with_timeout(30), operation="find").failure is None

    for each in (by_urllib3, by_door):
        for _ in range(200):
            each()
    pairs = []
    for turn in range(rounds):
        timed = {}
        for each in (by_urllib3, by_door) if turn % 2 else (by_door, by_urllib3):
            began = time.perf_counter()
            for _ in range(BATCH):
                each()
            timed[each] = (time.perf_counter() - began) / BATCH
        pairs.append((timed[by_urllib3], timed[by_door]))
    door.close()
    return pairs


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    with tempfile.TemporaryDirectory() as folder:
        certificates = make(Path(folder))
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.get_context("fork").Process(target=serve, args=(certificates, theirs), daemon=True)
        server.start()
        gc.disable()
        pairs = measure(ours.recv(), certificates, rounds)
        server.terminate()
        server.join()
    ratio = statistics.median(ours / bare for bare, ours in pairs)
    bare, own = (statistics.median(each) * 1e6 for each in zip(*pairs, strict=True))
    said = f"bare urllib3 {bare:.0f} us, request layer {own:.0f} us, median of {rounds} pairs: {ratio:.3f}"
    sys.stdout.write(f"{said} (bound {BOUND})\n")
    return 0 if ratio <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
