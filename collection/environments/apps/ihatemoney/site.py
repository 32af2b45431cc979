"""I Hate Money, which keeps the accounts of a group: projects, people, bills; Flask on SQLite."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import random
from collections.abc import Mapping

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import reading

REQUIREMENTS = (
    *("ihatemoney==7.2.1", "alembic==1.20.1", "aniso8601==10.0.1", "babel==2.19.0", "blinker==1.9.0"),
    *("cachetools==6.2.6", "click==8.5.1", "debts==0.5", "dnspython==2.9.2", "email-validator==2.3.0"),
    *(
        "Flask==3.1.3",
        "flask-babel==4.0.0",
        "flask-cors==6.0.5",
        "Flask-Limiter==4.1.1",
        "Flask-Mail==0.10.0",
    ),
    *("Flask-Migrate==4.1.0", "Flask-RESTful==0.3.10", "Flask-SQLAlchemy==3.1.1", "flask-talisman==1.1.0"),
    *("Flask-WTF==1.2.2", "limits==5.8.0", "python-dateutil==2.9.0.post0", "pytz==2026.2", "qrcode==8.2"),
    *(
        "requests==2.32.5",
        "SQLAlchemy==2.0.58",
        "SQLAlchemy-Continuum==1.5.2",
        "Werkzeug==3.1.9",
        "WTForms==3.2.2",
    ),
)
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")


@dataclasses.dataclass(frozen=True)
class Bill:
    """A bill; `owers` share it by their weights."""

    what: str
    amount: float
    date: str
    payer: str
    owers: frozenset[str]
    kind: str = "EXPENSE"


@dataclasses.dataclass(frozen=True)
class Project:
    """What a project holds.

    Attributes:
      members: weight and whether they take part, by name.
    """

    name: str
    members: Mapping[str, tuple[float, bool]]
    bills: frozenset[Bill]

    def bill(self, what: str) -> Bill:
        return next(bill for bill in self.bills if bill.what == what)

    def paid(self, name: str) -> float:
        return sum(bill.amount for bill in self.bills if bill.payer == name)

    def spent(self, name: str) -> float:
        """The member's share of all bills."""
        return sum(self.share(bill, name) for bill in self.bills if name in bill.owers)

    def share(self, bill: Bill, name: str) -> float:
        weights = sum(self.members[ower][0] for ower in bill.owers)
        return bill.amount * self.members[name][0] / weights

    def with_bill(self, old: Bill | None, new: Bill | None) -> Project:
        """Without a bill, and with another."""
        return dataclasses.replace(self, bills=(self.bills - {old}) | ({new} if new else set()))

    def with_members(self, **members: tuple[float, bool]) -> Project:
        return dataclasses.replace(self, members={**self.members, **members})


_NAMES = {"cabin": "Cabin in March", "band": "The band", "flat": "Flat 12"}
_MEMBERS = {
    "cabin": {"Ada": 1.0, "Bruno": 1.0, "Cleo": 2.0, "Dag": 1.0},
    "band": {"Edith": 2.0, "Farid": 1.0, "Gwen": 1.0, "Hugo": 1.0},
    "flat": {"Ines": 1.0, "Jonas": 2.0, "Kaya": 1.0},
}
_THINGS = {
    "cabin": ("Firewood", "Ferry", "Groceries", "Ski pass", "Lamp oil", "Bread", "Snow chains", "Sauna"),
    "band": ("Strings", "Rehearsal room", "Van", "Posters", "Drum skin", "Cables", "Pizza", "Recording"),
    "flat": ("Rent of June", "Power", "Water", "Paint", "Sofa", "Internet", "Plumber", "Curtains"),
}
# Has no part in any bill yet.
GUEST = "Zoe"


