"""Plays episodes at an OpenEnv server by OpenEnv's own client, several sessions at once, and prints figures.

    python -m tests.gym.openenv_sessions URL PID SESSIONS EPISODES

It runs in an environment that has openenv. PID is the server's.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import psutil
from openenv.core import GenericEnvClient  # pyright: ignore[reportMissingImports]

from tests.gym.openenv_calls import OTHER, TASK, calls


async def episode(client: GenericEnvClient, task: str, seed: int, solve: bool) -> tuple[float, int]:
    """Plays an episode; returns its reward and its steps, without the message that ends a solved task."""
    result = await client.reset(seed=seed, task=task)
    assert result.reward is None and not result.done
    todo = calls(result.observation) if solve else []
    for call in (*todo, "send_msg_to_user('done')"):
        result = await client.step({"call": call})
    assert result.done, result
    return float(result.reward or 0.0), len(todo) or 1


async def session(url: str, number: int, episodes: int) -> dict[str, Any]:
    rewards: dict[str, list[float]] = {"oracle": [], "null": []}
    steps = 0
    async with GenericEnvClient(base_url=url, message_timeout_s=600.0) as client:
        await episode(client, TASK, 0, True)  # Its browser starts.
        start = time.monotonic()
        for seed in range(episodes):
            task = (TASK, OTHER)[seed % 2]
            for policy in rewards:
                reward, done = await episode(client, task, 100 * number + seed, policy == "oracle")
                rewards[policy].append(reward)
                steps += done
        seconds = time.monotonic() - start
        state = await client.state()
    return {"rewards": rewards, "steps": steps, "seconds": seconds, "state": state}


async def no_calls(url: str) -> None:
    """Checks that replies that are no calls, also objects with other keys, are steps with an error."""
    async with GenericEnvClient(base_url=url, message_timeout_s=600.0) as client:
        await client.reset(seed=0, task=TASK)
        replies = ({"action": [{"done": {}}]}, {"call": {"click": 3}}, {"call": "Let me think."}, {})
        results = [await client.step(reply) for reply in replies]
        assert all(result.observation["error"] and not result.done for result in results), results


async def one_too_many(url: str, sessions: int) -> str:
    """The error that the client of a session over the limit gets."""
    clients = [GenericEnvClient(base_url=url, message_timeout_s=600.0) for _ in range(sessions)]
    try:
        for client in clients:
            await client.connect()
        try:
            async with GenericEnvClient(base_url=url) as last:
                await last.reset(seed=0)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""
    finally:
        for client in clients:
            await client.close()


async def lost_browser(url: str, server: int) -> dict[str, Any]:
    """Kills a session's browser; returns the error of the client, and the reward of the next episode."""
    async with GenericEnvClient(base_url=url, message_timeout_s=600.0) as client:
        await client.reset(seed=1, task=TASK)
        for process in psutil.Process(server).children(recursive=True):
            if "chromium" in process.name() or process.name() == "chrome":
                process.kill()
        failed = ""
        try:
            await client.step({"call": "click('1')"})
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
        reward, _ = await episode(client, TASK, 1, True)
    return {"failed": failed, "next_reward": reward}


async def play(url: str, server: int, sessions: int, episodes: int) -> dict[str, Any]:
    await no_calls(url)
    lost = await lost_browser(url, server)
    start = time.monotonic()
    played = await asyncio.gather(*(session(url, number, episodes) for number in range(sessions)))
    together = time.monotonic() - start
    alone = await session(url, sessions, episodes)
    memory = sum(one.memory_info().rss for one in [psutil.Process(server)]) / 2**20
    return {
        "lost": lost,
        "played": played,
        "seconds": together,
        "alone": alone,
        "memory_mb": memory,
        "refused": await one_too_many(url, sessions),
    }


if __name__ == "__main__":
    url, server, sessions, episodes = sys.argv[1], *map(int, sys.argv[2:])
    print(json.dumps(asyncio.run(play(url, server, sessions, episodes))))
