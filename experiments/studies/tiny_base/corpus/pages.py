"""Random pages that look like MiniWoB++ and simple web forms, as the nodes that the browser side makes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from collection.browser.page import PageNode
from experiments.studies.tiny_base.corpus.words import UI_WORDS, load_words, random_string, random_word

_MAX_INDEX = 99
_NOISE_WORDS = (2, 9)


@dataclasses.dataclass
class PageWriter:
    """Collects the nodes of one page; texts that could be labels are drawn without repetition."""

    rng: random.Random
    next_index: int = 1
    nodes: list[PageNode] = dataclasses.field(default_factory=list)
    used: set[str] = dataclasses.field(default_factory=set)
    elements: int = 0

    def fresh(self, words: int = 0) -> str:
        """A text of one to three words (or `words`) that the page does not have yet."""
        while True:
            count = words or self.rng.choices((1, 2, 3), (12, 4, 1))[0]
            text = " ".join(random_word(self.rng) for _ in range(count))
            if text not in self.used:
                self.used.add(text)
                return text

    def identifier(self) -> str:
        """An attribute value as page authors write them."""
        kind = self.rng.random()
        if kind < 0.5:
            text = self.fresh(1).lower()
        elif kind < 0.8:
            text = self.rng.choice(("ch", "tt", "tab", "btn", "item", "radio", "el")) + str(
                self.rng.randint(0, 40)
            )
        else:
            text = f"{self.fresh(1).lower()}-{random_word(self.rng).lower()}"
        if text in self.used and kind >= 0.5:
            text += random_string(self.rng)
        self.used.add(text)
        return text

    def text(self, depth: int, text: str) -> None:
        self.nodes.append(PageNode(depth=depth, tag="", text=text))

    def noise(self, depth: int) -> None:
        """A line of text that names nothing."""
        words = load_words()
        count = self.rng.randint(*_NOISE_WORDS)
        self.text(
            depth, " ".join(self.rng.choice(words.lorem) for _ in range(count)) + self.rng.choice(("", "."))
        )

    def element(self, depth: int, tag: str, attributes: dict[str, str], text: str = "") -> None:
        """The next indexed element, with its text on a line below it."""
        self.nodes.append(
            PageNode(depth, tag, "", self.next_index, attributes, is_new=self.rng.random() < 0.03)
        )
        self.next_index += 1
        self.elements += 1
        if text:
            self.text(depth + 1, text)

    def maybe(self, share: float, **attributes: str) -> dict[str, str]:
        """`attributes` (underscores for dashes) in a `share` of the calls."""
        taken = self.rng.random() < share
        return {name.replace("_", "-"): value for name, value in attributes.items()} if taken else {}


def generate_page(rng: random.Random, num_elements: int, noise: float = 0.3) -> list[PageNode]:
    """A page with `num_elements` indexed elements.

    Args:
      noise: probability of a line of plain text between two groups of elements.
    """
    page = PageWriter(rng)
    if rng.random() < 0.4:
        page.next_index = rng.randint(1, _MAX_INDEX - num_elements)
    depth = rng.choices((0, 1, 2, 3), (6, 3, 1, 1))[0]
    if rng.random() < noise:
        page.noise(depth)
    while page.elements < num_elements:
        left = num_elements - page.elements
        widget = rng.choices(_WIDGETS, _WEIGHTS)[0]
        widget(page, depth, min(left, rng.randint(1, 6)))
        if rng.random() < noise:
            page.noise(depth)
    return page.nodes


def plain_page(rng: random.Random, num_elements: int) -> list[PageNode]:
    """Elements of one kind with one word each and nothing else, for the start of the curriculum."""
    words = load_words()
    start = 1 if rng.random() < 0.6 else rng.randint(1, _MAX_INDEX - num_elements)
    tag = rng.choice(("button", "a", "span", "div", "li"))
    labels = rng.sample([*words.lorem, *words.names, *UI_WORDS], num_elements)
    nodes = []
    for index, label in enumerate(labels, start):
        nodes += [
            PageNode(0, tag, index=index),
            PageNode(1, "", rng.choice((label, label.lower(), label.capitalize()))),
        ]
    return nodes


def _buttons(page: PageWriter, depth: int, count: int) -> None:
    for _ in range(min(count, 3)):
        if page.rng.random() < 0.25:
            kind = page.rng.choice(("submit", "button"))
            attributes = {**page.maybe(0.5, id=page.identifier()), "type": kind, "value": page.fresh()}
            page.element(depth, "input", attributes)
        elif page.rng.random() < 0.12:
            page.element(depth, page.rng.choice(("button", "span", "div")), {"aria-label": page.fresh()})
        else:
            attributes = page.maybe(0.5, id=page.identifier()) | page.maybe(0.15, type="button")
            page.element(depth, page.rng.choices(("button", "div"), (5, 1))[0], attributes, page.fresh())


def _links(page: PageWriter, depth: int, count: int) -> None:
    tag, attributes = page.rng.choice(
        (("a", {"href": "#"}), ("a", {}), ("span", {"class": "alink"}), ("span", {}))
    )
    for _ in range(count):
        page.element(depth, tag, attributes | page.maybe(0.2, id=page.identifier()), page.fresh())
        if page.rng.random() < 0.2:
            page.noise(depth)


def _fields(page: PageWriter, depth: int, count: int) -> None:
    for _ in range(min(count, 4)):
        attributes = page.maybe(0.7, type=page.rng.choice(("text", "text", "password")))
        naming = page.rng.random()
        if naming < 0.25:
            page.text(depth, page.fresh())
            attributes |= page.maybe(0.3, id=page.identifier())
        elif naming < 0.6:
            attributes |= {"id": page.identifier()} | page.maybe(0.2, placeholder=page.fresh())
            if page.rng.random() < 0.4:
                page.text(depth, page.fresh())
        elif naming < 0.75:
            attributes |= {"name": page.identifier()}
        else:
            attributes |= {page.rng.choice(("placeholder", "aria-label")): page.fresh()}
        attributes |= page.maybe(0.15, value=page.fresh(1))
        page.element(depth, page.rng.choices(("input", "textarea"), (7, 1))[0], attributes)


def _choices(page: PageWriter, depth: int, count: int) -> None:
    kind = page.rng.choice(("checkbox", "radio"))
    name = page.maybe(0.3, name=page.identifier())
    with_id = page.rng.random() < 0.6
    inner = depth + page.rng.choice((0, 0, 1))
    for _ in range(count):
        attributes = ({"id": page.identifier()} if with_id else {}) | {"type": kind} | name
        page.element(depth, "input", attributes | page.maybe(0.15, checked="true"))
        page.text(inner, page.fresh())


def _select(page: PageWriter, depth: int, count: int) -> None:
    del count
    attributes = {}
    if page.rng.random() < 0.3:
        page.text(depth, page.fresh())
    else:
        attributes = {page.rng.choice(("id", "id", "name", "aria-label")): page.identifier()}
    options = [page.fresh() for _ in range(page.rng.randint(2, 8))]
    attributes |= page.maybe(0.7, value=page.rng.choice(options)) | {"options": "|".join(options)}
    page.element(depth, "select", attributes)


def _tabs(page: PageWriter, depth: int, count: int) -> None:
    role = page.maybe(0.6, role="tab")
    tag = page.rng.choice(("a", "h3", "li"))
    number = page.rng.randint(1, 9)
    for step in range(count):
        target = page.maybe(1.0 if tag == "a" else 0.3, href=f"#tabs-{number + step}")
        page.element(depth, tag, target | role | page.maybe(0.2, aria_expanded="false"), page.fresh())
    if page.rng.random() < 0.5:
        page.noise(depth)


def _tree(page: PageWriter, depth: int, count: int) -> None:
    level = 0
    tag = page.rng.choice(("li", "span", "div"))
    for _ in range(count):
        page.element(depth + level, tag, page.maybe(0.2, role="treeitem"), page.fresh())
        level = max(0, min(3, level + page.rng.choice((-1, 0, 1))))


def _results(page: PageWriter, depth: int, count: int) -> None:
    for _ in range(min(count, 4)):
        page.element(depth, "a", page.maybe(0.5, href="#"), page.fresh())
        if page.rng.random() < 0.6:
            page.text(depth, f"www.{page.fresh(1).lower()}.{page.rng.choice(('com', 'org', 'net'))}")
        page.noise(depth)


_Widget = Callable[[PageWriter, int, int], None]
_WIDGETS: tuple[_Widget, ...] = (_buttons, _links, _fields, _choices, _select, _tabs, _tree, _results)
_WEIGHTS = (5, 4, 5, 4, 1, 2, 2, 1)
