"""SQLite databases of running applications: read, compared, and set back while their server has them open."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from collection.environments.apps.world import tidy

# What a database begins with.
MAGIC = b"SQLite format 3\0"
# Seconds to wait for a request that writes.
_BUSY_S = 10.0


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database to read only."""
    with contextlib.closing(
        sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)
    ) as database:
        yield database


def restore(kept: Path, path: Path) -> None:
    """Gives a database the content of another; connections of the server stay open and see it.

    Page by page through SQLite itself: a file that is replaced under an open connection leaves old rows, or
    an error, behind.
    """
    with reading(kept) as source:
        _copy(source, path)


def serialize(path: Path) -> bytes:
    """A database as it is now, as the content of a file."""
    with reading(path) as database:
        return database.serialize()


def deserialize(path: Path, data: bytes) -> None:
    """Gives a database, which its server may have open, the content of a file."""
    # A database in memory has no write-ahead log; the two bytes say which journal it uses.
    data = data[:18] + b"\x01\x01" + data[20:]
    with contextlib.closing(sqlite3.connect(":memory:")) as source:
        source.deserialize(data)
        _copy(source, path)


def _copy(source: sqlite3.Connection, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_S)) as database:
        # Not waiting for the disk takes a tenth of the time; what a power failure spoils is set back again.
        database.execute("PRAGMA synchronous=OFF")
        deadline = time.monotonic() + _BUSY_S

        def waited(status: int, *_: int) -> None:  # It would wait for ever.
            if status == sqlite3.SQLITE_BUSY and time.monotonic() > deadline:
                raise sqlite3.OperationalError(f"{path} is locked by a request that does not end")

        source.backup(database, progress=waited)


def rows(
    path: Path, statements: Mapping[str, str], values: Mapping[str, Any] | None = None
) -> dict[str, dict[Any, dict[str, Any]]]:
    """Reads a database as tables of rows.

    Args:
      statements: a SELECT by table; its first column is the key of a row. A column whose name ends with `[]`
        is an array in JSON (`json_group_array`), and becomes a list under the name without it.
      values: of parameters in the statements.
    """
    tables = {}
    with reading(path) as database:
        for table, statement in statements.items():
            found = database.execute(statement, values or {})
            names = [column[0] for column in found.description][1:]
            rows = tables[table] = {}
            for key, *row in found:
                while key in rows:  # Not the one row that a world has.
                    key = (key, "again")
                rows[key] = {
                    name.removesuffix("[]"): json.loads(value) if name.endswith("[]") else _value(value)
                    for name, value in zip(names, row, strict=True)
                }
    return tables


def _value(value: Any) -> Any:
    """A value as plain rows have it: nothing is an empty text."""
    return "" if value is None else tidy(value) if isinstance(value, str) else value


def is_database(path: Path | str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def damage(path: Path) -> None:
    """Deletes a row of each table; those of extensions are left alone."""
    with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_S)) as database, database:
        for (name,) in database.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND NOT wr "
            "AND name NOT LIKE 'sqlite_%'"
        ).fetchall():
            database.execute(f'DELETE FROM "{name}" WHERE rowid = (SELECT min(rowid) FROM "{name}")')


def content(path: Path, without: Collection[str] = ()) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, sorted, to compare two states; some tables are left out by name."""
    with reading(path) as database:
        names = [
            row[0]
            for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        return {
            name: sorted(database.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)
            for name in names
            if name not in without
        }
