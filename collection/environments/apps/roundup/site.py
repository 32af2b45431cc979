"""Roundup, an issue tracker: issues with messages and files, keywords, people, saved queries; on SQLite."""

from __future__ import annotations

import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import Any, ClassVar

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.roundup.tasks import CARRIED, TEMPLATES
from collection.environments.apps.roundup.world import make_world
from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World, tidy

# It needs no other package.
REQUIREMENTS = ("roundup==2.6.0",)
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")


def _list(field: str, value: str, table: str) -> str:
    """The values that an issue is linked with, in their order."""
    found = f"SELECT {value} AS value FROM issue_{field} JOIN _{table} AS other ON other.id = linkid"
    return f"(SELECT json_group_array(value) FROM ({found} WHERE nodeid = issue.id ORDER BY value))"


_ISSUES = f"""
SELECT issue.id, _title AS title, priority._name AS priority, status._name AS status,
  assigned._username AS assignedto, creator._username AS creator,
  {_list("nosy", "_username", "user")} AS "nosy[]", {_list("keyword", "_name", "keyword")} AS "keywords[]",
  {_list("superseder", "other.id", "issue")} AS "superseder[]"
FROM _issue AS issue LEFT JOIN _priority AS priority ON priority.id = _priority
  LEFT JOIN _status AS status ON status.id = _status LEFT JOIN _user AS assigned ON assigned.id = _assignedto
  LEFT JOIN _user AS creator ON creator.id = issue._creator
WHERE issue.__retired__ = 0
"""
_MESSAGES = """
SELECT msg.id, nodeid AS issue, _username AS author, '' AS text FROM issue_messages
JOIN _msg AS msg ON msg.id = linkid LEFT JOIN _user AS author ON author.id = _author WHERE msg.__retired__ = 0
"""
_FILES = """
SELECT file.id, nodeid AS issue, _name AS name, _type AS type, '' AS content FROM issue_files
JOIN _file AS file ON file.id = linkid WHERE file.__retired__ = 0
"""
_QUERIES = """
SELECT query.id, _name AS name, _url AS filters, _username AS creator, _private_for IS NOT NULL AS private,
  EXISTS (SELECT 1 FROM user_queries WHERE linkid = query.id AND nodeid = query._creator) AS listed
FROM _query AS query LEFT JOIN _user AS creator ON creator.id = query._creator WHERE query.__retired__ = 0
"""
_USERS = """
SELECT _username, _realname AS realname, _phone AS phone, _organisation AS organisation, _address AS address,
  _roles AS roles, _timezone AS timezone, _alternate_addresses AS alternate_addresses
FROM _user WHERE __retired__ = 0
"""
# What numbers in saved queries mean.
_NAMES = """
SELECT 'status' || id, _name AS name FROM _status UNION SELECT 'priority' || id, _name FROM _priority
UNION SELECT 'keyword' || id, _name FROM _keyword UNION SELECT 'assignedto' || id, _username FROM _user
"""


class Roundup(PythonSite):
    """http://roundup.test/: a railway museum's tracker, in which who opens the site is the user kim."""

    name = "roundup"
    host = "roundup.test"
    templates = TEMPLATES
    carried = CARRIED
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/"
    database = "tracker/db/db"
    version = digest(REQUIREMENTS, _SCRIPT.read_text(encoding="utf-8"))
    tables: ClassVar = {
        "users": _USERS,
        "keywords": "SELECT _name FROM _keyword WHERE __retired__ = 0",
        "issues": _ISSUES,
        "messages": _MESSAGES,
        "files": _FILES,
        "queries": _QUERIES,
        "names": _NAMES,
    }

    def make_world(self, draw: Draw) -> World:
        return make_world(draw)

    def read(self) -> World:
        world: dict[str, Any] = dict(super().read())
        names = world.pop("names")
        for query in world["queries"].values():
            query["filters"] = _filters(query["filters"], names)
        for table, column, kind in (("messages", "text", "msg"), ("files", "content", "file")):
            for number, row in world[table].items():
                path = self.data / f"tracker/db/files/{kind}/{number // 1000}/{kind}{number}"
                row[column] = tidy(path.read_text(encoding="utf-8")) if path.exists() else ""
        return world


def _filters(url: str, names: Mapping[str, Any]) -> list[str]:
    """What a saved query filters on, with names for numbers."""
    arguments = dict(urllib.parse.parse_qsl(url))
    found = {name: arguments.get(name, "") for name in arguments.get("@filter", "").split(",") if name}
    if text := arguments.get("@search_text"):
        found["text"] = text
    return sorted(f"{name}: {names.get(name + one, {'name': one})['name']}" for name, one in found.items())
