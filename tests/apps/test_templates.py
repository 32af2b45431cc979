"""Templates that several applications have: their words, their answers, and the worlds that they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from collection.environments.apps.suite import make_application
from collection.environments.apps.templates import Draw, ask
from collection.environments.apps.world import World

WORLD: World = {"people": {"ann": {}, "bob": {}}, "notes": {1: {"title": "Tide", "by": ["bob"]}}}


def test_a_question_whose_answer_is_computed_names_the_wrong_ones() -> None:
    words = 'Who wrote "{title}"?'
    goal = ask(words, "notes", lambda world, key, row: row["by"][0], among="people")(WORLD, Draw(0))
    assert goal.answer is not None and goal.words == 'Who wrote "Tide"? Change nothing.'
    assert goal.answer.accepts("It was Bob.") and not goal.answer.accepts("Bob and Ann")


@pytest.mark.parametrize(
    ("name", "template", "wrong"),
    [
        ("helpdesk", "number", "none"),
        ("helpdesk", "of-submitter", "none"),
        ("helpdesk", "category", "none"),
        ("machina", "no-topic", "Nils"),
        ("machina", "no-reply", "Nils"),
    ],
)
def test_a_task_that_asks_for_one_thing_or_another_refuses_both(name: str, template: str, wrong: str) -> None:
    application = make_application(name, Path("apps"))
    tried = 0
    for seed in range(12):
        goal = application.goal(template, seed)
        assert goal.answer is not None
        right = goal.answer.text
        # Names that the task has may be repeated.
        if right != wrong and f"did {wrong} write" not in goal.words:
            assert not goal.answer.accepts(f"{right}, {wrong}", goal.words), seed
            assert not goal.answer.accepts(f"{wrong}. {right}", goal.words), seed
            tried += 1
    assert tried > 3


def test_sections_about_what_is_new_have_different_titles() -> None:
    application = make_application("docs", Path("apps"))
    for seed in (14, 44, 87):
        releases = application.world(seed)["releases"].values()
        titles = [title for row in releases for _, title in row["features"]]
        assert len(set(titles)) == len(titles), seed
