"""A model that stops to answer: all calls of the run wait, one at a time tries, and all go on afterwards.

The server is a real one on loopback that fails by schedule; the clock moves when a call waits.
"""

import dataclasses
import importlib.util
import io
import socket
import sys
import threading
import time

import pytest

from collection.llm import metered
from collection.llm.chat import ChatModel
from collection.llm.ledger import CallLedger
from collection.llm.ledger_server import RemoteLedger, serve_ledger
from collection.llm.metered import MeteredModel, NoAnswerError, RetryPolicy, UsageLimits
from collection.llm.model import ModelRequest
from collection.llm.prices import Prices
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Message, TextPart
from tests.llm.answers import completion, openai_error
from tests.llm.server import Answer, ModelServer
from tests.llm.sharing import Clock

GOOD = completion("yes")
DOWN = Answer(503, {"error": {"message": "overloaded"}})
SIX_HOURS = 6 * 3600.0


def ask(text="Hello"):
    return ModelRequest((Message(role="user", content=(TextPart(text=text),)),), "reply", 1)


class Schedule(Clock):
    """A clock that calls a function with its time after every wait."""

    def __init__(self, then):
        super().__init__()
        self._begun, self._then = self.now, then

    @property
    def elapsed(self):
        return self.now - self._begun

    def sleep(self, seconds):
        super().sleep(seconds)
        self._then(self.elapsed)


def model(url, ledger, clock, timeout_s=5.0, outage_s=SIX_HOURS, attempts=5):
    policy = RetryPolicy(attempts=attempts, timeout_s=timeout_s, outage_s=outage_s)
    chat = ChatModel(f"{url}/v1", "m", timeout_s=timeout_s)
    return MeteredModel(chat, ledger, UsageLimits(), policy, Prices(), 64, clock, clock.sleep)


@pytest.mark.parametrize(
    "answer", [DOWN, openai_error(429, "slow down"), Answer(reset=True)], ids=["503", "429", "reset"]
)
def test_a_call_goes_on_after_an_hour_without_answers(answer, tmp_path, capfd):
    with ModelServer([GOOD]) as server:
        server.always = answer

        def then(elapsed):
            if elapsed >= 3600:
                server.always = None

        clock, ledger = Schedule(then), CallLedger(tmp_path / "calls.sqlite")
        reply = model(server.url, ledger, clock).complete(ask())
        assert reply.text == "yes"
        # Five attempts, then each time after a quarter of what has passed, at most a minute.
        assert 3600 <= clock.elapsed < 3600 + 61 and 3600 / 60 < len(server.calls) < 100
        assert reply.outage_s == pytest.approx(clock.elapsed)
        totals = ledger.totals()["reply"]
        assert (totals["calls"], totals["without_answer"], totals["attempts"]) == (1, 0, len(server.calls))
        assert ledger.outages() == {}
    begun, ended = capfd.readouterr().err.splitlines()
    assert "all calls wait until it answers, for at most 6 hours" in begun
    assert "m: answers again after" in ended


def test_a_short_outage_delays_a_call_by_little_more_than_itself():
    with ModelServer([GOOD]) as server:
        server.always = DOWN

        def then(elapsed):
            if elapsed >= 120:
                server.always = None

        clock = Schedule(then)
        assert model(server.url, CallLedger(None), clock).complete(ask()).text == "yes"
        assert 120 <= clock.elapsed <= 120 * 1.25


def test_a_server_that_names_a_wait_is_tried_after_that():
    with ModelServer([GOOD]) as server:
        server.always = dataclasses.replace(DOWN, headers={"Retry-After": "200"})

        def then(elapsed):
            if elapsed >= 2000:
                server.always = None

        clock = Schedule(then)
        assert model(server.url, CallLedger(None), clock, attempts=1).complete(ask()).text == "yes"
        # The first one, then each 200 seconds.
        assert 2000 <= clock.elapsed <= 2200 and len(server.calls) <= 1 + 11


def test_an_endpoint_that_is_started_again_is_found():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []

    def then(elapsed):
        if elapsed >= 600 and not started:
            started.append(ModelServer([GOOD], port))

    clock = Schedule(then)
    reply = model(f"http://127.0.0.1:{port}", CallLedger(None), clock).complete(ask())
    with started[0] as server:
        assert reply.text == "yes" and len(server.calls) == 1


def test_a_server_that_is_silent_counts_as_down():
    with ModelServer([GOOD]) as server:
        server.always = Answer(silent=True)

        def then(elapsed):
            if elapsed >= 3:
                server.always = None

        reply = model(server.url, CallLedger(None), Schedule(then), timeout_s=0.2, attempts=1).complete(ask())
        assert reply.text == "yes"


@pytest.mark.parametrize(
    "answer,line",
    [
        (openai_error(401, "Incorrect API key"), "check the API key"),
        (openai_error(404, "no such model", "model_not_found"), "check config.actor.base_url"),
        (openai_error(429, "You exceeded your quota", "insufficient_quota"), "the quota is used up"),
    ],
    ids=["key", "model", "quota"],
)
@pytest.mark.parametrize("before", [(), (DOWN,) * 8], ids=["at once", "as the end of an outage"])
def test_what_waiting_does_not_help_ends_the_run(answer, line, before, tmp_path):
    with ModelServer([*before, answer]) as server:
        ledger = CallLedger(tmp_path / "calls.sqlite")
        with pytest.raises(UserError, match=line) as error:
            model(server.url, ledger, Clock()).complete(ask())
        assert len(server.calls) == len(before) + 1 and not isinstance(error.value, NoAnswerError)
        assert ledger.outages() == {}


