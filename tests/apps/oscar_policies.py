"""Policies for the tasks at the shop; each knows the site's pages, and reads everything else."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal

from tests.apps.actor import Moves, NotShownError, Page, Policy, click, done, type_in
from tests.apps.moves import Playing, press, quoted, scroll_until, wait_until


def asked(page: Page, pattern: str) -> tuple[str, ...]:
    """What the groups of a pattern find in the request."""
    found = re.search(pattern, page.request)
    assert found, page.request
    return found.groups()


def search(page: Page, words: str) -> Moves:
    field, button = page.one(tag="input", name="q"), page.one("Search", "button")
    return (yield f"Search for {words}", [type_in(field, words), click(button)])


def open_product(page: Page, title: str) -> Moves:
    page = yield from search(page, title)
    return (yield from press(page, title, "a", title=title))


def sign_in(page: Page) -> Moves:
    email, password = asked(page, r"Sign in as (\S+) with the password (<secret>\w+</secret>)")
    page = yield from press(page, "Login or register", "a")
    name, word = page.one(tag="input", name="login-username"), page.one(tag="input", name="login-password")
    actions = [type_in(name, email), type_in(word, password), click(page.one("Log In", "button"))]
    return (yield "Log in", actions)


def my(page: Page, item: str) -> Moves:
    """Signs in, and opens a page of the account."""
    page = yield from sign_in(page)
    return (yield from press(page, item, "a"))


def fill(page: Page, values: dict[str, str], button: str = "") -> Moves:
    """Fills in fields by name, then presses a button."""
    typed = [type_in(page.one(name=name), value) for name, value in values.items()]
    page = yield "Fill in the form", typed
    if not button:
        return page
    page = yield from scroll_until(page, lambda now: bool(now.all(button, "button")))
    return (yield from press(page, button, "button"))


def block(page: Page, line: str) -> list[int]:
    """Indexes of the elements after a line, nearest first."""
    lines = list(page.lines)
    if line not in lines:
        raise NotShownError(f"no {line} at {page.url}")
    after = (re.match(r"\*?\[(\d+)\]<", one) for one in lines[lines.index(line) :])
    return [int(found[1]) for found in after if found]


# Questions.


def prices(page: Page, least: str = "") -> dict[str, Decimal]:
    """Price by title, of the products of a list; `least`: only of those with this line after the price."""
    lines, found = [*page.lines, ""], {}
    for at, line in enumerate(lines):
        if re.fullmatch(r"£\d+\.\d\d", line) and (not least or lines[at + 1] == least):
            found[lines[at - 1]] = Decimal(line[1:])
    return found


def cheapest_of(found: dict[str, Decimal]) -> str:
    return min(found, key=lambda title: found[title])


def category(page: Page, name: str, how: str) -> Moves:
    """Opens a list of products and sorts it."""
    page = yield from press(page, "Browse store")
    page = yield from press(page, name, "a")
    select = page.one(tag="select", name="sort_by")
    return (yield "Sort", [{"select_dropdown_option": {"index": select, "text": how}}])


def shown_price(page: Page) -> Decimal:
    return Decimal(page.match(r"^£(\d+\.\d\d)$")[1])


def comparison(page: Page) -> Playing:
    found = {}
    for title in quoted(page):
        page = yield from open_product(page, title)
        found[title] = shown_price(page)
    yield done(f"{cheapest_of(found)}, {max(found.values()) - min(found.values())}")


def cheapest(page: Page) -> Playing:
    page = yield from category(page, quoted(page)[0], "Price low to high")
    best = next(iter(prices(page)))
    page = yield from press(page, best, "a", title=best)
    page = yield from scroll_until(page, lambda now: "UPC" in now.lines)
    lines = list(page.lines)
    yield done(lines[lines.index("UPC") + 1])


def dearest_in_stock(page: Page) -> Playing:
    page = yield from category(page, quoted(page)[0], "Price high to low")
    title, price = next(iter(prices(page, "In stock").items()))
    yield done(f"{title}, {price}")


def best_rated(page: Page) -> Playing:
    page = yield from category(page, quoted(page)[0], "Customer rating")
    yield done(next(iter(prices(page))))


def below(page: Page) -> Playing:
    page = yield from open_product(page, quoted(page)[0])
    limit = shown_price(page)
    page = yield from category(page, "All products", "Price low to high")
    found = prices(page)
    while max(found.values()) < limit:
        page = yield "Scroll down", [{"scroll": {"down": True, "num_pages": 1.0}}]
        found |= prices(page)
    yield done(str(sum(price < limit for price in found.values())))


def found_dearest(page: Page) -> Playing:
    page = yield from search(page, quoted(page)[0])
    select = page.one(tag="select", name="sort_by")
    page = yield "Sort", [{"select_dropdown_option": {"index": select, "text": "Price high to low"}}]
    yield done(next(iter(prices(page))))


def stock(page: Page) -> Playing:
    page = yield from open_product(page, quoted(page)[0])
    yield done(page.match(r"\((\d+) available\)")[1])


def fact(page: Page) -> Playing:
    title, what = quoted(page)
    page = yield from open_product(page, title)
    yield done(page.match(rf"{what}: (\d+)\.")[1])


def not_sold(page: Page) -> Playing:
    missing = []
    for title in quoted(page):
        page = yield from search(page, title)
        if not page.all(tag="a", title=title):
            missing.append(title)
    yield done(", ".join(missing))


def reviewer(page: Page) -> Playing:
    review, title = quoted(page)
    page = yield from open_product(page, title)
    page = yield from scroll_until(page, lambda now: review in now.lines)
    lines = list(page.lines)
    after = (re.match(r"Reviewed by (.*) on ", line) for line in lines[lines.index(review) :])
    yield done(next(filter(None, after))[1])


def opened_order(page: Page, title: str) -> Moves:
    """Opens the orders of the account, one after the other, until one has a product."""
    page = yield from press(page, "Order History", "a")
    for number in [element.text for element in page.all(tag="a") if element.text.isdigit()]:
        page = yield from press(page, number, "a")
        if title in page.lines:
            return page
        page = yield from press(page, "Order History", "a")
    raise NotShownError(f"no order with {title}")


def order_total(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from sign_in(page)
    page = yield from opened_order(page, title)
    page = yield from scroll_until(page, lambda now: "Order total" in now.lines)
    lines = list(page.lines)
    yield done(lines[lines.index("Order total") + 1])


def order_with(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from sign_in(page)
    page = yield from opened_order(page, title)
    yield done(page.url.rstrip("/").rpartition("/")[2])


# Orders.


def available(page: Page) -> bool:
    """Returns True if the product of a page can be had; others are listed below it."""
    return next(line for line in page.lines if line.startswith(("Unavailable", "In stock"))) != "Unavailable"


def put_in_basket(page: Page, title: str, number: int = 1) -> Moves:
    page = yield from open_product(page, title)
    for _ in range(number):
        page = yield from press(page, "Add to basket", "button")
    return page


def guest_address(page: Page) -> tuple[dict[str, str], str]:
    """Fields of the address of the request, and the way of delivery."""
    *values, delivery = asked(page, r"(\w+) (\w+), ([^,]+), ([^,]+), ([^,]+), (?:and )?by ([\w ]+)\. Answer")
    return dict(zip(("first_name", "last_name", "line1", "line4", "postcode"), values, strict=True)), delivery


def check_out(page: Page, way: str = "") -> Playing:
    """Goes from the basket to the order's number; `way` is another delivery than that of the request."""
    (email,) = asked(page, r"address (\S+); send it to")
    page = yield from press(page, "Proceed to checkout", "a")
    guest = page.one(tag="input", type="radio")
    field, button = page.one(tag="input", name="username"), page.one("Continue", "button")
    page = yield "Check out as a guest", [type_in(field, email), click(guest), click(button)]
    values, delivery = guest_address(page)
    page = yield from fill(page, values, "Continue")
    yield from place(page, way or delivery)


