"""What the wiki holds at the start of an episode: islands, guides, talk, and who wrote it when."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from xml.sax.saxutils import escape


@dataclasses.dataclass(frozen=True)
class Island:
    """An island, and what its page says of it.

    Attributes:
      lighthouse: the year in which it was lit.
      stone: of which the lighthouse is built.
      school: the year in which it was founded; the page of an island with 0 has no word on a school.
      group: the category.
    """

    name: str
    people: int
    lighthouse: int
    stone: str
    ferry: str
    seats: int
    fare: str
    known_for: str
    metres: int
    school: int
    group: str

    @property
    def title(self) -> str:
        return f"{self.name} Island"

    @property
    def text(self) -> str:
        school = f"== School ==\nThe school of {self.title} was founded in {self.school}.\n\n"
        return (
            f"[[Category:{self.group}]]\n"
            f"'''{self.title}''' is one of the [[Outer Isles]]. It is known for its {self.known_for}.\n\n"
            f"== People ==\nAt the last count {self.people} people lived on {self.title}.\n\n"
            f"== Hill ==\nThe highest hill of {self.title} rises to {self.metres} metres.\n\n"
            f"{school if self.school else ''}"
            f"== Lighthouse ==\nThe lighthouse of {self.title} was lit in {self.lighthouse}. It is built of "
            f"{self.stone} and kept by hand.\n\n"
            f"== Getting there ==\nThe ferry ''{self.ferry}'' calls twice a week.\n"
        )


@dataclasses.dataclass(frozen=True)
class Revision:
    """A version of a page.

    Attributes:
      date: as in 2021-03-04; no two revisions have the same.
      comment: the summary of the edit.
    """

    date: str
    user: str
    comment: str
    text: str


@dataclasses.dataclass(frozen=True)
class Guide:
    """A page whose last edit, by Rook, is wrong.

    Attributes:
      first: its first version.
      second: what Alder or Birch added.
      right: a word of `first`, for which Rook wrote `wrong`.
    """

    title: str
    first: str
    second: str
    right: str
    wrong: str

    @property
    def good(self) -> str:
        return f"{self.first}\n\n{self.second}"


@dataclasses.dataclass(frozen=True)
class Topic:
    """A section of a talk page."""

    user: str
    heading: str
    text: str

    @property
    def wikitext(self) -> str:
        return f"== {self.heading} ==\n\n{self.text} --[[User:{self.user}|{self.user}]]\n"


# Passwords by account; the first keeps the wiki.
USERS = {
    "Keeper": "lantern-oil-1874",
    "Alder": "quiet-harbour-61",
    "Birch": "seven-gannets-28",
    "Rook": "black-feather-93",
}
GROUPS = ("Northern Isles", "Southern Isles", "Western Isles")
_NORTH, _SOUTH, _WEST = GROUPS
ISLANDS = (
    Island("Wren", 412, 1874, "granite", "Merle", 60, "4.50", "salt pans", 143, 1893, _NORTH),
    Island("Corran", 1280, 1851, "slate", "Saint Osyth", 120, "6.20", "boat builders", 388, 1861, _SOUTH),
    Island("Tamsel", 96, 1902, "granite", "Little Auk", 24, "3.80", "black sheep", 71, 0, _WEST),
    Island("Ousby", 733, 1866, "brick", "Lapwing", 85, "5.10", "glass works", 215, 1879, _NORTH),
    Island(
        "Hallin", 2054, 1839, "granite", "Northern Diver", 150, "7.40", "herring market", 302, 1848, _SOUTH
    ),
    Island("Pellow", 158, 1911, "slate", "Kittiwake", 32, "4.10", "stone circle", 96, 0, _WEST),
    Island("Skerrow", 341, 1888, "granite", "Grey Heron", 48, "5.60", "seal colony", 174, 0, _NORTH),
    Island("Averne", 887, 1845, "brick", "Dunlin", 90, "6.70", "apple orchards", 251, 1870, _SOUTH),
)
GUIDES = (
    Guide(
        *("Fog signals", "A steamer in fog sounds two blasts every minute.", "Boats at anchor ring a bell."),
        *("two", "nine"),
    ),
    Guide(
        *("Bird hides", "The hide above the cliff has room for six people.", "Dogs stay outside."),
        *("six", "forty"),
    ),
    Guide(
        *("Peat cutting", "Peat is cut in May and dried on the moor.", "Each house may cut one bank."),
        *("May", "December"),
    ),
    Guide(
        *("Seal watching", "Seals are watched from a distance of eighty metres.", "Pups are born in autumn."),
        *("eighty", "three"),
    ),
    Guide(
        *("Rope bridges", "A rope bridge carries four persons at a time.", "It is inspected each spring."),
        *("four", "ninety"),
    ),
)
TALK = {
    "Wren Island": (
        Topic("Birch", "Tide mill", "Does the tide mill still turn?"),
        Topic("Alder", "Road to the quay", "The road to the quay is closed until harvest."),
    ),
    "Corran Island": (Topic("Alder", "Slipway", "How long is the new slipway?"),),
    "Ousby Island": (
        Topic("Rook", "Glass beads", "Who sells the glass beads?"),
        Topic("Birch", "Furnace", "The old furnace was blown out last winter."),
        Topic("Alder", "Sand", "Where does the sand come from?"),
    ),
    "Averne Island": (
        Topic("Rook", "Cider", "Is there a cider press?"),
        Topic("Birch", "Wasps", "The wasps were bad this year."),
    ),
}
# Another name -> the page to which it leads.
REDIRECTS = {
    "Kirk Holm": "Skerrow Island",
    "Long Strand": "Pellow Island",
    "Burnt Hollow": "Averne Island",
    "Ness of Gulls": "Corran Island",
    "The Anvil": "Tamsel Island",
}
WATCHED = frozenset(
    (user, title)
    for user, titles in {
        "Alder": ("Tide tables", "Ferries", "Peat cutting", "Hallin Island"),
        "Birch": ("Ferries", "Outer Isles", "Bird hides", "Wren Island"),
    }.items()
    for title in titles
)
_HARBOUR = {
    "Ouzel Sound": ("Wren Island", "Ousby Island"),
    "Pilots": ("Hallin Island", "Corran Island", "Averne Island"),
    "Tide tables": ("Skerrow Island", "Wren Island", "Hallin Island"),
    "Storm of 1953": ("Tamsel Island", "Hallin Island", "Pellow Island", "Wren Island"),
}


def _list(intro: str, titles: list[str] | tuple[str, ...]) -> str:
    return f"{intro}\n" + "".join(f"* [[{title}]]\n" for title in titles)


FERRIES = (
    'Fares are for one way.\n\n{| class="wikitable"\n! Ferry !! Seats !! Fare\n'
    + "".join(f"|-\n| {one.ferry} || {one.seats} || {one.fare}\n" for one in ISLANDS)
    + "|}\n"
)
_LISTS = {
    "Outer Isles": _list("The '''Outer Isles''' are:", [island.title for island in ISLANDS]),
    "Ouzel Sound": _list("The sound lies between:", _HARBOUR["Ouzel Sound"]),
    "Pilots": _list("A pilot lives on:", _HARBOUR["Pilots"]),
    "Tide tables": _list("High water is given in local time for:", _HARBOUR["Tide tables"]),
    "Storm of 1953": _list("The storm did harm on:", _HARBOUR["Storm of 1953"]),
    "Ferries": FERRIES,
    **{f"Category:{group}": f"The islands of the {group}." for group in GROUPS},
}
MAIN_PAGE = "Welcome to the wiki of the [[Outer Isles]]. See also [[Ferries]] and [[Tide tables]]."
# The pages with a link to an island, without the list of all.
LINKS = {
    island.title: sorted(page for page, linked in _HARBOUR.items() if island.title in linked)
    for island in ISLANDS
}


def _counts(number: int, island: Island) -> tuple[Revision, ...]:
    """A page's versions: another number of people in each."""
    draw = random.Random(island.name)
    years = sorted(draw.sample(range(2011, 2025), 3 + number % 3))
    people = [island.people]
    for _ in years[1:]:
        people.insert(0, people[0] + draw.choice((-1, 1)) * draw.randrange(3, 20))
    return tuple(
        Revision(
            f"{year}-{1 + (5 * number) % 12:02d}-{2 + 3 * number:02d}",
            draw.choice(("Keeper", "Alder", "Birch")),
            "New page" if year == years[0] else f"Count of {year}",
            dataclasses.replace(island, people=count).text,
        )
        for year, count in zip(years, people, strict=True)
    )


