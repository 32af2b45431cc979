"""Makes, fills and serves a forum; run by its own environment: `make|fill|serve DATA [PORT]`."""

# The application is in an environment of its own.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import datetime
import functools
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

START = datetime.datetime(2024, 3, 4, 9, 0, tzinfo=datetime.timezone.utc)  # noqa: UP017
# Of the visitor in the forum; uploads would be files that a reset of the database leaves behind.
PERMISSIONS = (
    *("can_see_forum", "can_read_forum", "can_start_new_topics", "can_reply_to_topics"),
    *("can_post_announcements", "can_post_stickies", "can_delete_own_posts", "can_edit_own_posts"),
    *("can_post_without_approval", "can_create_polls", "can_vote_in_polls", "can_lock_topics"),
    *("can_move_topics", "can_edit_posts", "can_delete_posts", "can_approve_posts"),
    "can_reply_to_locked_topics",
)


class EveryoneIsTheModerator:
    """Middleware: there is no log-in, every visitor is the first member."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._get_response = get_response

    def __call__(self, request: Any) -> Any:
        from django.contrib.auth import get_user_model

        request.user = get_user_model().objects.get(pk=1)
        return self._get_response(request)


class _Urls:
    """The URL configuration; created on first access, because machina's needs its models."""

    @functools.cached_property
    def urlpatterns(self) -> list[Any]:
        from django.urls import include, path

        return [path("", include("machina.urls"))]


