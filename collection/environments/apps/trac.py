"""Trac, an issue tracker with a wiki: tickets, milestones, pages; on SQLite."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
from collections.abc import Callable, Mapping
from typing import Any

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import reading
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task

# Trac imports pkg_resources, which later versions of setuptools lack.
REQUIREMENTS = ("Trac==1.6", "Jinja2==3.1.6", "MarkupSafe==3.0.3", "setuptools==80.9.0")
_SITE = pathlib.Path(__file__).with_name("trac_site.py")
# Written by looking at pages.
_BY_VIEWS = ("session", "session_attribute", "auth_cookie")


@dataclasses.dataclass(frozen=True)
class TracTicket:
    """A ticket; `comments` in order."""

    summary: str
    type: str = "defect"
    priority: str = "major"
    component: str = "Cranes"
    milestone: str = ""
    owner: str = ""
    reporter: str = "Mara"
    keywords: str = ""
    cc: str = ""
    status: str = "new"
    resolution: str = ""
    description: str = ""
    comments: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Work:
    """What the tracker holds: tickets by number, and the text of pages by name."""

    tickets: Mapping[int, TracTicket]
    pages: Mapping[str, str]

    def with_ticket(self, number: int, **changes: Any) -> Work:
        """With a ticket changed."""
        return self.with_tickets({number: dataclasses.replace(self.tickets[number], **changes)})

    def with_tickets(self, tickets: Mapping[int, TracTicket]) -> Work:
        return dataclasses.replace(self, tickets={**self.tickets, **tickets})

    def with_page(self, name: str, text: str) -> Work:
        return dataclasses.replace(self, pages={**self.pages, name: text})


COMPONENTS = {"Cranes": "Ines", "Lights": "Tomas", "Moorings": "Wanda", "Office": "Ines"}
MILESTONES = {"Spring check": "2027-03-20", "Summer season": "2027-06-01", "Storm season": "2027-10-15"}
PRIORITIES = ("blocker", "critical", "major", "minor", "trivial")
TYPES = ("defect", "enhancement", "task")
RESOLUTIONS = ("fixed", "invalid", "wontfix", "duplicate", "worksforme")
PEOPLE = ("Ines", "Tomas", "Wanda", "Pavel", "Mara")
_SUMMARIES = (
    *("Crane three stops at half height", "Lamp on the north pier flickers", "Bollard seven is loose"),
    *("Radio licence runs out", "Paint the harbour master's door", "Fender missing at berth four"),
    *("Crane cabin lets rain in", "Replace the fog horn's relay", "Chain of buoy two is worn"),
    *("New chairs for the waiting room", "Siren test wakes the town", "Tide gauge shows nothing"),
)
_NOTES = ("Seen again on Sunday.", "The part is ordered.", "Photograph is with the office.")
_PAGES = {
    "WikiStart": "= Harbour works =\n\nSee HarbourRules, CraneManual and TideTable.",
    "HarbourRules": "= Harbour rules =\n\nSpeed limit in the basin: 4 knots.\n\nQuiet hours begin at 22:00.",
    "CraneManual": "= Crane manual =\n\nCrane one lifts 12 tonnes.\n\nCrane two lifts 20 tonnes.\n\n"
    "Crane three lifts 8 tonnes.",
    "TideTable": "= Tide table =\n\nMean high water: 5.3 metres.\n\nMean low water: 1.1 metres.",
}
# What is asked for, the page, the beginning of its line, the figure there, and figures to correct it to.
FACTS = (
    ("the speed limit in the basin, in knots", "HarbourRules", "Speed limit", "4", ("5", "6", "7")),
    (
        *("the hour at which quiet hours begin, as in 09:30", "HarbourRules", "Quiet hours", "22:00"),
        ("21:30", "22:30", "23:00"),
    ),
    ("the tonnes that crane two lifts", "CraneManual", "Crane two", "20", ("16", "18", "25")),
    ("the tonnes that crane three lifts", "CraneManual", "Crane three", "8", ("6", "7", "9")),
    ("mean low water in metres", "TideTable", "Mean low water", "1.1", ("0.9", "1.2", "1.3")),
)


def _seeded() -> Work:
    draw, tickets = random.Random("harbour"), {}
    for number, summary in enumerate(_SUMMARIES, start=1):
        closed = number % 4 == 0
        component = draw.choice(sorted(COMPONENTS))
        tickets[number] = TracTicket(
            summary,
            type=draw.choice(TYPES),
            priority=draw.choice(PRIORITIES),
            component=component,
            milestone=draw.choice(sorted(MILESTONES)),
            owner=COMPONENTS[component],
            reporter=draw.choice(PEOPLE),
            keywords=draw.choice(("", "safety", "cost")),
            status="closed" if closed else "new",
            resolution=draw.choice(RESOLUTIONS) if closed else "",
            description=f"{summary}, as reported by the night watch.",
            comments=tuple(draw.sample(_NOTES, draw.randrange(3))),
        )
    return Work(tickets, _PAGES)


WORK = _seeded()


class Trac(PythonSite):
    """http://trac.test/: the tickets and pages of `WORK`, open to everyone.

    A reset sets all of it back.
    """

    name = "trac"
    host = "trac.test"
    requirements, script, ready = REQUIREMENTS, _SITE, "/wiki"
    database = "trac/db/trac.db"
    by_views = _BY_VIEWS
    version = digest(REQUIREMENTS, WORK, COMPONENTS, MILESTONES, _SITE.read_text(encoding="utf-8"))

    def work(self) -> Work:
        """Reads what the tracker holds."""
        names = [field.name for field in dataclasses.fields(TracTicket) if field.name != "comments"]
        with reading(self.data / self.database) as database:
            comments: dict[int, list[str]] = {}
            rows = "SELECT ticket, newvalue FROM ticket_change WHERE field = 'comment' ORDER BY time"
            for number, text in database.execute(rows):
                if text:  # A change without words has an empty one.
                    comments.setdefault(number, []).append(_plain(text))
            tickets = {
                number: TracTicket(*map(_plain, values), comments=tuple(comments.get(number, ())))
                for number, *values in database.execute(f"SELECT id, {', '.join(names)} FROM ticket")
            }
            pages = {
                name: _plain(text)
                for name, text in database.execute("SELECT name, text FROM wiki ORDER BY name, version")
            }
        return Work(tickets, pages)

    def _seed(self) -> None:
        work = {
            "components": COMPONENTS,
            "milestones": MILESTONES,
            "tickets": [dataclasses.asdict(ticket) for ticket in WORK.tickets.values()],
            "pages": WORK.pages,
        }
        (self.kept / "work.json").write_text(json.dumps(work), encoding="utf-8")
        self.run_script("create", str(self.kept))


def _plain(text: str | None) -> str:
    """A text as it was meant: forms send two characters at the end of a line, and may add an empty one."""
    return (text or "").replace("\r\n", "\n").strip()


# --- Tasks ---


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for; `answer` is "" if it asks for none."""

    words: str
    after: Work
    answer: str = ""


