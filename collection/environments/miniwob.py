"""MiniWoB++: small seeded web tasks with a reward, served from the `miniwob` package's own pages."""

from __future__ import annotations

import functools
import importlib.util
import pathlib

from collection.browser.session import Browser, PageError
from collection.environments.page_server import PageHandler, PageServer
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.schema import Task

HOST = "miniwob.test"
EPISODE_SECONDS = 600


def make_task(page: str, seed: int) -> Task:
    """The task of a page and seed; its objective is empty until `MiniWobEpisode.reset` fills it."""
    return Task(
        task_id=f"miniwob/{page}/{seed}",
        website=f"http://{HOST}/{page}.html",
        objective="",
        environment="miniwob",
        site=page,
        seed=seed,
    )


class MiniWobServer(PageServer):
    """Serves the pages at `http://miniwob.test/PAGE.html`."""

    def __init__(self) -> None:
        super().__init__(html_root(), HOST, _Handler)


class MiniWobEpisode:
    """One task at a time in one browser whose config has the server's `host_rules`."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._latched: tuple[bool, float | None] = (False, None)

    def reset(self, task: Task) -> Task:
        """Loads the task's page, starts its episode and returns the task with its objective.

        Raises:
          UserError: the page is not part of MiniWoB++.
          PageError: it could not be started.
        """
        self._latched = (False, None)
        if len(self.browser.handles()) > 1:
            self.browser.reset()
        # What was done until now is no news of this episode.
        self.browser.dialogs.clear()
        self.browser.notices.clear()
        self.browser.snapshot = None
        self.browser.goto(task.website)
        utterance = self.browser.script(_START, str(task.seed), EPISODE_SECONDS * 1000)
        if utterance is None:
            if not (html_root() / "miniwob" / f"{task.site}.html").is_file():
                raise UserError(f"MiniWoB++ has no page {task.site!r}; choose one of miniwob.page_names()")
            raise PageError(f"{task.website} did not start")
        # Those of what the start has drawn are asked for only now.
        self.browser.wait_for_pictures()
        return task.model_copy(update={"objective": utterance})

    def status(self) -> tuple[bool, float | None]:
        """Whether the page's episode has ended, and its reward (-1..1).

        Both stay what they first were: an episode that the agent starts over on the page does not count.
        """
        if not self._latched[0]:
            result = self.browser.script(_STATUS)
            if result is not None:
                self._latched = (True, float(result))
        return self._latched


def page_names() -> list[str]:
    """All pages, sorted."""
    return sorted(path.stem for path in (html_root() / "miniwob").glob("*.html"))


@functools.cache
def html_root() -> pathlib.Path:
    """The `html` folder of the installed package; importing it would start its own registration."""
    spec = importlib.util.find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise UserError(
            "the miniwob package is not installed; pip install miniwob (part of the `collect` extra)"
        )
    return pathlib.Path(spec.origin).parent / "html"


class _Handler(PageHandler):
    """Pages at the top, what they share (`core`, `common`, `flight`) beside them."""

    def translate_path(self, path: str) -> str:
        name = path.split("?", 1)[0].lstrip("/")
        return super().translate_path(
            f"/miniwob/{name}" if name.endswith(".html") and "/" not in name else path
        )


# The page's own display would leak the reward, and its request is in the agent's prompt already.
# Animations and a blinking caret would only make runs depend on timing.
_START = """
const [seed, limit] = arguments;
if (typeof core === 'undefined' || typeof genProblem === 'undefined') return null;
const style = document.createElement('style');
style.textContent = '#reward-display, #click-canvas { display: none !important }'
  + '#query { visibility: hidden !important } * { caret-color: transparent !important }';
document.head.appendChild(style);
if (window.jQuery) jQuery.fx.off = true;
const end = core.endEpisode;
const latch = { reward: null };
Object.defineProperty(window, 'rmsweb.reward', { value: latch });
core.endEpisode = function (...args) {
  const running = core.EP_TIMER !== null;
  end.apply(core, args);
  if (running && latch.reward === null) latch.reward = WOB_RAW_REWARD_GLOBAL;
};
Math.seedrandom(seed);
core.EPISODE_MAX_TIME = limit;
core.startEpisodeReal();
const utterance = core.getUtterance();
return typeof utterance === 'string' ? utterance : utterance.utterance;
"""
_STATUS = "const latch = window['rmsweb.reward']; return latch ? latch.reward : null;"
