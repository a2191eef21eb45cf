from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

from dispatch_kubeflow.backend.embedded.apiserver import Apiserver
from dispatch_kubeflow.backend.embedded.errors import ApiError
from dispatch_kubeflow.backend.embedded.pods import LogQuery
from dispatch_kubeflow.backend.embedded.server import Server
from dispatch_kubeflow.backend.requests.resources import NODES, PODS, TRAIN_JOBS

from .conftest import MERGE, NAMESPACE, TRAIN_JOBS_PATH, Serving, train_job

POD_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods/p"


def raw(serving: Serving) -> ssl.SSLSocket:
    context = ssl.create_default_context(cadata=serving.server.authority.certificate.decode())
    plain = socket.create_connection(("127.0.0.1", serving.server.port), timeout=10)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def watching(serving: Serving, query: str = "") -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
    caller = serving.caller(serving.admin_token)
    headers = {"Authorization": f"Bearer {serving.admin_token}"}
    caller.connection.request("GET", f"{TRAIN_JOBS_PATH}?watch=1&{query}", headers=headers)
    return caller.connection, caller.connection.getresponse()


@pytest.fixture
def pod(serving: Serving) -> Serving:
    serving.store.create(NODES, {"metadata": {"name": "node-1"}})
    spec = {"nodeName": "node-1", "containers": [{"name": "node", "image": "x:y"}]}
    serving.store.create(PODS, {"metadata": {"name": "p", "namespace": NAMESPACE}, "spec": spec})
    return serving


def test_a_client_that_does_not_trust_the_authority_is_not_served(serving: Serving) -> None:
    connection = http.client.HTTPSConnection("127.0.0.1", serving.server.port, context=ssl.create_default_context())
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("GET", "/version")
    connection.close()


def test_a_connection_serves_many_requests(serving: Serving) -> None:
    serving.admin("GET", "/version")
    sock = serving.admin.connection.sock
    serving.admin("GET", TRAIN_JOBS_PATH)
    assert serving.admin.connection.sock is sock


def test_a_chunked_request_body_is_read(serving: Serving) -> None:
    body = json.dumps(train_job()).encode()
    headers = {"Authorization": f"Bearer {serving.admin_token}", "Content-Type": "application/json"}
    serving.admin.connection.request(
        "POST", TRAIN_JOBS_PATH, iter([body[:20], body[20:]]), headers, encode_chunked=True
    )
    answer = serving.admin.connection.getresponse()
    answer.read()
    assert answer.status == 201


def test_what_is_no_http_is_refused_and_the_connection_closed(serving: Serving) -> None:
    with raw(serving) as sock:
        sock.sendall(b"NONSENSE\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 400 Bad Request")
        assert sock.recv(1000) == b""


