"""Two runs of one task in plain text: short to write by hand, complete records to read.

A text holds cases, and a case its task, its pages and its two runs:

    === socks-in-the-bag
    E-Commerce | https://www.example.com/      activity category | start page
    task Put one pair of grey socks into the bag.
    must Size 42                               a constraint, as many as needed
    why A person's reason for the label, in a sentence.
    @home | / | Example shop                   a page: name | address | title | pages below (0)
    # Welcome                                  `#` headline, `.` text, `li` list item, `td` table cell
    input Search = socks                       label and, behind ` = `, what it holds
    a Sale                                     also: button tab opt div select check radio date pass area
    @typed = home | /?q=1                      a page like another; same lines replace, `del` removes
    del Sale
    +                                          the successful run: page | memory | goal | actions
    home | Start. | Search. | type Search := socks; key Enter
    - max_steps                                the other run and how it ended; `& 1` repeats one step
    & 1

A line that starts with a space goes on where the last one ended. Actions are parted by `; `; what follows
` => ` is what an extraction or a file gave; a last ` !why` is an error, a last
` ~` an action that changed nothing.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from urllib.parse import urljoin

KINDS = {
    "#": ("h1", {}),
    ".": ("p", {}),
    "li": ("li", {}),
    "td": ("td", {}),
    "a": ("a", {}),
    "button": ("button", {}),
    "tab": ("a", {"role": "tab"}),
    "opt": ("div", {"role": "option"}),
    "div": ("div", {}),
    "input": ("input", {"type": "text"}),
    "pass": ("input", {"type": "password"}),
    "date": ("input", {"type": "date"}),
    "check": ("input", {"type": "checkbox"}),
    "radio": ("input", {"type": "radio"}),
    "area": ("textarea", {}),
    "select": ("select", {}),
}
PLAIN = ("#", ".", "li", "td")
_FIELDS = ("input", "pass", "date", "check", "radio", "area", "select")


class NotationError(ValueError):
    """A text that is no case; the message says which line."""


@dataclasses.dataclass(frozen=True)
class Line:
    """One element of a page: its kind, its label and what a field holds."""

    kind: str
    label: str
    value: str = ""

    @property
    def acted_on(self) -> bool:
        return self.kind not in PLAIN


@dataclasses.dataclass
class Page:
    name: str
    url: str
    title: str
    below: float
    lines: list[Line]
    base: str = ""


@dataclasses.dataclass(frozen=True)
class Move:
    """One step as written: the page it starts on, memory, goal and actions."""

    page: str
    memory: str
    goal: str
    actions: str


@dataclasses.dataclass
class Run:
    """One run as written; `outcome` and `detail` are the trajectory's."""

    outcome: str
    detail: str
    judged: str = ""
    moves: list[Move] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Draft:
    """One case as written."""

    name: str
    activity: str = ""
    website: str = ""
    task: str = ""
    why: str = ""
    score: float | None = None
    divergence: tuple[int, int] | None = None
    constraints: list[str] = dataclasses.field(default_factory=list)
    pages: dict[str, Page] = dataclasses.field(default_factory=dict)
    success: Run | None = None
    localization: Run | None = None


def read_drafts(text: str) -> Iterator[Draft]:
    """The cases of a text, in order.

    Raises:
      NotationError: a line that fits nowhere, or an unknown page.
    """
    for block in text.split("=== ")[1:]:
        lines = _joined(block)
        draft = Draft(name=lines[0].strip())
        activity, website = _parts(lines[1])[:2]
        draft.activity, draft.website = activity, website
        page: Page | None = None
        run: Run | None = None
        for line in lines[2:]:
            word, _, rest = line.partition(" ")
            if line.startswith("@"):
                page = _page(draft, line)
                draft.pages[page.name] = page
            elif word == "+":
                run = draft.success = Run("done", "")
            elif word == "-":
                parts = _parts(rest or "done")
                run = draft.localization = Run(parts[0], parts[1] if len(parts) > 1 else "")
            elif run is not None:
                _move(draft, run, word, rest, line)
            elif page is not None:
                _element(page, word, rest, line)
            else:
                _head(draft, word, rest, line)
        yield draft


def _joined(block: str) -> list[str]:
    lines: list[str] = []
    for line in block.splitlines():
        if line.startswith(" ") and lines:
            lines[-1] += " " + line.strip()
        elif line.strip():
            lines.append(line.strip())
    return lines


def _parts(text: str) -> list[str]:
    return [part.strip() for part in re.split(r" \|(?= |$)", text)]


def _head(draft: Draft, word: str, rest: str, line: str) -> None:
    if word == "task":
        draft.task = rest
    elif word == "why":
        draft.why = rest
    elif word == "must":
        draft.constraints.append(rest)
    elif word == "score":
        draft.score = float(rest)
    elif word == "steps":
        first, second = rest.split()
        draft.divergence = int(first), int(second)
    else:
        raise NotationError(f"{draft.name}: no page and no run yet: {line!r}")


def _page(draft: Draft, line: str) -> Page:
    head, *rest = _parts(line[1:])
    name, _, base_name = (part.strip() for part in head.partition(" = "))
    base = draft.pages.get(base_name)
    if base_name and base is None:
        raise NotationError(f"{draft.name}: no page {base_name!r} for {name!r}")
    if name in draft.pages:
        raise NotationError(f"{draft.name}: two pages {name!r}")
    # A title may hold bars of its own.
    below = float(rest.pop()) if len(rest) > 2 and rest[-1].replace(".", "").isdigit() else 0.0
    url, title = rest[0] if rest else "", " | ".join(rest[1:])
    if base is None:
        return Page(name, urljoin(draft.website, url), title, below, [])
    url = urljoin(draft.website, url) if url else base.url
    return Page(name, url, title or base.title, below or base.below, list(base.lines), base_name)


def _element(page: Page, word: str, rest: str, line: str) -> None:
    if word == "del":
        kept = [other for other in page.lines if not other.label.startswith(rest)]
        if len(kept) == len(page.lines):
            raise NotationError(f"page {page.name}: nothing to remove for {line!r}")
        page.lines[:] = kept
        return
    if word not in KINDS:
        raise NotationError(f"page {page.name}: no such element: {line!r}")
    label, _, value = rest.partition(" = ") if word in _FIELDS else (rest, "", "")
    new = Line(word, label.strip(), value.strip())
    for at, other in enumerate(page.lines):
        if new.acted_on and (other.kind, other.label) == (new.kind, new.label) and other.value != new.value:
            page.lines[at] = new
            return
    page.lines.append(new)


def _move(draft: Draft, run: Run, word: str, rest: str, line: str) -> None:
    if word == "&":
        assert draft.success is not None
        run.moves.extend(draft.success.moves[: int(rest)])
        return
    if word == "judge":
        run.judged = rest
        return
    parts = _parts(line)
    if len(parts) != 4 or parts[0] not in draft.pages:
        raise NotationError(f"{draft.name}: no step on a known page with four parts: {line!r}")
    run.moves.append(Move(*parts))
