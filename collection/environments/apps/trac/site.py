"""Trac, an issue tracker with a wiki: tickets, milestones, pages; on SQLite."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
from collections.abc import Mapping
from typing import Any

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import reading

# Trac imports pkg_resources, which later versions of setuptools lack.
REQUIREMENTS = ("Trac==1.6", "Jinja2==3.1.6", "MarkupSafe==3.0.3", "setuptools==80.9.0")
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")
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
PAGES = {
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
    return Work(tickets, PAGES)


WORK = _seeded()


class Trac(PythonSite):
    """http://trac.test/: the tickets and pages of `WORK`, open to everyone.

    A reset sets all of it back.
    """

    name = "trac"
    host = "trac.test"
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/wiki"
    database = "trac/db/trac.db"
    by_views = _BY_VIEWS
    version = digest(REQUIREMENTS, WORK, COMPONENTS, MILESTONES, _SCRIPT.read_text(encoding="utf-8"))

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
