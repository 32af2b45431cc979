"""SQLite databases of running applications: read, compared, and set back while their server has them open."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

# Seconds to wait for a request that writes.
_BUSY_S = 10.0


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database to read only."""
    with contextlib.closing(
        sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)
    ) as database:
        yield database


def snapshot(path: Path, kept: Path) -> None:
    """Writes a copy without a journal, as it is now."""
    kept.unlink(missing_ok=True)
    with reading(path) as database:
        database.execute("VACUUM INTO ?", (str(kept),))


def restore(kept: Path, path: Path) -> None:
    """Gives a database the content of a snapshot; connections of the server stay open and see it.

    Page by page through SQLite itself: a file that is replaced under an open connection leaves old rows, or
    an error, behind.
    """
    with (
        reading(kept) as source,
        contextlib.closing(sqlite3.connect(path, timeout=_BUSY_S)) as database,
    ):
        # Not waiting for the disk takes a tenth of the time; what a power failure spoils is set back again.
        database.execute("PRAGMA synchronous=OFF")
        source.backup(database)


def is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


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
