"""django-machina, a forum: topics with posts and polls, a moderator's tools; Django on SQLite."""

from __future__ import annotations

import pathlib
from typing import ClassVar

from collection.environments.apps.application import digest
from collection.environments.apps.machina.tasks import CARRIED, TEMPLATES
from collection.environments.apps.machina.world import make_world
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World

# All that django-machina needs, and Whoosh for its search.
REQUIREMENTS = (
    *("django-machina==1.3.1", "Whoosh==2.7.4", "Django==5.2.19", "django-haystack==3.4.0"),
    *("django-mptt==0.20.0", "django-js-asset==5.0.0", "django-widget-tweaks==1.5.1", "markdown2==2.5.5"),
    *("pillow==13.0.0", "asgiref==3.13.0", "sqlparse==0.6.1", "packaging==26.4", "six==1.17.0"),
)
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")


def _names(table: str, own: str, other: str, number: str) -> str:
    """The names of members that a row is linked with, in their order."""
    found = f"SELECT username FROM {table} JOIN auth_user AS member ON member.id = {other}"
    return f"(SELECT json_group_array(username) FROM ({found} WHERE {own} = {number} ORDER BY username))"


_TOPICS = f"""
SELECT topic.id, subject, forum.name AS forum, topic.status = 1 AS locked,
  CASE topic.type WHEN 0 THEN 'Default topic' WHEN 1 THEN 'Sticky' ELSE 'Announce' END AS kind,
  {_names("forum_conversation_topic_subscribers", "topic_id", "user_id", "topic.id")} AS "subscribers[]"
FROM forum_conversation_topic AS topic JOIN forum_forum AS forum ON forum.id = forum_id
"""
_POSTS = """
SELECT post.id, topic_id AS topic, member.username AS poster, subject, content, approved,
  update_reason AS reason, enable_signature AS signature
FROM forum_conversation_post AS post LEFT JOIN auth_user AS member ON member.id = poster_id
"""
_POLLS = """
SELECT id, topic_id AS topic, question, max_options AS most, user_changes AS changes,
  hide_results AS hidden, coalesce(duration, 0) AS days FROM forum_polls_topicpoll
"""
_OPTIONS = f"""
SELECT option.id, poll_id AS poll, text,
  {_names("forum_polls_topicpollvote", "poll_option_id", "voter_id", "option.id")} AS "voters[]"
FROM forum_polls_topicpolloption AS option
"""


class Machina(PythonSite):
    """http://machina.test/: a beekeepers' forum; every visitor is its moderator Nils.

    The search knows the posts of the start alone.
    """

    name = "machina"
    host = "machina.test"
    templates = TEMPLATES
    carried = CARRIED
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/"
    database = "forum.sqlite3"
    version = digest(REQUIREMENTS, _SCRIPT.read_text(encoding="utf-8"))
    tables: ClassVar = {
        "members": (
            "SELECT username, signature FROM forum_member_forumprofile "
            "JOIN auth_user AS member ON member.id = user_id"
        ),
        "forums": (
            "SELECT forum.id, forum.name, parent.name AS parent FROM forum_forum AS forum "
            "LEFT JOIN forum_forum AS parent ON parent.id = forum.parent_id"
        ),
        "topics": _TOPICS,
        "posts": _POSTS,
        "polls": _POLLS,
        "options": _OPTIONS,
    }

    def make_world(self, draw: Draw) -> World:
        return make_world(draw)
