"""Policies for the tasks at I Hate Money; each knows the site's pages, and reads everything else."""

from __future__ import annotations

import re
from decimal import Decimal

from tests.apps.actor import Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")


def rows(page: Page) -> list[dict[str, str]]:
    """The bills that are shown: date, payer, what, owers, amount, and the numbers of their links."""
    lines, found = list(page.lines), []
    for at, line in enumerate(lines):
        if re.fullmatch(r"\d{4}-\d\d-\d\d", line) and at + 4 < len(lines):
            date, payer, what, owers, amount = lines[at : at + 5]
            links = " ".join(lines[at + 5 : at + 8])
            edit = re.match(r"\*?\[(\d+)\]<a title=edit", links)
            remove = re.search(r"\[(\d+)\]<button title=delete", links)
            row = {"date": date, "payer": payer, "what": what, "owers": owers, "amount": amount.split()[0]}
            # A bill at the edge is shown without its links.
            found.append(row | {"edit": edit[1] if edit else "", "delete": remove[1] if remove else ""})
    return found


def row(page: Page, what: str) -> dict[str, str]:
    return next(one for one in rows(page) if one["what"] == what)


def shown(page: Page, what: str) -> Moves:
    """Scrolls to a bill."""

    def has(now: Page) -> bool:
        return any(one["what"] == what and one["delete"] for one in rows(now))

    if not has(page) and page.view.pages_above > 0.05:
        page = yield "Scroll up", [{"scroll": {"down": False, "num_pages": 10.0}}]
    return (yield from scroll_until(page, has))


def all_bills(page: Page, seen: dict[str, dict[str, str]]) -> Moves:
    """Reads the whole list, by what the bills are for."""
    seen.update({one["what"]: one for one in rows(page)})
    while page.view.pages_below >= 0.05:
        page = yield "Scroll down", [{"scroll": {"down": True, "num_pages": 0.5}}]
        seen.update({one["what"]: one for one in rows(page)})
    return page


def paid(page: Page, payer: str, found: list[dict[str, str]]) -> Moves:
    """Reads the bills that somebody has paid."""
    seen: dict[str, dict[str, str]] = {}
    page = yield from all_bills(page, seen)
    found += [one for one in seen.values() if one["payer"] == payer]
    return page


def balances(page: Page) -> dict[str, str]:
    lines = list(page.lines)
    return {
        name[1]: lines[at + 1]
        for at, line in enumerate(lines)
        if (name := re.fullmatch(r"([^\d]+?)(?: \(x[\d.]+\))?", line))
        and at + 1 < len(lines)
        and re.fullmatch(r"[+-]?\d+\.\d\d", lines[at + 1])
    }


def asked(page: Page, pattern: str) -> str:
    found = re.search(pattern, page.request)
    assert found, page.request
    return found[1]


# Questions.


def of_bill(name: str) -> Policy:
    def policy(page: Page) -> Playing:
        page = yield from shown(page, quoted(page)[0])
        yield done(row(page, quoted(page)[0])[name])

    return policy


def dearest(page: Page) -> Playing:
    found: list[dict[str, str]] = []
    yield from paid(page, asked(page, r"that (.+) paid in the"), found)
    yield done(max(found, key=lambda one: Decimal(one["amount"]))["what"])


def count(page: Page) -> Playing:
    found: list[dict[str, str]] = []
    yield from paid(page, asked(page, r"did (.+) pay in"), found)
    yield done(str(len(found)))


def total_paid(page: Page) -> Playing:
    found: list[dict[str, str]] = []
    yield from paid(page, asked(page, r"has (.+) paid in all"), found)
    yield done(f"{sum((Decimal(one['amount']) for one in found), Decimal()):.2f}")


def balance(page: Page) -> Playing:
    yield done(balances(page)[asked(page, r"balance of (.+?) in the project")])


def weight(page: Page) -> Playing:
    name = asked(page, r"does (.+) count")
    yield done(page.match(rf"^{re.escape(name)} \(x([\d.]+)\)")[1])


def month(page: Page) -> Playing:
    year, number = asked(page, r"month (\d{4}-\d\d)").split("-")
    page = yield from press(page, "Statistics", "a")
    page = yield from scroll_until(page, lambda now: "Period" in now.lines)
    lines = list(page.lines)
    yield done(lines[lines.index(f"{_MONTHS[int(number) - 1]} {year}") + 1])


def expenses(page: Page) -> Playing:
    name = asked(page, r"that (.+) has of all")
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


def submit(page: Page) -> Moves:
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", id="submit")))
    return (yield "Submit", [click(page.one(tag="input", id="submit"))])


def add(page: Page) -> Playing:
    what = quoted(page)[0]
    amount, payer, date, owers = re.findall(
        r"of ([\d.]+) that (.+) paid on (\S+) for (.+?)(?: alone)?\.", page.request
    )[0]
    page = yield from press(page, "Add a new bill", "a")
    values = {"date": date, "what": what, "payer": payer, "amount": amount}
    page = yield "Fill in the bill", fill(page, values)
    yield from choose_owers(page, None if owers == "everyone" else set(owers.split(" and ")))
    yield done("It is entered.")


