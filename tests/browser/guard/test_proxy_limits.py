"""The proxy's limits on size and time, and servers that answer badly or not at all."""

from __future__ import annotations

import pytest

from collection.browser.guard.guard import Guard
from tests.browser.guard.app import HOST, LIMITS, get, tunnel
from tests.browser.guard.raw import ask, connect, receive
from tests.browser.guard.servers import answering


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/body/2000000", 403, "response_size"),
        ("/endless", 200, "response_size"),
        ("/bomb", 200, "decompression"),
        ("/double-bomb", 200, "decompression"),
        ("/ratio-bomb", 200, "decompression"),
        ("/brotli", 403, "decompression"),
    ],
)
def test_limits_cut_a_response_off(guard, path, status, reason):
    guard.incidents()
    answer = get(guard, path)
    assert answer.status == status
    # Begun already, it must not look whole.
    assert answer.complete == (status == 403)
    assert len(answer.body) < 1_100_000
    assert [f"[{reason}]" in incident.detail for incident in guard.incidents()] == [True]


@pytest.mark.parametrize(
    ("limit", "path", "status", "reason"),
    [
        ("idle_seconds", "/silent", 403, "idle"),
        ("total_seconds", "/slow-head", 403, "total_time"),
        ("total_seconds", "/slow-body", 200, "total_time"),
    ],
)
def test_a_server_that_takes_its_time_is_cut_off(app, limit, path, status, reason):
    config = LIMITS.model_copy(update={limit: 0.2})
    with answering(app) as port, Guard(config, {HOST: f"127.0.0.1:{port}"}) as guard:
        answer = get(guard, path)
        assert (answer.status, answer.complete) == (status, status == 403)
        assert [f"[{reason}]" in incident.detail for incident in guard.incidents()] == [True]
        if limit == "idle_seconds":
            # Opened for what might be needed, which is no incident.
            assert tunnel(guard, "app.test:80", b"") == (200, b"")
            assert guard.incidents() == ()


@pytest.mark.parametrize("path", ["/huge-head", "/nonsense"])
def test_an_invalid_answer_is_a_bad_gateway(guard, path):
    assert get(guard, path).status == 502


@pytest.mark.parametrize("path", ["/bad-chunk", "/short"])
def test_an_answer_that_breaks_off_does_so_for_the_browser(guard, path):
    assert not get(guard, path).complete


def test_an_unreachable_host_is_a_bad_gateway(guard):
    answer = ask(guard, "http://gone.test/", "gone.test")
    assert answer.status == 502 and b"gone.test cannot be reached" in answer.body


@pytest.mark.parametrize("size", [0, 400_000, 600_000])
def test_uploads(guard, size):
    body = b"u" * size
    with connect(guard) as connection:
        head = f"POST http://{HOST}/echo HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {size}\r\n\r\n"
        connection.sendall(head.encode() + body)
        answer = receive(connection)
    if size > 500_000:
        assert answer.status == 403 and b"upload_size" in answer.body
    else:
        assert answer.body == body
