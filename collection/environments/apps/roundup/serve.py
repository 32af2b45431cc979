"""Creates and serves a Roundup; run by the Python of its own environment: `create|serve DATA [PORT]`."""

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


def create(data: pathlib.Path) -> None:
    """Makes `tracker/` of Roundup's own template, from `work.json`."""
    import roundup.instance
    from roundup.date import Date
    from roundup.password import Password

    work = json.loads((data / "work.json").read_text(encoding="utf-8"))
    home = data / "tracker"
    shutil.copytree(pathlib.Path(sys.prefix) / "share/roundup/templates/classic", home)
    _configure(home)
    tracker = roundup.instance.open(str(home))
    tracker.init(Password(os.urandom(16).hex(), scheme="SSHA"))
    db = tracker.open("admin")
    keywords = {name: db.keyword.create(name=name) for name in work["keywords"]}
    users = {name: db.user.create(username=name, **fields) for name, fields in work["people"].items()}
    for one in work["issues"]:
        # Who is logged in is the creator.
        db.setCurrentUser(one["messages"][0][0])
        messages = [
            db.msg.create(author=users[author], content=text, date=Date("2026-03-02.09:00"))
            for author, text in one["messages"]
        ]
        files = [db.file.create(name=name, type=kind, content=text) for name, kind, text in one["files"]]
        db.issue.create(
            title=one["title"],
            priority=db.priority.lookup(one["priority"]),
            status=db.status.lookup(one["status"]),
            assignedto=users.get(one["assignedto"]),
            nosy=[users[name] for name in one["nosy"]],
            keyword=[keywords[name] for name in one["keywords"]],
            superseder=[str(number) for number in one["superseder"]],
            messages=messages,
            files=files,
        )
    db.setCurrentUser(work["user"])
    numbers = {"keyword": keywords, "assignedto": users}
    saved = []
    for name, filters in work["queries"].items():
        values = {
            one: numbers[one][value] if one in numbers else db.getclass(one).lookup(value)
            for one, value in filters.items()
        }
        url = (
            "@columns=id,activity,title,status,assignedto&@sort=activity&@group=priority"
            f"&@filter={','.join(values)}&@pagesize=50&@startwith=0&{urlencode(values)}"
        )
        saved.append(db.query.create(name=name, klass="issue", url=url, private_for=users[work["user"]]))
    db.user.set(users[work["user"]], queries=saved)
    db.commit()
    db.close()
    _date(home / "db/db")


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
    if command == "create":
        create(pathlib.Path(data))
        return
    serve(pathlib.Path(data), int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
