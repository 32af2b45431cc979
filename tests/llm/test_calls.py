"""Limits that all processes of a run share: rates, the spending cap, and their state after a kill."""

import errno
import itertools
import json
import multiprocessing
import multiprocessing.pool
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from multiprocessing import AuthenticationError, managers
from multiprocessing.connection import SocketListener

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.llm.calls import (
    BURST_S,
    BudgetError,
    CallEnd,
    Calls,
    CallsAddress,
    Limits,
    connect,
    read_by_model,
    serve,
)
from collection.llm.config import Prices
from collection.llm.model import ModelReply, TransientError, attempts
from rmsweb_jax.errors import UserError, user_message
from rmsweb_jax.records.schema import CallUsage
from tests.llm.sharing import MOST, REPLY, REQUEST, Clock, Script, die, spend


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.jsonl"


def begin(calls, most=0.5, cap=0.0, **limits):
    return calls.begin("reply", "m", most, 10, Limits(cap_usd=cap, **limits))


def test_calls_are_entered_by_purpose_with_tokens_and_cost(path):
    cached = ModelReply("yes", CallUsage(prompt_tokens=80, response_tokens=20), cached_tokens=50)
    calls = Calls(path, Clock())
    model = Script(calls, REPLY, cached, ModelReply("", problem="cut off"))
    costs = [model.complete(REQUEST).usage.cost for _ in range(3)]
    assert costs == pytest.approx([0.1, 0.055, 0.0])
    assert calls.totals() == Calls(path).totals()
    assert calls.totals()["judge"] == {
        "calls": 3,
        "without_answer": 1,
        "attempts": 3,
        "prompt_tokens": 160,
        "cached_tokens": 50,
        "response_tokens": 40,
        "seconds": 0.0,
        "cost_usd": pytest.approx(0.155),
        "unanswered_cost_usd": 0.0,
    }


@pytest.mark.parametrize(
    "raised,lost", [(KeyboardInterrupt(), MOST), (ConnectionError(), MOST), (UserError("refused"), 0.0)]
)
def test_an_answer_lost_on_the_way_counts_at_the_most_it_may_have_cost(raised, lost):
    calls = Calls()
    with pytest.raises(type(raised)):
        Script(calls, raised).complete(REQUEST)
    assert calls.spent() == pytest.approx(lost)


def test_the_cap_ends_the_run_with_its_own_code_and_advice(path):
    model = Script(Calls(path), REPLY, cap_usd=1.0)
    for _ in range(9):
        model.complete(REQUEST)
    with pytest.raises(BudgetError) as error:
        model.complete(REQUEST)
    assert error.value.exit_code == 4
    for part in ("$0.9000 spent", "cap of $1.0000", "may cost $0.2000", str(path), "config.actor.cap_usd"):
        assert part in str(error.value)
    # Later runs too, until the cap is raised.
    with pytest.raises(BudgetError):
        Script(Calls(path), REPLY, cap_usd=1.0).complete(REQUEST)
    Script(Calls(path), REPLY, cap_usd=1.2).complete(REQUEST)


def test_attempts_without_an_answer_count_under_the_cap(path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "sleep", clock.sleep)
    calls, spent = Calls(path, clock), []

    class Silent(Script):
        def _answer(self, request, calls):
            attempts.begin()
            spent.append(self._calls.spent())
            raise TransientError("no answer")

    with pytest.raises(BudgetError, match=r"cap of \$1\.0000"):
        Silent(calls, REPLY, cap_usd=1.0, outage_s=3600.0).complete(REQUEST)
    assert spent == pytest.approx([MOST * tries for tries in (1, 2, 3, 4, 5)])
    assert calls.spent() == Calls(path).spent() == pytest.approx(1.0)
    assert calls.totals() == Calls(path).totals() and calls.totals()["judge"]["calls"] == 1


def test_a_call_waits_for_others_that_may_leave_it_room(monkeypatch):
    calls, clock = Calls(), Clock()
    other = begin(calls, 0.15, 0.3)

    def sleep(seconds):
        clock.sleep(seconds)
        if len(clock.slept) == 3:
            calls.end(other.call, CallEnd("ok", True, cost=0.05))

    monkeypatch.setattr(time, "sleep", sleep)
    Script(calls, REPLY, cap_usd=0.3).complete(REQUEST)
    assert clock.slept == [1.0] * 3


