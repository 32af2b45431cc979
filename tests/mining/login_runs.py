"""Runs of one login task: a success, and failures that leave its way in different places."""

from typing import Any

from collection.mining.runs import by_task, run_pairs
from collection.mining.score import Divergence, MiningConfig, find_divergence
from tests.trajectories import CLICK, DONE, SCROLL, TYPE, TYPE_PASSWORD, step, trajectory

CONFIG = MiningConfig()
MEMORIES = ("", "typed name", "typed password", "pressed login")
WRONG = {"input_text": {"index": 2, "text": "mallory-secret"}}
WRONG_BUTTON = {"click_element_by_index": {"index": 2}}
OBJECTIVE = "Log in as ann with xy7."


def steps(*actions, **options):
    """Steps of a form that looks the same until it is sent; memory says what was done."""
    return tuple(
        step(number, action, memory=memory, **options)
        for number, (action, memory) in enumerate(zip(actions, MEMORIES, strict=False), start=1)
    )


def after(number, memory="pressed login"):
    return step(number, DONE, page="START", elements=(("div", "START"),), memory=memory)


def success(**changes):
    values: dict[str, Any] = {"objective": OBJECTIVE, "actor": "teacher"} | changes
    return trajectory(*steps(TYPE, TYPE_PASSWORD, CLICK), after(4), **values)


def failure(*items, **changes):
    claimed = True if changes.get("outcome", "done") == "done" else None
    values = {"success": False, "actor": "sft", "declared_success": claimed, "objective": OBJECTIVE} | changes
    return trajectory(*items, **values)


def case_of(*runs) -> Divergence:
    """The best of the task's pairs, by rule labels."""
    pairs = run_pairs(next(iter(by_task(runs).values())))
    return max((find_divergence(pair, CONFIG) for pair in pairs), key=lambda case: case.rank)


WRONG_TEXT = failure(*steps(TYPE, WRONG, CLICK), after(4))
PREMATURE = failure(*steps(TYPE, DONE))
SKIPPED = failure(*steps(TYPE, CLICK), after(3))
INVALID = failure(
    *steps(TYPE), *(step(n, error="no JSON", response="Sure!") for n in (2, 3)), outcome="failures"
)
WANDERS = failure(
    *steps(TYPE), *(step(n, SCROLL, memory="typed name") for n in (2, 3, 4)), outcome="max_steps"
)
