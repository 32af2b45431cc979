"""Tasks at the shop: templates over the rows of its world."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from collection.environments.apps.answers import Answer, other_values
from collection.environments.apps.oscar.serve import DELIVERY
from collection.environments.apps.oscar.world import (
    email,
    guest,
    hashed,
    list_name,
    name,
    next_number,
    of,
    opinion,
    order_number,
    password,
    place,
    quantities,
    stocked,
    title,
    total,
)
from collection.environments.apps.templates import Draw, Goal, Template
from collection.environments.apps.world import New, Row, World, drop, put

_FACT = re.compile(r"([A-Z][a-z ]+): (\d+)\.")
_DESIGNER = re.compile(r"Designed by (.+)\.")
_PLACE = ("first", "last", "street", "city", "postcode")
_STANDARD = next(iter(DELIVERY))
# A template for a customer who has signed in, by e-mail address.
_Mine = Callable[[World, Draw, str], Goal]


@dataclasses.dataclass(frozen=True)
class Password:
    """A password as the shop keeps it, with a salt of its choice."""

    text: str

    @property
    def example(self) -> str:
        return hashed(self.text, "salt")

    def accepts(self, value: str) -> bool:
        parts = value.split("$")
        return len(parts) == 3 and value == hashed(self.text, parts[1])


def _mine(template: _Mine) -> Template:
    def whole(world: World, draw: Draw) -> Goal:
        mail = draw.choice(list(world["customers"]))
        goal = template(world, draw, mail)
        secret = f"<secret>{mail.partition('@')[0]}</secret>"
        return dataclasses.replace(goal, words=f"Sign in as {mail} with the password {secret}. {goal.words}")

    return whole


def _address(row: Row) -> dict[str, str]:
    return {column: row[column] for column in _PLACE}


def _in_words(row: Row) -> str:
    return "{first} {last}, {street}, {city}, {postcode}".format(**row)


def _price(world: World, title: str) -> float:
    return world["products"][title]["price"]


def _dearest(world: World, titles: Iterable[str]) -> str:
    return max(titles, key=lambda one: _price(world, one))


# Questions.


def _asks(world: World, words: str, value: Any, others: Iterable[str] = ()) -> Goal:
    """A question; `others` are names, one of which is right."""
    name = value[0] if isinstance(value, tuple) else value
    answer = Answer(value, other_values(others, name) if isinstance(name, str) else ())
    return Goal(f"{words} Order and change nothing.", world, answer)


def _comparison(world: World, draw: Draw) -> Goal:
    both = draw.sample(list(world["products"]), 2)
    cheaper, dearer = sorted(both, key=lambda one: _price(world, one))
    words = (
        f'Which is cheaper, "{both[0]}" or "{both[1]}", and by how many pounds? '
        "Answer with the product's name and the difference, as in: Umbrella, 3.20."
    )
    return _asks(world, words, (cheaper, round(_price(world, dearer) - _price(world, cheaper), 2)), both)


def _categories(world: World, draw: Draw, number: int) -> list[tuple[str, list[str]]]:
    """Some categories, each with the titles of its products, the cheapest first."""
    names = draw.sample(sorted({row["category"] for row in world["products"].values()}), number)
    return [
        (one, sorted(of(world, "products", category=one), key=lambda title: _price(world, title)))
        for one in names
    ]


def _cheapest(world: World, draw: Draw) -> Goal:
    ((category, titles),) = _categories(world, draw, 1)
    words = (
        f'What is the cheapest product in the category "{category}"? Open its page and answer with the '
        "shop's number for it (UPC) alone."
    )
    upcs = {one: row["upc"] for one, row in world["products"].items()}
    return _asks(world, words, upcs[titles[0]], upcs.values())


def _dearest_in_stock(world: World, draw: Draw) -> Goal:
    ((category, titles),) = _categories(world, draw, 1)
    dearest = [one for one in titles if world["products"][one]["stock"]][-1]
    words = (
        f'What is the dearest product in the category "{category}" that can be had? Answer with its name '
        "and its price in pounds, as in: Umbrella, 13.20."
    )
    return _asks(world, words, (dearest, _price(world, dearest)), world["products"])


def _best_rated(world: World, draw: Draw) -> Goal:
    ((category, titles),) = _categories(world, draw, 1)
    scores = [
        (sum(row["score"] for row in of(world, "reviews", product=one).values()), one) for one in titles
    ]
    words = (
        f'Which product of the category "{category}" do customers rate best? The list can be sorted by '
        "customer rating. Answer with its name alone."
    )
    return _asks(world, words, max(scores)[1], world["products"])


def _below(world: World, draw: Draw) -> Goal:
    prices = sorted(_price(world, one) for one in world["products"])
    limit = draw.choice([one for one in world["products"] if _price(world, one) > prices[2]])
    words = f'How many of all products of the shop cost less than "{limit}"? Answer with the number alone.'
    return _asks(world, words, prices.index(_price(world, limit)))


def _found_dearest(world: World, draw: Draw) -> Goal:
    designers: dict[str, list[str]] = {}
    for one, row in world["products"].items():
        designers.setdefault(_DESIGNER.findall(row["description"])[0], []).append(one)
    designer, found = draw.choice([pair for pair in designers.items() if len(pair[1]) > 1])
    words = f'Search for "{designer}": which of the products found is the dearest? Answer with its name.'
    return _asks(world, words, _dearest(world, found), world["products"])


def _stock(world: World, draw: Draw) -> Goal:
    one, row = draw.row(world, "products", lambda one: one["stock"])
    words = f'How many of "{one}" has the shop in stock? Answer with the number alone.'
    return _asks(world, words, row["stock"])


def _fact(world: World, draw: Draw) -> Goal:
    one, row = draw.row(world, "products")
    what, figure = draw.choice(_FACT.findall(row["description"]))
    words = f'What does the description of "{one}" say: "{what}"? Answer with the figure alone.'
    return _asks(world, words, int(figure))


def _not_sold(world: World, draw: Draw) -> Goal:
    sold = draw.sample(list(world["products"]), 3)
    missing = next(one for one in draw.distinct(lambda: title(draw), 2) if one not in world["products"])
    names = ", ".join(f'"{one}"' for one in draw.sample([*sold, missing], 4))
    words = f"Which of these does the shop not sell at all: {names}? Answer with its name alone."
    return _asks(world, words, missing, sold)


def _reviewer(world: World, draw: Draw) -> Goal:
    _, row = draw.row(world, "reviews", lambda one: one["name"])
    words = 'Who wrote the review "{title}" of "{product}"? Answer with the name alone.'.format(**row)
    return _asks(world, words, row["name"], [one["name"] for one in world["reviews"].values()])


def _an_order(world: World, draw: Draw, mail: str, least: int = 1) -> tuple[str, Row, str]:
    """Number and row of an order of a customer, and what is in it alone."""
    number, row = draw.row(world, "orders", lambda one: one["email"] == mail and len(one["lines"]) >= least)
    return number, row, draw.choice(_titles(row))


def _order_total(world: World, draw: Draw, mail: str) -> Goal:
    _, row, product = _an_order(world, draw, mail)
    words = f'What did the order with "{product}" cost in all? Answer with the pounds alone.'
    return _asks(world, words, row["total"])


def _order_with(world: World, draw: Draw, mail: str) -> Goal:
    number, _, product = _an_order(world, draw, mail)
    return _asks(world, f'Which order has "{product}" in it? Answer with its number alone.', int(number))


# Orders.


def _ordered(
    world: World, number: str, words: str, who: Row, wanted: Mapping[str, int], delivery: str, code: str = ""
) -> Goal:
    """An order, whose goods are taken from the stock; its number is the answer."""
    lines, after = quantities(wanted), world
    for product, taken in lines:
        after = put(after, "products", product, stock=world["products"][product]["stock"] - taken)
    row = {
        "email": who["email"],
        **_address(who),
        "lines": lines,
        "total": total(world, lines, delivery, code),
        "delivery": delivery,
        "vouchers": [code] if code else [],
        "more": "",
    }
    words = f"{words} by {delivery}. Answer with the order's number."
    return Goal(words, put(after, "orders", number, **row), Answer(int(number)))


def _as_guest(
    world: World, draw: Draw, words: str, wanted: Mapping[str, int], delivery: str = _STANDARD, code: str = ""
) -> Goal:
    who = guest(draw)
    words += f" Check out as a guest with the e-mail address {who['email']}; send it to {_in_words(who)},"
    return _ordered(world, next_number(world), words, who, wanted, delivery, code)


def _guest_order(world: World, draw: Draw) -> Goal:
    one, number = draw.choice(stocked(world)), draw.randint(1, 4)
    return _as_guest(world, draw, f'Order {number} of "{one}".', {one: number})


def _two_products(world: World, draw: Draw) -> Goal:
    one, two = draw.sample(stocked(world), 2)
    return _as_guest(world, draw, f'Order one "{one}" and one "{two}" together.', {one: 1, two: 1})


def _out_of_stock(world: World, draw: Draw) -> Goal:
    wanted, instead = draw.choice(stocked(world, 0, 0)), draw.choice(stocked(world))
    words = f'Order one "{wanted}", or, if it cannot be had, one "{instead}" in its place.'
    return _as_guest(world, draw, words, {instead: 1})


def _too_few(world: World, draw: Draw) -> Goal:
    one, number = draw.choice(stocked(world, 1, 4)), draw.randint(5, 8)
    words = f'Order {number} of "{one}", or, if there are not so many, as many as the shop says it has.'
    return _as_guest(world, draw, words, {one: world["products"][one]["stock"]})


def _delivery(world: World, draw: Draw) -> Goal:
    one, delivery = draw.choice(stocked(world)), draw.other(DELIVERY, _STANDARD)
    return _as_guest(world, draw, f'Order one "{one}".', {one: 1}, delivery)


def _voucher(world: World, draw: Draw) -> Goal:
    one, code = draw.choice(stocked(world)), draw.choice(list(world["vouchers"])[:2])
    return _as_guest(world, draw, f'Order one "{one}" with the voucher {code}.', {one: 1}, code=code)


def _refused_voucher(world: World, draw: Draw) -> Goal:
    one, codes = draw.choice(stocked(world)), list(world["vouchers"])
    refused, code = draw.choice(codes[2:]), draw.choice(codes[:2])
    words = (
        f'Order one "{one}" with the voucher {refused}, or, if the basket does not accept it, with the '
        f"voucher {code}."
    )
    return _as_guest(world, draw, words, {one: 1}, code=code)


def _cheapest_of_each(world: World, draw: Draw) -> Goal:
    found = _categories(world, draw, 3)
    wanted = {next(one for one in titles if world["products"][one]["stock"]): 1 for _, titles in found}
    names = ", ".join(f'"{category}"' for category, _ in found)
    words = f"Of each of these categories, order one of the cheapest product that can be had: {names}."
    return _as_guest(world, draw, words, wanted)


def _basket(world: World, mail: str) -> tuple[int, dict[str, int]]:
    """Number and lines of a customer's basket."""
    ((key, row),) = of(world, "baskets", owner=mail).items()
    return key, dict(row["lines"])


