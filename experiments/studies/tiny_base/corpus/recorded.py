"""Records pages of MiniWoB++ in the browser, fresh and after a few random actions.

It keeps pages, never tasks: no action is chosen by the page's request, and a page under its START cover,
which only shows that a task is over, is left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from collection.browser.actions import ActionContext, execute
from collection.browser.config import BrowserConfig
from collection.browser.page import parse_page
from collection.browser.session import Browser, BrowserLostError, PageError
from collection.browser.snapshot import observe
from collection.environments.miniwob import MiniWobEpisode, MiniWobServer, make_task
from experiments.studies.tiny_base.corpus.questions import find_targets, goal_for
from experiments.studies.tiny_base.corpus.stream import PromptPage
from rmsweb_jax.actions import normalize_action
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.journal import Journal, read_journal
from rmsweb_jax.records.schema import Observation, Record

_JOURNAL = "pages.jsonl"


class RecordedEpisode(Record):
    """Observations of one page and seed, in order; none when the page could not be shown."""

    page: str
    seed: int
    objective: str = ""
    looks: tuple[tuple[Observation, str], ...] = ()


def record_episodes(folder: Path, wanted: Iterable[tuple[str, int]], max_actions: int) -> None:
    """Records the pages and seeds that `folder` does not hold yet.

    Args:
      wanted: names of MiniWoB++ pages with a seed each.
      max_actions: random actions on a page at most; it is observed after each.
    """
    done = {(episode.page, episode.seed) for episode in read_episodes(folder)}
    missing = [key for key in wanted if key not in done]
    if not missing:
        return
    images = ImageStore(folder)
    with MiniWobServer() as server, Journal(folder / _JOURNAL) as journal:
        config = BrowserConfig(
            width=500, height=320, quiet_ms=50, settle_ms=1000, host_rules=server.host_rules
        )
        browser = Browser(config)
        try:
            for page, seed in missing:
                try:
                    episode = _record(browser, images, page, seed, max_actions)
                except BrowserLostError:
                    browser.close()
                    browser = Browser(config)
                    episode = RecordedEpisode(page=page, seed=seed)
                journal.append(episode.model_dump_json().encode())
        finally:
            browser.close()


def _record(browser: Browser, images: ImageStore, page: str, seed: int, max_actions: int) -> RecordedEpisode:
    rng = random.Random(f"{page}/{seed}")
    episode = MiniWobEpisode(browser)
    try:
        task = episode.reset(make_task(page, seed))
    except PageError:
        return RecordedEpisode(page=page, seed=seed)
    looks: list[tuple[Observation, str]] = []
    for _ in range(rng.randint(0, max_actions) + 1):
        look = observe(browser, images)
        lines = {line.strip() for line in look[0].page_text.split("\n")}
        targets = find_targets(parse_page(look[0].page_text))
        if "START" in lines or not targets:
            break
        looks.append(look)
        goal = goal_for(rng, rng.choice(targets), targets)
        execute(browser, normalize_action(goal.action), ActionContext())
    return RecordedEpisode(page=page, seed=seed, objective=task.objective, looks=tuple(looks))


def read_episodes(folder: Path) -> list[RecordedEpisode]:
    """Reads the episodes that `record_episodes` has written so far."""
    path = folder / _JOURNAL
    if not path.exists():
        return []
    return [RecordedEpisode.model_validate_json(line) for line in read_journal(path)]


def pages_of(episodes: Iterable[RecordedEpisode]) -> Iterator[PromptPage]:
    """Yields each observation as a page for `experiments.studies.tiny_base.corpus.stream`."""
    for episode in episodes:
        for observation, stats in episode.looks:
            yield PromptPage(
                nodes=tuple(parse_page(observation.page_text)),
                text=observation.page_text,
                url=observation.url,
                title=observation.title,
                tab_id=observation.current_tab,
                stats=stats,
                objective=episode.objective,
                screenshot=observation.screenshot or "",
                pages_above=observation.pages_above,
                pages_below=observation.pages_below,
            )
