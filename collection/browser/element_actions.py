"""Actions on one element, with real input events: pages can reject synthetic ones."""

from __future__ import annotations

import pathlib
from typing import Any

from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from collection.browser import page_scripts
from collection.browser.action_types import (
    ActionContext,
    ActionError,
    ActionOutcome,
    LocatedElement,
    file_folder,
)
from collection.browser.page import short_value, squeeze
from collection.browser.session import Browser

_SHOWN_OPTIONS, _MAX_OPTIONS = 60, 1000
# jQuery UI's autocomplete, for one, waits 300 ms after the last key before it shows suggestions.
_SUGGESTION_MS = 400
# What fields without text to type into take, by type.
_FORMATS = {
    "date": "YYYY-MM-DD",
    "time": "HH:MM, of 24 hours",
    "month": "YYYY-MM",
    "week": "YYYY-Www, as 2027-W05",
    "datetime-local": "YYYY-MM-DDTHH:MM",
    "color": "#rrggbb",
    "number": "a number",
}


def click(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    with LocatedElement(browser, params.index) as (element, target):
        if target.tag == "select":
            return _options(browser, element, params.index)
        _click_at(browser, element, params.index, Keys.CONTROL if params.while_holding_ctrl else "")
    return ActionOutcome(f"Clicked [{params.index}]", changed=True)


def _click_at(browser: Browser, element: WebElement, index: int, modifier: str = "", times: int = 1) -> None:
    """Clicks a point where the element is not covered, after scrolling it into view.

    Args:
      modifier: key that is held meanwhile.
      times: number of clicks; 0 only moves the mouse there.
    """
    point = browser.script(page_scripts.CLICK_POINT, element)
    if point is None:
        raise ActionError(f"Element [{index}] is covered or hidden")
    builder = ActionBuilder(browser.driver, duration=0)
    if modifier:
        builder.key_action.key_down(modifier)
        builder.pointer_action.pause(0)
    builder.pointer_action.move_to(element, point[0], point[1])
    for _ in range(times):
        builder.pointer_action.pointer_down()
        builder.pointer_action.pointer_up()
    if modifier:
        for _ in range(1 + 2 * times):
            builder.key_action.pause(0)
        builder.key_action.key_up(modifier)
    browser.call(builder.perform)


def double_click(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    with LocatedElement(browser, params.index) as (element, _target):
        _click_at(browser, element, params.index, times=2)
    return ActionOutcome(f"Double-clicked [{params.index}]", changed=True)


def hover(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    with LocatedElement(browser, params.index) as (element, _target):
        _click_at(browser, element, params.index, times=0)
    return ActionOutcome(f"Moved the mouse over [{params.index}]", changed=True)


def input_text(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    if params.index:
        with LocatedElement(browser, params.index) as (element, _target):
            return _type_into(browser, element, params)
    if _names_secret(browser, params):
        return _type_secret(browser, browser.script(page_scripts.FOCUSED), params)
    if params.clear_existing:
        browser.script(page_scripts.SELECT_FOCUSED)
    _send(browser, params, None)
    return ActionOutcome(f"Typed {params.text!r} into the focused element", changed=True)


def _type_into(browser: Browser, element: WebElement, params: Any) -> ActionOutcome:
    kind = browser.script(page_scripts.TYPING_KIND, element)
    if kind == "none":
        raise ActionError(f"Element [{params.index}] takes no text")
    if kind == "slider":
        raise ActionError(f"[{params.index}] takes no text: click it, then move it with send_keys ArrowRight")
    if _names_secret(browser, params):
        return _type_secret(browser, element, params)
    if kind == "set":
        # Date, time, colour and range fields have no text to type into.
        before = _typed(browser, element)
        browser.script(page_scripts.SET_VALUE, element, params.text)
        return _check_typed(browser, element, params, before)
    _click_at(browser, element, params.index)
    suggests = False
    if kind == "type":
        suggests = browser.script(page_scripts.PREPARE_TYPING, element, params.clear_existing)
    elif params.clear_existing:
        browser.script(page_scripts.SELECT_FOCUSED)
    before = _typed(browser, element)
    _send(browser, params, element if kind == "type" else None)
    if suggests:
        browser.settle(first_ms=_SUGGESTION_MS)
    return _check_typed(browser, element, params, before)


def _send(browser: Browser, params: Any, element: WebElement | None) -> None:
    """Types into an element, or into what has the focus."""
    if _holds_secret(browser, params.text):
        # In one event: requests of the page while typing must not contain a part of the secret, which
        # redaction would not find.
        browser.cdp("Input.insertText", text=params.text)
    elif element is not None:
        browser.call(element.send_keys, _keys(params))
    else:
        browser.call(ActionChains(browser.driver, duration=0).send_keys(_keys(params)).perform)


def _typed(browser: Browser, element: WebElement) -> tuple[str, str] | None:
    """Returns kind and text of the field, as `page_scripts.TYPED`; None also if the page has gone."""
    try:
        return browser.script(page_scripts.TYPED, element)
    except WebDriverException:
        return None


def _check_typed(
    browser: Browser, element: WebElement, params: Any, before: tuple[str, str] | None
) -> ActionOutcome:
    """Reads back what a field holds after typing.

    A text that certainly was not taken is an error; otherwise the result says what the field holds: fields of
    tags and codes, for example, empty themselves.
    """
    where, text, done = f"[{params.index}]", params.text, f"Typed {params.text!r} into [{params.index}]"
    after = _typed(browser, element)
    # The Enter key may send a form, which may empty its fields.
    if before is None or after is None or not text or "\n" in text:
        return ActionOutcome(done, changed=True)
    kind, value = after
    if not kind:
        return ActionOutcome(f"{done}, but no text field has the focus", changed=True)
    # What a password field holds is not for the result.
    if kind == "password" or _plain(text) in _plain(value):
        return ActionOutcome(done, changed=True)
    if kind in _FORMATS and value in ("", before[1]):
        raise ActionError(f"{where} did not take {text!r}: write it as {_FORMATS[kind]}")
    if value and value == before[1] and params.clear_existing:
        raise ActionError(f"{where} did not take {text!r}; it holds {short_value(value)!r}")
    return ActionOutcome(f"{done}, which now holds {short_value(value)!r}", changed=True)


def _plain(text: str) -> str:
    """Letters and digits only: masks add brackets and spaces."""
    return "".join(filter(str.isalnum, text)).casefold() or text


def _names_secret(browser: Browser, params: Any) -> bool:
    return browser.guard is not None and bool(browser.guard.redactor.secrets_in(params.text))


def _type_secret(browser: Browser, element: WebElement | None, params: Any) -> ActionOutcome:
    """Sets the text of a field with its secrets, if they belong to the field's site.

    Keys would go to what has the focus, which a page can move to a frame of another site meanwhile. The
    result has the placeholders.
    """
    where = f"[{params.index}]" if params.index else "the focused element"
    if element is None or element.tag_name.lower() not in ("input", "textarea"):
        raise ActionError(f"A secret can only be typed into a field, and {where} is none")
    assert browser.guard is not None
    text = browser.guard.fill(params.text, _frame_url(browser, element))
    if not browser.script(page_scripts.SET_TEXT, element, text, params.clear_existing):
        raise ActionError(f"{where} did not take all of the text")
    return ActionOutcome(f"Typed {params.text!r} into {where}", changed=True)


def _frame_url(browser: Browser, element: WebElement) -> str:
    """The address of the element's frame, from the browser: scripts of the page could say anything."""
    frame = element.id.split(".")[1]  # Chromium's ids are `f.FRAME.d.DOCUMENT.e.NODE`.
    waiting = [browser.cdp("Page.getFrameTree")["frameTree"]]
    while waiting:
        tree = waiting.pop()
        if tree["frame"]["id"] == frame:
            return tree["frame"]["url"]
        waiting += tree.get("childFrames", ())
    # Frames of other sites have processes of their own.
    targets = browser.cdp("Target.getTargets")["targetInfos"]
    return next((target["url"] for target in targets if target["targetId"] == frame), "")


def _holds_secret(browser: Browser, text: str) -> bool:
    return browser.redact(text) != text


def _keys(params: Any) -> str:
    """Returns the keys of a text; for an empty text, the key that deletes the selection."""
    keys = params.text.replace("\r\n", "\n").replace("\n", Keys.ENTER)
    return Keys.DELETE if params.clear_existing and not keys else keys


def send_keys(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
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
    return ActionOutcome(f"Pressed {params.keys}", changed=True)


def get_options(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    with LocatedElement(browser, params.index) as (element, _target):
        return _options(browser, element, params.index)


def _options(browser: Browser, element: WebElement, index: int) -> ActionOutcome:
    options, opened = _find_options(browser, element, index)
    names = [option[0] for option in options]
    more = f" and {len(names) - _SHOWN_OPTIONS} more" if len(names) > _SHOWN_OPTIONS else ""
    return ActionOutcome(
        f"Options of [{index}]: {' | '.join(names[:_SHOWN_OPTIONS])}{more}",
        changed=opened,
        output="\n".join(names[:_MAX_OPTIONS]) if more else "",
    )


def _find_options(browser: Browser, element: WebElement, index: int) -> tuple[list[list[str]], bool]:
    """Returns text and value of all options, and True if the list had to be opened first."""
    options = browser.script(page_scripts.OPTIONS, element, False)
    if options or not browser.script(page_scripts.OPENS, element):
        opened = False
    else:
        _click_at(browser, element, index)
        browser.settle(first_ms=_SUGGESTION_MS)
        options, opened = browser.script(page_scripts.OPTIONS, element, True), True
    if not options:
        raise ActionError(f"Element [{index}] has no options")
    return options, opened


def select_option(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    with LocatedElement(browser, params.index) as (element, _target):
        options, opened = _find_options(browser, element, params.index)
        wanted = squeeze(params.text).lower()
        match = next((n for n, (name, _value) in enumerate(options) if name.lower() == wanted), None)
        if match is None:
            match = next((n for n, (_name, value) in enumerate(options) if value.lower() == wanted), None)
        if match is None:
            shown = " | ".join(option[0] for option in options[:_SHOWN_OPTIONS])
            raise ActionError(
                f"[{params.index}] has no option {params.text!r}. Options of [{params.index}]: {shown}"
            )
        custom = browser.script(page_scripts.CHOOSE, element, match, opened)
        if custom is not None:
            _click_at(browser, custom, params.index)
    return ActionOutcome(f"Selected {options[match][0]!r} in [{params.index}]", changed=True)


def upload(browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    allowed = {path.resolve() for path in context.uploads}
    path = pathlib.Path(params.path).resolve()
    if path not in allowed:
        path = file_folder(context).path(params.path)
    if not path.is_file():
        raise ActionError(f"No file {params.path}")
    with LocatedElement(browser, params.index) as (element, _target):
        field = browser.script(page_scripts.FILE_FIELD, element)
        if field is None:
            raise ActionError(f"Element [{params.index}] takes no file")
        browser.call(field.send_keys, str(path))
    return ActionOutcome(f"Uploaded {path.name} to [{params.index}]", changed=True)


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


def click_coordinates(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    width, height = browser.config.width, browser.config.height
    if params.x >= width or params.y >= height:
        raise ActionError(f"({params.x}, {params.y}) is outside the screenshot of {width} by {height} pixels")
    builder = ActionBuilder(browser.driver, duration=0)
    builder.pointer_action.move_to_location(params.x, params.y)
    builder.pointer_action.pointer_down()
    builder.pointer_action.pointer_up()
    browser.call(builder.perform)
    return ActionOutcome(f"Clicked ({params.x}, {params.y})", changed=True)


def drag(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    raise ActionError("todo")
