"""Execution of actions, one at a time or as the list of a step."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from selenium.common.exceptions import NoSuchFrameException, TimeoutException, WebDriverException

from collection.browser import elements, pages
from collection.browser.config import BrowserLostError, PageError, TabGoneError, first_line, page_problem
from collection.browser.files import FileError
from collection.browser.pages import ActionContext, ActionError, ActionOutcome, page_gone
from collection.browser.session import Browser
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.schema import EXTRA_ACTIONS, MAX_ACTIONS, Action
from rmsweb_jax.errors import user_message
from rmsweb_jax.records.schema import ActionResult

# Not bound to a page: they name their tab, or need none.
_ANYWHERE = ("done", "wait", "switch_tab", "close_tab", "write_file", "replace_file_str", "read_file")
# Bound to the tab alone: they leave its document, which may not answer.
_IN_TAB = ("go_to_url", "go_back", "search_engine")
# Follows the dialogs that were dismissed.
ACCEPT_HINT = "To accept it, repeat the action with send_keys Enter as the next one"


def execute_list(
    browser: Browser, actions: Sequence[Action], context: ActionContext
) -> tuple[ActionResult, ...]:
    """Executes a step's actions in order, at most `MAX_ACTIONS`; a `done` after the first ends the list.

    A snapshot follows every action that may have changed the page, so that indices keep the meaning that the
    agent saw. The list stops after an error, and if the tab or address changed, a dialog opened, the next
    action's element changed or disappeared, or a new element appeared.

    Dialogs are dismissed, unless `send_keys` with Enter follows the action that opens one: that accepts it.

    Returns:
      One result per executed action; if the list stopped early, the last one gives the reason.
    """
    results: list[ActionResult] = []
    if browser.snapshot is None and (problem := _observe_again(browser, peek=False)):
        return (ActionResult(action=actions[0].name, text=problem, error=True),)
    actions = actions[:MAX_ACTIONS]
    for position, action in enumerate(actions):
        before = browser.latest
        if position and _presses_enter(action) and "Dialog accepted" in results[-1].text:
            results.append(ActionResult(action=action.name, text="Pressed Enter in the dialog"))
            continue
        if position:
            if action.name == "done":
                break
            late = time.monotonic() > context.deadline
            reason = "the time limit is reached" if late else _stop_reason(browser, action, results[-1])
            if reason:
                results.append(ActionResult(action=action.name, text=f"Not done: {reason}"))
                break
        accept = position + 1 < len(actions) and _presses_enter(actions[position + 1])
        results.append(execute(browser, action, context, accept))
        if results[-1].error:
            break
        # No snapshot follows an action that changed nothing, but the page may have changed by itself.
        if browser.latest is before and _indexed(actions, position + 1):
            _observe_again(browser, peek=True)
    return tuple(results)


def execute(
    browser: Browser, action: Action, context: ActionContext, accept_dialogs: bool = False
) -> ActionResult:
    """Executes one action on the page that `browser.snapshot` is of; indices refer to it.

    An action whose tab or document has gone is an error, and touches no other. Afterwards the addresses of
    all windows have been checked, and downloads are among the episode's files.

    Args:
      accept_dialogs: accept dialogs that the action opens, instead of dismissing them.

    Returns:
      The result without secrets. Mistakes of the agent, the page or this program give an error result.

    Raises:
      BrowserLostError: the browser is gone.
      UserError, OSError: an error that the user can fix, such as a full disk.
    """
    browser.accept_dialogs = accept_dialogs
    outcome = _catch_errors(browser, lambda: _execute(browser, action, context))
    browser.accept_dialogs = False
    try:
        browser.sweep_if_needed()
    except PageError as problem:
        outcome = dataclasses.replace(outcome, text=f"{outcome.text}. {problem}", error=True)
    events, arrived = _take_events(browser, context)
    return ActionResult(
        action=action.name,
        text=browser.redact(outcome.text + events),
        error=outcome.error,
        changed=outcome.changed or arrived,
        output=browser.redact(outcome.output),
    )


def _execute(browser: Browser, action: Action, context: ActionContext) -> ActionOutcome:
    if action.name in EXTRA_ACTIONS and action.name not in context.extra_actions:
        raise ActionError(f"{action.name} is switched off")
    browser.sweep()
    tab, before = browser.current_handle, set(browser.handles())
    # Last, because the page may close or go at any time.
    browser.document = _find_document(browser, action)
    try:
        outcome = _ACTIONS[action.name](browser, action.params, context)
    except NoSuchFrameException as problem:
        if browser.document is None:
            raise
        raise ActionError(_page_gone(action)) from problem
    except TimeoutException:
        # Loading was stopped, and the page has answered since: what is loaded can be used.
        text = "The page was still loading after the time limit, so loading was stopped"
        outcome = ActionOutcome(text, changed=True)
    finally:
        browser.document = None
    # Nothing happened, so there is nothing to wait for.
    if outcome.error or not outcome.changed:
        return outcome
    followed = _catch_errors(browser, lambda: _follow(browser, action, tab, before, outcome))
    return (
        dataclasses.replace(followed, text=f"{outcome.text}. {followed.text}") if followed.error else followed
    )


def _find_document(browser: Browser, action: Action) -> float | None:
    """Returns the document that an action was decided on, which is open; None if any will do.

    A page that has reloaded itself and is the same as before takes the place of the one that was shown: many
    reload faster than a model answers.

    Raises:
      ActionError: the browser is at another page.
    """
    seen = browser.snapshot
    if seen is None or action.name in _ANYWHERE or getattr(action.params, "new_tab", False):
        return None
    if browser.current_handle == seen.target:
        if action.name in _IN_TAB:
            return None
        if browser.shows(seen):
            return seen.document
        browser.settle()
        now = take_snapshot(browser, peek=True)
        if now.repeats(seen):
            browser.snapshot = now
            return now.document
    raise ActionError(_page_gone(action))


def _page_gone(action: Action) -> str:
    index = getattr(action.params, "index", None) or getattr(action.params, "frame_element_index", None)
    return page_gone(index)


def _catch_errors(browser: Browser, run: Callable[[], ActionOutcome]) -> ActionOutcome:
    try:
        return run()
    except (ActionError, FileError, PageError) as problem:
        return ActionOutcome(str(problem), error=True)
    except TimeoutException:
        return ActionOutcome("The page did not answer in time", error=True)
    except WebDriverException as problem:
        return ActionOutcome(f"Failed: {first_line(problem)}", error=True)
    except Exception as problem:
        if isinstance(problem, BrowserLostError) or user_message(problem) is not None:
            raise
        # An error of this program. The episode goes on; the message may have parts of the page.
        print(browser.redact(traceback.format_exc()), end="", file=sys.stderr, flush=True)
        return ActionOutcome(f"Failed: unexpected {type(problem).__name__}", error=True)


def _take_events(browser: Browser, context: ActionContext) -> tuple[str, bool]:
    """Returns dialogs, notices and downloads as text for the result, and True if files have arrived."""
    lines = []
    for (what, text), count in collections.Counter(browser.dialogs).items():
        lines.append(f"Dialog {what}: {text!r}" + (f" ({count} times)" if count > 1 else ""))
        browser.add_incident("dialog", lines[-1])
    lines += [ACCEPT_HINT] * any(what == "dismissed" for what, _ in browser.dialogs)
    lines += browser.notices
    browser.dialogs.clear()
    browser.notices.clear()
    downloads = browser.downloads.take(context.files)
    for download in downloads:
        browser.add_incident("download", download.text)
        lines.append(download.text)
    if browser.downloads.arriving():
        lines.append("A download is still coming in")
    return "".join(f". {line}" for line in lines), any(not download.problem for download in downloads)


def _follow(
    browser: Browser, action: Action, tab: str, before: set[str], outcome: ActionOutcome
) -> ActionOutcome:
    """Waits for the page to settle, switches to a tab that the action opened, and detects changes.

    Args:
      tab: the handle of the tab in which the action was carried out.
      before: the handles of all tabs before it.
    """
    if not outcome.page:
        return outcome
    earlier, text, now = browser.latest, outcome.text, None
    with contextlib.suppress(TabGoneError):
        browser.settle()
        # An empty tab that replaced the current one was not opened by the page.
        opened = [handle for handle in browser.handles() if handle not in before | {browser.current_handle}]
        if opened and action.name != "go_to_url":
            # Ctrl+click asks for a tab in the background.
            background = action.name == "click_element_by_index" and getattr(
                action.params, "while_holding_ctrl", False
            )
            if not background:
                browser.switch_handle(opened[-1])
            return dataclasses.replace(outcome, text=f"{text}, which opened a new tab")
        now = take_snapshot(browser, peek=True)
    if now is None or tab not in browser.handles():
        return dataclasses.replace(outcome, text=f"{text}, and the tab closed")
    if now.url.startswith("chrome-error:"):
        text += f". The page could not be opened: {page_problem(now.page_text)}"
    changed = earlier is None or now.fingerprint != earlier.fingerprint
    return dataclasses.replace(outcome, text=text, changed=changed)


def _presses_enter(action: Action) -> bool:
    return action.name == "send_keys" and getattr(action.params, "keys", "").strip().lower() == "enter"


def _indexed(actions: Sequence[Action], position: int) -> bool:
    following = actions[position : min(position + 1, MAX_ACTIONS)]
    return any(getattr(action.params, "index", 0) for action in following)


def _observe_again(browser: Browser, peek: bool) -> str:
    """Takes a snapshot; returns the reason if that failed, else an empty text."""
    outcome = _catch_errors(browser, lambda: ActionOutcome(take_snapshot(browser, peek=peek).url))
    return browser.redact(outcome.text) if outcome.error else ""


def _stop_reason(browser: Browser, action: Action, last: ActionResult) -> str:
    """Returns the reason not to execute the rest of the list on this page; empty if there is none."""
    seen, now = browser.snapshot, browser.latest
    if seen is None or now is None or browser.current_handle != seen.target:
        return "another tab is open now"
    if "Dialog dismissed" in last.text:
        return "a dialog came up"
    if now.document != seen.document or now.url.split("#")[0] != seen.url.split("#")[0]:
        return "the page has changed"
    index = getattr(action.params, "index", 0)
    if not index:
        return ""
    present = {other.identity: other for other in now.targets.values()}
    target = seen.targets.get(index)
    if target is not None:
        found = present.get(target.identity)
        if found is None or (found.tag, found.text, found.label) != (target.tag, target.text, target.label):
            return f"element [{index}] has changed"
    if set(present) - {other.identity for other in seen.targets.values()}:
        return "something new has appeared"
    return ""


_ACTIONS: dict[str, Callable[[Browser, Any, ActionContext], ActionOutcome]] = {
    "done": pages.done,
    "search_engine": pages.search,
    "go_to_url": pages.go_to_url,
    "go_back": pages.go_back,
    "wait": pages.wait,
    "click_element_by_index": elements.click,
    "input_text": elements.input_text,
    "scroll": pages.scroll,
    "send_keys": elements.send_keys,
    "scroll_to_text": pages.scroll_to_text,
    "extract_structured_data": pages.extract,
    "switch_tab": pages.switch_tab,
    "close_tab": pages.close_tab,
    "get_dropdown_options": elements.get_options,
    "select_dropdown_option": elements.select_option,
    "upload_file_to_element": elements.upload,
    "write_file": pages.write_file,
    "replace_file_str": pages.replace_in_file,
    "read_file": pages.read_file,
    "execute_js": pages.execute_js,
    "click_coordinates": elements.click_coordinates,
    "drag_coordinates": elements.drag_coordinates,
    "hover_coordinates": elements.hover_coordinates,
    "scroll_coordinates": elements.scroll_coordinates,
    "double_click_element": elements.double_click,
    "drag_element": elements.drag,
    "hover_element": elements.hover,
}
