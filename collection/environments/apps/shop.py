"""A django-oscar shop on SQLite, in a Python environment of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import sqlite3
import sys

from collection.environments.apps.application import Application, digest, run_quietly
from collection.environments.apps.catalogue import PRODUCTS
from collection.environments.apps.server import ServerCommand, ServerProcess

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


class OscarShop(Application):
    """http://oscar.test/: the products of `catalogue.PRODUCTS`, guests may order.

    A reset leaves no orders, baskets, accounts or sessions, and all stock there again.
    """

    name = "oscar"
    host = "oscar.test"
    version = digest(REQUIREMENTS, PRODUCTS, _SITE.read_text(encoding="utf-8"))

    def orders(self) -> list[Order]:
        """All orders, the oldest first."""
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
        """The latest order of a guest."""
        return next((order for order in reversed(self.orders()) if order.email == email), None)

    def _make(self) -> None:
        environment = self.folder / "environment"
        run_quietly([sys.executable, "-m", "venv", str(environment)])
        pip = [str(self._python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_quietly([*pip, *REQUIREMENTS])
        catalogue = [dataclasses.asdict(product) | {"upc": product.upc} for product in PRODUCTS]
        (self.folder / "catalogue.json").write_text(json.dumps(catalogue), encoding="utf-8")
        run_quietly([*self._site, "create", str(self.folder), str(self.kept)])

    def _serve(self) -> str:
        command = ServerCommand(
            arguments=lambda port: [*self._site, "serve", str(self.folder), str(self.data), str(port)],
            host=self.host,
            path="/catalogue/",
            log=self.live / "log",
            folder=self.folder,
        )
        self._server = ServerProcess(command)
        return self._server.address

    def _stop(self) -> None:
        self._server.close()

    @property
    def _site(self) -> list[str]:
        # Isolated: beside the file lie modules of ours, which must not be found in place of packages.
        return [str(self._python), "-I", str(_SITE)]

    @property
    def _python(self) -> pathlib.Path:
        return self.folder / "environment/bin/python"
