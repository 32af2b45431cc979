"""Actions on one element, with real input events: pages can reject synthetic ones."""

from __future__ import annotations

import pathlib
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from collection.browser.config import TabGoneError
from collection.browser.page import short_value, squeeze
from collection.browser.pages import (
    ActionContext,
    ActionError,
    ActionOutcome,
    file_folder,
    located,
    target_of,
)
from collection.browser.session import Browser

_SHOWN_OPTIONS, _MAX_OPTIONS = 60, 1000
# jQuery UI's autocomplete, for one, waits 300 ms after the last key before it shows suggestions.
_SUGGESTION_MS = 400
# Lists that show a part of their options, and sliders with many steps, end in bounded time.
_MAX_SCROLLS, _SCROLLED_MS, _MAX_STEPS = 60, 50, 100
# An element that is replaced all the time is clicked between two replacements, also on a busy machine.
_CLICK_TRIES = 20
_SLIDE_TRIES = 4
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


def click(browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    if target_of(browser, params.index).tag == "select":
        return get_options(browser, params, context)
    _click(browser, params.index, ctrl=params.while_holding_ctrl)
    return ActionOutcome(f"Clicked [{params.index}]", changed=True)


def _click(browser: Browser, index: int, times: int = 1, ctrl: bool = False) -> None:
    """Clicks an indexed element, also one that the page replaces by its like all the time."""
    for left in reversed(range(_CLICK_TRIES)):
        try:
            with located(browser, index) as element:
                browser.mouse(_point(browser, element, index), times=times, ctrl=ctrl)
            return
        except StaleElementReferenceException:
            if not left:
                raise ActionError(f"Element [{index}] is replaced all the time") from None


def _point(browser: Browser, element: WebElement, index: int) -> tuple[float, float]:
    """Scrolls an element into view; returns a point of its frame's window where it is not covered."""
    point = browser.run("clickPoint", element)
    if point is None:
        raise ActionError(f"Element [{index}] is covered or hidden")
    return point[0], point[1]


def double_click(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    _click(browser, params.index, times=2)
    return ActionOutcome(f"Double-clicked [{params.index}]", changed=True)


def hover(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    _click(browser, params.index, times=0)
    return ActionOutcome(f"Moved the mouse over [{params.index}]", changed=True)


def input_text(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    if params.index:
        with located(browser, params.index) as element:
            return _type_into(browser, element, params)
    if browser.guard is not None and browser.guard.redactor.secrets_in(params.text):
        return _type_secret(browser, browser.run("focusedField"), params)
    if params.clear_existing:
        browser.run("selectFocused")
    _send(browser, params, None)
    return ActionOutcome(f"Typed {params.text!r} into the focused element", changed=True)


def _type_into(browser: Browser, element: WebElement, params: Any) -> ActionOutcome:
    element = browser.run("field", element)
    kind = browser.run("typingKind", element)
    if kind == "none":
        raise ActionError(f"Element [{params.index}] takes no text")
    if kind == "slider":
        return _slide(browser, element, params)
    if browser.guard is not None and browser.guard.redactor.secrets_in(params.text):
        return _type_secret(browser, element, params)
    if kind == "set":
        # Date, time, colour and range fields have no text to type into.
        before = _typed(browser, element)
        browser.run("setField", element, params.text)
        return _check_typed(browser, element, params, before)
    browser.mouse(_point(browser, element, params.index))
    suggests = False
    if kind == "type":
        suggests = browser.run("prepareTyping", element, params.clear_existing)
    elif params.clear_existing:
        browser.run("selectFocused")
    before = _typed(browser, element)
    _send(browser, params, element if kind == "type" else None)
    if suggests:
        browser.settle(first_ms=_SUGGESTION_MS)
    return _check_typed(browser, element, params, before)


def _slide(browser: Browser, element: WebElement, params: Any) -> ActionOutcome:
    """Sets a slider that is no form field: by arrow keys, and before by the mouse if they are far away."""
    where = f"[{params.index}]"
    value, low, high, *_ = browser.run("slider", element, 0)
    try:
        wanted = float(params.text)
    except ValueError:
        raise ActionError(f"{where} is a slider: type a number") from None
    if value is None or low is None or high is None or low >= high:
        raise ActionError(f"{where} does not tell its value: click it, then press ArrowRight with send_keys")
    if not low <= wanted <= high:
        raise ActionError(f"{where} takes numbers from {low:g} to {high:g}")
    browser.script("arguments[0].focus()", element)
    for attempt in range(_SLIDE_TRIES):  # Pages that are slow to draw may miss a key.
        if value == wanted:
            break
        if not _press_arrows(browser, element, wanted):
            if attempt:
                break
            _, _, _, thumb, end = browser.run("slider", element, (wanted - low) / (high - low))
            browser.mouse(thumb, end)
        value = _slider_value(browser, element)
    if value != wanted:
        raise ActionError(f"{where} did not take {params.text}; it is at {value:g}")
    return ActionOutcome(f"Set {where} to {value:g}", changed=True)


def _press_arrows(browser: Browser, element: WebElement, wanted: float) -> bool:
    """Moves a slider with the focus by keys; returns False if they do nothing, or if it is too far."""
    start = _slider_value(browser, element)
    more, less = Keys.ARROW_RIGHT, Keys.ARROW_LEFT
    ahead, back = (more, less) if wanted > start else (less, more)
    _press(browser, None, ahead)
    value = _slider_value(browser, element)
    if value == start:
        return False
    steps = round((wanted - value) / (value - start))
    if abs(steps) > _MAX_STEPS:
        return False
    if steps:
        keys = (ahead if steps > 0 else back) * abs(steps)
        _press(browser, None, keys)
    return True


def _slider_value(browser: Browser, element: WebElement) -> float:
    browser.settle(first_ms=_SCROLLED_MS)
    return browser.run("slider", element, 0)[0] or 0.0


def _send(browser: Browser, params: Any, element: WebElement | None) -> None:
    """Types into an element, or into what has the focus."""
    if browser.redact(params.text) != params.text:
        # In one event: requests of the page while typing must not contain a part of the secret, which
        # redaction would not find.
        browser.cdp("Input.insertText", text=params.text)
    else:
        keys = params.text.replace("\r\n", "\n").replace("\n", Keys.ENTER)
        # For an empty text, the key that deletes the selection.
        _press(browser, element, Keys.DELETE if params.clear_existing and not keys else keys)


def _press(browser: Browser, element: WebElement | None, keys: str) -> None:
    """Presses keys in an element, or in what has the focus."""
    # The driver sees no focus in shadow trees: it refuses closed ones, and moves the cursor in others.
    if element is None or browser.run("focusedInShadow", element):
        browser.keys(ActionChains(browser.driver, duration=0).send_keys(keys).perform)
    else:
        browser.keys(element.send_keys, keys)


def _typed(browser: Browser, element: WebElement) -> tuple[str, str] | None:
    """Returns kind and text of the field, as `page_scripts.TYPED`; None also if the page has gone."""
    try:
        return browser.run("typed", element)
    except (WebDriverException, TabGoneError):
        return None


def _check_typed(
    browser: Browser, element: WebElement, params: Any, before: tuple[str, str] | None
) -> ActionOutcome:
    """Reads back what a field holds after typing.

    A text that certainly was not taken is an error; otherwise the result says what the field holds: fields of
    tags and codes, for example, empty themselves.
    """

    def plain(text: str) -> str:
        """Letters and digits only: masks add brackets and spaces."""
        return "".join(filter(str.isalnum, text)).casefold() or text

    where, text, done = f"[{params.index}]", params.text, f"Typed {params.text!r} into [{params.index}]"
    after = _typed(browser, element)
    # The Enter key may send a form, which may empty its fields.
    if before is None or after is None or not text or "\n" in text:
        return ActionOutcome(done, changed=True)
    kind, value = after
    if not kind:
        return ActionOutcome(f"{done}, but no text field has the focus", changed=True)
    # What a password field holds is not for the result.
    if kind == "password" or plain(text) in plain(value):
        return ActionOutcome(done, changed=True)
    if kind in _FORMATS and value in ("", before[1]):
        raise ActionError(f"{where} did not take {text!r}: write it as {_FORMATS[kind]}")
    if value and value == before[1] and params.clear_existing:
        raise ActionError(f"{where} did not take {text!r}; it holds {short_value(value)!r}")
    return ActionOutcome(f"{done}, which now holds {short_value(value)!r}", changed=True)


def _type_secret(browser: Browser, element: WebElement | None, params: Any) -> ActionOutcome:
    """Sets the text of a field with its secrets, if they belong to the field's site.

    Keys would go to what has the focus, which a page can move to a frame of another site meanwhile. The
    result has the placeholders.
    """
    where = f"[{params.index}]" if params.index else "the focused element"
    if element is None or not browser.run("isField", element):
        raise ActionError(f"A secret can only be typed into a field, and {where} is none")
    assert browser.guard is not None
    text = browser.guard.fill(params.text, _frame_url(browser, element))
    if not browser.run("setText", element, text, params.clear_existing):
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
    return browser.target_url(frame)


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
    browser.keys(chain.perform)
    return ActionOutcome(f"Pressed {params.keys}", changed=True)


def get_options(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    with located(browser, params.index) as element:
        options = _OptionList(browser, element, params.index)
        options.open()
        options.find_all()
    names = [name for name, _value in options.found]
    more = f" and {len(names) - _SHOWN_OPTIONS} more" if len(names) > _SHOWN_OPTIONS else ""
    return ActionOutcome(
        f"Options of [{params.index}]: {' | '.join(names[:_SHOWN_OPTIONS])}{more}",
        changed=options.opened,
        output="\n".join(names[:_MAX_OPTIONS]) if more else "",
    )


class _OptionList:
    """The options of a drop-down list, or of what opens one.

    Attributes:
      found: text and value of the options that were seen, in order.
      opened: the list had to be opened first.
    """

    def __init__(self, browser: Browser, element: WebElement, index: int) -> None:
        self._browser, self._element, self._index = browser, element, index
        self._anywhere = self.opened = self.editable = False
        self.found: dict[tuple[str, str], None] = {}

    def open(self) -> None:
        """Opens the list if it is closed, as users do. Raises ActionError if there are no options."""
        state, self.editable = self._browser.run("opens", self._element)
        self._anywhere = bool(state)
        if state == "closed":
            self.opened = True
            self._browser.mouse(_point(self._browser, self._element, self._index))
            self._browser.settle(first_ms=_SUGGESTION_MS)
        if not self.look() and self.opened:
            # A field with suggestions opens at this key.
            _press(self._browser, None, Keys.ARROW_DOWN)
            self._browser.settle(first_ms=_SUGGESTION_MS)
            self.look()
        if not self.found and not self.editable:
            raise ActionError(f"Element [{self._index}] has no options")

    def look(self) -> bool:
        """Adds what is listed now to `found`; returns True if something was new."""
        before = len(self.found)
        options = self._browser.run("options", self._element, self._anywhere)
        self.found |= dict.fromkeys((name, value) for name, value in options)
        return len(self.found) > before

    def find_all(self, wanted: str | None = None) -> tuple[str, str] | None:
        """Scrolls a list that shows a part of its options, until `wanted` is among them; returns that."""
        match, start = self._match(wanted), True
        for _ in range(_MAX_SCROLLS):
            where = (self._element, self._anywhere, start)
            if match or not self._browser.run("scrollList", *where):
                break
            self._browser.settle(first_ms=_SCROLLED_MS)
            if not self.look() and not start:
                # In a busy browser the scroll event comes late.
                self._browser.settle(first_ms=_SUGGESTION_MS)
                if not self.look():
                    break
            start, match = False, self._match(wanted)
        return match

    def search(self, text: str) -> tuple[str, str] | None:
        """Types a text into the field of a list that has none of its options before."""
        if not self.editable or self.found:
            return None
        self._browser.run("prepareTyping", self._element, True)
        _press(self._browser, self._element, text)
        self._browser.settle(first_ms=_SUGGESTION_MS)
        self.look()
        return self._match(text)

    def choose(self, option: tuple[str, str]) -> None:
        custom = self._browser.run("choose", self._element, *option, self._anywhere)
        if custom is not None:
            self._browser.mouse(_point(self._browser, custom, self._index))

    def _match(self, wanted: str | None) -> tuple[str, str] | None:
        if wanted is None:
            return None
        plain = squeeze(wanted).lower()
        by_name = (option for option in self.found if option[0].lower() == plain)
        by_value = (option for option in self.found if option[1].lower() == plain)
        return next(by_name, None) or next(by_value, None)


def select_option(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    with located(browser, params.index) as element:
        options = _OptionList(browser, element, params.index)
        options.open()
        match = options.find_all(params.text) or options.search(params.text)
        if match is None:
            names = [name for name, _value in options.found][:_SHOWN_OPTIONS] or ["none"]
            shown = f"Options of [{params.index}]: {' | '.join(names)}"
            raise ActionError(f"[{params.index}] has no option {params.text!r}. {shown}")
        options.choose(match)
    return ActionOutcome(f"Selected {match[0]!r} in [{params.index}]", changed=True)


def upload(browser: Browser, params: Any, context: ActionContext) -> ActionOutcome:
    allowed = {path.resolve() for path in context.uploads}
    path = pathlib.Path(params.path).resolve()
    if path not in allowed:
        path = file_folder(context).path(params.path)
    if not path.is_file():
        raise ActionError(f"No file {params.path}")
    with located(browser, params.index) as element:
        field = browser.run("fileField", element)
        if field is None:
            raise ActionError(f"Element [{params.index}] takes no file")
        browser.call(field.send_keys, str(path))
    return ActionOutcome(f"Uploaded {path.name} to [{params.index}]", changed=True)


_MODIFIERS = {Keys.CONTROL, Keys.SHIFT, Keys.ALT, Keys.META}
_KEY_NAMES = {
    name.replace("_", "").lower(): getattr(Keys, name)
    for name in (
        *("ENTER", "TAB", "ESCAPE", "BACKSPACE", "DELETE", "SPACE", "INSERT", "HOME", "END", "PAGE_UP"),
        *("PAGE_DOWN", "ARROW_UP", "ARROW_DOWN", "ARROW_LEFT", "ARROW_RIGHT", "UP", "DOWN", "LEFT", "RIGHT"),
        *("CONTROL", "SHIFT", "ALT", "META", *(f"F{number}" for number in range(1, 13))),
    )
} | {"return": Keys.ENTER, "esc": Keys.ESCAPE, "ctrl": Keys.CONTROL, "command": Keys.META}


def click_coordinates(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    point = _on_screen(browser, params.x, params.y)
    browser.mouse(point, times=2 if params.double else 1)
    return ActionOutcome(f"{'Double-clicked' if params.double else 'Clicked'} {point}", changed=True)


def drag_coordinates(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    start, end = _on_screen(browser, params.x, params.y), _on_screen(browser, params.to_x, params.to_y)
    _drag(browser, start, end)
    return ActionOutcome(f"Dragged {start} to {end}", changed=True)


def hover_coordinates(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    point = _on_screen(browser, params.x, params.y)
    browser.mouse(point, times=0)
    return ActionOutcome(f"Moved the mouse to {point}", changed=True)


def scroll_coordinates(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    point = _on_screen(browser, params.x, params.y)
    browser.wheel(point, (1 if params.down else -1) * params.num_pages * browser.config.height)
    return ActionOutcome(f"Scrolled {'down' if params.down else 'up'} at {point}", changed=True)


def _on_screen(browser: Browser, x: int, y: int) -> tuple[int, int]:
    width, height = browser.config.width, browser.config.height
    if x >= width or y >= height:
        raise ActionError(f"({x}, {y}) is outside the screenshot of {width} by {height} pixels")
    return x, y


def _drag(browser: Browser, start: tuple[float, float], end: tuple[float, float]) -> None:
    # Pages start to drag after some pixels of movement, and look at what is below the mouse on each.
    browser.mouse(start, (start[0] + 8, start[1] + 8), (end[0] - 3, end[1] - 3), end)


def drag(browser: Browser, params: Any, _: ActionContext) -> ActionOutcome:
    onto = target_of(browser, params.onto_index)
    with located(browser, params.index) as element:
        if onto.frames != target_of(browser, params.index).frames:
            raise ActionError(f"[{params.index}] and [{params.onto_index}] are in different frames")
        end = browser.run("find", onto.uid, onto.document)
        if end is None:
            raise ActionError(f"Element [{params.onto_index}] is gone")
        # Scrolling to the end may move the start out of view, so the start comes last.
        onto_point = _point(browser, end, params.onto_index)
        _drag(browser, _point(browser, element, params.index), onto_point)
    return ActionOutcome(f"Dragged [{params.index}] onto [{params.onto_index}]", changed=True)
