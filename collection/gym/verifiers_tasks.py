"""A task set of verifiers, played at `collection.gym.openenv_server --prompt=compact`.

It needs `verifiers[openenv]`, and nothing of our extras. verifiers finds task sets by the name of a module
outside of packages: write `web_tasks.py` with `from collection.gym.verifiers_tasks import *` and
`from collection.gym.verifiers_tasks import __all__`, then

    vf-eval web-tasks --env.taskset.base-url http://127.0.0.1:8000 --env.taskset.seeds 100 ...

The model answers each of our prompts in one chat: serve it with `--config.turns=last`, as in training. An
episode that was lost is an error of verifiers, and no reward of 0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
from openenv import GenericEnvClient  # pyright: ignore[reportMissingImports]
from verifiers.v1.harnesses.null import NullHarnessConfig  # pyright: ignore[reportMissingImports]
from verifiers.v1.runtimes import SubprocessConfig  # pyright: ignore[reportMissingImports]

from collection.gym.errors import LOST, EpisodeLostError

__all__ = ["WebEnv", "WebTaskset"]

# A step may wait for a slow page.
_STEP_S = 600.0


class WebData(vf.TaskData):
    """A task at a server; `reset` is what OpenEnv's `reset` is given."""

    base_url: str
    reset: dict[str, Any]


class WebTask(vf.Task[WebData]):
    """A task without reward functions: the server pays."""


class WebTasksetConfig(vf.TasksetConfig):
    """Each task with each seed.

    Attributes:
      base_url: of the server.
      tasks: `miniwob/PAGE` or `APPLICATION/TEMPLATE`; "" is the server's own.
    """

    base_url: str = "http://127.0.0.1:8000"
    tasks: tuple[str, ...] = ("",)
    first_seed: int = 0
    seeds: int = 10


class WebTaskset(vf.Taskset[WebTask, WebTasksetConfig]):
    """The tasks of a server."""

    def load(self) -> Iterator[WebTask]:
        config = self.config
        for task in config.tasks:
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                reset = {"seed": seed, "task": task}
                data = WebData(name=f"{task}/{seed}", prompt=None, base_url=config.base_url, reset=reset)
                yield WebTask(data, config.task)


class WebEnvConfig(vf.EnvConfig):
    """The one who plays; a chat without tools, on this machine."""

    player: vf.AgentConfig = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"), runtime=SubprocessConfig(), network_notice=False
    )


class WebEnv(vf.Env[WebEnvConfig]):
    """Plays an episode by the server's prompts."""

    async def run(self, task: WebTask, agents: vf.Agents) -> None:
        async with GenericEnvClient(base_url=task.data.base_url, message_timeout_s=_STEP_S) as client:
            result = await _answer(client.reset(**task.data.reset))
            messages = result.observation["messages"]
            async with agents.player.interaction(task) as interaction:
                while not result.done:
                    segment = await interaction.turn(messages)
                    if segment.terminated:
                        break  # A limit of verifiers, or an error of the model, which it has recorded.
                    result = await _answer(client.step({"call": segment.last_reply}))
                    messages = result.observation["messages"][-1:]
                if not interaction.trace.errors:
                    interaction.trace.record_reward("reward", result.reward or 0.0)


async def _answer(request: Awaitable[Any]) -> Any:
    """The server's answer; for the error of a lost episode, which OpenEnv has no type for, ours."""
    try:
        return await request
    except RuntimeError as error:
        found, _, reason = str(error).partition(f"{LOST}: ")
        if found == str(error):
            raise
        raise EpisodeLostError(reason.partition(" (code: ")[0]) from error
