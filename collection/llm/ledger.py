"""Every model call of a run in one SQLite file, shared by all its processes and kept over kills.

A call is entered before it is made, at the most it may cost, and settled when it is answered. One whose
process was killed stays entered at that most, since it may have been billed: a cap holds whatever happens.
pyrate-limiter also has a bucket in SQLite, but stores a row for every token, which no prompt can pay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collection.llm.model import BudgetError, Purpose
from rmsweb_jax.errors import UserError

# Its usual name in a run's workdir.
LEDGER = "calls.sqlite"
# A bucket holds at most so many seconds' worth, so that a minute's allowance cannot come in one burst.
BURST_S = 6.0
_BUSY_S = 60.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (
  id INTEGER PRIMARY KEY, started REAL NOT NULL, expires REAL NOT NULL, ended REAL,
  purpose TEXT NOT NULL, model TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
  prompt_tokens INTEGER NOT NULL DEFAULT 0, cached_tokens INTEGER NOT NULL DEFAULT 0,
  response_tokens INTEGER NOT NULL DEFAULT 0, seconds REAL NOT NULL DEFAULT 0,
  cost REAL NOT NULL DEFAULT 0, unanswered_cost REAL NOT NULL, outcome TEXT NOT NULL DEFAULT 'open'
);
CREATE INDEX IF NOT EXISTS open_calls ON calls (expires) WHERE ended IS NULL;
CREATE TABLE IF NOT EXISTS buckets (
  name TEXT PRIMARY KEY, level REAL NOT NULL, at REAL NOT NULL, paused_until REAL NOT NULL DEFAULT 0
);
"""


@dataclasses.dataclass(frozen=True)
class Settled:
    """How a call ended.

    Attributes:
      seconds: waits and repetitions included.
      cost: US dollars, of the answer.
      unanswered_cost: the most that attempts without an answer may have cost.
      outcome: `ok`, or what was wrong.
    """

    outcome: str
    attempts: int
    seconds: float
    prompt_tokens: int = 0
    cached_tokens: int = 0
    response_tokens: int = 0
    cost: float = 0.0
    unanswered_cost: float = 0.0


