"""A django-oscar shop on SQLite, in a Python environment of its own."""

from __future__ import annotations

import pathlib
from typing import ClassVar

from collection.environments.apps.application import digest
from collection.environments.apps.oscar.tasks import CARRIED, TEMPLATES
from collection.environments.apps.oscar.world import SECRETS, make_world
from collection.environments.apps.python_site import PythonSite
from collection.environments.apps.templates import Draw
from collection.environments.apps.world import World

# All that django-oscar 4.2.1 needs, and Whoosh for its search.
REQUIREMENTS = (
    *("django-oscar[sorl-thumbnail]==4.2.1", "Whoosh==2.7.4", "pycountry==26.2.16", "Django==5.2.19"),
    *("django-extra-views==0.16.0", "django-haystack==3.4.0", "django-phonenumber-field==8.5.0"),
    *("django-tables2==2.7.0", "django-treebeard==7.0.3", "django-widget-tweaks==1.5.1", "Babel==2.18.0"),
    *("factory-boy==3.3.3", "Faker==40.54.0", "phonenumbers==9.0.43", "pillow==13.0.0", "purl==1.6"),
    *("sorl-thumbnail==12.11.0", "asgiref==3.13.0", "sqlparse==0.6.1", "packaging==26.3", "six==1.17.0"),
)
_SCRIPT = pathlib.Path(__file__).with_name("serve.py")
_LINES = """
(SELECT json_group_array(json_array(title, number)) FROM (SELECT p.title AS title, l.quantity AS number
  FROM {0} l JOIN catalogue_product p ON p.id = l.product_id WHERE l.{1} = {2}.id ORDER BY p.title))
  AS "lines[]"
"""
_PLACE = """
{0}.first_name AS first, {0}.last_name AS last, {0}.line1 AS street, {0}.line4 AS city,
  {0}.postcode AS postcode, {0}.title || {0}.line2 || {0}.line3 || {0}.state || {0}.phone_number || {0}.notes
"""
_ADDRESSES = f"""
SELECT a.id, u.email AS owner, a.is_default_for_shipping AS "default",
  {_PLACE.format("a")} || iif(a.is_default_for_billing, 'billing', '') AS more
  FROM address_useraddress a JOIN auth_user u ON u.id = a.user_id
"""
# What is on the shelf and promised to no order.
_PRODUCTS = """
SELECT p.title, p.upc, c.name AS category, CAST(s.price AS REAL) AS price,
  s.num_in_stock - coalesce(s.num_allocated, 0) AS stock, p.description
  FROM catalogue_product p JOIN partner_stockrecord s ON s.product_id = p.id
  JOIN catalogue_productcategory pc ON pc.product_id = p.id JOIN catalogue_category c ON c.id = pc.category_id
"""
_VOUCHERS = """
SELECT v.code, iif(b.type = 'Percentage', b.value, 0) AS percent,
  iif(b.type = 'Absolute', b.value, 0) AS pounds, iif(c.type = 'Value', c.value, 0) AS least,
  CAST(strftime('%Y', v.end_datetime) AS INTEGER) AS until
  FROM voucher_voucher v JOIN voucher_voucher_offers vo ON vo.voucher_id = v.id
  JOIN offer_conditionaloffer o ON o.id = vo.conditionaloffer_id
  JOIN offer_benefit b ON b.id = o.benefit_id JOIN offer_condition c ON c.id = o.condition_id
"""
_BASKETS = f"""
SELECT b.id, coalesce(u.email, '') AS owner, b.status,
  (SELECT json_group_array(v.code) FROM basket_basket_vouchers bv JOIN voucher_voucher v
    ON v.id = bv.voucher_id WHERE bv.basket_id = b.id) AS "vouchers[]",
  {_LINES.format("basket_line", "basket_id", "b")}
  FROM basket_basket b LEFT JOIN auth_user u ON u.id = b.owner_id
  WHERE b.status IN ('Open', 'Saved') AND b.id IN (SELECT basket_id FROM basket_line)
"""
_WISH_LISTS = f"""
SELECT w.id, u.email AS owner, w.name, w.visibility,
  (SELECT json_group_array(email) FROM wishlists_wishlistsharedemail WHERE wishlist_id = w.id) AS "shared[]",
  {_LINES.format("wishlists_line", "wishlist_id", "w")}
  FROM wishlists_wishlist w JOIN auth_user u ON u.id = w.owner_id
"""
_REVIEWS = """
SELECT r.id, p.title AS product, r.title, r.score, r.body, coalesce(u.email, r.email) AS email, r.name,
  r.delta_votes AS votes FROM reviews_productreview r JOIN catalogue_product p ON p.id = r.product_id
  LEFT JOIN auth_user u ON u.id = r.user_id
"""
_ALERTS = """
SELECT a.id, p.title AS product, coalesce(u.email, a.email) AS email, a.status FROM customer_productalert a
  JOIN catalogue_product p ON p.id = a.product_id LEFT JOIN auth_user u ON u.id = a.user_id
"""
_ORDERS = f"""
SELECT o.number, coalesce(u.email, o.guest_email) AS email, {_LINES.format("order_line", "order_id", "o")},
  CAST(o.total_incl_tax AS REAL) AS total, o.shipping_method AS delivery, {_PLACE.format("s")} AS more,
  (SELECT json_group_array(voucher_code) FROM order_orderdiscount WHERE order_id = o.id) AS "vouchers[]"
  FROM order_order o LEFT JOIN auth_user u ON u.id = o.user_id
  JOIN order_shippingaddress s ON s.id = o.shipping_address_id
"""


class OscarShop(PythonSite):
    """http://oscar.test/: a shop in which guests may order, with three customers' accounts."""

    name = "oscar"
    host = "oscar.test"
    templates = TEMPLATES
    secrets = SECRETS
    carried = CARRIED
    requirements, script, ready = REQUIREMENTS, _SCRIPT, "/catalogue/"
    database = "shop.sqlite3"
    version = digest(REQUIREMENTS, _SCRIPT.read_text(encoding="utf-8"))
    tables: ClassVar = {
        "customers": "SELECT email, first_name AS first, last_name AS last, password FROM auth_user",
        "products": _PRODUCTS,
        "vouchers": _VOUCHERS,
        "addresses": _ADDRESSES,
        "baskets": _BASKETS,
        "wish_lists": _WISH_LISTS,
        "reviews": _REVIEWS,
        "alerts": _ALERTS,
        "orders": _ORDERS,
    }

    def make_world(self, draw: Draw) -> World:
        return make_world(draw)
