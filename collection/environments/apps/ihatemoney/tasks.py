"""Tasks at I Hate Money: templates, and checks of what it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from collection.environments.apps.ihatemoney.site import (
    CODES,
    GUEST,
    PROJECTS,
    Bill,
    IHateMoney,
    Opened,
    Project,
)
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for.

    Attributes:
      after: what the project holds when it is done.
      answer: "" if it asks for none.
      made: a project that is there then, too.
    """

    words: str
    after: Project
    answer: str = ""
    made: Opened | None = None


Template = Callable[[Project, int], Goal]


def ihatemoney_tasks(application: IHateMoney, seed: int) -> list[AppTask]:
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
            and (goal.made is None or application.holds(goal.made))
            and (not goal.answer or end.answer.strip() == goal.answer)
        )

    task = make_task(application, name, seed, f'{goal.words} (Project "{PROJECTS[identity].name}")', check)
    opened = task.task.model_copy(update={"website": application.link(identity)})
    return dataclasses.replace(task, task=opened)


def _things(project: Project, seed: int, offset: int = 0) -> Bill:
    return choose(sorted(project.bills, key=lambda bill: bill.what), seed, offset)


def _people(project: Project) -> list[str]:
    return sorted(name for name in project.members if name != GUEST)


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
    words = f'"{bill.what}" was for {GUEST}, too: change the bill so that {GUEST} shares it with the others.'
    return Goal(words, project.with_bill(bill, dataclasses.replace(bill, owers=bill.owers | {GUEST})))


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
    code, email = f"open-{seed % 9}", "keeper@example.com"
    words = (
        f'Start a new project "{title}" with the identifier "{identity}", the private code "{code}" '
        f"and the e-mail address {email}. Leave the other one as it is."
    )
    return Goal(words, project, made=Opened(identity, title, code, email))


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
