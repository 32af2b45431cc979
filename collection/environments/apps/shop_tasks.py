"""Errands at the shop, checked in its database."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

from collection.environments.apps.catalogue import PRODUCTS, Product
from collection.environments.apps.shop import OscarShop
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task


@dataclasses.dataclass(frozen=True)
class Guest:
    """Who orders without an account."""

    first: str
    last: str
    email: str
    street: str
    city: str
    postcode: str

    @property
    def wish(self) -> str:
        """How a task names them."""
        return (
            f"Check out as a guest with the e-mail address {self.email}; send it to {self.first} "
            f"{self.last}, {self.street}, {self.city}, {self.postcode}."
        )


GUESTS = (
    Guest("Ida", "Moss", "ida.moss@example.com", "4 Quay Street", "Leith", "EH6 6NA"),
    Guest("Tom", "Reeve", "tom.reeve@example.com", "17 Mill Lane", "Cardiff", "CF10 3AT"),
    Guest("Nora", "Blyth", "nora.blyth@example.com", "2 Castle Row", "York", "YO1 7HH"),
    Guest("Sam", "Okoro", "sam.okoro@example.com", "80 Harbour Road", "Bristol", "BS1 4DJ"),
)
ENOUGH = tuple(product for product in PRODUCTS if product.stock >= 6)
FEW = tuple(product for product in PRODUCTS if 0 < product.stock < 6)
NONE = tuple(product for product in PRODUCTS if not product.stock)


def shop_tasks(shop: OscarShop, seed: int) -> list[AppTask]:
    """One of each kind."""
    return [
        _guest_order(shop, seed),
        _two_products(shop, seed),
        _comparison(shop, seed),
        _out_of_stock(shop, seed),
        _too_few(shop, seed),
        _cheapest(shop, seed),
    ]


def _guest_order(shop: OscarShop, seed: int) -> AppTask:
    product, guest, quantity = choose(ENOUGH, seed, 3), choose(GUESTS, seed), 1 + seed % 3
    text = (
        f'Order {quantity} of "{product.title}" at {shop.url}/. {guest.wish} Answer with the order\'s number.'
    )

    def check(end: Ending) -> bool:
        return ordered(shop, guest, {product.title: quantity}, end.answer)

    return make_task(shop, "guest-order", seed, text, check)


def _two_products(shop: OscarShop, seed: int) -> AppTask:
    one, other = choose(ENOUGH, seed), choose(ENOUGH, seed, 5)
    guest = choose(GUESTS, seed, 1)
    text = (
        f'Order one "{one.title}" and one "{other.title}" together at {shop.url}/. {guest.wish} '
        "Answer with the order's number."
    )

    def check(end: Ending) -> bool:
        return ordered(shop, guest, {one.title: 1, other.title: 1}, end.answer)

    return make_task(shop, "two-products", seed, text, check)


def _comparison(shop: OscarShop, seed: int) -> AppTask:
    one, other = choose(PRODUCTS, seed, 2), choose(PRODUCTS, seed, 9)
    cheaper = min((one, other), key=_price)
    difference = f"{abs(_price(one) - _price(other)):.2f}"
    text = (
        f'Which is cheaper at {shop.url}/, "{one.title}" or "{other.title}", and by how many pounds? '
        "Order nothing. Answer with the product's name and the difference, as in: Umbrella, 3.20"
    )

    def check(end: Ending) -> bool:
        return not shop.orders() and end.answer.strip() == f"{cheaper.title}, {difference}"

    return make_task(shop, "comparison", seed, text, check)


def _out_of_stock(shop: OscarShop, seed: int) -> AppTask:
    wanted, instead, guest = choose(NONE, seed), choose(ENOUGH, seed, 7), choose(GUESTS, seed, 2)
    text = (
        f'Order one "{wanted.title}" at {shop.url}/, or, if it cannot be had, one "{instead.title}" in its '
        f"place. {guest.wish} Answer with the order's number."
    )

    def check(end: Ending) -> bool:
        return ordered(shop, guest, {instead.title: 1}, end.answer)

    return make_task(shop, "out-of-stock", seed, text, check)


def _too_few(shop: OscarShop, seed: int) -> AppTask:
    product, guest = choose(FEW, seed), choose(GUESTS, seed, 3)
    text = (
        f'Order 5 of "{product.title}" at {shop.url}/, or, if there are not so many, as many as the shop '
        f"says it has. {guest.wish} Answer with the order's number."
    )

    def check(end: Ending) -> bool:
        return ordered(shop, guest, {product.title: product.stock}, end.answer)

    return make_task(shop, "too-few", seed, text, check)


def _cheapest(shop: OscarShop, seed: int) -> AppTask:
    categories = list(dict.fromkeys(product.category for product in PRODUCTS))
    category = choose(categories, seed)
    cheapest = min((product for product in PRODUCTS if product.category == category), key=_price)
    text = (
        f'What is the cheapest product in the category "{category}" of {shop.url}/? Order nothing; open '
        "its page and answer with its name and the shop's number for it (UPC), as in: Umbrella, AB12"
    )

    def check(end: Ending) -> bool:
        return not shop.orders() and end.answer.strip() == f"{cheapest.title}, {cheapest.upc}"

    return make_task(shop, "cheapest", seed, text, check)


def ordered(shop: OscarShop, guest: Guest, lines: dict[str, int], answer: str) -> bool:
    """Whether there is this one order, for this guest, and the answer names it."""
    order = shop.order_of(guest.email)
    return (
        order is not None
        and len(shop.orders()) == 1
        and order.lines == lines
        and order.name == f"{guest.first} {guest.last}"
        and order.postcode == guest.postcode
        and answer.strip() == order.number
    )


def _price(product: Product) -> Decimal:
    return Decimal(product.price)
