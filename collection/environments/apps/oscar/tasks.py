"""Tasks at the shop: templates, and checks of what it holds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from collection.environments.apps.oscar.site import (
    BY_TITLE,
    CATEGORIES,
    CUSTOMERS,
    DELIVERY,
    ENOUGH,
    FEW,
    HELD,
    NEW_PASSWORDS,
    NONE,
    PRODUCTS,
    SECRETS,
    STANDARD,
    Address,
    Alert,
    Basket,
    Customer,
    Holdings,
    Order,
    OscarShop,
    Product,
    Review,
    WishList,
    lines_of,
    price_of,
    quantities_of,
    total_of,
)
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for.

    Attributes:
      answer: "" if it asks for none.
      number: whether the answer is the number of the order that it makes.
    """

    words: str
    after: Holdings = HELD
    answer: str = ""
    number: bool = False


Template = Callable[[int], Goal]


def oscar_tasks(shop: OscarShop, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(shop, name, template(seed), seed) for name, template in TEMPLATES.items()]


def _task(shop: OscarShop, name: str, goal: Goal, seed: int) -> AppTask:
    def check(end: Ending) -> bool:
        answer = end.answer.strip()
        return (
            shop.holdings() == goal.after
            and (not goal.answer or answer == goal.answer)
            and (not goal.number or answer == shop.newest_order())
        )

    return make_task(shop, name, seed, f"{goal.words} The shop is {shop.url}/.", check)


# Questions.


def _asks(words: str, answer: str) -> Goal:
    return Goal(f"{words} Order and change nothing.", answer=answer)


def _comparison(seed: int) -> Goal:
    one, other = choose(PRODUCTS, seed, 2), choose(PRODUCTS, seed, 9)
    cheaper, difference = min((one, other), key=price_of), f"{abs(price_of(one) - price_of(other)):.2f}"
    words = (
        f'Which is cheaper, "{one.title}" or "{other.title}", and by how many pounds? '
        "Answer with the product's name and the difference, as in: Umbrella, 3.20."
    )
    return _asks(words, f"{cheaper.title}, {difference}")


def _in_category(seed: int) -> tuple[str, list[Product]]:
    category = choose(CATEGORIES, seed)
    return category, [product for product in PRODUCTS if product.category == category]


def _cheapest(seed: int) -> Goal:
    category, products = _in_category(seed)
    cheapest = min(products, key=price_of)
    words = (
        f'What is the cheapest product in the category "{category}"? Open its page and answer with its name '
        "and the shop's number for it (UPC), as in: Umbrella, AB12."
    )
    return _asks(words, f"{cheapest.title}, {cheapest.upc}")


def _dearest_in_stock(seed: int) -> Goal:
    category, products = _in_category(seed + 1)
    dearest = max((product for product in products if product.stock), key=price_of)
    words = (
        f'What is the dearest product in the category "{category}" that can be had? Answer with its name '
        "and its price in pounds, as in: Umbrella, 13.20."
    )
    return _asks(words, f"{dearest.title}, {dearest.price}")


def _best_rated(seed: int) -> Goal:
    category, products = _in_category(seed + 2)
    scores = {
        product.title: sum(review.score for review in HELD.reviews if review.product == product.title)
        for product in products
    }
    words = (
        f'Which product of the category "{category}" do customers rate best? The list can be sorted by '
        "customer rating. Answer with its name alone."
    )
    return _asks(words, max(scores, key=lambda title: scores[title]))


def _below(seed: int) -> Goal:
    limit = choose((18, 22, 26, 30, 38, 44), seed)
    number = sum(price_of(product) < limit for product in PRODUCTS)
    return _asks(f"How many products cost less than £{limit}? Answer with the number alone.", str(number))


def _found_dearest(seed: int) -> Goal:
    word = choose(("brass", "glass", "steel", "hand", "holds"), seed)
    found = [
        product
        for product in PRODUCTS
        if word in re.findall(r"\w+", f"{product.title} {product.description}".lower())
    ]
    words = f'Search for "{word}": which of the products found is the dearest? Answer with its name alone.'
    return _asks(words, max(found, key=price_of).title)