def _buy_basket(world: World, draw: Draw, mail: str, words: str, where: Row) -> Goal:
    key, lines = _basket(world, mail)
    delivery, who = draw.choice(list(DELIVERY)), {**where, "email": mail}
    words = f"Order what is in the basket, to the {words} and"
    return _ordered(drop(world, "baskets", key), order_number(key), words, who, lines, delivery)


def _known_address(world: World, draw: Draw, mail: str) -> Goal:
    _, row = draw.row(world, "addresses", lambda one: one["owner"] == mail)
    return _buy_basket(world, draw, mail, f"address in {row['city']} of the address book", row)


def _with_address(world: World, mail: str, where: Row) -> World:
    return put(world, "addresses", New(), owner=mail, **_address(where), default=0, more="")


def _new_address(world: World, draw: Draw, mail: str) -> Goal:
    where = guest(draw)
    # The shop keeps it in the address book.
    after = _with_address(world, mail, where)
    return _buy_basket(after, draw, mail, f"new address {_in_words(where)},", where)


# Baskets.


def _fill_basket(world: World, draw: Draw) -> Goal:
    wanted = {one: draw.randint(1, 3) for one in draw.sample(stocked(world), 3)}
    listed = ", ".join(f'{number} of "{one}"' for one, number in wanted.items())
    basket = {"owner": "", "status": "Open", "vouchers": [], "lines": quantities(wanted)}
    words = f"Without signing in, put into the basket: {listed}. Do not order."
    return Goal(words, put(world, "baskets", New(), **basket))


