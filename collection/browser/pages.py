"""What actions share, and the actions on pages, tabs and files."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from markdownify import markdownify
from selenium.common.exceptions import (
    JavascriptException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver.remote.webelement import WebElement

from collection.browser.files import FileFolder
from collection.browser.page import ActionTarget
from collection.browser.session import Browser, PageError, first_line
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.schema import MAX_WAIT_S

T = TypeVar("T")

MAX_EXTRACT_CHARS = 30_000  # browser-use's limit for its extraction action.
# Converting this much HTML to Markdown takes about 1 s.
_MAX_HTML_CHARS = 2_000_000
# Frames that are read, and for how long.
_MAX_FRAMES, _FRAME_SECONDS = 20, 30.0
# Marks the place of a frame, by its number.
_FRAME_MARK = '<div data-frame="{}"></div>'
# Runs code in a document, or in any if none is given.
_RUN = """
if (arguments[1] && arguments[1] !== performance.timeOrigin) throw new Error('the page has gone; look again');
return (0, eval)(arguments[0]);
"""


@dataclasses.dataclass
class ActionContext:
    """Resources of actions in addition to the browser.

    Attributes:
      files: the episode's file folder; None refuses file actions.
      uploads: files outside that folder which may be uploaded.
      search_urls: engine name -> URL with `{query}`.
      extract: (query, Markdown) -> answer of the extraction model; None refuses extraction.
      extra_actions: names of `EXTRA_ACTIONS` that are permitted.
      deadline: `time.monotonic` value after which no action starts, and up to which actions may wait;
        `extract` moves it by the time that it has waited for a model that did not answer.
    """

    files: FileFolder | None = None
    uploads: tuple[pathlib.Path, ...] = ()
    search_urls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    extract: Callable[[str, str], str] | None = None
    extra_actions: tuple[str, ...] = ()
    deadline: float = math.inf


class ActionError(Exception):
    """An action cannot be executed; the message is shown to the agent."""


@dataclasses.dataclass(frozen=True)
class ActionOutcome:
    """Outcome of an action.

    Attributes:
      text, changed, error, output: as in `ActionResult`.
      page: a new snapshot is needed to know if the page has changed.
    """

    text: str
    changed: bool = False
    error: bool = False
    output: str = ""
    page: bool = True


def target_of(browser: Browser, index: int) -> ActionTarget:
    """Returns what is known of an indexed element. Raises ActionError if there is none."""
    target = (browser.snapshot or take_snapshot(browser)).targets.get(index)
    if target is None:
        raise ActionError(f"Element [{index}] is not on the page")
    return target


@contextlib.contextmanager
def located(browser: Browser, index: int) -> Iterator[WebElement]:
    """Finds an indexed element; in the `with` block, scripts and the driver are in its frame."""
    target = target_of(browser, index)
    try:
        element = _find(browser, target, index)
        if element is None:
            # What a page has put in the place of an element that is gone, by all that identifies it.
            _leave(browser, target)
            now = take_snapshot(browser, peek=True)
            alike = [one for one in now.targets.values() if one.looks_like(target)]
            if not alike:
                raise ActionError(f"Element [{index}] is gone")
            element = _find(browser, min(alike, key=lambda one: math.dist(one.box, target.box)), index)
        if element is None:
            raise StaleElementReferenceException(f"element [{index}] was replaced again")
        yield element
    finally:
        _leave(browser, target)


def _find(browser: Browser, target: ActionTarget, index: int) -> WebElement | None:
    """Enters the frames of a target; returns its element, or None if that is gone."""
    for uid in target.frames:
        frame = browser.run("find", uid)
        if frame is None:
            raise ActionError(f"The frame of element [{index}] is gone")
        browser.call(browser.driver.switch_to.frame, frame)
        browser.enter_frame(frame)
    return browser.run("find", target.uid, target.document)


def _leave(browser: Browser, target: ActionTarget) -> None:
    for _ in target.frames:
        browser.leave_frame()
    if target.frames:
        browser.call(browser.driver.switch_to.default_content)


def page_gone(index: int | None = None) -> str:
    """The message about an action whose page is not open any more."""
    page = f"The page that [{index}] was on" if index else "The page that this was meant for"
    return f"{page} has gone; look again"


def file_folder(context: ActionContext) -> FileFolder:
    """Returns the episode's file folder. Raises ActionError if the episode has none."""
    if context.files is None:
        raise ActionError("There is no file folder")
    return context.files


