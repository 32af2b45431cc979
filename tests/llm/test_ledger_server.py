"""A ledger in one process, used by threads and processes over connections of their own."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing import AuthenticationError
from pathlib import Path

import pytest

from collection.llm.ledger import CallLedger, CallOutcome
from collection.llm.ledger_server import LedgerAddress, RemoteLedger, serve_ledger
from collection.llm.model import BudgetError
from rmsweb_jax.errors import UserError
from tests.llm.sharing import MOST, spend

ROOT = Path(__file__).parents[2]


def test_it_answers_as_the_ledger_itself(tmp_path):
    with serve_ledger(tmp_path / "calls.sqlite") as (ledger, address):
        remote = RemoteLedger(address)
        call = remote.open_call("reply", "m", 0.5, 1.0, 10.0, 5.0)
        remote.extend_call(call, 100.0)
        assert remote.open_call("reply", "m", 0.75, 1.0, 11.0, 5.0) is None
        remote.settle_call(call, CallOutcome("ok", 1, 2.0, 10, 0, 5, cost=0.75), 12.0)
        with pytest.raises(BudgetError, match=r"budget: \$0.7500 spent of a cap of \$1.0000"):
            remote.open_call("reply", "m", 0.5, 1.0, 13.0, 5.0)
        assert remote.take("m requests", 1.0, 60.0, 20.0) == 0.0
        remote.give("m requests", 1.0, 60.0, 20.0)
        remote.pause("m requests", 25.0)
        assert remote.take("m requests", 1.0, 60.0, 20.0) == 5.0
        assert remote.begin_outage("m", 20.0, 21.0) and not remote.begin_outage("m", 20.0, 21.0)
        assert remote.claim_probe("m", 22.0, 9.0) and not remote.claim_probe("m", 22.0, 9.0)
        remote.postpone_probe("m", 30.0)
        assert remote.outage("m") == ledger.outage("m") and remote.outage("m").probe_at == 30.0
        remote.end_outage("m")
        assert ledger.outages() == {}
        remote.close()
    # Afterwards any process may open the file.
    assert CallLedger(tmp_path / "calls.sqlite").spent() == 0.75


def test_the_cap_holds_for_processes_together(tmp_path):
    with serve_ledger(tmp_path / "calls.sqlite") as (ledger, address):
        context = multiprocessing.get_context("spawn")
        calls = context.SimpleQueue()
        workers = [context.Process(target=spend, args=(address, calls, 2.0)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        made = [calls.get() for _ in workers]
        assert ledger.totals()["judge"]["calls"] == sum(made) > 0
        assert ledger.spent() <= 2.0 < ledger.spent() + MOST


def test_strangers_are_refused_and_nobody_waits_for_them(tmp_path):
    with serve_ledger(tmp_path / "calls.sqlite") as (_, address):
        silent = [socket.create_connection((address.host, address.port)) for _ in range(20)]
        with pytest.raises(AuthenticationError):
            RemoteLedger(LedgerAddress(address.host, address.port, b"another key"))
        assert RemoteLedger(address).outage("m") is None
        for one in silent:
            one.close()


def test_many_threads_have_a_connection_each(tmp_path):
    with serve_ledger(tmp_path / "calls.sqlite") as (ledger, address):

        def use():
            remote = RemoteLedger(address)
            for _ in range(5):
                call = remote.open_call("reply", "m", 0.1, 0.0, time.time(), 60.0)
                remote.settle_call(call, CallOutcome("ok", 1, 0.1, cost=0.01), time.time())
            remote.close()

        threads = [threading.Thread(target=use) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.totals()["reply"]["calls"] == 320 and ledger.spent() == pytest.approx(3.2)


def test_a_killed_server_loses_no_call(tmp_path):
    """A call is in the file before it is made, also for a process that gets no time to close it."""
    code = (
        "import sys, time; from pathlib import Path; from collection.llm.ledger_server import serve_ledger\n"
        "with serve_ledger(Path(sys.argv[1])) as (ledger, address):\n"
        "    for _ in range(50): ledger.open_call('reply', 'm', 0.5, 0.0, time.time(), 60.0)\n"
        "    print('entered', flush=True); time.sleep(600)"
    )
    path = tmp_path / "calls.sqlite"
    child = subprocess.Popen([sys.executable, "-c", code, path], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "entered\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with serve_ledger(path) as (ledger, _):
        assert ledger.spent() == 25.0


def test_the_end_of_the_server_is_an_error_of_the_connection(tmp_path):
    with serve_ledger(tmp_path / "calls.sqlite") as (_, address):
        port = address.port
    with pytest.raises(ConnectionError):
        RemoteLedger(LedgerAddress("127.0.0.1", port, b"key"))


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "calls.sqlite"
    path.write_text("no ledger " * 100)
    with pytest.raises(UserError, match="not a call ledger"), serve_ledger(path):
        pass
