"""A django-helpdesk as a Django project in one file; run by the Python of its own environment.

python serve.py make KEPT          makes the database, with agents only
python serve.py fill DATA          writes the world in `world.json` into it
python serve.py serve DATA PORT    the desk at http://127.0.0.1:PORT
"""

# The application is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

import base64
import contextlib
import datetime
import functools
import importlib.resources
import json
import pathlib
import re
import sqlite3
import sys
import uuid
from collections.abc import Callable
from typing import Any

HOST = "helpdesk.test"
DATABASE = "desk.sqlite3"
STAFF = ("mara", "ines", "pavel", "tomas", "wanda")
# The address that makes a browser a visitor, who has no account.
PUBLIC = "/public/"
CHECKLISTS = ("helpdesk/checklist_form.html", "helpdesk/checklist_templates.html")
STATUSES = {"Open": 1, "Reopened": 2, "Resolved": 3, "Closed": 4, "Duplicate": 5}
FIRST_DAY = datetime.datetime(2026, 3, 2, 9, 0)


def configure(data: pathlib.Path) -> None:
    """Configures Django, with everything that users can change in `data`."""
    import django
    from django.conf import settings

    contrib = ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles", "sites", "humanize")
    middleware = (
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "__main__.open_access",
        "django.contrib.messages.middleware.MessageMiddleware",
    )
    loaders = [
        ("django.template.loaders.locmem.Loader", _local_templates()),
        "django.template.loaders.app_directories.Loader",
    ]
    processors = (
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    )
    settings.configure(
        SECRET_KEY="a desk on loopback keeps no secrets",
        DEBUG=False,
        ALLOWED_HOSTS=[HOST, "127.0.0.1"],
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in contrib), "rest_framework", "helpdesk"],
        SITE_ID=1,
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(data / DATABASE),
                "ATOMIC_REQUESTS": True,
                # Requests wait for each other's writes instead of failing.
                "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
            }
        },
        MIDDLEWARE=middleware,
        # Visits then write nothing.
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {"context_processors": processors, "loaders": loaders},
            }
        ],
        ROOT_URLCONF=_Urls(),
        STATIC_URL="/static/",
        LOGIN_URL="/login/",
        EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
        TIME_ZONE="UTC",
        LANGUAGE_CODE="en-us",
        LOGGING_CONFIG=None,
        HELPDESK_TEAMS_MODE_ENABLED=False,
        HELPDESK_ENABLE_ATTACHMENTS=False,
        # The board leaves out tickets by the clock.
        HELPDESK_KANBAN_ENABLED=False,
        # Its script is only on a content network.
        HELPDESK_TICKETS_TIMELINE_ENABLED=False,
    )
    django.setup()


def _local_templates() -> dict[str, str]:
    """The templates that ask a content network for scripts, without that; jQuery UI sorts as well."""
    folder = importlib.resources.files("helpdesk") / "templates"
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in CHECKLISTS}
    return {name: re.sub(r'<script src="https://[^>]*></script>', "", text) for name, text in texts.items()}


