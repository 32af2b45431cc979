"""Hand-written policies of the applications with a mistake in one of their steps."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections.abc import Sequence
from typing import Any

from collection.corpus.elements import role_of
from collection.environments.apps.world import World
from tests.apps.actor import Move, Page, Policy, click, done
from tests.apps.moves import Playing, quoted

# Parameters that a mistake changes, by action.
_VALUES = {"input_text": "text", "select_dropdown_option": "text", "go_to_url": "url", "done": "text"}
# So many elements next to the right one may be taken for it.
_NEAR = 6


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A mistake in one step of a policy.

    Attributes:
      step: from 1.
      kind: `value`: types, chooses, opens or answers something else; `element`: acts on another element of
        the same role; `early`: says that it is done; `skip`: leaves the step out.
    """

    step: int
    kind: str


def plan(
    moves: Sequence[list[dict[str, Any]]], pages: Sequence[Page], asks: bool, draw: random.Random
) -> Mistake:
    """Draws a step of a success, all with the same chance, and a mistake that is possible there.

    Args:
      moves, pages: actions of the success's steps, and what it saw.
      asks: the task is a question, so that the answer matters.
    """
    possible = {}
    for step, (actions, page) in enumerate(zip(moves, pages, strict=True), 1):
        kinds = [kind for kind in ("value", "element") if _places(kind, actions, page, asks)]
        if step < len(moves):
            kinds += ["early", "skip"]
        if kinds:
            possible[step] = kinds
    step = draw.choice(list(possible))
    return Mistake(step, draw.choice(possible[step]))


def erring(policy: Policy, mistake: Mistake, world: World, draw: random.Random) -> Policy:
    """The policy with one mistake. It does not notice: it goes on as long as pages let it, then gives up.

    Args:
      world: has other values that fit in the place of one.
    """

    def playing(page: Page) -> Playing:
        try:
            moves = policy(page)
            move = next(moves)
            for number in itertools.count(1):
                if number == mistake.step:
                    move = (
                        moves.send(page)
                        if mistake.kind == "skip"
                        else _spoiled(mistake, move, page, world, draw)
                    )
                page = yield move
                move = moves.send(page)
        except Exception:
            yield from _lost(page, draw)

    return playing


def _lost(page: Page, draw: random.Random) -> Playing:
    """Looks around, and answers with something of the page."""
    for _ in range(draw.randint(0, 3)):
        links = page.all(tag="a")
        looks = [
            ("Look further", [{"scroll": {"down": True, "num_pages": 1.0}}]),
            ("Go back", [{"go_back": {}}]),
        ]
        if links:
            looks.append(("Try a link", [click(draw.choice(links).index)]))
        page = yield draw.choice(looks)
    yield _ending(page, draw)


def _ending(page: Page, draw: random.Random) -> Move:
    return done(draw.choice([line for line in page.lines if line[:1].isalnum()] or ["Done."]))


def _places(kind: str, actions: Sequence[dict[str, Any]], page: Page, asks: bool = True) -> list[int]:
    """The places of the step's actions that a mistake can be in."""
    found = []
    for place, action in enumerate(actions):
        ((name, params),) = action.items()
        if kind == "value" and name in _VALUES and (name != "done" or asks):
            found.append(place)
        if kind == "element" and params.get("index") and _alike(page, params["index"]):
            found.append(place)
    return found


def _spoiled(mistake: Mistake, move: Move, page: Page, world: World, draw: random.Random) -> Move:
    if mistake.kind == "early":
        return _ending(page, draw)
    goal, actions = move
    place = draw.choice(_places(mistake.kind, actions, page))
    ((name, params),) = actions[place].items()
    if mistake.kind == "element":
        changed = {"index": draw.choice(_alike(page, params["index"]))}
    else:
        changed = {_VALUES[name]: _other(name, params[_VALUES[name]], page, world, draw)}
    return goal, [*actions[:place], {name: params | changed}, *actions[place + 1 :]]


def _alike(page: Page, index: int) -> list[int]:
    """The nearest elements of the same role."""
    roles = {one.index: role_of(one.tag, one.attributes) for one in page.all()}
    same = [one for one in roles if one != index and roles[one] == roles.get(index)]
    return sorted(same, key=lambda one: abs(one - index))[:_NEAR]


def _other(name: str, text: str, page: Page, world: World, draw: random.Random) -> str:
    """Another value: of a link, of the same column of the world, with another digit, or of the request."""
    if name == "go_to_url":
        links = [one.attributes.get("href", "") for one in page.all(tag="a")]
        home = "/".join(page.url.split("/")[:3])
        return draw.choice([home + one for one in links if one.startswith("/")] or [home])
    if others := sorted(_column(world, text) - {text}):
        return draw.choice(others)
    if digits := list(re.finditer(r"\d", text)):
        at = draw.choice(digits).start()
        return f"{text[:at]}{(int(text[at]) + draw.randint(1, 8)) % 10}{text[at + 1 :]}"
    return draw.choice([one for one in quoted(page) if one != text] or [text[:-1] or "x"])


def _column(world: World, text: str) -> set[str]:
    """The values of the columns in which a value is; a row's key counts as one of a column."""
    columns: dict[tuple[str, str], set[str]] = {}
    for table, rows in world.items():
        for key, row in rows.items():
            for column, value in (("", key), *row.items()):
                texts = value if isinstance(value, list | tuple) else (value,)
                found = columns.setdefault((table, column), set())
                found.update(one for one in texts if isinstance(one, str))
    return set().union(*(values for values in columns.values() if text in values))
