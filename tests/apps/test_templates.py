"""Templates that several applications have: their words, their answers, and the worlds that they ask for."""

from __future__ import annotations

from collection.environments.apps.templates import Draw, ask
from collection.environments.apps.world import World

WORLD: World = {"people": {"ann": {}, "bob": {}}, "notes": {1: {"title": "Tide", "by": ["bob"]}}}


def test_a_question_whose_answer_is_computed_names_the_wrong_ones() -> None:
    words = 'Who wrote "{title}"?'
    goal = ask(words, "notes", lambda world, key, row: row["by"][0], among="people")(WORLD, Draw(0))
    assert goal.answer is not None and goal.words == 'Who wrote "Tide"? Change nothing.'
    assert goal.answer.accepts("It was Bob.") and not goal.answer.accepts("Bob and Ann")
