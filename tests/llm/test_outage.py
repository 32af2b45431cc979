"""A model that stops to answer: all calls of the run wait, one at a time tries, and all go on afterwards.

The server is a real one on loopback that fails by schedule; the clock moves when a call waits.
"""

import io
import threading
import time

import pytest

from collection.llm.build import make_model
from collection.llm.calls import BudgetError, CallEnd, Calls, Limits, NoAnswerError, connect, serve
from collection.llm.config import ModelConfig
from collection.llm.model import ModelRequest
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Message, TextPart
from tests.llm.answers import completion, openai_error
from tests.llm.server import Answer, ModelServer
from tests.llm.sharing import Clock
from tests.loopback import free_port

GOOD = completion("yes")
DOWN = Answer(503, {"error": {"message": "overloaded"}})


def ask(text="Hello"):
    return ModelRequest((Message(role="user", content=(TextPart(text=text),)),), "reply", 1)


class Schedule(Clock):
    """A clock that calls a function with the seconds so far after every wait."""

    def __init__(self, monkeypatch, then=lambda elapsed: None):
        super().__init__()
        self._begun, self._then = self.now, then
        # Also the client library waits by this clock.
        monkeypatch.setattr(time, "sleep", self.sleep)

    @property
    def elapsed(self):
        return self.now - self._begun

    def sleep(self, seconds):
        super().sleep(seconds)
        self._then(self.elapsed)


def model(url, calls, timeout_s=60.0, hours=6.0, attempts=5):
    config = ModelConfig(kind="chat", model="m", base_url=f"{url}/v1", timeout_s=timeout_s)
    return make_model(config.model_copy(update={"outage_hours": hours, "calls": attempts}), calls)


@pytest.mark.parametrize(
    "answer", [DOWN, openai_error(429, "slow down"), Answer(reset=True)], ids=["503", "429", "reset"]
)
def test_a_call_goes_on_after_an_hour_without_answers(answer, tmp_path, capfd, monkeypatch):
    with ModelServer([GOOD]) as server:
        server.always = answer

        def then(elapsed):
            if elapsed >= 3600:
                server.always = None

        clock = Schedule(monkeypatch, then)
        calls = Calls(tmp_path / "calls.jsonl", clock)
        reply = model(server.url, calls).complete(ask())
        assert reply.text == "yes"
        # Five attempts, then each time after a quarter of what has passed, at most a minute.
        assert 3600 <= clock.elapsed < 3600 + 61 and 3600 / 60 < len(server.calls) < 100
        assert reply.outage_s == pytest.approx(clock.elapsed)
        totals = calls.totals()["reply"]
        assert (totals["calls"], totals["without_answer"], totals["attempts"]) == (1, 0, len(server.calls))
        assert calls.outages() == {}
    begun, ended = capfd.readouterr().err.splitlines()
    assert "all calls wait until it answers, for at most 6 hours" in begun
    assert "m: answers again after" in ended


def test_a_short_outage_delays_a_call_by_little_more_than_itself(monkeypatch):
    with ModelServer([GOOD]) as server:
        server.always = DOWN

        def then(elapsed):
            if elapsed >= 120:
                server.always = None

        clock = Schedule(monkeypatch, then)
        assert model(server.url, Calls(clock=clock)).complete(ask()).text == "yes"
        assert 120 <= clock.elapsed <= 120 * 1.25


def test_an_endpoint_that_is_started_again_is_found(monkeypatch):
    port, started = free_port(), []

    def then(elapsed):
        if elapsed >= 600 and not started:
            started.append(ModelServer([GOOD], port))

    calls = Calls(clock=Schedule(monkeypatch, then))
    reply = model(f"http://127.0.0.1:{port}", calls).complete(ask())
    with started[0] as server:
        assert reply.text == "yes" and len(server.calls) == 1
    # What was not sent was not billed.
    assert calls.totals()["reply"]["unanswered_cost_usd"] == 0


@pytest.mark.parametrize("kind", ["chat", "gemini"])
def test_repeated_attempts_that_may_be_billed_stay_under_the_cap(kind, tmp_path, monkeypatch):
    Schedule(monkeypatch)
    monkeypatch.setenv("GEMINI_API_KEY", "key")
    path, price = tmp_path / "calls.jsonl", (0.0, 0.0, 1e6)
    config = ModelConfig(
        kind=kind, model="m", timeout_s=0.5, calls=5, max_tokens=1, price=price, cap_usd=2.5, outage_hours=1.0
    )
    with ModelServer([Answer(silent=True)]) as server, Calls(path) as calls:
        url = f"{server.url}/v1" if kind == "chat" else server.url
        with pytest.raises(BudgetError, match="cap of"):
            make_model(config.model_copy(update={"base_url": url}), calls).complete(ask())
        # The server's thread may be late.
        waited, deadline = threading.Event(), time.monotonic() + 60
        while len(server.calls) < 2 and time.monotonic() < deadline:
            waited.wait(0.05)
        # $1 an attempt.
        assert len(server.calls) == 2 and calls.spent() == Calls(path).spent() == pytest.approx(2.0)


