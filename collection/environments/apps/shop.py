"""A django-oscar shop on SQLite, in a Python environment of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import reading
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

BY_TITLE = {product.title: product for product in PRODUCTS}

# All that django-oscar 4.2.1 needs, and Whoosh for its search.
REQUIREMENTS = (
    *("django-oscar[sorl-thumbnail]==4.2.1", "Whoosh==2.7.4", "pycountry==26.2.16", "Django==5.2.19"),
    *("django-extra-views==0.16.0", "django-haystack==3.4.0", "django-phonenumber-field==8.5.0"),
    *("django-tables2==2.7.0", "django-treebeard==7.0.3", "django-widget-tweaks==1.5.1", "Babel==2.18.0"),
    *("factory-boy==3.3.3", "Faker==40.54.0", "phonenumbers==9.0.43", "pillow==13.0.0", "purl==1.6"),
    *("sorl-thumbnail==12.11.0", "asgiref==3.13.0", "sqlparse==0.6.1", "packaging==26.3", "six==1.17.0"),
)
_SITE = pathlib.Path(__file__).with_name("shop_site.py")


# --- What the shop holds ---


@dataclasses.dataclass(frozen=True)
class Customer:
    """A person with an account."""

    email: str
    first: str
    last: str
    password: str


@dataclasses.dataclass(frozen=True)
class Address:
    """An entry of a customer's address book.

    Attributes:
      default: 1 for the one that is sent to unless another is chosen, else 0.
      more: everything else that the form has.
    """

    owner: str
    first: str
    last: str
    street: str
    city: str
    postcode: str
    default: int = 0
    more: str = ""


@dataclasses.dataclass(frozen=True)
class Basket:
    """A basket that is not empty; `owner` is "" for a guest's, `lines` are as in "2 Oak Dibber; 1 Kettle"."""

    owner: str
    lines: str
    kind: str = "Open"
    vouchers: str = ""


@dataclasses.dataclass(frozen=True)
class WishList:
    """A wish list of a customer; `visibility` ends with the people it is shared with."""

    owner: str
    name: str
    lines: str = ""
    visibility: str = "Private"


@dataclasses.dataclass(frozen=True)
class Review:
    """A review by a customer, whose `name` is "", or by a guest."""

    product: str
    title: str
    score: int
    body: str
    email: str
    name: str = ""
    votes: int = 0


@dataclasses.dataclass(frozen=True)
class Alert:
    """A request for a message when a product is available again."""

    product: str
    email: str
    status: str = "Active"


@dataclasses.dataclass(frozen=True)
class Order:
    """An order.

    Attributes:
      total: pounds, with postage.
      first, last, street, city, postcode: where it goes.
      vouchers: their codes.
      number: "" if it is not one of `HELD`.
      more: everything else that the form of the address has.
    """

    email: str
    lines: str
    total: str
    delivery: str
    first: str
    last: str
    street: str
    city: str
    postcode: str
    vouchers: str = ""
    number: str = ""
    more: str = ""


@dataclasses.dataclass(frozen=True)
class Holdings:
    """All that visitors can change, each kind in an order of its own."""

    customers: tuple[Customer, ...]
    addresses: tuple[Address, ...]
    baskets: tuple[Basket, ...]
    wish_lists: tuple[WishList, ...]
    reviews: tuple[Review, ...]
    alerts: tuple[Alert, ...]
    orders: tuple[Order, ...]

    def but(self, kind: str, old: Any = None, new: Any = None) -> Holdings:
        """Without one entry of a kind, and with another."""
        entries = [one for one in getattr(self, kind) if one != old]
        return dataclasses.replace(self, **{kind: _sorted([*entries, *([new] if new else [])])})