def place(page: Page, delivery: str) -> Playing:
    page = yield f"Choose {delivery}", [click(block(page, delivery)[0])]
    if page.all("Continue", "a"):
        page = yield from press(page, "Continue", "a")
    page = yield from scroll_until(page, lambda now: bool(now.all("Place order", "button")))
    page = yield from press(page, "Place order", "button")
    yield done(page.match(r"order number is (\w+)")[1])


def buy(page: Page) -> Playing:
    """Orders the products of the request, as a guest."""
    for title in quoted(page):
        page = yield from put_in_basket(page, title)
    page = yield from press(page, "View basket")
    if (found := re.match(r"Order (\d+) of", page.request)) and found[1] != "1":
        page = yield from set_quantity(page, found[1])
        page = yield from wait_until(page, lambda now: any("total is now" in line for line in now.lines))
    yield from check_out(page)


def set_quantity(page: Page, number: str, at: int = 0) -> Moves:
    field, button = page.all(tag="input", type="number")[at], page.all("Update", "button")[at]
    return (yield f"Make it {number}", [type_in(field.index, number), click(button.index)])


def out_of_stock(page: Page) -> Playing:
    wanted, instead = quoted(page)
    page = yield from open_product(page, wanted)
    if not available(page):
        page = yield from open_product(page, instead)
    page = yield from press(page, "Add to basket", "button")
    page = yield from press(page, "View basket")
    yield from check_out(page)