Template = Callable[[int], Goal]


def trac_tasks(application: Trac, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(application, name, template(seed), seed) for name, template in TEMPLATES.items()]


def _task(application: Trac, name: str, goal: Goal, seed: int) -> AppTask:
    def check(end: Ending) -> bool:
        return application.work() == goal.after and (not goal.answer or end.answer.strip() == goal.answer)

    return make_task(application, name, seed, f"{goal.words} The tracker is {application.url}/.", check)


def _ticket(seed: int, offset: int = 0, closed: bool | None = None) -> tuple[int, TracTicket]:
    found = [
        (n, one) for n, one in WORK.tickets.items() if closed is None or (one.status == "closed") == closed
    ]
    return choose(found, seed, offset)


def _field(name: str, words: str, offset: int, closed: bool | None = None) -> Template:
    """A question about a field of a ticket, which is found by its summary."""

    def goal(seed: int) -> Goal:
        _, ticket = _ticket(seed, offset, closed)
        text = f"{words.format(summary=ticket.summary)} Change nothing; answer with the {name} alone."
        return Goal(text, WORK, getattr(ticket, name))

    return goal


def _number(seed: int) -> Goal:
    number, ticket = _ticket(seed, 4)
    return Goal(
        f'Which number has the ticket "{ticket.summary}"? Answer with the number alone.', WORK, str(number)
    )