def _stock(seed: int) -> Goal:
    product = choose((*ENOUGH, *FEW), seed * 3)
    words = f'How many of "{product.title}" has the shop in stock? Answer with the number alone.'
    return _asks(words, str(product.stock))


# What is asked for, and the answer, of a product's description.
FACTS = (
    ("How many litres does the Enamel Kettle hold?", "1.7"),
    ("How many litres does the Canvas Duffel Bag hold?", "38"),
    ("How many centimetres long is the Willow Trug?", "45"),
    ("How many settings does the Walnut Pepper Mill have, as a word?", "ten"),
    ("Of which wood is the handle of the Hand Forged Trowel?", "ash"),
    ("How many centimetres high is the Brass Ship Lamp?", "31"),
)


def _fact(seed: int) -> Goal:
    question, answer = choose(FACTS, seed)
    return _asks(f"{question} Answer with that alone, in lower case.", answer)


_UNKNOWN = ("Cork Lifebelt", "Slate Cheese Board", "Pewter Tankard", "Hemp Hammock", "Rattan Chair")


def _not_sold(seed: int) -> Goal:
    missing = sorted(choose(_UNKNOWN, seed, offset) for offset in ((0, 2) if seed % 2 else (0,)))
    sold = [choose(PRODUCTS, seed * 5, 1).title, choose(PRODUCTS, seed * 3, 6).title]
    names = ", ".join(f'"{name}"' for name in sorted((*missing, *sold)))
    words = (
        f"Which of these does the shop not sell at all: {names}? Answer with the names, in this order, as "
        "in: A, B."
    )
    return _asks(words, ", ".join(missing))


def _reviewer(seed: int) -> Goal:
    reviews = [review for review in HELD.reviews if review.name]
    review = choose(reviews, seed * 5)
    words = f'Who wrote the review "{review.title}" of "{review.product}"? Answer with the name alone.'
    return _asks(words, review.name)


def _customer(seed: int) -> tuple[Customer, str]:
    """A customer, and the words about signing in."""
    customer = choose(CUSTOMERS, seed)
    secret = next(name for name, password in SECRETS.items() if password == customer.password)
    return customer, f"Sign in as {customer.email} with the password <secret>{secret}</secret>."


