"""The ledger of model calls under a thousand workers. A minute."""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from collection.llm.ledger import CallLedger
from collection.llm.ledger_server import LedgerAddress, RemoteLedger, serve_ledger
from collection.llm.metered import MeteredModel, RetryPolicy, UsageLimits
from tests.llm.sharing import MAX_TOKENS, PRICES, REPLY, REQUEST, Script
from tests.proofs.result import Claim, Figures, Proof, main, table

PROCESSES = 20
SECONDS = 15.0
WORKERS = 1000
# Calls that earlier parts of a run have made.
EARLIER = 100_000
# The cap and the rate limits are on, but too high to stop anything.
LIMITS = UsageLimits(requests_per_minute=1e9, tokens_per_minute=1e12, cap_usd=1e9)


def measure() -> Figures:
    with tempfile.TemporaryDirectory(dir="build") as folder:
        rows = [
            {"ledger": "a shared file", **_shared_file(Path(folder) / "shared.sqlite", 16)},
            {"ledger": "a server", **_served(Path(folder) / "few.sqlite", 16)},
            {"ledger": "a server", **_served(Path(folder) / "many.sqlite", WORKERS)},
        ]
    return {"seconds": SECONDS, "processes": PROCESSES, "earlier": EARLIER, "rows": rows}


def _shared_file(path: Path, workers: int) -> dict[str, Any]:
    ledger = CallLedger(path)
    _fill(ledger)
    figures = _use(path, workers)
    return figures | {"entered": int(ledger.totals()["judge"]["calls"]) == figures["calls"]}


def _served(path: Path, workers: int) -> dict[str, Any]:
    with serve_ledger(path) as (ledger, address):
        _fill(ledger)
        figures = _use(address, workers)
        return figures | {"entered": int(ledger.totals()["judge"]["calls"]) == figures["calls"]}


def _fill(ledger: CallLedger) -> None:
    ledger._connection.execute(
        """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
        INSERT INTO calls (started, expires, ended, purpose, model, unanswered_cost, cost, outcome)
        SELECT 0, 0, 1, 'reply', 'm', 0, 0.01, 'ok' FROM n""",
        (EARLIER,),
    )


def _use(where: Path | LedgerAddress, workers: int) -> dict[str, Any]:
    """Figures of so many workers that call a model which answers at once."""
    context = multiprocessing.get_context("spawn")
    results: SimpleQueue[tuple[int, float, list[str]]] = context.SimpleQueue()
    processes = min(PROCESSES, workers)
    begin = context.Barrier(processes + 1)
    started = [
        context.Process(target=_work, args=(where, share, begin, results))
        for share in (len(range(number, workers, processes)) for number in range(processes))
    ]
    for process in started:
        process.start()
    begin.wait()
    found = [results.get() for _ in started]
    for process in started:
        process.join()
    calls = sum(count for count, _, _ in found)
    errors = [error for _, _, errors in found for error in errors]
    return {
        "workers": workers,
        "calls": calls,
        "calls_per_second": round(calls / SECONDS, 1),
        "longest_s": round(max(longest for _, longest, _ in found), 2),
        "deaths": len(errors) + sum(process.exitcode != 0 for process in started),
        "errors": sorted(set(errors))[:3],
    }


def _work(where: Path | LedgerAddress, workers: int, begin: Any, results: Any) -> None:
    calls, longest, errors = [0] * workers, [0.0] * workers, []
    models = [_model(where) for _ in range(workers)]

    def call(number: int) -> None:
        try:
            while (start := time.monotonic()) < end:
                models[number].complete(REQUEST)
                calls[number] += 1
                longest[number] = max(longest[number], time.monotonic() - start)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")

    begin.wait()
    end = time.monotonic() + SECONDS
    threads = [threading.Thread(target=call, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((sum(calls), max(longest), errors))


def _model(where: Path | LedgerAddress) -> MeteredModel:
    ledger = RemoteLedger(where) if isinstance(where, LedgerAddress) else CallLedger(where)
    return MeteredModel(Script(REPLY), ledger, LIMITS, RetryPolicy(), PRICES, MAX_TOKENS)


def claims(figures: Figures) -> list[Claim]:
    most = figures["rows"][-1]
    return [
        Claim(
            f"{most['workers']:,} workers enter at least 500 calls a second",
            f"{most['calls_per_second']:.0f}",
            most["calls_per_second"] >= 500,
        ),
        Claim("no worker dies", f"{most['deaths']} deaths", most["deaths"] == 0),
        Claim(
            "every call that was made is entered",
            f"{sum(row['entered'] for row in figures['rows'])} of {len(figures['rows'])} runs",
            all(row["entered"] for row in figures["rows"]),
        ),
    ]


def tables(figures: Figures) -> str:
    head = ("ledger", "workers", "calls/s", "longest call, s", "deaths")
    return table(
        head,
        [
            (row["ledger"], *(row[name] for name in ("workers", "calls_per_second", "longest_s", "deaths")))
            for row in figures["rows"]
        ],
    )


ABOUT = """\
Workers call a model that answers at once, through the wrapper that all model calls go through, with a cap and
limits of requests and tokens: each call is entered, checked against the cap, counted against two limits,
corrected and settled. There are up to {processes} processes, a connection for each worker, and {earlier:,}
earlier calls in the ledger; a row takes {seconds:.0f} s. The first row is the ledger as a file, which is how
stages with one process use it; a fleet's parent process serves it.
"""
PROOF = Proof("The ledger of model calls", ABOUT, measure, claims, tables)

if __name__ == "__main__":
    main(PROOF)
