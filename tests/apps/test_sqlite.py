"""Databases are set back while connections of their server stay open."""

import contextlib
import pathlib
import random
import sqlite3

import pytest

from collection.environments.apps.sqlite import content, deserialize, restore, rows, serialize


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_an_open_connection_sees_the_restored_rows_every_time(tmp_path: pathlib.Path, journal: str) -> None:
    live, kept = tmp_path / "live.sqlite3", tmp_path / "kept.sqlite3"
    draw = random.Random(7)
    with contextlib.closing(sqlite3.connect(live)) as server:
        server.execute(f"PRAGMA journal_mode={journal}")
        server.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")
        server.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY)")
        server.executemany(
            "INSERT INTO notes (text) VALUES (?)", [(f"note {number}",) for number in range(50)]
        )
        server.commit()
        kept.write_bytes(serialize(live))
        sqlite3.connect(kept).execute("PRAGMA journal_mode=delete").connection.close()
        before, taken = content(live), serialize(live)
        assert content(kept) == before and len(before["notes"]) == 50
        for round_ in range(40):
            change = draw.choice(
                ("DELETE FROM notes WHERE id % 2", "UPDATE notes SET text = 'other'", "DROP TABLE notes")
            )
            server.execute(change)
            server.execute("INSERT INTO sessions VALUES (?)", (round_,))
            server.commit()
            assert content(live) != before
            restore(kept, live) if round_ % 2 else deserialize(live, taken)
            assert content(live) == before
            assert server.execute("SELECT count(*), min(text) FROM notes").fetchone() == (50, "note 0")
        server.execute("INSERT INTO sessions VALUES (99)")
        server.commit()
        assert content(live, without={"sessions"}) == content(kept, without={"sessions"})


def test_rows_with_the_same_key_are_all_there(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "shop.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE item (name TEXT, price REAL)")
        database.execute("INSERT INTO item VALUES ('a', 1), ('a', 2)")
    assert len(rows(path, {"items": "SELECT name, price FROM item"})["items"]) == 2


def test_a_database_that_stays_locked_is_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collection.environments.apps.sqlite._BUSY_S", 0.1)
    path, kept = tmp_path / "live.sqlite3", tmp_path / "kept.sqlite3"
    for one in (path, kept):
        with contextlib.closing(sqlite3.connect(one)) as database, database:
            database.execute("CREATE TABLE item (name TEXT)")
    with contextlib.closing(sqlite3.connect(path)) as server:
        server.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked by a request that does not end"):
            restore(kept, path)


def test_rows_are_read_with_lists_and_tidy_texts(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "shop.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL)")
        database.execute("CREATE TABLE tag (item INTEGER, name TEXT)")
        database.execute("INSERT INTO item VALUES (1, 'a\r\n\r\n\r\nb ', 2.5), (2, NULL, 3)")
        database.execute("INSERT INTO tag VALUES (1, 'red'), (1, 'new')")
    tags = "(SELECT json_group_array(name) FROM (SELECT name FROM tag WHERE item = item.id ORDER BY name))"
    found = rows(
        path,
        {"items": f'SELECT id, name, price, {tags} AS "tags[]" FROM item WHERE price > :least'},
        {"least": 1},
    )
    assert found == {
        "items": {
            1: {"name": "a\n\nb", "price": 2.5, "tags": ["new", "red"]},
            2: {"name": "", "price": 3.0, "tags": []},
        }
    }