class Ledger:
    """The file, or with None a ledger of this process alone.

    Safe to share by threads and, by its path, by processes (on a network disk that has POSIX locks, too).

    Raises:
      UserError: the file is no ledger.
      OSError: the disk is full.
      sqlite3.OperationalError: another process holds the file for a minute.
    """

    def __init__(self, path: Path | None):
        self._path, self._lock = path, threading.Lock()
        # The rollback journal, not WAL, which network disks cannot share.
        self._connection = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            with self._transaction():
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._connection.execute(statement)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise
            raise UserError(
                f"{path}: no ledger of calls ({error}); move it away, or use another --workdir"
            ) from error

    def close(self) -> None:
        self._connection.close()

    def open_call(
        self, purpose: Purpose, model: str, most: float, cap: float, now: float, lease_s: float
    ) -> int | None:
        """Enters a call that is about to be made.

        Args:
          most: what it may cost in US dollars.
          cap: of all calls of the run, in US dollars; 0: none.
          now: Unix time.
          lease_s: how long it takes at most; a call that is open longer belongs to a process that is dead.

        Returns:
          Its id; None when the cap may leave room for it once other calls are settled.

        Raises:
          BudgetError: the cap leaves no room.
        """
        with self._transaction():
            if cap:
                spent = self._one("SELECT TOTAL(cost + unanswered_cost) FROM calls")
                running = self._one(
                    "SELECT TOTAL(unanswered_cost) FROM calls WHERE ended IS NULL AND expires > ?", now
                )
                if spent - running + most > cap:
                    raise _over(self._path, spent - running, most, cap)
                if spent + most > cap:
                    return None
            return self._connection.execute(
                """INSERT INTO calls (started, expires, purpose, model, unanswered_cost)
                VALUES (?, ?, ?, ?, ?)""",
                (now, now + lease_s, purpose, model, most),
            ).lastrowid

    def extend_call(self, call: int, expires: float) -> None:
        """Says that a call is still being made, until Unix time `expires` at most."""
        with self._transaction():
            self._connection.execute("UPDATE calls SET expires = ? WHERE id = ?", (expires, call))

    def settle_call(self, call: int, settled: Settled, now: float) -> None:
        """Enters how a call ended."""
        values = dataclasses.asdict(settled)
        columns = ", ".join(f"{name} = :{name}" for name in values)
        with self._transaction():
            self._connection.execute(
                f"UPDATE calls SET ended = :now, {columns} WHERE id = :call",
                values | {"now": now, "call": call},
            )

    def take(self, bucket: str, amount: float, per_minute: float, now: float) -> float:
        """Takes from a token bucket; first come, first served.

        Returns:
          Seconds to wait before what was taken may be used.
        """
        rate = per_minute / 60
        full = max(1.0, rate * BURST_S)
        with self._transaction():
            level, paused = self._level(bucket, full, rate, now)
            self._set_level(bucket, level - amount, now)
            return max(0.0, (min(amount, full) - level) / rate, paused - now)

    def give(self, bucket: str, amount: float, per_minute: float, now: float) -> None:
        """Gives back what was not used, or (negative) takes what was used beyond."""
        rate = per_minute / 60
        full = max(1.0, rate * BURST_S)
        with self._transaction():
            level, _ = self._level(bucket, full, rate, now)
            self._set_level(bucket, min(full, level + amount), now)

    def pause(self, bucket: str, until: float) -> None:
        """Lets nobody use what they take before Unix time `until`."""
        with self._transaction():
            self._connection.execute(
                "UPDATE buckets SET paused_until = MAX(paused_until, ?) WHERE name = ?", (until, bucket)
            )

    def totals(self) -> dict[str, dict[str, float]]:
        """By purpose: calls, calls without a proper answer, tokens, seconds, and cost in US dollars."""
        rows = self._connection.execute(
            """SELECT purpose, COUNT(*), TOTAL(outcome <> 'ok'), TOTAL(attempts), TOTAL(prompt_tokens),
            TOTAL(cached_tokens), TOTAL(response_tokens), TOTAL(seconds), TOTAL(cost), TOTAL(unanswered_cost)
            FROM calls GROUP BY purpose ORDER BY purpose"""
        ).fetchall()
        names = (
            *("calls", "without_answer", "attempts", "prompt_tokens", "cached_tokens", "response_tokens"),
            *("seconds", "cost_usd", "unanswered_cost_usd"),
        )
        whole = 6  # The first so many are counts.
        return {
            purpose: {
                name: int(value) if at < whole else value
                for at, (name, value) in enumerate(zip(names, values, strict=True))
            }
            for purpose, *values in rows
        }

    def spent(self) -> float:
        """US dollars so far, with the most that calls without an answer may have cost."""
        return self._one("SELECT TOTAL(cost + unanswered_cost) FROM calls")

    def _level(self, bucket: str, full: float, rate: float, now: float) -> tuple[float, float]:
        """What a bucket holds by now (negative: promised to those who wait), and until when it is paused."""
        row = self._connection.execute(
            "SELECT level, at, paused_until FROM buckets WHERE name = ?", (bucket,)
        ).fetchone()
        if row is None:
            return full, 0.0
        level, at, paused = row
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
        with self._lock:
            # Takes the file before reading, so that two processes cannot decide by the same state.
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path)) from error
                raise


def _over(path: Path | None, spent: float, most: float, cap: float) -> BudgetError:
    where = f" (calls in {path})" if path else ""
    return BudgetError(
        f"budget: ${spent:.4f} spent of a cap of ${cap:.4f}, and the next call may cost ${most:.4f}{where}; "
        "what was done is kept: raise config.actor.cap_usd and run the same command again"
    )
