"""Live web pages as an environment."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence

import ada_url
from selenium.common.exceptions import WebDriverException

from collection.browser.actions import execute_list
from collection.browser.config import PageCrashedError, SnapshotError, TabGoneError
from collection.browser.files import FileError, FileFolder
from collection.browser.guard.documents import Move
from collection.browser.pages import ActionContext, ActionError
from collection.browser.session import Browser, BrowserLostError, PageError, first_line
from collection.browser.snapshot import observe, take_snapshot
from collection.browser.state import BrowserState, put_state, take_state
from collection.environments.base import (
    ExtractionError,
    Extractor,
    SiteUnreachableError,
    StepResults,
    View,
)
from collection.environments.blockers import Blocker, find_blocker
from rmsweb_jax.actions import Action
from rmsweb_jax.actions.schema import EXTRA_ACTIONS
from rmsweb_jax.errors import UserError
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, Element, Observation, Task

TODO = "todo.md"
# Bounds on what enters a prompt or a record; an agent could create files without end.
MAX_SHOWN_FILES = 50
MAX_DISPLAYED_CHARS = 30_000


@dataclasses.dataclass(frozen=True)
class WebConfig:
    """Capabilities of the agent on live pages.

    Attributes:
      search_urls: engine name -> URL with `{query}`; the guard must allow their hosts.
      uploads: files outside the episode's folder that may be uploaded.
      extra_actions: names of `EXTRA_ACTIONS` that are offered and run.
    """

    search_urls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    uploads: tuple[pathlib.Path, ...] = ()
    extra_actions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := set(self.extra_actions) - set(EXTRA_ACTIONS):
            known = ", ".join(EXTRA_ACTIONS)
            raise UserError(
                f"config.extra_actions: no action {', '.join(sorted(unknown))}; there are {known}"
            )


@dataclasses.dataclass(frozen=True)
class WebSnapshot:
    """State of an episode, except for what its site's server keeps.

    Attributes:
      steps: actions since the current document was opened.
      files: contents of the episode's files by name.
    """

    task: Task
    browser: BrowserState
    steps: tuple[tuple[Action, ...], ...]
    files: Mapping[str, bytes]


def website_url(task: Task) -> str:
    """Returns the address at which a task starts; sites are named with or without `https://`."""
    website = task.website.strip()
    return website if "://" in website else f"https://{website}"


class WebEnvironment:
    """`collection.environments.base.Environment` on live pages.

    Args:
      browser: every `reset` sets the task's site in its guard; its redactor removes secrets from
        everything that is shown or recorded.
      folder: the episode's files; emptied by `reset` and removed by `close`.
      check: an application's own reward (-1..1), None until it has one; without `check`, `reward` is None.
    """

    def __init__(
        self,
        browser: Browser,
        images: ImageStore,
        folder: pathlib.Path,
        config: WebConfig | None = None,
        check: Callable[[], float | None] | None = None,
    ):
        self._browser, self._images, self._check = browser, images, check
        self._config = config or WebConfig()
        self._files = FileFolder(folder)
        self._task: Task | None = None
        # With the document that they were decided on.
        self._steps: list[tuple[tuple[str, float], tuple[Action, ...]]] = []

    @property
    def excluded_actions(self) -> tuple[str, ...]:
        missing = tuple(name for name in EXTRA_ACTIONS if name not in self._config.extra_actions)
        return missing if self._config.search_urls else (*missing, "search_engine")

    def close(self) -> None:
        """Removes the episode's files."""
        shutil.rmtree(self._files.folder, ignore_errors=True)

    def reset(self, task: Task) -> Task:
        """Opens the task's website in a browser without cookies, storage or tabs of earlier episodes.

        Raises:
          SiteUnreachableError: the guard refuses the website, or it cannot be opened.
          BrowserLostError: the browser is gone.
        """
        self._task, self._steps = task, []
        self.close()
        self._files.folder.mkdir(parents=True)
        browser, website = self._browser, website_url(task)
        browser.keep_documents(task.environment != "web")  # For `snapshot`.
        if browser.guard is not None:
            # Before the browser is cleared: a late response to the last page would set cookies again.
            browser.guard.admit(website=website)
        try:
            try:
                moves, failure = self._start(website)
            except (TabGoneError, PageCrashedError):
                # A page of the last episode may have closed or crashed only now, and this tab with it.
                moves, failure = self._start(website)
        except (PageError, WebDriverException) as error:
            raise self._unreachable(website, first_line(error)) from error
        failure = failure or " ".join(browser.notices)
        if failure:
            raise self._unreachable(website, failure)
        for move in moves:
            text = f"The start page has moved: {browser.short_url(move.origin)} leads to "
            browser.notices.append(text + browser.short_url(move.url))
            browser.add_incident("redirect", browser.notices[-1])
        return task.model_copy(
            update={
                "website": self.redact(task.website),
                "objective": self.redact(task.objective),
                "constraints": tuple(map(self.redact, task.constraints)),
            }
        )

    def _start(self, website: str) -> tuple[tuple[Move, ...], str]:
        """Opens a website in an emptied browser; returns its moves, and the error text of a gateway."""
        browser = self._browser
        # A site that is set back, or filled from another seed, has other pages at the same addresses.
        browser.reset(keeps_cache=self._task is not None and self._task.environment == "web")
        browser.restore_state(website)
        moves = self._open_start_page(website)
        # The empty page before the first one is no place to go back to.
        with contextlib.suppress(WebDriverException):
            browser.ask("Page.resetNavigationHistory")
        failure = self._read_failure()
        # A redirect may have left the allowed sites: the sweep closes such a window and leaves a notice.
        browser.sweep()
        return moves, failure

    def _unreachable(self, website: str, reason: str) -> SiteUnreachableError:
        incidents = self._browser.take_incidents()
        kinds = ("proxy", "robots_refused")
        cause = next((one.detail for one in incidents if one.kind in kinds), reason)
        return SiteUnreachableError(f"{website}: {cause}", incidents)

    def _open_start_page(self, website: str) -> tuple[Move, ...]:
        """Opens a task's website; returns the moves to other sites that the guard has admitted.

        Raises:
          PageError: it cannot be opened, or leads to a site that the guard refuses.
        """
        browser, guard = self._browser, self._browser.guard
        if guard is not None:
            guard.expect_start_page()
        problem: Exception | None = None
        try:
            browser.goto(website)
            browser.settle()
        except (PageError, WebDriverException) as error:
            problem = error
        moves = guard.start_page_arrived() if guard is not None else ()
        for move in moves:
            if not move.admitted:
                where = browser.short_url(move.url)
                raise PageError(f"it leads to another site, {where}, which is not allowed") from problem
        if problem is not None:
            raise problem
        return moves

    def observe(self) -> View:
        """Returns the current page; a page that cannot be read is closed, and an empty one returned.

        Raises:
          BrowserLostError: no page can be read any more.
        """
        observation, page_stats, notice = self._observe()
        notices = [*([notice] if notice else []), *self._browser.notices, *self._late_downloads()]
        self._browser.notices.clear()
        observation = self._redacted(observation)
        return View(
            observation=observation,
            page_stats=page_stats,
            file_system=self._file_list(),
            todo_contents=self.redact(self._read(TODO) or ""),
            notice=self.redact(" ".join(notices)),
            incidents=self._browser.take_incidents(),
            blocker=self._blocker(observation),
        )

    def act(self, actions: Sequence[Action], extract: Extractor, deadline: float) -> StepResults:
        def answer(query: str, text: str) -> str:
            try:
                # The extraction model must not see secrets either.
                found, outage_s = extract(query, self.redact(text))
            except ExtractionError as error:
                raise ActionError(f"Extraction failed: {error}") from error
            context.deadline += outage_s
            return found

        context = ActionContext(
            files=self._files,
            uploads=self._config.uploads,
            search_urls=self._config.search_urls,
            extract=answer,
            extra_actions=self._config.extra_actions,
            deadline=deadline,
        )
        if (shown := self._browser.snapshot) is not None:
            self._steps.append(((shown.target, shown.document), tuple(actions)))
        try:
            results = execute_list(self._browser, actions, context)
            self._browser.sweep()
        except (PageError, WebDriverException) as error:
            text = self.redact(first_line(error))
            results = (ActionResult(action=actions[0].name, text=text, error=True),)
        return StepResults(results, self._browser.take_incidents())

    def finish(self, done: Action) -> ActionResult:
        """Returns the result of `done` with the files it displays, up to `MAX_DISPLAYED_CHARS`."""
        shown, missing, left = [], [], MAX_DISPLAYED_CHARS
        for name in getattr(done.params, "files_to_display", ()):
            content = self._read(name)
            if content is None:
                missing.append(name)
                continue
            shown.append(f"{name}:\n{content[:left]}")
            left = max(left - len(content), 0)
        text = "Done" + (f"; not there or not text: {', '.join(missing)}" if missing else "")
        return ActionResult(action=done.name, text=self.redact(text), output=self.redact("\n\n".join(shown)))

    def reward(self) -> float | None:
        return None if self._check is None or self._task is None else self._check()

    def redact(self, text: str) -> str:
        return self._browser.redact(text)

    def snapshot(self) -> WebSnapshot:
        if self._task is None:
            raise SnapshotError("no episode is open: call reset first")
        if self._task.environment == "web":
            raise SnapshotError("a live site cannot be set back: its server keeps what the agent has done")
        files = {name: (self._files.folder / name).read_bytes() for name in self._files.names()}
        state, shown = take_state(self._browser), self._browser.latest
        origin = ada_url.URL(website_url(self._task)).origin
        if all(tab.frame.content["origin"] != origin for tab in state.tabs):
            raise SnapshotError(f"no tab shows {self.redact(origin)}, whose storage cannot be read")
        here = shown and (shown.target, shown.document)
        steps = tuple(actions for document, actions in self._steps if document == here)
        return WebSnapshot(self._task, state, steps, files)

    def restore(self, snapshot: WebSnapshot) -> None:
        self._task, self._steps = None, []  # Until all is there.
        self.close()
        self._files.folder.mkdir(parents=True)
        for name, content in snapshot.files.items():
            (self._files.folder / name).write_bytes(content)
        if self._browser.guard is not None:
            self._browser.guard.admit(website=website_url(snapshot.task))
        self._browser.keep_documents()
        put_state(
            self._browser, snapshot.browser, (lambda: self._repeat(snapshot)) if snapshot.steps else None
        )
        shown = self._browser.latest
        assert shown is not None
        self._browser.snapshot = shown
        self._task = snapshot.task
        self._steps = [((shown.target, shown.document), actions) for actions in snapshot.steps]

    def _repeat(self, snapshot: WebSnapshot) -> None:
        self._browser.settle()
        for actions in snapshot.steps:
            take_snapshot(self._browser)  # Their indices are of what the agent was shown.
            execute_list(self._browser, actions, ActionContext(extra_actions=self._config.extra_actions))

    def _observe(self) -> tuple[Observation, str, str]:
        """Returns the page, its stats and a notice; a page that cannot be read is closed first."""
        notice = ""
        try:
            return *observe(self._browser, self._images), notice
        except (PageError, WebDriverException) as error:
            notice = f"A page that could not be looked at was closed: {first_line(error)}."
        try:
            self._browser.close_tab()
            return *observe(self._browser, self._images), notice
        except (PageError, WebDriverException) as error:
            raise BrowserLostError(first_line(error)) from error

    def _read_failure(self) -> str:
        """Returns the error text of a gateway; empty if the site itself answered."""
        try:
            answer = self._browser.script(_FAILURE)
        except WebDriverException:
            # Error pages run scripts. A site that breaks them can still be read by the snapshot's fallback.
            return ""
        return " ".join(str(answer).split()) if answer else ""

    def _late_downloads(self) -> list[str]:
        """Returns a text per download that finished after the action that started it."""
        downloads = [download.text for download in self._browser.downloads.take(self._files)]
        for text in downloads:
            self._browser.add_incident("download", text)
        return downloads

    def _blocker(self, observation: Observation) -> Blocker | None:
        shown = self._browser.snapshot
        status = shown.status if shown is not None else None
        return find_blocker(observation.url, observation.title, observation.page_text, status)

    def _read(self, name: str) -> str | None:
        try:
            return self._files.read(name)
        except FileError:
            return None

    def _file_list(self) -> str:
        names = self._files.names()
        lines = [f"{name} ({(self._files.folder / name).stat().st_size} bytes)" for name in names]
        more = [f"... and {len(lines) - MAX_SHOWN_FILES} more"] if len(lines) > MAX_SHOWN_FILES else []
        return self.redact("\n".join(lines[:MAX_SHOWN_FILES] + more))

    def _redacted(self, observation: Observation) -> Observation:
        """Returns an observation without secrets; its tabs have none."""
        names = ("url", "title", "page_text")
        texts = {name: self.redact(getattr(observation, name)) for name in names}
        return observation.model_copy(
            update={**texts, "elements": tuple(map(self._redacted_element, observation.elements))}
        )

    def _redacted_element(self, element: Element) -> Element:
        attributes = {name: self.redact(value) for name, value in element.attributes.items()}
        return element.model_copy(update={"text": self.redact(element.text), "attributes": attributes})


# Behind a gateway, a site that cannot be reached is a short plain-text page with a gateway's status. The
# length limit excludes real documents that a site serves as plain text with an error status.
_FAILURE = """
const status = (performance.getEntriesByType('navigation')[0] || {}).responseStatus || 0;
const text = document.contentType === 'text/plain' && document.body ? document.body.innerText : '';
return [502, 503, 504].includes(status) && text.length < 1000 ? `status ${status}: ${text}` : '';
"""
