"""The demonstration's bad network: it must lose exactly the one answer it is told to."""

import socket
import threading

import pytest

from dispatch_kubeflow.backend.cli.lossy import LossyProxy


@pytest.fixture
def echo():
    """A server that answers each line with itself, and keeps what it got."""
    listener = socket.create_server(("127.0.0.1", 0))
    got = []

    def serve(connection):
        with connection, connection.makefile("rwb", buffering=0) as lines:
            for line in lines:
                got.append(line)
                lines.write(line)

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1], got
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture
def proxy(echo):
    with LossyProxy("127.0.0.1", echo[0]) as proxy:
        yield proxy


def ask(port, line):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(line)
        return connection.recv(100)


def test_it_forwards_what_it_is_not_told_to_lose(proxy, echo):
    assert ask(proxy.port, b"hello\n") == b"hello\n"
    assert not proxy.lost.is_set()


def test_the_request_arrives_and_the_answer_does_not(proxy, echo):
    proxy.lose_answer_once(lambda: b"create\n" in echo[1])
    assert ask(proxy.port, b"create\n") == b""
    assert echo[1] == [b"create\n"]
    assert proxy.lost.is_set()


def test_answers_before_it_has_happened_are_kept(proxy, echo):
    proxy.lose_answer_once(lambda: b"create\n" in echo[1])
    assert ask(proxy.port, b"read\n") == b"read\n"


def test_only_one_answer_is_lost(proxy, echo):
    proxy.lose_answer_once(lambda: True)
    ask(proxy.port, b"a\n")
    assert ask(proxy.port, b"b\n") == b"b\n"


def test_leaving_cuts_what_is_open(echo):
    with LossyProxy("127.0.0.1", echo[0]) as proxy:
        connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
        connection.sendall(b"a\n")
        assert connection.recv(10) == b"a\n"
    with connection:
        assert connection.recv(10) == b""
