"""The state of a browser in the middle of an episode: taken as plain values, put back into any browser.

A page is loaded again, from its own source where the browser still has that, and gets back what its address
does not bring: storage before its scripts run, then fields, focus and scroll positions. What is there then is
compared with what was there: what scripts keep in memory alone is lost, and where that shows, `put_state`
raises RestoreError instead of leaving another state.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urldefrag

import ada_url
from selenium.common.exceptions import NoSuchFrameException, WebDriverException

from collection.browser.config import PageError, RestoreError, SnapshotError, first_line
from collection.browser.devtools import Response
from collection.browser.page import render_node
from collection.browser.session import Browser
from collection.browser.snapshot import MAX_FRAME_DEPTH, MAX_FRAMES, take_snapshot
from collection.browser.storage_state import Cookie

_SCRIPT = pathlib.Path(__file__).with_name("state.js").read_text(encoding="utf-8")
# With an icon, so that the browser asks for none. A page that is missing is not kept in memory when the tab
# leaves it: to go back opens the site's own.
_EMPTY = Response(404, "<link rel=icon href=data:,>")
# So that a page that is opened next is at another address.
_NO_PAGE = "/.rmsweb-restores"
_NOWHERE = (-1.0, -1.0)
_SHOWN_CHARS = 80


@dataclasses.dataclass(frozen=True)
class FrameState:
    """A document as state.js reads it.

    Attributes:
      content: its address, title and text, storage, and elements with values, scroll positions and focus.
      frames: those in its frames.
      found: what was in its storage before its own scripts ran; of a tab's document.
      marks: which elements the agent has seen.
    """

    content: dict[str, Any]
    frames: tuple[FrameState, ...]
    found: list[Any] = dataclasses.field(compare=False)
    marks: dict[str, Any] = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class TabState:
    """A tab.

    Attributes:
      earlier: addresses to which it can go back, oldest first.
      response: what its document is made of; None where the browser has not kept it.
      frame: its document.
      lines, stats: what the agent is shown of it, without marks of new elements.
      fingerprint: as in `Observation`.
    """

    tab_id: str
    earlier: tuple[str, ...]
    response: Response | None
    frame: FrameState
    lines: tuple[str, ...]
    stats: str
    fingerprint: str


@dataclasses.dataclass(frozen=True)
class BrowserState:
    """A browser's tabs and cookies; it can be pickled, and contains passwords that have been typed.

    Attributes:
      tabs: the current one last.
      known_tabs: number of tabs that there have been.
      pointer: where the mouse is.
      dialogs, notices: texts that the agent has not seen yet.
    """

    tabs: tuple[TabState, ...]
    known_tabs: int
    cookies: tuple[Cookie, ...]
    pointer: tuple[float, float] | None
    dialogs: tuple[tuple[str, str], ...]
    notices: tuple[str, ...]


def take_state(browser: Browser) -> BrowserState:
    """Takes the state of a browser, which stays as it is.

    Not part of it: downloads, `history.state`, and the partition of a cookie.

    Raises:
      SnapshotError: it has something that could not be put back.
    """
    current, tabs = browser.current_handle, []
    try:
        try:
            for handle in sorted(browser.handles(), key=lambda one: one == current):  # Ends where it was.
                if handle != browser.current_handle and not browser.switch_handle(handle):
                    raise SnapshotError("a tab has closed")
                tabs.append(_take(browser))
        finally:
            if browser.current_handle != current:
                browser.switch_handle(current)
        cookies = tuple(map(Cookie.model_validate, browser.ask("Network.getAllCookies")["cookies"]))
    except (PageError, WebDriverException, ValueError) as error:
        raise SnapshotError(f"the page cannot be read: {first_line(error)}") from error
    return BrowserState(
        tabs=tuple(tabs),
        known_tabs=browser.known_tabs,
        cookies=cookies,
        pointer=browser.pointer,
        dialogs=tuple(browser.dialogs),
        notices=tuple(browser.notices),
    )


def put_state(browser: Browser, state: BrowserState, repeat: Callable[[], None] | None = None) -> None:
    """Puts a state into a browser in place of what it shows; its guard has to allow the pages.

    Args:
      repeat: repeats what was done since the current tab's document was opened; called where that has changed
        more than fields and scroll positions, when the document has been opened again.

    Raises:
      RestoreError: what is there now is not the same.
      BrowserLostError: the browser is gone.
    """
    try:
        try:
            problem = _put(browser, state, None, patient=not repeat)
        except (PageError, WebDriverException):
            browser.reset()  # A page of the last episode may hang, or close its tab.
            problem = _put(browser, state, None, patient=not repeat)
        if problem and repeat:
            problem = _put(browser, state, repeat, patient=True)
    except (PageError, WebDriverException) as error:
        raise RestoreError(f"not restored: {first_line(error)}") from error
    if problem:
        raise RestoreError(f"not restored: {browser.redact(problem)}")


def look(browser: Browser) -> TabState:
    """Reads the current tab's document; which elements are new to the agent stays as it is."""
    frame = _walk(browser, "take")
    snapshot = take_snapshot(browser, peek=True)
    _walk(browser, "mark", frame)
    return TabState(
        tab_id=browser.current_tab,
        earlier=(),
        response=None,
        frame=frame,
        lines=tuple(render_node(dataclasses.replace(node, is_new=False)) for node in snapshot.nodes),
        stats=snapshot.stats,
        fingerprint=snapshot.fingerprint,
    )


