"""BrowserGym's side of the comparison; runs in the environment that BrowserGym is installed in.

Reads one order a line, and answers each with one line. `{"page": ..., "seed": ..., "rounds": ...,
"delay": ...}` gives seconds: `{"reset": ..., "noop": [...], "click": [...], "type": [...]}`. `{"page": ...,
"seeds": ...}` plays whole episodes, and gives their rewards, steps and seconds.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from typing import Any

import browsergym.miniwob  # noqa: F401  # pyright: ignore[reportMissingImports]  # Registers the tasks.
import gymnasium  # pyright: ignore[reportMissingImports]
from browsergym.utils.obs import flatten_axtree_to_str  # pyright: ignore[reportMissingImports]

_FIELD = "() => document.querySelector('#area input, #area textarea').getAttribute('bid')"


def play(order: dict[str, Any]) -> dict[str, Any]:
    """Plays one episode's steps."""
    name = f"browsergym/miniwob.{order['page']}"
    env = gymnasium.make(name, pre_observation_delay=order["delay"], disable_env_checker=True)
    try:
        start = time.perf_counter()
        _read(env.reset(seed=order["seed"])[0])
        seconds: dict[str, Any] = {"reset": time.perf_counter() - start, "noop": [], "click": [], "type": []}
        browser_env: Any = env.unwrapped
        bid = browser_env.page.evaluate(_FIELD)
        for number in range(order["rounds"]):
            actions = {
                "noop": "noop(0)",
                "click": f"click('{bid}')",
                "type": f"fill('{bid}', 'word {number}')",
            }
            for kind, action in actions.items():
                start = time.perf_counter()
                observation, _, ended, _, _ = env.step(action)
                _read(observation)
                seconds[kind].append(time.perf_counter() - start)
                if ended or observation["last_action_error"]:
                    raise RuntimeError(f"{name}: {action}: {observation['last_action_error'] or 'ended'}")
        return seconds
    finally:
        env.close()


def play_episodes(order: dict[str, Any]) -> dict[str, Any]:
    """Plays each seed twice, by calls that solve the task and by `send_msg_to_user` alone.

    BrowserGym's delays are left out, and a page may load for longer than by default. One episode is played
    first and not counted.
    """
    page, seeds = order["page"], order["seeds"]
    settings = {"pre_observation_delay": 0.0, "slow_mo": 0, "timeout": 60_000}
    env = gymnasium.make(f"browsergym/miniwob.{page}", disable_env_checker=True, **settings)
    rewards: dict[str, list[float]] = {"oracle": [], "null": []}
    steps = failed = 0
    try:
        _episode(env, page, seeds[0], True)
        start = time.perf_counter()
        for seed in seeds:
            for policy, found in rewards.items():
                reward, errors = _episode(env, page, seed, policy == "oracle")
                found.append(reward)
                steps += len(errors)
                failed += sum(errors)
        seconds = time.perf_counter() - start
        return {"rewards": rewards, "steps": steps, "failed": failed, "seconds": seconds}
    finally:
        env.close()


def _episode(env: Any, page: str, seed: int, solve: bool) -> tuple[float, list[bool]]:
    """Plays an episode; returns its reward, and for each step whether BrowserGym reports an error."""
    observation, _ = env.reset(seed=seed)
    _read(observation)
    calls = ["send_msg_to_user('done')"]
    if solve:
        (text,) = re.findall(r'"([^"]*)"', observation["goal"])
        buttons = "Array.from(document.querySelectorAll('#area button'))"
        if page == "click-button":
            find = f"() => {buttons}.find(one => one.textContent == {json.dumps(text)}).getAttribute('bid')"
            calls = [f"click('{env.unwrapped.page.evaluate(find)}')"]
        else:
            field = env.unwrapped.page.evaluate(_FIELD)
            button = env.unwrapped.page.evaluate(f"() => {buttons}[0].getAttribute('bid')")
            calls = [f"fill('{field}', {text!r})", f"click('{button}')"]
    reward, errors = 0.0, list[bool]()
    for call in calls:
        observation, reward, ended, _, _ = env.step(call)
        _read(observation)
        errors.append(bool(observation["last_action_error"]))
        if ended:
            break
    return float(reward), errors


def _read(observation: dict[str, Any]) -> str:
    """Returns the page text that BrowserGym shows to its agents."""
    return flatten_axtree_to_str(observation["axtree_object"])


def main() -> None:
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            order = json.loads(line)
            answers.write(json.dumps(play_episodes(order) if "seeds" in order else play(order)) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
