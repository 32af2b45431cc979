"""I Hate Money, which keeps the accounts of a group: projects, people, bills; Flask on SQLite."""

from __future__ import annotations

import pathlib
from typing import ClassVar

from collection.environments.apps.application import digest
from collection.environments.apps.ihatemoney.tasks import TEMPLATES
from collection.environments.apps.ihatemoney.world import make_world
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World

REQUIREMENTS = (
    *("ihatemoney==7.2.1", "alembic==1.20.1", "aniso8601==10.0.1", "babel==2.19.0", "blinker==1.9.0"),
    *("cachetools==6.2.6", "click==8.5.1", "debts==0.5", "dnspython==2.9.2", "email-validator==2.3.0"),
    *(
        "Flask==3.1.3",
        "flask-babel==4.0.0",
        "flask-cors==6.0.5",
        "Flask-Limiter==4.1.1",
        "Flask-Mail==0.10.0",
    ),
    *("Flask-Migrate==4.1.0", "Flask-RESTful==0.3.10", "Flask-SQLAlchemy==3.1.1", "flask-talisman==1.1.0"),
    *("Flask-WTF==1.2.2", "limits==5.8.0", "python-dateutil==2.9.0.post0", "pytz==2026.2", "qrcode==8.2"),
    *(
        "requests==2.32.5",
        "SQLAlchemy==2.0.58",
        "SQLAlchemy-Continuum==1.5.2",
        "Werkzeug==3.1.9",
        "WTForms==3.2.2",
    ),
)
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")
_OWERS = """
(SELECT json_group_array(name) FROM (SELECT name FROM billowers JOIN person ON person.id = person_id
  WHERE bill_id = bill.id ORDER BY name))
"""
_MEMBERS = """
SELECT project_id || '/' || name, project_id AS project, name, weight, activated AS active FROM person
"""
_BILLS = f"""
SELECT bill.id, project_id AS project, what, amount, date, name AS payer, {_OWERS} AS "owers[]",
  bill_type AS kind, external_link AS link FROM bill JOIN person ON person.id = payer_id
"""
_PROJECTS = """
SELECT id, name, password AS code, contact_email AS email, default_currency AS currency,
  logging_preference AS history FROM project
"""


class IHateMoney(PythonSite):
    """http://ihatemoney.test/: the accounts of some groups, open to everyone."""

    name = "ihatemoney"
    host = "ihatemoney.test"
    templates = TEMPLATES
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/healthcheck"
    database = "money.sqlite3"
    carried = ("copy", "move", "settle-up")
    version = digest(REQUIREMENTS, _SCRIPT.read_text(encoding="utf-8"))
    tables: ClassVar = {
        "projects": _PROJECTS,
        "members": _MEMBERS,
        "bills": _BILLS,
    }

    def make_world(self, draw: Draw) -> World:
        return make_world(draw)
