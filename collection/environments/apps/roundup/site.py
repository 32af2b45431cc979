"""Roundup, an issue tracker: issues with messages and files, keywords, people, saved queries; on SQLite."""

from __future__ import annotations

import dataclasses
import filecmp
import json
import pathlib
import random
import shutil
import sqlite3
import urllib.parse
from collections.abc import Mapping
from typing import Any

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import reading
from collection.environments.apps.tasks import choose

# It needs no other package.
REQUIREMENTS = ("roundup==2.6.0",)
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")
# Texts of messages and contents of files.
_FILES = "tracker/db/files"


@dataclasses.dataclass(frozen=True)
class Issue:
    """An issue.

    Attributes:
      nosy: who gets its messages; assignees are added to it.
      superseder: numbers of the issues that replace it.
      messages: author and text, in order.
      files: name, type and content.
    """

    title: str
    priority: str = "bug"
    status: str = "unread"
    assignedto: str = ""
    nosy: frozenset[str] = frozenset()
    keywords: frozenset[str] = frozenset()
    superseder: frozenset[int] = frozenset()
    messages: tuple[tuple[str, str], ...] = ()
    files: frozenset[tuple[str, ...]] = frozenset()

    def with_note(self, text: str, **changes: Any) -> Issue:
        """With a message of the user, which also changes some statuses unless another one is set."""
        if self.status in ("unread", "resolved", "done-cbb"):
            changes = {"status": "chatting", **changes}
        return dataclasses.replace(self, messages=(*self.messages, (ME, text)), **changes)

    def assigned(self, name: str, **changes: Any) -> Issue:
        """Assigned to somebody, who gets its messages from now on."""
        return dataclasses.replace(self, assignedto=name, nosy=self.nosy | {name}, **changes)


@dataclasses.dataclass(frozen=True)
class Person:
    """A user."""

    realname: str = ""
    phone: str = ""
    organisation: str = ""
    address: str = ""
    roles: str = "User"
    timezone: str = ""
    alternate_addresses: str = ""


@dataclasses.dataclass(frozen=True)
class Query:
    """A saved query.

    Attributes:
      filters: name and value.
      listed: among its creator's queries, on each page.
    """

    filters: frozenset[tuple[str, str]]
    listed: bool = True


@dataclasses.dataclass(frozen=True)
class Tracker:
    """What the tracker holds; people by login name, queries by creator and name."""

    issues: Mapping[int, Issue]
    people: Mapping[str, Person]
    keywords: frozenset[str]
    queries: Mapping[tuple[str, str], Query]

    def with_issue(self, number: int, issue: Issue) -> Tracker:
        return dataclasses.replace(self, issues={**self.issues, number: issue})

    def with_new(self, issue: Issue) -> Tracker:
        return self.with_issue(len(self.issues) + 1, issue)

    def with_person(self, name: str, person: Person) -> Tracker:
        return dataclasses.replace(self, people={**self.people, name: person})

    def renamed(self, old: str, new: str) -> Tracker:
        """With another name for a keyword, which its issues and queries keep."""

        def names(values: frozenset[Any], before: Any, after: Any) -> frozenset[Any]:
            return frozenset(after if one == before else one for one in values)

        issues = {
            number: dataclasses.replace(issue, keywords=names(issue.keywords, old, new))
            for number, issue in self.issues.items()
        }
        queries = {
            key: dataclasses.replace(query, filters=names(query.filters, ("keyword", old), ("keyword", new)))
            for key, query in self.queries.items()
        }
        return Tracker(issues, self.people, names(self.keywords, old, new), queries)


