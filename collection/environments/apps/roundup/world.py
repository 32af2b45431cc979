"""What a seed's tracker holds: a railway museum's issues, messages, files, people, keywords and queries."""

from __future__ import annotations

import re
from typing import Any

from collection.environments.apps.templates import Draw
from collection.environments.apps.world import Row, World

# Who opens the site.
ME = "kim"
PRIORITIES = ("critical", "urgent", "bug", "feature", "wish")
STATUSES = ("unread", "deferred", "chatting", "need-eg", "in-progress", "testing", "done-cbb", "resolved")
ORGANISATIONS = ("Workshop", "Signal box", "Ticket office", "Archive", "Engine shed", "Gift shop", "Tea room")
# What a message says of a figure, and how it is asked for.
FACTS = {
    "the new part costs {} euros": "how many euros the new part costs",
    "the drawing is in drawer {}": "the number of the drawer in which the drawing is",
    "the crack is {} millimetres long": "how many millimetres long the crack is",
    "the supplier needs {} days": "how many days the supplier needs",
    "the repair took {} hours last time": "how many hours the repair took last time",
}
_PARTS = (
    *("Boiler", "Brake hose", "Door", "Lamp", "Whistle", "Roof", "Heater", "Buffer", "Window", "Axle box"),
    *("Lettering", "Coupling", "Floor", "Water gauge", "Ladder", "Luggage rack", "Stove", "Sand pipe"),
)
_VEHICLES = (
    *("engine", "coach", "post van", "railcar", "tender", "dining car", "goods wagon", "snow plough", "tram"),
    *("signal", "water crane", "platform", "shed", "level crossing", "turntable", "handcar"),
)
_PROBLEMS = (
    *("leaks", "is dark", "jams", "squeaks", "drips at night", "is worn", "lets snow in", "is too shrill"),
    *("is broken", "fades", "smells of oil", "is cracked", "has no cord", "rots", "needs paint", "is loose"),
)
_THEMES = (
    *("engine", "coach", "bridge", "tunnel", "winter", "steam", "signal", "children's", "night", "paint"),
    *("safety", "model", "garden", "timetable", "uniform", "map", "photo", "diesel", "station", "electric"),
)
_FUNDS = ("fund", "appeal", "exhibition", "grant", "loan", "gift", "tour", "gala", "survey", "collection")
_ROUNDS = ("Weekly", "Monday", "Friday", "Morning", "Spring", "Autumn", "Urgent", "Shared", "Private", "Old")
_LISTS = ("round", "list", "meeting", "checks", "repairs", "orders", "walk", "reminders", "papers", "visit")
_PAPERS = ("sketch", "invoice", "measurements", "letter", "photo-list", "estimate", "receipt", "plan")
_NOTES = (
    *("The part has arrived; {} signed for it.", "{} will look at it on Friday.", "The inspector told {}."),
    *("To be done before {} comes.", "{} has a spare one.", "Ask {} about the paint.", "{} agrees."),
    *("Seen again with {} after the last train.", "{} knows where the drawing is."),
)


def full_name(draw: Draw) -> str:
    return f"{draw.fake.first_name()} {draw.fake.last_name()}"


def login_of(realname: str) -> str:
    return re.sub(r"[^a-z.]", "", realname.lower().replace(" ", "."))


def person(draw: Draw, realname: str, login: str, roles: str = "User") -> dict[str, Any]:
    return {
        "realname": realname,
        "phone": phone(draw),
        "organisation": draw.choice(ORGANISATIONS),
        "address": f"{login}@museum.example",
        "roles": roles,
        "timezone": "",
        "alternate_addresses": "",
    }


def phone(draw: Draw) -> str:
    return f"{draw.randint(201, 989)}-555-{draw.randint(0, 9999):04d}"


def title(draw: Draw) -> str:
    return f"{draw.choice(_PARTS)} of {draw.choice(_VEHICLES)} {draw.randint(2, 99)} {draw.choice(_PROBLEMS)}"


