"""A data set for speed: many tasks, each with several runs of realistic size."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr

from rmsweb_jax.records.dataset import Manifest, write_dataset
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import Trajectory
from tests.mining.planted.build import CATEGORIES, NEWS, failure_json, success_json
from tests.mining.planted.pages import SCREENSHOTS, Block
from tests.mining.planted.recorded import filler
from tests.mining.planted.run import Run
from tests.mining.planted.stories.story import Setting, Story

# A record of 20 steps and 300 elements has about 1.5 MB: a shard is held in memory twice.
_SHARD_RECORDS = 32
_BLOCKS = 8
_ELEMENTS_PER_LINE = 1.75


class Written(Trajectory):
    """A trajectory that exists as JSON only; nothing but its JSON can be asked for."""

    _json: str = PrivateAttr("")

    @classmethod
    def of(cls, text: str) -> Written:
        record = cls.model_construct()
        record._json = text
        return record

    def model_dump_json(self, **_: Any) -> str:
        return self._json


def write_pool(folder: Path, tasks: int, runs: int, steps: int, elements: int, seed: int) -> Manifest:
    """Writes a `trajectories` data set with its screenshots; the records are made while it is written.

    Args:
      runs: a task; every second one fails with the divergence planted, categories taking turns with tasks.
      steps: a run, about.
      elements: a page, about; pages of the search engine and of walls are small as ever.
    """
    images = ImageStore(folder)
    for _, png in SCREENSHOTS:
        images.put(png)
    given = {"tasks": tasks, "runs": runs, "steps": steps, "elements": elements, "seed": seed}
    records = (Written.of(text) for text in pool_json(**given))
    return write_dataset(folder, records, "trajectories", {"planted": given}, _SHARD_RECORDS)


def pool_json(tasks: int, runs: int, steps: int, elements: int, seed: int) -> Iterator[str]:
    """The records of `write_pool`, each as JSON."""
    height = max(20, round(elements / _ELEMENTS_PER_LINE / 2))
    rng, names = random.Random(f"pool/{seed}"), list(CATEGORIES)
    blocks = [filler(rng, 3 * height) for _ in range(_BLOCKS)]
    for number in range(tasks):
        category = names[number % len(names)]
        yield from _task_runs(
            f"pool/{category}/{seed}-{number}", category, rng.choice(blocks), height, runs, steps
        )


def _task_runs(
    task_id: str, category: str, block: Block, height: int, runs: int, steps: int
) -> Iterator[str]:
    rng = random.Random(task_id)
    story = rng.choice(CATEGORIES[category])(Setting(task_id, rng, block, height))
    news = rng.sample(NEWS, 2)
    pauses = {fails: _pauses(story, fails, steps) for fails in (True, False)}
    for attempt in range(1, runs + 1):
        fails = attempt % 2 == 1 if runs > 1 else rng.random() < 0.5
        run = Run(story.site, story.task, random.Random(f"{task_id}/{attempt}"))
        run.browser.state["news"] = rng.choice(news)
        run.pauses = list(pauses[fails])
        _script(story, fails)(run)
        yield failure_json(story, run, attempt) if fails else success_json(story, run, attempt)


def _script(story: Story, fails: bool) -> Callable[[Run], None]:
    return story.localization if fails else story.success


def _pauses(story: Story, fails: bool, steps: int) -> list[int]:
    """Detours that make a run about so long, spread over its length."""
    run = Run(story.site, story.task, random.Random(0))
    _script(story, fails)(run)
    missing, places = max(0, steps - len(run)), max(1, run.places)
    return [missing // places + (place < missing % places) for place in range(places)]