def choose_owers(page: Page, wanted: set[str] | None) -> Moves:
    """Ticks the boxes of these people, or leaves them as they are, and submits."""
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", id="submit")))
    wrong = [
        index for name, (index, on) in boxes(page).items() if wanted is not None and on != (name in wanted)
    ]
    if wrong:
        page = yield "Choose who shares it", [click(index) for index in wrong]
    return (yield from submit(page))


def reimburse(page: Page, values: dict[str, str], receiver: str) -> Playing:
    page = yield from press(page, "Add a new bill", "a")
    page = yield "Fill in the bill", fill(page, values)
    page = yield from press(page, "More options", "summary")
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="select", name="bill_type")))
    kind = page.one(tag="select", name="bill_type")
    page = yield "Choose the type", [{"select_dropdown_option": {"index": kind, "text": "Reimbursement"}}]
    yield from choose_owers(page, {receiver})
    yield done("It is entered.")


def pay_back(page: Page) -> Playing:
    payer, amount, receiver, date = re.findall(
        r"^(.+) paid back ([\d.]+) to (.+) on ([\d-]+):", page.request
    )[0]
    values = {"date": date, "what": quoted(page)[0], "payer": payer, "amount": amount}
    yield from reimburse(page, values, receiver)


def settle_up(page: Page) -> Playing:
    payer, receiver, date = re.findall(
        r"^(.+) paid the whole debt .* back to (.+) on ([\d-]+):", page.request
    )[0]
    amount = balances(page)[payer].lstrip("-")
    values = {"date": date, "what": quoted(page)[0], "payer": payer, "amount": amount}
    yield from reimburse(page, values, receiver)


def open_bill(page: Page, what: str) -> Moves:
    page = yield from shown(page, what)
    return (yield f"Open {what}", [click(int(row(page, what)["edit"]))])


def change(page: Page) -> Playing:
    texts, request = quoted(page), page.request
    what = texts[0]
    values = {}
    if found := re.search(r"(?:was|:) (\d+\.\d\d)", request):
        values["amount"] = found[1]
    if found := re.search(r"paid on (\d{4}-\d\d-\d\d)", request):
        values["date"] = found[1]
    if found := re.search(r'^([^"]+) paid "|", and (.+) paid it', request):
        values["payer"] = found[1] or found[2]
    if found := re.search(r'" (?:to|it is called) "([^"]*)"|: it is called "([^"]*)"', request):
        values["what"] = found[1] or found[2]
    page = yield from open_bill(page, what)
    page = yield "Change the bill", fill(page, values)
    yield from submit(page)
    yield done("It is changed.")


def sharing(page: Page) -> set[str]:
    return {one for one, (_, on) in boxes(page).items() if on}


def leave_out(page: Page) -> Playing:
    name = asked(page, r"^(.+) had nothing")
    page = yield from open_bill(page, quoted(page)[0])
    yield from choose_owers(page, sharing(page) - {name})
    yield done("It is changed.")


def include(page: Page) -> Playing:
    name = asked(page, r"was for (.+), too")
    page = yield from open_bill(page, quoted(page)[0])
    yield from choose_owers(page, sharing(page) | {name})
    yield done("It is changed.")


def put_right(page: Page) -> Playing:
    old, new = re.findall(r"^Not (.+) but (.+) paid the bills", page.request)[0]
    bills: list[dict[str, str]] = []
    page = yield from paid(page, old, bills)
    for what in [one["what"] for one in bills]:
        page = yield from open_bill(page, what)
        page = yield "Change the payer", fill(page, {"payer": new})
        page = yield from submit(page)
    yield done("All are changed.")


def copy(page: Page) -> Playing:
    new, old = quoted(page)
    date = asked(page, r'" of ([\d-]+) with')
    page = yield from shown(page, old)
    bill = row(page, old)
    page = yield from open_bill(page, old)
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", id="submit")))
    people = sharing(page)
    page = yield from press(page, "Cancel", "a")
    page = yield from press(page, "Add a new bill", "a")
    values = {"date": date, "what": new, "payer": bill["payer"], "amount": bill["amount"]}
    page = yield "Fill in the bill", fill(page, values)
    yield from choose_owers(page, people)
    yield done("It is entered.")


def remove(page: Page, what: str) -> Moves:
    page = yield from shown(page, what)
    for _ in range(3):  # It asks whether that is meant.
        if not any(one["what"] == what for one in rows(page)):
            break
        page = yield "Delete it", [click(int(row(page, what)["delete"]))]
    return page


def delete(page: Page) -> Playing:
    yield from remove(page, quoted(page)[0])
    yield done("It is deleted.")


def move(page: Page) -> Playing:
    what, project = quoted(page)
    payer = asked(page, r", where (.+) paid it")
    page = yield from shown(page, what)
    bill = row(page, what)
    page = yield from remove(page, what)
    page = yield from menu(page, f"switch to {project}")
    page = yield from press(page, "Add a new bill", "a")
    values = {"date": bill["date"], "what": what, "payer": payer, "amount": bill["amount"]}
    page = yield "Fill in the bill", fill(page, values)
    yield from choose_owers(page, None)
    yield done("It is moved.")


