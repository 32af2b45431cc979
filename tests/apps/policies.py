"""Policies for the tasks at applications; each knows the site's navigation, and reads everything else."""

from __future__ import annotations

import re

from tests.apps.actor import Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.forum_policies import FORUM_POLICIES
from tests.apps.helpdesk_policies import HELPDESK_POLICIES
from tests.apps.actor import Moves, Page, Policy, click, done, type_in
from tests.apps.docs_policies import DOCS_POLICIES
from tests.apps.money_policies import MONEY_POLICIES
from tests.apps.moves import Playing, press, quoted, scroll_until
from tests.apps.roundup_policies import ROUNDUP_POLICIES
from tests.apps.shop_policies import SHOP_POLICIES
from tests.apps.trac_policies import TRAC_POLICIES
from tests.apps.wiki_policies import WIKI_POLICIES

# Wiki.


def wiki_search(page: Page, words: str) -> Moves:
    field = page.one(tag="input", id="searchInput")
    return (yield f"Search for {words}", [type_in(field, words), {"send_keys": {"keys": "Enter"}}])


def fact(page: Page) -> Playing:
    (ferry,) = quoted(page)
    page = yield from wiki_search(page, ferry)
    result = next((e for e in page.all(tag="a") if e.text.endswith(" Island")), None)
    if result is None:
        raise NotShownError(f"no island for {ferry}")
    page = yield f"Open {result.text}", [click(result.index)]
    yield done(page.match(r"was lit in (\d+)")[1])


def people_comparison(page: Page) -> Playing:
    asked = re.search(r"live on (\w+ Island) or (\w+ Island)", page.request)
    assert asked
    people = {}
    for title in asked.groups():
        page = yield from wiki_search(page, title)  # A page of this very name is opened at once.
        people[title] = int(page.match(r"count (\d+) people lived")[1])
    larger = max(people, key=lambda title: people[title])
    yield done(f"{larger}, {max(people.values()) - min(people.values())}")


def log_in(page: Page) -> Moves:
    asked = re.search(r'as "(\w+)" with the password (<secret>\w+</secret>)', page.request)
    assert asked
    page = yield from press(page, "Log in", "a")
    name, password = page.one(tag="input", name="wpName"), page.one(tag="input", name="wpPassword")
    button = page.one("Log in", "button")
    return (yield "Log in", [type_in(name, asked[1]), type_in(password, asked[2]), click(button)])


def edit(page: Page) -> Playing:
    _, sentence, title, summary = quoted(page)
    page = yield from log_in(page)
    page = yield from wiki_search(page, title)
    page = yield from press(page, "Edit", "a")
    text = page.one(tag="textarea", name="wpTextbox1")
    keys = [{"click_element_by_index": {"index": text}}, {"send_keys": {"keys": "Control+End"}}]
    # Appended: the page's old content stays.
    page = yield "Go to the end of the text", keys
    more = {
        "index": page.one(tag="textarea", name="wpTextbox1"),
        "text": f" {sentence}",
        "clear_existing": False,
    }
    page = yield "Add the sentence", [{"input_text": more}]
    yield from _save(page, summary)


def new_page(page: Page) -> Playing:
    _, title, content = quoted(page)
    page = yield from log_in(page)
    page = yield from wiki_search(page, title)
    page = yield from press(page, title, "a")
    page = yield "Write the page", [type_in(page.one(tag="textarea", name="wpTextbox1"), content)]
    yield from _save(page, "")


def _save(page: Page, summary: str) -> Playing:
    page = yield from scroll_until(page, lambda now: bool(now.all(tag="input", name="wpSave")))
    actions = [click(page.one(tag="input", name="wpSave"))]
    if summary:
        actions.insert(0, type_in(page.one(tag="input", name="wpSummary"), summary))
    page = yield "Save", actions
    yield done(f"Saved {page.url}")


