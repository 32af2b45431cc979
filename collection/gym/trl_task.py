"""Classes for the `environment_factory` of TRL's GRPOTrainer; a lost episode has no reward, which TRL masks.

    GRPOTrainer(model, environment_factory=functools.partial(WebTools, "trac/resolve"), ...)

    GRPOTrainer(model, reward_funcs=carry_out, environment_factory=WebReplies,
                train_dataset=Dataset.from_list(rows("miniwob/click-link", range(100))), ...)

TRL takes all other public functions of such a class for tools.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from PIL import Image

from collection.agent.config import PromptConfig
from collection.agent.prompt import system_text
from collection.browser.config import BrowserConfig
from collection.gym.errors import EpisodeLostError
from collection.gym.turns import PromptStyle, Turn, Turns
from rmsweb_jax.actions import action_catalogue
from rmsweb_jax.actions.schema import EXTRA_ACTIONS
from rmsweb_jax.records.schema import ImagePart


class WebReplies:
    """Episodes of a policy that writes our agents' replies.

    TRL asks a model again after calls of tools alone, so that its one reply, which `carry_out` plays, is the
    whole episode.

    Args: as of `Turns`.
    """

    def __init__(
        self,
        task: str = "miniwob/click-button",
        max_steps: int = 20,
        prompt: PromptStyle = "compact",
        browser: BrowserConfig | None = None,
        apps: str = "",
    ):
        self._turns = Turns(task, max_steps, prompt, browser, apps)
        self._reward: float | None = 0.0
        self._over = True

    def reset(self, seed: int, task: str = "", **_: Any) -> str | list[dict[str, Any]]:
        """Begins the episode of a row of the data; returns what TRL adds to its last message."""
        self._reward, self._over = 0.0, False
        return self._play(lambda: self._turns.reset(seed, task))

    def get_reward(self) -> float | None:
        """Says that the task is done, unless the model has; returns what is paid, None for a lost episode."""
        if not self._over:
            self._carry_out("send_msg_to_user('done')")
        return self._reward

    def _carry_out(self, text: str) -> str | list[dict[str, Any]]:
        return self._play(lambda: self._turns.step(text))

    def _play(self, turn: Callable[[], Turn]) -> str | list[dict[str, Any]]:
        if self._over:
            return "The episode is over."
        try:
            played = turn()
        except EpisodeLostError as error:
            self._reward, self._over = None, True
            return str(error)
        self._reward, self._over = played.reward, played.ended or played.cut
        if not played.messages:
            page = "" if self._over else played.view.observation.page_text
            return "\n".join(filter(None, (played.goal, played.error, page)))
        return [self._part(part) for part in played.messages[-1].content]

    def _part(self, part: Any) -> dict[str, Any]:
        if not isinstance(part, ImagePart):
            return {"type": "text", "text": part.text}
        with Image.open(io.BytesIO(self._turns.session.images.get(part.sha256))) as image:
            return {"type": "image", "image": image.convert("RGB")}


class WebTools(WebReplies):
    """Episodes of a model that calls a tool at each step; it sees the page as text."""

    def __init__(
        self,
        task: str = "miniwob/click-button",
        max_steps: int = 20,
        prompt: PromptStyle = "",
        browser: BrowserConfig | None = None,
        apps: str = "",
    ):
        super().__init__(task, max_steps, prompt, browser, apps)

    def act(self, call: str) -> str | list[dict[str, Any]]:
        """Carries out an action on the page.

        Args:
            call: A call such as click('3'), or send_msg_to_user('the answer') when all is done.

        Returns:
            The page afterwards.
        """
        return self._carry_out(call)


def carry_out(
    completions: Sequence[Sequence[dict[str, Any]]], environments: Sequence[WebReplies], **_: Any
) -> list[None]:
    """A reward function of TRL that plays the replies and adds nothing to `get_reward`."""
    for completion, environment in zip(completions, environments, strict=True):
        environment._carry_out(completion[-1]["content"] or "")
    return [None] * len(completions)


def rows(task: str, seeds: Iterable[int], prompt: PromptStyle = "compact") -> list[dict[str, Any]]:
    """Rows of a data set for `WebReplies`: our system message, and one to which `reset` adds the page."""
    # What the environments of both kinds offer without further settings.
    excluded = EXTRA_ACTIONS if task.startswith("miniwob/") else (*EXTRA_ACTIONS, "search_engine")
    system = system_text(PromptConfig(style=prompt or "compact"), action_catalogue(excluded))
    chat = [{"role": "system", "content": system}, {"role": "user", "content": ""}]
    return [{"prompt": chat, "seed": seed, "task": task} for seed in seeds]