def _take(browser: Browser) -> TabState:
    tab = look(browser)
    content = tab.frame.content
    if not content["url"].startswith(("http:", "https:", "about:blank")):
        raise SnapshotError(f"{browser.short_url(content['url'])} cannot be opened again")
    if any(map(any, _storages_of_others(tab.frame, content["origin"]))):
        raise SnapshotError("a frame of another site keeps something in its storage")
    if content["origin"] != "null":
        usage = browser.ask("Storage.getUsageAndQuota", origin=content["origin"])["usageBreakdown"]
        if used := [one["storageType"] for one in usage if one["usage"]]:
            raise SnapshotError(f"the page keeps something in {', '.join(used)}")
    history = browser.ask("Page.getNavigationHistory")
    earlier = (one["url"] for one in history["entries"][: history["currentIndex"]])
    earlier = tuple(url for url in earlier if url.startswith(("http:", "https:", "about:blank")))
    for url in earlier:
        # What an origin keeps is read, and put back, in a tab that shows it.
        if url.startswith("http") and ada_url.URL(url).origin != content["origin"]:
            raise SnapshotError(f"the tab can go back to another site, {browser.short_url(url)}")
    shown = browser.latest
    response = browser.source((shown and shown.status) or 200)
    return dataclasses.replace(tab, earlier=earlier, response=response)


def _storages_of_others(frame: FrameState, origin: str) -> Iterator[Any]:
    for inner in frame.frames:
        if inner.content["origin"] != origin:
            yield inner.content["storages"]
        yield from _storages_of_others(inner, origin)


def _put(browser: Browser, state: BrowserState, repeat: Callable[[], None] | None, patient: bool) -> str:
    """Returns what differs; empty if nothing does.

    Args:
      patient: the page's scripts have some time to make it the same.
    """
    handles = browser.arrange_tabs([tab.tab_id for tab in state.tabs], state.known_tabs)
    for number, (handle, tab) in enumerate(zip(handles, state.tabs, strict=True)):
        if number:
            browser.switch_handle(handle)
        _open(browser, tab, None if number else state)
        if repeat is not None and tab is state.tabs[-1]:
            repeat()
            browser.snapshot = None
        if problem := _fill(browser, tab, patient):
            return problem
    if len(browser.handles()) != len(handles):
        return "the page opens another tab"
    _set_cookies(browser, state.cookies)  # The site may have set others meanwhile.
    browser.forget_incidents()
    browser.dialogs[:], browser.notices[:] = state.dialogs, state.notices
    return ""


