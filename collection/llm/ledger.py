"""Ledger of every model call of a run in one SQLite file, which all processes share and which survives kills.

A call is entered with its maximum cost before it is made, and settled when it is answered. If its process is
killed, the call keeps the maximum cost, because it may have been billed: the cap holds in every case.
The rate limits use the file too. pyrate-limiter also has an SQLite bucket, but it stores one row per token,
which is too slow for prompts of many thousand tokens.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collection.llm.model import BudgetError, Purpose
from rmsweb_jax.errors import UserError

# File name in a run's workdir.
LEDGER = "calls.sqlite"
# What the calls of a model for a purpose took, so far.
_BY_MODEL = """SELECT model, purpose, COUNT(*) AS calls, SUM(ended IS NULL) AS open,
SUM(ended IS NOT NULL AND outcome <> 'ok') AS failed, SUM(attempts) AS attempts,
SUM(prompt_tokens) AS prompt_tokens, SUM(response_tokens) AS response_tokens,
TOTAL(seconds) / COUNT(*) AS mean_seconds, TOTAL(cost) AS cost_usd,
TOTAL(unanswered_cost) AS unanswered_cost_usd
FROM calls GROUP BY model, purpose ORDER BY model, purpose"""
# A bucket holds the allowance of this many seconds, so that a minute's allowance cannot go in one burst.
BURST_S = 6.0
# Transactions take milliseconds; waiting longer means that another process is stuck with the file locked.
_BUSY_S = 60.0
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, started REAL NOT NULL, expires REAL NOT NULL, ended REAL,
    purpose TEXT NOT NULL, model TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    prompt_tokens INTEGER NOT NULL DEFAULT 0, cached_tokens INTEGER NOT NULL DEFAULT 0,
    response_tokens INTEGER NOT NULL DEFAULT 0, seconds REAL NOT NULL DEFAULT 0,
    cost REAL NOT NULL DEFAULT 0, unanswered_cost REAL NOT NULL, outcome TEXT NOT NULL DEFAULT 'open')""",
    "CREATE INDEX IF NOT EXISTS open_calls ON calls (expires) WHERE ended IS NULL",
    # The sum over all calls, which each call asks for.
    "CREATE TABLE IF NOT EXISTS spent (total REAL NOT NULL)",
    """INSERT INTO spent SELECT TOTAL(cost + unanswered_cost) FROM calls
    WHERE NOT EXISTS (SELECT * FROM spent)""",
    """CREATE TRIGGER IF NOT EXISTS call_opened AFTER INSERT ON calls
    BEGIN UPDATE spent SET total = total + NEW.cost + NEW.unanswered_cost; END""",
    """CREATE TRIGGER IF NOT EXISTS call_settled AFTER UPDATE OF cost, unanswered_cost ON calls
    BEGIN UPDATE spent
    SET total = total + NEW.cost + NEW.unanswered_cost - OLD.cost - OLD.unanswered_cost; END""",
    """CREATE TABLE IF NOT EXISTS buckets (
    name TEXT PRIMARY KEY, level REAL NOT NULL, at REAL NOT NULL, paused_until REAL NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS outages (model TEXT PRIMARY KEY,
    since REAL NOT NULL, probes INTEGER NOT NULL DEFAULT 0, probe_at REAL NOT NULL)""",
)

# Unix time at this process's start, less its monotonic clock then.
_EPOCH = time.time() - time.monotonic()


@dataclasses.dataclass(frozen=True)
class Outage:
    """A time in which a model does not answer, for all processes of a run. Times are Unix times.

    Attributes:
      probes: number of calls that were made to see if it answers again.
      probe_at: the time of the next such call.
    """

    since: float
    probes: int
    probe_at: float


@dataclasses.dataclass(frozen=True)
class CallOutcome:
    """The end of a call.

    Attributes:
      outcome: `ok`, or the problem.
      seconds: total time, including waits and retries.
      cost: US dollars for the answer.
      unanswered_cost: maximum cost in US dollars of the attempts without an answer.
    """

    outcome: str
    attempts: int
    seconds: float
    prompt_tokens: int = 0
    cached_tokens: int = 0
    response_tokens: int = 0
    cost: float = 0.0
    unanswered_cost: float = 0.0


