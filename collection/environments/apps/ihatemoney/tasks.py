"""Tasks at I Hate Money: templates over the rows of its world."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from collection.environments.apps.answers import Answer, other_values
from collection.environments.apps.ihatemoney.world import (
    identifier,
    member,
    pence,
    person,
    project,
    thing,
    title,
)
from collection.environments.apps.templates import (
    Draw,
    Goal,
    Template,
    ask,
    change,
    count,
    create,
    drawn,
    remove,
)
from collection.environments.apps.world import New, Row, World, drop, put

_START = "/{project}/"


def _people(world: World, one: str) -> list[str]:
    """Participants of a project."""
    return [row["name"] for row in world["members"].values() if row["project"] == one]


def _projects(world: World) -> dict[str, str]:
    """Project by participant; the world's have different names."""
    return {row["name"]: row["project"] for row in world["members"].values()}


def _joined(world: World, one: str, name: str) -> World:
    """With a new participant of a project."""
    row = {"project": one, "name": name, "weight": 1.0, "active": 1}
    return put(world, "members", member(one, name), **row)


def _bills(world: World, **values: Any) -> dict[int, Row]:
    """Bills with these values."""
    return {
        number: row
        for number, row in world["bills"].items()
        if all(row[name] == value for name, value in values.items())
    }


def _day(draw: Draw) -> str:
    return draw.day("2026-07-01", "2026-10-31")


def _amount(draw: Draw) -> float:
    return draw.randrange(250, 20000) / 100


# Facts, in pence: shares of the world's bills are whole ones.


def _total(bills: dict[int, Row]) -> int:
    return sum(pence(one["amount"]) for one in bills.values())


def _spent(world: World, name: str) -> int:
    """The share of all bills."""
    weights = {row["name"]: int(row["weight"]) for row in world["members"].values()}
    return sum(
        pence(one["amount"]) * weights[name] // sum(weights[ower] for ower in one["owers"])
        for one in world["bills"].values()
        if name in one["owers"]
    )


def _balance(world: World, name: str) -> float:
    return (_total(_bills(world, payer=name)) - _spent(world, name)) / 100


def _amount_of(words: str, of: Callable[[World, str], float]) -> Template:
    """A question about an amount of a participant."""
    return ask(words, "members", lambda world, key, row: of(world, row["name"]), start=_START)


def _dearest(world: World, draw: Draw) -> Goal:
    _, row = draw.row(world, "bills")
    paid = _bills(world, payer=row["payer"]).values()
    best = max(paid, key=lambda one: one["amount"])
    names = [one["what"] for one in world["bills"].values()]
    words = (
        f"What is the dearest thing that {row['payer']} paid in the project {row['project']}? Change "
        "nothing; answer with its name alone."
    )
    answer = Answer(best["what"], other_values(names, best["what"]))
    return Goal(words, world, answer, f"/{row['project']}/")


def _month(world: World, draw: Draw) -> Goal:
    _, row = draw.row(world, "bills")
    bills = _bills(world, project=row["project"])
    total = _total({key: one for key, one in bills.items() if one["date"][:7] == row["date"][:7]})
    words = (
        f'What were the expenses of all of the project "{world["projects"][row["project"]]["name"]}" in the '
        f"month {row['date'][:7]}? Change nothing; answer with the amount, as in 12.50."
    )
    return Goal(words, world, Answer(total / 100), f"/{row['project']}/")


# Changes.


def _bill(draw: Draw, one: str, payer: str, owers: list[str], **values: Any) -> dict[str, Any]:
    """A new bill."""
    made = {"project": one, "what": thing(draw), "amount": _amount(draw), "date": _day(draw), "payer": payer}
    return {**made, "owers": sorted(owers), "kind": "EXPENSE", "link": "", **values}


def _add(words: str, low: int, high: int) -> Template:
    """A new bill for a number of the participants, or for all."""

    def template(world: World, draw: Draw) -> Goal:
        one = draw.choice(list(world["projects"]))
        people = _people(world, one)
        owers = draw.some(people, low, high)
        row = _bill(draw, one, draw.choice(people), owers)
        text = words.format(**{**row, "owers": " and ".join(row["owers"])})
        return Goal(text, put(world, "bills", New(), **row), start=f"/{one}/")

    return template


def _pay_back(world: World, draw: Draw) -> Goal:
    one = draw.choice(list(world["projects"]))
    payer, receiver = draw.sample(_people(world, one), 2)
    what = f"Share of {thing(draw)}"
    words = (
        '{payer} paid back {amount:.2f} to {owers[0]} on {date}: enter it as a bill "{what}" of the type '
        "reimbursement."
    )
    row = _bill(draw, one, payer, [receiver], what=what, kind="REIMBURSEMENT")
    return create(words, "bills", start=f"/{one}/", **row)(world, draw)


