"""What a seed's wiki holds: islands, guides, talk, and who wrote it when."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collection.environments.apps.templates import Draw
from collection.environments.apps.world import Row, World

KEEPER = "Keeper"
# Passwords by account; the first keeps the wiki.
USERS = {
    KEEPER: "lantern-oil-1874",
    "Alder": "quiet-harbour-61",
    "Birch": "seven-gannets-28",
    "Rook": "black-feather-93",
}
_STARTS = (
    *("Aver", "Bra", "Cor", "Dun", "Elf", "Fen", "Gor", "Hal", "Hes", "Kil", "Lis", "Mor", "Nor", "Ous"),
    *("Pel", "Pen", "Sal", "Sker", "Ster", "Tam", "Thor", "Tre", "Ulv", "Wren"),
)
_MIDDLES = ("a", "al", "ar", "el", "en", "er", "es", "i", "in", "o", "om", "un")
_ENDS = (
    *("by", "combe", "dale", "den", "don", "ford", "garth", "lin", "low", "mere", "moor", "quoy", "rick"),
    *("row", "sand", "sey", "stow", "thwaite", "ton", "vig", "well", "wick"),
)
_KINDS = ("Island", "Isle", "Holm", "Skerry", "Rock", "Eyot", "Cay")
_NICKNAMES = ("Strand", "Hollow", "Anvil", "Haven", "Point", "Sands", "Bluff", "Reach", "Stack", "Cliffs")
_STONES = ("granite", "slate", "brick", "basalt", "sandstone", "limestone")
_TRADES = (
    *("salt pans", "boat builders", "black sheep", "glass works", "herring market", "stone circle"),
    *("seal colony", "apple orchards", "tide mill", "rope walk", "heather honey", "puffin cliffs"),
)
_NUMBERS = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "fifteen"),
    *("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),
)
# What a guide is about, and what it says first.
_GUIDES = {
    "Fog signals": "A steamer in fog sounds {} blasts every hour.",
    "Bird hides": "The hide above the cliff has room for {} people.",
    "Peat cutting": "Peat is dried for {} days on the moor.",
    "Seal watching": "Seals are watched from a distance of {} metres.",
    "Rope bridges": "A rope bridge carries {} persons at a time.",
    "Kelp drying": "Kelp hangs on the racks for {} hours.",
    "Oil lamps": "A lamp burns {} nights with one filling.",
    "Salt boiling": "A pan gives {} sacks of salt in a week.",
    "Net mending": "A torn net takes {} hours to mend.",
    "Bell ringing": "The bell is rung {} times at noon.",
    "Crab pots": "A boat sets {} pots before dawn.",
    "Sheep shearing": "A good hand shears {} sheep in a day.",
}
_ADVICE = (
    *("Dogs stay outside.", "Boats at anchor ring a bell.", "Each house may take one bank."),
    *("Pups are born in autumn.", "It is inspected each spring.", "Children need a grown-up with them."),
    *("Nothing is done on Sundays.", "The harbour office lends the tools.", "Gloves are worn all year."),
)
_SUBJECTS = (
    *("Tide mill", "Slipway", "Glass beads", "Furnace", "Cider press", "Wasps", "Road to the quay", "Wells"),
    *("Old map", "Chapel roof", "Mail boat", "Peat store", "School bell", "Weather mast", "Sheep pens"),
)
_ASKED = (
    *("Does {} still look after it?", "I heard of it from {} last winter.", "Has {} a photograph of it?"),
    *("It was sold to {} in spring.", "Who can ask {} about it?", "{} says that it was moved."),
)
_HEADING = re.compile(r"^(=+)\s*(.*?)\s*\1$")
_GROUP = re.compile(r"^\[\[\s*Category\s*:\s*(.*?)\s*\]\]$", re.IGNORECASE)
_REDIRECT = re.compile(r"^#redirect\s*:?\s*\[\[\s*(.*?)\s*\]\]$", re.IGNORECASE)
_ITEM = re.compile(r"^([*#]+)\s*")


def place(draw: Draw) -> str:
    return draw.choice(_STARTS) + draw.choice(_MIDDLES) + draw.choice(_ENDS)


def island_name(draw: Draw) -> str:
    return f"{place(draw)} {draw.choice(_KINDS)}"


def nickname(draw: Draw) -> str:
    return f"{place(draw)} {draw.choice(_NICKNAMES)}"


def person(draw: Draw) -> str:
    return f"{draw.fake.first_name()} {draw.fake.last_name()}".replace("'", "")


def subject(draw: Draw) -> str:
    return draw.choice(_SUBJECTS)


def remark(draw: Draw) -> str:
    return draw.choice(_ASKED).format(person(draw))


def article(text: str, user: str, comment: Any, protection: Sequence[str] = ()) -> Row:
    """The row of a page: its lines without empty ones and without those of categories, which have no order.

    Headings, items of lists and redirects are written in one of the ways that mean the same.
    """
    lines, groups = [], set()
    for line in filter(None, map(str.strip, text.splitlines())):
        if found := _GROUP.match(line):
            groups.add(found[1])
        elif found := _REDIRECT.match(line):
            lines.append(f"#REDIRECT [[{found[1]}]]")
        else:
            lines.append(_ITEM.sub(r"\1 ", _HEADING.sub(r"\1 \2 \1", line)))
    return {
        "lines": lines,
        "groups": sorted(groups),
        "user": user,
        "comment": comment,
        "protection": list(protection),
    }


def island_text(title: str, one: Row) -> str:
    school = f"== School ==\nThe school of {title} was founded in {one['school']}.\n\n"
    return (
        f"[[Category:{one['group']}]]\n"
        f"'''{title}''' is one of the [[{one['isles']}]]. It is known for its {one['trade']}.\n\n"
        f"== People ==\nAt the last count {one['people']} people lived on {title}.\n\n"
        f"== Hill ==\nThe highest hill of {title} rises to {one['metres']} metres.\n\n"
        f"{school if one['school'] else ''}"
        f"== Lighthouse ==\nThe lighthouse of {title} was lit in {one['lighthouse']}. It is built of "
        f"{one['stone']} and kept by hand.\n\n"
        f"== Getting there ==\nThe ferry ''{one['ferry']}'' of the {one['line']} calls twice a week."
    )


def fares(islands: Mapping[str, Row]) -> str:
    rows = "".join(f"|-\n| {one['ferry']} || {one['seats']} || {one['fare']}\n" for one in islands.values())
    return f'Fares are for one way.\n\n{{| class="wikitable"\n! Ferry !! Seats !! Fare\n{rows}|}}'


def listing(intro: str, items: Sequence[str]) -> str:
    return "\n".join([intro, *(f"* [[{item}]]" for item in items)])


def make_world(draw: Draw) -> World:
    isles = f"{place(draw)} {draw.choice(('Isles', 'Islands', 'Skerries'))}"
    titles = draw.distinct(lambda: island_name(draw), 8)
    islands = _islands(draw, isles, titles)
    written: dict[str, dict[str, str]] = {}

    def write(title: str, user: str, comment: str, text: str, year: int, month: int = 0) -> None:
        """Writes a version on a day on which there is no other."""
        first, last = (f"{year}-{month or 1:02d}-01", f"{year}-{month or 12:02d}-28")
        day = draw.day(first, last)
        while day in written:
            day = draw.day(first, last)
        written[day] = {"page": title, "user": user, "comment": comment, "text": text}

    pages = {
        "Main Page": f"Welcome to the wiki of the [[{isles}]]. See also [[Ferries of the {isles}]].",
        isles: listing(f"The '''{isles}''' are:", titles),
        f"Ferries of the {isles}": fares(islands),
        **{f"Category:{group}": f"The islands of the {group}." for group in _groups(isles)},
    }
    intros = {
        f"{place(draw)} Sound": "The sound lies between:",
        f"Pilots of the {isles}": "A pilot lives on:",
        f"Tide tables of the {isles}": "High water is given in local time for:",
        f"Storm of {draw.randint(1890, 1989)}": "The storm did harm on:",
    }
    # Each island is in several lists, and no list has all.
    pages |= {title: listing(intro, draw.some(titles, 3, 6)) for title, intro in intros.items()}
    for title, text in pages.items():
        write(title, KEEPER, "New page", text, 2010)
    for name in draw.distinct(lambda: nickname(draw), 5):
        write(name, KEEPER, "Other name", f"#REDIRECT [[{draw.choice(titles)}]]", 2010)
    _write_counts(draw, islands, write)
    guides = [f"{topic} on {draw.choice(titles)}" for topic in draw.sample(list(_GUIDES), 5)]
    _write_guides(draw, guides, write)
    for title in draw.sample(titles, 4):
        text = ""
        for month, heading in enumerate(draw.sample(_SUBJECTS, draw.randint(1, 3)), start=1):
            user = draw.choice(list(USERS)[1:])
            text += f"== {heading} ==\n\n{remark(draw)} --[[User:{user}|{user}]]\n\n"
            write(f"Talk:{title}", user, heading, text.strip(), 2025, month)
    counted = draw.sample(titles, 3)
    news = [f"* {title}: {islands[title]['people'] + draw.randint(20, 90)} people" for title in counted]
    news = ["The counts of 2026 are:", *news]
    write(f"New counts of the {isles}", KEEPER, "New page", "\n".join(news), 2025, 12)
    versions = {f"{day} 09:00": written[day] for day in sorted(written)}
    watched = {user: sorted(draw.sample([*titles, *guides], 4)) for user in ("Alder", "Birch")}
    return {
        "pages": {
            one["page"]: article(one["text"], one["user"], one["comment"]) for one in versions.values()
        },
        "versions": versions,
        # The installation makes the last one.
        "users": {
            user: {"name": "", "watched": watched.get(user, [])} for user in (*USERS, "MediaWiki default")
        },
    }


def _groups(isles: str) -> list[str]:
    return [f"{direction} {isles}" for direction in ("Northern", "Southern", "Western")]


def _islands(draw: Draw, isles: str, titles: Sequence[str]) -> dict[str, Row]:
    lines = [f"{place(draw)} {kind}" for kind in draw.sample(("Packet", "Steamers", "Line", "Ferry"), 2)]
    ferries = draw.distinct(lambda: person(draw), len(titles))
    seats = draw.sample(range(20, 190), len(titles))
    metres = draw.sample(range(40, 420), len(titles))
    people = draw.sample(range(120, 2400), len(titles))
    return {
        title: {
            "isles": isles,
            "group": _groups(isles)[at % 3],
            "people": people[at],
            "lighthouse": draw.randint(1830, 1915),
            "stone": draw.choice(_STONES[:2] if at < 4 else _STONES),
            "ferry": ferries[at],
            "line": draw.choice(lines),
            "seats": seats[at],
            "fare": f"{draw.randint(60, 190) * 0.05:.2f}",
            "trade": draw.choice(_TRADES),
            "metres": metres[at],
            "school": draw.randint(1840, 1935) if at > 2 else 0,
        }
        for at, title in enumerate(titles)
    }


def _write_counts(draw: Draw, islands: dict[str, Row], write: Callable[..., None]) -> None:
    """A page's versions: another number of people in each."""
    for title, island in islands.items():
        years = sorted(draw.sample(range(2011, 2025), draw.randint(3, 5)))
        people = [island["people"]]
        for _ in years[1:]:
            people.insert(0, people[0] + draw.choice((-1, 1)) * draw.randint(3, 20))
        for year, count in zip(years, people, strict=True):
            comment = "New page" if year == years[0] else f"Count of {year}"
            text = island_text(title, {**island, "people": count})
            write(title, draw.choice(list(USERS)[:3]), comment, text, year)


def _write_guides(draw: Draw, titles: Sequence[str], write: Callable[..., None]) -> None:
    """Guides whose last version, by Rook, is wrong: three with one summary, two with another."""
    summaries = draw.distinct(lambda: f"As {person(draw)} said", 2)
    for at, title in enumerate(titles):
        right, wrong = draw.sample(_NUMBERS, 2)
        first, second = _GUIDES[title.partition(" on ")[0]], draw.choice(_ADVICE)
        write(title, KEEPER, "New guide", first.format(right), 2024, 2)
        user = draw.choice(("Alder", "Birch"))
        write(title, user, "One thing more", f"{first.format(right)}\n\n{second}", 2024, 5)
        write(title, "Rook", summaries[at % 2], f"{first.format(wrong)}\n\n{second}", 2024, 9)
