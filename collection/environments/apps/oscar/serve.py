"""The shop as a Django project in one file; run by its own environment: `make|fill|serve DATA [PORT]`.

It imports nothing of ours and, before `main`, nothing of Django's: our own environment has neither.
"""

# The package is not the folder of the same name.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import datetime
import decimal
import functools
import json
import os
import pathlib
import sys
from typing import Any

# Oscar's own page asks a content network for jQuery first; nothing here may leave the machine.
BASE = (
    '{% extends "oscar/base.html" %}{% load static %}{% block cdn_scripts %}'
    '<script src="{% static "oscar/js/jquery/jquery.min.js" %}"></script>{% endblock %}'
)
PICTURE_PX = 300
# Pictures and their thumbnails, of things that all worlds have.
MEDIA = pathlib.Path(sys.prefix) / "media"
# Name -> pounds.
DELIVERY = {"Standard delivery": "2.95", "Next day delivery": "6.50", "Collection at the quay": "0.00"}


def configure(data: pathlib.Path) -> None:
    """Configures Django, with everything that worlds and visitors change in `data`."""
    import django
    import oscar
    import oscar.defaults
    from django.conf import settings

    defaults = {name: getattr(oscar.defaults, name) for name in dir(oscar.defaults) if name.isupper()}
    settings.configure(
        **defaults
        | {
            "SECRET_KEY": "a shop on loopback keeps no secrets",
            "DEBUG": False,
            "ALLOWED_HOSTS": ["oscar.test", "127.0.0.1"],
            "INSTALLED_APPS": [*oscar.INSTALLED_APPS, "sorl.thumbnail"],
            "SITE_ID": 1,
            "DATABASES": {
                "default": {
                    "ENGINE": "django.db.backends.sqlite3",
                    "NAME": str(data / "shop.sqlite3"),
                    "ATOMIC_REQUESTS": True,
                    # Requests wait for each other's writes instead of failing.
                    "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
                }
            },
            "MIDDLEWARE": [
                "django.contrib.sessions.middleware.SessionMiddleware",
                "django.middleware.csrf.CsrfViewMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
                "django.contrib.messages.middleware.MessageMiddleware",
                "oscar.apps.basket.middleware.BasketMiddleware",
            ],
            "AUTHENTICATION_BACKENDS": ["oscar.apps.customer.auth_backends.EmailBackend"],
            "TEMPLATES": [_templates()],
            "HAYSTACK_CONNECTIONS": {
                "default": {
                    "ENGINE": "haystack.backends.whoosh_backend.WhooshEngine",
                    "PATH": str(data / "index"),
                }
            },
            # What it keeps by the number of a category would be of another world.
            "CACHES": {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}},
            "ROOT_URLCONF": _Urls(),
            "STATIC_URL": "/static/",
            "MEDIA_URL": "/media/",
            "MEDIA_ROOT": str(MEDIA),
            "EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend",
            "DEFAULT_AUTO_FIELD": "django.db.models.BigAutoField",
            "USE_TZ": True,
            "TIME_ZONE": "UTC",
            "LANGUAGE_CODE": "en-gb",
            "LOGGING_CONFIG": None,
            "OSCAR_SHOP_NAME": "Harbour Goods",
            "OSCAR_ALLOW_ANON_CHECKOUT": True,
            # Fast, and the checks of tasks can compute it.
            "PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"],
        }
    )
    django.setup()
    _offer_delivery()
    from haystack.backends.whoosh_backend import WhooshSearchBackend

    # Each search opens the index: a reset puts that of another world in its place.
    WhooshSearchBackend.setup_complete = property(lambda _: False, lambda *_: None)


def _offer_delivery() -> None:
    from oscar.apps.shipping.methods import FixedPrice
    from oscar.core.loading import get_class

    methods = []
    for name, pounds in DELIVERY.items():
        method = FixedPrice(decimal.Decimal(pounds), decimal.Decimal(pounds))
        method.name, method.code = name, name.lower().replace(" ", "-")
        methods.append(method)
    get_class("shipping.repository", "Repository").methods = tuple(methods)


def _templates() -> dict[str, Any]:
    processors = (
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
        "oscar.apps.search.context_processors.search_form",
        "oscar.apps.checkout.context_processors.checkout",
        "oscar.core.context_processors.metadata",
    )
    loaders = [
        ("django.template.loaders.locmem.Loader", {"oscar/base.html": BASE}),
        "django.template.loaders.app_directories.Loader",
    ]
    return {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {"context_processors": list(processors), "loaders": loaders},
    }


