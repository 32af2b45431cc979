"""I Hate Money, which keeps the accounts of a group: projects, people, bills; Flask on SQLite."""

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
_SITE = pathlib.Path(__file__).with_name("ihatemoney_site.py")


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
_GUEST = "Zoe"


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
    return Project(_NAMES[identity], {**members, _GUEST: (1.0, True)}, frozenset(bills))


PROJECTS = {identity: _seeded(identity) for identity in _NAMES}
CODES = {"cabin": "lantern-4", "band": "tuning-fork", "flat": "spare-key-9"}


class IHateMoney(PythonSite):
    """http://ihatemoney.test/: the projects of `PROJECTS`; `links` open them without their codes.

    A reset sets all projects back; browsers stay logged in.
    """

    name = "ihatemoney"
    host = "ihatemoney.test"
    requirements, script, ready = REQUIREMENTS, _SITE, "/healthcheck"
    database = "money.sqlite3"
    version = digest(REQUIREMENTS, PROJECTS, CODES, _SITE.read_text(encoding="utf-8"))

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


# --- Tasks ---


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for.

    Attributes:
      after: what the project holds when it is done.
      answer: "" if it asks for none.
      made: identifier and name of a project that is there then, too.
    """

    words: str
    after: Project
    answer: str = ""
    made: tuple[str, str] = ("", "")


Template = Callable[[Project, int], Goal]


def money_tasks(application: IHateMoney, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(application, name, template, seed) for name, template in TEMPLATES.items()]


def _task(application: IHateMoney, name: str, template: Template, seed: int) -> AppTask:
    identity = choose(list(PROJECTS), seed)
    goal = template(PROJECTS[identity], seed // len(PROJECTS))
    others = {other: project for other, project in PROJECTS.items() if other != identity}

    def check(end: Ending) -> bool:
        return (
            application.project(identity) == goal.after
            and all(application.project(other) == project for other, project in others.items())
            and (not goal.made[0] or application.project(goal.made[0]).name == goal.made[1])
            and (not goal.answer or end.answer.strip() == goal.answer)
        )

    task = make_task(application, name, seed, f'{goal.words} (Project "{PROJECTS[identity].name}")', check)
    opened = task.task.model_copy(update={"website": application.link(identity)})
    return dataclasses.replace(task, task=opened)


def _things(project: Project, seed: int, offset: int = 0) -> Bill:
    return choose(sorted(project.bills, key=lambda bill: bill.what), seed, offset)


def _people(project: Project) -> list[str]:
    return sorted(name for name in project.members if name != _GUEST)


def _money(amount: float) -> str:
    return f"{amount:.2f}"


def _asks(words: str, project: Project, answer: str) -> Goal:
    return Goal(f"{words} Change nothing.", project, answer)


def _cost(project: Project, seed: int) -> Goal:
    bill = _things(project, seed)
    return _asks(
        f'How much did "{bill.what}" cost? Answer with the amount, as in 12.50.', project, _money(bill.amount)
    )


def _who_paid(project: Project, seed: int) -> Goal:
    bill = _things(project, seed, 3)
    return _asks(f'Who paid "{bill.what}"? Answer with the name alone.', project, bill.payer)


def _when(project: Project, seed: int) -> Goal:
    bill = _things(project, seed, 5)
    return _asks(f'On which day was "{bill.what}" paid? Answer as in 2026-01-31.', project, bill.date)


def _dearest(project: Project, seed: int) -> Goal:
    payer = choose(sorted({bill.payer for bill in project.bills}), seed)
    bill = max((one for one in project.bills if one.payer == payer), key=lambda one: one.amount)
    return _asks(
        f"What is the dearest thing that {payer} paid? Answer with its name alone.", project, bill.what
    )


def _count(project: Project, seed: int) -> Goal:
    payer = choose(sorted({bill.payer for bill in project.bills}), seed, 1)
    number = sum(bill.payer == payer for bill in project.bills)
    return _asks(f"How many bills did {payer} pay? Answer with the number alone.", project, str(number))


def _total_paid(project: Project, seed: int) -> Goal:
    name = choose(_people(project), seed)
    words = f"How much has {name} paid in all? Answer with the amount, as in 12.50."
    return _asks(words, project, _money(project.paid(name)))


def _balance(project: Project, seed: int) -> Goal:
    name = choose(_people(project), seed, 1)
    balance = f"{project.paid(name) - project.spent(name):+.2f}"
    return _asks(f"What is {name}'s balance? Answer with its sign, as in +3.20 or -3.20.", project, balance)


def _weight(project: Project, seed: int) -> Goal:
    name = choose(_people(project), seed, 2)
    words = f"For how many people does {name} count in shares (the weight)? Answer with the number alone."
    return _asks(words, project, f"{project.members[name][0]:g}")


_NEW = ("Tent pegs", "Candles", "Parking", "Birthday cake", "Batteries")


def _new_bill(project: Project, seed: int, owers: frozenset[str]) -> Bill:
    name, day = choose(_people(project), seed, 2), f"2026-07-{1 + seed % 28:02d}"
    return Bill(choose(_NEW, seed), 12.5 + seed % 17, day, name, owers)


def _add(project: Project, seed: int) -> Goal:
    bill = _new_bill(project, seed, frozenset(project.members))
    amount = _money(bill.amount)
    words = f'Add a bill "{bill.what}" of {amount} that {bill.payer} paid on {bill.date} for everyone.'
    return Goal(words, project.with_bill(None, bill))


def _add_for_some(project: Project, seed: int) -> Goal:
    names = _people(project)
    owers = frozenset((choose(names, seed), choose(names, seed, 1)))
    bill = _new_bill(project, seed, owers)
    words = (
        f'Add a bill "{bill.what}" of {_money(bill.amount)} that {bill.payer} paid on {bill.date} for '
        f"{' and '.join(sorted(owers))} alone."
    )
    return Goal(words, project.with_bill(None, bill))


def _pay_back(project: Project, seed: int) -> Goal:
    names = _people(project)
    payer, receiver = choose(names, seed), choose(names, seed, 1)
    bill = Bill(
        "Paid back",
        5.0 + seed % 9,
        f"2026-08-{1 + seed % 28:02d}",
        payer,
        frozenset((receiver,)),
        "REIMBURSEMENT",
    )
    words = (
        f"{payer} paid back {_money(bill.amount)} to {receiver} on {bill.date}: enter it as a bill "
        f'"{bill.what}" of the type reimbursement.'
    )
    return Goal(words, project.with_bill(None, bill))


def _changed(words: str, **fields: Callable[[Project, Bill, int], Any]) -> Template:
    """A template that changes fields of a bill; `words` has `what` and the new values."""

    def goal(project: Project, seed: int) -> Goal:
        bill = _things(project, seed, len(words) % 7)
        new = {name: make(project, bill, seed) for name, make in fields.items()}
        shown = {name: _money(value) if isinstance(value, float) else value for name, value in new.items()}
        return Goal(
            words.format(old=bill.what, **shown), project.with_bill(bill, dataclasses.replace(bill, **new))
        )

    return goal


def _other_payer(project: Project, bill: Bill, seed: int) -> str:
    return choose([name for name in _people(project) if name != bill.payer], seed)


def _leave_out(project: Project, seed: int) -> Goal:
    shared = sorted((one for one in project.bills if len(one.owers) > 2), key=lambda one: one.what)
    bill = choose(shared, seed)
    name = choose(sorted(bill.owers), seed)
    words = f'{name} had nothing to do with "{bill.what}": change the bill so that the others share it alone.'
    return Goal(words, project.with_bill(bill, dataclasses.replace(bill, owers=bill.owers - {name})))


def _include(project: Project, seed: int) -> Goal:
    bill = _things(project, seed, 6)
    words = (
        f'"{bill.what}" was for {_GUEST}, too: change the bill so that {_GUEST} shares it with the others.'
    )
    return Goal(words, project.with_bill(bill, dataclasses.replace(bill, owers=bill.owers | {_GUEST})))


def _delete(project: Project, seed: int) -> Goal:
    bill = _things(project, seed, 2)
    return Goal(f'Delete the bill "{bill.what}".', project.with_bill(bill, None))


_ARRIVALS = ("Liv", "Milo", "Nour", "Otto", "Priya")


def _arrival(project: Project, seed: int) -> Goal:
    name = choose(_ARRIVALS, seed)
    return Goal(f"Add {name} to the participants.", project.with_members(**{name: (1.0, True)}))


def _month(project: Project, seed: int) -> Goal:
    month = choose(sorted({bill.date[:7] for bill in project.bills}), seed)
    total = sum(bill.amount for bill in project.bills if bill.date.startswith(month))
    words = f"What were the expenses of all in the month {month}? Answer with the amount, as in 12.50."
    return _asks(words, project, _money(total))


def _expenses(project: Project, seed: int) -> Goal:
    name = choose(_people(project), seed, 1)
    words = f"How large is {name}'s share of all expenses? Answer with the amount, as in 12.50."
    return _asks(words, project, _money(project.spent(name)))


_TITLES = ("Summer trip", "Choir", "Allotment", "Book club")


def _project_name(project: Project, seed: int) -> Goal:
    title = choose(_TITLES, seed)
    code = CODES[next(identity for identity, one in PROJECTS.items() if one is project)]
    words = f'Rename the project to "{title}" in its settings; its private code is {code}.'
    return Goal(words, dataclasses.replace(project, name=title))


def _new_project(project: Project, seed: int) -> Goal:
    title, identity = choose(_TITLES, seed, 1), f"group-{10 + seed % 80}"
    words = (
        f'Start a new project "{title}" with the identifier "{identity}", the private code "open-{seed % 9}" '
        "and the e-mail address keeper@example.com. Leave the other one as it is."
    )
    return Goal(words, project, made=(identity, title))


QUESTIONS: dict[str, Template] = {
    "cost": _cost,
    "who-paid": _who_paid,
    "when": _when,
    "dearest": _dearest,
    "count": _count,
    "total-paid": _total_paid,
    "balance": _balance,
    "weight": _weight,
    "month": _month,
    "expenses": _expenses,
}
CHANGES: dict[str, Template] = {
    "add": _add,
    "add-for-some": _add_for_some,
    "pay-back": _pay_back,
    "change-amount": _changed(
        'The bill "{old}" is wrong: it was {amount}. Change it.',
        amount=lambda _, bill, seed: bill.amount + 1.25 + seed % 5,
    ),
    "change-payer": _changed('{payer} paid "{old}", not who is entered. Change it.', payer=_other_payer),
    "change-date": _changed(
        '"{old}" was paid on {date}. Change the bill.',
        date=lambda _, bill, seed: f"2026-09-{1 + seed % 28:02d}",
    ),
    "change-name": _changed(
        'Rename the bill "{old}" to "{what}".',
        what=lambda _, bill, seed: f"{bill.what} ({choose(_NEW, seed)})",
    ),
    "change-amount-and-date": _changed(
        'Change the bill "{old}": {amount}, paid on {date}.',
        amount=lambda _, bill, seed: bill.amount + 2.5,
        date=lambda _, bill, seed: f"2026-10-{1 + seed % 28:02d}",
    ),
    "change-payer-and-name": _changed(
        'Change the bill "{old}": it is called "{what}", and {payer} paid it.',
        what=lambda _, bill, seed: f"{bill.what}, second half",
        payer=_other_payer,
    ),
    "leave-out": _leave_out,
    "include": _include,
    "delete": _delete,
    "arrival": _arrival,
    "project-name": _project_name,
    "new-project": _new_project,
}
TEMPLATES = QUESTIONS | CHANGES
