"""The time limit for a whole answer, which the client libraries do not have."""

import itertools

import httpx2
import pytest

from collection.llm import http
from collection.llm.http import HttpClient
from tests.llm.server import Answer, ModelServer

# More than a socket gives at once.
LONG = Answer(body=b"x" * 2_000_000)


def test_an_answer_that_trickles_is_given_up():
    minutes = itertools.count(0.0, 60.0)
    with (
        ModelServer([LONG]) as server,
        # Each piece comes in time, a minute after the one before.
        HttpClient(100.0, lambda: next(minutes)) as client,
        pytest.raises(httpx2.ReadTimeout, match="not complete in time"),
    ):
        client.post(server.url, json={})


def test_an_answer_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(http, "_MAX_BYTES", 1_000_000)
    with (
        ModelServer([LONG]) as server,
        HttpClient(100.0) as client,
        pytest.raises(httpx2.ReadError, match="more than 1000000 bytes"),
    ):
        client.post(server.url, json={})


def test_an_answer_in_time_is_whole():
    with ModelServer([LONG]) as server, HttpClient(100.0) as client:
        assert len(client.post(server.url, json={}).content) == 2_000_000