def _with_lines(world: World, mail: str, **lines: int) -> World:
    """What it holds when a customer's basket has other numbers of some titles; 0 takes one out."""
    key, old = _basket(world, mail)
    left = {one: number for one, number in {**old, **lines}.items() if number}
    return put(world, "baskets", key, lines=quantities(left))


def _quantity(world: World, draw: Draw, mail: str) -> Goal:
    one, old = draw.choice(list(_basket(world, mail)[1].items()))
    new = draw.other(range(1, 9), old)
    words = f'Change the quantity of "{one}" in the basket to {new}. Do not order.'
    return Goal(words, _with_lines(world, mail, **{one: new}))


def _remove(world: World, draw: Draw, mail: str) -> Goal:
    one = draw.choice(list(_basket(world, mail)[1]))
    return Goal(f'Remove "{one}" from the basket. Do not order.', _with_lines(world, mail, **{one: 0}))


def _remove_dearest(world: World, draw: Draw, mail: str) -> Goal:
    _, lines = _basket(world, mail)
    dearest = _dearest(world, lines)
    kept = draw.choice([one for one in lines if one != dearest])
    words = (
        "Remove from the basket the product whose price for one is the highest, and raise the quantity of "
        f'"{kept}" by one. Do not order.'
    )
    return Goal(words, _with_lines(world, mail, **{dearest: 0, kept: lines[kept] + 1}))


