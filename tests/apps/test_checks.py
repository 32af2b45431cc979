"""Checks of all templates: what they pay, what they refuse, and what memory of other worlds is worth."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from collection.environments.apps.suite import NAMES, make_application
from collection.environments.apps.tasks import Ending, shortfalls
from tests.apps.mutants import mutants, right
from tests.apps.policies import policies_of

SEEN = range(30)
UNSEEN = range(1000, 1008)
# A tenth of a second each; on the last three, templates once asked for what was there already.
IDLE = (*range(70), 101, 255, 269)


@pytest.mark.parametrize("name", NAMES)
def test_a_check_pays_what_was_asked_for_and_nothing_else(name: str) -> None:
    application = make_application(name, Path("apps"))
    for seed in range(4):
        world = application.world(seed)
        for template in application.templates:
            goal = application.goal(template, seed)
            assert not shortfalls(goal, *right(goal)), template
            assert shortfalls(goal, world, Ending(f"http://app.test{goal.start}", "")), template
            tried = 0
            # Thousands; `make proof-apps` tries those of five seeds.
            for mutant, holds, end in mutants(goal, world) if seed == 0 else ():
                assert shortfalls(goal, holds, end), f"{template}/{seed}: {mutant}"
                tried += 1
            assert tried > 5 or seed


@pytest.mark.parametrize("name", NAMES)
def test_doing_nothing_is_not_paid(name: str) -> None:
    application = make_application(name, Path("apps"))
    for seed in IDLE:
        for template in application.templates:
            goal = application.goal(template, seed)
            assert shortfalls(goal, application.world(seed), Ending(goal.start, "")), f"{template}/{seed}"


@pytest.mark.parametrize("name", NAMES)
def test_memory_of_other_worlds_is_worth_no_more_than_the_most_frequent_answer(name: str) -> None:
    """A policy that opens no page: it gives the answer of the same words, or the most frequent one."""
    application = make_application(name, Path("apps"))
    paid, chance, repeated, tasks = 0, 0.0, 0, 0
    for template in application.templates:
        seen = [application.goal(template, seed) for seed in SEEN]
        answers = {goal.words: goal.answer.text for goal in seen if goal.answer}
        common = collections.Counter(answers.values()).most_common(1)[0][0] if answers else ""
        for seed in UNSEEN:
            goal = application.goal(template, seed)
            tasks += 1
            repeated += goal.words in {one.words for one in seen}
            given = Ending("", answers.get(goal.words, common))
            paid += not shortfalls(goal, application.world(seed), given)
            chance += bool(goal.answer and common and goal.answer.accepts(common, goal.words))
    assert paid <= chance
    assert repeated < 0.05 * tasks


@pytest.mark.parametrize("name", NAMES)
def test_every_template_has_a_policy_and_levels(name: str) -> None:
    application = make_application(name, Path("apps"))
    assert set(policies_of(name)) == set(application.templates)
    assert set(application.carried) <= set(application.templates)