def test_an_outage_that_lasts_too_long_ends_the_run():
    with ModelServer([DOWN]) as server:
        clock, ledger = Clock(), CallLedger(None)
        with pytest.raises(
            NoAnswerError, match=r"no answer after \d+ calls in 6\d minutes; check that it is up"
        ):
            model(server.url, ledger, clock, outage_s=3600.0).complete(ask())
        # Others do not wait for as long again.
        before = clock.now
        with pytest.raises(NoAnswerError):
            model(server.url, ledger, clock, outage_s=3600.0).complete(ask())
        assert clock.now - before <= 600


def test_without_hours_for_it_nothing_waits():
    with ModelServer([DOWN]) as server:
        clock = Clock()
        with pytest.raises(NoAnswerError, match="no answer after 5 calls; check that it is up"):
            model(server.url, CallLedger(None), clock, outage_s=0.0).complete(ask())
        assert sum(clock.slept) < 16


def test_all_callers_of_a_run_wait_and_one_at_a_time_tries(tmp_path):
    """Eight callers with a connection of their own each, as workers have."""
    path, over = tmp_path / "calls.sqlite", threading.Event()
    CallLedger(path).close()
    replies = []
    with ModelServer([GOOD]) as server:
        server.always = DOWN

        def call(number):
            def then(elapsed):
                # The clocks of the callers go their own ways, so that all of them try at some time.
                if len(server.calls) >= 8 * 2 + 12:
                    server.always = None
                over.wait(0.001)

            clock = Schedule(then)
            replies.append(model(server.url, CallLedger(path), clock, attempts=2).complete(ask(str(number))))

        callers = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
        assert [reply.text for reply in replies] == ["yes"] * 8
        assert CallLedger(path).outages() == {}
        assert CallLedger(path).totals()["reply"]["calls"] == 8


def test_only_one_caller_tries_at_a_time():
    ledger = CallLedger(None)
    assert ledger.begin_outage("m", 100.0, 101.0) and not ledger.begin_outage("m", 100.5, 200.0)
    assert not ledger.claim_probe("m", 100.9, 60.0)
    assert ledger.claim_probe("m", 101.0, 60.0) and not ledger.claim_probe("m", 101.0, 60.0)
    # One that was killed while it tried leaves the next try to another.
    assert ledger.claim_probe("m", 161.0, 60.0)
    ledger.postpone_probe("m", 163.0)
    outage = ledger.outage("m")
    assert outage is not None and dataclasses.astuple(outage) == (100.0, 2, 163.0)
    ledger.end_outage("m")
    assert ledger.outage("m") is None


def test_a_request_that_alone_fails_holds_up_nobody_for_long():
    """Others are answered between its failures, so it is at fault itself."""

    class Moody(ModelServer):
        def _answer(self, handler):
            body = handler.rfile.read(int(handler.headers["Content-Length"]))
            handler.rfile = io.BytesIO(body)
            self.always = DOWN if b"poison" in body else None
            super()._answer(handler)

    with Moody([GOOD]) as server:
        ledger, clock = CallLedger(None), Clock()
        other = model(server.url, ledger, clock)

        def then(elapsed):
            # Another worker's call, whenever the bad one waits for the model.
            if ledger.outages():
                assert other.complete(ask()).text == "yes"

        waiting = Schedule(then)
        with pytest.raises(NoAnswerError, match=r"no answer after 20 calls"):
            model(server.url, ledger, waiting).complete(ask("poison"))
        assert waiting.elapsed < 120
        assert other.complete(ask()).text == "yes"


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
@pytest.mark.parametrize("served", [False, True])
def test_a_machine_whose_clock_is_set_ends_no_outage_and_spends_no_time(
    jump, served, tmp_path, monkeypatch, capfd
):
    real, path = time.time, tmp_path / "calls.sqlite"
    with ModelServer([DOWN, DOWN, GOOD]) as server, serve_ledger(path) as (ledger, address):
        monkeypatch.setattr(time, "time", lambda: real() + bool(server.calls) * jump)
        # A copy of the module, which finds that clock from its start.
        spec = importlib.util.spec_from_file_location("metered_again", metered.__file__)
        again = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, again.__name__, again)
        spec.loader.exec_module(again)
        policy = RetryPolicy(attempts=1, first_wait_s=0.01, outage_s=1800.0)
        chat = ChatModel(f"{server.url}/v1", "m", timeout_s=5.0)
        used = RemoteLedger(address) if served else ledger
        asked = again.MeteredModel(chat, used, UsageLimits(), policy, Prices(), 64, sleep=lambda _: None)
        reply = asked.complete(ask())
        assert reply.text == "yes" and 0 <= reply.usage.seconds < 600 and 0 <= reply.outage_s < 600
        later = RemoteLedger(address)  # As a worker that starts after the jump.
        assert abs(later.now() - ledger.now()) < 600
    assert "answers again after 0." in capfd.readouterr().err