@pytest.mark.parametrize("kind", ["chat", "gemini"])
def test_an_answer_that_cannot_be_unpacked_is_no_answer(kind, monkeypatch):
    Schedule(monkeypatch)
    monkeypatch.setenv("GEMINI_API_KEY", "key")
    config = ModelConfig(kind=kind, model="m", calls=2)
    with ModelServer([Answer(body=b"no gzip", headers={"Content-Encoding": "gzip"})]) as server:
        url = f"{server.url}/v1" if kind == "chat" else server.url
        with pytest.raises(NoAnswerError, match="no answer after"):
            make_model(config.model_copy(update={"base_url": url}), Calls()).complete(ask())


@pytest.mark.parametrize(
    "answer,line",
    [
        (openai_error(401, "Incorrect API key"), "check the API key"),
        (openai_error(429, "You exceeded your quota", "insufficient_quota"), "the quota is used up"),
    ],
    ids=["key", "quota"],
)
@pytest.mark.parametrize("before", [(), (DOWN,) * 8], ids=["at once", "as the end of an outage"])
def test_what_waiting_does_not_help_ends_the_run(answer, line, before, monkeypatch):
    calls = Calls(clock=Schedule(monkeypatch))
    with ModelServer([*before, answer]) as server:
        with pytest.raises(UserError, match=line) as error:
            model(server.url, calls).complete(ask())
        assert not isinstance(error.value, NoAnswerError) and calls.outages() == {}


def test_an_outage_that_lasts_too_long_ends_the_run(monkeypatch):
    clock = Schedule(monkeypatch)
    calls = Calls(clock=clock)
    with ModelServer([DOWN]) as server:
        with pytest.raises(
            NoAnswerError, match=r"no answer after \d+ calls in 6\d minutes; check that it is up"
        ):
            model(server.url, calls, hours=1.0).complete(ask())
        # Others do not wait for as long again.
        before = clock.now
        with pytest.raises(NoAnswerError):
            model(server.url, calls, hours=1.0).complete(ask())
        assert clock.now - before <= 600


def test_without_hours_for_it_nothing_waits(monkeypatch):
    clock = Schedule(monkeypatch)
    with ModelServer([DOWN]) as server:
        with pytest.raises(NoAnswerError, match="no answer after 5 calls; check that it is up"):
            model(server.url, Calls(clock=clock), hours=0.0).complete(ask())
        assert clock.elapsed < 16


def test_all_callers_of_a_run_wait_and_one_at_a_time_tries():
    """Eight workers' callers; none may try while another does."""
    clock, limits = Clock(), Limits(outage_s=3600.0)
    with Calls(clock=clock) as calls, serve(calls) as address:
        workers = [connect(address) for _ in range(8)]
        ids = [worker.begin("reply", "m", 0.0, 1, limits).call for worker in workers]
        turns = [worker.failed(call, "down", 5) for worker, call in zip(workers, ids, strict=True)]
        assert [turn.wait_s for turn in turns] == [1.0] * 8 and all(turn.outage for turn in turns)
        for tries in range(1, 4):
            clock.sleep(max(turn.wait_s for turn in turns))
            turns = [worker.wait(call) for worker, call in zip(workers, ids, strict=True)]
            (trying,) = [at for at, turn in enumerate(turns) if not turn.wait_s]
            if tries < 3:
                turns[trying] = workers[trying].failed(ids[trying], "down", 5 + tries)
        # One that was killed while it tried leaves the next try to another.
        clock.sleep(180.0)
        turns = [worker.wait(call) for worker, call in zip(workers, ids, strict=True)]
        (other,) = [at for at, turn in enumerate(turns) if not turn.wait_s]
        workers[other].end(ids[other], CallEnd("ok", True))
        assert calls.outages() == {}
        left = [at for at in range(8) if at != other]
        assert [workers[at].wait(ids[at])[1:] for at in left] == [(0.0, False)] * 7


def test_a_request_that_alone_fails_delays_others_little(monkeypatch):
    """Others are answered between its failures, so it is at fault itself."""

    class Moody(ModelServer):
        def _answer(self, handler):
            body = handler.rfile.read(int(handler.headers["Content-Length"]))
            handler.rfile = io.BytesIO(body)
            self.always = DOWN if b"poison" in body else None
            super()._answer(handler)

    with Moody([GOOD]) as server:

        def then(elapsed):
            # Another worker's call, when the bad one waits for the model.
            if calls.outages() and not busy:
                busy.append(True)
                assert other.complete(ask()).text == "yes"
                busy.clear()

        busy, clock = [], Schedule(monkeypatch, then)
        calls = Calls(clock=clock)
        other = model(server.url, calls)
        with pytest.raises(NoAnswerError, match=r"no answer after \d+ calls"):
            model(server.url, calls).complete(ask("poison"))
        assert clock.elapsed < 120
        assert other.complete(ask()).text == "yes"


def test_a_machine_whose_clock_is_set_ends_no_outage_and_spends_no_time(monkeypatch, capfd):
    real = time.time
    with ModelServer([DOWN, DOWN, GOOD]) as server:
        monkeypatch.setattr(time, "time", lambda: real() - bool(server.calls) * 3600.0)
        reply = model(server.url, Calls(), hours=0.5, attempts=1).complete(ask())
        assert reply.text == "yes" and 0 <= reply.usage.seconds < 600 and 0 <= reply.outage_s < 600
    assert "answers again after 0." in capfd.readouterr().err
