"""Pairs of runs between which no decision at an aligned state explains the failure."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from tests.mining.planted.acts import choose, click, extract, fill, press, scroll, search, wait
from tests.mining.planted.catalogue import Catalogue
from tests.mining.planted.documents import Documents
from tests.mining.planted.pages import Block
from tests.mining.planted.recorded import filler
from tests.mining.planted.run import Run

KINDS = ("judged", "passive", "longer", "search", "apart", "syntactic", "broken")
_HEIGHT = 50


def unplanted_json(kind: str, rng: random.Random, task_id: str) -> tuple[str, str]:
    """A successful and another run of one task, as JSON."""
    return _MAKERS[kind](rng, task_id, filler(rng, rng.randint(25, 90)))


def _book(run: Run, site: Catalogue, loose: bool = False) -> None:
    """Everything that the task asks for; `loose` writes the same in other letters."""
    theme, word = site.theme, site.theme.words[0]
    option = theme.option[1][1]
    run.do(f"Search for {word}", fill("Search box", f" {word.upper()} " if loose else word), press("Enter"))
    run.do(f"Open {site.chosen.name}", click(site.chosen.name), note="The list is open.")
    run.do(f"Choose {option}", choose(theme.option[0], f" {option.upper()} " if loose else option))
    run.do(theme.act, click(theme.act), note=f"{theme.option[0]} is {option}.")
    run.do(theme.finish, click(theme.finish), note=f"{theme.cart} is open.")
    run.note(f"Confirmed with reference {site.number}.")
    run.finish(f"{site.chosen.name}: reference {site.number}.")


def _shop(rng: random.Random, task_id: str, block: Block):
    site = Catalogue(rng, block, _HEIGHT)
    theme = site.theme
    objective = (
        f"Book {site.chosen.name}: {theme.act.lower()}, then {theme.finish.lower()}; report the reference."
    )
    return site, site.task(task_id, objective, f"{theme.option[0]}: {theme.option[1][1]}")


def _written(
    task_id: str, success: Run, other: Run, passed: bool = False, why: str = "It is not clear."
) -> tuple[str, str]:
    verdict = f"{why} {'SUCCESS' if passed else 'NOT SUCCESS'}"
    return (
        success.json(f"{task_id}#teacher-1", 1, True, "The page shows what the task asks for. SUCCESS"),
        other.json(f"{task_id}#teacher-2", 2, passed, verdict if other.outcome == "done" else ""),
    )


def _judged(rng: random.Random, task_id: str, block: Block) -> tuple[str, str]:
    """The same actions; the judge saw it otherwise."""
    site, task = _shop(rng, task_id, block)
    first, second = (Run(site, task, random.Random(f"{task_id}/{number}")) for number in range(2))
    _book(first, site)
    _book(second, site)
    return _written(task_id, first, second, why="The screenshots do not show the reference.")


def _passive(rng: random.Random, task_id: str, block: Block) -> tuple[str, str]:
    """They differ by waits, scrolls and looks at lists only; the judge saw the second one otherwise."""
    site, task = _shop(rng, task_id, block)
    success, other = (Run(site, task, random.Random(f"{task_id}/{number}")) for number in range(2))
    _book(success, site)
    other.pauses = [rng.randint(0, 3) for _ in range(5)]
    _book(other, site)
    return _written(task_id, success, other, why="The reference cannot be read.")


def _longer(rng: random.Random, task_id: str, block: Block) -> tuple[str, str]:
    """Two successes, the second with waits and scrolls."""
    site, task = _shop(rng, task_id, block)
    success, other = (Run(site, task, random.Random(f"{task_id}/{number}")) for number in range(2))
    _book(success, site)
    for _ in range(rng.randint(1, 3)):
        other.do("Wait for the page", wait())
    other.do("Look below", scroll())
    other.do("Go back up", scroll(down=False))
    _book(other, site)
    return _written(task_id, success, other, passed=True)


def _search(rng: random.Random, task_id: str, block: Block) -> tuple[str, str]:
    """They differ by the words of web searches only; the second one never got further."""
    site = Documents(rng, block, _HEIGHT)
    theme, label = site.theme, site.theme.facts[0][0].lower()
    task = site.task(task_id, f"Find sources on {theme.document} that name the {label}.")
    success, other = (Run(site, task, random.Random(f"{task_id}/{number}")) for number in range(2))
    words = list(theme.words)
    for query in words:
        success.do("Search", search(query), note="Looking for sources.")
    success.finish(f"The results name {site.url(site.path)}.")
    for number in range(rng.randint(4, 9)):
        other.do("Search", search(f"{words[number % 3]} {('sources', 'pages', 'who')[number % 3]}"),
                 note="Looking for sources.")  # fmt: skip
    other.end("max_steps")
    return _written(task_id, success, other)


def _apart(rng: random.Random, task_id: str, block: Block) -> tuple[str, str]:
    """The second run's browser showed another site from its first step on."""
    site, task = _shop(rng, task_id, block)
    success = Run(site, task, random.Random(f"{task_id}/1"))
    _book(success, site)
    elsewhere = Documents(rng, filler(rng, 60, apart=block), _HEIGHT)
    other = Run(elsewhere, task, random.Random(f"{task_id}/2"))
    for words in rng.sample(elsewhere.theme.sections, 3):
        other.do(f"See {words}", click(words), note=f"This seems to be {elsewhere.name}.")
        other.do("Back to the start", click(elsewhere.name))
    other.do("Read the page", extract(site.chosen.name, "nothing on this"))
    other.finish(f"{site.chosen.name} is not here.", success=False)
    return _written(task_id, success, other)


def _syntactic(rng: random.Random, task_id: str, block: Block) -> tuple[str, str]:
    """The same actions in other letters, spaces and layout; the judge saw it otherwise."""
    site, task = _shop(rng, task_id, block)
    success, other = (Run(site, task, random.Random(f"{task_id}/{number}")) for number in range(2))
    other.loose = True
    _book(success, site)
    _book(other, site, loose=True)
    return _written(task_id, success, other)


def _broken(rng: random.Random, task_id: str, block: Block) -> tuple[str, str]:
    """The second record has lost its chats, its replies and what its pages showed."""
    site, task = _shop(rng, task_id, block)
    first, second = (Run(site, task, random.Random(f"{task_id}/{number}")) for number in range(2))
    _book(first, site)
    _book(second, site)
    success, other = _written(task_id, first, second, why="Nothing can be seen.")
    record = json.loads(other)
    for step in record["steps"]:
        step["observation"] |= {"url": "", "title": "", "page_text": "", "elements": [], "screenshot": None}
        step |= {"messages": [], "response": "", "results": []}
    return success, json.dumps(record)


_MAKERS: dict[str, Callable[[random.Random, str, Block], tuple[str, str]]] = {
    "judged": _judged,
    "passive": _passive,
    "longer": _longer,
    "search": _search,
    "apart": _apart,
    "syntactic": _syntactic,
    "broken": _broken,
}
