"""The shop as a Django project in one file; run by the Python of the shop's own environment.

    python serve.py create FOLDER DATA        makes pictures, search index and database
    python serve.py serve FOLDER DATA PORT    the shop at http://127.0.0.1:PORT

It imports nothing of ours and, before `main`, nothing of Django's: our own environment has neither.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import datetime
import decimal
import functools
import io
import json
import pathlib
import sys
from typing import Any

OSCAR_APPS = (
    "oscar.config.Shop",
    *(
        f"oscar.apps.{name}"
        for name in (
            "analytics.apps.AnalyticsConfig",
            "checkout.apps.CheckoutConfig",
            "address.apps.AddressConfig",
            "shipping.apps.ShippingConfig",
            "catalogue.apps.CatalogueConfig",
            "catalogue.reviews.apps.CatalogueReviewsConfig",
            "communication.apps.CommunicationConfig",
            "partner.apps.PartnerConfig",
            "basket.apps.BasketConfig",
            "payment.apps.PaymentConfig",
            "offer.apps.OfferConfig",
            "order.apps.OrderConfig",
            "customer.apps.CustomerConfig",
            "search.apps.SearchConfig",
            "voucher.apps.VoucherConfig",
            "wishlists.apps.WishlistsConfig",
            "dashboard.apps.DashboardConfig",
            "dashboard.reports.apps.ReportsDashboardConfig",
            "dashboard.users.apps.UsersDashboardConfig",
            "dashboard.orders.apps.OrdersDashboardConfig",
            "dashboard.catalogue.apps.CatalogueDashboardConfig",
            "dashboard.offers.apps.OffersDashboardConfig",
            "dashboard.partners.apps.PartnersDashboardConfig",
            "dashboard.pages.apps.PagesDashboardConfig",
            "dashboard.ranges.apps.RangesDashboardConfig",
            "dashboard.reviews.apps.ReviewsDashboardConfig",
            "dashboard.vouchers.apps.VouchersDashboardConfig",
            "dashboard.communications.apps.CommunicationsDashboardConfig",
            "dashboard.shipping.apps.ShippingDashboardConfig",
        )
    ),
)
# Oscar's own page asks a content network for jQuery first; nothing here may leave the machine.
BASE = (
    '{% extends "oscar/base.html" %}{% load static %}{% block cdn_scripts %}'
    '<script src="{% static "oscar/js/jquery/jquery.min.js" %}"></script>{% endblock %}'
)
PICTURE_PX = 300


def configure(folder: pathlib.Path, data: pathlib.Path) -> None:
    """Configures Django, with everything that visitors can change in `data`."""
    import django
    import oscar.defaults
    from django.conf import settings

    defaults = {name: getattr(oscar.defaults, name) for name in dir(oscar.defaults) if name.isupper()}
    contrib = ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles", "sites", "flatpages")
    others = ("widget_tweaks", "haystack", "treebeard", "sorl.thumbnail", "django_tables2")
    settings.configure(
        **defaults
        | {
            "SECRET_KEY": "a shop on loopback keeps no secrets",
            "DEBUG": False,
            "ALLOWED_HOSTS": ["oscar.test", "127.0.0.1"],
            "INSTALLED_APPS": [*(f"django.contrib.{app}" for app in contrib), *OSCAR_APPS, *others],
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
                    "PATH": str(folder / "index"),
                }
            },
            "ROOT_URLCONF": _Urls(),
            "STATIC_URL": "/static/",
            "MEDIA_URL": "/media/",
            "MEDIA_ROOT": str(folder / "media"),
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
    _offer_delivery(json.loads((folder / "shop.json").read_text(encoding="utf-8"))["delivery"])


def _offer_delivery(charges: dict[str, str]) -> None:
    from oscar.apps.shipping.methods import FixedPrice
    from oscar.core.loading import get_class

    methods = []
    for name, pounds in charges.items():
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


def create(folder: pathlib.Path) -> None:
    """Fills a new database from `shop.json`, and indexes it."""
    from django.core.management import call_command
    from oscar.core.loading import get_model

    shop = json.loads((folder / "shop.json").read_text(encoding="utf-8"))
    call_command("migrate", verbosity=0)
    country = get_model("address", "Country").objects.create(
        iso_3166_1_a2="GB", printable_name="United Kingdom", name="UNITED KINGDOM", is_shipping_country=True
    )
    partner = get_model("partner", "Partner").objects.create(name="Harbour Goods")
    kind = get_model("catalogue", "ProductClass").objects.create(name="Item", track_stock=True)
    Category = get_model("catalogue", "Category")
    categories: dict[str, Any] = {}
    products = {}
    for product in shop["catalogue"]:
        name = product["category"]
        if name not in categories:
            categories[name] = Category.objects.add_root({"name": name})
        products[product["title"]] = _add_product(product, kind, categories[name], partner)
    _add_vouchers(shop["vouchers"])
    customers = _add_customers(shop, country)
    _add_activity(shop, products, customers)
    for order in sorted(shop["orders"], key=lambda one: one["number"]):
        _add_order(order, products, customers, country)
    # The orders were sent long ago, from earlier stock.
    for product in shop["catalogue"]:
        products[product["title"]].stockrecords.update(num_in_stock=product["stock"], num_allocated=0)
    call_command("rebuild_index", interactive=False, verbosity=0)


def _add_product(product: dict[str, Any], kind: Any, category: Any, partner: Any) -> Any:
    from django.core.files.base import ContentFile
    from oscar.core.loading import get_model

    created = get_model("catalogue", "Product").objects.create(
        title=product["title"], upc=product["upc"], description=product["description"], product_class=kind
    )
    created.categories.add(category)
    get_model("partner", "StockRecord").objects.create(
        product=created,
        partner=partner,
        partner_sku=product["upc"],
        price=decimal.Decimal(product["price"]),
        num_in_stock=100,
    )
    image = get_model("catalogue", "ProductImage")(product=created, display_order=0)
    image.original.save(f"{product['upc']}.png", ContentFile(_picture(product["upc"], product["title"])))
    return created


def _add_vouchers(vouchers: list[dict[str, Any]]) -> None:
    from oscar.core.loading import get_model

    everything = get_model("offer", "Range").objects.create(name="All products", includes_all_products=True)
    for voucher in vouchers:
        least = decimal.Decimal(voucher["least"])
        condition = get_model("offer", "Condition").objects.create(
            range=everything, type="Value" if least else "Count", value=least or 1
        )
        benefit = get_model("offer", "Benefit").objects.create(
            range=everything,
            type="Percentage" if voucher["percent"] else "Absolute",
            value=voucher["percent"] or decimal.Decimal(voucher["pounds"]),
        )
        offer = get_model("offer", "ConditionalOffer").objects.create(
            name=voucher["code"], offer_type="Voucher", condition=condition, benefit=benefit
        )
        created = get_model("voucher", "Voucher").objects.create(
            name=voucher["code"],
            code=voucher["code"],
            start_datetime=datetime.datetime(2019, 1, 1, tzinfo=datetime.UTC),
            end_datetime=datetime.datetime(voucher["until"], 12, 31, tzinfo=datetime.UTC),
        )
        created.offers.add(offer)


def _add_customers(shop: dict[str, Any], country: Any) -> dict[str, Any]:
    from django.contrib.auth import get_user_model
    from oscar.core.loading import get_model

    customers = {}
    for one in shop["customers"]:
        customers[one["email"]] = get_user_model().objects.create_user(
            username=one["first"].lower(),
            email=one["email"],
            password=one["password"],
            first_name=one["first"],
            last_name=one["last"],
        )
    for one in shop["addresses"]:
        get_model("address", "UserAddress").objects.create(
            user=customers[one["owner"]],
            is_default_for_shipping=one["default"],
            **_address(one, country),
        )
    return customers


def _address(one: dict[str, Any], country: Any) -> dict[str, Any]:
    return {
        "first_name": one["first"],
        "last_name": one["last"],
        "line1": one["street"],
        "line4": one["city"],
        "postcode": one["postcode"],
        "country": country,
    }


def _lines(text: str) -> list[tuple[str, int]]:
    """Title and quantity of "2 Oak Dibber; 1 Willow Trug"."""
    parts = (line.partition(" ") for line in text.split("; ") if line)
    return [(title, int(number)) for number, _, title in parts]


def _add_activity(shop: dict[str, Any], products: dict[str, Any], customers: dict[str, Any]) -> None:
    """Baskets, wish lists, reviews and alerts."""
    from oscar.core.loading import get_model

    for one in shop["baskets"]:
        _basket(one["lines"], products, customers[one["owner"]])
    for one in shop["wish_lists"]:
        wish_list = get_model("wishlists", "WishList").objects.create(
            owner=customers[one["owner"]], name=one["name"], visibility=one["visibility"]
        )
        for title, number in _lines(one["lines"]):
            wish_list.lines.create(product=products[title], title=title, quantity=number)
    for one in shop["reviews"]:
        author = {"name": one["name"], "email": one["email"]} if one["name"] else {}
        get_model("reviews", "ProductReview").objects.create(
            product=products[one["product"]],
            title=one["title"],
            score=one["score"],
            body=one["body"],
            user=None if author else customers[one["email"]],
            **author,
        )
    for one in shop["alerts"]:
        get_model("customer", "ProductAlert").objects.create(
            product=products[one["product"]], user=customers[one["email"]], status=one["status"]
        )


def _basket(lines: str, products: dict[str, Any], owner: Any) -> Any:
    from oscar.core.loading import get_class, get_model

    basket = get_model("basket", "Basket").objects.create(owner=owner)
    basket.strategy = get_class("partner.strategy", "Selector")().strategy(user=owner)
    for title, number in _lines(lines):
        basket.add_product(products[title], number)
    return basket


def _add_order(
    one: dict[str, Any], products: dict[str, Any], customers: dict[str, Any], country: Any
) -> None:
    from oscar.core.loading import get_class, get_model

    customer = customers[one["email"]]
    basket = _basket(one["lines"], products, customer)
    methods = get_class("shipping.repository", "Repository").methods
    method = next(method for method in methods if method.name == one["delivery"])
    charge = method.calculate(basket)
    address = get_model("order", "ShippingAddress").objects.create(**_address(one, country))
    get_class("order.utils", "OrderCreator")().place_order(
        basket,
        get_class("checkout.calculators", "OrderTotalCalculator")().calculate(basket, charge),
        method,
        charge,
        user=customer,
        shipping_address=address,
        order_number=one["number"],
        status="Complete",
        date_placed=datetime.datetime(2026, 3, 1, 9, tzinfo=datetime.UTC),
    )
    basket.submit()


def _picture(upc: str, title: str) -> bytes:
    """Returns an image of the title on a background colour that depends on the product."""
    from PIL import Image, ImageDraw

    shade = sum(upc.encode()) * 37
    image = Image.new("RGB", (PICTURE_PX, PICTURE_PX), (120 + shade % 90, 120 + shade % 71, 120 + shade % 83))
    ImageDraw.Draw(image).text((20, PICTURE_PX // 2), title, fill="black")
    png = io.BytesIO()
    image.save(png, "PNG")
    return png.getvalue()


def main(command: str, folder: str, data: str, port: str = "") -> None:
    configure(pathlib.Path(folder), pathlib.Path(data))
    if command == "create":
        create(pathlib.Path(folder))
        return
    from django.core.management import call_command

    # --insecure: static files without DEBUG, whose error pages would show settings to the agent.
    call_command("runserver", f"127.0.0.1:{port}", "--noreload", "--insecure", "--skip-checks")


if __name__ == "__main__":
    main(*sys.argv[1:])