def too_few(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from put_in_basket(page, title)
    page = yield from press(page, "View basket")
    page = yield from set_quantity(page, asked(page, r"Order (\d+) of")[0])
    # The browser refuses a number above the field's maximum, which no element line shows; the stock is shown.
    page = yield from set_quantity(page, page.match(r"\((\d+) available\)")[1])
    page = yield from wait_until(page, lambda now: any("total is now" in line for line in now.lines))
    yield from check_out(page)


def voucher(page: Page) -> Playing:
    page = yield from put_in_basket(page, quoted(page)[0])
    page = yield from press(page, "View basket")
    for code in re.findall(r"the voucher ([A-Z0-9]+)", page.request):
        page = yield from press(page, "I have a voucher code...", "a")
        page = yield from wait_until(page, lambda now: bool(now.all(name="code")))
        page = yield from fill(page, {"code": code}, "Add voucher")
        if any("added to basket" in line for line in page.lines):
            break
    yield from check_out(page)


def cheapest_of_each(page: Page) -> Playing:
    for name in quoted(page):
        page = yield from category(page, name, "Price low to high")
        best = next(iter(prices(page, "In stock")))
        page = yield from press(page, best, "a", title=best)
        page = yield from press(page, "Add to basket", "button")
    page = yield from press(page, "View basket")
    page = yield from scroll_until(page, lambda now: bool(now.all("Proceed to checkout", "a")))
    yield from check_out(page)


def known_address(page: Page) -> Playing:
    city, delivery = asked(page, r"the address in ([\w ]+) of the address book and by ([\w ]+)\. Answer")
    page = yield from sign_in(page)
    page = yield from press(page, "View basket")
    page = yield from scroll_until(page, lambda now: bool(now.all("Proceed to checkout", "a")))
    page = yield from press(page, "Proceed to checkout", "a")
    page = yield f"Send it to {city}", [click(block(page, city)[0])]
    yield from place(page, delivery)


def new_address(page: Page) -> Playing:
    page = yield from sign_in(page)
    page = yield from press(page, "View basket")
    page = yield from scroll_until(page, lambda now: bool(now.all("Proceed to checkout", "a")))
    page = yield from press(page, "Proceed to checkout", "a")
    values, delivery = guest_address(page)
    page = yield from fill(page, values, "Continue")
    yield from place(page, delivery)


# Baskets.


def fill_basket(page: Page) -> Playing:
    for number, title in re.findall(r'(\d+) of "([^"]+)"', page.request):
        page = yield from put_in_basket(page, title, int(number))
    yield done("They are in the basket.")


def my_basket(page: Page) -> Moves:
    page = yield from sign_in(page)
    return (yield from press(page, "View basket"))


def basket_titles(page: Page) -> list[str]:
    """In the order of the basket."""
    lines = list(page.lines)
    return [lines[at - 1] for at, line in enumerate(lines) if line.startswith("In stock (")]


def quantity(page: Page) -> Playing:
    (title,), (number,) = quoted(page), asked(page, r"basket to (\d+)\.")
    page = yield from my_basket(page)
    page = yield from set_quantity(page, number, basket_titles(page).index(title))
    yield from wait_until(page, lambda now: any("total is now" in line for line in now.lines))
    yield done("Changed.")


def without(link: str, choose: Callable[[Page], str]) -> Policy:
    """Removes a product from the basket, or saves it for later."""

    def policy(page: Page) -> Playing:
        page = yield from my_basket(page)
        title = choose(page)
        button = page.all(link, "a")[basket_titles(page).index(title)]
        page = yield f"{link}: {title}", [click(button.index)]
        yield from wait_until(page, lambda now: len(now.all(tag="input", type="number")) == 2)
        yield done("Done.")

    return policy


def dearest_in_basket(page: Page) -> str:
    shown = [Decimal(line[1:]) for line in page.lines if re.fullmatch(r"£\d+\.\d\d", line)]
    titles = basket_titles(page)
    return max(titles, key=lambda title: shown[2 * titles.index(title)])


def remove_dearest(page: Page) -> Playing:
    (kept,) = quoted(page)
    page = yield from my_basket(page)
    button = page.all("Remove", "a")[basket_titles(page).index(dearest_in_basket(page))]
    page = yield "Remove it", [click(button.index)]
    page = yield from wait_until(page, lambda now: len(now.all(tag="input", type="number")) == 2)
    at = basket_titles(page).index(kept)
    number = int(page.all(tag="input", type="number")[at].attributes["value"]) + 1
    before = amounts(page)
    page = yield from set_quantity(page, str(number), at)
    # The page asks the shop in the background.
    yield from wait_until(page, lambda now: amounts(now) != before)
    yield done("Changed.")


def amounts(page: Page) -> list[str]:
    return [line for line in page.lines if line.startswith("£")]


def order_again(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from sign_in(page)
    page = yield from opened_order(page, title)
    page = yield from scroll_until(page, lambda now: bool(now.all("Re-order all items", "button")))
    yield from press(page, "Re-order all items", "button")
    yield done("They are in the basket.")


# Wish lists.


def add_wish(page: Page, title: str, item: str) -> Moves:
    page = yield from open_product(page, title)
    page = yield from press(page, "Add to wish list", "a")
    return (yield from press(page, item, "a"))


def wish_list(page: Page) -> Playing:
    name, title = quoted(page)
    page = yield from sign_in(page)
    page = yield from add_wish(page, title, "Create a new wishlist")
    yield from fill(page, {"name": name}, "Save")
    yield done("Made.")


def wish(page: Page) -> Playing:
    title, name = quoted(page)
    page = yield from sign_in(page)
    yield from add_wish(page, title, f"Add to '{name}' wish list")
    yield done("Added.")


def move_wish(page: Page) -> Playing:
    title, source, target = quoted(page)
    page = yield from my(page, "Wish Lists")
    page = yield from press(page, source, "a")
    page = yield "Open the menu", [click(block(page, title)[2])]
    yield from press(page, f"Move to '{target}' wish list", "a")
    yield done("Moved.")


def rename_list(page: Page) -> Playing:
    old, name = quoted(page)
    page = yield from my(page, "Wish Lists")
    page = yield "Open the menu", [click(block(page, old)[1])]
    page = yield from press(page, "Wish list settings", "a")
    yield from fill(page, {"name": name}, "Save")
    yield done("Renamed.")


def wish_dearest(page: Page) -> Playing:
    (name,) = quoted(page)
    page = yield from my_basket(page)
    yield from add_wish(page, dearest_in_basket(page), f"Add to '{name}' wish list")
    yield done("Added.")


def titles_of(page: Page, *but: str) -> list[str]:
    """Products that a page links, each once."""
    links = [
        one.text
        for one in page.all(tag="a")
        if re.search(r"/catalogue/[^/]+_\d+/$", one.attributes.get("href", ""))
    ]
    return list(dict.fromkeys(one for one in links if one and one not in ("View product", *but)))


def wishes_to_basket(page: Page) -> Playing:
    (name,) = quoted(page)
    page = yield from my(page, "Wish Lists")
    page = yield from press(page, name, "a")
    for title in titles_of(page):
        page = yield from open_product(page, title)
        if available(page):
            page = yield from press(page, "Add to basket", "button")
    yield done("They are in the basket.")


def list_of_order(page: Page) -> Playing:
    name, title = quoted(page)
    page = yield from sign_in(page)
    page = yield from opened_order(page, title)
    first, *others = titles_of(page)
    page = yield from add_wish(page, first, "Create a new wishlist")
    page = yield from fill(page, {"name": name}, "Save")
    for one in others:
        page = yield from add_wish(page, one, f"Add to '{name}' wish list")
    yield done("Made.")


# Reviews and alerts.


def write_review(page: Page, product: str, more: dict[str, str]) -> Playing:
    stars, title, body = asked(page, r'give it (\d) of 5 stars, the title "([^"]*)" and the text "([^"]*)"')
    page = yield from open_product(page, product)
    page = yield "Write a review", [click(page.one(id="write_review"))]
    page = yield from scroll_until(page, lambda now: bool(now.all(name="body")))
    page = yield "Give the stars", [click(page.all(tag="i")[int(stars) - 1].index)]
    page = yield from fill(page, {"title": title, "body": body, **more}, "Save review")
    yield done("Reviewed.")


def guest_review(page: Page) -> Playing:
    name, email = asked(page, r"The name is (\w+) and the e-mail address (\S+)\.$")
    yield from write_review(page, quoted(page)[0], {"name": name, "email": email})


def first_review(page: Page) -> Playing:
    one, other = quoted(page)[:2]
    page = yield from sign_in(page)
    page = yield from open_product(page, one)
    yield from write_review(page, one if page.all(id="write_review") else other, {})


def guest_alert(page: Page) -> Playing:
    (email,) = asked(page, r"notify (\S+) when")
    page = yield from open_product(page, quoted(page)[0])
    yield from fill(page, {"email": email}, "Notify me")
    yield done("Entered.")


def cancel_alert(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from my(page, "Product Alerts")
    yield "Cancel it", [click(block(page, title)[0])]
    yield done("Cancelled.")


# Accounts.


def register(page: Page) -> Playing:
    email, password = asked(page, r"address (\S+) with the password (\S+)\.$")
    page = yield from press(page, "Login or register", "a")
    names = ("email", "password1", "password2")
    values = {f"registration-{name}": password for name in names} | {"registration-email": email}
    yield from fill(page, values, "Register")
    yield done("Registered.")


def rename(page: Page) -> Playing:
    first, last = asked(page, r"first name is (\w+), the last name (\w+)\.")
    page = yield from my(page, "Edit profile")
    yield from fill(page, {"first_name": first, "last_name": last}, "Save")
    yield done("Renamed.")


def change_password(page: Page) -> Playing:
    (old,), (new,) = (
        asked(page, r"(<secret>\w+</secret>)"),
        asked(page, r"of the account to (\S+)\.$"),
    )
    page = yield from my(page, "Change password")
    yield from fill(page, {"old_password": old, "new_password1": new, "new_password2": new}, "Save")
    yield done("Changed.")


def new_entry(page: Page, values: Sequence[str]) -> Playing:
    page = yield from press(page, "Address Book", "a")
    page = yield from press(page, "Add a new address", "a")
    country = page.one(tag="select", name="country")
    choose = {"select_dropdown_option": {"index": country, "text": "United Kingdom"}}
    page = yield "Choose the country", [choose]
    names = ("first_name", "last_name", "line1", "line4", "postcode")
    yield from fill(page, dict(zip(names, values, strict=True)), "Save")
    yield done("Added.")


def add_address(page: Page) -> Playing:
    values = asked(page, r"the address (\w+) (\w+), ([^,]+), ([^,]+), ([^,]+) to the address book")
    page = yield from sign_in(page)
    yield from new_entry(page, values)


def order_address(page: Page) -> Playing:
    (title,) = quoted(page)
    page = yield from sign_in(page)
    page = yield from opened_order(page, title)
    page = yield from scroll_until(page, lambda now: "United Kingdom" in now.lines)
    at = page.lines.index("United Kingdom")
    name, *where = page.lines[at - 4 : at]
    yield from new_entry(page, (*name.split(), *where))


def correct_address(page: Page) -> Playing:
    city, street = asked(page, r"the address in ([\w ]+) is now ([^:]+):")
    page = yield from my(page, "Address Book")
    page = yield "Edit the address", [click(block(page, city)[0])]
    yield from fill(page, {"line1": street}, "Save")
    yield done("Corrected.")


def from_menu(item: str, button: str = "") -> Policy:
    """Chooses an item of the menu of an address."""

    def policy(page: Page) -> Playing:
        (city,) = asked(page, r"the address in ([\w ]+?)(?: from| the default)")
        page = yield from my(page, "Address Book")
        page = yield "Open the menu", [click(block(page, city)[1])]
        page = yield from press(page, item, "a")
        if button:
            yield from press(page, button, "button")
        yield done("Done.")

    return policy


POLICIES: dict[str, Policy] = {
    "comparison": comparison,
    "cheapest": cheapest,
    "dearest-in-stock": dearest_in_stock,
    "best-rated": best_rated,
    "below": below,
    "found-dearest": found_dearest,
    "stock": stock,
    "fact": fact,
    "not-sold": not_sold,
    "reviewer": reviewer,
    "order-total": order_total,
    "order-with": order_with,
    "guest-order": buy,
    "two-products": buy,
    "out-of-stock": out_of_stock,
    "too-few": too_few,
    "delivery": buy,
    "voucher": voucher,
    "refused-voucher": voucher,
    "cheapest-of-each": cheapest_of_each,
    "known-address": known_address,
    "new-address": new_address,
    "fill-basket": fill_basket,
    "quantity": quantity,
    "remove": without("Remove", lambda page: quoted(page)[0]),
    "remove-dearest": remove_dearest,
    "save-for-later": without("Save for later", lambda page: quoted(page)[0]),
    "order-again": order_again,
    "wish-list": wish_list,
    "wish": wish,
    "move-wish": move_wish,
    "rename-list": rename_list,
    "wish-dearest": wish_dearest,
    "wishes-to-basket": wishes_to_basket,
    "list-of-order": list_of_order,
    "guest-review": guest_review,
    "first-review": first_review,
    "guest-alert": guest_alert,
    "cancel-alert": cancel_alert,
    "register": register,
    "rename": rename,
    "password": change_password,
    "add-address": add_address,
    "correct-address": correct_address,
    "remove-address": from_menu("Delete", "Delete"),
    "order-address": order_address,
    "default-address": from_menu("Set as default shipping address"),
}


# What else does a task, or nearly does.


def stock_in_a_sentence(page: Page) -> Playing:
    page = yield from open_product(page, quoted(page)[0])
    number = page.match(r"\((\d+) available\)")[1]
    yield done(f"The shop has {number} of them in stock.")


def both_names(page: Page) -> Playing:
    found = {}
    for title in quoted(page):
        page = yield from open_product(page, title)
        found[title] = shown_price(page)
    yield done(f"{' or '.join(found)}, {max(found.values()) - min(found.values())}")


def other_order(page: Page) -> Playing:
    for title in reversed(quoted(page)):
        page = yield from put_in_basket(page, title)
    page = yield from press(page, "View basket")
    yield from check_out(page)


def next_day(page: Page) -> Playing:
    page = yield from put_in_basket(page, quoted(page)[0], int(asked(page, r"^Order (\d+) of")[0]))
    page = yield from press(page, "View basket")
    yield from check_out(page, "Next day delivery")


def removed_and_added(page: Page) -> Playing:
    """Another line with the new quantity, in the place of the old one."""
    (title,), (number,) = quoted(page), asked(page, r"basket to (\d+)\.")
    page = yield from my_basket(page)
    page = yield "Remove it", [click(page.all("Remove", "a")[basket_titles(page).index(title)].index)]
    page = yield from wait_until(page, lambda now: len(now.all(tag="input", type="number")) == 2)
    yield from put_in_basket(page, title, int(number))
    yield done("Changed.")


def review_with_blank_lines(page: Page) -> Playing:
    name, email = asked(page, r"The name is (\w+) and the e-mail address (\S+)\.$")
    (body,) = asked(page, r'the text "([^"]*)"')
    yield from write_review(page, quoted(page)[0], {"name": name, "email": email, "body": f"\n{body}\n\n\n"})


OTHER_WAYS: list[tuple[str, Policy, bool]] = [
    ("stock", stock_in_a_sentence, True),
    ("two-products", other_order, True),
    ("quantity", removed_and_added, True),
    ("guest-review", review_with_blank_lines, True),
    ("comparison", both_names, False),
    ("guest-order", next_day, False),
]
