"""Cache of model replies on disk, keyed by the request, so that no question is paid for twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

from collection.llm.ledger import connect, disk_full_as_os_error
from collection.llm.model import Model, ModelReply, ModelRequest
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import CallUsage

_TABLE = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)"


class CachedModel:
    """A model with a cache of its replies, including those that are not usable answers.

    Threads can share an object. Processes can share the file, also on a network disk with POSIX locks. A
    reply is on disk before `ask` returns it, so a kill after that loses nothing.

    Args:
      path: SQLite file of the replies; None keeps them in memory.
      keep_rejected: keep replies that could not be read; else they are asked for again.

    Attributes:
      asked: number of requests that the model answered.
      hits: number of requests answered from the cache.

    Raises:
      UserError: the file is not such a cache.
      sqlite3.OperationalError: another process has locked the file for a minute.
    """

    def __init__(self, model: Model, path: Path | None, keep_rejected: bool = True):
        self._model, self._path, self._lock = model, path, threading.Lock()
        self._keep_rejected = keep_rejected
        self._key_locks: dict[str, threading.Lock] = {}
        self.asked = self.hits = 0
        self._connection = connect(path)
        try:
            self._run(_TABLE)
            # An existing file may have a table of that name with other columns.
            self._run("SELECT key, reply FROM replies LIMIT 1")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            # A locked file is an operational error as well, but no reason to call the file invalid.
            if isinstance(error, sqlite3.OperationalError) and "no such column" not in str(error):
                raise
            raise self._invalid(error) from error

    @property
    def name(self) -> str:
        return self._model.name

    def ask(self, request: ModelRequest) -> tuple[ModelReply, bool]:
        """Returns the reply, and True if it came from the cache.

        Raises:
          UserError: as `Model`; earlier replies stay in the cache.
          OSError: the disk is full.
        """
        key = content_key(self.name, request)
        with self._lock:
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        # Two threads with the same request pay once; other requests do not wait.
        with key_lock:
            rows = self._run("SELECT reply FROM replies WHERE key = ?", key)
            if rows:
                cached = self._read(rows[0][0])
                with self._lock:
                    self.hits += 1
                return cached, True
            reply = self._model.complete(request)
            self._run("INSERT OR REPLACE INTO replies VALUES (?, ?)", key, _write(reply))
            with self._lock:
                self.asked += 1
            return reply, False

    def reject(self, request: ModelRequest) -> None:
        """Says that the reply to a request could not be read."""
        if not self._keep_rejected:
            self._run("DELETE FROM replies WHERE key = ?", content_key(self.name, request))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> CachedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, statement: str, *values: str) -> list[Any]:
        """Runs one statement in its own transaction."""
        with self._lock, disk_full_as_os_error(self._path):
            return self._connection.execute(statement, values).fetchall()

    def _read(self, line: str) -> ModelReply:
        try:
            stored = json.loads(line)
            usage = CallUsage(**stored["usage"])
            return ModelReply(
                stored["text"],
                usage,
                stored["problem"],
                stored["cached_tokens"],
                # Caches of before this was recorded can still be read.
                model_version=stored.get("model_version", ""),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise self._invalid(error) from error

    def _invalid(self, error: Exception) -> UserError:
        reason = " ".join(str(error).split())[:100]
        return UserError(
            f"{self._path}: not a reply cache of this version ({reason}); "
            "move it away, or use another --workdir"
        )


def content_key(name: str, request: ModelRequest) -> str:
    """Returns the SHA-256 of the model's name, the messages (images by their hash) and the schema."""
    messages = [message.model_dump(mode="json") for message in request.messages]
    asked: list[Any] = [name, messages, request.schema]
    if request.chat is not None:
        asked += [request.chat, request.repeat]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _write(reply: ModelReply) -> str:
    # ASCII, because a model's text may contain half a surrogate pair, which has no UTF-8 form.
    return json.dumps(
        {
            "text": reply.text,
            "problem": reply.problem,
            "usage": reply.usage.model_dump(),
            "cached_tokens": reply.cached_tokens,
            "model_version": reply.model_version,
        }
    )
