"""MiniWoB++ pages that scripted policies solve from what an agent is shown. A minute or two."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from selenium.common.exceptions import WebDriverException

from collection.browser.config import BrowserConfig
from collection.browser.session import Browser, PageError
from collection.environments.miniwob import MiniWobEpisode, MiniWobServer, make_task, page_names
from rmsweb_jax.records.images import ImageStore
from tests.environments.miniwob_acts import act_on_page
from tests.environments.miniwob_solvers import DEMO, MORE, Hand
from tests.proofs.result import Claim, Figures, Proof, main, table

GOAL = 25
# Neither those of the tests nor those of the demo.
SEEDS = (101, 202, 303, 404, 505)


def measure() -> Figures:
    acts = act_on_all()
    counts = play_all()
    return {
        "pages": len(page_names()),
        "pages_acted_on": len(acts),
        "actions": sum(acts.values()),
        "seeds": list(SEEDS),
        "solved": [
            {
                "page": page,
                "seeds_solved": len(actions),
                "mean_actions": round(statistics.mean(actions), 1) if actions else None,
            }
            for page, actions in sorted(counts.items())
        ],
    }


@contextlib.contextmanager
def _browser() -> Iterator[Browser]:
    with MiniWobServer() as server:
        config = BrowserConfig(width=500, height=320, host_rules=server.host_rules, quiet_ms=20)
        with Browser(config) as browser:
            yield browser


def act_on_all() -> dict[str, int]:
    """Actions tried on each page that accepted all of them without an exception."""
    counts: dict[str, int] = {}
    with _browser() as browser, tempfile.TemporaryDirectory() as folder:
        for page in page_names():
            try:
                counts[page] = act_on_page(MiniWobEpisode(browser), ImageStore(Path(folder)), page)
            except (AssertionError, PageError, WebDriverException) as problem:
                print(f"{page}: {problem}", file=sys.stderr)
    return counts


def play_all() -> dict[str, list[int]]:
    """For each page, how many actions each solved seed took."""
    counts: dict[str, list[int]] = {}
    with _browser() as browser:
        for page, solve in {**DEMO, **MORE}.items():
            counts[page] = []
            for seed in SEEDS:
                episode = MiniWobEpisode(browser)
                hand = Hand(browser, episode.reset(make_task(page, seed)).objective)
                try:
                    solve(hand)
                except (AssertionError, StopIteration, LookupError) as problem:
                    print(f"{page}, seed {seed}: {problem}", file=sys.stderr)
                if episode.status() == (True, 1.0):
                    counts[page].append(hand.actions)
                else:
                    print(f"{page}, seed {seed}: not solved", file=sys.stderr)
    return counts


def claims(figures: Figures) -> list[Claim]:
    full = sum(row["seeds_solved"] == len(figures["seeds"]) for row in figures["solved"])
    acted, pages = figures["pages_acted_on"], figures["pages"]
    return [
        Claim(
            f"at least {GOAL} task types are solved in each of {len(figures['seeds'])} seeds",
            f"{full} of {len(figures['solved'])}",
            full >= GOAL,
        ),
        Claim("each page can be observed and acted on", f"{acted} of {pages} pages", acted == pages),
    ]


def tables(figures: Figures) -> str:
    seeds = len(figures["seeds"])
    rows = [
        (
            row["page"],
            f"{row['seeds_solved']}/{seeds}",
            "-" if row["mean_actions"] is None else row["mean_actions"],
        )
        for row in figures["solved"]
    ]
    return table(("page", "seeds solved", "mean actions"), rows)


ABOUT = """\
The policies (`tests/environments/miniwob_solvers.py`) see the objective and the element lines, and act
through the agent's own actions with real input events. An episode is solved when the page itself gives its
full reward, 1.0. All {pages} pages of the package are served; each was observed, with a screenshot, and acted
on, {actions} actions in all (typing, lists, keys, scrolling, clicks). The wheel's remaining tasks, the
recorded airline sites under `flight/`, are no pages of MiniWoB++ but copies of real sites in a frame; they
are served, but not counted here.
"""
PROOF = Proof(
    "MiniWoB++ solved from the agent's observations",
    ABOUT,
    measure,
    claims,
    tables,
    ("selenium",),
    browser=True,
)

if __name__ == "__main__":
    main(PROOF)