def open_access(respond: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Middleware: there are no passwords; who opens the site is the first agent, after `PUBLIC` a visitor."""
    from django.contrib.auth import get_user_model
    from django.http import HttpResponseRedirect

    def middleware(request: Any) -> Any:
        if request.path == PUBLIC:
            response = HttpResponseRedirect("/")
            response.set_cookie("visitor", "1")
            return response
        if "visitor" not in request.COOKIES:
            request.user = get_user_model().objects.get(username=STAFF[0])
        return respond(request)

    return middleware


class _Urls:
    """The URL configuration; created on first access, because the desk's needs its models."""

    @functools.cached_property
    def urlpatterns(self) -> list[Any]:
        from django.contrib import admin
        from django.urls import include, path

        return [path("admin/", admin.site.urls), path("", include("helpdesk.urls", namespace="helpdesk"))]


def make(kept: pathlib.Path) -> None:
    """Makes a desk that has agents, and nothing else."""
    from django.contrib.auth import get_user_model
    from django.contrib.sites.models import Site
    from django.core.management import call_command
    from helpdesk.models import EmailTemplate

    call_command("migrate", verbosity=0)
    # Some links are made of the site's name.
    Site.objects.update(domain=HOST, name=HOST)
    # Mails are not sent; the other languages are most of the database.
    EmailTemplate.objects.exclude(locale="en").delete()
    for name in STAFF:
        user = get_user_model()(username=name, email=f"{name}@desk.example", first_name=name.title())
        user.is_staff, user.is_superuser = True, name == STAFF[0]
        user.set_unusable_password()
        user.save()
    # What migrations leave is half of the file, which each reset copies.
    with contextlib.closing(sqlite3.connect(kept / DATABASE)) as database:
        database.execute("VACUUM")


def fill(data: pathlib.Path) -> None:
    """Writes the world in `world.json` into the database."""
    world = json.loads((data / "world.json").read_text(encoding="utf-8"))
    with contextlib.closing(sqlite3.connect(data / DATABASE)) as database, database:

        def add(table: str, **values: Any) -> int:
            names = ", ".join(f'"{name}"' for name in values)
            statement = f"INSERT INTO helpdesk_{table} ({names}) VALUES ({', '.join('?' * len(values))})"
            return database.execute(statement, list(values.values())).lastrowid or 0

        queues = {
            slug: add("queue", slug=slug, title=row["title"], **_QUEUE) for slug, row in world["queues"]
        }
        for slug, row in world["categories"]:
            title = row["title"]
            add(
                "kbcategory",
                slug=slug,
                name=title,
                title=title,
                description=f"About {title}.",
                public=True,
            )
        categories = {slug: number for number, (slug, _) in enumerate(world["categories"], start=1)}
        for number, row in world["articles"]:
            add(
                "kbitem",
                id=number,
                title=row["title"],
                category_id=categories[row["category"]],
                question=row["question"],
                answer=row["answer"],
                votes=0,
                recommendations=0,
                enabled=True,
                last_updated=str(FIRST_DAY),
            )
        for number, row in world["tickets"]:
            _add_ticket(add, number, row, queues)
        for number, row in world["replies"]:
            add("presetreply", id=number, name=row["name"], body=row["text"])
        for number, row in world["searches"]:
            filters = {
                "queue__id__in": [queues[slug] for slug in row["queues"]],
                "status__in": [STATUSES[one] for one in row["statuses"]],
                "priority__in": row["priorities"],
            }
            query = {
                "filtering": {name: values for name, values in filters.items() if values},
                "filtering_null": {},
                "sorting": "created",
                "sortreverse": None,
                "search_string": "",
            }
            text = base64.b64encode(json.dumps(query).encode()).decode()
            add("savedsearch", id=number, title=row["title"], shared=row["shared"], user_id=1, query=text)


_QUEUE = {
    "allow_public_submission": True,
    "allow_email_submission": False,
    "email_box_ssl": False,
    "enable_notifications_on_email_events": True,
}


def _add_ticket(add: Callable[..., int], number: int, row: dict[str, Any], queues: dict[str, int]) -> None:
    created = FIRST_DAY + datetime.timedelta(days=number)
    users = {name: place for place, name in enumerate(STAFF, start=1)}
    add(
        "ticket",
        id=number,
        title=row["title"],
        queue_id=queues[row["queue"]],
        priority=row["priority"],
        status=STATUSES[row["status"]],
        assigned_to_id=users.get(row["owner"]),
        submitter_email=row["submitter"],
        description=row["description"],
        resolution=row["resolution"] or None,
        due_date=f"{row['due']} 00:00:00",
        on_hold=False,
        created=str(created),
        modified=str(created),
        secret_key=str(uuid.UUID(int=number)),
    )
    for place, (text, public, author) in enumerate(row["notes"]):
        add(
            "followup",
            ticket_id=number,
            title="Comment" if place else "Ticket Opened",
            comment=text,
            public=public,
            user_id=users.get(author),
            date=str(created + datetime.timedelta(hours=place)),
        )
    if row["steps"]:
        checklist = add("checklist", ticket_id=number, name="Steps")
        for place, (text, done) in enumerate(row["steps"]):
            when = str(created) if done else None
            add(
                "checklisttask",
                checklist_id=checklist,
                description=text,
                position=place,
                completion_date=when,
            )


def main(command: str, data: str, port: str = "") -> None:
    if command == "fill":
        fill(pathlib.Path(data))
        return
    configure(pathlib.Path(data))
    if command == "make":
        make(pathlib.Path(data))
        return
    from django.core.management import call_command

    # --insecure: static files without DEBUG, whose error pages would show settings to the agent.
    call_command("runserver", f"127.0.0.1:{port}", "--noreload", "--insecure", "--skip-checks")


if __name__ == "__main__":
    main(*sys.argv[1:])
