"""Policies for the tasks at applications; each knows the site's navigation, and reads everything else."""

from __future__ import annotations

import re
from decimal import Decimal

from tests.apps.actor import Moves, Page, Policy, click, done, type_in
from tests.apps.docs_policies import DOCS_POLICIES
from tests.apps.money_policies import MONEY_POLICIES
from tests.apps.moves import Playing, press, quoted, scroll_until, wait_until
from tests.apps.trac_policies import TRAC_POLICIES
from tests.apps.wiki_policies import WIKI_POLICIES

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
}
