"""Replies of a model kept on disk by what was asked, so that no question is paid for twice."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from collection.llm.model import Model, ModelReply, ModelRequest
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage

_BUSY_S = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)"


class Cached:
    """A model whose replies are remembered, those that are no proper answer too.

    Threads may share it, and processes its file (on a network disk that has POSIX locks, too), each with an
    object of its own. A reply is on disk before `ask` returns it, whatever kills the process after that.

    Args:
      path: SQLite file of the replies; None: kept in memory alone.

    Attributes:
      asked: questions that the model answered.
      hits: questions that cost nothing, since their reply was known.

    Raises:
      UserError: the file is no such cache.
      sqlite3.OperationalError: another process holds the file for a minute.
    """

    def __init__(self, model: Model, path: Path | None):
        self._model, self._path, self._lock = model, path, threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self.asked = self.hits = 0
        # The rollback journal, not WAL, which network disks cannot share.
        self._connection = sqlite3.connect(
            ":memory:" if path is None else path,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._run(_TABLE)
            self._run("SELECT key, reply FROM replies LIMIT 1")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            # A file in use is an error of operation, too.
            if isinstance(error, sqlite3.OperationalError) and "no such column" not in str(error):
                raise
            raise self._foreign(error) from error

    @property
    def name(self) -> str:
        return self._model.name

    def ask(self, request: ModelRequest) -> tuple[ModelReply, bool]:
        """The reply, and whether it was known.

        Raises:
          UserError: as `Model`; what was answered before is kept.
          OSError: the disk is full.
        """
        key = content_key(self.name, request)
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        # Two threads with the same question pay once; other questions do not wait.
        with turn:
            rows = self._run("SELECT reply FROM replies WHERE key = ?", key)
            if rows:
                known = self._read(rows[0][0])
                with self._lock:
                    self.hits += 1
                return known, True
            reply = self._model.complete(request)
            self._run("INSERT OR REPLACE INTO replies VALUES (?, ?)", key, _write(reply))
            with self._lock:
                self.asked += 1
            return reply, False

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Cached:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, statement: str, *values: str) -> list[Any]:
        """Runs one statement, a transaction of its own."""
        with self._lock:
            try:
                return self._connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path)) from error
                raise

    def _read(self, line: str) -> ModelReply:
        try:
            kept = json.loads(line)
            usage = CallUsage(**kept["usage"])
            return ModelReply(kept["text"], usage, kept["problem"], kept["cached_tokens"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._foreign(error) from error

    def _foreign(self, error: Exception) -> UserError:
        reason = " ".join(str(error).split())[:100]
        return UserError(
            f"{self._path}: no cache of replies of this version ({reason}); "
            "move it away, or use another --workdir"
        )


def content_key(name: str, request: ModelRequest) -> str:
    """SHA-256 of the model's name, the messages (images by their own hash) and the schema."""
    messages = [message.model_dump(mode="json") for message in request.messages]
    return hashlib.sha256(json.dumps([name, messages, request.schema]).encode()).hexdigest()


def _write(reply: ModelReply) -> str:
    # ASCII: what a model wrote may hold half a surrogate pair, which has no UTF-8.
    return json.dumps(
        {
            "text": reply.text,
            "problem": reply.problem,
            "usage": reply.usage.model_dump(),
            "cached_tokens": reply.cached_tokens,
        }
    )
