"""Responses that one core scores per second, from text to reward. A minute on an idle machine."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rmsweb_jax.actions import reward
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.actions.schema import ACTIONS
from tests.actions.replies import typed
from tests.actions.reward_cases import CASES
from tests.actions.reward_text_cases import TEXT_CASES
from tests.proofs.page import Check, publish, table

GOAL = 20_000
GROUP, ROUNDS = 8, 9
ROUND_SECONDS = 0.5
THOUGHTS = {
    "thinking": "The list shows twelve results and none of them has the brand yet. The filter on the left "
    "names it, and its box is not ticked, so it comes first; the price can be set afterwards.",
    "evaluation_previous_goal": "Success - the page of results opened.",
    "memory": "Task: the cheapest pair under $100. On the page of results, 12 of 48, no filter set so far.",
    "next_goal": "Tick the brand in the filter on the left.",
}
MIX = "every action type alike"

# Lists of (response, target).
Work = Sequence[tuple[str, str]]


def measure(round_seconds: float = ROUND_SECONDS) -> dict[str, Any]:
    by_type = cases_by_type()
    mix = mixed(by_type)
    pairs = [(_reply(typed(2, text)), _reply(typed(2, target))) for text, target, _, _ in TEXT_CASES]
    parts = {MIX: mix, "texts that nearly agree": pairs, "four actions against four": several(mix)}
    return {
        "thought_characters": sum(map(len, THOUGHTS.values())),
        "group": GROUP,
        "rounds": ROUNDS,
        "edge_cases": len(CASES),
        "text_cases": len(TEXT_CASES),
        "action_types": len(ACTIONS),
        "mixtures": [_rates(name, work, round_seconds) for name, work in parts.items()],
        "by_type": [_rates(name, work, round_seconds / 5) for name, work in by_type.items()],
    }


def cases_by_type() -> dict[str, list[tuple[str, str]]]:
    """(response, target) of the edge cases by the target's action type, exact responses as many as others."""
    found = defaultdict(list)
    for response, target, _, _ in CASES:
        pairs = found[normalize_action(target).name]
        pairs += [(_reply(response), _reply(target)), (_reply(target), _reply(target))]
    return {name: found[name] for name in ACTIONS}


def mixed(by_type: dict[str, list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """The same number of cases of each type, interleaved."""
    most = max(map(len, by_type.values()))
    return [work[turn % len(work)] for turn in range(most) for work in by_type.values()]


def several(work: Work) -> list[tuple[str, str]]:
    """Replies of four actions each, made of the valid single ones."""
    valid = [pair for pair in work if not reward.explain_response(*pair).error]
    chunks = [valid[start : start + 4] for start in range(0, len(valid) - 3, 4)]
    return [(_joined(one for one, _ in chunk), _joined(two for _, two in chunk)) for chunk in chunks]


def per_second(score_all: Callable[[], int], seconds: float) -> tuple[float, float]:
    """Median responses a second of CPU time and of wall time; `score_all` scores once and says how many."""
    score_all()
    cpu, wall = [], []
    for _ in range(ROUNDS):
        begin_cpu, begin, count = time.process_time(), time.perf_counter(), 0
        while time.process_time() - begin_cpu < seconds:
            count += score_all()
        cpu.append(count / (time.process_time() - begin_cpu))
        wall.append(count / (time.perf_counter() - begin))
    return statistics.median(cpu), statistics.median(wall)


def _rates(name: str, work: Work, seconds: float) -> dict[str, Any]:
    def cold() -> int:
        for response, target in work:
            reward._target_actions.cache_clear()
            reward.score_response(response, target)
        return len(work)

    def group() -> int:
        for response, target in work:
            reward._target_actions.cache_clear()
            for _ in range(GROUP):
                reward.score_response(response, target)
        return GROUP * len(work)

    cold_rate, cold_wall = per_second(cold, seconds)
    group_rate, group_wall = per_second(group, seconds)
    return {
        "responses": name,
        "cases": len(work),
        "cold_per_second": round(cold_rate),
        "cold_per_wall_second": round(cold_wall),
        "group_per_second": round(group_rate),
        "group_per_wall_second": round(group_wall),
    }


def _reply(*actions: Any) -> str:
    return json.dumps(THOUGHTS | {"action": list(actions)}, ensure_ascii=False, separators=(",", ":"))


def _joined(replies: Iterable[str]) -> str:
    return _reply(*(action for text in replies for action in json.loads(text)["action"]))


def checks(figures: dict[str, Any]) -> list[Check]:
    (mix,) = (row for row in figures["mixtures"] if row["responses"] == MIX)
    rate = mix["cold_per_second"]
    return [
        (
            f"one core scores {GOAL:,} single actions a second, without cached targets",
            f"{rate:,} a second",
            rate >= GOAL,
        )
    ]


ABOUT = """\
**No baseline, no control:** rates are held against a fixed goal. No other scorer is timed, so the page does
not say that this one is fast, and nothing here judges its scores.

A score is a whole `score_response(response, target)`: both replies are parsed strictly from text, compared,
and averaged over their actions. Each reply has {thought_characters} characters of thinking, evaluation,
memory and goal before its actions. *Cold*: the target is parsed anew for every response. *Group*: {group}
responses share a target, as in RL; it is parsed for the first and then cached. Rates are responses in a
second of CPU time on one core, the median of {rounds} rounds; rates per second of wall time include other
load.

The responses are {edge_cases} hand-written edge cases over all {action_types} action types
(`tests/actions/reward_cases.py`) and as many exact ones, and {text_cases} pairs of texts
(`tests/actions/reward_text_cases.py`).
"""

if __name__ == "__main__":
    found = measure()
    parts = (table(found["mixtures"]), "## By the target's action type", table(found["by_type"]))
    publish("reward", "The reward's speed", ABOUT.format(**found), found, checks(found), *parts)
