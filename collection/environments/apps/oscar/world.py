"""What a seed's shop holds: its catalogue and vouchers, and what customers bought, wished for and wrote."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from collection.environments.apps.oscar.serve import DELIVERY
from collection.environments.apps.templates import Draw
from collection.environments.apps.world import Row, World


def _words(text: str) -> list[str]:
    return re.split(r",\s+", text.strip())


# Passwords by name; the agent writes `<secret>edda</secret>`.
SECRETS = {"edda": "ferry-lamp-41", "rufus": "quay-dibber-27", "mabel": "trug-kettle-63"}
# The number of an order is this and its basket's.
_FIRST_ORDER = 100000
_WOOD_AND_METAL = _words(
    """
    Brass, Copper, Pewter, Oak, Walnut, Beech, Cherry, Slate, Stoneware, Enamel, Steel, Iron, Glass, Bamboo,
    Ceramic, Zinc, Birch, Marble, Porcelain, Larch
    """
)
_CLOTH = _words(
    """
    Canvas, Leather, Wool, Linen, Cotton, Felt, Velvet, Tweed, Suede, Flannel, Hemp, Corduroy, Denim, Jute,
    Silk, Mohair
    """
)
_LINES = _words(
    """
    Heron, Tern, Gannet, Puffin, Curlew, Plover, Osprey, Kittiwake, Petrel, Dunlin, Avocet, Lapwing,
    Sanderling, Turnstone, Fulmar, Skua, Shearwater, Godwit, Wigeon, Solway, Lundy, Fastnet, Dogger, Viking,
    Forties, Cromarty, Tyne, Humber, Thames, Dover, Wight, Portland, Plymouth, Biscay, Shannon, Rockall,
    Malin, Hebrides, Faroe, Islay, Jura, Skye, Mull, Arran, Bute, Iona, Tiree, Barra, Unst, Fetlar, Foula,
    Sark, Herm, Alderney, Orkney, Lerwick, Whitby, Cromer, Margate, Falmouth, Padstow
    """
)
_THINGS = {
    "Lamps": "Ship Lamp, Storm Lantern, Reading Lamp, Desk Lamp, Wall Lamp, Night Light, Hall Lantern",
    "Kitchen": "Kettle, Pepper Mill, Teapot, Bread Bin, Fruit Bowl, Butter Dish, Egg Cup, Cake Stand",
    "Garden": "Trowel, Watering Can, Plant Pot, Bird Bath, Sundial, Bird Feeder, Boot Scraper, Wind Chime",
    "Desk": "Letter Rack, Pen Tray, Paper Knife, Ink Stand, Book End, Ruler, Stamp Box, Pencil Pot",
    "Instruments": "Compass, Sextant, Barometer, Tide Clock, Ship Bell, Hour Glass, Telescope, Rain Gauge",
    "Games": "Spinning Top, Chess Set, Domino Set, Toy Boat, Puzzle Box, Whistle, Money Box",
    "Travel": "Duffel Bag, Passport Cover, Rucksack, Wash Bag, Hat Box, Luggage Tag, Map Case",
    "Bedroom": "Bedspread, Cushion, Curtain, Pillow Case, Dressing Gown, Throw, Quilt, Laundry Bag",
}
_MATERIALS = {kind: _CLOTH if kind in ("Travel", "Bedroom") else _WOOD_AND_METAL for kind in _THINGS}
_FACTS = _words(
    """
    Height in centimetres, Weight in grams, Guarantee in years, Parts in the box, Packed length in
    millimetres, Hours of handwork, Pieces made each year, Width in centimetres
    """
)
_OPINIONS = _words(
    """
    Heavier than it looks, Exactly as shown, My second one, Well packed, A present for {}, {} chose it,
    Bought for {}, Smaller than I thought, After a month, As {} said, For the price, It came by boat
    """
)
_BODIES = _words(
    """
    {} uses it every day., We gave the old one to {}., {} carried it home by bus., {} likes it.,
    It stands in the room of {} now., {} unpacked it with both hands., {} wrote to the shop about it.
    """
)
_OCCASIONS = _words(
    """
    Birthday, Wedding, New flat, Christmas, Garden party, Winter, Moving, Camping, Thanks, Allotment, Boat,
    Holiday, Retirement, Christening, Anniversary, Studio, Kitchen, Hall
    """
)
_AREAS = _words("PA, PH, YO, DH, TR, TA, EH, CF, BS, AB, EX, PL, NR, IP, HU, KW")


def quantities(lines: Mapping[str, int]) -> list[list[Any]]:
    """Titles and numbers as rows have them."""
    return [[title, number] for title, number in sorted(lines.items())]


def hashed(password: str, salt: str) -> str:
    """A password as the shop keeps it."""
    return f"md5${salt}${hashlib.md5((salt + password).encode(), usedforsecurity=False).hexdigest()}"


def total(world: World, lines: Iterable[list[Any]], delivery: str, code: str = "") -> float:
    """What an order costs in pounds."""
    value = sum(world["products"][title]["price"] * number for title, number in lines)
    if code:
        value -= value * world["vouchers"][code]["percent"] / 100 + world["vouchers"][code]["pounds"]
    return round(value + float(DELIVERY[delivery]), 2)


def next_number(world: World) -> str:
    """The number of the order of a guest's basket, which is the next one."""
    return order_number(max(world["baskets"]) + 1)


