"""Makes, fills and serves I Hate Money; run by the Python of its own environment.

python serve.py make|fill|serve DATA [PORT]
"""

# The application is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sqlite3
import sys
from typing import Any

DATABASE = "money.sqlite3"


def make_app(data: pathlib.Path) -> Any:
    from ihatemoney.run import create_app

    settings = type(
        "Settings",
        (),
        {
            "SQLALCHEMY_DATABASE_URI": f"sqlite:///{data / DATABASE}",
            "SECRET_KEY": "of a test site",
            # Served over plain HTTP.
            "SESSION_COOKIE_SECURE": False,
            "ACTIVATE_DEMO_PROJECT": False,
            # The limit on wrong codes would count for episodes together.
            "RATELIMIT_ENABLED": False,
            "MAIL_SUPPRESS_SEND": True,
        },
    )
    app = create_app(settings, instance_path=str(data))
    app.url_value_preprocessor(open_projects)
    return app


def open_projects(endpoint: str | None, values: Any) -> None:
    """Logs a visitor in to all projects, before the site asks whether they may see one."""
    from flask import session
    from ihatemoney.models import Project

    projects = {one.id: one.name for one in Project.query.all()}
    if session.get("projects") != projects:
        session["projects"] = projects


def fill(data: pathlib.Path) -> None:
    """Writes the world in `world.json` into the database."""
    world = json.loads((data / "world.json").read_text(encoding="utf-8"))
    with contextlib.closing(sqlite3.connect(data / DATABASE)) as database, database:
        for identity, row in world["projects"]:
            database.execute(
                "INSERT INTO project "
                "(id, name, password, contact_email, default_currency, logging_preference) VALUES "
                "(:id, :name, :code, :email, :currency, :history)",
                {"id": identity, **row},
            )
        people = {}
        for number, (_, row) in enumerate(world["members"], start=1):
            people[row["project"], row["name"]] = number
            database.execute(
                "INSERT INTO person (id, project_id, name, weight, activated) "
                "VALUES (:id, :project, :name, :weight, :active)",
                {"id": number, **row},
            )
        for number, row in world["bills"]:
            owers = row.pop("owers")
            database.execute(
                "INSERT INTO bill (id, payer_id, what, amount, converted_amount, date, creation_date, "
                "bill_type, external_link, original_currency) "
                "VALUES (:id, :person, :what, :amount, :amount, :date, :date, :kind, :link, 'XXX')",
                {"id": number, "person": people[row["project"], row["payer"]], **row},
            )
            pairs = [(number, people[row["project"], name]) for name in owers]
            database.executemany("INSERT INTO billowers (bill_id, person_id) VALUES (?, ?)", pairs)


def main(command: str, data: str, port: str = "0") -> None:
    os.environ["TZ"] = "UTC"
    if command == "fill":
        fill(pathlib.Path(data))
        return
    app = make_app(pathlib.Path(data))
    if command == "serve":
        from werkzeug.serving import run_simple

        run_simple("127.0.0.1", int(port), app, threaded=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