def _open(browser: Browser, tab: TabState, state: BrowserState | None) -> None:
    """Opens a tab's document, after those that it can go back to, in whose place empty ones are opened.

    Args:
      state: of the browser, for its first tab: it is prepared as soon as the last page is gone.
    """
    content = tab.frame.content
    browser.check(content["url"])
    history = [*tab.earlier, content["url"]]
    first = len(history) - 1
    while first and "#" in history[first] and _document(history[first]) == _document(history[first - 1]):
        first -= 1  # The document was opened at this address, and has moved within itself since.
    empty = [(url, _EMPTY if url.startswith("http") else None) for url in history[:first]]
    # Storage is set in an empty document of the origin.
    blank = content["origin"] == "null"
    spare = blank or not first or not history[0].startswith(f"{content['origin']}/")
    if spare:
        empty.insert(0, ("about:blank", None) if blank else (content["origin"] + _NO_PAGE, _EMPTY))
    for number, (url, served) in enumerate(empty):
        browser.visit(url, served)
        if number <= spare:  # By the driver, which waits until the browser has left the last document.
            browser.cdp("Page.resetNavigationHistory")
        if number == 0 and state is not None:
            browser.forget()
            browser.point(state.pointer or _NOWHERE)
            browser.ask("Storage.clearDataForOrigin", origin="*", storageTypes="all")
            browser.ask("Network.clearBrowserCache")  # It may be of another state of the site.
            _set_cookies(browser, state.cookies)
        if number == 0 and not blank:
            found = tab.frame.found
            if state is None:  # Tabs share localStorage: an earlier one would see it go back.
                found = [content["storages"][0], found[1]]
            _run(browser, "store", dataclasses.replace(tab.frame, found=found))
    browser.visit(history[first], tab.response, content["referrer"])
    if not first:
        browser.cdp("Page.resetNavigationHistory")
    for url in history[first + 1 :]:
        browser.visit(url)


def _document(url: str) -> str:
    return urldefrag(url).url


def _fill(browser: Browser, tab: TabState, patient: bool) -> str:
    """Puts back what a tab's document held; returns what differs, empty if nothing does."""
    end = time.monotonic() + patient * browser.config.settle_ms / 1000
    while True:
        _walk(browser, "put", tab.frame)
        browser.settle()
        problem = difference(tab, look(browser), browser.redact)
        if not problem or time.monotonic() > end:
            break
    _walk(browser, "mark", tab.frame)
    return problem


def difference(then: TabState, now: TabState, redact: Callable[[str], str]) -> str:
    """Returns what a document has that another one has not; empty if they are the same.

    Args:
      redact: removes the secrets of a line, which is cut then.
    """
    for was, found in itertools.zip_longest(then.lines, now.lines):
        if was != found:
            shown, wanted = (_short(line, redact) for line in (found, was))
            return f"the page shows {shown} in place of {wanted}"
    if (then.stats, then.fingerprint) != (now.stats, now.fingerprint):
        return f"{now.stats} at {now.frame.content['url']} in place of {then.stats}"
    return _difference_in(then.frame, now.frame)


def _difference_in(then: FrameState, now: FrameState) -> str:
    for name, value in then.content.items():
        if name != "elements" and now.content[name] != value:
            return f"the {name} of {then.content['url']}"
    was, found = ({one[0]: one for one in frame.content["elements"]} for frame in (then, now))
    for name in was | found:
        if was.get(name) != found.get(name):
            return f"value, focus or scroll position of {name}"
    if len(then.frames) != len(now.frames):
        return f"{len(now.frames)} frames in place of {len(then.frames)}"
    return next(filter(None, map(_difference_in, then.frames, now.frames)), "")


def _short(line: str | None, redact: Callable[[str], str]) -> str:
    return "nothing" if line is None else repr(redact(line).strip()[:_SHOWN_CHARS])


def _walk(browser: Browser, task: str, saved: FrameState | None = None, depth: int = 0) -> FrameState:
    """Runs state.js in the current frame and those in it; returns what `take` has returned."""
    answer = _run(browser, task, saved)
    frames = []
    for number, element in enumerate(answer["frames"][:MAX_FRAMES] if depth < MAX_FRAME_DEPTH else ()):
        inner = saved.frames[number] if saved is not None and number < len(saved.frames) else None
        if saved is not None and inner is None:
            break
        try:
            browser.enter_frame(element)
        except NoSuchFrameException:
            continue
        try:
            frames.append(_walk(browser, task, inner, depth + 1))
        finally:
            browser.leave_frame()
    content, found, marks = answer.get("content", {}), answer.get("found", []), answer.get("marks", {})
    return FrameState(content, tuple(frames), found, marks)


def _run(browser: Browser, task: str, saved: FrameState | None) -> dict[str, Any]:
    given = None if saved is None else {"content": saved.content, "found": saved.found, "marks": saved.marks}
    return browser.script(_SCRIPT, task, given)


def _set_cookies(browser: Browser, cookies: Sequence[Cookie]) -> None:
    browser.ask("Network.clearBrowserCookies")
    browser.ask("Network.setCookies", cookies=[one.to_devtools() for one in cookies])
