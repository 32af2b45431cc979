"""A Gymnasium environment whose observations and actions have the names of BrowserGym's.

    env = WebEnv("miniwob/click-button")
    observation, info = env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step("click('3')")

An element's id (`bid`) is its number in the text of the page. An action is one call or several, a line each,
or a reply of our agents. Observations are a function of seed and actions, so that `elapsed_time` is not among
them.
"""

from __future__ import annotations

import io
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from PIL import Image

from collection.browser.config import BrowserConfig
from collection.gym.turns import PromptStyle, Turn, Turns


class AnyText(spaces.Space[str]):
    """Any text."""

    def __init__(self) -> None:
        super().__init__((), str)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "noop()"

    @property
    def is_np_flattenable(self) -> bool:
        return False


class WebEnv(gymnasium.Env[dict[str, Any], str]):
    """Tasks of one kind, with a page or a template; the seed of `reset` chooses among them.

    Args:
      task: `miniwob/PAGE`, or `APPLICATION/TEMPLATE` of an installed application.
      max_steps: an episode is truncated after so many steps.
      prompt: `compact` or `full` adds our prompt to observations, as `system` and `user`; the screenshot is
        the last part of the latter. See `Turns`.
      browser: its window is the screenshot's size.
      apps: folder in which applications are installed; "" is the user's cache.

    Raises:
      UserError: there is no such task, or its application is not installed.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self,
        task: str,
        max_steps: int = 20,
        browser: BrowserConfig | None = None,
        apps: str = "",
        prompt: PromptStyle = "",
    ):
        config = browser or BrowserConfig()
        self._turns = Turns(task, max_steps, prompt, config, apps)
        self.action_space = AnyText()
        many = spaces.Sequence(AnyText(), stack=False)
        self.observation_space = spaces.Dict(
            {
                "goal": AnyText(),
                "url": AnyText(),
                "open_pages_urls": many,
                "open_pages_titles": many,
                "active_page_index": spaces.Box(0, 255, (1,), np.int64),
                "screenshot": spaces.Box(0, 255, (config.height, config.width, 3), np.uint8),
                "axtree_txt": AnyText(),
                "last_action": AnyText(),
                "last_action_error": AnyText(),
                **({"system": AnyText(), "user": AnyText()} if prompt else {}),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins the episode of a seed; without one, of a random one."""
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        turn = self._turns.reset(seed)
        return self._observation(turn), self._info

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Carries out an action; one that cannot be read is an error of the observation.

        Raises:
          EpisodeLostError: the episode has no reward; `reset` begins another.
        """
        turn = self._turns.step(action)
        return self._observation(turn, action), turn.reward, turn.ended, turn.cut, self._info

    def close(self) -> None:
        self._turns.close()

    @property
    def _info(self) -> dict[str, Any]:
        return {"task_info": {"task_id": self._turns.task.task_id if self._turns.task else ""}}

    def _observation(self, turn: Turn, action: str = "") -> dict[str, Any]:
        page = turn.view.observation
        tabs = [tab.tab_id for tab in page.tabs]
        active = tabs.index(page.current_tab) if page.current_tab in tabs else 0
        return {
            "goal": turn.goal,
            "url": page.url,
            "open_pages_urls": tuple(tab.url for tab in page.tabs),
            "open_pages_titles": tuple(tab.title for tab in page.tabs),
            "active_page_index": np.asarray([active]),
            "screenshot": self._pixels(page.screenshot),
            "axtree_txt": page.page_text,
            "last_action": action,
            "last_action_error": turn.error,
            **{name: "" for name in ("system", "user") if name in self.observation_space},
            **{message.role: message.text for message in turn.messages},
        }

    def _pixels(self, sha256: str | None) -> np.ndarray:
        space = self.observation_space["screenshot"]  # type: ignore[index]
        if sha256 is None:
            return np.zeros(space.shape, np.uint8)
        with Image.open(io.BytesIO(self._turns.session.images.get(sha256))) as image:
            return np.asarray(image.convert("RGB"))