def test_what_a_killed_process_was_asking_counts_as_spent(path):
    assert subprocess.run([sys.executable, "-m", "tests.llm.sharing", str(path)]).returncode == -9
    calls = Calls(path)
    assert calls.spent() == pytest.approx(MOST)
    assert calls.totals()["judge"]["without_answer"] == 1
    # And a run waits for no such call.
    with pytest.raises(BudgetError, match=r"\$0\.2000 spent"):
        Script(calls, REPLY, cap_usd=0.3).complete(REQUEST)


def test_workers_share_the_cap_and_kills_do_not_break_it(path):
    with Calls(path) as calls, serve(calls) as address:
        context = multiprocessing.get_context("spawn")
        made, go_on, cap = context.SimpleQueue(), context.Event(), 9.05
        workers = [context.Process(target=spend, args=(address, made, go_on, cap)) for _ in range(8)]
        killed = [context.Process(target=die, args=(address, cap, 3)) for _ in range(3)]
        for worker in (*workers, *killed):
            worker.start()
        for worker in killed:
            worker.join()
        go_on.set()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in (*workers, *killed)] == [0] * 8 + [-9] * 3
        counts = [made.get() for _ in workers]
        # There is room for a call of at most 0.2 as long as 8.85 is spent, and each costs 0.1.
        assert calls.spent() == pytest.approx(0.1 * (sum(counts) + 3 * 2) + 3 * MOST)
        assert 8.85 < calls.spent() <= 9.05
    assert Calls(path).spent() == pytest.approx(calls.spent())


def test_no_slot_of_a_rate_is_given_twice():
    calls, waits = Calls(clock=Clock()), []
    with serve(calls) as address:
        context = multiprocessing.pool.ThreadPool(3)
        waits = context.map(lambda _: begin(connect(address), requests_per_minute=60.0).wait_s, range(45))
    # One per second after the initial burst.
    burst = int(BURST_S)
    assert sorted(waits) == pytest.approx([0.0] * burst + [float(wait) for wait in range(1, 46 - burst)])


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(1, 500)), min_size=1, max_size=40), st.floats(60, 6000))
def test_no_minute_holds_more_than_the_limit_and_a_burst(arrivals, per_minute):
    clock, taken = Clock(), []
    calls, limits = Calls(clock=clock), Limits(tokens_per_minute=per_minute)
    for gap, amount in arrivals:
        clock.sleep(gap)
        taken.append((clock.now + calls.begin("reply", "m", 0.0, amount, limits).wait_s, amount))
    calls.close()
    for start, _ in taken:
        # A call of more than a burst may begin when the bucket is full, so one may come on top.
        within = [amount for at, amount in taken if start <= at < start + 60]
        full = max(1.0, per_minute / 60 * BURST_S)
        assert sum(within) <= per_minute + full + max(within) + 1e-3


def test_requests_and_tokens_are_waited_for_and_counted_as_used(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.sleep(seconds))
    limits = {"requests_per_minute": 6.0, "tokens_per_minute": 600.0}
    model = Script(Calls(clock=clock), REPLY, prices=Prices(), **limits)
    for _ in range(4):
        model.complete(REQUEST)
    # 6 a minute: 10 s between; the tokens, 100 a call as counted, are back by then.
    assert clock.slept == pytest.approx([10.0] * 3)
    clock = Clock()
    model = Script(Calls(clock=clock), REPLY, prices=Prices(), tokens_per_minute=60.0)
    for _ in range(2):
        model.complete(REQUEST)
    assert clock.slept == pytest.approx([100.0])


def test_a_reply_is_kept_and_no_question_is_paid_twice(path):
    kept = ModelReply("half \ud800\n", REPLY.usage, "cut off", 3, model_version="m-1")
    with Calls(path) as calls:
        model = Script(calls, kept)
        given, known = model.ask(REQUEST)
        assert not known and (given.text, given.problem, given.model_version) == (kept.text, "cut off", "m-1")
        model.complete(REQUEST)
    # Also after a kill in the middle of a line.
    with path.open("ab") as file:
        file.write(b'{"id": 3, "purp')
    with Calls(path) as calls:
        model = Script(calls, kept)
        assert model.ask(REQUEST) == (given, True) and model.made == 0
        assert (model.asked, model.hits) == (0, 1)
        model.reject(REQUEST)
    with Calls(path) as calls:
        model = Script(calls, kept)
        assert not model.ask(REQUEST)[1] and model.made == 1
        assert calls.totals()["judge"]["calls"] == 3
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line.get("id") for line in lines] == [1, 1, 2, 2, None, 3, 3]


def test_threads_with_the_same_question_pay_once():
    model = Script(Calls(), REPLY)
    with multiprocessing.pool.ThreadPool(8) as threads:
        replies = threads.map(lambda _: model.ask(REQUEST), range(16))
    assert model.made == model.asked == sum(not known for _, known in replies) == 1


