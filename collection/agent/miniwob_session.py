"""A browser at a MiniWoB++ page, as the loop sees it."""

from __future__ import annotations

from collections.abc import Sequence

from collection.agent.environment import Acted, Extract, Look
from collection.browser.actions import ActionContext, execute_list
from collection.browser.session import Browser
from collection.browser.snapshot import observe
from collection.environments.miniwob import MiniWobEpisode
from rmsweb_jax.actions import Action
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, Task


class MiniWobSession:
    """`collection.agent.environment.Environment` on MiniWoB++.

    No files, no search engine, no secrets, the page's own reward.
    """

    excluded_actions: tuple[str, ...] = ("execute_js",)

    def __init__(self, browser: Browser, images: ImageStore):
        self._browser, self._images = browser, images
        self._episode = MiniWobEpisode(browser)

    def reset(self, task: Task) -> Task:
        return self._episode.reset(task)

    def look(self) -> Look:
        observation, page_stats = observe(self._browser, self._images)
        return Look(observation, page_stats)

    def act(self, actions: Sequence[Action], extract: Extract, deadline: float) -> Acted:
        results = execute_list(self._browser, actions, ActionContext(deadline=deadline))
        self._episode.status()  # Latches the reward before anything can start the page's next episode.
        return Acted(results)

    def finish(self, done: Action) -> ActionResult:
        return ActionResult(action=done.name, text="Done")

    def reward(self) -> float | None:
        """The page's reward; None as long as its episode has not ended."""
        return self._episode.status()[1]

    def redact(self, text: str) -> str:
        return text
