"""The interface of a story, and the walks that many stories share."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from rmsweb_jax.records.schema import Task
from tests.mining.planted.acts import Act, choose, click, fill, press, search
from tests.mining.planted.catalogue import Catalogue
from tests.mining.planted.documents import Documents
from tests.mining.planted.pages import Block
from tests.mining.planted.run import Run

Script = Callable[[Run], None]


@dataclasses.dataclass(frozen=True)
class Story:
    """Two scripts for one task on one site.

    Attributes:
      site: what the runs walk over.
      why: what a judge writes about the localization run.
      note: what the planted decision is.
    """

    site: Any
    task: Task
    success: Script
    localization: Script
    why: str
    note: str


@dataclasses.dataclass(frozen=True)
class Setting:
    """The context of a story; `rng` draws what both runs share."""

    task_id: str
    rng: random.Random
    filler: Block
    height: int


def to_results(run: Run, site: Catalogue) -> None:
    """From the start page to the list of all things."""
    noun = site.theme.noun
    run.wander(0.4)
    way = run.rng.randrange(3)
    if way == 0:
        goal = (f"Open the list of all {noun}", f"See all {noun}")
        run.do(goal, click(f"All {noun}"), note=(f"On {site.name}.", f"Started at {site.name}."))
    else:
        words = run.rng.choice(site.theme.words)
        last: Act = click("Search") if way == 1 else press("Enter")
        goal = (f"Search the site for {words}", f"Use the search box: {words}")
        run.do(goal, fill("Search box", words), last, note=(f"On {site.name}.", f"Started at {site.name}."))
    run.note((f"The list of {noun} is open.", f"Found the list of {noun}."))


def to_item(run: Run, site: Catalogue, number: int | None = None, critical: bool = False) -> None:
    """From the list to one thing; without `number` to the target."""
    name = site.items[site.target if number is None else number].name
    run.do((f"Open {name}", f"Look at {name}"), click(name), note=f"{name} is listed.", critical=critical)
    run.note((f"{name} is open.", f"On the page of {name}."))


def pick(run: Run, site: Catalogue, value: str) -> None:
    """Chooses the option and the language that the task names, in either order."""
    fields = [(site.theme.option[0], value), ("Messages in", site.language)]
    run.rng.shuffle(fields)
    for label, chosen in fields:
        run.do((f"Choose {label} {chosen}", f"Set {label} to {chosen}"), choose(label, chosen))
    for label, chosen in sorted(fields):
        run.note(f"{label} is {chosen}.")


def options_line(site: Catalogue, value: str) -> str:
    """The constraint that `pick` keeps."""
    return f"{site.theme.option[0]}: {value}; messages in {site.language}"


def take(run: Run, site: Catalogue, critical: bool = False) -> None:
    theme = site.theme
    run.do((theme.act, f"Press {theme.act}"), click(theme.act), critical=critical)
    run.note((f"Pressed {theme.act}.", f"{theme.act} was pressed."))


def confirm(run: Run, site: Catalogue, critical: bool = False) -> None:
    theme = site.theme
    run.do((theme.finish, f"Press {theme.finish}"), click(theme.finish), critical=critical)


def report(run: Run, site: Catalogue, extra: str = "") -> None:
    """The end of a run that reached the confirmation."""
    run.note(f"Confirmed with reference {site.number}.")
    run.finish(f"{site.chosen.name}{extra}: {site.theme.confirmed.lower()}, reference {site.number}.")


def to_engine(run: Run, site: Documents) -> None:
    """From the start page to a search engine's results."""
    run.wander(0.4)
    query = run.rng.choice(site.theme.words)
    run.do((f"Search the web for {query}", f"Look for {query}"), search(query), note=f"On {site.name}.")
    run.note("The search results are open.")


def to_document(run: Run, site: Documents) -> None:
    """From the start page through the section to the document."""
    theme = site.theme
    run.wander(0.4)
    if run.rng.random() < 0.3:
        run.do(f"Try {theme.sections[4]} first", click(theme.sections[4]), note=f"On {site.name}.")
        run.do("Go back to the start page", click(site.name), calm=True)
    run.do((f"Open {theme.section}", f"Go to {theme.section}"), click(theme.section), note=f"On {site.name}.")
    run.wander(0.3)
    run.do((f"Open {theme.document}", f"Read {theme.document}"), click(theme.document))
    run.note(f"{theme.document} is open.")