def join(page: Page, name: str) -> Moves:
    field, button = page.one(tag="input", name="name"), page.one("Add", "button")
    page = yield f"Add {name}", [type_in(field, name), click(button)]
    if not any(line.startswith(name) for line in page.lines):
        raise NotShownError(f"no {name}")
    return page


def arrival(page: Page) -> Playing:
    yield from join(page, asked(page, r"^Add (.+) to the participants"))
    yield done("Added.")


def welcome(page: Page) -> Playing:
    name, whats = asked(page, r"^Add (.+) to the participants"), quoted(page)
    page = yield from join(page, name)
    for what in whats:
        page = yield from open_bill(page, what)
        page = yield from choose_owers(page, sharing(page) | {name})
    yield done("Welcome.")


def menu(page: Page, item: str) -> Moves:
    page = yield "Open the menu", [click(page.one(tag="a", id="navbarProjectsLinks"))]
    return (yield from press(page, item, "a"))


def project_name(page: Page) -> Playing:
    title, code = quoted(page)[1], asked(page, r"private code is (\S+)\.")
    page = yield from menu(page, "Settings")
    values = {"name": title, "current_password": code}
    page = yield "Fill in the settings", fill(page, values)
    button = page.all("Save changes", "button") or page.all(tag="button", type="submit")
    page = yield "Save", [click(button[0].index)]
    yield done("Renamed.")


def start_project(page: Page, **others: str) -> Moves:
    title, identity, code = quoted(page)[:3]
    email = asked(page, r"e-mail address (\S+@[\w.-]+\w)")
    page = yield from menu(page, "Start a new project")
    values = {"name": title, "id": identity, "password": code, "contact_email": email, **others}
    page = yield "Fill in the project", fill(page, values)
    return (yield "Create it", [click(page.one("submit", "button"))])


def new_project(page: Page) -> Playing:
    yield from start_project(page)
    yield done("Started.")


def found(page: Page) -> Playing:
    people = re.split(r", | and ", asked(page, r"participants are (.+?);"))
    page = yield from start_project(page)
    for name in people:
        page = yield from join(page, name)
    amount, payer, date = re.findall(r"of ([\d.]+) that (.+) paid on (\S+) for", page.request)[0]
    page = yield from press(page, "Add a new bill", "a")
    values = {"date": date, "what": quoted(page)[3], "payer": payer, "amount": amount}
    page = yield "Fill in the bill", fill(page, values)
    yield from choose_owers(page, None)
    yield done("It has begun.")


POLICIES: dict[str, Policy] = {
    "cost": of_bill("amount"),
    "who-paid": of_bill("payer"),
    "when": of_bill("date"),
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
    "settle-up": settle_up,
    "copy": copy,
    "move": move,
    "put-right": put_right,
    "welcome": welcome,
    "found": found,
}


def balance_in_a_sentence(page: Page) -> Playing:
    name = asked(page, r"balance of (.+?) in the project")
    yield done(f"The balance of {name} is {balances(page)[name]}.")


def added_as_a_sum(page: Page) -> Playing:
    """On the form's own page; the site adds up what is entered as an amount."""
    amount, payer, date = re.findall(r"of ([\d.]+) that (.+) paid on (\S+) for", page.request)[0]
    page = yield "Open the form", [{"go_to_url": {"url": f"{page.url.rstrip('/')}/add"}}]
    values = {"date": date, "what": quoted(page)[0], "payer": payer, "amount": f"1.50 + {amount} - 1.50"}
    page = yield "Fill in the bill", fill(page, values)
    yield from choose_owers(page, None)
    yield done("")


def joined_on_another_page(page: Page) -> Playing:
    name = asked(page, r"^Add (.+) to the participants")
    page = yield "Open the form", [{"go_to_url": {"url": f"{page.url.rstrip('/')}/members/add"}}]
    yield (
        "Enter it",
        [type_in(page.one(tag="input", name="name"), f" {name} "), {"send_keys": {"keys": "Enter"}}],
    )
    yield done("")


def project_with_another_code(page: Page) -> Playing:
    yield from start_project(page, password="another-1")
    yield done("Started.")


def copied_without_deleting(page: Page) -> Playing:
    """Enters the bill of another project, and leaves the old one."""
    what, project = quoted(page)
    payer = asked(page, r", where (.+) paid it")
    page = yield from shown(page, what)
    bill = row(page, what)
    page = yield from menu(page, f"switch to {project}")
    page = yield from press(page, "Add a new bill", "a")
    values = {"date": bill["date"], "what": what, "payer": payer, "amount": bill["amount"]}
    page = yield "Fill in the bill", fill(page, values)
    yield from choose_owers(page, None)
    yield done("It is moved.")


OTHER_WAYS: list[tuple[str, Policy, bool]] = [
    ("balance", balance_in_a_sentence, True),
    ("add", added_as_a_sum, True),
    ("arrival", joined_on_another_page, True),
    ("new-project", project_with_another_code, False),
    ("move", copied_without_deleting, False),
]