def _open_tickets(seed: int) -> Goal:
    component = choose(sorted(COMPONENTS), seed)
    count = sum(one.component == component and one.status != "closed" for one in WORK.tickets.values())
    words = f"How many tickets of the component {component} are not closed? Answer with the number alone."
    return Goal(words, WORK, str(count))


def _fact(seed: int) -> Goal:
    what, page, _, answer, _ = choose(FACTS, seed)
    return Goal(
        f"What is {what}? It is on the page {page} of the wiki; answer with the figure alone.", WORK, answer
    )


def _changed(words: str, offset: int, **fields: Callable[[TracTicket, int], str]) -> Template:
    """A change of fields of an open ticket; `words` has its `number` and the new values."""

    def goal(seed: int) -> Goal:
        number, ticket = _ticket(seed, offset, closed=False)
        new = {name: make(ticket, seed) for name, make in fields.items()}
        return Goal(words.format(number=number, **new), WORK.with_ticket(number, **new))

    return goal


def _other(name: str, values: tuple[str, ...]) -> Callable[[TracTicket, int], str]:
    return lambda ticket, seed: choose([one for one in values if one != getattr(ticket, name)], seed)


def _component(seed: int) -> Goal:
    """A new ticket goes to the owner of its component."""
    number, ticket = _ticket(seed, 2, closed=False)
    component = _other("component", tuple(COMPONENTS))(ticket, seed)
    after = WORK.with_ticket(number, component=component, owner=COMPONENTS[component])
    return Goal(f"Move ticket #{number} to the component {component}.", after)


_REPORTS = (
    "Rope locker cannot be opened",
    "Gate sticks in the frost",
    "Clock on the tower is slow",
    "Hose has a hole",
)
_WORDS = (
    "Measured twice.",
    "The diver has looked at it.",
    "To be done before the fair.",
    "Wanda knows more.",
)


def _new(seed: int) -> Goal:
    ticket = TracTicket(
        choose(_REPORTS, seed),
        type=choose(TYPES, seed),
        priority=choose(PRIORITIES, seed),
        component=choose(sorted(COMPONENTS), seed),
        milestone=choose(sorted(MILESTONES), seed),
        reporter="anonymous",
        description=choose(_WORDS, seed),
    )
    ticket = dataclasses.replace(ticket, owner=COMPONENTS[ticket.component])
    words = (
        f'Report a new ticket "{ticket.summary}" with the description "{ticket.description}", of type '
        f"{ticket.type}, priority {ticket.priority}, component {ticket.component} and milestone "
        f"{ticket.milestone}."
    )
    return Goal(words, WORK.with_tickets({len(WORK.tickets) + 1: ticket}))


def _comment(seed: int) -> Goal:
    number, ticket = _ticket(seed, 3, closed=False)
    text = choose(_WORDS, seed, 1)
    words = f'Add the comment "{text}" to ticket #{number}, and change nothing else in it.'
    return Goal(words, WORK.with_ticket(number, comments=(*ticket.comments, text)))


def _resolve(seed: int) -> Goal:
    number, _ = _ticket(seed, 1, closed=False)
    resolution = choose(RESOLUTIONS, seed)
    words = f"Close ticket #{number}: it is resolved as {resolution}."
    return Goal(words, WORK.with_ticket(number, status="closed", resolution=resolution))


def _resolve_with_comment(seed: int) -> Goal:
    number, ticket = _ticket(seed, 5, closed=False)
    resolution, text = choose(RESOLUTIONS, seed, 2), choose(_WORDS, seed, 2)
    changes = {"status": "closed", "resolution": resolution, "comments": (*ticket.comments, text)}
    words = f'Close ticket #{number} as {resolution}, with the comment "{text}".'
    return Goal(words, WORK.with_ticket(number, **changes))


