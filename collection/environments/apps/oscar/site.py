"""A django-oscar shop on SQLite, in a Python environment of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from collection.environments.apps.application import digest
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.sqlite import reading
from collection.environments.apps.tasks import choose


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
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")


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
STANDARD = next(iter(DELIVERY))


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


def total_of(quantities: Mapping[str, int], delivery: str = STANDARD, code: str = "") -> str:
    """Returns what an order costs."""
    value = sum((price_of(BY_TITLE[title]) * number for title, number in quantities.items()), Decimal())
    for voucher in VOUCHERS:
        if voucher.code == code:
            value -= value * voucher.percent / 100 + Decimal(voucher.pounds)
    return f"{value + Decimal(DELIVERY[delivery]):.2f}"


def price_of(product: Product) -> Decimal:
    return Decimal(product.price)


# Their passwords are secrets of these names; the agent writes `<secret>edda</secret>`.
SECRETS = {"edda": "ferry-lamp-41", "rufus": "quay-dibber-27", "mabel": "trug-kettle-63"}
CUSTOMERS = (
    Customer("edda@example.com", "Edda", "Lindqvist", SECRETS["edda"]),
    Customer("rufus@example.com", "Rufus", "Amari", SECRETS["rufus"]),
    Customer("mabel@example.com", "Mabel", "Ortiz", SECRETS["mabel"]),
)
_PLACES = (
    (("9 Pier Head", "Oban", "PA34 5DQ"), ("31 Fern Bank", "Perth", "PH1 5QB")),
    (("12 Dock Road", "Whitby", "YO21 1DN"), ("6 Abbey Lane", "Durham", "DH1 3HP")),
    (("77 Strand", "Penzance", "TR18 4AB"), ("3 Cider Yard", "Taunton", "TA1 4PF")),
)
NEW_PASSWORDS = ("gull-bell-88", "rope-tide-19", "salt-oar-52", "mist-pier-34")
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
        reviews.append(Review(product.title, title, score, body, choose(CUSTOMERS, at).email))
    return reviews


def _seeded() -> Holdings:
    addresses, baskets, wishes, orders, alerts = [], [], [], [], []
    for number, customer in enumerate(CUSTOMERS):
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
    parts = (CUSTOMERS, addresses, baskets, wishes, _seeded_reviews(), alerts, orders)
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
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/catalogue/"
    database = "shop.sqlite3"
    version = digest(REQUIREMENTS, PRODUCTS, HELD, DELIVERY, VOUCHERS, _SCRIPT.read_text(encoding="utf-8"))

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
    for password in (*SECRETS.values(), *NEW_PASSWORDS):
        if hashlib.md5((salt + password).encode(), usedforsecurity=False).hexdigest() == value:
            return password
    return ""
