"""Answers of a labelling model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.llm.answers import completion
from tests.llm.server import Answer

REVIEW = "first reader"


def verdict(category: str = "ui_navigation", confidence: object = 0.9, reason: str = "It shows.") -> str:
    return json.dumps({"reason": reason, "category": category, "confidence": confidence})


def in_turn(first: Answer | str, review: Answer | str = "") -> Callable[[str], Answer]:
    """One answer for first judgments and one for reviews."""

    def reply_to(prompt: str) -> Answer:
        answer = review if REVIEW in prompt else first
        return completion(answer) if isinstance(answer, str) else answer

    return reply_to


def kept_in(path: Path) -> int:
    """The number of replies in a file of calls."""
    return sum(b'"key": ' in line for line in path.read_bytes().splitlines())


def user_of(prompt: str) -> int:
    """The number of the task of `tests.mining.runs` that a prompt is about."""
    found = re.search(r"as user (\d+)", prompt)
    assert found is not None
    return int(found[1])
