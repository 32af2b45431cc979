"""Creates and serves I Hate Money; run by the Python of its own environment: `create|serve DATA [PORT]`."""

# The application is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

import datetime
import json
import os
import pathlib
import sys
from typing import Any


def make_app(data: pathlib.Path) -> Any:
    os.environ["TZ"] = "UTC"
    from ihatemoney.run import create_app

    settings = type(
        "Settings",
        (),
        {
            "SQLALCHEMY_DATABASE_URI": f"sqlite:///{data / 'money.sqlite3'}",
            "SECRET_KEY": "of a test site",
            # Served over plain HTTP.
            "SESSION_COOKIE_SECURE": False,
            "ACTIVATE_DEMO_PROJECT": False,
            # The limit on wrong codes would count for episodes together.
            "RATELIMIT_ENABLED": False,
            "MAIL_SUPPRESS_SEND": True,
        },
    )
    return create_app(settings, instance_path=str(data))


def create(data: pathlib.Path) -> None:
    """Fills a new database from `projects.json`, and writes each project's link to `links.json`."""
    app = make_app(data)
    links = {}
    with app.app_context():
        from ihatemoney.models import Bill, Person, Project, db
        from ihatemoney.utils import generate_password_hash
        from ihatemoney.versioning import LoggingMode

        for one in json.loads((data / "projects.json").read_text(encoding="utf-8")):
            project = Project(
                id=one["id"],
                name=one["name"],
                password=generate_password_hash(one["code"]),
                contact_email=f"{one['id']}@example.com",
                logging_preference=LoggingMode.DISABLED,
                default_currency="XXX",
            )
            db.session.add(project)
            people = {}
            for name, weight in one["members"].items():
                people[name] = Person(name=name, project=project, weight=weight)
                db.session.add(people[name])
            db.session.commit()
            for bill in one["bills"]:
                db.session.add(
                    Bill(
                        amount=bill["amount"],
                        date=datetime.date.fromisoformat(bill["date"]),
                        original_currency="XXX",
                        owers=[people[name] for name in bill["owers"]],
                        payer_id=people[bill["payer"]].id,
                        project_default_currency="XXX",
                        what=bill["what"],
                    )
                )
            db.session.commit()
            links[one["id"]] = f"/{one['id']}/join/{project.generate_token()}"
    (data / "links.json").write_text(json.dumps(links), encoding="utf-8")


def main(command: str, data: str, port: str = "0") -> None:
    if command == "create":
        create(pathlib.Path(data))
        return
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", int(port), make_app(pathlib.Path(data)), threaded=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
