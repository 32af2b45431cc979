"""Trac, an issue tracker with a wiki: tickets, milestones, pages; on SQLite."""

from __future__ import annotations

import pathlib
from typing import ClassVar

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.templates import Draw
from collection.environments.apps.trac.tasks import TEMPLATES
from collection.environments.apps.trac.world import make_world
from collection.environments.apps.world import World

# Trac imports pkg_resources, which later versions of setuptools lack.
REQUIREMENTS = ("Trac==1.6", "Jinja2==3.1.6", "MarkupSafe==3.0.3", "setuptools==80.9.0")
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")
# A change without words has an empty comment.
_COMMENTS = """
(SELECT json_group_array(newvalue) FROM (SELECT newvalue FROM ticket_change
  WHERE ticket = id AND field = 'comment' AND newvalue != '' ORDER BY time))
"""
_TICKETS = f"""
SELECT id, summary, type, priority, component, milestone, owner, reporter, keywords, status, resolution,
  cc, severity, version, description, {_COMMENTS} AS "comments[]" FROM ticket
"""
_PAGES = """
SELECT name, text FROM wiki AS now WHERE version = (SELECT max(version) FROM wiki WHERE name = now.name)
"""


class Trac(PythonSite):
    """http://trac.test/: a harbour's tickets and pages, open to everyone."""

    name = "trac"
    host = "trac.test"
    templates = TEMPLATES
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/wiki"
    database = "trac/db/trac.db"
    carried = ("hand-over", "give-to-reporter", "keywords-of-page")
    by_views = ("session", "session_attribute", "auth_cookie")
    version = digest(REQUIREMENTS, _SCRIPT.read_text(encoding="utf-8"))
    tables: ClassVar = {
        "components": "SELECT name, owner FROM component",
        "milestones": "SELECT name, date(due / 1000000, 'unixepoch') AS due FROM milestone",
        "tickets": _TICKETS,
        "pages": _PAGES,
    }

    def make_world(self, draw: Draw) -> World:
        return make_world(draw)
