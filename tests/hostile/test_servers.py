"""Servers that answer with anything: the next source is tried, and nothing is left behind."""

import hashlib
import itertools
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from cfeval_cli.dataset import sources
from cfeval_cli.dataset.sources import DataFile, Url
from cfeval_cli.errors import UserError
from tests.hostile.mutations import list_names

GOOD = b"a,b\n1,2\n" * 500
SHA = hashlib.sha256(GOOD).hexdigest()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(GOOD)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def server():
    """Send a fixed answer to every connection and close it."""
    listener = socket.create_server(("127.0.0.1", 0))
    answers, stop = [], threading.Event()

    def serve():
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(60)
                try:
                    connection.recv(65536)
                    for part in answers[0] if not isinstance(answers[0], bytes) else [answers[0]]:
                        if stop.is_set():
                            break
                        connection.sendall(part)
                except OSError:
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    def answer(body):
        answers[:] = [body]
        return f"http://127.0.0.1:{listener.getsockname()[1]}/x"

    yield answer
    stop.set()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def fetch_or_message(url, folder, sha=SHA, timeout=60.0, max_bytes=1 << 20):
    try:
        data_file = DataFile("x.csv", sha, [Url(url, timeout)], max_bytes).find(folder)
        body = data_file.path.read_bytes()
        data_file.path.unlink()
    except UserError as error:
        assert "x.csv" in str(error) and url in str(error)
        body = str(error)
    assert list_names(folder) == set()
    return body


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HEAD + GOOD[:100], "IncompleteRead(100 bytes read, 3900 more expected)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "sha256"),
        (CHUNKED + b"ffffffffffffffffffff\r\n" + GOOD, "IncompleteRead"),
        (CHUNKED + b"zz\r\n", "InvalidChunkLength"),
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n", "No connection adapters"),
        (b"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1:9/x\r\n\r\n", "No connection adapters"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[::1/x\r\n\r\n", "IPv6"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://a..b/x\r\n\r\n", "label"),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", "30 redirects"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500, "headers"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", "header line"),
        (b"\0" * 100, ":"),
        (b"", "without response"),
    ],
)  # fmt: skip
def test_invalid_answer_is_reported(server, tmp_path, answer, reason):
    assert reason in fetch_or_message(server(answer), tmp_path)


def test_interrupted_download_leaves_no_file(server, tmp_path):
    assert fetch_or_message(server(HEAD + GOOD), tmp_path, sha=None) == GOOD
    assert "IncompleteRead" in fetch_or_message(server(HEAD + GOOD[:1000]), tmp_path, sha=None)


def test_endless_and_slow_bodies_are_refused(server, tmp_path, monkeypatch):
    endless = itertools.chain([b"HTTP/1.1 200 OK\r\n\r\n"], itertools.repeat(b"x" * 65536))
    assert "max_bytes" in fetch_or_message(server(endless), tmp_path)

    def drip():
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            time.sleep(0.01)
            yield b"x" * 1000

    # a clock on which ten minutes pass whenever it is looked at
    monkeypatch.setattr(sources, "time", SimpleNamespace(monotonic=itertools.count(0, 600).__next__))
    assert "not complete after 1,800 seconds" in fetch_or_message(server(drip()), tmp_path)
