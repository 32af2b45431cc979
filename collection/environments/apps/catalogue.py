"""What the shop sells."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Product:
    """Something on sale; `price` in pounds."""

    title: str
    price: str
    stock: int
    category: str
    description: str

    @property
    def upc(self) -> str:
        """The shop's own number for it."""
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
    """By its title; KeyError when the shop has none of it."""
    return {item.title: item for item in PRODUCTS}[title]
