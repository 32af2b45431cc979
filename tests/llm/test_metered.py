"""Limits that all processes of a run share: rates, the spending cap, and their state after a kill."""

import contextlib
import errno
import itertools
import multiprocessing
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collection.llm.http import retry_after
from collection.llm.ledger import BURST_S, CallLedger
from collection.llm.metered import MAX_RETRY_AFTER_S, UsageLimits
from collection.llm.model import BudgetError, ModelReply, TransientError
from collection.llm.prices import Prices
from rmsweb_jax.errors import UserError, user_message
from rmsweb_jax.records.schema import CallUsage
from tests.llm import sharing
from tests.llm.sharing import MOST, REPLY, REQUEST, Clock, Script, metered


def test_calls_are_entered_by_purpose_with_tokens_and_cost(tmp_path):
    cached = ModelReply("yes", CallUsage(prompt_tokens=80, response_tokens=20), cached_tokens=50)
    clock, path = Clock(), tmp_path / "calls.sqlite"
    model = metered(Script(REPLY, cached, ModelReply("", problem="cut off")), CallLedger(path), clock)
    costs = [model.complete(REQUEST).usage.cost for _ in range(3)]
    assert costs == pytest.approx([0.1, 0.055, 0.0])
    assert CallLedger(path).totals()["judge"] == {
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


def test_an_answer_lost_on_the_way_counts_at_the_most_it_may_have_cost():
    ledger, clock = CallLedger(None), Clock()
    lost = TransientError("reset", billed=True)
    metered(Script(lost, TransientError("busy"), REPLY), ledger, clock).complete(REQUEST)
    assert ledger.totals()["judge"]["attempts"] == 3
    assert ledger.spent() == pytest.approx(0.1 + MOST)
    with pytest.raises(KeyboardInterrupt):
        metered(Script(KeyboardInterrupt()), ledger, clock).complete(REQUEST)
    assert ledger.spent() == pytest.approx(0.1 + 2 * MOST)
    with pytest.raises(UserError):
        metered(Script(UserError("refused")), ledger, clock).complete(REQUEST)
    assert ledger.spent() == pytest.approx(0.1 + 2 * MOST)


def test_the_cap_ends_the_run_with_its_own_code_and_advice(tmp_path):
    path = tmp_path / "calls.sqlite"
    model = metered(Script(REPLY), CallLedger(path), Clock(), UsageLimits(cap_usd=1.0))
    for _ in range(9):
        model.complete(REQUEST)
    with pytest.raises(BudgetError) as error:
        model.complete(REQUEST)
    assert error.value.exit_code == 4
    for part in ("$0.9000 spent", "cap of $1.0000", "may cost $0.2000", str(path), "config.actor.cap_usd"):
        assert part in str(error.value)
    # Later calls too, until the cap is raised.
    with pytest.raises(BudgetError):
        metered(Script(REPLY), CallLedger(path), Clock(), UsageLimits(cap_usd=1.0)).complete(REQUEST)
    metered(Script(REPLY), CallLedger(path), Clock(), UsageLimits(cap_usd=1.2)).complete(REQUEST)


def test_a_call_waits_for_others_that_may_leave_it_room(tmp_path):
    ledger, clock, model = CallLedger(tmp_path / "calls.sqlite"), Clock(), Script(REPLY)
    other = ledger.open_call("reply", "m", 0.15, 0.3, clock(), lease_s=100.0)
    assert other is not None
    # The other's process is dead: its lease runs out, and what it may have cost stays.
    with pytest.raises(BudgetError, match=r"\$0\.1500 spent"):
        metered(model, ledger, clock, UsageLimits(cap_usd=0.3)).complete(REQUEST)
    assert sum(clock.slept) == pytest.approx(100.0, abs=1.0) and model.calls == 0


def test_the_maximum_cost_of_a_killed_call_is_kept(tmp_path):
    path = tmp_path / "calls.sqlite"
    metered(Script(REPLY), CallLedger(path), Clock()).complete(REQUEST)
    assert subprocess.run([sys.executable, "-m", "tests.llm.sharing", str(path)]).returncode == -9
    assert CallLedger(path).spent() == pytest.approx(0.1 + MOST)
    assert CallLedger(path).totals()["judge"]["without_answer"] == 1


def in_processes(target, path, argument):
    """Returns what three processes put into their queue, in any order."""
    CallLedger(path).close()
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    running = [context.Process(target=target, args=(path, queue, argument)) for _ in range(3)]
    for process in running:
        process.start()
    for process in running:
        process.join()
        assert process.exitcode == 0
    put = []
    while not queue.empty():
        put.append(queue.get())
    return put


def test_processes_share_the_cap(tmp_path):
    path = tmp_path / "calls.sqlite"
    calls = in_processes(sharing.spend, path, 2.05)
    # There is room for a call of at most 0.2 as long as 1.85 is spent, and each costs 0.1.
    assert len(calls) == 3 and sum(calls) == 19 == CallLedger(path).totals()["judge"]["calls"]
    assert CallLedger(path).spent() == pytest.approx(1.9)


def test_processes_share_the_rate(tmp_path):
    waits = in_processes(sharing.take, tmp_path / "calls.sqlite", 15)
    # One per second after the initial burst; no slot is given to two processes.
    burst = int(BURST_S)
    assert sorted(waits) == pytest.approx([0.0] * burst + [float(wait) for wait in range(1, 46 - burst)])


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(1, 500)), min_size=1, max_size=40), st.floats(60, 6000))
def test_no_minute_holds_more_than_the_limit_and_a_burst(arrivals, per_minute):
    ledger, now, taken = CallLedger(None), 1e6, []
    for gap, amount in arrivals:
        now += gap
        taken.append((now + ledger.take("tokens", amount, per_minute, now), amount))
    ledger.close()
    for start, _ in taken:
        # A call of more than a burst may begin when the bucket is full, so one may come on top.
        within = [amount for at, amount in taken if start <= at < start + 60]
        full = max(1.0, per_minute / 60 * BURST_S)
        assert sum(within) <= per_minute + full + max(within) + 1e-3


