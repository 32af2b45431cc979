"""A django-helpdesk as a Django project in one file; run by the Python of its own environment.

python serve.py create DATA        makes the database from `desk.json`
python serve.py serve DATA PORT    the desk at http://127.0.0.1:PORT
"""

# The application is in an environment of its own.
# pyright: reportMissingImports=false

from __future__ import annotations

import datetime
import functools
import importlib.resources
import json
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

HOST = "helpdesk.test"
STAFF = "mara"
# The address that makes a browser a visitor, who has no account.
PUBLIC = "/public/"
CHECKLISTS = ("helpdesk/checklist_form.html", "helpdesk/checklist_templates.html")
STATUSES = {"Open": 1, "Reopened": 2, "Resolved": 3, "Closed": 4, "Duplicate": 5}
UTC = datetime.timezone.utc  # noqa: UP017  # Its Python may be an older one.
FIRST_DAY = datetime.datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


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
                "NAME": str(data / "desk.sqlite3"),
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
    """Middleware: there are no passwords; who opens the site is `STAFF`, or a visitor after `PUBLIC`."""
    from django.contrib.auth import get_user_model
    from django.http import HttpResponseRedirect

    def middleware(request: Any) -> Any:
        if request.path == PUBLIC:
            response = HttpResponseRedirect("/")
            response.set_cookie("visitor", "1")
            return response
        if "visitor" not in request.COOKIES:
            request.user = get_user_model().objects.get(username=STAFF)
        return respond(request)

    return middleware


class _Urls:
    """The URL configuration; created on first access, because the desk's needs its models."""

    @functools.cached_property
    def urlpatterns(self) -> list[Any]:
        from django.contrib import admin
        from django.urls import include, path

        return [path("admin/", admin.site.urls), path("", include("helpdesk.urls", namespace="helpdesk"))]


def create(data: pathlib.Path) -> None:
    """Fills a new database from `desk.json`."""
    from django.contrib.auth import get_user_model
    from django.contrib.sites.models import Site
    from django.core.management import call_command
    from helpdesk.query import query_to_base64

    models = _models()

    call_command("migrate", verbosity=0)
    # Some links are made of the site's name.
    Site.objects.update(domain=HOST, name=HOST)
    # Mails are not sent; the other languages are most of the database.
    models.EmailTemplate.objects.exclude(locale="en").delete()
    desk = json.loads((data / "desk.json").read_text(encoding="utf-8"))
    users: dict[str, Any] = {"": None}
    for name in desk["staff"]:
        user = get_user_model()(username=name, email=f"{name}@desk.example", first_name=name.title())
        user.is_staff, user.is_superuser = True, name == STAFF
        user.set_unusable_password()
        user.save()
        users[name] = user
    queues = {
        slug: models.Queue.objects.create(
            slug=slug, title=title, allow_public_submission=True, enable_notifications_on_email_events=True
        )
        for slug, title in desk["queues"].items()
    }
    for number, fields in desk["tickets"].items():
        _add_ticket(int(number), fields, users, queues)
    for slug, title in desk["categories"].items():
        models.KBCategory.objects.create(slug=slug, name=title, title=title, description=f"About {slug}.")
    for title, fields in desk["articles"].items():
        models.KBItem.objects.create(
            title=title,
            category=models.KBCategory.objects.get(slug=fields["category"]),
            question=fields["question"],
            answer=fields["answer"],
            last_updated=FIRST_DAY,
        )
    for name, text in desk["replies"].items():
        models.PreSetReply.objects.create(name=name, body=text)
    for title, fields in desk["searches"].items():
        query = {
            "filtering": {
                "queue__id__in": [queues[slug].pk for slug in fields["queues"]],
                "status__in": [STATUSES[one] for one in fields["statuses"]],
                "priority__in": fields["priorities"],
            },
            "filtering_null": {},
            "sorting": "created",
            "sortreverse": None,
            "search_string": "",
        }
        query["filtering"] = {name: values for name, values in query["filtering"].items() if values}
        models.SavedSearch.objects.create(
            title=title, shared=fields["shared"], user=users[STAFF], query=query_to_base64(query)
        )


def _models() -> Any:
    from django.apps import apps

    return apps.get_app_config("helpdesk").models_module


def _add_ticket(number: int, fields: dict[str, Any], users: dict[str, Any], queues: dict[str, Any]) -> None:
    models = _models()
    created = FIRST_DAY + datetime.timedelta(days=number)
    due = datetime.datetime.fromisoformat(f"{fields['due']}T00:00:00+00:00") if fields["due"] else None
    ticket = models.Ticket.objects.create(
        title=fields["title"],
        queue=queues[fields["queue"]],
        priority=fields["priority"],
        status=STATUSES[fields["status"]],
        assigned_to=users[fields["owner"]],
        submitter_email=fields["submitter"],
        description=fields["description"],
        resolution=fields["resolution"] or None,
        due_date=due,
    )
    assert ticket.pk == number
    for place, note in enumerate(fields["notes"]):
        models.FollowUp.objects.create(
            ticket=ticket,
            title="Comment" if place else "Ticket Opened",
            comment=note["text"],
            public=note["public"],
            user=users[note["author"]],
            date=created + datetime.timedelta(hours=place),
        )
    if fields["tasks"]:
        checklist = models.Checklist.objects.create(ticket=ticket, name="Steps")
        for place, (text, is_done) in enumerate(fields["tasks"]):
            models.ChecklistTask.objects.create(
                checklist=checklist,
                description=text,
                position=place,
                completion_date=created if is_done else None,
            )
    # Saving sets the time of today.
    models.Ticket.objects.filter(pk=number).update(created=created, modified=created)


def main(command: str, data: str, port: str = "") -> None:
    configure(pathlib.Path(data))
    if command == "create":
        create(pathlib.Path(data))
        return
    from django.core.management import call_command

    # --insecure: static files without DEBUG, whose error pages would show settings to the agent.
    call_command("runserver", f"127.0.0.1:{port}", "--noreload", "--insecure", "--skip-checks")


if __name__ == "__main__":
    main(*sys.argv[1:])
