"""What a seed's forum holds: beekeepers' topics, posts, polls and signatures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collection.environments.apps.templates import Draw
from collection.environments.apps.world import Row, World

# The member that every visitor is.
VISITOR = "Nils"
# By the numbers that the database has for them.
KINDS = ("Default topic", "Sticky", "Announce")
_CATEGORIES = ("Beekeeping", "The association")
_FIELDS = (
    *("Hives and frames", "Queens and swarms", "Honey and wax", "Tools and clothes", "Mites and moths"),
    *("Heather and lime", "Meetings", "Swap and sell", "Library", "Courses", "Excursions", "Honey shows"),
    *("Beginners", "Old hands", "Markets and fairs", "Weather and forage", "Candles and soap", "Apiaries"),
)
_THINGS = (
    *("Cedar hive", "Mouse guard", "Wax foundation", "Clipped queen", "Swarm", "Nucleus", "Smoker", "Veil"),
    *("Extractor", "Honey label", "Candle mould", "Shallow super", "Feeder", "Skep", "Frame", "Bee suit"),
    *("Pollen trap", "Mite board", "Hive stand", "Honey press"),
)
_STATES = (
    *("for sale", "wanted", "found", "lost", "too small", "turns mouldy", "needs paint", "given away"),
    *("stays empty", "under test", "in two minds", "rebuilt", "borrowed", "drips", "keeps falling over"),
)
_PLACES = (
    *("chapel", "old mill", "school", "quarry", "orchard", "railway bridge", "heath", "market hall", "moor"),
    *("lime avenue", "boathouse", "brewery", "nursery", "water tower"),
)
_OPENINGS = (
    *("{} asked me about it.", "Does anyone know what {} did?", "I heard of it from {}."),
    *("Please tell {} what you think.", "{} saw it on Sunday.", "It used to belong to {}."),
)
_REPLIES = (
    *("{} did that {} years ago.", "{} took {} hours.", "{} counted {} of them last week."),
    *("I paid {} for mine, {} euros.", "I would ask {} again in {} days.", "{} has {} left in the shed."),
    *("{} swears by {} grams.", "I saw {} with {} of them.", "{} would wait {} weeks."),
)
_SIGNATURES = (
    *("{n} hives near {city}", "Taught by {name} in {n} summers", "Stung {n} times in {city}"),
    *("{name} and {n} hives", "Honey from {city}, {n} jars a year"),
)
_NOTES = (
    *("{} can help on Sunday.", "Please write to {}.", "{} has the key.", "That is what {} thinks, too."),
    *("We spoke with {} about it in April.", "{} brings the ladder.", "Thanks to {} for the tip."),
    *("{} will be at the market.", "I lent mine to {}."),
)
_REASONS = (
    "wrong figure",
    "asked for by {}",
    "spelling, says {}",
    "out of date since {} left",
    "as {} wishes",
)
_QUESTIONS = ("Which day suits {}?", "What shall {} bring?", "Where shall {} speak?", "What would {} choose?")
_OPTIONS = (
    *("Monday", "Thursday", "Saturday", "Yellow", "Green", "White", "The Plough", "The Mill", "At home"),
    *("Cedar", "Larch", "Always", "Rather later", "Cake", "Soup", "Early in May", "After the show", "Gladly"),
)


def full_name(draw: Draw) -> str:
    return f"{draw.fake.first_name()} {draw.fake.last_name()}"


def subject(draw: Draw) -> str:
    """What a topic is about; no forum has as many posts as its number."""
    thing, state = draw.choice(_THINGS), draw.choice(_STATES)
    return f"{thing} {draw.randint(102, 199)} {state} by the {draw.choice(_PLACES)}"


def note(draw: Draw) -> str:
    return draw.choice(_NOTES).format(full_name(draw))


def reason(draw: Draw) -> str:
    return draw.choice(_REASONS).format(full_name(draw))


def signature(draw: Draw) -> str:
    values = {"n": draw.randint(3, 98), "city": draw.fake.city(), "name": full_name(draw)}
    return draw.choice(_SIGNATURES).format(**values)


def question(draw: Draw) -> str:
    return draw.choice(_QUESTIONS).format(full_name(draw))


def options(draw: Draw, count: int) -> list[str]:
    return draw.sample(_OPTIONS, count)


def topic(**values: Any) -> Row:
    """A new topic as the form proposes it, with some values."""
    return {"subject": "", "forum": "", "kind": KINDS[0], "locked": 0, "subscribers": [], **values}


def post(topic: Any, **values: Any) -> Row:
    """A new post as the form proposes it, with some values."""
    given = {"approved": 1, "reason": "", "signature": 1}
    return {"topic": topic, "poster": VISITOR, "subject": "", "content": "", **given, **values}


def poll(topic: Any, **values: Any) -> Row:
    """A new poll as the form proposes it, with some values."""
    return {"topic": topic, "question": "", "most": 1, "changes": 0, "hidden": 0, "days": 0, **values}


def make_world(draw: Draw) -> World:
    """Five topics in each forum: sticky, announcement, locked, with a poll, and plain.

    No member has two posts in a topic; one has four replies, which is more than the others of its forum.
    """
    names = draw.distinct(lambda: full_name(draw), 6)
    members = {name.replace(" ", ""): {"signature": signature(draw)} for name in names}
    members = {VISITOR: {"signature": signature(draw)}, **members}
    fields = [f"{field}, {draw.fake.city()}" for field in draw.sample(_FIELDS, 6)]
    forums: dict[int, Row] = {}
    for at, category in enumerate(_CATEGORIES):
        forums[len(forums) + 1] = {"name": category, "parent": ""}
        for field in fields[3 * at : 3 * at + 3]:
            forums[len(forums) + 1] = {"name": field, "parent": category}
    world = {"members": members, "forums": forums}
    world |= {name: {} for name in ("topics", "posts", "polls", "options")}
    subjects = draw.distinct(lambda: subject(draw), 30)
    texts = draw.distinct(lambda: draw.choice(_REPLIES).format(full_name(draw), draw.randint(3, 98)), 120)
    for at, field in enumerate(fields):
        _add_forum(draw, world, field, subjects[5 * at : 5 * at + 5], texts, at)
    return world


def _add_forum(
    draw: Draw,
    world: Mapping[str, dict[Any, Any]],
    field: str,
    subjects: list[str],
    texts: list[str],
    at: int,
) -> None:
    topics, posts, members = world["topics"], world["posts"], list(world["members"])
    others = [name for name in members if name != VISITOR]
    # The first and last topics of a forum were started by the same member, as no others were.
    first, *rest = draw.sample(others, 4)
    sticky, announced, locked, polled, plain = draw.sample(range(5), 5)
    longest, followed = draw.choice((polled, plain)), draw.choice((sticky, locked, polled, plain))
    for place, title in enumerate(subjects):
        number, author = len(topics) + 1, first if place in (0, 4) else rest[place - 1]
        authors = [author, *draw.sample([name for name in members if name != author], 6)]
        count = 5 if place == longest else draw.randint(2, 4)
        shown, waiting = authors[:count], [name for name in authors[count:] if name != VISITOR]
        for name in shown:
            text = draw.choice(_OPENINGS).format(full_name(draw)) if name == author else texts.pop()
            head = title if name == author else f"Re: {title}"
            posts[len(posts) + 1] = post(number, poster=name, subject=head, content=text)
        if place in (sticky, locked):
            values = {"subject": f"Re: {title}", "content": texts.pop(), "approved": 0}
            posts[len(posts) + 1] = post(number, poster=waiting[0], **values)
        subscribers = [name for name in others if draw.random() < 0.3]
        topics[number] = topic(
            subject=title,
            forum=field,
            kind=KINDS[1 if place == sticky else 2 if place == announced else 0],
            locked=int(place == locked),
            subscribers=sorted(subscribers + [VISITOR] * (place == followed)),
        )
        if place == polled:
            _add_poll(draw, world, number, others, at)


def _add_poll(
    draw: Draw, world: Mapping[str, dict[Any, Any]], number: int, others: list[str], at: int
) -> None:
    """One option has more votes than each other. In a third of the polls the visitor has voted for it."""
    key, texts = len(world["polls"]) + 1, options(draw, 3)
    is_voted = at % 3 == 2
    world["polls"][key] = poll(
        number, question=question(draw), most=2 if at % 3 == 1 else 1, changes=int(is_voted)
    )
    names = draw.sample(others, draw.randint(3, 6))
    leading = draw.randrange(3)
    voters = {leading: names[:2] + names[4:] + [VISITOR] * is_voted}
    voters[(leading + 1) % 3], voters[(leading + 2) % 3] = names[2:3], names[3:4]
    for place, text in enumerate(texts):
        world["options"][len(world["options"]) + 1] = {
            "poll": key,
            "text": text,
            "voters": sorted(voters[place]),
        }
