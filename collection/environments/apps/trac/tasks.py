"""Tasks at Trac: templates over the rows of its world."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from collection.environments.apps.answers import Answer
from collection.environments.apps.templates import (
    Draw,
    Goal,
    Template,
    ask,
    change,
    count,
    create,
    drawn,
    one_of,
    other,
    other_in,
)
from collection.environments.apps.trac.world import (
    PRIORITIES,
    RESOLUTIONS,
    TYPES,
    UNSET,
    keywords,
    note,
    page_name,
    summary,
)
from collection.environments.apps.world import Either, Row, World, put

_FIGURE = re.compile(r"^(.+): (\d+)$", re.MULTILINE)


def _open(ticket: Row) -> bool:
    return ticket["status"] != "closed"


def _closed(ticket: Row) -> bool:
    return not _open(ticket)


def _asked(words: str, column: str, where: Any = None, among: Any = "") -> Template:
    return ask(f"{words} Answer with the {column} alone.", "tickets", column, where, among=among)


def _people(world: World) -> list[str]:
    rows = [*world["tickets"].values(), *world["components"].values()]
    return [row[column] for row in rows for column in ("owner", "reporter") if column in row]


def _figures(world: World) -> Iterator[tuple[str, str, str]]:
    """Page, what a figure is of, and the figure."""
    for name, page in world["pages"].items():
        for what, figure in _FIGURE.findall(page["text"]):
            yield name, what, figure


def _fact(world: World, draw: Draw) -> Goal:
    name, what, figure = draw.choice(list(_figures(world)))
    words = (
        f'What does the page {name} of the wiki say: "{what}"? Change nothing; answer with the figure alone.'
    )
    return Goal(words, world, Answer(int(figure)))


def _owner_of_component(world: World, number: int, ticket: Row) -> World:
    """A new ticket goes to the owner of its component."""
    owner = world["components"][world["tickets"][number]["component"]]["owner"]
    return put(world, "tickets", number, owner=owner)


def _new(world: World, draw: Draw) -> Goal:
    component = draw.choice(list(world["components"]))
    row = {
        "summary": summary(draw),
        "type": draw.choice(TYPES),
        "priority": draw.choice(PRIORITIES),
        "component": component,
        "milestone": draw.choice(list(world["milestones"])),
        "owner": world["components"][component]["owner"],
        "reporter": "anonymous",
        "keywords": "",
        "status": "new",
        "resolution": "",
        **UNSET,
        "description": note(draw),
        "comments": [],
    }
    words = (
        'Report a new ticket "{summary}" with the description "{description}", of type {type}, priority '
        "{priority}, component {component} and milestone {milestone}."
    )
    return create(words, "tickets", **row)(world, draw)


def _comment(world: World, draw: Draw, row: Row, column: str) -> list[str]:
    return [*row["comments"], row["text"]]


def _append(world: World, draw: Draw) -> Goal:
    name, page = draw.row(world, "pages")
    text = note(draw)
    words = f'Add a paragraph "{text}" at the end of the page {name} of the wiki; leave the rest as it is.'
    return Goal(words, put(world, "pages", name, text=f"{page['text']}\n\n{text}"))


def _correct(world: World, draw: Draw) -> Goal:
    name, what, old = draw.choice(list(_figures(world)))
    new = draw.other(range(2, 60), int(old))
    text = world["pages"][name]["text"].replace(f"{what}: {old}", f"{what}: {new}")
    words = f'The page {name} of the wiki is wrong about "{what}": it is {new}. Correct the figure.'
    return Goal(words, put(world, "pages", name, text=text))


def _page(world: World, draw: Draw) -> Goal:
    name, text = page_name(draw), note(draw)
    # A page may begin with its name as its heading.
    after = put(world, "pages", name, text=Either((text, f"= {name} =\n\n{text}")))
    return Goal(f'Make a page {name} in the wiki with the text "{text}".', after)


def _postpone(world: World, draw: Draw) -> Goal:
    """Several tickets, one after the other."""
    old = draw.choice(list(world["milestones"]))
    new = draw.other(world["milestones"], old)
    after = world
    for number, ticket in world["tickets"].items():
        if ticket["milestone"] == old and _open(ticket):
            after = put(after, "tickets", number, milestone=new)
    words = f'Move all tickets of the milestone "{old}" that are not closed to the milestone "{new}".'
    return Goal(f"{words} Leave the closed ones as they are.", after)


def _hand_over(world: World, draw: Draw) -> Goal:
    """What a page says goes into the comments of two tickets."""
    name, what, figure = draw.choice(list(_figures(world)))
    chosen = draw.sample([number for number, one in world["tickets"].items() if _open(one)], 2)
    after = world
    for number in chosen:
        comments = world["tickets"][number]["comments"]
        after = put(after, "tickets", number, comments=[*comments, Either((figure, f"{what}: {figure}"))])
    first, second = (world["tickets"][number]["summary"] for number in chosen)
    words = (
        f'Comment on the tickets "{first}" and "{second}" with the figure that the page {name} of the wiki '
    )
    return Goal(f'{words}has for "{what}".', after)


def _give_to_reporter(world: World, draw: Draw) -> Goal:
    """What one ticket says goes into another."""
    number, ticket = draw.row(world, "tickets", _open)
    _, known = draw.row(
        world, "tickets", lambda one: one is not ticket and one["reporter"] != ticket["owner"]
    )
    words = (
        f'Give the ticket "{ticket["summary"]}" to the person who reported "{known["summary"]}", and who '
        "becomes its owner."
    )
    return Goal(words, put(world, "tickets", number, owner=known["reporter"], status="assigned"))


def _keywords_of_page(world: World, draw: Draw) -> Goal:
    """What a page says goes into a ticket."""
    name, what, figure = draw.choice(list(_figures(world)))
    number, ticket = draw.row(world, "tickets", lambda one: _open(one) and not one["keywords"])
    words = (
        f'Set the keywords of the ticket "{ticket["summary"]}" to the figure alone that the page {name} of '
        f'the wiki has for "{what}".'
    )
    return Goal(words, put(world, "tickets", number, keywords=figure))


_TICKET = 'the ticket "{summary}"'
QUESTIONS: dict[str, Template] = {
    "owner": _asked(f"Who owns {_TICKET}?", "owner", among=_people),
    "priority": _asked(f"Which priority has {_TICKET}?", "priority"),
    "component": _asked(f"To which component does {_TICKET} belong?", "component"),
    "milestone": _asked(f"For which milestone is {_TICKET} planned?", "milestone"),
    "reporter": _asked(f"Who reported {_TICKET}?", "reporter", among=_people),
    "resolution": _asked(f"How was {_TICKET} resolved?", "resolution", _closed),
    "number": ask(
        f"Which number has {_TICKET}? Answer with it alone.", "tickets", lambda world, key, row: key
    ),
    "open-tickets": count(
        "How many tickets of the milestone {milestone} with the owner {owner} are not closed?",
        "tickets",
        ("milestone", "owner"),
        _open,
    ),
    "fact": _fact,
}
CHANGES: dict[str, Template] = {
    "new": _new,
    "comment": change(
        f'Add the comment "{{text}}" to {_TICKET}.', "tickets", _open, texts={"text": note}, comments=_comment
    ),
    "resolve": change(
        f"Close {_TICKET}: it is resolved as {{new_resolution}}.",
        "tickets",
        _open,
        status="closed",
        resolution=one_of(RESOLUTIONS),
    ),
    "resolve-with-comment": change(
        f'Close {_TICKET} as {{new_resolution}}, with the comment "{{text}}".',
        "tickets",
        _open,
        texts={"text": note},
        status="closed",
        resolution=one_of(RESOLUTIONS),
        comments=_comment,
    ),
    "reopen": change(f"Open {_TICKET} again.", "tickets", _closed, status="reopened", resolution=""),
    "reassign": change(
        f"Give {_TICKET} to {{new_owner}}, who becomes its owner.",
        "tickets",
        _open,
        owner=lambda world, draw, row, column: draw.other(
            sorted({one["reporter"] for one in world["tickets"].values()}), row["owner"]
        ),
        status="assigned",
    ),
    "append": _append,
    "correct": _correct,
    "page": _page,
    "set-priority": change(
        f"Set the priority of {_TICKET} to {{new_priority}}.", "tickets", _open, priority=other(PRIORITIES)
    ),
    "set-component": change(
        f"Move {_TICKET} to the component {{new_component}}.",
        "tickets",
        _open,
        effect=_owner_of_component,
        component=other_in("components"),
    ),
    "set-milestone": change(
        f"Plan {_TICKET} for the milestone {{new_milestone}}.",
        "tickets",
        _open,
        milestone=other_in("milestones"),
    ),
    "set-type": change(f"Change {_TICKET} to the type {{new_type}}.", "tickets", _open, type=other(TYPES)),
    "set-summary": change(
        f'Change the summary of {_TICKET} to "{{new_summary}}".', "tickets", _open, summary=drawn(summary)
    ),
    "set-keywords": change(
        f'Set the keywords of {_TICKET} to "{{new_keywords}}".',
        "tickets",
        lambda one: _open(one) and not one["keywords"],
        keywords=drawn(keywords),
    ),
    "set-priority-and-type": change(
        f"Change {_TICKET} to the priority {{new_priority}} and the type {{new_type}}.",
        "tickets",
        _open,
        priority=other(PRIORITIES),
        type=other(TYPES),
    ),
    "set-milestone-and-keywords": change(
        f'Plan {_TICKET} for the milestone {{new_milestone}}, and set its keywords to "{{new_keywords}}".',
        "tickets",
        lambda one: _open(one) and not one["keywords"],
        milestone=other_in("milestones"),
        keywords=drawn(keywords),
    ),
    "postpone": _postpone,
    "hand-over": _hand_over,
    "give-to-reporter": _give_to_reporter,
    "keywords-of-page": _keywords_of_page,
}
TEMPLATES = QUESTIONS | CHANGES
