"""What a seed's tracker holds: a harbour's tickets, milestones and wiki."""

from __future__ import annotations

from typing import Any

from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World

PRIORITIES = ("blocker", "critical", "major", "minor", "trivial")
TYPES = ("defect", "enhancement", "task")
RESOLUTIONS = ("fixed", "invalid", "wontfix", "duplicate", "worksforme")
# What the world's tickets leave empty.
UNSET = {"cc": "", "severity": "", "version": ""}
_THINGS = (
    *("Crane", "Lamp", "Bollard", "Fender", "Winch", "Buoy", "Siren", "Gate", "Ladder", "Pump", "Radio mast"),
    *(
        "Tide gauge",
        "Fog horn",
        "Slipway",
        "Mooring ring",
        "Fuel hose",
        "Bilge tank",
        "Weather vane",
        "Hoist",
    ),
)
_PLACES = (
    *("north pier", "south pier", "dry dock", "fish market", "ferry berth", "customs house", "outer mole"),
    *("yacht basin", "coal quay", "pilot station", "boatyard", "lighthouse", "harbour office", "old lock"),
)
_PROBLEMS = (
    *("stops at half height", "lets rain in", "is loose", "leaks oil", "has no licence", "needs paint"),
    *("makes a noise at night", "is worn", "flickers", "shows nothing", "rusts", "is bent", "blocks the way"),
    *("cannot be locked", "hangs too low", "was hit by a barge", "is missing a bolt", "smells of fuel"),
)
_COMPONENTS = (
    "Cranes",
    "Lights",
    "Moorings",
    "Office",
    "Dredging",
    "Pilots",
    "Fuel",
    "Ferries",
    "Locks",
    "Radio",
)
_SEASONS = ("Spring", "Summer", "Autumn", "Winter", "Easter", "Storm", "Regatta", "Herring", "Holiday")
_PLANS = ("check", "season", "inspection", "repairs", "works", "audit")
_KEYWORDS = ("safety", "cost", "insurance", "divers", "night", "spare parts", "budget", "weather", "noise")
_NOTES = (
    *(
        "Seen again on {}.",
        "The part is ordered; {} called.",
        "{} has the photograph.",
        "Measured by {} twice.",
    ),
    *(
        "To be done before {} leaves.",
        "{} knows more.",
        "The diver told {} about it.",
        "{} wants it done first.",
    ),
)
_TOPICS = ("Rules", "Manual", "Table", "Guide", "List", "Notes", "Plan")
_SUBJECTS = (
    "Harbour",
    "Crane",
    "Tide",
    "Pilot",
    "Fuel",
    "Mooring",
    "Ferry",
    "Lock",
    "Dock",
    "Storm",
    "Radio",
)
_FIGURES = (
    *("Speed limit at the {} in knots", "Load at the {} in tonnes", "Depth at the {} in metres"),
    *("Berths at the {}", "Lamps at the {}", "Length of the {} in metres", "Fee at the {} in euros"),
)


def summary(draw: Draw) -> str:
    return (
        f"{draw.choice(_THINGS)} {draw.randint(2, 99)} at the {draw.choice(_PLACES)} {draw.choice(_PROBLEMS)}"
    )


def keywords(draw: Draw) -> str:
    return draw.choice(_KEYWORDS)


def note(draw: Draw) -> str:
    return draw.choice(_NOTES).format(draw.fake.name())


def page_name(draw: Draw) -> str:
    """A name that Trac links by itself: two words in one."""
    return f"{draw.fake.last_name().capitalize()}{draw.choice(_SUBJECTS)}{draw.choice(_TOPICS)}"


def make_world(draw: Draw) -> World:
    people = draw.distinct(draw.fake.first_name, 5)
    components = {name: {"owner": draw.choice(people)} for name in draw.sample(_COMPONENTS, 4)}
    plans = draw.distinct(lambda: f"{draw.phrase(_SEASONS, _PLANS)} {draw.randint(2, 99)}", 3)
    milestones = {plan: {"due": draw.day("2027-01-01", "2027-12-31")} for plan in plans}
    tickets: dict[int, dict[str, Any]] = {}
    for number, text in enumerate(draw.distinct(lambda: summary(draw), draw.randint(12, 18)), start=1):
        # The first eight are open; all three milestones have open tickets.
        closed = (number > 8 and draw.random() < 0.4) or number == 12
        component = draw.choice(list(components))
        tickets[number] = {
            "summary": text,
            "type": draw.choice(TYPES),
            "priority": draw.choice(PRIORITIES),
            "component": component,
            "milestone": plans[number % 3] if number <= 8 else draw.choice(plans),
            "owner": components[component]["owner"],
            "reporter": draw.choice(people),
            "keywords": draw.choice(("", keywords(draw))) if number > 1 else "",
            "status": "closed" if closed else "new",
            "resolution": draw.choice(RESOLUTIONS) if closed else "",
            **UNSET,
            "description": f"{text}. {note(draw)}",
            "comments": [note(draw) for _ in range(draw.randint(0, 2))],
        }
    pages = {}
    for name in draw.distinct(lambda: page_name(draw), 3):
        lines = draw.distinct(lambda: draw.choice(_FIGURES).format(draw.choice(_PLACES)), draw.randint(3, 5))
        facts = [f"{line}: {draw.randint(2, 60)}" for line in lines]
        pages[name] = {"text": "\n\n".join([f"= {name} =", *facts])}
    pages["WikiStart"] = {"text": "\n\n".join(["= Harbour works =", *(f"See {name}." for name in pages)])}
    return {"components": components, "milestones": milestones, "tickets": tickets, "pages": pages}
