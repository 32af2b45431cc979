"""Makes, fills and serves a Trac; run by the Python of its own environment: `make|fill|serve DATA [PORT]`."""

# The application is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

import datetime
import json
import os
import pathlib
import sys
import zlib

URL = "http://trac.test"
# There are no accounts: who opens the site may do what the tasks ask for.
_ALLOWED = (
    *("MILESTONE_VIEW", "ROADMAP_VIEW", "SEARCH_VIEW", "TIMELINE_VIEW", "REPORT_VIEW", "TICKET_ADMIN"),
    *("WIKI_VIEW", "WIKI_CREATE", "WIKI_MODIFY"),
)


def make(kept: pathlib.Path) -> None:
    """Makes `trac/`, an empty tracker that everyone may change."""
    from trac.env import Environment
    from trac.perm import PermissionSystem
    from trac.ticket.model import Component, Milestone
    from trac.ticket.report import ReportModule  # noqa: F401  # Registers the reports.
    from trac.wiki.api import WikiSystem
    from trac.wiki.model import WikiPage

    options = [
        ("project", "name", "Harbour works"),
        ("project", "url", URL),
        ("trac", "base_url", URL),
        ("trac", "default_timezone", "UTC"),
        ("trac", "default_dateinfo_format", "absolute"),
        ("trac", "database", "sqlite:db/trac.db"),
        ("ticket", "preserve_newlines", "true"),
        ("logging", "log_type", "none"),
    ]
    env = Environment(str(kept / "trac"), create=True, options=options)
    permissions = PermissionSystem(env)
    for action in permissions.get_user_permissions("anonymous"):
        if (("anonymous", action)) in permissions.get_all_permissions():
            permissions.revoke_permission("anonymous", action)
    for action in _ALLOWED:
        permissions.grant_permission("anonymous", action)
    for one in (*Component.select(env), *Milestone.select(env)):
        one.delete()
    # Trac's own manual would be most of the search results.
    for name in list(WikiSystem(env).get_pages()):
        WikiPage(env, name).delete()
    env.shutdown()


def fill(data: pathlib.Path) -> None:
    """Writes the world in `world.json` into the tracker."""
    from trac.env import open_environment
    from trac.ticket.model import Component, Milestone, Ticket
    from trac.wiki.model import WikiPage

    text = (data / "world.json").read_text(encoding="utf-8")
    world = json.loads(text)
    env = open_environment(str(data / "trac"))
    for name, row in world["components"]:
        component = Component(env)
        component.name, component.owner = name, row["owner"]
        component.insert()
    for name, row in world["milestones"]:
        milestone = Milestone(env)
        milestone.name = name
        milestone.due = datetime.datetime.fromisoformat(f"{row['due']}T12:00:00+00:00")
        milestone.insert()
    when = datetime.datetime(2026, 3, 2, 9, 0, tzinfo=datetime.timezone.utc)  # noqa: UP017
    for number, row in world["tickets"]:
        comments = row.pop("comments")
        ticket = Ticket(env)
        for name, value in row.items():
            ticket[name] = value
        ticket.insert(when=when + datetime.timedelta(days=number))
        for place, text in enumerate(comments, start=1):
            later = when + datetime.timedelta(days=number, hours=place)
            ticket.save_changes(row["reporter"], text, when=later)
    for name, row in world["pages"]:
        page = WikiPage(env, name)
        page.text = row["text"]
        page.save("keeper", "")
    with env.db_transaction as database:
        # A running Trac keeps the components it has read until their generation is another one.
        database("UPDATE cache SET generation = %s", (zlib.crc32(text.encode()),))
    env.shutdown()


def main(command: str, data: str, port: str = "0") -> None:
    os.environ["TZ"] = "UTC"
    if command != "serve":
        {"make": make, "fill": fill}[command](pathlib.Path(data))
        return
    from trac.web import standalone

    sys.argv = ["tracd", "-s", "--hostname", "127.0.0.1", "--port", port, str(pathlib.Path(data) / "trac")]
    standalone.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