def _sorted(entries: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(sorted(entries, key=repr))


def lines_of(quantities: Mapping[str, int]) -> str:
    """Returns quantities by title as the text of `lines`."""
    return "; ".join(f"{quantities[title]} {title}" for title in sorted(quantities))


def quantities_of(lines: str) -> dict[str, int]:
    """Returns what `lines_of` was given."""
    parts = (line.partition(" ") for line in lines.split("; ") if line)
    return {title: int(number) for number, _, title in parts}


DELIVERY = {"Standard delivery": "2.95", "Next day delivery": "6.50", "Collection at the quay": "0.00"}
_STANDARD = next(iter(DELIVERY))


@dataclasses.dataclass(frozen=True)
class Voucher:
    """A code for less: percent, or pounds; for baskets of a least value, and until a year's end."""

    code: str
    percent: int = 0
    pounds: str = "0"
    least: str = "0"
    until: int = 2099


VOUCHERS = (
    *(Voucher("HARBOUR10", percent=10), Voucher("SPRING25", percent=25), Voucher("FIVER", pounds="5")),
    *(Voucher("OLDROPE", percent=50, until=2020), Voucher("ANCHOR500", percent=40, least="500")),
)
_GOOD, _REFUSED = ("HARBOUR10", "SPRING25", "FIVER"), ("OLDROPE", "ANCHOR500", "MERMAID")


def total_of(quantities: Mapping[str, int], delivery: str = _STANDARD, code: str = "") -> str:
    """Returns what an order costs."""
    value = sum((_price(BY_TITLE[title]) * number for title, number in quantities.items()), Decimal())
    for voucher in VOUCHERS:
        if voucher.code == code:
            value -= value * voucher.percent / 100 + Decimal(voucher.pounds)
    return f"{value + Decimal(DELIVERY[delivery]):.2f}"


def _price(product: Product) -> Decimal:
    return Decimal(product.price)


# Their passwords are secrets of these names; the agent writes `<secret>edda</secret>`.
SECRETS = {"edda": "ferry-lamp-41", "rufus": "quay-dibber-27", "mabel": "trug-kettle-63"}
_CUSTOMERS = (
    Customer("edda@example.com", "Edda", "Lindqvist", SECRETS["edda"]),
    Customer("rufus@example.com", "Rufus", "Amari", SECRETS["rufus"]),
    Customer("mabel@example.com", "Mabel", "Ortiz", SECRETS["mabel"]),
)
_PLACES = (
    (("9 Pier Head", "Oban", "PA34 5DQ"), ("31 Fern Bank", "Perth", "PH1 5QB")),
    (("12 Dock Road", "Whitby", "YO21 1DN"), ("6 Abbey Lane", "Durham", "DH1 3HP")),
    (("77 Strand", "Penzance", "TR18 4AB"), ("3 Cider Yard", "Taunton", "TA1 4PF")),
)
_NEW_PASSWORDS = ("gull-bell-88", "rope-tide-19", "salt-oar-52", "mist-pier-34")
_BASKETS = (
    {"Brass Ship Lamp": 1, "Oak Dibber": 3, "Wool Travel Blanket": 2},
    {"Cast Iron Skillet": 2, "Pocket Compass": 1, "Willow Trug": 1},
    {"Canvas Duffel Bag": 1, "Enamel Kettle": 2, "Hand Forged Trowel": 4},
)
_WISHES = (
    (("Birthday", ("Copper Storm Lantern", "Pocket Compass")), ("For the boat", ("Enamel Kettle",))),
    (("New flat", ("Folding Reading Lamp", "Stoneware Teapot")), ("Holiday", ("Leather Passport Cover",))),
    (("Allotment", ("Oak Dibber", "Willow Trug")), ("Christmas", ("Green Banker Lamp",))),
)
_BOUGHT = (
    ({"Enamel Kettle": 1, "Oak Dibber": 2}, {"Leather Passport Cover": 1}, {"Folding Reading Lamp": 2}),
    ({"Brass Ship Lamp": 2}, {"Canvas Duffel Bag": 1, "Wool Travel Blanket": 1}, {"Oak Dibber": 5}),
    ({"Willow Trug": 1}, {"Cast Iron Skillet": 1, "Pocket Compass": 2}, {"Copper Storm Lantern": 1}),
)
# Title, score and body, best first; a product has the same place of both.
_PRAISE = (
    ("A joy to use", 5, "Better than the one it replaced."),
    ("Good, with a scratch", 4, "It came with a scratch, but works well."),
    ("Does its work", 3, "Neither better nor worse than I thought."),
    ("Not for me", 2, "Smaller than I had hoped."),
)
_SECOND = (
    ("Bought it twice", 5, "One for us and one for my sister."),
    ("Fine for the price", 4, "I would buy it again."),
    ("Slow to arrive", 3, "A week late, but as described."),
    ("Went back", 1, "It broke on the third day."),
)
_GUEST_NAMES = ("Arlo", "Bettina", "Cyril", "Dora", "Emrys", "Flora", "Gus", "Hilda")


def _seeded_reviews() -> list[Review]:
    """Two reviews of each product, of customers and guests; in each category another place is the best."""
    reviews = []
    for at, product in enumerate(PRODUCTS):
        category, place = divmod(at, 4)
        name, rank = choose(_GUEST_NAMES, at * 3, category), (place + category + 1) % 4
        title, score, body = _PRAISE[rank]
        reviews.append(Review(product.title, title, score, body, f"{name.lower()}@example.com", name))
        title, score, body = _SECOND[rank]
        reviews.append(Review(product.title, title, score, body, choose(_CUSTOMERS, at).email))
    return reviews


def _seeded() -> Holdings:
    addresses, baskets, wishes, orders, alerts = [], [], [], [], []
    for number, customer in enumerate(_CUSTOMERS):
        mail, name = customer.email, (customer.first, customer.last)
        for at, place in enumerate(_PLACES[number]):
            addresses.append(Address(mail, *name, *place, default=int(at == 0)))
        baskets.append(Basket(mail, lines_of(_BASKETS[number])))
        wishes += [WishList(mail, title, lines_of(dict.fromkeys(of, 1))) for title, of in _WISHES[number]]
        for at, bought in enumerate(_BOUGHT[number]):
            delivery, place = choose(list(DELIVERY), number, at), _PLACES[number][at % 2]
            total = total_of(bought, delivery)
            where = (*name, *place)
            order = Order(
                mail, lines_of(bought), total, delivery, *where, number=f"{2417 + 311 * at + number}"
            )
            orders.append(order)
        alerts += [Alert(product.title, mail) for product in (NONE[0], NONE[1])]
    parts = (_CUSTOMERS, addresses, baskets, wishes, _seeded_reviews(), alerts, orders)
    return Holdings(*map(_sorted, parts))


ENOUGH = tuple(product for product in PRODUCTS if product.stock >= 6)
FEW = tuple(product for product in PRODUCTS if 0 < product.stock < 6)
NONE = tuple(product for product in PRODUCTS if not product.stock)
CATEGORIES = tuple(dict.fromkeys(product.category for product in PRODUCTS))
HELD = _seeded()
_NUMBERS = {order.number for order in HELD.orders}

_LINES = """(SELECT group_concat(text, '; ') FROM (SELECT l.quantity || ' ' || p.title AS text
    FROM {} l JOIN catalogue_product p ON p.id = l.product_id WHERE l.{} = {}.id ORDER BY p.title))"""
_ADDRESS = "{0}.first_name, {0}.last_name, {0}.line1, {0}.line4, {0}.postcode"
_MORE = "{0}.title || {0}.line2 || {0}.line3 || {0}.state || {0}.phone_number || {0}.notes"
# The columns are the fields of the class.
_QUERIES: dict[str, tuple[type, str]] = {
    "customers": (Customer, "SELECT email, first_name, last_name, password FROM auth_user"),
    "addresses": (
        Address,
        f"""SELECT u.email, {_ADDRESS.format("a")}, a.is_default_for_shipping,
            {_MORE.format("a")} || iif(a.is_default_for_billing, 'billing', '')
            FROM address_useraddress a JOIN auth_user u ON u.id = a.user_id""",
    ),
    "baskets": (
        Basket,
        f"""SELECT coalesce(u.email, ''), {_LINES.format("basket_line", "basket_id", "b")} AS lines, b.status,
            (SELECT coalesce(group_concat(v.code), '') FROM basket_basket_vouchers bv
            JOIN voucher_voucher v ON v.id = bv.voucher_id WHERE bv.basket_id = b.id)
            FROM basket_basket b LEFT JOIN auth_user u ON u.id = b.owner_id
            WHERE b.status IN ('Open', 'Saved') AND lines IS NOT NULL""",
    ),
    "wish_lists": (
        WishList,
        f"""SELECT u.email, w.name, coalesce({_LINES.format("wishlists_line", "wishlist_id", "w")}, ''),
            w.visibility || (SELECT coalesce(group_concat(e.email), '') FROM wishlists_wishlistsharedemail e
            WHERE e.wishlist_id = w.id) FROM wishlists_wishlist w JOIN auth_user u ON u.id = w.owner_id""",
    ),
    "reviews": (
        Review,
        """SELECT p.title, r.title, r.score, r.body, coalesce(u.email, r.email), r.name, r.delta_votes
           FROM reviews_productreview r JOIN catalogue_product p ON p.id = r.product_id
           LEFT JOIN auth_user u ON u.id = r.user_id""",
    ),
    "alerts": (
        Alert,
        """SELECT p.title, coalesce(u.email, a.email), a.status FROM customer_productalert a
           JOIN catalogue_product p ON p.id = a.product_id LEFT JOIN auth_user u ON u.id = a.user_id""",
    ),
    "orders": (
        Order,
        f"""SELECT coalesce(u.email, o.guest_email), {_LINES.format("order_line", "order_id", "o")},
            printf('%.2f', o.total_incl_tax), o.shipping_method, {_ADDRESS.format("s")},
            (SELECT coalesce(group_concat(d.voucher_code), '') FROM order_orderdiscount d
            WHERE d.order_id = o.id), o.number, {_MORE.format("s")} FROM order_order o
            LEFT JOIN auth_user u ON u.id = o.user_id
            JOIN order_shippingaddress s ON s.id = o.shipping_address_id""",
    ),
}


class OscarShop(PythonSite):
    """http://oscar.test/: the products of `PRODUCTS`, and accounts and orders of `HELD`; guests may order.

    A reset sets all of it back.
    """

    name = "oscar"
    host = "oscar.test"
    secrets = SECRETS
    requirements, script, ready = REQUIREMENTS, _SITE, "/catalogue/"
    database = "shop.sqlite3"
    version = digest(REQUIREMENTS, PRODUCTS, HELD, DELIVERY, VOUCHERS, _SITE.read_text(encoding="utf-8"))

    def holdings(self) -> Holdings:
        """Reads what the shop holds."""
        with reading(self.data / self.database) as database:
            found = {
                kind: [make(*row) for row in database.execute(query).fetchall()]
                for kind, (make, query) in _QUERIES.items()
            }
        found["customers"] = [
            dataclasses.replace(one, password=_password_of(one.password)) for one in found["customers"]
        ]
        found["orders"] = [
            one if one.number in _NUMBERS else dataclasses.replace(one, number="") for one in found["orders"]
        ]
        return Holdings(**{kind: _sorted(entries) for kind, entries in found.items()})

    def newest_order(self) -> str:
        """The number of the newest order."""
        with reading(self.data / self.database) as database:
            return database.execute("SELECT number FROM order_order ORDER BY id DESC").fetchone()[0]

    def _seed(self) -> None:
        catalogue = [dataclasses.asdict(product) | {"upc": product.upc} for product in PRODUCTS]
        vouchers = [dataclasses.asdict(voucher) for voucher in VOUCHERS]
        shop = {
            "catalogue": catalogue,
            "delivery": DELIVERY,
            "vouchers": vouchers,
            **dataclasses.asdict(HELD),
        }
        (self.folder / "shop.json").write_text(json.dumps(shop), encoding="utf-8")
        self.run_script("create", str(self.folder), str(self.kept))

    @property
    def _served(self) -> Sequence[str]:
        # Pictures and the index are next to the database.
        return (str(self.folder), str(self.data))


def _password_of(stored: str) -> str:
    """The password that a hash was made of, if it is one of ours."""
    _, salt, value = stored.split("$")
    for password in (*SECRETS.values(), *_NEW_PASSWORDS):
        if hashlib.md5((salt + password).encode(), usedforsecurity=False).hexdigest() == value:
            return password
    return ""


# --- Tasks ---


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


def shop_tasks(shop: OscarShop, seed: int) -> list[AppTask]:
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
    cheaper, difference = min((one, other), key=_price), f"{abs(_price(one) - _price(other)):.2f}"
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
    cheapest = min(products, key=_price)
    words = (
        f'What is the cheapest product in the category "{category}"? Open its page and answer with its name '
        "and the shop's number for it (UPC), as in: Umbrella, AB12."
    )
    return _asks(words, f"{cheapest.title}, {cheapest.upc}")


def _dearest_in_stock(seed: int) -> Goal:
    category, products = _in_category(seed + 1)
    dearest = max((product for product in products if product.stock), key=_price)
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
    number = sum(_price(product) < limit for product in PRODUCTS)
    return _asks(f"How many products cost less than £{limit}? Answer with the number alone.", str(number))


def _found_dearest(seed: int) -> Goal:
    word = choose(("brass", "glass", "steel", "hand", "holds"), seed)
    found = [
        product
        for product in PRODUCTS
        if word in re.findall(r"\w+", f"{product.title} {product.description}".lower())
    ]
    words = f'Search for "{word}": which of the products found is the dearest? Answer with its name alone.'
    return _asks(words, max(found, key=_price).title)


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
    customer = choose(_CUSTOMERS, seed)
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
    delivery: str = _STANDARD,
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
_WHOLE = tuple(product for product in ENOUGH if not _price(product) % Decimal("0.20"))


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
    title = max(lines, key=lambda one: _price(BY_TITLE[one]))
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
    guest, password = choose(GUESTS, seed), choose(_NEW_PASSWORDS, seed)
    words = f"Open an account for the e-mail address {guest.email} with the password {password}."
    return Goal(words, HELD.but("customers", new=Customer(guest.email, "", "", password)))


def _rename(seed: int) -> Goal:
    customer, words = _customer(seed)
    last = choose(("Greenhalgh", "Sorensen", "Ibarra", "Whitlock"), seed)
    words += f" Change the last name in the profile to {last}."
    return Goal(words, HELD.but("customers", customer, dataclasses.replace(customer, last=last)))


def _password(seed: int) -> Goal:
    customer, words = _customer(seed + 1)
    new = dataclasses.replace(customer, password=choose(_NEW_PASSWORDS, seed))
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
