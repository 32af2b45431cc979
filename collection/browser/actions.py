"""Carrying out actions, one or a step's list, and telling in a few words what happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from selenium.common.exceptions import TimeoutException, WebDriverException

from collection.browser import element_actions, page_actions
from collection.browser.action_types import ActionContext, ActionError, Outcome
from collection.browser.files import FileError
from collection.browser.page_text import squeeze
from collection.browser.session import Browser, PageError, first_line
from collection.browser.snapshot import take_snapshot
from rmsweb_jax.actions.schema import MAX_ACTIONS, Action
from rmsweb_jax.records.schema import ActionResult


def execute_list(
    browser: Browser, actions: Sequence[Action], context: ActionContext
) -> tuple[ActionResult, ...]:
    """Executes a step's actions in order.

    At most `MAX_ACTIONS`; a later `done` cuts the list. The page is looked at after every action that may
    have changed it, so that indices keep meaning what the agent saw: the list stops when the tab or
    address changed, a dialog came up, the next action's element is another or gone, or an element to act
    on has appeared. It also stops after an error.

    Returns:
      One result per executed action; when the list stopped early the last one says why.
    """
    if browser.snapshot is None:
        take_snapshot(browser)
    results: list[ActionResult] = []
    for position, action in enumerate(actions[:MAX_ACTIONS]):
        if position:
            if action.name == "done":
                break
            reason = _stale(browser, action, results[-1])
            if reason:
                results.append(ActionResult(action=action.name, text=f"Not done: {reason}"))
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
        outcome = Outcome(str(problem), error=True)
    except TimeoutException:
        outcome = Outcome("The page did not answer in time", error=True)
    except WebDriverException as problem:
        outcome = Outcome(f"Failed: {first_line(problem)}", error=True)
    if not outcome.error and outcome.changed:
        outcome = _follow(browser, action, before, outcome)
    text = outcome.text
    if browser.dialogs:
        text += "".join(f". Dialog dismissed: {squeeze(dialog)[:200]!r}" for dialog in browser.dialogs)
        browser.dialogs.clear()
    return ActionResult(
        action=action.name, text=text, error=outcome.error, changed=outcome.changed, output=outcome.output
    )


def _follow(browser: Browser, action: Action, before: set[str], outcome: Outcome) -> Outcome:
    """Lets the page settle, goes to a tab the action opened, and notes whether anything is different."""
    if not outcome.page:
        return outcome
    earlier = browser.latest
    browser.settle()
    browser.recover_tab()
    opened = [handle for handle in browser.handles() if handle not in before]
    if opened and action.name != "go_to_url":
        held = action.name == "click_element_by_index" and getattr(action.params, "while_holding_ctrl", False)
        if not held:
            browser.switch_handle(opened[-1])
        return dataclasses.replace(outcome, text=outcome.text + ", which opened a new tab")
    now = take_snapshot(browser, peek=True)
    return dataclasses.replace(outcome, changed=earlier is None or now.fingerprint != earlier.fingerprint)


def _stale(browser: Browser, action: Action, last: ActionResult) -> str:
    """Why the rest of the list must not be executed on this page; empty when it may."""
    seen, now = browser.snapshot, browser.latest
    if seen is None or now is None:
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


_ACTIONS: dict[str, Callable[[Browser, Any, ActionContext], Outcome]] = {
    "done": page_actions.done,
    "search_engine": page_actions.search,
    "go_to_url": page_actions.go_to_url,
    "go_back": page_actions.go_back,
    "wait": page_actions.wait,
    "click_element_by_index": element_actions.click,
    "input_text": element_actions.input_text,
    "scroll": page_actions.scroll,
    "send_keys": element_actions.send_keys,
    "scroll_to_text": page_actions.scroll_to_text,
    "extract_structured_data": page_actions.extract,
    "switch_tab": page_actions.switch_tab,
    "close_tab": page_actions.close_tab,
    "get_dropdown_options": element_actions.get_options,
    "select_dropdown_option": element_actions.select_option,
    "upload_file_to_element": element_actions.upload,
    "write_file": page_actions.write_file,
    "replace_file_str": page_actions.replace_in_file,
    "read_file": page_actions.read_file,
    "execute_js": page_actions.execute_js,
}
