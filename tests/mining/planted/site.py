"""Sites as state machines: variables, pages made from them, and what actions do to both."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable

from tests.mining.planted.pages import Block, Effect, ElementLine, Page, View, button, field, link, text, view

State = dict[str, str]
ENGINE = "https://duckduckgo.com"


def go(page: str, **values: str) -> Effect:
    """Opens a page and sets variables."""
    return Effect((("page", page), ("scroll", "0"), *values.items()))


def put(**values: str) -> Effect:
    return Effect(tuple(values.items()))


class Site:
    """The pages that a planted pair's runs can reach, the search engine included.

    Attributes:
      host: of the site's own pages.
      start: the state in which every run begins.
      makers: one function a kind of page; `page` of a state is `kind` or `kind:argument`.
      routes: addresses that can be opened directly, and the variables they set.
    """

    def __init__(self, host: str, name: str, navigation: tuple[str, ...], filler: Block, height: int) -> None:
        self.host, self.name, self.navigation = host, name, navigation
        self.filler, self.height = filler, height
        self.start: State = {"page": "home", "scroll": "0"}
        self.makers: dict[str, Callable[[State, str], Page]] = {"side": self._side, "error": self._error}
        self.makers["engine"] = self._engine
        self.routes: dict[str, Effect] = {f"https://{host}/": go("home")}
        self.found: tuple[tuple[str, str, str, Effect], ...] = ()
        self._views: dict[tuple[tuple[str, str], ...], View] = {}

    def look(self, state: State) -> View:
        """The page of a state, made once."""
        key = tuple(sorted(state.items()))
        if key not in self._views:
            kind, _, argument = state["page"].partition(":")
            page = self.makers[kind](state, argument)
            self._views[key] = view(page, int(state["scroll"]), self.height)
        return self._views[key]

    def url(self, path: str, **query: str) -> str:
        """An address of this site; empty values are left out."""
        given = {name: value for name, value in query.items() if value}
        return f"https://{self.host}{path}" + (f"?{urllib.parse.urlencode(given)}" if given else "")

    def page(self, url: str, title: str, *lines: ElementLine, enter: Effect | None = None) -> Page:
        """A page of this site, with its navigation and the block below."""
        top = tuple(link(words, f"/{slug(words)}", go(f"side:{words}")) for words in self.navigation)
        head = (link(self.name, "/", go("home")), *top)
        return Page(url, f"{title} | {self.name}", (*head, *lines), self.filler, enter)

    def _side(self, _: State, words: str) -> Page:
        """A page that has nothing to do with any task."""
        lines = (
            text(words, "h1"),
            text(f"{words} at {self.name}: opening hours, people and how to reach us."),
            link("Opening hours", "/hours"),
            link("Directions", "/directions"),
            button("Send feedback"),
        )
        return self.page(self.url(f"/{slug(words)}"), words, *lines)

    def _error(self, state: State, words: str) -> Page:
        lines = (text("Page not found", "h1"), text(f"There is nothing at {words}."))
        return self.page(f"https://{words}", "Page not found", *lines)

    def _engine(self, state: State, query: str) -> Page:
        """The search engine's results; what it finds does not depend on the words of the query."""
        lines = [
            field("Search the web", "engine_query", query, "search"),
            button("Search web"),
            *(link(words, f"/{words.lower()}") for words in ("All", "Images", "News", "Maps")),
        ]
        for title, address, snippet, effect in self.found:
            lines += [link(title, address, effect), text(address, "span"), text(snippet)]
        lines += [link("More results", "/more"), link("Settings", "/settings"), link("Privacy", "/privacy")]
        url = f"{ENGINE}/?{urllib.parse.urlencode({'q': query})}"
        return Page(url, f"{query} at DuckDuckGo", tuple(lines), EMPTY)


def slug(words: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in words.lower()).split())


EMPTY = Block(())