def test_a_client_that_expects_it_is_told_to_go_on(serving: Serving) -> None:
    body = json.dumps(train_job()).encode()
    head = (
        f"POST {TRAIN_JOBS_PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {serving.admin_token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with raw(serving) as sock:
        sock.sendall(head.encode())
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert sock.recv(100).startswith(b"HTTP/1.1 201 Created")


def test_a_connection_the_client_wants_closed_is_closed(serving: Serving) -> None:
    with raw(serving) as sock:
        sock.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = b""
        while piece := sock.recv(4096):
            received += piece
    assert b"Connection: close" in received


def test_a_watch_is_told_of_a_write_at_once(serving: Serving) -> None:
    connection, stream = watching(serving)
    serving.admin("POST", TRAIN_JOBS_PATH, train_job())
    line = json.loads(stream.readline())
    assert (line["type"], line["object"]["metadata"]["name"]) == ("ADDED", "sa-1")
    connection.close()


def test_a_watch_ends_cleanly_at_its_timeout(serving: Serving) -> None:
    connection, stream = watching(serving, "timeoutSeconds=1")
    assert stream.read() == b""
    connection.close()


def test_a_watch_whose_client_left_is_forgotten(serving: Serving) -> None:
    connection, stream = watching(serving)
    assert stream.status == 200
    assert len(serving.store._subscriptions) == 2
    stream.close()
    connection.close()
    deadline = time.monotonic() + 5
    while len(serving.store._subscriptions) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(serving.store._subscriptions) == 1


def test_a_stopped_server_ends_watches_cleanly_and_refuses_new_connections(serving: Serving) -> None:
    connection, stream = watching(serving)
    threading.Thread(target=serving.server.stop).start()
    assert stream.read() == b""
    with pytest.raises(ConnectionRefusedError):
        raw(serving)
    connection.close()


def test_a_killed_server_breaks_watches_in_the_middle_and_comes_back_on_its_port(serving: Serving) -> None:
    port = serving.server.port
    connection, stream = watching(serving)
    serving.server.kill()
    with pytest.raises((http.client.IncompleteRead, OSError)):
        stream.read()
    connection.close()
    serving.server.start()
    assert serving.server.port == port
    assert serving.caller(serving.admin_token)("GET", "/version").status == 200


def test_a_client_certificate_names_the_user(serving: Serving, tmp_path: Any) -> None:
    pair = serving.server.authority.client("root", ["system:masters"])
    file = tmp_path / "client.pem"
    file.write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(cadata=serving.server.authority.certificate.decode())
    context.load_cert_chain(file)
    connection = http.client.HTTPSConnection("127.0.0.1", serving.server.port, context=context)
    connection.request("GET", TRAIN_JOBS_PATH)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert (answer.status, serving.apiserver.requests[-1].user) == (200, "root")


def test_a_log_is_the_kubelets_answer_in_chunks(pod: Serving) -> None:
    asked: list[tuple[str, LogQuery]] = []

    def kubelet(_: Any, container: str, query: LogQuery) -> Iterator[bytes]:
        asked.append((container, query))
        yield b"one\n"
        yield b"two\n"

    pod.apiserver.logs = kubelet
    answer = pod.admin("GET", f"{POD_PATH}/log?tailLines=2&timestamps=true")
    assert (answer.body, answer.headers["content-type"]) == (b"one\ntwo\n", "text/plain")
    assert answer.headers["transfer-encoding"] == "chunked"
    assert asked == [("node", LogQuery(tail_lines=2, timestamps=True))]


def test_a_log_of_a_pod_that_is_not_scheduled_has_no_content(serving: Serving) -> None:
    spec = {"containers": [{"name": "node", "image": "x:y"}]}
    serving.store.create(PODS, {"metadata": {"name": "p", "namespace": NAMESPACE}, "spec": spec})
    answer = serving.admin("GET", f"{POD_PATH}/log")
    assert (answer.status, answer.body) == (204, b"")


def test_a_log_from_a_node_that_does_not_answer_is_500_without_a_reason(pod: Serving) -> None:
    answer = pod.admin("GET", f"{POD_PATH}/log")
    assert (answer.status, "reason" in answer.json) == (500, False)


def test_an_eviction_marks_the_pod_before_it_deletes_it(pod: Serving) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": NAMESPACE}}
    answer = pod.admin("POST", f"{POD_PATH}/eviction", eviction)
    assert (answer.status, answer.json["status"]) == (201, "Success")
    evicted = pod.store.get(PODS, NAMESPACE, "p")
    assert evicted["metadata"]["deletionGracePeriodSeconds"] == 30
    condition = evicted["status"]["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("EvictionByEvictionAPI", "Eviction API: evicting")


def test_a_binding_places_a_pod_once(serving: Serving) -> None:
    spec = {"containers": [{"name": "node", "image": "x:y"}]}
    serving.store.create(PODS, {"metadata": {"name": "p", "namespace": NAMESPACE}, "spec": spec})
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "node-1"}}
    assert serving.admin("POST", f"{POD_PATH}/binding", binding).status == 201
    assert serving.store.get(PODS, NAMESPACE, "p")["spec"]["nodeName"] == "node-1"
    assert serving.admin("POST", f"{POD_PATH}/binding", binding).json["reason"] == "Conflict"


def test_the_official_dynamic_client_creates_patches_watches_and_deletes(serving: Serving) -> None:
    configuration = kubernetes.client.Configuration()
    loader = kubernetes.config.kube_config.KubeConfigLoader(serving.server.kubeconfig(serving.admin_token))
    loader.load_and_set(configuration)
    with kubernetes.client.ApiClient(configuration) as api:
        jobs = DynamicClient(api).resources.get(api_version="trainer.kubeflow.org/v1alpha1", kind="TrainJob")
        made = jobs.create(body=train_job(), namespace=NAMESPACE)
        patch = {"metadata": {"resourceVersion": made.metadata.resourceVersion}, "spec": {"suspend": False}}
        patched = jobs.patch(name="sa-1", namespace=NAMESPACE, body=patch, content_type=MERGE)
        with pytest.raises(ConflictError):
            jobs.patch(name="sa-1", namespace=NAMESPACE, body=patch, content_type=MERGE)
        assert [item.metadata.name for item in jobs.get(namespace=NAMESPACE).items] == ["sa-1"]
        events = jobs.watch(namespace=NAMESPACE, resource_version=made.metadata.resourceVersion, timeout=5)
        assert next(events)["object"].metadata.resourceVersion == patched.metadata.resourceVersion
        events.close()
        uid = {"preconditions": {"uid": made.metadata.uid}}
        assert jobs.delete(name="sa-1", namespace=NAMESPACE, body=uid).status == "Success"
        with pytest.raises(NotFoundError):
            jobs.get(name="sa-1", namespace=NAMESPACE)


def test_requests_from_many_threads_commit_each_once(serving: Serving) -> None:
    def create(index: int) -> None:
        caller = serving.caller(serving.admin_token)
        for step in range(5):
            assert caller("POST", TRAIN_JOBS_PATH, train_job(f"t-{index}-{step}")).status == 201

    threads = [threading.Thread(target=create, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    committed = [item.committed for item in serving.apiserver.requests]
    assert len(set(committed)) == 20
    assert len(serving.store.list(TRAIN_JOBS)[0]) == 20


def test_a_kubelets_refusal_is_passed_on(pod: Serving) -> None:
    def kubelet(*_: Any) -> Iterator[bytes]:
        raise ApiError(400, "BadRequest", 'container "node" in pod "p" is waiting to start: ContainerCreating')

    pod.apiserver.logs = kubelet
    assert pod.admin("GET", f"{POD_PATH}/log").status == 400


def test_two_servers_do_not_share_a_port(serving: Serving) -> None:
    with Server(Apiserver(serving.store)) as other:
        assert other.port != serving.server.port