class _Urls:
    """The URL configuration; created on first access, because Oscar's needs its models."""

    @functools.cached_property
    def urlpatterns(self) -> list[Any]:
        from django.apps import apps
        from django.conf import settings
        from django.urls import include, path, re_path
        from django.views.static import serve

        return [
            path("i18n/", include("django.conf.urls.i18n")),
            re_path(r"^media/(?P<path>.*)$", serve, {"document_root": settings.MEDIA_ROOT}),
            path("", include(apps.get_app_config("oscar").urls[0])),
        ]


def make(_: pathlib.Path) -> None:
    """Makes the tables, and what all worlds have."""
    from django.core.management import call_command
    from oscar.core.loading import get_model

    call_command("migrate", verbosity=0)
    get_model("address", "Country").objects.create(
        iso_3166_1_a2="GB", printable_name="United Kingdom", name="UNITED KINGDOM", is_shipping_country=True
    )
    get_model("partner", "Partner").objects.create(name="Harbour Goods")
    get_model("catalogue", "ProductClass").objects.create(name="Item", track_stock=True)
    get_model("offer", "Range").objects.create(name="All products", includes_all_products=True)


def fill(data: pathlib.Path) -> None:
    """Writes the world in `world.json` into the database, and indexes it."""
    from django.apps import apps
    from django.core.management import call_command
    from django.db import transaction

    apps.get_app_config("haystack").signal_processor.teardown()  # The index is made once, at the end.
    rows = json.loads((data / "world.json").read_text(encoding="utf-8"))
    world = {table: dict(pairs) for table, pairs in rows.items()}
    with transaction.atomic():
        products = {title: _add_product(title, row) for title, row in world["products"].items()}
        _add_vouchers(world["vouchers"])
        customers = _add_customers(world)
        _add_orders(world["orders"], products, customers)
        # The orders were sent long ago, from earlier stock.
        for title, row in world["products"].items():
            products[title].stockrecords.update(num_in_stock=row["stock"], num_allocated=0)
        _add_activity(world, products, customers)
    call_command("rebuild_index", interactive=False, verbosity=0)


def _add_product(title: str, row: dict[str, Any]) -> Any:
    from oscar.core.loading import get_model

    product = get_model("catalogue", "Product").objects.create(
        title=title,
        upc=row["upc"],
        description=row["description"],
        product_class=get_model("catalogue", "ProductClass").objects.get(),
    )
    Category = get_model("catalogue", "Category")
    known = Category.objects.filter(name=row["category"]).first()
    product.categories.add(known or Category.objects.add_root({"name": row["category"]}))
    product.stockrecords.create(
        partner=get_model("partner", "Partner").objects.get(),
        partner_sku=row["upc"],
        price=decimal.Decimal(str(row["price"])),
        num_in_stock=100,
    )
    product.images.create(original=_picture(title.split(" ", 2)[2]), display_order=0)
    return product


def _add_vouchers(vouchers: dict[str, dict[str, Any]]) -> None:
    from oscar.core.loading import get_model

    everything = get_model("offer", "Range").objects.get()
    for code, row in vouchers.items():
        condition = get_model("offer", "Condition").objects.create(
            range=everything, type="Value" if row["least"] else "Count", value=row["least"] or 1
        )
        benefit = get_model("offer", "Benefit").objects.create(
            range=everything,
            type="Percentage" if row["percent"] else "Absolute",
            value=row["percent"] or row["pounds"],
        )
        offer = get_model("offer", "ConditionalOffer").objects.create(
            name=code, offer_type="Voucher", condition=condition, benefit=benefit
        )
        voucher = get_model("voucher", "Voucher").objects.create(
            name=code,
            code=code,
            start_datetime=datetime.datetime(2019, 1, 1, tzinfo=datetime.UTC),
            end_datetime=datetime.datetime(row["until"], 12, 31, tzinfo=datetime.UTC),
        )
        voucher.offers.add(offer)


def _add_customers(world: dict[str, Any]) -> dict[str, Any]:
    from django.contrib.auth import get_user_model
    from oscar.core.loading import get_model

    customers = {
        email: get_user_model().objects.create(
            username=email.partition("@")[0],
            email=email,
            password=row["password"],
            first_name=row["first"],
            last_name=row["last"],
        )
        for email, row in world["customers"].items()
    }
    for number, row in world["addresses"].items():
        get_model("address", "UserAddress").objects.create(
            id=number,
            user=customers[row["owner"]],
            is_default_for_shipping=row["default"],
            **_address(row),
        )
    return customers