def _settle_up(world: World, draw: Draw) -> Goal:
    """What the balance says goes into a new bill."""
    projects = _projects(world)
    balances = {name: _balance(world, name) for name in projects}
    payer = draw.choice([name for name, value in balances.items() if value < 0])
    one = projects[payer]
    receiver = draw.choice([name for name in _people(world, one) if balances[name] > 0])
    row = _bill(draw, one, payer, [receiver], amount=-balances[payer], kind="REIMBURSEMENT")
    row["what"] = f"Debt of {payer}"
    words = (
        f"{payer} paid the whole debt that the balance shows back to {receiver} on {row['date']}: enter it "
        f'as a bill "{row["what"]}" of the type reimbursement, so that the balance of {payer} is 0.00.'
    )
    return Goal(words, put(world, "bills", New(), **row), start=f"/{one}/")


def _copy(world: World, draw: Draw) -> Goal:
    """What one bill says goes into a new one."""
    _, old = draw.row(world, "bills")
    row = {**old, "what": thing(draw), "date": _day(draw)}
    words = (
        f'Enter a bill "{row["what"]}" of {row["date"]} with the same amount, payer and people as the bill '
        f'"{old["what"]}", which stays as it is.'
    )
    return Goal(words, put(world, "bills", New(), **row), start=f"/{old['project']}/")


def _move(world: World, draw: Draw) -> Goal:
    """What a bill of one project says goes into another project."""
    number, old = draw.row(world, "bills")
    one = draw.other(world["projects"], old["project"])
    people = _people(world, one)
    row = {**old, "project": one, "payer": draw.choice(people), "owers": sorted(people)}
    words = (
        f'The bill "{old["what"]}" belongs to the project "{world["projects"][one]["name"]}", where '
        f"{row['payer']} paid it for everyone: enter it there with its amount and day, and delete it here."
    )
    return Goal(words, put(drop(world, "bills", number), "bills", New(), **row), start=f"/{old['project']}/")


def _changed(words: str, **new: Any) -> Template:
    return change(words, "bills", start=_START, **new)


def _more(world: World, draw: Draw, row: Row, column: str) -> float:
    return round(row["amount"] + draw.randrange(1, 5000) / 100, 2)


def _other_payer(world: World, draw: Draw, row: Row, column: str) -> str:
    return draw.other(_people(world, row["project"]), row["payer"])


def _leave_out(world: World, draw: Draw) -> Goal:
    number, row = draw.row(world, "bills", lambda one: len(one["owers"]) > 2)
    name = draw.choice(row["owers"])
    words = (
        f'{name} had nothing to do with "{row["what"]}": change the bill so that the others share it alone.'
    )
    owers = [one for one in row["owers"] if one != name]
    return Goal(words, put(world, "bills", number, owers=owers), start=f"/{row['project']}/")


def _include(world: World, draw: Draw) -> Goal:
    numbers = [
        number
        for number, row in world["bills"].items()
        if len(row["owers"]) < len(_people(world, row["project"]))
    ]
    number = draw.choice(numbers)
    row = world["bills"][number]
    name = draw.choice([one for one in _people(world, row["project"]) if one not in row["owers"]])
    words = f'"{row["what"]}" was for {name}, too: change the bill so that {name} shares it with the others.'
    after = put(world, "bills", number, owers=sorted([*row["owers"], name]))
    return Goal(words, after, start=f"/{row['project']}/")


def _arrival(world: World, draw: Draw) -> Goal:
    one, name = draw.choice(list(world["projects"])), person(draw)
    words = f"Add {name} to the participants of the project {one}."
    return Goal(words, _joined(world, one, name), start=f"/{one}/")


def _put_right(world: World, draw: Draw) -> Goal:
    """Several bills, one after the other."""
    projects = _projects(world)
    payer = draw.choice(sorted(name for name in projects if len(_bills(world, payer=name)) >= 3))
    one = projects[payer]
    new = draw.other(_people(world, one), payer)
    after = world
    for number in _bills(world, payer=payer):
        after = put(after, "bills", number, payer=new)
    words = f"Not {payer} but {new} paid the bills that {payer} is said to have paid: change all of them."
    return Goal(words, after, start=f"/{one}/")


def _welcome(world: World, draw: Draw) -> Goal:
    """A new participant, who shares some bills."""
    one, name = draw.choice(list(world["projects"])), person(draw)
    chosen = draw.sample(list(_bills(world, project=one)), 3)
    after = _joined(world, one, name)
    for number in chosen:
        after = put(after, "bills", number, owers=sorted([*world["bills"][number]["owers"], name]))
    whats = [f'"{world["bills"][number]["what"]}"' for number in chosen]
    words = (
        f"Add {name} to the participants. Then change the bills {whats[0]}, {whats[1]} and {whats[2]}: "
        f"{name} shares them with the people who share them now."
    )
    return Goal(words, after, start=f"/{one}/")