def order_number(basket: int) -> str:
    return str(_FIRST_ORDER + basket)


def stocked(world: World, least: int = 8, most: int = 99) -> list[str]:
    """Titles of products of which the shop has a number."""
    return [title for title, one in world["products"].items() if least <= one["stock"] <= most]


def of(world: World, table: str, **values: Any) -> dict[Any, Row]:
    """The rows that have values in columns."""
    return {
        key: row
        for key, row in world[table].items()
        if all(row[name] == value for name, value in values.items())
    }


def title(draw: Draw, kind: str = "") -> str:
    kind = kind or draw.choice(list(_THINGS))
    return draw.phrase(_LINES, _MATERIALS[kind], _words(_THINGS[kind]))


def name(draw: Draw) -> tuple[str, str]:
    return draw.fake.first_name(), draw.fake.last_name()


def place(draw: Draw) -> dict[str, str]:
    """Where a parcel can go."""
    number, letters = draw.randint(1, 19), "".join(draw.sample("ABDEFGHJLNPQRSTUWXYZ", 2))
    return {
        "street": f"{draw.randint(1, 120)} {draw.fake.street_name()}",
        "city": draw.fake.city(),
        "postcode": f"{draw.choice(_AREAS)}{number} {draw.randint(1, 9)}{letters}",
    }


def guest(draw: Draw) -> dict[str, str]:
    """A person without an account, at an address."""
    first, last = name(draw)
    return {"email": email(first, last), "first": first, "last": last, **place(draw)}


def email(first: str, last: str) -> str:
    return f"{first}.{last}@example.com".lower()


def opinion(draw: Draw) -> tuple[str, str]:
    """Title and text of a review."""
    title, body = (draw.choice(texts).format(draw.fake.first_name()) for texts in (_OPINIONS, _BODIES))
    return title, body


def list_name(draw: Draw) -> str:
    return f"{draw.choice(_OCCASIONS)} for {draw.fake.first_name()} {draw.fake.last_name()}"


def password(draw: Draw) -> str:
    return "-".join([*(one.lower() for one in draw.sample(_LINES, 2)), str(draw.randint(10, 99))])


def _people(draw: Draw, number: int) -> list[str]:
    """Full names, no two of which share a word."""
    firsts = draw.distinct(draw.fake.first_name, number)
    return [" ".join(one) for one in zip(firsts, draw.distinct(draw.fake.last_name, number), strict=True)]


def _products(draw: Draw) -> dict[str, dict[str, Any]]:
    people = _people(draw, 8)
    kinds, designers = draw.sample(list(_THINGS), 4), people[4:]
    found: dict[str, dict[str, Any]] = {}
    for kind, maker in zip(kinds, people, strict=False):
        for at, one in enumerate(draw.distinct(lambda kind=kind: title(draw, kind), 5)):
            first, second = draw.sample(_FACTS, 2)
            facts = f"{first}: {draw.randint(2, 99)}. {second}: {draw.randint(2, 99)}."
            found[one] = {
                "upc": "",
                "category": f"{kind} by {maker}",
                "price": 0.0,
                # One of each category cannot be had, and there are few of another.
                "stock": (0, draw.randint(2, 4))[at] if at < 2 else draw.randint(8, 60),
                "description": f"{facts} Designed by {designers[(at + draw.randint(0, 1)) % 4]}.",
            }
    upcs = draw.distinct(lambda: f"HG{draw.randint(100000, 999999)}", len(found))
    # By any voucher, they still cost whole pence.
    prices = draw.sample(range(160, 1200), len(found))
    for row, upc, price in zip(found.values(), upcs, prices, strict=True):
        row["upc"], row["price"] = upc, price / 20
    return dict(draw.sample(list(found.items()), len(found)))