ME = "kim"
PRIORITIES = ("critical", "urgent", "bug", "feature", "wish")
STATUSES = ("unread", "deferred", "chatting", "need-eg", "in-progress", "testing", "done-cbb", "resolved")
KEYWORDS = ("electrics", "paint", "safety", "visitors", "winter")
PEOPLE = {
    ME: Person("Kim Aster", "555-0118", "Workshop", "kim@museum.example", "User,Admin"),
    "olga": Person("Olga Brandt", "555-0142", "Workshop", "olga@museum.example"),
    "rafael": Person("Rafael Cortez", "555-0167", "Signal box", "rafael@museum.example"),
    "selma": Person("Selma Dahl", "555-0193", "Ticket office", "selma@museum.example"),
    "theo": Person("Theo Ekman", "555-0125", "Archive", "theo@museum.example"),
}
_BUILT_IN = {
    "admin": Person(address="roundup-admin@roundup.test", roles="Admin"),
    "anonymous": Person(roles="Anonymous"),
}
_TITLES = (
    *("Boiler of engine four leaks", "Signal lamp at the crossing is dark", "Door of the blue coach jams"),
    *("Timetable board shows last year", "Turntable squeaks", "Water crane drips at night"),
    *("Brake hose of the post van is worn", "Ticket printer skips a line", "Roof of shed two lets snow in"),
    *(
        "Whistle of engine nine is too shrill",
        "Bench on platform one is broken",
        "Points at the quarry stick",
    ),
    *("Model railway stops in the tunnel", "Lettering of the dining car fades", "Heater in the hut smells"),
    *("Children climb the buffer stop", "Coal shovel is missing", "Handcar needs a second lever"),
    *("Clock in the hall runs backwards", "Fence along the siding has a gap", "Lantern glass is cracked"),
    *("Guard's whistle has no cord", "Sleepers near the bridge rot", "Map of the line lacks a halt"),
)
# What a message says of a figure, and how it is asked for.
FACTS = (
    ("The new part costs {} euros.", "how many euros the new part costs"),
    ("The drawing is in drawer {}.", "the number of the drawer in which the drawing is"),
    ("The crack is {} millimetres long.", "how many millimetres long the crack is"),
    ("The supplier needs {} days.", "how many days the supplier needs"),
)
PAPERS = ("sketch", "invoice", "measurements", "letter")
SAVED = {
    "In doubt": {"status": "need-eg"},
    "Paint shop": {"keyword": "paint"},
    "For Selma": {"assignedto": "selma"},
    "Dreams": {"priority": "wish"},
    "Open house": {"keyword": "visitors"},
}


def _seeded() -> Tracker:
    draw, issues = random.Random("railway"), {}
    names = list(PEOPLE)
    for number, title in enumerate(_TITLES, start=1):
        author, helper = draw.sample(names, 2)
        messages = [(author, f"{title}, as seen on the morning round.")]
        if number % 3:
            messages.append((helper, choose(FACTS, number)[0].format(draw.randrange(12, 98))))
        if number % 4 == 0:
            messages.append((draw.choice(names), "The spare one is at the quarry."))
        assignee = "" if number % 5 == 0 else draw.choice(names)
        paper = f"{choose(PAPERS, number)}-{draw.randrange(100, 999)}.txt"
        issues[number] = Issue(
            title,
            priority=draw.choice(PRIORITIES),
            status="resolved" if number % 6 == 0 else draw.choice(STATUSES[:-1]),
            assignedto=assignee,
            nosy=frozenset({*(name for name, _ in messages), assignee, draw.choice(names)} - {""}),
            keywords=frozenset(draw.sample(KEYWORDS, draw.choice((0, 1, 1, 2)))),
            superseder=frozenset({number - draw.randrange(1, 5)}) if number % 6 == 0 else frozenset(),
            messages=tuple(messages),
            files=frozenset({(paper, "text/plain", f"Paper of the issue {title}.")})
            if number % 2
            else frozenset(),
        )
    queries = {(ME, name): Query(frozenset(filters.items())) for name, filters in SAVED.items()}
    return Tracker(issues, {**_BUILT_IN, **PEOPLE}, frozenset(KEYWORDS), queries)


WORK = _seeded()
_SEED = json.dumps(
    {
        "user": ME,
        "keywords": KEYWORDS,
        "people": {name: dataclasses.asdict(person) for name, person in PEOPLE.items()},
        "issues": [
            {
                name: sorted(value) if isinstance(value, frozenset) else value
                for name, value in dataclasses.asdict(issue).items()
            }
            for issue in WORK.issues.values()
        ],
        "queries": SAVED,
    }
)