def _reopen(seed: int) -> Goal:
    number, _ = _ticket(seed, closed=True)
    return Goal(f"Open ticket #{number} again.", WORK.with_ticket(number, status="reopened", resolution=""))


def _reassign(seed: int) -> Goal:
    number, ticket = _ticket(seed, 6, closed=False)
    owner = _other("owner", PEOPLE)(ticket, seed)
    words = f"Give ticket #{number} to {owner}, who becomes its owner."
    return Goal(words, WORK.with_ticket(number, owner=owner, status="assigned"))


def _append(seed: int) -> Goal:
    name, text = choose(sorted(_PAGES), seed), choose(_WORDS, seed)
    words = f'Add a paragraph "{text}" at the end of the page {name} of the wiki; leave the rest as it is.'
    return Goal(words, WORK.with_page(name, f"{_PAGES[name]}\n\n{text}"))


def _correct(seed: int) -> Goal:
    what, name, start, old, others = choose(FACTS, seed, 1)
    new = choose(others, seed)
    text = "\n".join(
        line.replace(old, new) if line.startswith(start) else line for line in _PAGES[name].split("\n")
    )
    words = f"The page {name} of the wiki is wrong about {what}: it is {new}. Correct the figure."
    return Goal(words, WORK.with_page(name, text))


_TITLES = ("DiveLog", "PilotList", "KeyBoard", "FuelPrices")


def _page(seed: int) -> Goal:
    name, text = choose(_TITLES, seed), choose(_WORDS, seed, 3)
    return Goal(f'Make a page {name} in the wiki with the text "{text}".', WORK.with_page(name, text))


QUESTIONS: dict[str, Template] = {
    "owner": _field("owner", 'Who owns the ticket "{summary}"?', 0),
    "priority": _field("priority", 'Which priority has the ticket "{summary}"?', 1),
    "component": _field("component", 'To which component does the ticket "{summary}" belong?', 2),
    "milestone": _field("milestone", 'For which milestone is the ticket "{summary}" planned?', 3),
    "reporter": _field("reporter", 'Who reported the ticket "{summary}"?', 5),
    "resolution": _field("resolution", 'How was the ticket "{summary}" resolved?', 0, closed=True),
    "number": _number,
    "open-tickets": _open_tickets,
    "fact": _fact,
}
CHANGES: dict[str, Template] = {
    "new": _new,
    "comment": _comment,
    "resolve": _resolve,
    "resolve-with-comment": _resolve_with_comment,
    "reopen": _reopen,
    "reassign": _reassign,
    "append": _append,
    "correct": _correct,
    "page": _page,
    "set-priority": _changed(
        "Set the priority of ticket #{number} to {priority}.", 0, priority=_other("priority", PRIORITIES)
    ),
    "set-component": _component,
    "set-milestone": _changed(
        "Plan ticket #{number} for the milestone {milestone}.",
        4,
        milestone=_other("milestone", tuple(MILESTONES)),
    ),
    "set-type": _changed("Ticket #{number} is of type {type}: change it.", 1, type=_other("type", TYPES)),
    "set-summary": _changed(
        'Change the summary of ticket #{number} to "{summary}".',
        3,
        summary=lambda ticket, seed: (
            f"{ticket.summary} ({choose(('urgent', 'north', 'old', 'again'), seed)})"
        ),
    ),
    "set-keywords": _changed(
        'Set the keywords of ticket #{number} to "{keywords}".',
        5,
        keywords=lambda ticket, seed: choose(("winter", "insurance", "divers", "night"), seed),
    ),
    "set-priority-and-type": _changed(
        "Ticket #{number} is of priority {priority} and of type {type}: change both.",
        7,
        priority=_other("priority", PRIORITIES),
        type=_other("type", TYPES),
    ),
    "set-milestone-and-keywords": _changed(
        'Plan ticket #{number} for the milestone {milestone}, and set its keywords to "{keywords}".',
        8,
        milestone=_other("milestone", tuple(MILESTONES)),
        keywords=lambda ticket, seed: choose(("budget", "spare parts", "weather"), seed),
    ),
}
TEMPLATES = QUESTIONS | CHANGES
