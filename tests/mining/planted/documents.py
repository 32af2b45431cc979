"""Sites whose documents answer a question, with a search engine, a third-party summary and a mirror."""

from __future__ import annotations

import random

from rmsweb_jax.records.schema import Task
from tests.mining.planted.pages import Block, ElementLine, Page, button, field, link, text
from tests.mining.planted.site import EMPTY, Site, State, go, put, slug
from tests.mining.planted.themes import RECORDS, Records

TABS = ("Overview", "Fees and deadlines")
# Title, text, a control that does nothing, and how a run ends there.
WALLS = (
    (
        "Just a moment...",
        "Verify you are human by completing the action below.",
        "I am not a robot",
        "captcha",
    ),
    (
        "403 Forbidden",
        "Access to this page has been denied. Automated traffic was detected.",
        "Request access",
        "blocked",
    ),
    (
        "Security check",
        "Checking your browser before you continue. Please complete the captcha.",
        "Start the check",
        "captcha",
    ),
)


class Documents(Site):
    """A theme of facts; its blog gives other numbers than its document.

    Args:
      walled: the document and its section are behind a wall that never opens.

    Attributes:
      values, stale: what the document and the blog say, one text a fact.
    """

    def __init__(self, rng: random.Random, filler: Block, height: int, walled: bool = False) -> None:
        self.theme: Records = rng.choice(RECORDS)
        theme = self.theme
        super().__init__(theme.host, theme.name, theme.navigation, filler, height)
        self.walled, self.wall = walled, rng.choice(WALLS)
        numbers = [rng.randint(low, high) for _, _, low, high in theme.facts]
        self.values = tuple(f"{n} {unit}" for n, (_, unit, *_) in zip(numbers, theme.facts, strict=True))
        shifts = [rng.choice((-2, -1, 1, 3)) for _ in numbers]
        self.stale = tuple(
            f"{n + shift} {unit}"
            for n, shift, (_, unit, *_) in zip(numbers, shifts, theme.facts, strict=True)
        )
        self.makers |= {
            "home": self._home, "section": self._section, "document": self._document, "blog": self._blog,
            "mirror": self._mirror, "other": self._other, "inside": self._inside,
        }  # fmt: skip
        self.path = f"/{slug(theme.section)}/{slug(theme.document)}"
        self.mirror_url = f"https://{theme.mirror}{self.path}"
        self.routes |= {
            self.url(self.path): go("document"),
            self.url(f"/{slug(theme.section)}"): go("section"),
            self.mirror_url: go("mirror"),
            f"https://{theme.mirror}/": go("mirror"),
            f"https://{theme.blog}/": go("blog"),
        }
        official = (
            f"{theme.document} - {theme.name}",
            self.url(self.path),
            f"{theme.document}. Official page.",
        )
        self.snippet = f"{theme.document}: {theme.facts[0][0].lower()} {self.stale[0]} (last year)"
        self.found = (
            (f"All about {theme.document}", f"https://{theme.blog}/", self.snippet, go("blog")),
            (*official, go("document")),
            (f"{theme.section} questions and answers", f"https://{theme.blog}/qa", "Ask others.", go("blog")),
        )

    @property
    def facts(self) -> tuple[str, ...]:
        """`label value` of the document, in order."""
        return tuple(f"{fact[0]} {value}" for fact, value in zip(self.theme.facts, self.values, strict=True))

    def hide_official(self) -> None:
        """Leaves only pages of others among what the search engine finds."""
        theme = self.theme
        elsewhere = (
            f"{theme.section} in other places",
            "https://www.world-of-lists.com/",
            "Many places.",
            go("other:list"),
        )
        self.found = (self.found[0], elsewhere, self.found[2])

    def task(self, task_id: str, objective: str, *constraints: str) -> Task:
        return Task(
            task_id=task_id,
            website=f"https://{self.host}/",
            objective=objective,
            constraints=constraints,
            category=self.theme.category,
            site=".".join(self.host.split(".")[-2:]),
        )

    def _home(self, state: State, _: str) -> Page:
        theme = self.theme
        lines = [text(theme.name, "h1"), field("Search this site", "box", state.get("box", ""), "search")]
        lines += [button("Search", go("inside", query="@box")), text(state.get("news", ""), "aside")]
        lines += [link(words, f"/{slug(words)}", self._opens(words)) for words in theme.sections]
        return self.page(
            self.url("/", ref=state.get("ref", "")), "Home", *lines, enter=go("inside", query="@box")
        )

    def _opens(self, words: str):
        return go("section") if words == self.theme.section else go(f"other:{words}")

    def _inside(self, state: State, _: str) -> Page:
        """The site's own search."""
        theme, query = self.theme, state.get("query", "")
        lines = [text(f"Results for {query}", "h1"), field("Search this site", "box", query, "search")]
        lines += [
            link(theme.document, self.path, go("document")),
            text(f"{theme.section}, updated this year", "span"),
        ]
        lines += [link(words, f"/{slug(words)}", go(f"other:{words}")) for words in theme.others]
        return self.page(
            self.url("/search", q=query), f"Search {query}", *lines, enter=go("inside", query="@box")
        )

    def _section(self, state: State, _: str) -> Page:
        theme = self.theme
        url = self.url(f"/{slug(theme.section)}", ref=state.get("ref", ""))
        if self.walled:
            return self._walled(url)
        lines = [text(theme.section, "h1"), text(state.get("news", ""), "aside")]
        names = (*theme.others[:2], theme.document, *theme.others[2:])
        for words in names:
            effect = go("document") if words == theme.document else go(f"other:{words}")
            lines += [
                link(words, f"/{slug(theme.section)}/{slug(words)}", effect),
                text(f"About {words.lower()}"),
            ]
        return self.page(url, theme.section, *lines)

    def _other(self, _: State, words: str) -> Page:
        lines = (text(words, "h1"), text(f"{words}: there is nothing on {self.theme.document} here."))
        return self.page(self.url(f"/{slug(words)}"), words, *lines)

    def _document(self, state: State, _: str) -> Page:
        url = self.url(self.path, ref=state.get("ref", ""))
        if self.walled:
            return self._walled(url)
        return self.page(url, self.theme.document, *self._body(state), text(state.get("news", ""), "aside"))

    def _body(self, state: State) -> list[ElementLine]:
        theme, tab = self.theme, state.get("tab", TABS[0])
        lines = [text(theme.document, "h1"), text(f"Published by {theme.name}, updated this year.")]
        for words in TABS:
            lines += [button(words, put(tab=words), role="tab", aria_selected=str(words == tab).lower())]
        shown = self.facts[:-1] if tab == TABS[0] else self.facts[-1:]
        lines += [text(fact, "td") for fact in shown]
        return [
            *lines,
            link("Download as PDF", f"{self.path}.pdf"),
            link(theme.section, f"/{slug(theme.section)}", go("section")),
        ]

    def _mirror(self, state: State, _: str) -> Page:
        theme = self.theme
        lines = (link(f"{theme.name} open data", "/"), link("All documents", "/all"), *self._body(state))
        return Page(self.mirror_url, f"{theme.document} | {theme.name} open data", lines, self.filler)

    def _walled(self, url: str) -> Page:
        title, words, label, _ = self.wall
        lines = (
            text(title, "h1"),
            text(words),
            button(label, role="checkbox"),
            text("Ray ID: 8f2c41d7aa", "span"),
        )
        return Page(url, title, lines, EMPTY)

    def _blog(self, state: State, _: str) -> Page:
        theme = self.theme
        facts = [f"{fact[0]} {value}" for fact, value in zip(theme.facts, self.stale, strict=True)]
        lines = [link("Home", "/"), link("About me", "/about"), text(f"All about {theme.document}", "h1")]
        lines += [
            text("Written two years ago by a visitor. Numbers may have changed."),
            *(text(f) for f in facts),
        ]
        lines += [field("Your comment", "comment", state.get("comment", "")), button("Post comment")]
        return Page(f"https://{theme.blog}/", f"All about {theme.document}", tuple(lines), self.filler)
