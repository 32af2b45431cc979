"""The check of a new project pays for exactly what was asked."""

import contextlib
import hashlib
import pathlib
import sqlite3

import pytest

from collection.environments.apps.ihatemoney.site import PROJECTS, IHateMoney
from collection.environments.apps.ihatemoney.tasks import TEMPLATES


def hash_of(code: str) -> str:
    """A hash as Werkzeug makes it, which I Hate Money stores."""
    found = hashlib.scrypt(code.encode(), salt=b"salt", n=32768, r=8, p=1, maxmem=132 * 32768 * 8)
    return f"scrypt:32768:8:1$salt${found.hex()}"


@pytest.mark.parametrize(
    ("changes", "paid"),
    [
        ({}, True),
        ({"code": "open-x"}, False),
        ({"email": "keeper@example.org"}, False),
        ({"name": "Another"}, False),
        ({"identity": "group-9"}, False),
    ],
)
def test_a_new_project_is_paid_with_its_code_and_address_only(tmp_path: pathlib.Path, changes, paid):
    asked = TEMPLATES["new-project"](next(iter(PROJECTS.values())), 4).made
    assert asked is not None
    done = {**vars(asked), **changes}
    application = IHateMoney(tmp_path)
    path = application.data / application.database
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE project (id, name, password, contact_email);"
            "CREATE TABLE person (id, name, weight, activated, project_id);"
            "CREATE TABLE billowers (bill_id, person_id);"
            "CREATE TABLE bill (id, what, amount, date, payer_id, bill_type);"
        )
        row = (done["identity"], done["name"], hash_of(done["code"]), done["email"])
        database.execute("INSERT INTO project VALUES (?, ?, ?, ?)", row)
        database.commit()
    assert application.holds(asked) is paid
