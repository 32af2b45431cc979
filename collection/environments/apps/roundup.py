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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import reading
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task

# It needs no other package.
REQUIREMENTS = ("roundup==2.6.0",)
_SITE = pathlib.Path(__file__).with_name("roundup_site.py")
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
_FACTS = (
    ("The new part costs {} euros.", "how many euros the new part costs"),
    ("The drawing is in drawer {}.", "the number of the drawer in which the drawing is"),
    ("The crack is {} millimetres long.", "how many millimetres long the crack is"),
    ("The supplier needs {} days.", "how many days the supplier needs"),
)
_PAPERS = ("sketch", "invoice", "measurements", "letter")
_SAVED = {
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
            messages.append((helper, choose(_FACTS, number)[0].format(draw.randrange(12, 98))))
        if number % 4 == 0:
            messages.append((draw.choice(names), "The spare one is at the quarry."))
        assignee = "" if number % 5 == 0 else draw.choice(names)
        paper = f"{choose(_PAPERS, number)}-{draw.randrange(100, 999)}.txt"
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
    queries = {(ME, name): Query(frozenset(filters.items())) for name, filters in _SAVED.items()}
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
        "queries": _SAVED,
    }
)


class Roundup(PythonSite):
    """http://roundup.test/: the tracker of `WORK`, in which who opens the site is the user `ME`.

    A reset sets all of it back.
    """

    name = "roundup"
    host = "roundup.test"
    requirements, script, ready = REQUIREMENTS, _SITE, "/"
    database = "tracker/db/db"
    version = digest(REQUIREMENTS, _SEED, _SITE.read_text(encoding="utf-8"))

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