def _vouchers(draw: Draw) -> dict[str, dict[str, Any]]:
    """Two that are good, one whose time is over, and one for large baskets."""
    codes = draw.distinct(lambda: f"{draw.choice(_LINES).upper()}{draw.randint(2, 99)}", 4)
    percent = [draw.choice((20, 40, 60)) for _ in range(4)]
    return {
        codes[0]: {"percent": percent[0], "pounds": 0, "least": 0, "until": 2099},
        codes[1]: {"percent": 0, "pounds": draw.randint(2, 7), "least": 0, "until": 2099},
        codes[2]: {"percent": percent[2], "pounds": 0, "least": 0, "until": draw.randint(2019, 2023)},
        codes[3]: {"percent": percent[3], "pounds": 0, "least": draw.randint(5, 9) * 100, "until": 2099},
    }


def _reviews(draw: Draw, products: Mapping[str, Row], mails: list[str]) -> dict[int, dict[str, Any]]:
    """One of a guest and one of a customer for each product; one product of each category is the best."""
    reviews: dict[int, dict[str, Any]] = {}
    categories = dict.fromkeys(row["category"] for row in products.values())
    best = {
        draw.choice([one for one, row in products.items() if row["category"] == category])
        for category in categories
    }
    for number, one in enumerate(products):
        opinions: dict[str, str] = {}  # By title, since tasks name a review by it.
        while len(opinions) < 2:
            opinions.update([opinion(draw)])
        for at, (text, body) in enumerate(opinions.items()):
            first, last = name(draw)
            reviews[len(reviews) + 1] = {
                "product": one,
                "title": text,
                "score": 5 if one in best else draw.randint(1, 4),
                "body": body,
                "email": mails[number % len(mails)] if at else email(first, last),
                "name": "" if at else f"{first} {last}",
                "votes": 0,
            }
    return reviews


def make_world(draw: Draw) -> World:
    products = _products(draw)
    customers, addresses, baskets, wishes, alerts, orders = {}, {}, {}, {}, {}, {}
    world: dict[str, Any] = {
        "customers": customers,
        "products": products,
        "vouchers": _vouchers(draw),
        "addresses": addresses,
        "baskets": baskets,
        "wish_lists": wishes,
        "alerts": alerts,
        "orders": orders,
    }
    have, none = stocked(world), stocked(world, 0, 0)
    basket = draw.randint(100, 9000)
    numbers = draw.distinct(lambda: str(draw.randint(200000, 999999)), 9)
    lists = draw.distinct(lambda: list_name(draw), 6)
    for at, login in enumerate(SECRETS):
        mail, who = f"{login}@example.com", {"first": login.capitalize(), "last": draw.fake.last_name()}
        salt = hashlib.md5(login.encode(), usedforsecurity=False).hexdigest()[:22]
        customers[mail] = {**who, "password": hashed(SECRETS[login], salt)}
        places = [place(draw) for _ in range(2)]
        for default, where in enumerate(places):
            addresses[len(addresses) + 1] = {"owner": mail, **who, **where, "default": default, "more": ""}
        lines = quantities({one: draw.randint(1, 3) for one in draw.sample(have, 3)})
        baskets[basket + at] = {"owner": mail, "status": "Open", "vouchers": [], "lines": lines}
        wanted = draw.sample(list(products), 5)
        while not set(wanted[:3]) & set(have):  # Of each list of three, something can be had.
            wanted = draw.sample(list(products), 5)
        for titles in (wanted[:3], wanted[3:]):
            wishes[len(wishes) + 1] = {
                "owner": mail,
                "name": lists[len(wishes)],
                "visibility": "Private",
                "shared": [],
                "lines": quantities(dict.fromkeys(titles, 1)),
            }
        for product in draw.sample(none, 2):
            alerts[len(alerts) + 1] = {"product": product, "email": mail, "status": "Active"}
        bought = draw.sample(have, 6)
        for titles in (bought[:3], bought[3:5], bought[5:]):
            lines = quantities({one: draw.randint(1, 3) for one in titles})
            delivery = draw.choice(list(DELIVERY))
            orders[numbers[len(orders)]] = {
                "email": mail,
                "lines": lines,
                "total": total(world, lines, delivery),
                "delivery": delivery,
                **who,
                # The third went to where no address of the book is.
                **([*places, place(draw)][len(orders) % 3]),
                "vouchers": [],
                "more": "",
            }
    world["reviews"] = _reviews(draw, products, list(customers))
    return world