def _guide(number: int, guide: Guide) -> tuple[Revision, ...]:
    day = 10 + number
    return (
        Revision(f"2024-02-{day}", "Keeper", "New guide", guide.first),
        Revision(f"2024-05-{day}", ("Alder", "Birch")[number % 2], "One thing more", guide.good),
        Revision(f"2024-09-{day}", "Rook", "Better", guide.good.replace(guide.right, guide.wrong)),
    )


def _talk(number: int, topics: tuple[Topic, ...]) -> tuple[Revision, ...]:
    return tuple(
        Revision(
            f"2025-0{1 + count}-{10 + number}",
            topic.user,
            topic.heading,
            "\n".join(one.wikitext for one in topics[: count + 1]),
        )
        for count, topic in enumerate(topics)
    )


def _all() -> dict[str, tuple[Revision, ...]]:
    found = {island.title: _counts(number, island) for number, island in enumerate(ISLANDS)}
    found |= {guide.title: _guide(number, guide) for number, guide in enumerate(GUIDES)}
    found |= {f"Talk:{title}": _talk(n, topics) for n, (title, topics) in enumerate(TALK.items())}
    for day, (title, text) in enumerate(_LISTS.items(), start=1):
        found[title] = (Revision(f"2010-01-{day:02d}", "Keeper", "New page", text),)
    for day, (title, target) in enumerate(REDIRECTS.items(), start=1):
        found[title] = (Revision(f"2010-03-{day:02d}", "Keeper", "Other name", f"#REDIRECT [[{target}]]"),)
    return found


# All pages but the front page, which the wiki's installation makes.
HISTORY: Mapping[str, tuple[Revision, ...]] = _all()
NAMESPACES = {0: "", 1: "Talk:", 2: "User:", 3: "User talk:", 10: "Template:", 14: "Category:"}
_REVISION = (
    "<revision><timestamp>{date}T09:00:00Z</timestamp><contributor><username>{user}</username></contributor>"
    "<comment>{comment}</comment><model>wikitext</model><format>text/x-wiki</format>"
    '<text xml:space="preserve">{text}</text></revision>'
)


def dump() -> str:
    """Returns all pages with their histories, as the wiki imports them."""
    pages = []
    for title, revisions in HISTORY.items():
        namespace = (
            next(n for n, prefix in NAMESPACES.items() if prefix and title.startswith(prefix))
            if (":" in title)
            else 0
        )
        texts = (
            _REVISION.format(date=one.date, user=one.user, comment=escape(one.comment), text=escape(one.text))
            for one in revisions
        )
        pages.append(f"<page><title>{title}</title><ns>{namespace}</ns>{''.join(texts)}</page>")
    head = 'xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en"'
    return f"<mediawiki {head}>{''.join(pages)}</mediawiki>"