def configure(data: pathlib.Path) -> None:
    """Configures Django, with everything that visitors can change in `data`."""
    import django
    import machina
    from django.conf import settings

    contrib = ("auth", "contenttypes", "messages", "staticfiles")
    apps = (
        *("", ".apps.forum", ".apps.forum_conversation", ".apps.forum_conversation.forum_attachments"),
        *(".apps.forum_conversation.forum_polls", ".apps.forum_feeds", ".apps.forum_moderation"),
        *(".apps.forum_search", ".apps.forum_tracking", ".apps.forum_member", ".apps.forum_permission"),
    )
    processors = (
        *("django.template.context_processors.request", "django.contrib.auth.context_processors.auth"),
        *("django.contrib.messages.context_processors.messages", "machina.core.context_processors.metadata"),
    )
    memory = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    settings.configure(
        SECRET_KEY="a forum on loopback keeps no secrets",
        ALLOWED_HOSTS=["machina.test", "127.0.0.1"],
        INSTALLED_APPS=[
            *(f"django.contrib.{name}" for name in contrib),
            *("mptt", "haystack", "widget_tweaks"),
            *(f"machina{name}" for name in apps),
        ],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(data / "forum.sqlite3"),
                "ATOMIC_REQUESTS": True,
                # Requests wait for each other's writes instead of failing.
                "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
            }
        },
        CACHES={
            "default": memory,
            "machina_attachments": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        },
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            f"{__name__}.EveryoneIsTheModerator",
            "django.contrib.messages.middleware.MessageMiddleware",
            "machina.apps.forum_permission.middleware.ForumPermissionMiddleware",
        ],
        # In the browser alone: a reset of the database would end sessions that it holds.
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "DIRS": [machina.MACHINA_MAIN_TEMPLATE_DIR],
                "APP_DIRS": True,
                "OPTIONS": {"context_processors": list(processors)},
            }
        ],
        STATICFILES_DIRS=[machina.MACHINA_MAIN_STATIC_DIR],
        STATIC_URL="/static/",
        ROOT_URLCONF=_Urls(),
        # Built with the world: machina leaves it to a regular job to add what is new.
        HAYSTACK_CONNECTIONS={
            "default": {
                "ENGINE": "haystack.backends.whoosh_backend.WhooshEngine",
                "PATH": str(data / "index"),
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        USE_TZ=True,
        TIME_ZONE="UTC",
        LANGUAGE_CODE="en-us",
        LOGGING_CONFIG=None,
        MACHINA_FORUM_NAME="Hive and Hedge",
        MACHINA_DEFAULT_AUTHENTICATED_USER_FORUM_PERMISSIONS=list(PERMISSIONS),
        # Its editor would fetch a dictionary from a content network.
        MACHINA_MARKUP_WIDGET=None,
        MACHINA_PROFILE_AVATARS_ENABLED=False,
    )
    django.setup()


def fill(data: pathlib.Path) -> None:
    """Writes the world in `world.json` into the database, and indexes it."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.db import transaction
    from machina.apps.forum.models import Forum
    from machina.apps.forum_member.models import ForumProfile

    world = json.loads((data / "world.json").read_text(encoding="utf-8"))
    users, forums = {}, {}
    # One transaction, because each waits for the disk.
    with transaction.atomic():
        with mock.patch("django.utils.timezone.now", return_value=START):
            for name, row in world["members"]:
                users[name] = get_user_model().objects.create_user(name)
                ForumProfile.objects.create(user=users[name], **row)
            for _, row in world["forums"]:
                kind = Forum.FORUM_POST if row["parent"] else Forum.FORUM_CAT
                parent = forums.get(row["parent"])
                forums[row["name"]] = Forum.objects.create(name=row["name"], type=kind, parent=parent)
        for number, row in world["topics"]:
            posts = [one for _, one in world["posts"] if one["topic"] == number]
            _add_topic(row, posts, forums, users, START + datetime.timedelta(days=number))
        _add_polls(world, users)
    call_command("rebuild_index", interactive=False, verbosity=0)


def _add_topic(
    topic: dict[str, Any],
    posts: list[dict[str, Any]],
    forums: dict[str, Any],
    users: dict[str, Any],
    when: datetime.datetime,
) -> None:
    from machina.apps.forum_conversation.models import Post, Topic

    with mock.patch("django.utils.timezone.now", return_value=when) as now:
        created = Topic.objects.create(
            forum=forums[topic["forum"]],
            poster=users[posts[0]["poster"]],
            subject=topic["subject"],
            type={str(label): number for number, label in Topic.TYPE_CHOICES}[topic["kind"]],
            status=Topic.TOPIC_LOCKED if topic["locked"] else Topic.TOPIC_UNLOCKED,
        )
        created.subscribers.set([users[name] for name in topic["subscribers"]])
        for hours, post in enumerate(posts):
            now.return_value = when + datetime.timedelta(hours=hours)
            Post.objects.create(
                topic=created,
                poster=users[post["poster"]],
                subject=post["subject"],
                content=post["content"],
                approved=post["approved"],
            )


def _add_polls(world: dict[str, Any], users: dict[str, Any]) -> None:
    from machina.apps.forum_conversation.forum_polls.models import TopicPoll, TopicPollOption, TopicPollVote

    for number, row in world["polls"]:
        made = TopicPoll.objects.create(
            topic_id=row["topic"],
            question=row["question"],
            duration=row["days"],
            max_options=row["most"],
            user_changes=row["changes"],
        )
        for _, option in world["options"]:
            if option["poll"] == number:
                created = TopicPollOption.objects.create(poll=made, text=option["text"])
                for name in option["voters"]:
                    TopicPollVote.objects.create(poll_option=created, voter=users[name])


def main(command: str, data: str, port: str = "") -> None:
    configure(pathlib.Path(data))
    from django.core.management import call_command

    if command == "make":
        with mock.patch("django.utils.timezone.now", return_value=START):
            call_command("migrate", verbosity=0)
    elif command == "fill":
        fill(pathlib.Path(data))
    else:
        # --insecure: static files without DEBUG, whose error pages would show settings to the agent.
        call_command("runserver", f"127.0.0.1:{port}", "--noreload", "--insecure", "--skip-checks")


if __name__ == "__main__":
    main(*sys.argv[1:])