def _address(row: dict[str, Any]) -> dict[str, Any]:
    from oscar.core.loading import get_model

    return {
        "first_name": row["first"],
        "last_name": row["last"],
        "line1": row["street"],
        "line4": row["city"],
        "postcode": row["postcode"],
        "country": get_model("address", "Country").objects.get(),
    }


def _add_activity(world: dict[str, Any], products: dict[str, Any], customers: dict[str, Any]) -> None:
    """Baskets, wish lists, reviews and alerts."""
    from oscar.core.loading import get_model

    for number, row in world["baskets"].items():
        _basket(row["lines"], products, customers[row["owner"]], number)
    for number, row in world["wish_lists"].items():
        wish_list = get_model("wishlists", "WishList").objects.create(
            id=number, owner=customers[row["owner"]], name=row["name"], visibility=row["visibility"]
        )
        for title, quantity in row["lines"]:
            wish_list.lines.create(product=products[title], title=title, quantity=quantity)
    for number, row in world["reviews"].items():
        author = {"name": row["name"], "email": row["email"]} if row["name"] else {}
        get_model("reviews", "ProductReview").objects.create(
            id=number,
            product=products[row["product"]],
            title=row["title"],
            score=row["score"],
            body=row["body"],
            user=None if author else customers[row["email"]],
            **author,
        )
    for number, row in world["alerts"].items():
        get_model("customer", "ProductAlert").objects.create(
            id=number, product=products[row["product"]], user=customers[row["email"]], status=row["status"]
        )


def _basket(lines: list[Any], products: dict[str, Any], owner: Any, number: int | None = None) -> Any:
    from oscar.core.loading import get_class, get_model

    basket = get_model("basket", "Basket").objects.create(id=number, owner=owner)
    basket.strategy = get_class("partner.strategy", "Selector")().strategy(user=owner)
    for title, quantity in lines:
        basket.add_product(products[title], quantity)
    return basket


def _add_orders(orders: dict[str, Any], products: dict[str, Any], customers: dict[str, Any]) -> None:
    from oscar.core.loading import get_class, get_model

    methods = {method.name: method for method in get_class("shipping.repository", "Repository").methods}
    for at, (number, row) in enumerate(orders.items()):
        basket, method = _basket(row["lines"], products, customers[row["email"]]), methods[row["delivery"]]
        charge = method.calculate(basket)
        get_class("order.utils", "OrderCreator")().place_order(
            basket,
            get_class("checkout.calculators", "OrderTotalCalculator")().calculate(basket, charge),
            method,
            charge,
            user=customers[row["email"]],
            shipping_address=get_model("order", "ShippingAddress").objects.create(**_address(row)),
            order_number=number,
            status="Complete",
            date_placed=datetime.datetime(2026, 3, 1 + at, 9, tzinfo=datetime.UTC),
        )
        basket.submit()


def _picture(thing: str) -> str:
    """The name of a picture of a thing: its name on a background colour of its own."""
    from PIL import Image, ImageDraw

    name = f"{thing.replace(' ', '-')}.png"
    if not (MEDIA / name).exists():
        MEDIA.mkdir(exist_ok=True)
        shade = sum(thing.encode()) * 37
        image = Image.new(
            "RGB", (PICTURE_PX, PICTURE_PX), (120 + shade % 90, 120 + shade % 71, 120 + shade % 83)
        )
        ImageDraw.Draw(image).text((20, PICTURE_PX // 2), thing, fill="black")
        part = MEDIA / f"{os.getpid()}-{name}"
        image.save(part)
        os.replace(part, MEDIA / name)  # Another process may draw it, too.
    return name


def main(command: str, data: str, port: str = "") -> None:
    configure(pathlib.Path(data))
    if command != "serve":
        {"make": make, "fill": fill}[command](pathlib.Path(data))
        return
    from django.core.management import call_command

    # --insecure: static files without DEBUG, whose error pages would show settings to the agent.
    call_command("runserver", f"127.0.0.1:{port}", "--noreload", "--insecure", "--skip-checks")


if __name__ == "__main__":
    main(*sys.argv[1:])