def _save_for_later(world: World, draw: Draw, mail: str) -> Goal:
    one, number = draw.choice(list(_basket(world, mail)[1].items()))
    saved = {"owner": mail, "status": "Saved", "vouchers": [], "lines": [[one, number]]}
    after = put(_with_lines(world, mail, **{one: 0}), "baskets", New(), **saved)
    return Goal(f'Save "{one}" in the basket for later.', after)


def _with_more(world: World, mail: str, more: Mapping[str, int]) -> World:
    _, old = _basket(world, mail)
    return _with_lines(world, mail, **{one: old.get(one, 0) + number for one, number in more.items()})


def _order_again(world: World, draw: Draw, mail: str) -> Goal:
    _, row, product = _an_order(world, draw, mail)
    words = (
        f'Put all that the order with "{product}" had into the basket again, in addition to what is there. '
        "Do not order."
    )
    return Goal(words, _with_more(world, mail, dict(row["lines"])))


# Wish lists.


def _a_list(
    world: World, draw: Draw, mail: str, where: Callable[[list[str]], object] = bool
) -> tuple[int, str, list[str]]:
    """Number, name and titles of a wish list."""
    key, row = draw.row(world, "wish_lists", lambda one: one["owner"] == mail and where(_titles(one)))
    return key, row["name"], _titles(row)


def _titles(row: Row) -> list[str]:
    return [one for one, _ in row["lines"]]


def _listed(world: World, key: int | New, titles: Iterable[str], **values: Any) -> World:
    return put(world, "wish_lists", key, **values, lines=quantities(dict.fromkeys(titles, 1)))


def _new_list(world: World, draw: Draw, mail: str, words: str, titles: Iterable[str]) -> Goal:
    name = list_name(draw)
    after = _listed(world, New(), titles, owner=mail, name=name, visibility="Private", shared=[])
    return Goal(f'Make a new private wish list "{name}" {words}.', after)


