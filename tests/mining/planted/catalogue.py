"""Sites where something is searched, filtered, opened, configured and booked."""

from __future__ import annotations

import dataclasses
import random

from rmsweb_jax.records.schema import Task
from tests.mining.planted.pages import (
    Block,
    Effect,
    ElementLine,
    Page,
    button,
    dropdown,
    field,
    link,
    picker,
    text,
)
from tests.mining.planted.site import Site, State, go, put, slug
from tests.mining.planted.themes import THEMES, Theme

LANGUAGES = ("English", "German", "French")
PAY_LATER, PAY_CARD = "Pay on site", "Pay by card"


@dataclasses.dataclass(frozen=True)
class Item:
    name: str
    price: int
    attribute: int
    rating: int
    kind: str
    code: str


@dataclasses.dataclass(frozen=True)
class Wants:
    """The data that the site asks of a buyer; `user` and `password` are the right ones of a sign-in."""

    sign_in: bool = False
    payment: bool = False
    dated: bool = False
    user: str = ""
    password: str = ""


class Catalogue(Site):
    """A theme with eight items; `target` keeps to the limits, `decoy` breaks exactly one of them.

    Attributes:
      order: of the items in an unsorted list.
      language: what the messages about a booking should be written in.
      most, least: the highest price and the lowest attribute value that the target's limits allow.
    """

    def __init__(self, rng: random.Random, filler: Block, height: int, wants: Wants | None = None) -> None:
        self.theme: Theme = rng.choice(THEMES)
        theme = self.theme
        super().__init__(theme.host, theme.name, theme.navigation, filler, height)
        self.wants = wants or Wants()
        self.items, self.most, self.least = _items(rng, theme)
        self.target, self.decoy = 3, rng.choice((0, 1))
        self.order = rng.sample(range(len(self.items)), len(self.items))
        self.language = rng.choice(LANGUAGES[1:])
        self.number = f"{rng.randrange(10**6):06d}"
        self.day = f"2026-0{rng.randint(4, 9)}-{rng.randint(10, 28)}"
        self.makers |= {
            "home": self._home, "results": self._results, "item": self._item, "cart": self._cart,
            "login": self._login, "session": self._session, "pay": self._pay, "confirm": self._confirm,
        }  # fmt: skip
        for number, item in enumerate(self.items):
            self.routes[self.url(f"/p/{item.code}")] = go(f"item:{number}")
        self.routes[self.url("/search")] = go("results")
        self.found = (
            (f"{theme.name}: {theme.noun}", self.url("/"), f"All {theme.noun} at {theme.name}.", go("home")),
            (
                f"Best {theme.noun} reviewed",
                "https://www.toplist-weekly.com/",
                f"Ten {theme.noun} compared.",
                Effect(),
            ),
        )

    @property
    def chosen(self) -> Item:
        return self.items[self.target]

    def price(self, number: int) -> str:
        return f"{self.items[number].price} {self.theme.price[0]}"

    def task(self, task_id: str, objective: str, *constraints: str) -> Task:
        return Task(
            task_id=task_id,
            website=f"https://{self.host}/",
            objective=objective,
            constraints=constraints,
            category=self.theme.category,
            site=".".join(self.host.split(".")[-2:]),
        )

    def _search_box(self, state: State) -> tuple[ElementLine, ...]:
        return field(
            "Search box", "box", state.get("box", ""), "search", f"Search {self.theme.noun}"
        ), button("Search", go("results", query="@box"))

    def _home(self, state: State, _: str) -> Page:
        theme = self.theme
        lines = [text(f"Welcome to {theme.name}", "h1"), *self._search_box(state)]
        lines += [link(f"All {theme.noun}", "/search", go("results", query=""))]
        lines += [text(state.get("news", ""), "aside"), text("Popular now", "h2")]
        lines += [self._card(number) for number in (5, 6, 7)]
        enter = go("results", query="@box")
        return self.page(self.url("/", ref=state.get("ref", "")), theme.noun.title(), *lines, enter=enter)

    def _card(self, number: int) -> ElementLine:
        item = self.items[number]
        return link(item.name, f"/p/{item.code}", go(f"item:{number}"))

    def _results(self, state: State, _: str) -> Page:
        theme, kind, sort = self.theme, state.get("filter", ""), state.get("sort", "")
        kind = "" if kind == theme.finder[1][0] else kind
        numbers = [number for number in self.order if not kind or self.items[number].kind == kind]
        if sort.endswith(("high", "low")):
            numbers.sort(key=lambda number: self.items[number].price, reverse=sort.endswith("to low"))
        lines = [text(f"{theme.noun.title()} found", "h1"), *self._search_box(state), button("Filters")]
        lines += [dropdown(theme.finder[0], "filter", theme.finder[1], kind)]
        lines += [dropdown(theme.sorter[0], "sort", theme.sorter[1], sort)]
        active = f"Filter active: {theme.finder[0]} {kind}" if kind else "No filter active"
        lines += [
            text(f"{active} - {len(numbers)} {theme.noun}", "span"),
            text(f"Order: {sort or 'Relevance'}"),
        ]
        name, unit = theme.attribute[:2]
        for number in numbers:
            item = self.items[number]
            lines += [self._card(number), text(self.price(number), "span")]
            lines += [
                text(f"{name} {item.attribute} {unit} - {item.kind} - rated {item.rating / 10}", "span")
            ]
        lines += [text(state.get("news", ""), "aside")]
        url = self.url("/search", q=state.get("query", ""), kind=kind, sort=sort, ref=state.get("ref", ""))
        return self.page(url, f"Search {state.get('query', '')}", *lines, enter=go("results", query="@box"))

    def _item(self, state: State, argument: str) -> Page:
        theme, item, tab = self.theme, self.items[int(argument)], state.get("tab", "Overview")
        name, unit = theme.attribute[:2]
        lines = [link("Back to results", "/search", go("results")), text(item.name, "h1")]
        lines += [text(f"Price {self.price(int(argument))}"), text(f"Rated {item.rating / 10} by visitors")]
        for words in ("Overview", "Specifications", "Reviews"):
            lines += [button(words, put(tab=words), role="tab", aria_selected=str(words == tab).lower())]
        if tab == "Specifications":
            lines += [text(f"{name}: {item.attribute} {unit}", "td"), text(f"Reference: {item.code}", "td")]
        elif tab == "Reviews":
            lines += [text("Visitors liked it. 14 reviews.", "td")]
        else:
            lines += [text(f"{item.name}, {item.kind.lower()}, from the range of {theme.name}.", "td")]
        lines += [picker(theme.option[0], "option", theme.option[1], state.get("option", ""))]
        lines += [dropdown("Messages in", "language", LANGUAGES, state.get("language", ""))]
        if self.wants.dated:
            shown = state.get("checked", "")
            lines += [
                field(theme.day, "date", state.get("date", ""), "date"),
                button("Check date", put(checked="@date")),
            ]
            lines += [
                text(f"Available on {shown}: yes" if shown else f"No {theme.day.lower()} checked", "output")
            ]
        cart = go("cart", cart=argument, cart_option="@option", cart_date="@checked")
        ask = self.wants.sign_in and not state.get("signed")
        lines += [button(theme.act, go("login", wanted=argument) if ask else cart), button("Save for later")]
        lines += [button("Print view", Effect(error="The page did not answer in time"))]
        lines += [text("You may also like", "h2"), self._card((int(argument) + 4) % 8)]
        return self.page(self.url(f"/p/{item.code}", ref=state.get("ref", "")), item.name, *lines)

    def _cart(self, state: State, _: str) -> Page:
        theme = self.theme
        lines = [text(theme.cart, "h1")]
        number = state.get("cart") or state.get("wanted", "")
        if number:
            item = self.items[int(number)]
            lines += [text(item.name, "td"), text(self.price(int(number)), "td")]
            lines += [text(f"{theme.option[0]}: {state.get('option') or theme.option[1][0]}", "td")]
            lines += [text(f"Messages in {state.get('language') or LANGUAGES[0]}", "td")]
            if self.wants.dated:
                lines += [text(f"{theme.day}: {state.get('cart_date') or 'next free day'}", "td")]
            lines += [link("Remove", "/remove"), button("Continue browsing", go("results"))]
            lines += [button(theme.finish, go("pay") if self.wants.payment else go("confirm"))]
        else:
            lines += [text("Nothing here yet")]
        return self.page(self.url(f"/{slug(theme.cart)}"), theme.cart, *lines)

    def _login(self, state: State, problem: str) -> Page:
        lines = [text("Sign in", "h1"), text(problem or f"Please sign in to continue at {self.name}.")]
        lines += [field("Email", "user", state.get("user", ""), "email")]
        lines += [field("Password", "password", state.get("password", ""), "password")]
        lines += [button("Sign in", go("session", signed="1")), link("Forgot password", "/forgot")]
        lines += [button("Cancel", go("results"))]
        return self.page(self.url("/sign-in"), "Sign in", *lines, enter=go("session", signed="1"))

    def _session(self, state: State, _: str) -> Page:
        right = (self.wants.user, self.wants.password)
        if (state.get("user"), state.get("password")) == right:
            return self._cart(state, "")
        return self._login(state, "Email or password is wrong.")

    def _pay(self, state: State, _: str) -> Page:
        lines = [
            text("Payment", "h1"),
            text(f"To pay: {self.price(int(state.get('cart') or state['wanted']))}"),
        ]
        for words in (PAY_CARD, PAY_LATER):
            checked = str(state.get("pay", PAY_CARD) == words).lower()
            lines += [button(words, put(pay=words), role="radio", aria_checked=checked)]
        if state.get("pay", PAY_CARD) == PAY_CARD:
            for label, name in (("Card number", "card"), ("Expiry", "expiry"), ("Security code", "cvc")):
                lines += [field(label, name, state.get(name, ""))]
        lines += [button("Pay and finish", go("confirm"))]
        return self.page(self.url("/checkout/payment"), "Payment", *lines)

    def _confirm(self, state: State, _: str) -> Page:
        theme = self.theme
        number = int(state.get("cart") or state["wanted"])
        lines = [
            text(theme.confirmed, "h1"),
            text(f"Reference number {self.number}"),
            text(self.items[number].name),
        ]
        return self.page(self.url("/checkout/confirmation"), theme.confirmed, *lines)


def _items(rng: random.Random, theme: Theme) -> tuple[tuple[Item, ...], int, int]:
    """The items with the limits that only the target keeps to."""
    low, high = theme.price[1:]
    least, best = theme.attribute[2:]
    most, floor = rng.randint((low + high) // 2, high - 5), rng.randint((least + best) // 2, best - 3)
    kinds, middle = theme.finder[1][1:], (low + most) // 2
    items = []
    for number, name in enumerate(rng.sample(theme.names, len(theme.names))):
        cheap, strong = number % 2 == 1, number % 2 == 0
        price = rng.randint(low, middle - 1) if cheap else rng.randint(most + 1, high)
        attribute = rng.randint(floor + 1, best) if strong else rng.randint(least, floor - 1)
        if number == 3:  # The target: never the cheapest of all.
            price, attribute = rng.randint(middle, most - 2), rng.randint(floor, best)
        code = f"{slug(theme.noun)[:2]}-{1000 + rng.randrange(9000)}{number}"
        items.append(Item(name, price, attribute, rng.randint(31, 49), kinds[number % 3 != 0], code))
    return tuple(items), most, floor
