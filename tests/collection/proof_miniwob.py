"""MiniWoB++ pages solved by scripted policies that use only what an agent is shown.

python -m tests.collection.proof_miniwob --output=docs/results/miniwob.md
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from selenium.common.exceptions import WebDriverException

from collection.browser.config import BrowserConfig
from collection.browser.session import Browser, PageError
from collection.environments.miniwob import MiniWobEpisode, MiniWobServer, make_task, page_names
from rmsweb_jax.records.files import write_atomic
from rmsweb_jax.records.images import ImageStore
from tests.collection.miniwob_acts import act_on_page
from tests.collection.miniwob_solvers import DEMO, MORE, Hand

GOAL = 25
# Neither those of the tests nor those of the demo.
SEEDS = (101, 202, 303, 404, 505)
INTRODUCTION = """\
# MiniWoB++ solved from what an agent is shown

    make proof-miniwob

runs `{command}`, which writes this page ({seconds:.0f} s here; python {python}). The policies
(`tests/collection/miniwob_solvers.py`) see the objective and the element lines, and act through the agent's
own actions with real input events. An episode is solved when the page itself pays its full reward, 1.0.

All {all} pages of the package are served. Each was looked at, with a screenshot, and acted on, {acts}
actions in all (typing, lists, keys, scrolling, clicks): {unbroken} of {all} without an exception.
The wheel's remaining tasks, the recorded airline sites under `flight/`, are no pages of MiniWoB++ but copies
of real sites in a frame; they are served, but not counted here.

{solved} of {tried} task types are solved in {seeds} of {seeds} seeds ({numbers}); the goal is {goal}.

| page | seeds solved | mean actions |
| --- | --- | --- |
{rows}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Plays and writes the page.

    Raises:
      SystemExit: the goal was not reached; the page is written all the same.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    acts = act_on_all()
    counts = play_all()
    full = [page for page, actions in counts.items() if len(actions) == len(SEEDS)]
    rows = [
        f"| {page} | {len(actions)}/{len(SEEDS)} | {statistics.mean(actions):.1f} |"
        if actions
        else f"| {page} | 0/{len(SEEDS)} | - |"
        for page, actions in sorted(counts.items())
    ]
    page = INTRODUCTION.format(
        command=f"python -m tests.collection.proof_miniwob --output={options.output}",
        seconds=time.perf_counter() - start,
        python=platform.python_version(),
        all=len(page_names()),
        acts=sum(acts.values()),
        unbroken=len(acts),
        solved=len(full),
        tried=len(counts),
        seeds=len(SEEDS),
        numbers=", ".join(map(str, SEEDS)),
        goal=GOAL,
        rows="\n".join(rows),
    )
    write_atomic(options.output, page.encode())
    if len(full) < GOAL:
        sys.exit(f"error: {len(full)} task types solved in every seed, the goal is {GOAL}")
    if len(acts) < len(page_names()):
        sys.exit(f"error: {len(page_names()) - len(acts)} pages could not be acted on")


@contextlib.contextmanager
def _browser() -> Iterator[Browser]:
    with MiniWobServer() as server:
        config = BrowserConfig(width=500, height=320, host_rules=server.host_rules, quiet_ms=20)
        with Browser(config) as browser:
            yield browser


def act_on_all() -> dict[str, int]:
    """How many actions were tried on each page that took them without an exception."""
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


if __name__ == "__main__":
    main()
