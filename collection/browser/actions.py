"""Carrying out actions with real input events, and telling in a few words what happened."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markdownify import markdownify
from selenium.common.exceptions import JavascriptException, TimeoutException, WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from collection.browser import page_scripts
from collection.browser.files import FileError, FileFolder
from collection.browser.page_text import squeeze
from collection.browser.session import Browser, PageError, first_line
from collection.browser.snapshot import Target, take_snapshot
from rmsweb_jax.actions.schema import MAX_ACTIONS, MAX_WAIT_S, Action
from rmsweb_jax.records.schema import ActionResult

MAX_EXTRACT_CHARS = 30_000
_SHOWN_OPTIONS = 60
_SUGGESTION_MS = 400


@dataclasses.dataclass(frozen=True)
class ActionContext:
    """What actions may use beside the browser.

    Attributes:
      files: the episode's file folder; None refuses file actions.
      uploads: files outside that folder which may be uploaded.
      search_urls: engine name -> URL with `{query}`.
      extract: (query, Markdown) -> answer, by the extraction LLM; None refuses extraction.
      allow_js: whether `execute_js` runs.
    """

    files: FileFolder | None = None
    uploads: tuple[pathlib.Path, ...] = ()
    search_urls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    extract: Callable[[str, str], str] | None = None
    allow_js: bool = False


class ActionError(Exception):
    """An action that cannot be carried out; the message goes to the agent."""


def execute_list(
    browser: Browser, actions: Sequence[Action], context: ActionContext
) -> tuple[ActionResult, ...]:
    """Executes a step's actions in order.

    At most `MAX_ACTIONS`; a later `done` cuts the list. Before every later action the page is looked at
    again: the list stops when the tab or address changed, a dialog came up, the action's element is
    another or gone, or an element to act on has appeared. It also stops after an error.

    Returns:
      One result per executed action; when the list stopped early the last one says why.
    """
    if browser.snapshot is None:
        take_snapshot(browser)
    results: list[ActionResult] = []
    # Indices are those the agent saw: what happens on the way must not change what they stand for.
    for position, action in enumerate(actions[:MAX_ACTIONS]):
        if position:
            if action.name == "done":
                break
            reason = _stale(browser, action, results[-1])
            if reason:
                stopped = ActionResult(action=action.name, text=f"Not done: {reason}")
                results.append(stopped)
                break
        results.append(execute(browser, action, context))
        if results[-1].error:
            break
    return tuple(results)


def execute(browser: Browser, action: Action, context: ActionContext) -> ActionResult:
    """Carries out one action; indices refer to `browser.snapshot`.

    Returns:
      Its result; whatever the agent or the page did wrong is an error result.

    Raises:
      BrowserLostError: the browser is gone.
    """
    before = set(browser.handles())
    try:
        outcome = _ACTIONS[action.name](browser, action.params, context)
    except (ActionError, FileError, PageError) as problem:
        outcome = _Outcome(str(problem), error=True)
    except TimeoutException:
        outcome = _Outcome("The page did not answer in time", error=True)
    except WebDriverException as problem:
        outcome = _Outcome(f"Failed: {first_line(problem)}", error=True)
    if not outcome.error and outcome.changed:
        outcome = _follow(browser, action, before, outcome)
    text = outcome.text
    if browser.dialogs:
        text += "".join(f". Dialog dismissed: {squeeze(dialog)[:200]!r}" for dialog in browser.dialogs)
        browser.dialogs.clear()
    return ActionResult(
        action=action.name, text=text, error=outcome.error, changed=outcome.changed, output=outcome.output
    )


@dataclasses.dataclass(frozen=True)
class _Outcome:
    text: str
    changed: bool = False
    error: bool = False
    output: str = ""
    page: bool = True  # Whether the change, if any, is in the page.


def _follow(browser: Browser, action: Action, before: set[str], outcome: _Outcome) -> _Outcome:
    """Lets the page settle, goes to a tab the action opened, and notes whether anything is different."""
    if not outcome.page:
        return outcome
    snapshot = browser.snapshot
    browser.settle()
    browser.recover_tab()
    opened = [handle for handle in browser.handles() if handle not in before]
    if opened and action.name != "go_to_url":
        held = action.name == "click_element_by_index" and getattr(action.params, "while_holding_ctrl", False)
        if not held:
            browser.switch_handle(opened[-1])
        return dataclasses.replace(outcome, text=outcome.text + ", which opened a new tab")
    if snapshot is None or opened:
        return outcome
    return dataclasses.replace(
        outcome, changed=take_snapshot(browser, peek=True).fingerprint != snapshot.fingerprint
    )


def _stale(browser: Browser, action: Action, last: ActionResult) -> str:
    """Why the rest of the list must not be executed on this page; empty when it may."""
    seen = browser.snapshot
    if seen is None or "opened a new tab" in last.text:
        return "another tab is open now"
    if "Dialog dismissed" in last.text:
        return "a dialog came up"
    index = getattr(action.params, "index", 0)
    now = take_snapshot(browser, peek=True)
    if now.url.split("#")[0] != seen.url.split("#")[0]:
        return "the page has changed"
    if not index:
        return ""
    target = seen.targets.get(index)
    present = {other.identity: other for other in now.targets.values()}
    if target is not None:
        found = present.get(target.identity)
        if found is None or (found.tag, found.text, found.label) != (target.tag, target.text, target.label):
            return f"element [{index}] has changed"
    if set(present) - {other.identity for other in seen.targets.values()}:
        return "something new has appeared"
    return ""


class _Located:
    """An indexed element, with the driver inside its frame while in the `with` block."""

    def __init__(self, browser: Browser, index: int) -> None:
        snapshot = browser.snapshot or take_snapshot(browser)
        target = snapshot.targets.get(index)
        if target is None:
            raise ActionError(f"Element [{index}] is not on the page")
        self.browser, self.index, self.target = browser, index, target

    def __enter__(self) -> tuple[WebElement, Target]:
        try:
            for uid in self.target.frames:
                self.browser.call(self.browser.driver.switch_to.frame, self._find(uid))
            return self._find(self.target.uid), self.target
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        if self.target.frames:
            self.browser.call(self.browser.driver.switch_to.default_content)

    def _find(self, uid: int) -> WebElement:
        element = self.browser.script(page_scripts.FIND, uid)
        if element is None:
            raise ActionError(f"Element [{self.index}] is gone")
        return element


def _click(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    with _Located(browser, params.index) as (element, target):
        if target.tag == "select":
            return _options(browser, element, params.index)
        _click_at(browser, element, params.index, Keys.CONTROL if params.while_holding_ctrl else "")
    return _Outcome(f"Clicked [{params.index}]", changed=True)


def _click_at(browser: Browser, element: WebElement, index: int, modifier: str = "") -> None:
    """Clicks where the element is uncovered, found only after it has been scrolled into view."""
    point = browser.script(page_scripts.CLICK_POINT, element)
    if point is None:
        raise ActionError(f"Element [{index}] is covered or hidden")
    builder = ActionBuilder(browser.driver, duration=0)
    if modifier:
        builder.key_action.key_down(modifier)
        builder.pointer_action.pause(0)
    builder.pointer_action.move_to_location(point[0], point[1])
    builder.pointer_action.pointer_down()
    builder.pointer_action.pointer_up()
    if modifier:
        for _ in range(3):
            builder.key_action.pause(0)
        builder.key_action.key_up(modifier)
    browser.call(builder.perform)


def _input(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    where = f"[{params.index}]" if params.index else "the focused element"
    if params.index == 0:
        if params.clear_existing:
            browser.script(page_scripts.SELECT_FOCUSED)
        chain = ActionChains(browser.driver, duration=0)
        browser.call(chain.send_keys(_keys(params)).perform)
    else:
        with _Located(browser, params.index) as (element, _target):
            kind = browser.script(page_scripts.TYPING_KIND, element)
            if kind == "none":
                raise ActionError(f"Element [{params.index}] takes no text")
            if kind == "set":
                # Date, time, colour and range fields have no text to type into.
                browser.script(page_scripts.SET_VALUE, element, params.text)
            else:
                _click_at(browser, element, params.index)
                browser.script(page_scripts.PREPARE_TYPING, element, params.clear_existing)
                browser.call(element.send_keys, _keys(params))
            if browser.script(page_scripts.SUGGESTS, element):
                browser.settle(first_ms=_SUGGESTION_MS)
    return _Outcome(f"Typed {params.text!r} into {where}", changed=True)


def _keys(params: Any) -> str:
    """The keys of a text; typing nothing over what is selected removes it."""
    keys = params.text.replace("\r\n", "\n").replace("\n", Keys.ENTER)
    return Keys.DELETE if params.clear_existing and not keys else keys


def _send_keys(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    chord = [part for part in params.keys.replace("++", "+plus").split("+") if part]
    names = [_KEY_NAMES.get(part.strip().lower(), "+" if part == "plus" else part) for part in chord]
    chain = ActionChains(browser.driver, duration=0)
    if len(names) > 1 and names[0] in _MODIFIERS:
        for key in names[:-1]:
            chain.key_down(key)
        chain.send_keys(names[-1])
        for key in reversed(names[:-1]):
            chain.key_up(key)
    else:
        words = [_KEY_NAMES.get(word.lower()) for word in params.keys.split()]
        known = [word for word in words if word]
        chain.send_keys(*(known if known and len(known) == len(words) else [params.keys]))
    browser.call(chain.perform)
    return _Outcome(f"Pressed {params.keys}", changed=True)


def _scroll(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    amount = params.num_pages if params.down else -params.num_pages
    direction = "down" if params.down else "up"
    if params.frame_element_index:
        with _Located(browser, params.frame_element_index) as (element, _target):
            moved = browser.script(page_scripts.SCROLL_ELEMENT, element, amount)
        where = f" in [{params.frame_element_index}]"
    else:
        moved, where = browser.script(page_scripts.SCROLL_PAGE, amount), ""
    text = f"Scrolled {direction}{where}" if moved else f"Cannot scroll further {direction}{where}"
    return _Outcome(text, changed=bool(moved))


def _scroll_to_text(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    found = browser.script(page_scripts.SCROLL_TO_TEXT, params.text)
    return _Outcome(
        f"Scrolled to {params.text!r}" if found else f"Text {params.text!r} not found", changed=bool(found)
    )


def _go_to_url(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    url = params.url if "://" in params.url or params.url.startswith("about:") else f"https://{params.url}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https", "about"):
        raise ActionError(f"Cannot open {params.url}: only http and https pages")
    if params.new_tab:
        browser.call(browser.driver.switch_to.new_window, "tab")
        browser.switch_handle(browser.call(lambda: browser.driver.current_window_handle))
    browser.goto(url)
    return _Outcome(f"Opened {params.url}" + (" in a new tab" if params.new_tab else ""), changed=True)


def _search(browser: Browser, params: Any, context: ActionContext) -> _Outcome:
    template = context.search_urls.get(params.engine)
    if template is None:
        raise ActionError(
            f"No search engine {params.engine!r}; there is: {', '.join(context.search_urls) or 'none'}"
        )
    browser.goto(template.format(query=urllib.parse.quote_plus(params.query)))
    return _Outcome(f"Searched for {params.query!r}", changed=True)


def _go_back(browser: Browser, _params: Any, _: ActionContext) -> _Outcome:
    browser.call(browser.driver.back)
    return _Outcome("Went back", changed=True)


def _wait(_browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    seconds = min(params.seconds, MAX_WAIT_S)
    time.sleep(seconds)
    return _Outcome(f"Waited {seconds} s", changed=True)


def _switch_tab(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    if not browser.switch_tab(params.tab_id):
        raise ActionError(f"No tab {params.tab_id}")
    return _Outcome(f"Switched to tab {params.tab_id}", changed=True, page=False)


def _close_tab(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    current = browser.current_tab
    if not browser.switch_tab(params.tab_id):
        raise ActionError(f"No tab {params.tab_id}")
    browser.close_tab()
    if current != params.tab_id:
        browser.switch_tab(current)
    return _Outcome(f"Closed tab {params.tab_id}", changed=True, page=False)


def _get_options(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    with _Located(browser, params.index) as (element, _target):
        return _options(browser, element, params.index)


def _options(browser: Browser, element: WebElement, index: int) -> _Outcome:
    options = browser.script(page_scripts.OPTIONS, element)
    if not options:
        raise ActionError(f"Element [{index}] has no options")
    names = [option[0] for option in options]
    more = f" and {len(names) - _SHOWN_OPTIONS} more" if len(names) > _SHOWN_OPTIONS else ""
    return _Outcome(
        f"Options of [{index}]: {' | '.join(names[:_SHOWN_OPTIONS])}{more}",
        output="\n".join(names) if more else "",
    )


def _select_option(browser: Browser, params: Any, _: ActionContext) -> _Outcome:
    with _Located(browser, params.index) as (element, _target):
        options = browser.script(page_scripts.OPTIONS, element)
        wanted = squeeze(params.text).lower()
        match = next((n for n, (name, _value) in enumerate(options) if name.lower() == wanted), None)
        if match is None:
            match = next((n for n, (_name, value) in enumerate(options) if value.lower() == wanted), None)
        if match is None:
            raise ActionError(
                f"[{params.index}] has no option {params.text!r}. {_options(browser, element, params.index).text}"
            )
        custom = browser.script(page_scripts.CHOOSE, element, match)
        if custom is not None:
            _click_at(browser, custom, params.index)
    return _Outcome(f"Selected {options[match][0]!r} in [{params.index}]", changed=True)


def _upload(browser: Browser, params: Any, context: ActionContext) -> _Outcome:
    allowed = {path.resolve() for path in context.uploads}
    path = pathlib.Path(params.path).resolve()
    if path not in allowed:
        path = _files(context).path(params.path)
    if not path.is_file():
        raise ActionError(f"No file {params.path}")
    with _Located(browser, params.index) as (element, _target):
        field = browser.script(page_scripts.FILE_FIELD, element)
        if field is None:
            raise ActionError(f"Element [{params.index}] takes no file")
        browser.call(field.send_keys, str(path))
    return _Outcome(f"Uploaded {path.name} to [{params.index}]", changed=True)


def _extract(browser: Browser, params: Any, context: ActionContext) -> _Outcome:
    if context.extract is None:
        raise ActionError("Extraction is not available")
    text = page_markdown(browser, params.extract_links)
    part = text[params.start_from_char : params.start_from_char + MAX_EXTRACT_CHARS]
    if not part.strip():
        raise ActionError(f"The page has no text from character {params.start_from_char} on")
    answer = context.extract(params.query, part)
    end = params.start_from_char + len(part)
    rest = f" ({len(text) - end} characters left, continue from {end})" if end < len(text) else ""
    return _Outcome(f"Extracted {params.query!r}{rest}", output=answer)


def page_markdown(browser: Browser, links: bool) -> str:
    """The whole page as Markdown, without scripts, styles and hidden parts."""
    html = browser.script(page_scripts.VISIBLE_HTML)
    text = markdownify(html, heading_style="ATX", strip=["img"] if links else ["img", "a"])
    return "\n".join(line for line in (line.rstrip() for line in text.splitlines()) if line)


def _execute_js(browser: Browser, params: Any, context: ActionContext) -> _Outcome:
    if not context.allow_js:
        raise ActionError("execute_js is switched off")
    try:
        value = browser.script(page_scripts.RUN, params.code)
    except JavascriptException as problem:
        raise ActionError(f"Script failed: {first_line(problem)}") from problem
    return _Outcome(
        "Ran script", changed=True, output=str(value)[:MAX_EXTRACT_CHARS] if value is not None else ""
    )


def _files(context: ActionContext) -> FileFolder:
    if context.files is None:
        raise ActionError("There is no file folder")
    return context.files


def _write_file(_browser: Browser, params: Any, context: ActionContext) -> _Outcome:
    content = (
        ("\n" if params.leading_newline else "") + params.content + ("\n" if params.trailing_newline else "")
    )
    changed = _files(context).write(params.file_name, content, append=params.append)
    return _Outcome(f"Wrote {params.file_name}", changed=changed, page=False)


def _replace_in_file(_browser: Browser, params: Any, context: ActionContext) -> _Outcome:
    count = _files(context).replace(params.file_name, params.old_str, params.new_str)
    return _Outcome(f"Replaced {count} in {params.file_name}", changed=count > 0, page=False)


def _read_file(_browser: Browser, params: Any, context: ActionContext) -> _Outcome:
    return _Outcome(f"Read {params.file_name}", output=_files(context).read(params.file_name))


def _done(_browser: Browser, _params: Any, _: ActionContext) -> _Outcome:
    return _Outcome("Done")


_ACTIONS: dict[str, Callable[[Browser, Any, ActionContext], _Outcome]] = {
    "done": _done,
    "search_engine": _search,
    "go_to_url": _go_to_url,
    "go_back": _go_back,
    "wait": _wait,
    "click_element_by_index": _click,
    "input_text": _input,
    "scroll": _scroll,
    "send_keys": _send_keys,
    "scroll_to_text": _scroll_to_text,
    "extract_structured_data": _extract,
    "switch_tab": _switch_tab,
    "close_tab": _close_tab,
    "get_dropdown_options": _get_options,
    "select_dropdown_option": _select_option,
    "upload_file_to_element": _upload,
    "write_file": _write_file,
    "replace_file_str": _replace_in_file,
    "read_file": _read_file,
    "execute_js": _execute_js,
}
_MODIFIERS = {Keys.CONTROL, Keys.SHIFT, Keys.ALT, Keys.META}
_KEY_NAMES = {
    "enter": Keys.ENTER,
    "return": Keys.ENTER,
    "tab": Keys.TAB,
    "escape": Keys.ESCAPE,
    "esc": Keys.ESCAPE,
    "backspace": Keys.BACKSPACE,
    "delete": Keys.DELETE,
    "space": Keys.SPACE,
    "home": Keys.HOME,
    "end": Keys.END,
    "pageup": Keys.PAGE_UP,
    "pagedown": Keys.PAGE_DOWN,
    "arrowup": Keys.ARROW_UP,
    "arrowdown": Keys.ARROW_DOWN,
    "arrowleft": Keys.ARROW_LEFT,
    "arrowright": Keys.ARROW_RIGHT,
    "up": Keys.ARROW_UP,
    "down": Keys.ARROW_DOWN,
    "left": Keys.ARROW_LEFT,
    "right": Keys.ARROW_RIGHT,
    "control": Keys.CONTROL,
    "ctrl": Keys.CONTROL,
    "shift": Keys.SHIFT,
    "alt": Keys.ALT,
    "meta": Keys.META,
    "command": Keys.META,
    "insert": Keys.INSERT,
    **{f"f{number}": getattr(Keys, f"F{number}") for number in range(1, 13)},
}