def keyword(draw: Draw) -> str:
    return f"{draw.fake.last_name()} {draw.phrase(_THEMES, _FUNDS)} {draw.randint(1951, 2026)}"


def note(draw: Draw) -> str:
    return draw.choice(_NOTES).format(full_name(draw))


def query_name(draw: Draw) -> str:
    return f"{draw.phrase(_ROUNDS, _LISTS)} with {full_name(draw)}"


def file_name(draw: Draw) -> str:
    name = login_of(draw.fake.last_name())
    return f"{draw.choice(_PAPERS)}-{name}-{draw.randint(100, 999)}.txt"


def issue(**values: Any) -> Row:
    """A new issue as the form proposes it, with some values."""
    empty = {"assignedto": "", "nosy": [], "keywords": [], "superseder": []}
    return {"title": "", "priority": "", "status": "unread", "creator": ME, **empty, **values}


def make_world(draw: Draw) -> World:
    empty = person(draw, "", "") | {"phone": "", "organisation": "", "address": ""}
    users = {
        "admin": empty | {"address": "roundup-admin@roundup.test", "roles": "Admin"},
        "anonymous": empty | {"roles": "Anonymous"},
        ME: person(draw, f"Kim {draw.fake.last_name()}", ME, "User,Admin"),
    }
    for name in draw.distinct(lambda: full_name(draw), 5):
        users[login_of(name)] = person(draw, name, login_of(name))
    people = list(users)[2:]
    keywords = draw.distinct(lambda: keyword(draw), 5)
    issues: dict[int, Any] = {}
    messages: dict[int, Row] = {}
    files: dict[int, Row] = {}
    for number, text in enumerate(draw.distinct(lambda: title(draw), draw.randint(18, 22)), start=1):
        creator, second, third = draw.sample(people, 3)
        said = [(creator, f"{text}, as {full_name(draw)} has seen.")]
        if number % 3:
            fact = draw.choice(list(FACTS)).format(draw.randint(12, 97))
            said.append((second, f"{full_name(draw)} says that {fact}."))
        said += [(third, note(draw))] * (number % 4 == 0)
        for author, words in said:
            messages[len(messages) + 1] = {"issue": number, "author": author, "text": words}
        if number % 2:
            content = f"Paper of {full_name(draw)}."
            files[len(files) + 1] = {
                "issue": number,
                "name": file_name(draw),
                "type": "text/plain",
                "content": content,
            }
        is_replaced = number % 6 == 0
        values = {
            "priority": draw.choice(PRIORITIES),
            "status": "resolved" if is_replaced else draw.choice(STATUSES[:-1]),
            "assignedto": "" if number % 5 == 0 else draw.choice(people[1:] if number == 2 else people),
        }
        if number in (3, 4):  # Templates change all issues that have these in common.
            values = {name: issues[2][name] for name in values}
        nosy = {*(author for author, _ in said), values["assignedto"], draw.choice(people)} - {""}
        count = 0 if number % 7 == 0 else draw.choice((1, 1, 2))
        chosen = keywords[:1] if number % 4 == 1 else draw.sample(keywords[1:], count)
        issues[number] = issue(
            title=text,
            creator=creator,
            nosy=sorted(nosy),
            keywords=sorted(chosen),
            superseder=[number - draw.randint(1, 5)] if is_replaced else [],
            **values,
        )
    queries = {
        number: {"name": name, "filters": [_filter(draw, people, keywords)], "creator": ME}
        | {"listed": 1, "private": 1}
        for number, name in enumerate(draw.distinct(lambda: query_name(draw), 5), start=1)
    }
    return {
        "users": users,
        "keywords": {name: {} for name in keywords},
        "issues": issues,
        "messages": messages,
        "files": files,
        "queries": queries,
    }


def _filter(draw: Draw, people: list[str], keywords: list[str]) -> str:
    values = {"status": STATUSES, "priority": PRIORITIES, "assignedto": people, "keyword": keywords}
    name = draw.choice(list(values))
    return f"{name}: {draw.choice(values[name])}"
