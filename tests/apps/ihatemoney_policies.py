"""Policies for the tasks at I Hate Money; each knows the site's pages, and reads everything else."""

from __future__ import annotations

import re
from decimal import Decimal

from tests.apps.actor import Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")


def rows(page: Page) -> list[dict[str, str]]:
    """The bills of the list: date, payer, what, owers, amount, and the number of the bill's edit link."""
    lines, found = list(page.lines), []
    for at, line in enumerate(lines):
        if re.fullmatch(r"\d{4}-\d\d-\d\d", line):
            date, payer, what, owers, amount = lines[at : at + 5]
            links = " ".join(lines[at + 5 : at + 8])
            edit = re.match(r"\*?\[(\d+)\]<a title=edit", links)
            remove = re.search(r"\[(\d+)\]<button title=delete", links)
            assert remove, links
            row = {"date": date, "payer": payer, "what": what, "owers": owers, "amount": amount.split()[0]}
            found.append(row | {"edit": edit[1] if edit else "", "delete": remove[1]})
    return found


def row(page: Page, what: str) -> dict[str, str]:
    return next(one for one in rows(page) if one["what"] == what)


def all_bills(page: Page) -> Moves:
    """Scrolls to the end of the list, which is short."""
    return (yield from scroll_until(page, lambda now: now.view.pages_below < 0.05))


def balances(page: Page) -> dict[str, str]:
    lines = list(page.lines)
    return {
        name[1]: lines[at + 1]
        for at, line in enumerate(lines)
        if (name := re.fullmatch(r"(\w+)(?: \(x[\d.]+\))?", line))
        and at + 1 < len(lines)
        and re.fullmatch(r"[+-]?\d+\.\d\d", lines[at + 1])
    }


def asked(page: Page, pattern: str) -> str:
    found = re.search(pattern, page.request)
    assert found, page.request
    return found[1]


# Questions.


def cost(page: Page) -> Playing:
    page = yield from all_bills(page)
    yield done(row(page, quoted(page)[0])["amount"])


def who_paid(page: Page) -> Playing:
    page = yield from all_bills(page)
    yield done(row(page, quoted(page)[0])["payer"])


def when(page: Page) -> Playing:
    page = yield from all_bills(page)
    yield done(row(page, quoted(page)[0])["date"])


def dearest(page: Page) -> Playing:
    payer = asked(page, r"that (\w+) paid")
    page = yield from all_bills(page)
    best = max((one for one in rows(page) if one["payer"] == payer), key=lambda one: Decimal(one["amount"]))
    yield done(best["what"])


def count(page: Page) -> Playing:
    payer = asked(page, r"did (\w+) pay")
    page = yield from all_bills(page)
    yield done(str(sum(one["payer"] == payer for one in rows(page))))


def total_paid(page: Page) -> Playing:
    payer = asked(page, r"has (\w+) paid")
    page = yield from all_bills(page)
    yield done(
        f"{sum((Decimal(one['amount']) for one in rows(page) if one['payer'] == payer), Decimal()):.2f}"
    )


def balance(page: Page) -> Playing:
    yield done(balances(page)[asked(page, r"is (\w+)'s balance")])


def weight(page: Page) -> Playing:
    name = asked(page, r"does (\w+) count")
    yield done(page.match(rf"^{name} \(x([\d.]+)\)")[1])


def month(page: Page) -> Playing:
    year, number = asked(page, r"month (\d{4}-\d\d)").split("-")
    page = yield from press(page, "Statistics", "a")
    page = yield from scroll_until(page, lambda now: "Period" in now.lines)
    lines = list(page.lines)
    yield done(lines[lines.index(f"{_MONTHS[int(number) - 1]} {year}") + 1])


def expenses(page: Page) -> Playing:
    name = asked(page, r"is (\w+)'s share")
    page = yield from press(page, "Statistics", "a")
    lines, place = list(page.lines), list(balances(page)).index(name)
    # Paid, expenses, transfers and receipts of each, in the order of the names.
    first = lines.index("Received") + 1
    yield done(lines[first + 4 * place + 1].lstrip("-"))


# Changes.


def fill(page: Page, values: dict[str, str]) -> list[dict]:
    """The actions that fill in fields of a bill."""
    actions = []
    for name, value in values.items():
        if name == "payer":
            index = page.one(tag="select", name=name)
            actions.append({"select_dropdown_option": {"index": index, "text": value}})
        else:
            actions.append(type_in(page.one(tag="input", name=name), value))
    return actions


def boxes(page: Page) -> dict[str, tuple[int, bool]]:
    """Index and state of the box of each participant."""
    lines = list(page.lines)
    found = {}
    for element in page.all(tag="input", name="payed_for"):
        at = next(place for place, line in enumerate(lines) if re.match(rf"\*?\[{element.index}\]<", line))
        found[lines[at + 1]] = (element.index, element.attributes.get("checked") == "true")
    return found


def submit(page: Page) -> Playing:
    page = yield "Submit", [click(page.one(tag="input", id="submit"))]
    yield done("It is entered.")