class Roundup(PythonSite):
    """http://roundup.test/: the tracker of `WORK`, in which who opens the site is the user `ME`.

    A reset sets all of it back.
    """

    name = "roundup"
    host = "roundup.test"
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/"
    database = "tracker/db/db"
    version = digest(REQUIREMENTS, _SEED, _SCRIPT.read_text(encoding="utf-8"))

    def work(self) -> Tracker:
        """Reads what the tracker holds."""
        with reading(self.data / self.database) as database:
            people = _rows(
                database, "user", "username", *(field.name for field in dataclasses.fields(Person))
            )
            logins = {number: values[0] for number, values in people.items()}
            names: dict[str, dict[int, str]] = {"assignedto": logins}
            for table in ("priority", "status", "keyword"):
                names[table] = {number: name for number, (name,) in _rows(database, table, "name").items()}
            messages = {
                number: (logins.get(author, ""), self._text("msg", number))
                for number, (author,) in _rows(database, "msg", "author").items()
            }
            files = {
                number: (*values, self._text("file", number))
                for number, values in _rows(database, "file", "name", "type").items()
            }
            found = _rows(database, "issue", "title", "priority", "status", "assignedto")
            linked = {
                field: _links(database, f"issue_{field}", values)
                for field, values in {
                    "nosy": logins,
                    "keyword": names["keyword"],
                    "superseder": {number: number for number in found},
                    "messages": messages,
                    "files": files,
                }.items()
            }
            saved = _rows(database, "query", "name", "url", "creator")
            listed = _links(database, "user_queries", {number: number for number in saved})
        issues = {
            number: Issue(
                title=title,
                priority=names["priority"].get(priority, ""),
                status=names["status"].get(status, ""),
                assignedto=logins.get(assignee, ""),
                nosy=frozenset(linked["nosy"].get(number, ())),
                keywords=frozenset(linked["keyword"].get(number, ())),
                superseder=frozenset(linked["superseder"].get(number, ())),
                messages=tuple(linked["messages"].get(number, ())),
                files=frozenset(linked["files"].get(number, ())),
            )
            for number, (title, priority, status, assignee) in found.items()
        }
        queries = {
            (logins.get(user, ""), name): Query(_filters(url, names), number in listed.get(user, ()))
            for number, (name, url, user) in saved.items()
        }
        persons = {login: Person(*values) for login, *values in people.values()}
        return Tracker(issues, persons, frozenset(names["keyword"].values()), queries)

    def _text(self, kind: str, number: int) -> str:
        path = self.data / _FILES / kind / str(number // 1000) / f"{kind}{number}"
        return path.read_text(encoding="utf-8").replace("\r\n", "\n").strip() if path.exists() else ""

    def reset(self) -> None:
        super().reset()
        kept, files = self.kept / _FILES, self.data / _FILES
        for path in files.rglob("*"):
            if path.is_file() and not (kept / path.relative_to(files)).exists():
                path.unlink()
        for path in kept.rglob("*"):
            live = files / path.relative_to(kept)
            if path.is_file() and not (live.exists() and filecmp.cmp(path, live, shallow=False)):
                shutil.copyfile(path, live)

    def content(self) -> dict[str, Any]:
        files = (path for path in (self.data / _FILES).rglob("*") if path.is_file())
        return {
            **super().content(),
            **{str(path.relative_to(self.data)): digest(path.read_bytes()) for path in files},
        }

    def _seed(self) -> None:
        (self.kept / "work.json").write_text(_SEED, encoding="utf-8")
        self.run_script("create", str(self.kept))


def _rows(database: sqlite3.Connection, table: str, *names: str) -> dict[int, list[Any]]:
    """Values by number, without what is retired."""
    columns = ", ".join(f"_{name}" for name in names)
    found = database.execute(f"SELECT id, {columns} FROM _{table} WHERE __retired__ = 0 ORDER BY id")
    return {number: [value or "" for value in values] for number, *values in found}


def _links(database: sqlite3.Connection, table: str, values: Mapping[int, Any]) -> dict[int, list[Any]]:
    """What each row is linked with, in the order of their numbers."""
    found: dict[int, list[Any]] = {}
    for number, other in database.execute(f"SELECT nodeid, linkid FROM {table} ORDER BY linkid"):
        found.setdefault(number, []).append(values.get(other))
    return found


def _filters(url: str, names: Mapping[str, Mapping[int, str]]) -> frozenset[tuple[str, str]]:
    """What a saved query filters on, with names for numbers."""
    arguments = dict(urllib.parse.parse_qsl(url))
    filters = {name: arguments.get(name, "") for name in arguments.get("@filter", "").split(",") if name}
    if text := arguments.get("@search_text"):
        filters["text"] = text
    return frozenset(
        (name, names[name].get(int(value), value) if name in names and value.isdigit() else value)
        for name, value in filters.items()
    )
