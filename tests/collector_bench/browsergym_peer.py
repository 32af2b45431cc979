"""BrowserGym's side of the comparison; runs in the environment that BrowserGym is installed in.

Reads one order a line, `{"page": ..., "seed": ..., "rounds": ..., "delay": ...}`, and answers each with one
line of seconds: `{"reset": ..., "noop": [...], "click": [...], "type": [...]}`.
"""

from __future__ import annotations

import contextlib
import json
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


def _read(observation: dict[str, Any]) -> str:
    """Returns the page text that BrowserGym shows to its agents."""
    return flatten_axtree_to_str(observation["axtree_object"])


def main() -> None:
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            answers.write(json.dumps(play(json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
