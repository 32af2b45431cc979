"""Actors that `config.actor.kind` can name: the hand-written policies, and guesses."""

from __future__ import annotations

import random

from tests.apps.actor import Page, Policy, ScriptedActor, click, done
from tests.apps.moves import Playing
from tests.apps.policies import policies_of


def guess(page: Page) -> Playing:
    """Clicks at random, and answers with a word of the last page."""
    draw = random.Random(page.request)
    for _ in range(draw.randint(1, 6)):
        if not page.all():
            break
        page = yield "Click", [click(draw.choice(page.all()).index)]
    words = " ".join(page.lines).split() or ["none"]
    yield done(draw.choice(words))


class HandWritten(ScriptedActor):
    """Plays each task by the policy of its template."""

    def __init__(self) -> None:
        super().__init__(_policy_of)


class Guessing(ScriptedActor):
    """Plays `guess`."""

    def __init__(self) -> None:
        super().__init__(lambda _: guess)


def _policy_of(task_id: str) -> Policy:
    application, template, _ = task_id.split("/")
    return policies_of(application)[template]