def _order(customer: Customer, seed: int) -> Order:
    return choose([order for order in HELD.orders if order.email == customer.email], seed, seed // 3)


def _order_total(seed: int) -> Goal:
    customer, words = _customer(seed)
    order = _order(customer, seed)
    words += f" What did order {order.number} cost in all? Answer with the pounds alone, as in 12.50."
    return _asks(words, order.total)


def _order_with(seed: int) -> Goal:
    customer, words = _customer(seed + 1)
    order = _order(customer, seed + 1)
    title = choose(sorted(quantities_of(order.lines)), seed)
    return _asks(f'{words} Which order has "{title}" in it? Answer with its number alone.', order.number)


# Orders.


@dataclasses.dataclass(frozen=True)
class Guest:
    """A customer without an account."""

    first: str
    last: str
    street: str
    city: str
    postcode: str

    @property
    def email(self) -> str:
        return f"{self.first}.{self.last}@example.com".lower()

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        return (self.first, self.last, self.street, self.city, self.postcode)

    @property
    def words(self) -> str:
        return f"{self.first} {self.last}, {self.street}, {self.city}, {self.postcode}"


GUESTS = (
    Guest("Ida", "Moss", "4 Quay Street", "Leith", "EH6 6NA"),
    Guest("Tom", "Reeve", "17 Mill Lane", "Cardiff", "CF10 3AT"),
    Guest("Nora", "Blyth", "2 Castle Row", "York", "YO1 7HH"),
    Guest("Sam", "Okoro", "80 Harbour Road", "Bristol", "BS1 4DJ"),
)


def _ordered(
    words: str,
    quantities: Mapping[str, int],
    guest: Guest,
    delivery: str = STANDARD,
    code: str = "",
) -> Goal:
    """A guest's order."""
    total = total_of(quantities, delivery, code)
    order = Order(guest.email, lines_of(quantities), total, delivery, *guest.place, vouchers=code)
    words += (
        f" Check out as a guest with the e-mail address {guest.email}; send it to {guest.words}, "
        f"by {delivery}. Answer with the order's number."
    )
    return Goal(words, HELD.but("orders", new=order), number=True)


def _guest_order(seed: int) -> Goal:
    product, quantity = choose(ENOUGH, seed, 3), 1 + seed % 3
    words = f'Order {quantity} of "{product.title}".'
    return _ordered(words, {product.title: quantity}, choose(GUESTS, seed))


def _two_products(seed: int) -> Goal:
    one, other = choose(ENOUGH, seed).title, choose(ENOUGH, seed, 5).title
    return _ordered(
        f'Order one "{one}" and one "{other}" together.', {one: 1, other: 1}, choose(GUESTS, seed, 1)
    )


def _out_of_stock(seed: int) -> Goal:
    wanted, instead = choose(NONE, seed).title, choose(ENOUGH, seed, 7).title
    words = f'Order one "{wanted}", or, if it cannot be had, one "{instead}" in its place.'
    return _ordered(words, {instead: 1}, choose(GUESTS, seed, 2))


def _too_few(seed: int) -> Goal:
    product = choose(FEW, seed)
    words = f'Order 5 of "{product.title}", or, if there are not so many, as many as the shop says it has.'
    return _ordered(words, {product.title: product.stock}, choose(GUESTS, seed, 3))


def _delivery(seed: int) -> Goal:
    product, delivery = choose(ENOUGH, seed, 9), list(DELIVERY)[1 + seed % 2]
    return _ordered(f'Order one "{product.title}".', {product.title: 1}, choose(GUESTS, seed, 1), delivery)


# Less by any voucher, they still cost whole pence.
_GOOD, _REFUSED = ("HARBOUR10", "SPRING25", "FIVER"), ("OLDROPE", "ANCHOR500", "MERMAID")
_WHOLE = tuple(product for product in ENOUGH if not price_of(product) % Decimal("0.20"))


def _voucher(seed: int) -> Goal:
    product, code = choose(_WHOLE, seed), choose(_GOOD, seed)
    words = f'Order one "{product.title}" with the voucher {code}.'
    return _ordered(words, {product.title: 1}, choose(GUESTS, seed), code=code)


def _refused_voucher(seed: int) -> Goal:
    product, refused, code = choose(_WHOLE, seed, 2), choose(_REFUSED, seed), choose(_GOOD, seed, 1)
    words = (
        f'Order one "{product.title}" with the voucher {refused}, or, if the basket does not accept it, '
        f"with the voucher {code}."
    )
    return _ordered(words, {product.title: 1}, choose(GUESTS, seed, 3), code=code)


def _of(kind: str, customer: Customer) -> list[Any]:
    """The customer's entries of a kind."""
    return [one for one in getattr(HELD, kind) if getattr(one, "owner", "") == customer.email]


def _buy_basket(words: str, customer: Customer, address: Address, delivery: str) -> Goal:
    (basket,) = _of("baskets", customer)
    place = (address.first, address.last, address.street, address.city, address.postcode)
    total = total_of(quantities_of(basket.lines), delivery)
    order = Order(customer.email, basket.lines, total, delivery, *place)
    words += f" and by {delivery}. Answer with the order's number."
    return Goal(words, HELD.but("baskets", basket).but("orders", new=order), number=True)


def _to_known_address(seed: int) -> Goal:
    customer, words = _customer(seed)
    address = choose(_of("addresses", customer), seed // 3 + seed)
    words += f" Order what is in the basket, to the address in {address.city} of the address book"
    return _buy_basket(words, customer, address, choose(list(DELIVERY), seed))


def _to_new_address(seed: int) -> Goal:
    customer, words = _customer(seed + 2)
    guest = choose(GUESTS, seed)
    address = Address(customer.email, *guest.place)
    words += f" Order what is in the basket, to the new address {guest.words},"
    goal = _buy_basket(words, customer, address, choose(list(DELIVERY), seed, 1))
    # The shop keeps it in the address book.
    return dataclasses.replace(goal, after=goal.after.but("addresses", new=address))


# Baskets.


def _fill(seed: int) -> Goal:
    titles = sorted(choose(ENOUGH, seed, offset).title for offset in (1, 4, 8))
    wanted = {title: 1 + (seed + at) % 3 for at, title in enumerate(titles)}
    listed = ", ".join(f'{number} of "{title}"' for title, number in wanted.items())
    after = HELD.but("baskets", new=Basket("", lines_of(wanted)))
    return Goal(f"Without signing in, put into the basket: {listed}. Do not order.", after)


def _basket_change(
    words: str, change: Callable[[dict[str, int], int], tuple[str, dict[str, int]]]
) -> Template:
    """A change of a customer's basket: `words` has the title, and the new quantity."""

    def goal(seed: int) -> Goal:
        customer, start = _customer(seed)
        (basket,) = _of("baskets", customer)
        title, lines = change(quantities_of(basket.lines), seed)
        new = dataclasses.replace(basket, lines=lines_of(lines))
        text = words.format(title=title, number=lines.get(title))
        return Goal(f"{start} {text} Do not order.", HELD.but("baskets", basket, new))

    return goal


def _other_number(lines: dict[str, int], seed: int) -> tuple[str, dict[str, int]]:
    title = choose(sorted(lines), seed, seed // 3)
    return title, lines | {title: lines[title] + 1 + seed % 2}


def _less(lines: dict[str, int], seed: int) -> tuple[str, dict[str, int]]:
    title = choose(sorted(lines), seed, 1)
    return title, {one: number for one, number in lines.items() if one != title}


def _less_dearest(lines: dict[str, int], seed: int) -> tuple[str, dict[str, int]]:
    """Not the dearest line: the product whose price is the highest."""
    title = max(lines, key=lambda one: price_of(BY_TITLE[one]))
    return title, {one: number for one, number in lines.items() if one != title}


def _save(seed: int) -> Goal:
    customer, words = _customer(seed + 1)
    (basket,) = _of("baskets", customer)
    lines = quantities_of(basket.lines)
    title, rest = _less(lines, seed)
    saved = Basket(customer.email, lines_of({title: lines[title]}), "Saved")
    after = HELD.but("baskets", basket, dataclasses.replace(basket, lines=lines_of(rest)))
    return Goal(f'{words} Save "{title}" in the basket for later.', after.but("baskets", new=saved))


def _again(seed: int) -> Goal:
    customer, words = _customer(seed + 2)
    (basket,), order = _of("baskets", customer), _order(customer, seed + 1)
    lines = quantities_of(basket.lines)
    for title, number in quantities_of(order.lines).items():
        lines[title] = lines.get(title, 0) + number
    new = dataclasses.replace(basket, lines=lines_of(lines))
    words += (
        f" Put all that order {order.number} had into the basket again, in addition to what is there. "
        "Do not order."
    )
    return Goal(words, HELD.but("baskets", basket, new))


# Wish lists.


_LISTS = ("Garden party", "Winter", "Moving house", "For Grandmother", "Camping")


def _wish_list(seed: int) -> Goal:
    customer, words = _customer(seed)
    name = choose(_LISTS, seed)
    product = choose(PRODUCTS, seed * 3)
    new = WishList(customer.email, name, lines_of({product.title: 1}))
    words += f' Make a new private wish list "{name}" and put "{product.title}" on it.'
    return Goal(words, HELD.but("wish_lists", new=new))


def _wish(seed: int) -> Goal:
    customer, words = _customer(seed + 1)
    wish_list = choose(_of("wish_lists", customer), seed)
    has = quantities_of(wish_list.lines)
    product = choose([product for product in ENOUGH if product.title not in has], seed, 2)
    new = dataclasses.replace(wish_list, lines=lines_of(has | {product.title: 1}))
    words += f' Add "{product.title}" to the wish list "{wish_list.name}".'
    return Goal(words, HELD.but("wish_lists", wish_list, new))


def _move_wish(seed: int) -> Goal:
    customer, words = _customer(seed + 2)
    one, other = _of("wish_lists", customer)
    source, target = (one, other) if seed % 2 else (other, one)
    has = quantities_of(source.lines)
    title = choose(sorted(has), seed)
    rest = lines_of({name: number for name, number in has.items() if name != title})
    more = lines_of(quantities_of(target.lines) | {title: 1})
    after = HELD.but("wish_lists", source, dataclasses.replace(source, lines=rest))
    after = after.but("wish_lists", target, dataclasses.replace(target, lines=more))
    return Goal(f'{words} Move "{title}" from the wish list "{source.name}" to "{target.name}".', after)


def _rename_list(seed: int) -> Goal:
    customer, words = _customer(seed)
    wish_list, name = choose(_of("wish_lists", customer), seed // 2), choose(_LISTS, seed, 2)
    new = dataclasses.replace(wish_list, name=name)
    words += f' Rename the wish list "{wish_list.name}" to "{name}".'
    return Goal(words, HELD.but("wish_lists", wish_list, new))


# Reviews and alerts.


_OPINIONS = (
    ("Worth the wait", "It took two weeks and I do not regret it."),
    ("Heavier than it looks", "Carry it with both hands."),
    ("Exactly as shown", "The colour is the one of the picture."),
    ("My second one", "The first went overboard."),
)


def _review(product: Product, seed: int, email: str, name: str = "") -> tuple[str, Review]:
    """Words and review."""
    (title, body), score = choose(_OPINIONS, seed), 1 + seed % 5
    words = f'give it {score} of 5 stars, the title "{title}" and the text "{body}"'
    return words, Review(product.title, title, score, body, email, name)


def _guest_review(seed: int) -> Goal:
    product, guest = choose(PRODUCTS, seed * 3, 4), choose(GUESTS, seed)
    words, review = _review(product, seed, guest.email, guest.first)
    words = (
        f'Without signing in, review "{product.title}": {words}. The name is {guest.first} and the e-mail '
        f"address {guest.email}."
    )
    return Goal(words, HELD.but("reviews", new=review))


def _first_review(seed: int) -> Goal:
    """The shop takes one review of a product from a customer."""
    customer, start = _customer(seed)
    done = {review.product for review in HELD.reviews if review.email == customer.email}
    old = choose([product for product in PRODUCTS if product.title in done], seed, 1)
    new = choose([product for product in PRODUCTS if product.title not in done], seed, 2)
    words, review = _review(new, seed + 1, customer.email)
    titles = [f'"{product.title}"' for product in ((old, new) if seed % 2 else (new, old))]
    words = (
        f"{start} Of {' and '.join(titles)}, this customer has reviewed one already, and the shop takes no "
        f"second review of it. Review the other: {words}."
    )
    return Goal(words, HELD.but("reviews", new=review))


def _guest_alert(seed: int) -> Goal:
    product, guest = choose(NONE, seed), choose(GUESTS, seed)
    words = (
        f'Without signing in, have the shop notify {guest.email} when "{product.title}" is available again.'
    )
    return Goal(words, HELD.but("alerts", new=Alert(product.title, guest.email, "Unconfirmed")))


def _cancel_alert(seed: int) -> Goal:
    customer, words = _customer(seed)
    alert = choose([alert for alert in HELD.alerts if alert.email == customer.email], seed)
    new = dataclasses.replace(alert, status="Cancelled")
    words += f' Cancel the alert for "{alert.product}" alone.'
    return Goal(words, HELD.but("alerts", alert, new))


# Accounts.


def _register(seed: int) -> Goal:
    guest, password = choose(GUESTS, seed), choose(NEW_PASSWORDS, seed)
    words = f"Open an account for the e-mail address {guest.email} with the password {password}."
    return Goal(words, HELD.but("customers", new=Customer(guest.email, "", "", password)))


def _rename(seed: int) -> Goal:
    customer, words = _customer(seed)
    last = choose(("Greenhalgh", "Sorensen", "Ibarra", "Whitlock"), seed)
    words += f" Change the last name in the profile to {last}."
    return Goal(words, HELD.but("customers", customer, dataclasses.replace(customer, last=last)))


def _password(seed: int) -> Goal:
    customer, words = _customer(seed + 1)
    new = dataclasses.replace(customer, password=choose(NEW_PASSWORDS, seed))
    words += f" Change the password of the account to {new.password}."
    return Goal(words, HELD.but("customers", customer, new))


def _add_address(seed: int) -> Goal:
    customer, words = _customer(seed + 2)
    guest = choose(GUESTS, seed, 1)
    words += f" Add the address {guest.words} to the address book."
    return Goal(words, HELD.but("addresses", new=Address(customer.email, *guest.place)))


def _correct_address(seed: int) -> Goal:
    customer, words = _customer(seed)
    address = choose(_of("addresses", customer), seed // 2)
    street = choose(("5 Mill Pond", "22 Rope Walk", "1 Chapel Hill", "40 Tar Lane"), seed)
    words += f" In the address book, the street of the address in {address.city} is now {street}: correct it."
    return Goal(words, HELD.but("addresses", address, dataclasses.replace(address, street=street)))


def _remove_address(seed: int) -> Goal:
    customer, words = _customer(seed + 1)
    address = choose(_of("addresses", customer), seed)
    words += f" Delete the address in {address.city} from the address book."
    return Goal(words, HELD.but("addresses", address))


def _default_address(seed: int) -> Goal:
    customer, words = _customer(seed)
    old, new = sorted(_of("addresses", customer), key=lambda one: not one.default)
    words += f" Make the address in {new.city} the default one for shipping."
    after = HELD.but("addresses", old, dataclasses.replace(old, default=0))
    return Goal(words, after.but("addresses", new, dataclasses.replace(new, default=1)))


QUESTIONS: dict[str, Template] = {
    "comparison": _comparison,
    "cheapest": _cheapest,
    "dearest-in-stock": _dearest_in_stock,
    "best-rated": _best_rated,
    "below": _below,
    "found-dearest": _found_dearest,
    "stock": _stock,
    "fact": _fact,
    "not-sold": _not_sold,
    "reviewer": _reviewer,
    "order-total": _order_total,
    "order-with": _order_with,
}
CHANGES: dict[str, Template] = {
    "guest-order": _guest_order,
    "two-products": _two_products,
    "out-of-stock": _out_of_stock,
    "too-few": _too_few,
    "delivery": _delivery,
    "voucher": _voucher,
    "refused-voucher": _refused_voucher,
    "known-address": _to_known_address,
    "new-address": _to_new_address,
    "fill-basket": _fill,
    "quantity": _basket_change('Change the quantity of "{title}" in the basket to {number}.', _other_number),
    "remove": _basket_change('Remove "{title}" from the basket.', _less),
    "remove-dearest": _basket_change(
        "Remove from the basket the product whose price for one is the highest.", _less_dearest
    ),
    "save-for-later": _save,
    "order-again": _again,
    "wish-list": _wish_list,
    "wish": _wish,
    "move-wish": _move_wish,
    "rename-list": _rename_list,
    "guest-review": _guest_review,
    "first-review": _first_review,
    "guest-alert": _guest_alert,
    "cancel-alert": _cancel_alert,
    "register": _register,
    "rename": _rename,
    "password": _password,
    "add-address": _add_address,
    "correct-address": _correct_address,
    "remove-address": _remove_address,
    "default-address": _default_address,
}
TEMPLATES = QUESTIONS | CHANGES
