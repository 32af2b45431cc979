"""django-helpdesk, a support desk: tickets in queues, follow-ups, a knowledge base; on SQLite."""

from __future__ import annotations

import base64
import json
import pathlib
from collections.abc import Mapping
from typing import Any, ClassVar

from collection.environments.apps.application import digest
from collection.environments.apps.helpdesk.tasks import TEMPLATES
from collection.environments.apps.helpdesk.world import SETTINGS, STAFF, STATUSES, UNUSED, make_world
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World

REQUIREMENTS = (
    *("django-helpdesk==2.6.1", "Django==5.2.19", "asgiref==3.13.0", "beautifulsoup4==4.15.0"),
    *("django-cleanup==9.0.0", "django-model-utils==5.0.0", "djangorestframework==3.18.3"),
    *("email-reply-parser==0.5.12", "Markdown==3.11.3", "nh3==0.3.8", "oauthlib==4.0.1"),
    *("requests==2.34.2", "requests-oauthlib==2.0.0", "soupsieve==4.1.3", "sqlparse==0.6.1"),
)
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")
_STATUS = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(STATUSES, start=1))


def _list(what: str, rows: str) -> str:
    """Values of a ticket's rows of another table, as JSON."""
    return f"(SELECT json_group_array({what}) FROM (SELECT * FROM {rows}))"


_COPY = """coalesce(email, (SELECT email FROM auth_user WHERE id = user_id))
    || iif(can_view, ' may view', '') || iif(can_update, ' may update', '')"""
_COPIES = _list(_COPY, "helpdesk_ticketcc WHERE ticket_id = t.id ORDER BY email")
_NEEDS = _list("depends_on_id", "helpdesk_ticketdependency WHERE ticket_id = t.id ORDER BY depends_on_id")
_STEPS = _list(
    "json_array(description, completion_date IS NOT NULL)",
    "helpdesk_checklisttask WHERE checklist_id IN (SELECT id FROM helpdesk_checklist WHERE ticket_id = t.id) "
    "ORDER BY checklist_id, position, id",
)
# Changes without words are follow-ups, too.
_NOTES = _list(
    "json_array(comment, public, coalesce((SELECT username FROM auth_user WHERE id = user_id), ''))",
    "helpdesk_followup WHERE ticket_id = t.id AND comment <> '' ORDER BY date, id",
)
_TICKETS = f"""
SELECT t.id, t.title, q.slug AS queue, t.description, submitter_email AS submitter, priority,
  CASE status {_STATUS} END AS status, u.username AS owner, date(due_date) AS due, resolution, on_hold,
  merged_to_id AS merged, i.title AS article, {_COPIES} AS "copies[]", {_NEEDS} AS "needs[]",
  {_STEPS} AS "steps[]", {_NOTES} AS "notes[]"
FROM helpdesk_ticket t JOIN helpdesk_queue q ON q.id = t.queue_id
  LEFT JOIN auth_user u ON u.id = assigned_to_id LEFT JOIN helpdesk_kbitem i ON i.id = kbitem_id
"""
_ARTICLES = """
SELECT i.id, i.title, c.slug AS category, question, answer, recommendations AS votes_for,
  votes - recommendations AS votes_against, enabled AS shown
FROM helpdesk_kbitem i JOIN helpdesk_kbcategory c ON c.id = category_id
"""
_IGNORED = "SELECT id, name, email_address AS address, keep_in_mailbox AS kept FROM helpdesk_ignoreemail"
_MINE = f"SELECT '{STAFF[0]}', {', '.join(SETTINGS)} FROM helpdesk_usersettings WHERE user_id = 1"
_COUNTS = ", ".join(f"(SELECT count(*) FROM helpdesk_{name}) AS {name}" for name in UNUSED)


class Helpdesk(PythonSite):
    """http://helpdesk.test/: a library's desk, open as the first agent's; at `/public/`, as a visitor's."""

    name = "helpdesk"
    host = "helpdesk.test"
    templates = TEMPLATES
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/kb/"
    database = "desk.sqlite3"
    carried = ("page-size", "tell", "same-owner")
    version = digest(REQUIREMENTS, _SCRIPT.read_text(encoding="utf-8"))
    tables: ClassVar = {
        "queues": "SELECT slug, title FROM helpdesk_queue ORDER BY id",
        "categories": "SELECT slug, title FROM helpdesk_kbcategory",
        "tickets": _TICKETS,
        "articles": _ARTICLES,
        "replies": "SELECT id, name, body AS text FROM helpdesk_presetreply",
        "searches": "SELECT id, title, shared, query FROM helpdesk_savedsearch",
        "ignored": _IGNORED,
        "settings": _MINE,
        "others": f"SELECT 'rows', (SELECT count(*) FROM auth_user) AS users, {_COUNTS}",
    }

    def make_world(self, draw: Draw) -> World:
        return make_world(draw)

    def read(self) -> World:
        world = super().read()
        queues = list(world["queues"])
        searches = {number: _search(row, queues) for number, row in world["searches"].items()}
        return {**world, "searches": searches}


def _search(row: Mapping[str, Any], queues: list[str]) -> dict[str, Any]:
    """A saved query as plain values."""
    query = json.loads(base64.b64decode(row["query"]))
    filters = dict(query["filtering"])
    numbers, statuses, priorities = (
        filters.pop(name, ()) for name in ("queue__id__in", "status__in", "priority__in")
    )
    other = [str(one) for one in (query.get("search_string"), filters, query.get("filtering_null")) if one]
    return {
        "title": row["title"],
        "shared": row["shared"],
        "queues": sorted(queues[number - 1] for number in numbers),
        "statuses": sorted(STATUSES[status - 1] for status in statuses),
        "priorities": sorted(priorities),
        "other": " ".join(other),
    }
