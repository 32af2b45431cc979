"""A browser at a task on live pages, as the loop sees it."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence

from selenium.common.exceptions import WebDriverException

from collection.agent.blockers import Blocker, find_blocker
from collection.agent.environment import Acted, Extract, ExtractionError, Look, UnreachableError
from collection.agent.injection import find_injections
from collection.browser.action_types import ActionContext, ActionError
from collection.browser.actions import execute_list
from collection.browser.files import FileError, FileFolder
from collection.browser.session import Browser, BrowserLostError, PageError, first_line
from collection.browser.snapshot import observe
from rmsweb_jax.actions import Action
from rmsweb_jax.records.images import ImageStore
from rmsweb_jax.records.schema import ActionResult, Element, Incident, Observation, Tab, Task

TODO = "todo.md"
MAX_SHOWN_FILES = 50
MAX_DISPLAYED_CHARS = 30_000


@dataclasses.dataclass(frozen=True)
class WebConfig:
    """What the agent may use on live pages.

    Attributes:
      search_urls: engine name -> URL with `{query}`; the guard must allow their hosts.
      uploads: files outside the episode's folder that may be uploaded.
      allow_js: whether `execute_js` is offered and runs.
    """

    search_urls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    uploads: tuple[pathlib.Path, ...] = ()
    allow_js: bool = False


class WebSession:
    """`collection.agent.environment.Environment` on live pages.

    Args:
      browser: its guard is told the task's site at every `reset`, and its redactor hides secrets in all
        that is shown and recorded.
      folder: the episode's files; emptied at every `reset` and removed by `close`.
      check: an application's own reward (-1..1), None while it has none; without one `reward` is None.
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
        # A page keeps its status for as long as it is open.
        self._status: tuple[float, int | None] = (0.0, None)

    @property
    def excluded_actions(self) -> tuple[str, ...]:
        missing = () if self._config.allow_js else ("execute_js",)
        return missing if self._config.search_urls else (*missing, "search_engine")

    def close(self) -> None:
        shutil.rmtree(self._files.folder, ignore_errors=True)

    def reset(self, task: Task) -> Task:
        """Opens the task's website in a browser without cookies, storage and tabs of earlier episodes.

        Raises:
          UnreachableError: the guard refuses the website, or it cannot be opened.
          BrowserLostError: the browser is gone.
        """
        self.close()
        self._files.folder.mkdir(parents=True)
        browser, website = self._browser, task.website.strip()
        website = website if "://" in website else f"https://{website}"
        if browser.guard is not None:
            # First of all: an answer to the last episode's page would bring its cookies back.
            browser.guard.admit(website=website)
        browser.reset()
        browser.take_incidents()  # What was refused until now is the last episode's.
        try:
            browser.goto(website)
            browser.settle()
            failure = self._read_failure()
            browser.sweep()
        except (PageError, WebDriverException) as error:
            raise UnreachableError(f"{website}: {first_line(error)}", browser.take_incidents()) from error
        failure = failure or " ".join(browser.notices)
        if failure:
            raise UnreachableError(f"{website}: {failure}", browser.take_incidents())
        return task.model_copy(
            update={
                "website": self.redact(task.website),
                "objective": self.redact(task.objective),
                "constraints": tuple(map(self.redact, task.constraints)),
            }
        )

    def look(self) -> Look:
        """The page, or an empty one where it cannot be looked at.

        Raises:
          BrowserLostError: nothing can be looked at any more.
        """
        observation, page_stats, notice = self._observe()
        notices = [*([notice] if notice else []), *self._browser.notices, *self._downloaded()]
        self._browser.notices.clear()
        observation = self._redacted(observation)
        told = [observation.title, observation.page_text, *(tab.title for tab in observation.tabs)]
        return Look(
            observation=observation,
            page_stats=page_stats,
            file_system=self._file_list(),
            todo_contents=self.redact(self._read(TODO) or ""),
            notice=self.redact(" ".join(notices)),
            incidents=(*self._browser.take_incidents(), *injections("\n".join(told))),
            blocker=self._blocker(observation),
        )

    def act(self, actions: Sequence[Action], extract: Extract, deadline: float) -> Acted:
        def answer(query: str, text: str) -> str:
            try:
                return extract(query, self.redact(text))
            except ExtractionError as error:
                raise ActionError(f"Extraction failed: {error}") from error

        context = ActionContext(
            files=self._files,
            uploads=self._config.uploads,
            search_urls=self._config.search_urls,
            extract=answer,
            allow_js=self._config.allow_js,
            deadline=deadline,
        )
        try:
            results = execute_list(self._browser, actions, context)
            self._browser.sweep()
        except (PageError, WebDriverException) as error:
            results = (ActionResult(action=actions[0].name, text=first_line(error), error=True),)
        results = tuple(
            result.model_copy(update={"text": self.redact(result.text), "output": self.redact(result.output)})
            for result in results
        )
        said = "\n".join(f"{result.text}\n{result.output}" for result in results)
        return Acted(results, (*self._browser.take_incidents(), *injections(said)))

    def finish(self, done: Action) -> ActionResult:
        """`done`, with the files it displays: as much of them as an answer may hold."""
        shown, missing, room = [], [], MAX_DISPLAYED_CHARS
        for name in getattr(done.params, "files_to_display", ()):
            content = self._read(name)
            if content is None:
                missing.append(name)
                continue
            shown.append(f"{name}:\n{content[:room]}")
            room = max(room - len(content), 0)
        text = "Done" + (f"; not there or not text: {', '.join(missing)}" if missing else "")
        return ActionResult(action=done.name, text=self.redact(text), output=self.redact("\n\n".join(shown)))

    def reward(self) -> float | None:
        return None if self._check is None else self._check()

    def redact(self, text: str) -> str:
        return self._browser.redact(text)

    def _observe(self) -> tuple[Observation, str, str]:
        """The page, its stats and a notice; a page that cannot be looked at is closed.

        Raises:
          BrowserLostError: nothing can be looked at any more.
        """
        try:
            return *observe(self._browser, self._images), ""
        except (PageError, WebDriverException) as error:
            problem = first_line(error)
        try:
            self._browser.close_tab()
            notice = f"A page that could not be looked at was closed: {problem}."
            return *observe(self._browser, self._images), notice
        except (PageError, WebDriverException) as error:
            raise BrowserLostError(first_line(error)) from error

    def _read_failure(self) -> str:
        """What stands instead of the start page, when it is the guard's proxy or a gateway that answered."""
        try:
            answer = self._browser.script(_FAILURE)
        except WebDriverException:
            # A page in which no script works is no gateway's, and may be read all the same.
            return ""
        return " ".join(str(answer).split()) if answer else ""

    def _downloaded(self) -> list[str]:
        """Files that came after the action that asked for them was over."""
        downloads = [download.text for download in self._browser.downloads.take(self._files)]
        for text in downloads:
            self._browser.note("download", text)
        return downloads

    def _blocker(self, observation: Observation) -> Blocker | None:
        latest = self._browser.latest
        if latest is not None and latest.document != self._status[0]:
            self._status = (latest.document, self._read_status())
        return find_blocker(observation.url, observation.title, observation.page_text, self._status[1])

    def _read_status(self) -> int | None:
        try:
            status = self._browser.script(_STATUS)
        except (PageError, WebDriverException):
            return None
        return status if isinstance(status, int) and status > 0 else None

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
        redact = self.redact
        return observation.model_copy(
            update={
                "url": redact(observation.url),
                "title": redact(observation.title),
                "page_text": redact(observation.page_text),
                "tabs": tuple(
                    Tab(tab_id=tab.tab_id, url=redact(tab.url), title=redact(tab.title))
                    for tab in observation.tabs
                ),
                "elements": tuple(_redacted_element(element, redact) for element in observation.elements),
            }
        )


def injections(text: str) -> tuple[Incident, ...]:
    """What in a text gives the agent orders."""
    return tuple(Incident(kind="injection", detail=excerpt) for excerpt in find_injections(text))


def _redacted_element(element: Element, redact: Callable[[str], str]) -> Element:
    attributes = {name: redact(value) for name, value in element.attributes.items()}
    return element.model_copy(update={"text": redact(element.text), "attributes": attributes})


# Through a proxy a site that cannot be reached is a short plain text with a gateway's status.
_FAILURE = """
const status = (performance.getEntriesByType('navigation')[0] || {}).responseStatus || 0;
const text = document.contentType === 'text/plain' && document.body ? document.body.innerText : '';
const failed = [502, 503, 504].includes(status) || (status === 403 && text.includes("collector's guard"));
return failed && text.length < 1000 ? `status ${status}: ${text}` : '';
"""
_STATUS = """
const entries = performance.getEntriesByType('navigation');
return entries.length ? entries[0].responseStatus || null : null;
"""
