"""How many responses one core scores in a second, from text to reward.

python -m tests.actions.proof_reward --output=docs/results/reward.md
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rmsweb_jax.actions import reward
from rmsweb_jax.actions.parse import normalize_action
from rmsweb_jax.actions.schema import ACTIONS
from tests.actions.replies import typed
from tests.actions.reward_cases import CASES
from tests.actions.reward_text_cases import TEXT_CASES

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
INTRODUCTION = """\
# The reward's speed

    make proof-reward

runs `{command}`, which writes this page.
A score is a whole `score_response(response, target)`: both replies from text, parsed strictly, compared,
and averaged over their actions. Each reply carries {characters} characters of thinking, evaluation, memory
and goal before its actions.

- **cold**: the target is parsed anew for every response.
- **group**: {group} responses share a target, as in RL; it is parsed for the first and then remembered.

Rates are responses in a second of CPU time on one core, the median of {rounds} rounds. Wall time is beside
them; it also counts what else the machine did.
{machine}
"""

# Lists of (response, target).
Work = Sequence[tuple[str, str]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the page.

    Raises:
      SystemExit: the goal was not reached.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--round_seconds", type=float, default=ROUND_SECONDS)
    options = parser.parse_args(arguments)
    by_type = cases_by_type()
    mix = mixed(by_type)
    parts = {
        "every action type alike": mix,
        "texts that nearly agree": [
            (_reply(typed(2, text)), _reply(typed(2, target))) for text, target, _, _ in TEXT_CASES
        ],
        "four actions against four": several(mix),
    }
    rows = [_row(name, work, options.round_seconds) for name, work in parts.items()]
    kinds = [_row(f"`{name}`", work, options.round_seconds / 5) for name, work in by_type.items()]
    command = f"python -m tests.actions.proof_reward --output={options.output}"
    options.output.write_text(_page(command, rows, kinds), encoding="utf-8")
    if rows[0]["cold"] < GOAL:
        sys.exit(f"error: {rows[0]['cold']:,.0f} scores a second, the goal is {GOAL:,}")


def cases_by_type() -> dict[str, list[tuple[str, str]]]:
    """(response, target) of the edge cases by the target's action type, exact responses as many as others."""
    found = defaultdict(list)
    for response, target, _, _ in CASES:
        pairs = found[normalize_action(target).name]
        pairs += [(_reply(response), _reply(target)), (_reply(target), _reply(target))]
    return {name: found[name] for name in ACTIONS}


def mixed(by_type: dict[str, list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """As many cases of each type, turn by turn."""
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


def _row(name: str, work: Work, seconds: float) -> dict[str, Any]:
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
        "name": name,
        "cases": len(work),
        "cold": cold_rate,
        "cold_wall": cold_wall,
        "group": group_rate,
        "group_wall": group_wall,
    }


def _reply(*actions: Any) -> str:
    return json.dumps(THOUGHTS | {"action": list(actions)}, ensure_ascii=False, separators=(",", ":"))


def _joined(replies: Iterable[str]) -> str:
    return _reply(*(action for text in replies for action in json.loads(text)["action"]))


def _page(command: str, rows: list[dict[str, Any]], kinds: list[dict[str, Any]]) -> str:
    introduction = INTRODUCTION.format(
        command=command,
        characters=sum(map(len, THOUGHTS.values())),
        group=GROUP,
        rounds=ROUNDS,
        machine=_machine(),
    )
    tables = [
        "| responses | cases | cold /s | wall /s | group /s | wall /s |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {row['name']} | {row['cases']} | **{row['cold']:,.0f}** | {row['cold_wall']:,.0f} "
            f"| **{row['group']:,.0f}** | {row['group_wall']:,.0f} |"
            for row in rows
        ),
        "",
        f"The goal is {GOAL:,} single actions a second on one core, every type alike: "
        + ("reached" if rows[0]["cold"] >= GOAL else "missed")
        + " without any memory of targets.",
        "",
        f"The tests hold {len(CASES)} hand-written edge cases over all {len(ACTIONS)} action types",
        f"(`tests/actions/reward_cases.py`) and {len(TEXT_CASES)} pairs of texts",
        "(`tests/actions/reward_text_cases.py`), the latter in three fields and both directions.",
        "Here an edge case stands beside the exact response to its target: half of all responses are exact.",
        "",
        "## By the target's action type",
        "",
        "| target | cases | cold /s | group /s |",
        "| --- | --- | --- | --- |",
        *(f"| {row['name']} | {row['cases']} | {row['cold']:,.0f} | {row['group']:,.0f} |" for row in kinds),
    ]
    return "\n".join([introduction, *tables, ""])


def _machine() -> str:
    names = [line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")]
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("pydantic", "rapidfuzz", "ada-url"))
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    processor = names[0] if names else platform.machine()
    return (
        f"{processor}, {os.cpu_count()} cores, load average {load} at the end; "
        f"python {platform.python_version()}, {packages}."
    )


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


if __name__ == "__main__":
    main()
