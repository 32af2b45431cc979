"""A django-oscar shop on SQLite, in a Python environment of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import sqlite3
from collections.abc import Sequence
from decimal import Decimal

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task


@dataclasses.dataclass(frozen=True)
class Product:
    """A product on sale; `price` in pounds."""

    title: str
    price: str
    stock: int
    category: str
    description: str

    @property
    def upc(self) -> str:
        """The shop's number of the product."""
        return "HG" + "".join(word[:3].upper() for word in self.title.split())


PRODUCTS = tuple(
    Product(title, price, stock, category, f"<p>{description}</p>")
    for category, products in {
        "Lamps": (
            ("Brass Ship Lamp", "34.50", 12, "Polished brass with a glass chimney, 31 cm high."),
            ("Copper Storm Lantern", "42.00", 7, "Burns for nine hours in any wind."),
            ("Folding Reading Lamp", "27.25", 15, "Folds flat to the size of a book."),
            ("Green Banker Lamp", "58.90", 0, "Glass shade with a pull chain."),
        ),
        "Kitchen": (
            ("Enamel Kettle", "19.95", 20, "Holds 1.7 litres, for gas and fire."),
            ("Cast Iron Skillet", "31.40", 9, "Comes seasoned, 26 cm."),
            ("Walnut Pepper Mill", "24.10", 3, "Ceramic grinder, ten settings."),
            ("Stoneware Teapot", "22.80", 0, "For six cups, with a steel strainer."),
        ),
        "Garden": (
            ("Hand Forged Trowel", "16.75", 25, "Ash handle and a carbon steel blade."),
            ("Willow Trug", "29.60", 6, "Woven by hand, 45 cm long."),
            ("Galvanised Watering Can", "26.30", 2, "Holds nine litres, brass rose."),
            ("Oak Dibber", "9.80", 40, "Marked in centimetres."),
        ),
        "Travel": (
            ("Canvas Duffel Bag", "48.20", 11, "Waxed canvas, 38 litres."),
            ("Leather Passport Cover", "18.35", 30, "Holds two passports."),
            ("Wool Travel Blanket", "39.90", 8, "Merino, 130 by 180 cm."),
            ("Pocket Compass", "21.60", 14, "Brass case with a lid."),
        ),
    }.items()
    for title, price, stock, description in products
)


def product(title: str) -> Product:
    """Returns a product by its title; raises KeyError if the shop does not sell it."""
    return {item.title: item for item in PRODUCTS}[title]


# All that django-oscar 4.2.1 needs, and Whoosh for its search.
REQUIREMENTS = (
    *("django-oscar[sorl-thumbnail]==4.2.1", "Whoosh==2.7.4", "pycountry==26.2.16", "Django==5.2.19"),
    *("django-extra-views==0.16.0", "django-haystack==3.4.0", "django-phonenumber-field==8.5.0"),
    *("django-tables2==2.7.0", "django-treebeard==7.0.3", "django-widget-tweaks==1.5.1", "Babel==2.18.0"),
    *("factory-boy==3.3.3", "Faker==40.54.0", "phonenumbers==9.0.43", "pillow==13.0.0", "purl==1.6"),
    *("sorl-thumbnail==12.11.0", "asgiref==3.13.0", "sqlparse==0.6.1", "packaging==26.3", "six==1.17.0"),
)
_SITE = pathlib.Path(__file__).with_name("shop_site.py")


@dataclasses.dataclass(frozen=True)
class Order:
    """An order in the shop's database.

    Attributes:
      lines: quantity by product title.
      total: pounds, with postage.
      name, postcode: where it goes.
    """

    number: str
    email: str
    lines: dict[str, int]
    total: str
    name: str
    postcode: str


class OscarShop(PythonSite):
    """http://oscar.test/: the products of `PRODUCTS`, guests may order.

    A reset leaves no orders, baskets, accounts or sessions, and all stock there again.
    """

    name = "oscar"
    host = "oscar.test"
    requirements, script, ready = REQUIREMENTS, _SITE, "/catalogue/"
    version = digest(REQUIREMENTS, PRODUCTS, _SITE.read_text(encoding="utf-8"))

    def orders(self) -> list[Order]:
        """Returns all orders, oldest first."""
        query = """
            SELECT o.id, o.number, o.guest_email, o.total_incl_tax, a.first_name, a.last_name, a.postcode
            FROM order_order o LEFT JOIN order_shippingaddress a ON a.id = o.shipping_address_id ORDER BY o.id
        """
        lines = "SELECT title, SUM(quantity) FROM order_line WHERE order_id = ? GROUP BY title"
        path = self.data / "shop.sqlite3"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return [
                Order(
                    number=number,
                    email=email,
                    lines=dict(database.execute(lines, (identity,)).fetchall()),
                    total=f"{total:.2f}",
                    name=f"{first} {last}",
                    postcode=postcode,
                )
                for identity, number, email, total, first, last, postcode in database.execute(query)
            ]

    def order_of(self, email: str) -> Order | None:
        """Returns the latest order of a guest."""
        return next((order for order in reversed(self.orders()) if order.email == email), None)

    def _seed(self) -> None:
        catalogue = [dataclasses.asdict(product) | {"upc": product.upc} for product in PRODUCTS]
        (self.folder / "catalogue.json").write_text(json.dumps(catalogue), encoding="utf-8")
        self.run_script("create", str(self.folder), str(self.kept))

    @property
    def _served(self) -> Sequence[str]:
        # Pictures and the index are next to the database.
        return (str(self.folder), str(self.data))


@dataclasses.dataclass(frozen=True)
class Guest:
    """A customer without an account."""

    first: str
    last: str
    email: str
    street: str
    city: str
    postcode: str

    @property
    def wish(self) -> str:
        """The sentence about the customer in a task."""
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
    """Returns one task of each kind."""
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
    """Returns True if this is the only order, it is for this guest, and the answer is its number."""
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
