"""Pairs by category and seed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from rmsweb_jax.records.schema import Trajectory
from tests.mining.planted.recorded import filler
from tests.mining.planted.run import Run
from tests.mining.planted.stories import choices, endings, evidence
from tests.mining.planted.stories.story import Setting, Story
from tests.mining.planted.unplanted import KINDS, unplanted_json

# The paper's categories (RMSWeb, table of failure labels), each with the stories that plant it.
CATEGORIES: dict[str, tuple[Callable[[Setting], Story], ...]] = {
    "unverifiable_evidence": (evidence.unopened_source,),
    "endpoint_incomplete": (endings.not_taken, endings.not_confirmed),
    "access_obstruction": (evidence.wall,),
    "ui_navigation": (choices.dead_list, choices.unopened_tab),
    "runtime_evaluation": (endings.lost_trace,),
    "constraint_mismatch": (choices.broken_limit,),
    "filter_context": (choices.claimed_filter,),
    "datetime_availability": (choices.skipped_date,),
    "target_discovery": (evidence.repeated_search, evidence.endless_list),
    "extraction_omission": (evidence.missing_field, evidence.missing_tab),
    "login_payment_boundary": (endings.unused_login, endings.invented_card),
}
NEWS = (
    "Open on Sunday this week", "New opening hours from May", "Newsletter: every second Friday",
    "Short survey: how do you like this site?", "Maintenance tonight from 23:00", "Follow us for news",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Planted:
    """A success and a localization run of one task.

    Attributes:
      category: the planted failure mode; None when nothing is planted.
      success_step, localization_step: the critical divergence, 1-based; 0 when nothing is planted.
      acceptable_localization_steps: every step at which the run is in that state and does not take
        the decision, `localization_step` (the mistake itself, the last time it is made) among them.
      note: what the decision is, for people.
    """

    success: Trajectory
    localization: Trajectory
    category: str | None
    success_step: int
    localization_step: int
    acceptable_localization_steps: tuple[int, ...] = ()
    note: str = ""


def planted_pair(category: str, seed: int) -> Planted:
    """The pair of a category and seed, always the same.

    Raises:
      KeyError: there is no such category.
    """
    stories = CATEGORIES[category]
    rng = random.Random(f"{category}/{seed}")
    height = rng.randint(45, 60)
    story = rng.choice(stories)(
        Setting(f"planted/{category}/{seed}", rng, filler(rng, rng.randint(25, 130)), height)
    )
    success = walk(story, story.success, f"{category}/{seed}/success")
    localization = walk(story, story.localization, f"{category}/{seed}/localization")
    failed = Trajectory.model_validate_json(failure_json(story, localization, 2))
    return Planted(
        success=Trajectory.model_validate_json(success_json(story, success, 1)),
        localization=failed,
        category=category,
        success_step=success.critical[0],
        localization_step=localization.critical[-1],
        acceptable_localization_steps=_standing(failed, localization.critical),
        note=story.note,
    )


def _standing(failed: Trajectory, marked: list[int]) -> tuple[int, ...]:
    """The marked steps, and later ones at the same address: there the mistake is only prolonged.

    The last step of a run is none of them: mining looks at steps that something follows.
    """
    addresses = {failed.steps[number - 1].observation.url for number in marked}
    later = [step.number for step in failed.steps[marked[0] - 1 : -1] if step.observation.url in addresses]
    return tuple(sorted({*marked, *later}))


def unplanted_pair(seed: int) -> Planted:
    """A pair whose second run failed, or was longer, for no decision at an aligned state.

    The kinds (`unplanted.KINDS`) take turns with the seed.
    """
    kind = KINDS[seed % len(KINDS)]
    success, localization = unplanted_json(
        kind, random.Random(f"unplanted/{seed}"), f"unplanted/{kind}/{seed}"
    )
    return Planted(
        success=Trajectory.model_validate_json(success),
        localization=Trajectory.model_validate_json(localization),
        category=None,
        success_step=0,
        localization_step=0,
        note=kind,
    )


def walk(story: Story, script: Callable[[Run], None], name: str, spare: int = 14) -> Run:
    """One run of a story.

    Args:
      name: seeds what is this run's own: words, detours, what the site shows on the side.
      spare: the most steps that may go into detours.
    """
    own = random.Random(name)
    run = Run(story.site, story.task, own, rate=own.choice((0.1, 0.3, 0.5)), spare=own.randint(0, spare))
    run.browser.state["news"] = own.choice(NEWS)
    if own.random() < 0.2:
        run.browser.state["ref"] = own.choice(("mail", "campaign7", "start"))
    script(run)
    return run


def success_json(story: Story, run: Run, attempt: int) -> str:
    identity = f"{story.task.task_id}#teacher-{attempt}"
    return run.json(identity, attempt, True, "The page shows what the task asks for. SUCCESS")


def failure_json(story: Story, run: Run, attempt: int) -> str:
    """A run without a `done` is judged without a call: the judge has written nothing."""
    verdict = f"{story.why} NOT SUCCESS" if run.outcome == "done" else ""
    return run.json(f"{story.task.task_id}#teacher-{attempt}", attempt, False, verdict)
