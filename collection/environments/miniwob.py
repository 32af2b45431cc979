"""MiniWoB++: small seeded web tasks with a reward, served from the pages of the `miniwob` package."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import http.server
import importlib.util
import pathlib
import threading
from collections.abc import Sequence
from typing import ClassVar

from selenium.common.exceptions import WebDriverException

from collection.browser.actions import ActionContext, execute_list
from collection.browser.config import RestoreError, SnapshotError
from collection.browser.session import Browser, PageError, first_line
from collection.browser.snapshot import observe, take_snapshot
from collection.browser.state import TabState, difference, look
from collection.environments.base import Extractor, StepResults, View
from rmsweb_jax.actions import Action
from rmsweb_jax.actions.schema import EXTRA_ACTIONS
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, Task

HOST = "miniwob.test"
# The pages end an episode after 10 s by default, and fail it. How long an agent may take is for the limits
# of its episode to say, which do not count the time in which its model does not answer.
EPISODE_SECONDS = 86_400


def make_task(page: str, seed: int) -> Task:
    """Returns the task of a page and a seed; `MiniWobEpisode.reset` fills in its objective."""
    return Task(
        task_id=f"miniwob/{page}/{seed}",
        website=f"http://{HOST}/{page}.html",
        objective="",
        environment="miniwob",
        site=page,
        seed=seed,
    )


class PageHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files unchanged and lets the browser cache them."""

    protocol_version = "HTTP/1.1"
    extensions_map: ClassVar = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
    }

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Suppresses the line per request on stderr."""


class PageServer(contextlib.AbstractContextManager["PageServer"]):
    """Serves a folder on loopback under a host name.

    Attributes:
      host_rules: Chromium host rules that map the name to the server, so that no port gets into a record.
        No other name resolves.

    Raises:
      UserError: no loopback port is available.
    """

    def __init__(self, folder: pathlib.Path, name: str, handler: type[PageHandler] = PageHandler) -> None:
        try:
            self._server = http.server.ThreadingHTTPServer(
                ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
            )
        except OSError as error:
            raise UserError(f"cannot serve {name} on 127.0.0.1: {error}; allow loopback sockets") from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.host_rules = (f"MAP {name} 127.0.0.1:{self.port}", "MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1")
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name=f"serve-{name}", daemon=True
        )
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(PageHandler):
    """Maps `/PAGE.html` to the task pages and every other path to the shared files of the package."""

    def translate_path(self, path: str) -> str:
        name = path.split("?", 1)[0].lstrip("/")
        return super().translate_path(
            f"/miniwob/{name}" if name.endswith(".html") and "/" not in name else path
        )


class MiniWobServer(PageServer):
    """Serves the pages at `http://miniwob.test/PAGE.html`."""

    def __init__(self) -> None:
        super().__init__(html_root(), HOST, _Handler)


class MiniWobEpisode:
    """Runs one task at a time in a browser whose config has the server's `host_rules`."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._latched: tuple[bool, float | None] = (False, None)

    def reset(self, task: Task) -> Task:
        """Loads the task's page, starts its episode and returns the task with its objective.

        Raises:
          UserError: the page is not part of MiniWoB++.
          PageError: the page could not be started.
        """
        self._latched = (False, None)
        self.browser.keep_documents(False)
        if len(self.browser.handles()) > 1:
            self.browser.reset()
        # Events of the previous episode must not show up in this one.
        self.browser.dialogs.clear()
        self.browser.notices.clear()
        self.browser.snapshot = None
        self.browser.goto(task.website)
        utterance = self.browser.page_script(EPISODE_START, str(task.seed), EPISODE_SECONDS * 1000)
        if utterance is None:
            if not (html_root() / "miniwob" / f"{task.site}.html").is_file():
                raise UserError(f"MiniWoB++ has no page {task.site!r}; choose one of miniwob.page_names()")
            raise PageError(f"{task.website} did not start")
        # The episode's start draws new images, which are only requested now.
        self.browser.wait_for_images()
        return task.model_copy(update={"objective": utterance})

    def status(self) -> tuple[bool, float | None]:
        """Returns True if the page's episode has ended, and its reward (-1..1).

        The first result is final: an episode that the agent restarts on the page does not count.
        """
        if not self._latched[0]:
            result = self.browser.page_script(EPISODE_STATUS)
            if result is not None:
                self._latched = (True, float(result))
        return self._latched