def _seeded(identity: str) -> Project:
    """The same bills each time: amounts of whole pence that their shares divide."""
    draw, names = random.Random(identity), list(_MEMBERS[identity])
    bills = []
    for number, what in enumerate(_THINGS[identity]):
        owers = names if number % 3 else draw.sample(names, 2)
        amount = draw.randrange(3, 40) * 5.0 + number
        payer = names[draw.randrange(len(names))]
        bills.append(Bill(what, amount, f"2026-0{3 + number % 3}-{10 + number}", payer, frozenset(owers)))
    members = {name: (weight, True) for name, weight in _MEMBERS[identity].items()}
    return Project(_NAMES[identity], {**members, GUEST: (1.0, True)}, frozenset(bills))


@dataclasses.dataclass(frozen=True)
class Opened:
    """A project that was started: its identifier, name, private code and e-mail address."""

    identity: str
    name: str
    code: str
    email: str


PROJECTS = {identity: _seeded(identity) for identity in _NAMES}
CODES = {"cabin": "lantern-4", "band": "tuning-fork", "flat": "spare-key-9"}


class IHateMoney(PythonSite):
    """http://ihatemoney.test/: the projects of `PROJECTS`; `links` open them without their codes.

    A reset sets all projects back; browsers stay logged in.
    """

    name = "ihatemoney"
    host = "ihatemoney.test"
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/healthcheck"
    database = "money.sqlite3"
    version = digest(REQUIREMENTS, PROJECTS, CODES, _SCRIPT.read_text(encoding="utf-8"))

    def project(self, identity: str) -> Project:
        """Reads a project; one that is not there is empty."""
        with reading(self.data / self.database) as database:
            names = database.execute("SELECT name FROM project WHERE id = ?", (identity,)).fetchall()
            people = database.execute(
                "SELECT id, name, weight, activated FROM person WHERE project_id = ?", (identity,)
            ).fetchall()
            owers: dict[int, set[str]] = {}
            by_id = {number: name for number, name, *_ in people}
            for bill, person in database.execute("SELECT bill_id, person_id FROM billowers"):
                if person in by_id:
                    owers.setdefault(bill, set()).add(by_id[person])
            rows = database.execute("SELECT id, what, amount, date, payer_id, bill_type FROM bill").fetchall()
        return Project(
            names[0][0] if names else "",
            {name: (weight, bool(active)) for _, name, weight, active in people},
            frozenset(
                Bill(what, amount, date, by_id[payer], frozenset(owers.get(number, ())), kind)
                for number, what, amount, date, payer, kind in rows
                if payer in by_id
            ),
        )

    def holds(self, made: Opened) -> bool:
        """Returns True if a project has this name, private code and e-mail address, and nothing in it yet."""
        with reading(self.data / self.database) as database:
            found = database.execute(
                "SELECT password, contact_email FROM project WHERE id = ?", (made.identity,)
            ).fetchone()
        return (
            found is not None
            and self.project(made.identity) == Project(made.name, {}, frozenset())
            and found[1] == made.email
            and _is_code(made.code, found[0])
        )

    def link(self, identity: str) -> str:
        """The address that opens a project; known once it is prepared."""
        path = self.kept / "links.json"
        links = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return f"{self.url}{links.get(identity, '/')}"

    def _seed(self) -> None:
        projects = [
            {
                "id": identity,
                "name": project.name,
                "code": CODES[identity],
                "members": {name: weight for name, (weight, _) in project.members.items()},
                "bills": [
                    dataclasses.asdict(bill) | {"owers": sorted(bill.owers)}
                    for bill in sorted(project.bills, key=lambda bill: bill.date)
                ],
            }
            for identity, project in PROJECTS.items()
        ]
        (self.kept / "projects.json").write_text(json.dumps(projects), encoding="utf-8")
        self.run_script("create", str(self.kept))


def _is_code(code: str, kept: str) -> bool:
    """Returns True if a hash of Werkzeug's, `scrypt:N:R:P$SALT$HEX`, is of this code."""
    method, salt, digest_ = kept.split("$")
    n, r, p = map(int, method.removeprefix("scrypt:").split(":"))
    found = hashlib.scrypt(code.encode(), salt=salt.encode(), n=n, r=r, p=p, maxmem=132 * n * r * p)
    return found.hex() == digest_