def _wish_list(world: World, draw: Draw, mail: str) -> Goal:
    one = draw.choice(list(world["products"]))
    return _new_list(world, draw, mail, f'and put "{one}" on it', [one])


def _wish(world: World, draw: Draw, mail: str) -> Goal:
    key, name, titles = _a_list(world, draw, mail)
    one = draw.choice([one for one in stocked(world) if one not in titles])
    return Goal(f'Add "{one}" to the wish list "{name}".', _listed(world, key, [*titles, one]))


def _move_wish(world: World, draw: Draw, mail: str) -> Goal:
    key, name, titles = _a_list(world, draw, mail)
    ((other, row),) = [pair for pair in of(world, "wish_lists", owner=mail).items() if pair[0] != key]
    one = draw.choice(titles)
    after = _listed(world, key, [kept for kept in titles if kept != one])
    after = _listed(after, other, [*_titles(row), one])
    return Goal(f'Move "{one}" from the wish list "{name}" to "{row["name"]}".', after)


def _rename_list(world: World, draw: Draw, mail: str) -> Goal:
    (key, name, _), new = _a_list(world, draw, mail), list_name(draw)
    return Goal(f'Rename the wish list "{name}" to "{new}".', put(world, "wish_lists", key, name=new))


def _wish_dearest(world: World, draw: Draw, mail: str) -> Goal:
    dearest = _dearest(world, _basket(world, mail)[1])
    key, name, titles = _a_list(world, draw, mail, lambda titles: dearest not in titles)
    words = f'Add the product of the basket whose price for one is the highest to the wish list "{name}".'
    return Goal(words, _listed(world, key, [*titles, dearest]))


def _wishes_to_basket(world: World, draw: Draw, mail: str) -> Goal:
    _, name, titles = _a_list(world, draw, mail, lambda titles: len(titles) == 3)
    more = {one: 1 for one in titles if world["products"][one]["stock"]}
    words = (
        f'Put one of each product of the wish list "{name}" that can be had into the basket, in addition to '
        "what is there. Leave the list as it is, and do not order."
    )
    return Goal(words, _with_more(world, mail, more))


def _list_of_order(world: World, draw: Draw, mail: str) -> Goal:
    _, row, product = _an_order(world, draw, mail, least=3)
    words = f'with one of each product of the order that has "{product}" in it'
    return _new_list(world, draw, mail, words, _titles(row))


# Reviews and alerts.


def _review(
    world: World, draw: Draw, product: str, start: str, mail: str, name: str = "", end: str = ""
) -> Goal:
    (text, body), score = opinion(draw), draw.randint(1, 5)
    words = f'{start}: give it {score} of 5 stars, the title "{text}" and the text "{body}".{end}'
    row = {"product": product, "title": text, "score": score, "body": body, "email": mail, "name": name}
    return Goal(words, put(world, "reviews", New(), **row, votes=0))


def _guest_review(world: World, draw: Draw) -> Goal:
    product, (first, last) = draw.choice(list(world["products"])), name(draw)
    mail = email(first, last)
    end = f" The name is {first} and the e-mail address {mail}."
    return _review(world, draw, product, f'Without signing in, review "{product}"', mail, first, end)


def _first_review(world: World, draw: Draw, mail: str) -> Goal:
    """The shop takes one review of a product from a customer."""
    done = [row["product"] for row in of(world, "reviews", email=mail).values()]
    new = draw.choice([one for one in world["products"] if one not in done])
    titles = " and ".join(f'"{one}"' for one in draw.sample([draw.choice(done), new], 2))
    start = (
        f"Of {titles}, this customer has reviewed one already, and the shop takes no second review of it. "
        "Review the other"
    )
    return _review(world, draw, new, start, mail)


def _guest_alert(world: World, draw: Draw) -> Goal:
    one, mail = draw.choice(stocked(world, 0, 0)), guest(draw)["email"]
    words = f'Without signing in, have the shop notify {mail} when "{one}" is available again.'
    return Goal(words, put(world, "alerts", New(), product=one, email=mail, status="Unconfirmed"))