def scroll(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    amount = params.num_pages if params.down else -params.num_pages
    direction = "down" if params.down else "up"
    if params.frame_element_index:
        with located(browser, params.frame_element_index) as element:
            moved = browser.run("scrollElement", element, amount)
        where = f" in [{params.frame_element_index}]"
    elif (part := browser.run("scroller")) is not None:
        moved = browser.run("scrollElement", part, amount)
        where = " in the part of the page that scrolls; the page itself does not"
    else:
        moved, where = browser.run("scrollPage", amount), ""
    text = f"Scrolled {direction}{where}" if moved else f"Cannot scroll further {direction}{where}"
    return ActionOutcome(text, changed=bool(moved))


def scroll_to_text(browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    found = _find_text(browser, params.text, _Frames(context.deadline))
    return ActionOutcome(
        f"Scrolled to {params.text!r}" if found else f"Text {params.text!r} not found", changed=found
    )


class _Frames:
    """Visits the frames of a page, up to `_MAX_FRAMES` of them and up to a deadline."""

    def __init__(self, deadline: float):
        self._left = _MAX_FRAMES
        self._deadline = min(deadline, time.monotonic() + _FRAME_SECONDS)

    def visit(self, browser: Browser, frame: WebElement, run: Callable[[], T], otherwise: T) -> T:
        """Returns what `run` returns in a frame of the current one, or `otherwise` if it cannot be used."""
        self._left -= 1
        if self._left < 0 or time.monotonic() > self._deadline:
            return otherwise
        try:
            browser.enter_frame(frame)
        except (WebDriverException, PageError):
            return otherwise
        try:
            return run()
        except (WebDriverException, PageError):
            return otherwise
        finally:
            browser.leave_frame()


def _find_text(browser: Browser, text: str, visited: _Frames) -> bool:
    found, frames = browser.run("scrollToText", text)
    for frame in frames:
        found = found or visited.visit(browser, frame, lambda: _find_text(browser, text, visited), False)
    return found


def go_to_url(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    url = params.url.strip()
    if "://" not in url and url != "about:blank":
        url = f"https://{url}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https") and url != "about:blank":
        raise ActionError(f"Cannot open {params.url[:200]}: only http and https pages")
    browser.check(url)
    if params.new_tab:
        browser.open_tab()
    browser.goto(url)
    return ActionOutcome(f"Opened {params.url}" + (" in a new tab" if params.new_tab else ""), changed=True)


def search(browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    template = context.search_urls.get(params.engine)
    if template is None:
        raise ActionError(
            f"No search engine {params.engine!r}; there is: {', '.join(context.search_urls) or 'none'}"
        )
    browser.goto(template.format(query=urllib.parse.quote_plus(params.query)))
    return ActionOutcome(f"Searched for {params.query!r}", changed=True)


def go_back(browser: Browser, _params: Any, _: ActionContext) -> ActionOutcome:
    history = browser.cdp("Page.getNavigationHistory")
    if history["currentIndex"] == 0:
        raise ActionError("There is no page to go back to")
    # Checked in advance, because going back gives no chance to refuse the address.
    browser.check(history["entries"][history["currentIndex"] - 1]["url"])
    browser.call(browser.driver.back)
    return ActionOutcome("Went back", changed=True)


def wait(_browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    seconds = min(params.seconds, MAX_WAIT_S)
    time.sleep(max(0.0, min(seconds, context.deadline - time.monotonic())))
    return ActionOutcome(f"Waited {seconds} s", changed=True)


def switch_tab(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    if not browser.switch_tab(params.tab_id):
        raise ActionError(f"No tab {params.tab_id}")
    return ActionOutcome(f"Switched to tab {params.tab_id}", changed=True, page=False)


def close_tab(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    current = browser.current_tab
    if not browser.switch_tab(params.tab_id):
        raise ActionError(f"No tab {params.tab_id}")
    browser.close_tab()
    if current != params.tab_id:
        browser.switch_tab(current)
    return ActionOutcome(f"Closed tab {params.tab_id}", changed=True, page=False)


def extract(browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    if context.extract is None:
        raise ActionError("Extraction is not available")
    # Before the cut, which could split a secret.
    text = browser.redact(page_markdown(browser, params.extract_links, context.deadline))
    if browser.snapshot is not None and not browser.shows(browser.snapshot):
        raise ActionError(page_gone())
    part = text[params.start_from_char : params.start_from_char + MAX_EXTRACT_CHARS]
    if not part.strip():
        raise ActionError(f"The page has no text from character {params.start_from_char} on")
    answer = context.extract(params.query, part)
    end = params.start_from_char + len(part)
    rest = f" ({len(text) - end} characters left, continue from {end})" if end < len(text) else ""
    return ActionOutcome(f"Extracted {params.query!r}{rest}", output=answer)


def page_markdown(browser: Browser, links: bool, deadline: float = math.inf) -> str:
    """Returns the whole page as Markdown, without scripts, styles and hidden parts."""
    html = _visible_html(browser, _Frames(deadline))[:_MAX_HTML_CHARS]
    try:
        text = markdownify(html, heading_style="ATX", strip=["img"] if links else ["img", "a"])
    except RecursionError:  # The converter recurses; only pages nested thousands deep fail.
        text = browser.script("return document.body.innerText")[:_MAX_HTML_CHARS]
    return "\n".join(line for line in (line.rstrip() for line in text.splitlines()) if line)


def _visible_html(browser: Browser, visited: _Frames) -> str:
    html, frames = browser.run("visibleHtml")
    for number, frame in enumerate(frames):
        inner = visited.visit(browser, frame, lambda: _visible_html(browser, visited), "")
        html = html.replace(_FRAME_MARK.format(number), f"<div>{inner}</div>", 1)
    return html


def execute_js(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    try:
        value = browser.page_script(_RUN, params.code, browser.document)
    except JavascriptException as problem:
        raise ActionError(f"Script failed: {first_line(problem)}") from problem
    output = browser.redact(str(value))[:MAX_EXTRACT_CHARS] if value is not None else ""
    return ActionOutcome("Ran script", changed=True, output=output)


def write_file(_browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    content = (
        ("\n" if params.leading_newline else "") + params.content + ("\n" if params.trailing_newline else "")
    )
    changed = file_folder(context).write(params.file_name, content, append=params.append)
    return ActionOutcome(f"Wrote {params.file_name}", changed=changed, page=False)


def replace_in_file(_browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    count = file_folder(context).replace(params.file_name, params.old_str, params.new_str)
    return ActionOutcome(f"Replaced {count} in {params.file_name}", changed=count > 0, page=False)


def read_file(browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    text = browser.redact(file_folder(context).read(params.file_name))
    shown = text[:MAX_EXTRACT_CHARS]
    rest = f" (the first {len(shown)} of {len(text)} characters)" if len(text) > len(shown) else ""
    return ActionOutcome(f"Read {params.file_name}{rest}", output=shown)


def done(_browser: Browser, _params: Any, _: ActionContext) -> ActionOutcome:
    return ActionOutcome("Done")
