"""What a seed's site holds: projects of groups, with participants and the bills that they share."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from typing import Any

from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World

_GROUPS = (
    *("House share", "Choir", "Sailing crew", "Book club", "Jazz band", "Allotment", "Carpool", "Ski trip"),
    *("Football team", "Summer camp", "Film club", "Climbing group", "Theatre group", "Road trip", "Cabin"),
)
_THINGS = (
    *("Firewood", "Ferry tickets", "Groceries", "Ski passes", "Lamp oil", "Bread", "Snow chains", "Strings"),
    *("Posters", "Cables", "Pizza", "Paint", "A sofa", "The plumber", "Curtains", "Candles", "Parking"),
    *("Birthday cake", "Batteries", "Tent pegs", "Seeds", "A ladder", "Sheet music", "Costumes", "Cleaning"),
)
_CODES = ("lantern", "anchor", "teapot", "marble", "compass", "willow", "copper", "walnut", "thimble")
# Bills of tasks are of the months after those of the world.
FIRST, LAST = "2026-01-01", "2026-06-30"


@dataclasses.dataclass(frozen=True)
class Code:
    """A project's private code, which the site keeps as a hash of Werkzeug's, `METHOD$SALT$HEX`."""

    text: str

    @property
    def example(self) -> str:
        return f"pbkdf2:sha256:1$salt${_hash('pbkdf2:sha256:1', 'salt', self.text)}"

    def accepts(self, value: Any) -> bool:
        if isinstance(value, Code):
            return value == self
        method, salt, found = (*value.split("$"), "", "")[:3]
        return bool(found) and _hash(method, salt, self.text) == found


@functools.lru_cache
def _hash(method: str, salt: str, text: str) -> str:
    kind, *values = method.split(":")
    if kind == "scrypt":
        n, r, p = map(int, values)
        return hashlib.scrypt(text.encode(), salt=salt.encode(), n=n, r=r, p=p, maxmem=132 * n * r * p).hex()
    return hashlib.pbkdf2_hmac(values[0], text.encode(), salt.encode(), int(values[1])).hex()


def person(draw: Draw) -> str:
    return f"{draw.fake.first_name()} {draw.fake.last_name()}"


def thing(draw: Draw) -> str:
    """What a bill is for."""
    return f"{draw.choice(_THINGS)} from {draw.fake.company()}"


def title(draw: Draw) -> str:
    """Name of a project."""
    return f"{draw.choice(_GROUPS)} {draw.fake.city()}"


def identifier(name: str) -> str:
    return re.sub(r"\W+", "-", name.lower())


def code(draw: Draw) -> str:
    return f"{draw.choice(_CODES)}-{draw.randint(10, 99)}"


def project(draw: Draw, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "code": Code(code(draw)),
        "email": f"{identifier(person(draw))}@example.com",
        "currency": "XXX",
        "history": "DISABLED",
    }


def member(project: str, name: str) -> str:
    """Key of a participant: another project may have one of the same name."""
    return f"{project}/{name}"


def pence(amount: float) -> int:
    return round(100 * amount)


def make_world(draw: Draw) -> World:
    titles = draw.distinct(lambda: title(draw), draw.randint(2, 3))
    projects = {identifier(name): project(draw, name) for name in titles}
    people = iter(draw.distinct(lambda: person(draw), 18))
    things = iter(draw.distinct(lambda: thing(draw), 36))
    members: dict[str, dict[str, Any]] = {}
    bills: dict[int, dict[str, Any]] = {}
    for one in projects:
        names = [next(people) for _ in range(draw.randint(4, 6))]
        for place, name in enumerate(names):
            # Without different weights, the site shows none.
            weight = draw.randint(2, 4) if place == 0 else draw.choice((1, 1, 1, 2, 3))
            members[member(one, name)] = {"project": one, "name": name, "weight": float(weight), "active": 1}
        for place in range(draw.randint(8, 12)):
            owers = draw.sample(names, draw.randint(2, len(names) - 1)) if place % 3 else names
            # Every share is of whole pence; the first has paid three bills or more.
            shares = sum(int(members[member(one, name)]["weight"]) for name in owers)
            bills[len(bills) + 1] = {
                "project": one,
                "what": next(things),
                "amount": shares * draw.randrange(150, 3000) / 100,
                "date": draw.day(FIRST, LAST),
                "payer": names[0] if place < 3 else draw.choice(names),
                "owers": sorted(owers),
                "kind": "EXPENSE",
                "link": "",
            }
    return {"projects": projects, "members": members, "bills": bills}