def _cancel_alert(world: World, draw: Draw, mail: str) -> Goal:
    key, row = draw.row(world, "alerts", lambda one: one["email"] == mail)
    words = f'Cancel the alert for "{row["product"]}" alone.'
    return Goal(words, put(world, "alerts", key, status="Cancelled"))


# Accounts.


def _register(world: World, draw: Draw) -> Goal:
    mail, new = guest(draw)["email"], password(draw)
    words = f"Open an account for the e-mail address {mail} with the password {new}."
    return Goal(words, put(world, "customers", mail, first="", last="", password=Password(new)))


def _rename(world: World, draw: Draw, mail: str) -> Goal:
    first, last = name(draw)
    words = f"Change the name in the profile: the first name is {first}, the last name {last}."
    return Goal(words, put(world, "customers", mail, first=first, last=last))


def _password(world: World, draw: Draw, mail: str) -> Goal:
    new = password(draw)
    after = put(world, "customers", mail, password=Password(new))
    return Goal(f"Change the password of the account to {new}.", after)


def _add_address(world: World, draw: Draw, mail: str) -> Goal:
    where = guest(draw)
    words = f"Add the address {_in_words(where)} to the address book."
    return Goal(words, _with_address(world, mail, where))


def _an_address(world: World, draw: Draw, mail: str) -> tuple[int, Row]:
    return draw.row(world, "addresses", lambda one: one["owner"] == mail)


def _correct_address(world: World, draw: Draw, mail: str) -> Goal:
    key, row = _an_address(world, draw, mail)
    street = place(draw)["street"]
    words = f"In the address book, the street of the address in {row['city']} is now {street}: correct it."
    return Goal(words, put(world, "addresses", key, street=street))


def _remove_address(world: World, draw: Draw, mail: str) -> Goal:
    key, row = _an_address(world, draw, mail)
    words = f"Delete the address in {row['city']} from the address book."
    return Goal(words, drop(world, "addresses", key))


def _default_address(world: World, draw: Draw, mail: str) -> Goal:
    ((old, _),) = of(world, "addresses", owner=mail, default=1).items()
    ((key, row),) = of(world, "addresses", owner=mail, default=0).items()
    after = put(put(world, "addresses", old, default=0), "addresses", key, default=1)
    return Goal(f"Make the address in {row['city']} the default one for shipping.", after)


def _order_address(world: World, draw: Draw, mail: str) -> Goal:
    cities = [row["city"] for row in of(world, "addresses", owner=mail).values()]
    _, row = draw.row(world, "orders", lambda one: one["email"] == mail and one["city"] not in cities)
    product = draw.choice(_titles(row))
    words = f'Add the address to which the order with "{product}" was sent to the address book.'
    return Goal(words, _with_address(world, mail, row))


_FOR_ALL: tuple[Template, ...] = (
    *(_comparison, _cheapest, _dearest_in_stock, _best_rated, _below, _found_dearest, _stock, _fact),
    *(_not_sold, _reviewer, _guest_order, _two_products, _out_of_stock, _too_few, _delivery, _voucher),
    *(_refused_voucher, _cheapest_of_each, _fill_basket, _guest_review, _guest_alert, _register),
)
_FOR_CUSTOMERS: tuple[_Mine, ...] = (
    *(_order_total, _order_with, _known_address, _new_address, _quantity, _remove, _remove_dearest),
    *(_save_for_later, _order_again, _wish_list, _wish, _move_wish, _rename_list, _wish_dearest),
    *(_wishes_to_basket, _list_of_order, _first_review, _cancel_alert, _rename, _password, _add_address),
    *(_correct_address, _remove_address, _default_address, _order_address),
)
# By the names of their functions.
TEMPLATES: dict[str, Template] = {
    one.__name__[1:].replace("_", "-"): template
    for one, template in (
        *((one, one) for one in _FOR_ALL),
        *((one, _mine(one)) for one in _FOR_CUSTOMERS),
    )
}
CARRIED = (
    *("comparison", "below", "cheapest-of-each", "wish-dearest", "list-of-order", "order-address"),
    "wishes-to-basket",
)