class CallLedger:
    """The ledger of a run's model calls.

    Threads can share an object, and processes the file, also on a network disk with POSIX locks. For the many
    workers of a fleet see `ledger_server`.

    Args:
      path: SQLite file; None keeps the ledger in this process's memory.
      alone: no other process opens the file meanwhile. That is faster; a crash of the machine, not of this
        process, may lose the last calls.

    Raises:
      UserError: the file is not a ledger.
      OSError: the disk is full.
      sqlite3.OperationalError: another process has locked the file for a minute.
    """

    def __init__(self, path: Path | None, alone: bool = False):
        self._path, self._lock, self._alone = path, threading.Lock(), alone
        self._connection = connect(path)
        try:
            if alone:
                # With the lock for itself, a write-ahead log needs no shared memory.
                for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=NORMAL"):
                    self._connection.execute(f"PRAGMA {pragma}")
            with self._transaction():
                for statement in _SCHEMA:
                    self._connection.execute(statement)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise
            raise UserError(
                f"{path}: not a call ledger ({error}); move it away, or use another --workdir"
            ) from error

    def close(self) -> None:
        with (
            self._lock,
            disk_full_as_os_error(self._path),
            contextlib.closing(self._connection) as connection,
        ):
            if self._alone:
                # As other processes open it. This also writes the log into the file.
                connection.execute("PRAGMA journal_mode=DELETE")

    def now(self) -> float:
        """Returns Unix time, as this process has counted it since its start.

        A clock of the machine that is set meanwhile ends no wait and no outage, and changes no duration.
        """
        return _EPOCH + time.monotonic()

    def open_call(
        self, purpose: Purpose, model: str, max_cost: float, cap: float, now: float, lease_s: float
    ) -> int | None:
        """Enters a call that is about to be made.

        Args:
          max_cost: maximum cost of the call in US dollars.
          cap: maximum cost of all calls of the run in US dollars; 0 means no cap.
          now: Unix time.
          lease_s: maximum duration; the process of a call that is open longer counts as dead.

        Returns:
          The call's id; None if the call may fit under the cap once other calls are settled.

        Raises:
          BudgetError: the call could exceed the cap.
        """
        with self._transaction():
            if cap:
                spent = self._one("SELECT total FROM spent")
                running = self._one(
                    "SELECT TOTAL(unanswered_cost) FROM calls WHERE ended IS NULL AND expires > ?", now
                )
                # `running` may shrink when open calls are settled: only the rest is certain to be spent.
                if spent - running + max_cost > cap:
                    raise _over_budget(self._path, spent - running, max_cost, cap)
                if spent + max_cost > cap:
                    return None
            return self._connection.execute(
                """INSERT INTO calls (started, expires, purpose, model, unanswered_cost)
                VALUES (?, ?, ?, ?, ?)""",
                (now, now + lease_s, purpose, model, max_cost),
            ).lastrowid

    def extend_call(self, call: int, expires: float) -> None:
        """Extends the lease of an open call until Unix time `expires`."""
        with self._transaction():
            self._connection.execute("UPDATE calls SET expires = ? WHERE id = ?", (expires, call))

    def settle_call(self, call: int, outcome: CallOutcome, now: float) -> None:
        """Enters the outcome of a call."""
        values = dataclasses.asdict(outcome)
        columns = ", ".join(f"{name} = :{name}" for name in values)
        with self._transaction():
            self._connection.execute(
                f"UPDATE calls SET ended = :now, {columns} WHERE id = :call",
                values | {"now": now, "call": call},
            )

    def take(self, bucket: str, amount: float, per_minute: float, now: float) -> float:
        """Takes an amount from a token bucket; the level may become negative.

        Returns:
          Seconds to wait before the amount may be used.
        """
        rate = per_minute / 60
        full = max(1.0, rate * BURST_S)
        with self._transaction():
            level, paused = self._level(bucket, full, rate, now)
            self._set_level(bucket, level - amount, now)
            # A call larger than the bucket waits for a full one; the debt delays the calls after it.
            return max(0.0, (min(amount, full) - level) / rate, paused - now)

    def give(self, bucket: str, amount: float, per_minute: float, now: float) -> None:
        """Returns an unused amount to a bucket; a negative amount takes what was used in excess."""
        rate = per_minute / 60
        full = max(1.0, rate * BURST_S)
        with self._transaction():
            level, _ = self._level(bucket, full, rate, now)
            self._set_level(bucket, min(full, level + amount), now)

    def pause(self, bucket: str, until: float) -> None:
        """Blocks a bucket for every process until Unix time `until`."""
        with self._transaction():
            self._connection.execute(
                "UPDATE buckets SET paused_until = MAX(paused_until, ?) WHERE name = ?", (until, bucket)
            )

    def outage(self, model: str) -> Outage | None:
        """Returns the outage of a model; None while it answers."""
        return self.outages().get(model)

    def outages(self) -> dict[str, Outage]:
        """Returns the models that do not answer."""
        with self._lock:
            rows = self._connection.execute("SELECT model, since, probes, probe_at FROM outages").fetchall()
        return {model: Outage(*values) for model, *values in rows}

    def begin_outage(self, model: str, now: float, probe_at: float) -> bool:
        """Enters that a model does not answer; returns False if that is known."""
        with self._transaction():
            return (
                self._connection.execute(
                    "INSERT OR IGNORE INTO outages (model, since, probe_at) VALUES (?, ?, ?)",
                    (model, now, probe_at),
                ).rowcount
                > 0
            )

    def claim_probe(self, model: str, now: float, lease_s: float) -> bool:
        """Returns True to one caller, which then makes the call that is due.

        Args:
          lease_s: after this time another caller may claim it, since the first one may have been killed.
        """
        with self._transaction():
            return (
                self._connection.execute(
                    "UPDATE outages SET probes = probes + 1, probe_at = ? WHERE model = ? AND probe_at <= ?",
                    (now + lease_s, model, now),
                ).rowcount
                > 0
            )

    def postpone_probe(self, model: str, probe_at: float) -> None:
        """Sets the time of the next call, after one without an answer."""
        with self._transaction():
            self._connection.execute("UPDATE outages SET probe_at = ? WHERE model = ?", (probe_at, model))

    def end_outage(self, model: str) -> None:
        """Enters that a model answers."""
        with self._transaction():
            self._connection.execute("DELETE FROM outages WHERE model = ?", (model,))

    def totals(self) -> dict[str, dict[str, float]]:
        """Returns counts of calls and tokens, seconds and cost in US dollars, by purpose."""
        rows = self._connection.execute(
            """SELECT purpose, COUNT(*), TOTAL(outcome <> 'ok'), TOTAL(attempts), TOTAL(prompt_tokens),
            TOTAL(cached_tokens), TOTAL(response_tokens), TOTAL(seconds), TOTAL(cost), TOTAL(unanswered_cost)
            FROM calls GROUP BY purpose ORDER BY purpose"""
        ).fetchall()
        names = (
            *("calls", "without_answer", "attempts", "prompt_tokens", "cached_tokens", "response_tokens"),
            *("seconds", "cost_usd", "unanswered_cost_usd"),
        )
        integers = 6  # The first six columns are counts; SQLite's TOTAL returns floats.
        return {
            purpose: {
                name: int(value) if at < integers else value
                for at, (name, value) in enumerate(zip(names, values, strict=True))
            }
            for purpose, *values in rows
        }

    def by_model(self) -> list[dict[str, Any]]:
        """Returns what calls took so far by model and purpose: counts, tokens, mean seconds, dollars."""
        with self._lock:
            return _rows(self._connection)

    def spent(self) -> float:
        """Returns the US dollars spent so far, including the maximum cost of unanswered calls."""
        return self._one("SELECT total FROM spent")

    def _level(self, bucket: str, full: float, rate: float, now: float) -> tuple[float, float]:
        """Returns a bucket's current level (negative while callers wait) and the end of its pause."""
        row = self._connection.execute(
            "SELECT level, at, paused_until FROM buckets WHERE name = ?", (bucket,)
        ).fetchone()
        if row is None:
            return full, 0.0
        level, at, paused = row
        # max: another process may have entered a later time.
        return min(full, level + max(0.0, now - at) * rate), paused

    def _set_level(self, bucket: str, level: float, now: float) -> None:
        self._connection.execute(
            """INSERT INTO buckets (name, level, at) VALUES (?, ?, ?)
            ON CONFLICT (name) DO UPDATE SET level = excluded.level, at = MAX(at, excluded.at)""",
            (bucket, level, now),
        )

    def _one(self, query: str, *values: Any) -> float:
        return self._connection.execute(query, values).fetchone()[0]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, disk_full_as_os_error(self._path):
            # Locks the file before reading, so that two processes cannot decide on the same state.
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def read_by_model(path: Path) -> list[dict[str, Any]]:
    """Returns `CallLedger.by_model` of a file; nothing if there is none, or a run has it for itself."""
    if not path.is_file():
        return []
    address = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=0)) as connection:
            return _rows(connection)
    except sqlite3.Error:
        return []


def _rows(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    cursor = connection.execute(_BY_MODEL)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def connect(path: Path | None) -> sqlite3.Connection:
    """Opens an SQLite file that threads and processes share; None opens a database in memory."""
    # The default rollback journal, not WAL: WAL needs shared memory, which network disks do not have.
    return sqlite3.connect(
        ":memory:" if path is None else path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )


@contextlib.contextmanager
def disk_full_as_os_error(path: Path | None) -> Iterator[None]:
    """Turns SQLite's error for a full disk into `OSError`, which callers handle for all files alike."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise


def _over_budget(path: Path | None, spent: float, max_cost: float, cap: float) -> BudgetError:
    where = f" (calls in {path})" if path else ""
    return BudgetError(
        f"budget: ${spent:.4f} spent of a cap of ${cap:.4f}, and the next call may cost ${max_cost:.4f}"
        f"{where}; finished work is kept: raise config.actor.cap_usd and run the same command again"
    )