# --- Tasks ---


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for; `answer` is "" if it asks for none."""

    words: str
    after: Tracker
    answer: str = ""


Template = Callable[[int], Goal]
# An issue and a seed -> the issue changed, and values for the words.
Change = Callable[[Issue, int], tuple[Issue, Mapping[str, Any]]]
Wanted = Callable[[Issue], object]


def roundup_tasks(application: Roundup, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(application, name, template(seed), seed) for name, template in TEMPLATES.items()]


def _task(application: Roundup, name: str, goal: Goal, seed: int) -> AppTask:
    def check(end: Ending) -> bool:
        return application.work() == goal.after and (not goal.answer or end.answer.strip() == goal.answer)

    return make_task(application, name, seed, f"{goal.words} The tracker is {application.url}/.", check)


def _issues(wanted: Wanted) -> list[tuple[int, Issue]]:
    return [(number, issue) for number, issue in WORK.issues.items() if wanted(issue)]


def _any(_: Issue) -> bool:
    return True


def _other(old: str, values: Sequence[str], seed: int) -> str:
    return choose([one for one in values if one != old], seed)


def _question(words: str, form: str, answer: str) -> Goal:
    return Goal(f"{words} Answer with {form} alone. Change nothing.", WORK, answer)


def _asked(
    words: str, form: str, offset: int, answer: Callable[[Issue], str], wanted: Wanted = _any
) -> Template:
    """A question about an issue, which is found by its title."""

    def goal(seed: int) -> Goal:
        _, issue = choose(_issues(wanted), seed, offset)
        return _question(words.format(title=issue.title), form, answer(issue))

    return goal


def _number(issue: Issue) -> str:
    return next(str(number) for number, one in WORK.issues.items() if one == issue)


def _replacement(issue: Issue) -> str:
    return str(next(iter(issue.superseder))) if issue.superseder else _number(issue)


def _figure(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _fact(seed: int) -> Goal:
    _, issue = choose(_issues(lambda one: len(one.messages) > 1 and _figure(one.messages[1][1])), seed, 2)
    text = issue.messages[1][1]
    what = next(what for said, what in _FACTS if said.format(_figure(text)) == text)
    words = f'Find out {what}: it is in a message of the issue "{issue.title}".'
    return _question(words, "the number", _figure(text))


def _said(seed: int) -> Goal:
    number, issue = choose(
        _issues(lambda one: len(one.messages) > 1 and _figure(one.messages[1][1])), seed, 7
    )
    words = f'Which issue has the message "{issue.messages[1][1]}"?'
    return _question(words, "the number of the issue", str(number))


def _counted(words: str, **filters: Sequence[str]) -> Template:
    """A question for the number of issues that some fields choose."""

    def goal(seed: int) -> Goal:
        chosen = {name: choose(values, seed, at) for at, (name, values) in enumerate(filters.items())}
        count = sum(_matches(issue, chosen) for issue in WORK.issues.values())
        return _question(words.format(**chosen), "the number", str(count))

    return goal


def _matches(issue: Issue, filters: Mapping[str, str]) -> bool:
    return all(
        value in issue.keywords if name == "keyword" else getattr(issue, name) == value
        for name, value in filters.items()
    )


def _open(seed: int) -> Goal:
    name = choose(list(PEOPLE), seed)
    count = len(_issues(lambda one: one.assignedto == name and one.status != "resolved"))
    return _question(
        f"How many issues that are not resolved are assigned to {name}?", "the number", str(count)
    )


def _saved_count(seed: int) -> Goal:
    name = choose(list(_SAVED), seed)
    count = sum(_matches(issue, _SAVED[name]) for issue in WORK.issues.values())
    return _question(f'How many issues does your saved query "{name}" list?', "the number", str(count))


def _phone(seed: int) -> Goal:
    person = PEOPLE[choose(list(PEOPLE)[1:], seed)]
    return _question(
        f"Which phone number has {person.realname}?", "the number, as in 555-0100,", person.phone
    )


_STRANGERS = ("Ada Falk", "Bruno Gold", "Cleo Hart")


def _phone_of_either(seed: int) -> Goal:
    """For every other seed, the first one is not there."""
    first, second = choose(list(PEOPLE), seed), choose(list(PEOPLE), seed, 2)
    name = choose(_STRANGERS, seed) if seed % 2 else PEOPLE[first].realname
    words = (
        f"Which phone number has {name}? If the tracker has no user of that name, give the phone number "
        f"of {PEOPLE[second].realname} instead."
    )
    return _question(words, "the number, as in 555-0100,", PEOPLE[second if seed % 2 else first].phone)


# Changes.


def _changed(words: str, change: Change, offset: int, wanted: Wanted = _any) -> Template:
    """A change of one issue; the words have its `number` or `title`, and the values of the change."""

    def goal(seed: int) -> Goal:
        number, issue = choose(_issues(wanted), seed, offset)
        after, values = change(issue, seed)
        text = words.format(**{"number": number, "title": issue.title, **values})
        return Goal(text, WORK.with_issue(number, after))

    return goal


def _set(**fields: Sequence[str]) -> Change:
    """Other values of fields."""

    def change(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
        new = {name: _other(getattr(issue, name), values, seed) for name, values in fields.items()}
        return dataclasses.replace(issue, **new), new

    return change


_NOTES = (
    "The part has arrived.",
    "Please look at it on Friday.",
    "The inspector agrees.",
    "To be done before the gala.",
)
_NEW_TITLES = (
    *("Buffer lamp hangs crooked", "Coach heating stays cold", "Ladder of the tower wobbles"),
    *("Gate of the depot will not lock", "Loudspeaker on platform two crackles"),
)
_NEW_KEYWORDS = ("steam", "rails", "museum night", "insurance")


def _retitle(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    title = choose(_NEW_TITLES, seed)
    return dataclasses.replace(issue, title=title), {"title": title}


def _assign(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    name = _other(issue.assignedto, list(PEOPLE), seed)
    return issue.assigned(name), {"name": name}


def _unassign(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    return dataclasses.replace(issue, assignedto=""), {}


def _add_keyword(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    keyword = choose(sorted(set(KEYWORDS) - issue.keywords), seed)
    return dataclasses.replace(issue, keywords=issue.keywords | {keyword}), {"keyword": keyword}


def _remove_keyword(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    keyword = choose(sorted(issue.keywords), seed)
    return dataclasses.replace(issue, keywords=issue.keywords - {keyword}), {"keyword": keyword}


def _add_nosy(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    name = choose(sorted(set(PEOPLE) - issue.nosy), seed)
    return dataclasses.replace(issue, nosy=issue.nosy | {name}), {"name": name}


def _remove_nosy(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    name = choose(sorted(issue.nosy), seed)
    return dataclasses.replace(issue, nosy=issue.nosy - {name}), {"name": name}


def _supersede(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    other, _ = choose(_issues(lambda one: one.status != "resolved" and one != issue), seed, 9)
    after = dataclasses.replace(issue, superseder=frozenset({other}), status="resolved")
    return after, {"other": other}


def _note(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    text = choose(_NOTES, seed)
    return issue.with_note(text), {"text": text}


def _note_and_status(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    text, status = choose(_NOTES, seed, 1), _other(issue.status, STATUSES, seed)
    return issue.with_note(text, status=status), {"text": text, "status": status}


def _note_and_assign(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    text, name = choose(_NOTES, seed, 2), _other(issue.assignedto, list(PEOPLE), seed)
    return issue.with_note(text).assigned(name), {"text": text, "name": name}


def _hand_back(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    """The author of a message is found by its text."""
    author, said = issue.messages[1]
    priority = _other(issue.priority, PRIORITIES, seed)
    return issue.assigned(author, priority=priority), {"said": said, "priority": priority}


def _remove_message(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    return dataclasses.replace(issue, messages=issue.messages[:-1]), {"text": issue.messages[-1][1]}


def _remove_file(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    ((name, *_),) = issue.files
    return dataclasses.replace(issue, files=frozenset()), {"file": name}


def _rename_file(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    ((old, *rest),) = issue.files
    name = f"{choose(_PAPERS, seed)}-of-spring-{10 + seed % 80}.txt"
    return dataclasses.replace(issue, files=frozenset({(name, *rest)})), {"file": old, "name": name}


def _new(seed: int) -> Goal:
    issue = Issue(choose(_NEW_TITLES, seed), choose(PRIORITIES, seed, 1))
    words = f'Report a new issue "{issue.title}" with the priority {issue.priority}.'
    return Goal(words, WORK.with_new(issue))


def _new_with_all(seed: int) -> Goal:
    text, name, keyword = choose(_NOTES, seed), choose(list(PEOPLE)[1:], seed), choose(KEYWORDS, seed, 2)
    issue = Issue(
        choose(_NEW_TITLES, seed, 1),
        choose(PRIORITIES, seed, 2),
        choose(STATUSES[1:-1], seed),
        name,
        frozenset({ME, name}),
        frozenset({keyword}),
        messages=((ME, text),),
    )
    words = (
        f'Report a new issue "{issue.title}" with the message "{text}": priority {issue.priority}, status '
        f"{issue.status}, assigned to {name}, with the keyword {keyword}."
    )
    return Goal(words, WORK.with_new(issue))


def _new_superseder(seed: int) -> Goal:
    number, issue = choose(_issues(lambda one: not one.superseder), seed, 6)
    new = Issue(choose(_NEW_TITLES, seed, 2), choose(PRIORITIES, seed, 3))
    words = (
        f'Report a new issue "{new.title}" with the priority {new.priority}, and then enter it as the '
        f"superseder of issue {number}."
    )
    after = dataclasses.replace(issue, superseder=frozenset({len(WORK.issues) + 1}))
    return Goal(words, WORK.with_new(new).with_issue(number, after))


def _ensure(seed: int) -> Goal:
    """For every other seed, the issue is not there."""
    number, issue = choose(_issues(_any), seed, 3)
    priority = _other(issue.priority, PRIORITIES, seed)
    title = choose(_NEW_TITLES, seed, 3) if seed % 2 else issue.title
    words = (
        f'If the tracker has an issue "{title}", set its priority to {priority}. If it has none, report '
        f"it as a new issue with the priority {priority}."
    )
    changed = dataclasses.replace(issue, priority=priority)
    return Goal(
        words, WORK.with_new(Issue(title, priority)) if seed % 2 else WORK.with_issue(number, changed)
    )


def _keyword_if_missing(seed: int) -> Goal:
    number, issue = choose(_issues(lambda one: not one.keywords), seed)
    keyword = choose(_NEW_KEYWORDS if seed % 2 else KEYWORDS, seed)
    words = f'Give issue {number} the keyword "{keyword}"; if there is no such keyword yet, create it first.'
    after = WORK.with_issue(number, dataclasses.replace(issue, keywords=frozenset({keyword})))
    return Goal(words, dataclasses.replace(after, keywords=after.keywords | {keyword}))


def _new_keyword(seed: int) -> Goal:
    keyword = choose(_NEW_KEYWORDS, seed, 1)
    words = f'Create the keyword "{keyword}".'
    return Goal(words, dataclasses.replace(WORK, keywords=WORK.keywords | {keyword}))


def _rename_keyword(seed: int) -> Goal:
    old, new = choose(KEYWORDS, seed), choose(_NEW_KEYWORDS, seed, 2)
    return Goal(f'Rename the keyword "{old}" to "{new}".', WORK.renamed(old, new))


def _own_phone(seed: int) -> Goal:
    phone = f"555-02{10 + seed % 80}"
    after = WORK.with_person(ME, dataclasses.replace(PEOPLE[ME], phone=phone))
    return Goal(f"Change your own phone number to {phone}.", after)


def _organisation(seed: int) -> Goal:
    name = choose(list(PEOPLE)[1:], seed)
    values = sorted({person.organisation for person in PEOPLE.values()})
    organisation = _other(PEOPLE[name].organisation, values, seed)
    words = f"{PEOPLE[name].realname} has moved: change the organisation of this user to {organisation}."
    after = WORK.with_person(name, dataclasses.replace(PEOPLE[name], organisation=organisation))
    return Goal(words, after)


def _newcomer(seed: int) -> tuple[str, Person, str]:
    realname = choose(_STRANGERS, seed)
    login = realname.split()[0].lower()
    person = Person(realname, organisation="Workshop", address=f"{login}{seed}@museum.example")
    words = (
        f'Add a user with the name "{realname}", the login name "{login}", the organisation '
        f'"{person.organisation}" and the e-mail address {person.address}; no password is needed'
    )
    return login, person, words


def _new_person(seed: int) -> Goal:
    login, person, words = _newcomer(seed)
    return Goal(f"{words}.", WORK.with_person(login, person))


def _new_person_assigned(seed: int) -> Goal:
    login, person, words = _newcomer(seed)
    number, issue = choose(_issues(_any), seed, 8)
    after = WORK.with_person(login, person).with_issue(number, issue.assigned(login))
    return Goal(f"{words}. Then assign issue {number} to the new user.", after)


def _save_query(seed: int) -> Goal:
    name = choose(("Morning round", "For the meeting", "Before the gala", "Next week"), seed)
    filters = {"status": choose(STATUSES, seed, 1), "priority": choose(PRIORITIES, seed, 2)}
    words = (
        f"Search for the issues with the status {filters['status']} and the priority {filters['priority']}, "
        f'and save this search as a query with the name "{name}".'
    )
    queries = {**WORK.queries, (ME, name): Query(frozenset(filters.items()))}
    return Goal(words, dataclasses.replace(WORK, queries=queries))


def _delete_query(seed: int) -> Goal:
    name = choose(list(_SAVED), seed, 1)
    queries = {key: query for key, query in WORK.queries.items() if key != (ME, name)}
    return Goal(f'Delete your saved query "{name}".', dataclasses.replace(WORK, queries=queries))


def _leave_out(seed: int) -> Goal:
    name = choose(list(_SAVED), seed, 2)
    query = dataclasses.replace(WORK.queries[ME, name], listed=False)
    words = f'Remove your saved query "{name}" from the list "Your Queries", but do not delete it.'
    return Goal(words, dataclasses.replace(WORK, queries={**WORK.queries, (ME, name): query}))


def _two(seed: int) -> Goal:
    (first, one), (second, other) = choose(_issues(_any), seed, 1), choose(_issues(_any), seed, 5)
    priority, status = _other(one.priority, PRIORITIES, seed), _other(other.status, STATUSES, seed)
    words = (
        f'Set the priority of the issue "{one.title}" to {priority}, and the status of the issue '
        f'"{other.title}" to {status}.'
    )
    after = WORK.with_issue(first, dataclasses.replace(one, priority=priority))
    return Goal(words, after.with_issue(second, dataclasses.replace(other, status=status)))


def _same_as(seed: int) -> Goal:
    (first, one) = choose(_issues(lambda issue: issue.assignedto), seed, 4)
    (second, other) = choose(
        _issues(lambda issue: issue.assignedto != one.assignedto and issue.priority != one.priority), seed, 3
    )
    words = f"Give issue {second} the priority and the assignee of issue {first}."
    return Goal(words, WORK.with_issue(second, other.assigned(one.assignedto, priority=one.priority)))


def _several(first: str, second: str) -> list[tuple[tuple[str, str], list[tuple[int, Issue]]]]:
    """Pairs of values that two or three issues have in common."""
    groups: dict[tuple[str, str], list[tuple[int, Issue]]] = {}
    for number, issue in WORK.issues.items():
        if getattr(issue, second):
            groups.setdefault((getattr(issue, first), getattr(issue, second)), []).append((number, issue))
    return [(pair, found) for pair, found in sorted(groups.items()) if len(found) in (2, 3)]


def _reassign_all(seed: int) -> Goal:
    (status, old), found = choose(_several("status", "assignedto"), seed)
    new = _other(old, list(PEOPLE), seed)
    after = WORK
    for number, issue in found:
        after = after.with_issue(number, issue.assigned(new))
    return Goal(f"Assign all issues with the status {status} that are assigned to {old} to {new}.", after)


def _raise_all(seed: int) -> Goal:
    (priority, name), found = choose(_several("priority", "assignedto"), seed)
    new = _other(priority, PRIORITIES, seed)
    after = WORK
    for number, issue in found:
        after = after.with_issue(number, dataclasses.replace(issue, priority=new))
    words = f"All issues of the priority {priority} that are assigned to {name} get the priority {new}."
    return Goal(f"{words} This includes those that are resolved.", after)


QUESTIONS: dict[str, Template] = {
    "priority": _asked(
        'Which priority has the issue "{title}"?', "the priority", 0, lambda one: one.priority
    ),
    "status": _asked('Which status has the issue "{title}"?', "the status", 1, lambda one: one.status),
    "assignee": _asked(
        'Who is the issue "{title}" assigned to?',
        "the login name",
        2,
        lambda one: one.assignedto,
        lambda one: one.assignedto,
    ),
    "number": _asked('Which number has the issue "{title}"?', "the number", 3, _number),
    "creator": _asked(
        'Who created the issue "{title}"?', "the login name", 4, lambda one: one.messages[0][0]
    ),
    "keyword": _asked(
        'Which keyword has the issue "{title}"?',
        "the keyword",
        0,
        lambda one: "".join(one.keywords),
        lambda one: len(one.keywords) == 1,
    ),
    "superseder": _asked(
        'Which issue is the superseder of the issue "{title}"?',
        "its number",
        0,
        _replacement,
        lambda one: one.superseder,
    ),
    "superseder-or-itself": _asked(
        'Which issue is the superseder of the issue "{title}"? If it has none, give the number of this one.',
        "the number",
        4,
        _replacement,
        lambda one: one.superseder or one.status == "done-cbb",
    ),
    "file": _asked(
        'What is the name of the file of the issue "{title}"?',
        "the name",
        1,
        lambda one: "".join(name for name, *_ in one.files),
        lambda one: one.files,
    ),
    "last-author": _asked(
        'Who wrote the last message of the issue "{title}"?',
        "the login name",
        7,
        lambda one: one.messages[-1][0],
        lambda one: one.messages[-1][0] != one.messages[0][0],
    ),
    "assignee-phone": _asked(
        'What is the phone number of the person the issue "{title}" is assigned to?',
        "the number, as in 555-0100,",
        5,
        lambda one: PEOPLE[one.assignedto].phone,
        lambda one: one.assignedto,
    ),
    "fact": _fact,
    "said": _said,
    "count-status": _counted("How many issues have the status {status}?", status=STATUSES),
    "count-keyword": _counted("How many issues have the keyword {keyword}?", keyword=KEYWORDS),
    "count-open": _open,
    "saved-query": _saved_count,
    "phone": _phone,
    "phone-of-either": _phone_of_either,
}
CHANGES: dict[str, Template] = {
    "set-priority": _changed(
        "Set the priority of issue {number} to {priority}.", _set(priority=PRIORITIES), 0
    ),
    "set-status": _changed("Set the status of issue {number} to {status}.", _set(status=STATUSES), 1),
    "set-both": _changed(
        'Set the priority of the issue "{title}" to {priority} and its status to {status}.',
        _set(priority=PRIORITIES, status=STATUSES),
        2,
    ),
    "rename": _changed('Change the title of issue {number} to "{title}".', _retitle, 3),
    "assign": _changed('Assign the issue "{title}" to {name}.', _assign, 4),
    "unassign": _changed(
        "Issue {number} is to be assigned to no one: take its assignee away.",
        _unassign,
        5,
        lambda one: one.assignedto,
    ),
    "add-keyword": _changed(
        "Add the keyword {keyword} to those of issue {number}.", _add_keyword, 6, lambda one: one.keywords
    ),
    "remove-keyword": _changed(
        "Take the keyword {keyword} away from issue {number}.", _remove_keyword, 7, lambda one: one.keywords
    ),
    "add-nosy": _changed(
        "Add {name} to the nosy list of issue {number}.",
        _add_nosy,
        8,
        lambda one: len(one.nosy) < len(PEOPLE),
    ),
    "remove-nosy": _changed("Take {name} off the nosy list of issue {number}.", _remove_nosy, 9),
    "supersede": _changed(
        "Issue {number} is replaced by issue {other}: enter {other} as its superseder, and set its status to "
        "resolved.",
        _supersede,
        0,
        lambda one: not one.superseder,
    ),
    "note": _changed('Add the message "{text}" to issue {number}.', _note, 1),
    "note-and-status": _changed(
        'Add the message "{text}" to the issue "{title}", and set its status to {status}.',
        _note_and_status,
        2,
    ),
    "note-and-assign": _changed(
        'Add the message "{text}" to the issue "{title}", and assign it to {name}.', _note_and_assign, 3
    ),
    "hand-back": _changed(
        'Assign the issue "{title}" to the author of its message "{said}", and set its priority to '
        "{priority}.",
        _hand_back,
        4,
        lambda one: len(one.messages) > 1 and one.messages[1][0] != one.assignedto,
    ),
    "remove-message": _changed(
        'Remove the message "{text}" from the issue "{title}".',
        _remove_message,
        5,
        lambda one: len(one.messages) > 1 and one.status in STATUSES[3:6],
    ),
    "remove-file": _changed(
        'Remove the file {file} from the issue "{title}".', _remove_file, 6, lambda one: one.files
    ),
    "rename-file": _changed(
        'Rename the file {file} of the issue "{title}" to {name}.', _rename_file, 7, lambda one: one.files
    ),
    "new": _new,
    "new-with-all": _new_with_all,
    "new-superseder": _new_superseder,
    "ensure": _ensure,
    "keyword-if-missing": _keyword_if_missing,
    "new-keyword": _new_keyword,
    "rename-keyword": _rename_keyword,
    "own-phone": _own_phone,
    "organisation": _organisation,
    "new-person": _new_person,
    "new-person-assigned": _new_person_assigned,
    "save-query": _save_query,
    "delete-query": _delete_query,
    "leave-out": _leave_out,
    "two": _two,
    "same-as": _same_as,
    "reassign-all": _reassign_all,
    "raise-all": _raise_all,
}
TEMPLATES = QUESTIONS | CHANGES