def test_requests_and_tokens_are_waited_for_and_counted_as_used():
    clock, ledger = Clock(), CallLedger(None)
    limits = UsageLimits(requests_per_minute=6.0, tokens_per_minute=600.0)
    model = metered(Script(REPLY), ledger, clock, limits, Prices())
    for _ in range(4):
        model.complete(REQUEST)
    # 6 a minute: 10 s between; the tokens, 100 a call as counted, are back by then.
    assert clock.slept == pytest.approx([10.0] * 3)
    slow = UsageLimits(tokens_per_minute=60.0)
    clock, ledger = Clock(), CallLedger(None)
    model = metered(Script(REPLY), ledger, clock, slow, Prices())
    for _ in range(2):
        model.complete(REQUEST)
    assert clock.slept == pytest.approx([100.0])


def test_retry_after_holds_for_every_process_of_the_run(tmp_path):
    path, clock, limits = tmp_path / "calls.sqlite", Clock(), UsageLimits(requests_per_minute=600.0)
    limited = metered(Script(TransientError("slow down", 30.0)), CallLedger(path), clock, limits, attempts=1)
    with pytest.raises(UserError):
        limited.complete(REQUEST)
    other = Clock(clock.now + 10.0)
    metered(Script(REPLY), CallLedger(path), other, limits).complete(REQUEST)
    assert other.slept == pytest.approx([20.0])


def test_a_long_retry_after_stops_the_run():
    clock, model = Clock(), Script(TransientError("slow\ndown", MAX_RETRY_AFTER_S + 1))
    with pytest.raises(UserError, match="slow down: asks to wait 601 s"):
        metered(model, CallLedger(None), clock).complete(REQUEST)
    assert model.calls == 1 and not clock.slept


def test_a_file_that_is_not_a_ledger_is_reported(tmp_path):
    path = tmp_path / "calls.sqlite"
    path.write_bytes(b"not a database, but long enough to be read" * 40)
    with pytest.raises(UserError, match=r"calls\.sqlite: not a call ledger"):
        CallLedger(path)


def test_a_full_disk_is_reported_as_one(tmp_path):
    ledger = CallLedger(tmp_path / "calls.sqlite")
    pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OSError) as error:
        for _ in itertools.count():
            ledger.open_call("reply", "m" * 1000, 0.0, 0.0, 0.0, 1.0)
    assert error.value.errno == errno.ENOSPC
    # And what was entered before is whole.
    assert ledger.totals()["reply"]["calls"] >= 1
    assert sqlite3.connect(tmp_path / "calls.sqlite").execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_ledger_on_a_full_disk_is_closed_with_the_same_error(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        ledger = CallLedger(tmp_path / "calls.sqlite", alone=True)
        with pytest.raises(OSError, match=r"calls\.sqlite") as error, contextlib.closing(ledger):
            for _ in itertools.count():
                ledger.open_call("reply", "m" * 1000, 0.0, 0.0, 0.0, 1.0)
        assert user_message(error.value)[1] == 2 and "disk full while writing" in user_message(error.value)[0]
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.parametrize(
    "headers,body,seconds",
    [
        ({}, None, None),
        ({"retry-after": "7"}, None, 7.0),
        ({"retry-after": "1.5", "retry-after-ms": "900"}, {}, 1.5),
        ({"retry-after": "Sun, 09 Sep 2001 01:47:10 GMT"}, None, 30.0),
        ({"retry-after": "Sun, 09 Sep 2001 01:46:10 GMT"}, None, 0.0),
        ({"retry-after": "soon"}, "text", None),
        ({"retry-after": "-3"}, None, None),
        ({"retry-after": "nan"}, None, None),
        ({}, {"error": {"details": "none"}}, None),
        ({}, {"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "31.5s"}]}}, 31.5),
        ({}, [{"error": {"details": [None, {"@type": "x/google.rpc.RetryInfo", "retryDelay": "2s"}]}}], 2.0),
        ({}, {"error": {"details": [{"@type": "x/google.rpc.RetryInfo", "retryDelay": "soon"}]}}, None),
    ],
)
def test_retry_after(headers, body, seconds):
    assert retry_after(headers, body, 1e9) == seconds