POLICIES: dict[str, Policy] = {
    "docs/module-page": module_page,
    "docs/default-value": default_value,
    "docs/new-in": new_in,
    "docs/chapter": chapter,
    "wiki/fact": fact,
    "wiki/comparison": people_comparison,
    "wiki/edit": edit,
    "wiki/new-page": new_page,
    **{f"oscar/{name}": policy for name, policy in SHOP_POLICIES.items()},
# Shop.


def shop_search(page: Page, title: str) -> Moves:
    field, button = page.one(tag="input", name="q"), page.one("Search", "button")
    page = yield f"Search for {title}", [type_in(field, title), click(button)]
    return (yield from press(page, title, "a", title=title))


def put_in_basket(page: Page) -> Moves:
    return (yield from press(page, "Add to basket", "button"))


def check_out(page: Page) -> Playing:
    """Goes from the basket to the order's number."""
    wish = re.search(
        r"address (\S+); send it to (\w+) (\w+), ([^,]+), ([^,]+), ([^,]+)\. Answer", page.request
    )
    assert wish, page.request
    email, first, last, street, city, postcode = wish.groups()
    page = yield from press(page, "Proceed to checkout", "a")
    guest = page.one(tag="input", type="radio")
    field, button = page.one(tag="input", name="username"), page.one("Continue", "button")
    page = yield "Check out as a guest", [type_in(field, email), click(guest), click(button)]
    values = {"first_name": first, "last_name": last, "line1": street, "line4": city, "postcode": postcode}
    typed = [type_in(page.one(tag="input", name=name), value) for name, value in values.items()]
    page = yield "Fill in the address", typed
    page = yield from scroll_until(page, lambda now: bool(now.all("Continue", "button")))
    page = yield from press(page, "Continue", "button")
    if page.all("Continue", "a"):
        page = yield from press(page, "Continue", "a")
    page = yield from press(page, "Place order", "button")
    yield done(page.match(r"order number is (\w+)")[1])


def guest_order(page: Page) -> Playing:
    (title,) = quoted(page)
    number = re.match(r"Order (\d+) of", page.request)
    assert number
    page = yield from shop_search(page, title)
    page = yield from put_in_basket(page)
    page = yield from press(page, "View basket")
    if number[1] != "1":
        page = yield from set_quantity(page, number[1])
        page = yield from wait_until(page, lambda now: any("total is now" in line for line in now.lines))
    yield from check_out(page)


def set_quantity(page: Page, number: str) -> Moves:
    field, button = page.one(tag="input", type="number"), page.one("Update", "button")
    return (yield f"Make it {number}", [type_in(field, number), click(button)])


def two_products(page: Page) -> Playing:
    for title in quoted(page):
        page = yield from shop_search(page, title)
        page = yield from put_in_basket(page)
    page = yield from press(page, "View basket")
    yield from check_out(page)


def price_comparison(page: Page) -> Playing:
    prices = {}
    for title in quoted(page):
        page = yield from shop_search(page, title)
        prices[title] = Decimal(page.match(r"^£(\d+\.\d\d)$")[1])
    cheaper = min(prices, key=lambda title: prices[title])
    yield done(f"{cheaper}, {max(prices.values()) - min(prices.values())}")


def out_of_stock(page: Page) -> Playing:
    wanted, instead = quoted(page)
    page = yield from shop_search(page, wanted)
    if "Unavailable" in page.lines:
        page = yield from shop_search(page, instead)
    page = yield from put_in_basket(page)
    page = yield from press(page, "View basket")
    yield from check_out(page)


def too_few(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from shop_search(page, title)
    page = yield from put_in_basket(page)
    page = yield from press(page, "View basket")
    page = yield from set_quantity(page, "5")
    # The browser refuses a number above the field's maximum, which no element line shows; the stock is shown.
    page = yield from set_quantity(page, page.match(r"\((\d+) available\)")[1])
    page = yield from wait_until(page, lambda now: any("total is now" in line for line in now.lines))
    yield from check_out(page)


def cheapest(page: Page) -> Playing:
    (category,) = quoted(page)
    page = yield from press(page, "Browse store")
    page = yield from press(page, category, "a")
    prices: dict[str, Decimal] = {}
    titles = [element.attributes["title"] for element in page.all(tag="a") if "title" in element.attributes]
    for title in titles:
        after = list(page.lines)[list(page.lines).index(title) :]
        prices[title] = Decimal(next(line for line in after if line.startswith("£"))[1:])
    best = min(prices, key=lambda title: prices[title])
    page = yield from press(page, best, "a", title=best)
    page = yield from scroll_until(page, lambda now: "UPC" in now.lines)
    lines = list(page.lines)
    yield done(f"{best}, {lines[lines.index('UPC') + 1]}")


POLICIES: dict[str, Policy] = {
    **{f"docs/{name}": policy for name, policy in DOCS_POLICIES.items()},
    "oscar/guest-order": guest_order,
    "oscar/two-products": two_products,
    "oscar/comparison": price_comparison,
    "oscar/out-of-stock": out_of_stock,
    "oscar/too-few": too_few,
    "oscar/cheapest": cheapest,
    **{f"wiki/{name}": policy for name, policy in WIKI_POLICIES.items()},
    **{f"ihatemoney/{name}": policy for name, policy in MONEY_POLICIES.items()},
    **{f"trac/{name}": policy for name, policy in TRAC_POLICIES.items()},
    **{f"roundup/{name}": policy for name, policy in ROUNDUP_POLICIES.items()},
    **{f"machina/{name}": policy for name, policy in FORUM_POLICIES.items()},
    **{f"helpdesk/{name}": policy for name, policy in HELPDESK_POLICIES.items()},
}