def add(page: Page) -> Playing:
    what = quoted(page)[0]
    amount, payer, date, owers = re.findall(
        r"of ([\d.]+) that (\w+) paid on (\S+) for (everyone|\w+ and \w+)", page.request
    )[0]
    page = yield from press(page, "Add a new bill", "a")
    values = {"date": date, "what": what, "payer": payer, "amount": amount}
    page = yield "Fill in the bill", fill(page, values)
    yield from choose_owers(page, None if owers == "everyone" else set(owers.split(" and ")))


def choose_owers(page: Page, wanted: set[str] | None) -> Playing:
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", id="submit")))
    wrong = [
        index for name, (index, on) in boxes(page).items() if wanted is not None and on != (name in wanted)
    ]
    for index in wrong:
        page = yield "Choose who shares it", [click(index)]
    yield from submit(page)


def pay_back(page: Page) -> Playing:
    payer, amount, receiver, date = re.findall(
        r"(\w+) paid back ([\d.]+) to (\w+) on ([\d-]+)", page.request
    )[0]
    page = yield from press(page, "Add a new bill", "a")
    values = {"date": date, "what": quoted(page)[0], "payer": payer, "amount": amount}
    page = yield "Fill in the bill", fill(page, values)
    page = yield from press(page, "More options", "summary")
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="select", name="bill_type")))
    kind = page.one(tag="select", name="bill_type")
    page = yield "Choose the type", [{"select_dropdown_option": {"index": kind, "text": "Reimbursement"}}]
    yield from choose_owers(page, {receiver})


def open_bill(page: Page, what: str) -> Moves:
    page = yield from all_bills(page)
    return (yield f"Open {what}", [click(int(row(page, what)["edit"]))])


def change(page: Page) -> Playing:
    texts, request = quoted(page), page.request
    what = texts[0]
    values = {}
    if found := re.search(r"(?:was|:) (\d+\.\d\d)", request):
        values["amount"] = found[1]
    if found := re.search(r"paid on (\d{4}-\d\d-\d\d)", request):
        values["date"] = found[1]
    if found := re.search(r'^(\w+) paid "|and (\w+) paid it', request):
        values["payer"] = found[1] or found[2]
    if found := re.search(r'(?:to|called) "([^"]*)"', request):
        values["what"] = found[1]
    page = yield from open_bill(page, what)
    page = yield "Change the bill", fill(page, values)
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", id="submit")))
    yield from submit(page)


def leave_out(page: Page) -> Playing:
    name = asked(page, r"^(\w+) had")
    page = yield from open_bill(page, quoted(page)[0])
    yield from choose_owers(page, {one for one, (_, on) in boxes(page).items() if on} - {name})


def include(page: Page) -> Playing:
    name = asked(page, r"was for (\w+), too")
    page = yield from open_bill(page, quoted(page)[0])
    yield from choose_owers(page, {one for one, (_, on) in boxes(page).items() if on} | {name})


def delete(page: Page) -> Playing:
    what = quoted(page)[0]
    page = yield from all_bills(page)
    for _ in range(3):  # It asks whether that is meant.
        if not any(one["what"] == what for one in rows(page)):
            break
        page = yield "Delete it", [click(int(row(page, what)["delete"]))]
    yield done("It is deleted.")


def arrival(page: Page) -> Playing:
    name = asked(page, r"^Add (\w+) to")
    field, button = page.one(tag="input", name="name"), page.one("Add", "button")
    page = yield f"Add {name}", [type_in(field, name), click(button)]
    if not any(line.startswith(name) for line in page.lines):
        raise NotShownError(f"no {name}")
    yield done("Added.")


def menu(page: Page, item: str) -> Moves:
    page = yield "Open the menu", [click(page.one(tag="a", id="navbarProjectsLinks"))]
    return (yield from press(page, item, "a"))


def project_name(page: Page) -> Playing:
    title, code = quoted(page)[0], asked(page, r"private code is (\S+)\.")
    page = yield from menu(page, "Settings")
    values = {"name": title, "current_password": code}
    page = yield "Fill in the settings", fill(page, values)
    button = page.all("Save changes", "button") or page.all(tag="button", type="submit")
    page = yield "Save", [click(button[0].index)]
    yield done("Renamed.")


def new_project(page: Page) -> Playing:
    title, identity, code = quoted(page)[:3]
    page = yield from menu(page, "Start a new project")
    values = {"name": title, "id": identity, "password": code, "contact_email": "keeper@example.com"}
    page = yield "Fill in the project", fill(page, values)
    page = yield "Create it", [click(page.one("submit", "button"))]
    yield done("Started.")


POLICIES: dict[str, Policy] = {
    "cost": cost,
    "who-paid": who_paid,
    "when": when,
    "dearest": dearest,
    "count": count,
    "total-paid": total_paid,
    "balance": balance,
    "weight": weight,
    "add": add,
    "add-for-some": add,
    "pay-back": pay_back,
    "change-amount": change,
    "change-payer": change,
    "change-date": change,
    "change-name": change,
    "change-amount-and-date": change,
    "change-payer-and-name": change,
    "leave-out": leave_out,
    "include": include,
    "delete": delete,
    "arrival": arrival,
    "month": month,
    "expenses": expenses,
    "project-name": project_name,
    "new-project": new_project,
}
