"""Tests of the wiki's tasks without the wiki."""

from __future__ import annotations

import pytest

from collection.environments.apps.wiki.pages import HISTORY, dump
from collection.environments.apps.wiki.site import WIKI
from collection.environments.apps.wiki.tasks import CHANGES, QUESTIONS

SEEDS = range(24)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_has_an_answer_that_its_words_do_not_give(name: str) -> None:
    goals = [QUESTIONS[name](seed) for seed in SEEDS]
    assert all(goal.after == WIKI and goal.answer and goal.answer not in goal.words for goal in goals)
    assert len({goal.answer for goal in goals}) > 1


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_leaves_another_wiki_behind(name: str) -> None:
    goals = [CHANGES[name](seed) for seed in SEEDS]
    assert all(goal.after != WIKI and not goal.answer for goal in goals)
    assert len({goal.words for goal in goals}) > 1


def test_who_watches_a_page_watches_it_under_its_new_title() -> None:
    after = WIKI.moved("Bird hides", "Hides", "Alder")
    assert ("Birch", "Hides") in after.watched and ("Birch", "Bird hides") in after.watched
    assert after.pages["Hides"].lines == WIKI.pages["Bird hides"].lines
    assert "Bird hides" not in after.pages


def test_no_two_versions_have_the_same_date_and_all_are_in_the_dump() -> None:
    dates = [revision.date for revisions in HISTORY.values() for revision in revisions]
    assert len(set(dates)) == len(dates) == dump().count("<revision>")