def _rename(world: World, draw: Draw) -> Goal:
    one, name = draw.choice(list(world["projects"])), title(draw)
    row = world["projects"][one]
    words = (
        f'Rename the project "{row["name"]}" to "{name}" in its settings; its private code is '
        f"{row['code'].text}."
    )
    return Goal(words, put(world, "projects", one, name=name), start=f"/{one}/")


def _new_project(draw: Draw) -> tuple[str, dict[str, Any], str]:
    """Identifier and row of a new project, and the words that ask for it."""
    name = title(draw)
    row = {**project(draw, name), "history": "ENABLED"}
    identity = f"{identifier(name)}-{draw.randint(2, 99)}"
    words = (
        f'Start a new project "{name}" with the identifier "{identity}", the private code '
        f'"{row["code"].text}" and the e-mail address {row["email"]}.'
    )
    return identity, row, words


def _start_project(world: World, draw: Draw) -> Goal:
    identity, row, words = _new_project(draw)
    start = f"/{draw.choice(list(world['projects']))}/"
    after = put(world, "projects", identity, **row)
    return Goal(f"{words} Leave the others as they are.", after, start=start)


def _found(world: World, draw: Draw) -> Goal:
    """A new project with people and a bill."""
    identity, row, words = _new_project(draw)
    start = f"/{draw.choice(list(world['projects']))}/"
    people = draw.distinct(lambda: person(draw), 3)
    after = put(world, "projects", identity, **row)
    for name in people:
        after = _joined(after, identity, name)
    bill = _bill(draw, identity, draw.choice(people), people)
    text = (
        f"{words} Its participants are {people[0]}, {people[1]} and {people[2]}; enter a first bill "
        f'"{bill["what"]}" of {bill["amount"]:.2f} that {bill["payer"]} paid on {bill["date"]} for everyone.'
    )
    return Goal(text, put(after, "bills", New(), **bill), start=start)


_ADD = 'Add a bill "{what}" of {amount:.2f} that {payer} paid on {date} for '
QUESTIONS: dict[str, Template] = {
    "cost": ask(
        'How much did "{what}" cost? Answer with the amount, as in 12.50.', "bills", "amount", start=_START
    ),
    "who-paid": ask('Who paid "{what}"? Answer with the name alone.', "bills", "payer", start=_START),
    "when": ask(
        'On which day was "{what}" paid? Answer as in 2026-01-31.',
        "bills",
        "date",
        form=datetime.date.fromisoformat,
        start=_START,
    ),
    "dearest": _dearest,
    "count": count(
        "How many bills did {payer} pay in the project {project}?", "bills", ("payer",), start=_START
    ),
    "total-paid": _amount_of(
        "How much has {name} paid in all in the project {project}? Answer with the amount, as in 12.50.",
        lambda world, name: _total(_bills(world, payer=name)) / 100,
    ),
    "balance": _amount_of(
        "What is the balance of {name} in the project {project}? Answer with its sign, as in +3.20 or -3.20.",
        _balance,
    ),
    "weight": ask(
        "For how many people does {name} count in the shares of the project {project} (the weight)? Answer "
        "with the number alone.",
        "members",
        "weight",
        start=_START,
    ),
    "month": _month,
    "expenses": _amount_of(
        "How large is the share that {name} has of all expenses of the project {project}? Answer with the "
        "amount, as in 12.50.",
        lambda world, name: _spent(world, name) / 100,
    ),
}
CHANGES: dict[str, Template] = {
    "add": _add(f"{_ADD}everyone.", 9, 9),
    "add-for-some": _add(f"{_ADD}{{owers}} alone.", 2, 2),
    "pay-back": _pay_back,
    "change-amount": _changed(
        'The bill "{what}" is wrong: it was {new_amount:.2f}. Change it.', amount=_more
    ),
    "change-payer": _changed(
        '{new_payer} paid "{what}", not the person who is entered. Change it.', payer=_other_payer
    ),
    "change-date": _changed('"{what}" was paid on {new_date}. Change the bill.', date=drawn(_day)),
    "change-name": _changed('Rename the bill "{what}" to "{new_what}".', what=drawn(thing)),
    "change-amount-and-date": _changed(
        'Change the bill "{what}": {new_amount:.2f}, paid on {new_date}.', amount=_more, date=drawn(_day)
    ),
    "change-payer-and-name": _changed(
        'Change the bill "{what}": it is called "{new_what}", and {new_payer} paid it.',
        what=drawn(thing),
        payer=_other_payer,
    ),
    "leave-out": _leave_out,
    "include": _include,
    "delete": remove('Delete the bill "{what}".', "bills", start=_START),
    "arrival": _arrival,
    "project-name": _rename,
    "new-project": _start_project,
    "settle-up": _settle_up,
    "copy": _copy,
    "move": _move,
    "put-right": _put_right,
    "welcome": _welcome,
    "found": _found,
}
TEMPLATES = QUESTIONS | CHANGES
