"""django-helpdesk, a support desk: tickets in queues, follow-ups, a knowledge base; on SQLite."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import pathlib
import random
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import content, reading
from collection.environments.apps.tasks import choose

REQUIREMENTS = (
    *("django-helpdesk==2.6.1", "Django==5.2.19", "asgiref==3.13.0", "beautifulsoup4==4.15.0"),
    *("django-cleanup==9.0.0", "django-model-utils==5.0.0", "djangorestframework==3.18.3"),
    *("email-reply-parser==0.5.12", "Markdown==3.11.3", "nh3==0.3.8", "oauthlib==4.0.1"),
    *("requests==2.34.2", "requests-oauthlib==2.0.0", "soupsieve==4.1.3", "sqlparse==0.6.1"),
)
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")
# Tables that `Helpdesk.desk` reads, and those that only log; all others must stay as they are.
_READ = {
    *("helpdesk_ticket", "helpdesk_followup", "helpdesk_ticketcc", "helpdesk_ticketdependency"),
    *("helpdesk_checklist", "helpdesk_checklisttask", "helpdesk_kbitem", "helpdesk_presetreply"),
    *("helpdesk_savedsearch", "helpdesk_ignoreemail", "helpdesk_usersettings"),
}
_LOGS = {
    *("helpdesk_ticketchange", "helpdesk_kbitem_voted_by", "helpdesk_kbitem_downvoted_by"),
    *("django_admin_log", "sqlite_sequence"),
}
_SETTINGS = {
    "login_view_ticketlist": 1,
    "email_on_ticket_change": 1,
    "email_on_ticket_assign": 1,
    "tickets_per_page": 25,
    "use_email_as_submitter": 1,
    "ticket_respond_layout": "tabs",
}


@dataclasses.dataclass(frozen=True)
class Note:
    """A follow-up with words; its author is "" for a visitor."""

    text: str
    public: bool = True
    author: str = "mara"


@dataclasses.dataclass(frozen=True)
class DeskTicket:
    """A ticket.

    Attributes:
      priority: 1 is critical, 5 very low.
      owner: "" if it is assigned to no one.
      copies: e-mail addresses that get copies, and what else they may do.
      needs: numbers of the tickets that it depends on.
      merged: number of the ticket that it was merged into, 0 if of none.
      article: of the knowledge base, from which it was made.
      tasks: of its checklist, and whether they are completed.
      notes: in order; the first is the description.
    """

    title: str
    queue: str
    description: str
    submitter: str
    priority: int = 3
    status: str = "Open"
    owner: str = ""
    due: str = ""
    resolution: str = ""
    on_hold: bool = False
    copies: frozenset[str] = frozenset()
    needs: frozenset[int] = frozenset()
    merged: int = 0
    article: str = ""
    tasks: tuple[tuple[str, bool], ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.status in OPEN


@dataclasses.dataclass(frozen=True)
class Article:
    """An article of the knowledge base; `votes` are those for it and those against it."""

    category: str
    question: str
    answer: str
    votes: tuple[int, int] = (0, 0)
    is_shown: bool = True


@dataclasses.dataclass(frozen=True)
class Search:
    """A saved query; what is empty is not filtered.

    Attributes:
      other: further conditions.
    """

    shared: bool = True
    queues: frozenset[str] = frozenset()
    statuses: frozenset[str] = frozenset()
    priorities: frozenset[int] = frozenset()
    other: str = ""

    def finds(self, ticket: DeskTicket) -> bool:
        return (
            (not self.queues or ticket.queue in self.queues)
            and (not self.statuses or ticket.status in self.statuses)
            and (not self.priorities or ticket.priority in self.priorities)
        )


@dataclasses.dataclass(frozen=True)
class Desk:
    """What the desk holds: tickets by number, the rest by title.

    Attributes:
      replies: texts of the pre-set replies.
      ignored: e-mail addresses whose mails are ignored, by name.
      settings: those that Mara has changed.
    """

    tickets: Mapping[int, DeskTicket]
    articles: Mapping[str, Article]
    replies: Mapping[str, str]
    searches: Mapping[str, Search]
    ignored: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def with_ticket(self, number: int, **changes: Any) -> Desk:
        """With a ticket changed."""
        return self.with_tickets({number: dataclasses.replace(self.tickets[number], **changes)})

    def with_tickets(self, tickets: Mapping[int, DeskTicket]) -> Desk:
        return dataclasses.replace(self, tickets={**self.tickets, **tickets})

    def with_note(self, number: int, note: Note, **changes: Any) -> Desk:
        """With a follow-up at a ticket, and changes of it."""
        return self.with_ticket(number, notes=(*self.tickets[number].notes, note), **changes)

    def with_one(self, kind: str, name: str, value: Any) -> Desk:
        """With another article, reply, search, address or setting; None removes it."""
        others = {key: one for key, one in getattr(self, kind).items() if key != name}
        return dataclasses.replace(self, **{kind: others | ({} if value is None else {name: value})})


STATUSES = ("Open", "Reopened", "Resolved", "Closed", "Duplicate")
OPEN = STATUSES[:2]
PRIORITIES = ("1. Critical", "2. High", "3. Normal", "4. Low", "5. Very Low")
QUEUES = {"accounts": "Accounts", "network": "Network", "printers": "Printers", "rooms": "Rooms"}
STAFF = ("mara", "ines", "pavel", "tomas", "wanda")
_NAMES = ("abel", "bettina", "chiara", "dmitri", "elif", "farah")
SUBMITTERS = tuple(f"{name}@library.example" for name in _NAMES)
_TITLES = {
    "accounts": (
        *("Password of the reading room expired", "New colleague needs a mailbox"),
        *("Badge opens no doors", "Card of a borrower is blocked"),
        *("Signature in mails shows the old address", "Calendar cannot be shared"),
    ),
    "network": (
        *("Wireless is slow in the annex", "Catalogue terminal has no connection"),
        *("Cable on the stairs is torn", "Video calls break off"),
        *("Router in the cellar hums", "Guests cannot reach the portal"),
    ),
    "printers": (
        *("Printer on the second floor prints stripes", "Label printer jams"),
        *("Scanner saves empty files", "Toner is missing in the office"),
        *("Receipts come out twice", "Copier asks for a code"),
    ),
    "rooms": (
        *("Projector in the lecture hall is dark", "Heating of the archive stays cold"),
        *("Blinds in the map room are stuck", "Microphone crackles"),
        *("Lift door closes too early", "Lamp above the desk flickers"),
    ),
}
_REMARKS = ("Called back, no answer yet.", "A spare part is ordered.", "Waiting for the electrician.")
STEPS = ("Call the submitter", "Inspect on site", "Order the part", "Write down the result")


def _seeded() -> dict[int, DeskTicket]:
    """The same tickets each time."""
    draw, found = random.Random(11), {}
    titles = [(queue, title) for queue, some in _TITLES.items() for title in some]
    draw.shuffle(titles)
    statuses = [*("Open",) * 14, *("Reopened",) * 3, *("Resolved",) * 4, *("Closed",) * 3]
    draw.shuffle(statuses)
    for number, ((queue, title), status) in enumerate(zip(titles, statuses, strict=True), start=1):
        day, tag = draw.randrange(2, 29), draw.randrange(1000, 9999)
        description = f"{title}, since day {day}. The device has the tag LB-{tag}."
        notes = [Note(description, author="")]
        if number % 2:
            notes.append(Note(choose(_REMARKS, number), public=number % 4 == 1, author=draw.choice(STAFF)))
        resolution = ""
        if status in ("Resolved", "Closed"):
            resolution = f"Replaced part {draw.randrange(100, 999)}."
            notes.append(Note(resolution, author=draw.choice(STAFF)))
        found[number] = DeskTicket(
            title,
            queue,
            description,
            choose(SUBMITTERS, draw.randrange(6)),
            draw.randrange(1, 6),
            status,
            draw.choice(("", *STAFF)),
            f"2027-{draw.randrange(1, 10):02d}-{draw.randrange(1, 29):02d}",
            resolution,
            tasks=tuple((step, step == STEPS[0]) for step in STEPS) if number % 3 == 0 else (),
            notes=tuple(notes),
        )
    return found


# Title, category, what is asked for, and the text whose last number is the answer.
FACTS = (
    ("Wireless for guests", "network", "how many hours a code for guests is valid", "A code lasts 36 hours."),
    ("Lecture hall", "network", "which socket of the hall is the last connected one", "Use 14 to 22."),
    ("Cable lengths", "network", "how many metres a cable may be long", "At most 85 metres."),
    ("Choosing a password", "accounts", "how many characters a password needs", "At least 17 characters."),
    ("Lost badge", "accounts", "which extension to call for a lost badge", "Call the porter at 4471."),
    ("Leaving", "accounts", "after how many days an account is deleted", "It is deleted after 45 days."),
    ("Changing the toner", "printers", "in which cupboard the toner is", "It is in cupboard 9."),
    ("Stripes on paper", "printers", "after how many pages to clean the drum", "Clean it after 2600 pages."),
)
_REPLIES = {
    "Ask for details": "Please send us the tag of the device and a photograph.",
    "Visit announced": "A technician will visit you tomorrow morning.",
    "Solved by restart": "We have restarted the device; please try again.",
    "Sent to the vendor": "We have passed this on to the vendor, who answers within a week.",
}
_SEARCHES = {
    "Urgent": Search(priorities=frozenset((1, 2)), statuses=frozenset(OPEN)),
    "Quiet rooms": Search(queues=frozenset(("rooms",)), priorities=frozenset((3, 4, 5))),
    "Done": Search(statuses=frozenset(("Resolved", "Closed")), shared=False),
    "People and wires": Search(queues=frozenset(("accounts", "network")), statuses=frozenset(OPEN)),
}
DESK = Desk(
    _seeded(),
    {title: Article(category, f"Do you know {what}?", text) for title, category, what, text in FACTS},
    _REPLIES,
    _SEARCHES,
)


class Helpdesk(PythonSite):
    """http://helpdesk.test/: `DESK`, open as Mara's; `public` is the front page for visitors.

    A reset sets all of it back.
    """

    name = "helpdesk"
    host = "helpdesk.test"
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/kb/"
    database = "desk.sqlite3"
    version = digest(REQUIREMENTS, DESK, QUEUES, STAFF, _SCRIPT.read_text(encoding="utf-8"))

    @property
    def public(self) -> str:
        """The address that makes a browser a visitor of the front page."""
        return f"{self.url}/public/"

    def desk(self) -> Desk:
        """Reads what the desk holds."""
        with reading(self.data / self.database) as database:

            def rows(query: str) -> list[list[Any]]:
                return [list(map(_plain, row)) for row in database.execute(query)]

            def grouped(query: str) -> dict[int, list[Any]]:
                found: dict[int, list[Any]] = {}
                for number, *values in rows(query):
                    found.setdefault(number, []).append(values[0] if len(values) == 1 else tuple(values))
                return found

            slugs: dict[Any, str] = dict(rows("SELECT id, slug FROM helpdesk_queue"))
            users = dict(rows("SELECT id, username FROM auth_user"))
            articles = {number: fields for number, *fields in rows(_ARTICLES)}
            copies, needs, tasks, notes = map(grouped, (_COPIES, _NEEDS, _TASKS, _NOTES))
            tickets = {}
            for number, title, queue, description, submitter, priority, *others in rows(_TICKETS):
                status, owner, due, resolution, on_hold, merged, article = others
                tickets[number] = DeskTicket(
                    title,
                    slugs[queue],
                    description,
                    submitter,
                    priority,
                    STATUSES[status - 1],
                    users.get(owner, ""),
                    due[:10],
                    resolution,
                    bool(on_hold),
                    frozenset(copies.get(number, ())),
                    frozenset(needs.get(number, ())),
                    merged or 0,
                    articles[article][0] if article else "",
                    tuple((text, bool(done)) for text, done in tasks.get(number, ())),
                    tuple(
                        Note(text, bool(public), users.get(user, ""))
                        for text, public, user in notes.get(number, ())
                    ),
                )
            settings = dict(zip(_SETTINGS, rows(_MINE)[0], strict=True))
            return Desk(
                tickets,
                _named(
                    (
                        title,
                        Article(category, question, answer, (votes_for, votes - votes_for), bool(is_shown)),
                    )
                    for title, category, question, answer, votes, votes_for, is_shown in articles.values()
                ),
                _named(rows("SELECT name, body FROM helpdesk_presetreply")),
                _named(
                    (title, _search(bool(shared), json.loads(base64.b64decode(query)), slugs))
                    for title, shared, query in rows("SELECT title, shared, query FROM helpdesk_savedsearch")
                ),
                _named(rows(_IGNORED)),
                {name: value for name, value in settings.items() if value != _SETTINGS[name]},
            )

    def holds(self, desk: Desk) -> bool:
        """Whether the desk holds this, and has nothing else changed."""
        return self.desk() == desk and content(self.data / self.database, without=_READ | _LOGS) == content(
            self.kept / self.database, without=_READ | _LOGS
        )

    def _seed(self) -> None:
        used = sorted({article.category for article in DESK.articles.values()})
        names = {"queues": QUEUES, "staff": STAFF, "categories": {slug: QUEUES[slug] for slug in used}}
        desk = dataclasses.asdict(DESK) | names
        (self.kept / "desk.json").write_text(json.dumps(desk, default=sorted), encoding="utf-8")
        self.run_script("create", str(self.kept))
        with contextlib.closing(sqlite3.connect(self.kept / self.database)) as database:
            database.execute("VACUUM")


_TICKETS = """SELECT id, title, queue_id, description, submitter_email, priority, status, assigned_to_id,
    due_date, resolution, on_hold, merged_to_id, kbitem_id FROM helpdesk_ticket"""
_ARTICLES = """SELECT i.id, i.title, c.slug, i.question, i.answer, i.votes, i.recommendations, i.enabled
    FROM helpdesk_kbitem i JOIN helpdesk_kbcategory c ON c.id = i.category_id"""
_COPIES = """SELECT c.ticket_id, coalesce(u.email, c.email) || iif(can_view, ' may view', '')
    || iif(can_update, ' may update', '')
    FROM helpdesk_ticketcc c LEFT JOIN auth_user u ON u.id = c.user_id"""
_NEEDS = "SELECT ticket_id, depends_on_id FROM helpdesk_ticketdependency"
_TASKS = """SELECT l.ticket_id, t.description, t.completion_date IS NOT NULL FROM helpdesk_checklisttask t
    JOIN helpdesk_checklist l ON l.id = t.checklist_id ORDER BY l.id, t.position, t.id"""
# Changes without words are follow-ups, too.
_NOTES = """SELECT ticket_id, comment, public, user_id FROM helpdesk_followup WHERE comment <> ''
    ORDER BY date, id"""
_IGNORED = """SELECT name, email_address || iif(keep_in_mailbox, ' but kept', '') FROM helpdesk_ignoreemail"""
_MINE = f"""SELECT {", ".join(_SETTINGS)} FROM helpdesk_usersettings s
    JOIN auth_user u ON u.id = s.user_id WHERE u.username = 'mara'"""


def _plain(value: Any) -> Any:
    """A text as it was meant: forms send two characters at the end of a line, and may add an empty one."""
    return (value or "").replace("\r\n", "\n").strip() if value is None or isinstance(value, str) else value


def _named(rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """By names; a name that comes again has another key."""
    found: dict[str, Any] = {}
    for name, value in rows:
        found[f"{name} again" if name in found else name] = value
    return found


def _search(shared: bool, query: Mapping[str, Any], slugs: Mapping[int, str]) -> Search:
    filters = dict(query["filtering"])
    queues, statuses, priorities = (
        filters.pop(name, ()) for name in ("queue__id__in", "status__in", "priority__in")
    )
    other = [str(one) for one in (query.get("search_string"), filters, query.get("filtering_null")) if one]
    return Search(
        shared,
        frozenset(slugs[queue] for queue in queues),
        frozenset(STATUSES[status - 1] for status in statuses),
        frozenset(priorities),
        " ".join(other),
    )
