"""Makes, fills and serves a Roundup; run by its own environment: `make|fill|serve DATA [PORT]`."""

# The application is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import os
import pathlib
import shutil
import socketserver
import sqlite3
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode
from wsgiref import simple_server

URL = "http://roundup.test/"


def _configure(home: pathlib.Path) -> None:
    from roundup.configuration import CoreConfig

    config = CoreConfig()
    settings = {
        "TRACKER_NAME": "Railway museum",
        "TRACKER_WEB": URL,
        "MAIL_DOMAIN": "roundup.test",
        # The tracker would send each message to the people of its issue.
        "MAIL_DEBUG": os.devnull,
        "RDBMS_BACKEND": "sqlite",
        "INDEXER": "native",
        # The other protection writes a row for each form that is shown.
        "WEB_USE_TOKENLESS_CSRF_PROTECTION": "yes",
    }
    for name, value in settings.items():
        config[name] = value
    config.save(str(home / "config.ini"))


def make(kept: pathlib.Path) -> None:
    """Makes `tracker/` of Roundup's own template, without issues."""
    import roundup.instance
    from roundup.password import Password

    home = kept / "tracker"
    shutil.copytree(pathlib.Path(sys.prefix) / "share/roundup/templates/classic", home)
    _configure(home)
    roundup.instance.open(str(home)).init(Password(os.urandom(16).hex(), scheme="SSHA"))


def fill(data: pathlib.Path) -> None:
    """Writes the world in `world.json` into the tracker."""
    import roundup.instance
    from roundup.date import Date

    world = {
        table: dict(rows)
        for table, rows in json.loads((data / "world.json").read_text(encoding="utf-8")).items()
    }
    db = roundup.instance.open(str(data / "tracker")).open("admin")
    keywords = {name: db.keyword.create(name=name) for name in world["keywords"]}
    users = {
        name: db.user.create(username=name, **row)
        for name, row in world["users"].items()
        if name not in ("admin", "anonymous")
    }
    for number, row in world["issues"].items():
        # Who is logged in is the creator.
        db.setCurrentUser(row["creator"])
        messages = [
            db.msg.create(author=users[one["author"]], content=one["text"], date=Date("2026-03-02.09:00"))
            for one in world["messages"].values()
            if one["issue"] == number
        ]
        files = [
            db.file.create(name=one["name"], type=one["type"], content=one["content"])
            for one in world["files"].values()
            if one["issue"] == number
        ]
        db.issue.create(
            title=row["title"],
            priority=db.priority.lookup(row["priority"]),
            status=db.status.lookup(row["status"]),
            assignedto=users.get(row["assignedto"]),
            nosy=[users[name] for name in row["nosy"]],
            keyword=[keywords[name] for name in row["keywords"]],
            superseder=[str(other) for other in row["superseder"]],
            messages=messages,
            files=files,
        )
    numbers = {"keyword": keywords, "assignedto": users}
    saved = {}
    for row in world["queries"].values():
        db.setCurrentUser(row["creator"])
        values = {}
        for name, value in (one.split(": ", 1) for one in row["filters"]):
            values[name] = numbers[name][value] if name in numbers else db.getclass(name).lookup(value)
        url = (
            "@columns=id,activity,title,status,assignedto&@sort=activity&@group=priority"
            f"&@filter={','.join(values)}&@pagesize=50&@startwith=0&{urlencode(values)}"
        )
        creator = users[row["creator"]]
        made = db.query.create(name=row["name"], klass="issue", url=url, private_for=creator)
        saved.setdefault(creator, []).append(made)
    for creator, queries in saved.items():
        db.user.set(creator, queries=queries)
    db.commit()
    db.close()
    _date(data / "tracker/db/db")


def _date(path: pathlib.Path) -> None:
    """Gives each row the day of its number, whenever it was made; lists are sorted by it."""
    database = sqlite3.connect(path)
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        names = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        if "_activity" in names:
            for (number,) in database.execute(f'SELECT id FROM "{table}"').fetchall():
                when = f"2026{3 + number // 28:02d}{1 + number % 28:02d}090000.000"
                changes = "_creation = ?, _activity = ?" + (", _date = ?" if "_date" in names else "")
                values = [when] * changes.count("?")
                database.execute(f'UPDATE "{table}" SET {changes} WHERE id = ?', (*values, number))
        elif table.endswith("__journal"):
            database.execute(f"UPDATE \"{table}\" SET date = '20260301090000.000'")
    database.commit()
    # One file alone: its journal would be another.
    database.execute("PRAGMA journal_mode = DELETE")
    database.close()


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True


def serve(data: pathlib.Path, port: int, user: str = "kim") -> None:
    """Serves it, to `user` alone: who opens the site is logged in."""
    from roundup.cgi.wsgi_handler import RequestDispatcher

    tracker = RequestDispatcher(str(data / "tracker"))

    def application(environment: dict[str, Any], start: Callable[..., Any]) -> Any:
        return tracker({**environment, "REMOTE_USER": user}, start)

    simple_server.make_server("127.0.0.1", port, application, server_class=_Server).serve_forever()


def main(command: str, data: str, port: str = "0") -> None:
    os.environ["TZ"] = "UTC"
    if command == "serve":
        serve(pathlib.Path(data), int(port))
    else:
        {"make": make, "fill": fill}[command](pathlib.Path(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