@dataclasses.dataclass(frozen=True)
class MiniWobSnapshot:
    """State of an episode.

    Attributes:
      steps: the actions of each step so far; none where the agent has looked at the page.
      status: as `MiniWobEpisode.status`.
      page: what there is after the steps.
    """

    task: Task
    steps: tuple[tuple[Action, ...], ...]
    status: tuple[bool, float | None]
    page: TabState


class MiniWobEnvironment(MiniWobEpisode):
    """`collection.environments.base.Environment` on MiniWoB++: no files, no search, no secrets."""

    excluded_actions: tuple[str, ...] = EXTRA_ACTIONS

    def __init__(self, browser: Browser, images: ImageStore):
        super().__init__(browser)
        self._images = images
        self._task: Task | None = None
        self._steps: list[tuple[Action, ...]] = []

    def reset(self, task: Task) -> Task:
        self._task, self._steps = task, []
        return super().reset(task)

    def observe(self) -> View:
        self._steps.append(())
        return View(*observe(self.browser, self._images))

    def act(self, actions: Sequence[Action], extract: Extractor, deadline: float) -> StepResults:
        self._steps.append(tuple(actions))
        results = execute_list(self.browser, actions, ActionContext(deadline=deadline))
        self.status()  # Latches the reward before anything can start the page's next episode.
        return StepResults(results)

    def finish(self, done: Action) -> ActionResult:
        return ActionResult(action=done.name, text="Done")

    def reward(self) -> float | None:
        """Returns the page's reward; None until its episode has ended."""
        return None if self._task is None else self.status()[1]

    def redact(self, text: str) -> str:
        return text

    def snapshot(self) -> MiniWobSnapshot:
        if self._task is None:
            raise SnapshotError("no episode is open: call reset first")
        try:
            return MiniWobSnapshot(self._task, tuple(self._steps), self.status(), look(self.browser))
        except (PageError, WebDriverException) as error:
            raise SnapshotError(f"the page cannot be read: {first_line(error)}") from error

    def restore(self, snapshot: MiniWobSnapshot) -> None:
        """Starts the page's episode again and repeats its steps: the page keeps its state in its scripts."""
        self._task, self._steps = None, []  # Until all is there.
        try:
            super().reset(snapshot.task)
            for actions in snapshot.steps:
                if actions:
                    execute_list(self.browser, actions, ActionContext())
                    self.status()
                else:
                    take_snapshot(self.browser)
            problem = difference(snapshot.page, look(self.browser), self.redact)
            if not problem and self.status() != snapshot.status:
                problem = "another reward"
        except (PageError, WebDriverException) as error:
            problem = first_line(error)
        if problem:
            raise RestoreError(f"not restored: {problem}")
        self._task, self._steps = snapshot.task, list(snapshot.steps)


def page_names() -> list[str]:
    """Returns the names of all pages, sorted."""
    return sorted(path.stem for path in (html_root() / "miniwob").glob("*.html"))


@functools.cache
def html_root() -> pathlib.Path:
    """Returns the `html` folder of the installed package.

    The package is located, not imported: importing it registers Gymnasium environments.
    """
    spec = importlib.util.find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise UserError(
            "the miniwob package is not installed; pip install miniwob (part of the `collect` extra)"
        )
    return pathlib.Path(spec.origin).parent / "html"


# The page's reward display would leak the reward, and its task text is in the agent's prompt already.
# Animations and a blinking caret would make runs depend on timing.
EPISODE_START = """
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
EPISODE_STATUS = "const latch = window['rmsweb.reward']; return latch ? latch.reward : null;"