def test_viewers_read_the_calls_of_a_run_that_goes_on(path):
    assert read_by_model(path) == []
    with Calls(path) as calls:
        calls.end(begin(calls).call, CallEnd("ok", True, 1, 10, 0, 5, 0.25))
        begin(calls)
        (row,) = read_by_model(path)
        assert (row["calls"], row["open"], row["cost_usd"], row["unanswered_cost_usd"]) == (2, 1, 0.25, 0.5)
    path.write_bytes(b"nothing\n")
    assert read_by_model(path) == []


@pytest.mark.parametrize("text", ["no calls\n", '{"id": 1}\n', "\0" * 5000 + "\n"])
def test_a_file_of_something_else_is_refused(path, text):
    path.write_text(text)
    with pytest.raises(UserError, match=r"calls\.jsonl: line 1 is not of model calls; move the file away"):
        Calls(path)
    assert path.read_text() == text


def test_a_full_disk_is_one_line_and_what_was_entered_is_whole(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    path = tmp_path / "calls.jsonl"
    try:
        with Calls(path) as calls, serve(calls) as address:
            worker = connect(address)
            with pytest.raises(OSError, match=r"calls\.jsonl") as error:
                for made in itertools.count():  # noqa: B007
                    worker.end(worker.begin("reply", "m" * 1000, 0.1, 1, Limits()).call, CallEnd("ok", True))
        assert error.value.errno == errno.ENOSPC
        line, code = user_message(error.value)
        assert code == 2 and line.startswith(f"disk full while writing {path}")
        assert Calls(path).totals()["reply"]["calls"] - made in (0, 1)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_call_whose_end_cannot_be_written_keeps_the_most_it_may_cost(path):
    with Calls(path) as calls:
        call = begin(calls, most=0.5).call
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                calls.end(call, CallEnd("ok", True, cost=0.1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert calls.spent() == Calls(path).spent() == 0.5
        with pytest.raises(BudgetError):
            for _ in range(2):
                begin(calls, most=0.6, cap=1.0)


def test_strangers_are_refused_and_no_worker_waits_for_them():
    calls = Calls()
    with serve(calls) as address:
        silent = [socket.create_connection((address.host, address.port)) for _ in range(20)]
        with pytest.raises(AuthenticationError):
            connect(CallsAddress(address.host, address.port, b"another key"))
        assert connect(address).outages() == {}
        for one in silent:
            one.close()
    with pytest.raises(ConnectionError):
        connect(address)


def test_a_worker_that_ends_takes_nothing_from_one_that_begins(monkeypatch):
    release, gone = managers.Server.decref, []

    def watched(server, connection, ident):
        release(server, connection, ident)
        gone.append(ident not in server.id_to_obj)

    monkeypatch.setattr(managers.Server, "decref", watched)
    with serve(Calls()) as address:
        connect(address).spent()
    assert gone and not any(gone)


def test_calls_are_served_at_one_address():
    with serve(Calls(), "127.0.0.2") as address:
        assert connect(address).outages() == {}
        # Not by a connection to another address: another process may listen there.
        listening = [one.laddr for one in psutil.Process().net_connections("tcp") if one.status == "LISTEN"]
        assert [one.ip for one in listening if one.port == address.port] == ["127.0.0.2"]


def test_links_to_workers_notice_a_machine_that_is_gone(monkeypatch):
    kept = []

    def watched(server, link, handle=managers.Server.handle_request):
        with socket.socket(fileno=os.dup(link.fileno())) as one:
            kept.append(one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        handle(server, link)

    monkeypatch.setattr(managers.Server, "handle_request", watched)
    with serve(Calls()) as address:
        connect(address).spent()
    assert kept and all(kept)


def test_many_threads_may_connect_while_none_is_accepted(monkeypatch):
    free, accept = threading.Event(), SocketListener.accept
    monkeypatch.setattr(SocketListener, "accept", lambda listener: free.wait() and accept(listener))
    links = []
    with serve(Calls()) as address:
        try:
            for _ in range(100):
                links.append(socket.create_connection((address.host, address.port), timeout=10.0))
        finally:
            free.set()
            for link in links:
                link.close()


def test_many_threads_have_a_connection_each():
    with Calls() as calls, serve(calls) as address:
        worker = connect(address)

        def use():
            for _ in range(5):
                worker.end(begin(worker).call, CallEnd("ok", True, cost=0.01))

        threads = [threading.Thread(target=use) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert calls.totals()["reply"]["calls"] == 320 and calls.spent() == pytest.approx(3.2)
