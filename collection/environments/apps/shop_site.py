"""The shop as a Django project in one file; run by the Python of the shop's own environment.

    python shop_site.py create FOLDER DATA        makes pictures, search index and database
    python shop_site.py serve FOLDER DATA PORT    the shop at http://127.0.0.1:PORT

It imports nothing of ours and, before `main`, nothing of Django's: our own environment has neither.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

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
        }
    )
    django.setup()


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
    """Fills a new database from `catalogue.json`, and indexes it."""
    from django.core.management import call_command
    from oscar.core.loading import get_model

    call_command("migrate", verbosity=0)
    get_model("address", "Country").objects.create(
        iso_3166_1_a2="GB", printable_name="United Kingdom", name="UNITED KINGDOM", is_shipping_country=True
    )
    partner = get_model("partner", "Partner").objects.create(name="Harbour Goods")
    kind = get_model("catalogue", "ProductClass").objects.create(name="Item", track_stock=True)
    Category = get_model("catalogue", "Category")
    categories: dict[str, Any] = {}
    for product in json.loads((folder / "catalogue.json").read_text(encoding="utf-8")):
        name = product["category"]
        if name not in categories:
            categories[name] = Category.objects.add_root({"name": name})
        _add_product(product, kind, categories[name], partner)
    call_command("rebuild_index", interactive=False, verbosity=0)


def _add_product(product: dict[str, Any], kind: Any, category: Any, partner: Any) -> None:
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
        num_in_stock=product["stock"],
    )
    image = get_model("catalogue", "ProductImage")(product=created, display_order=0)
    image.original.save(f"{product['upc']}.png", ContentFile(_picture(product["upc"], product["title"])))


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
